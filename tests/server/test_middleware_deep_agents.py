"""`PatchToolCallsMiddleware` and the guard in `create_deep_agent`."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from kit import Agent, StrictModel, calls, streamed
from langgraph_patch import patch_model, validate_messages, with_patching
from langgraph_patch.errors import ModelError
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.strict import RefusedError

MAIL = calls(("mail", {"to": "bob"}), first=2)
LONG = MAIL.model_copy(deep=True)
LONG.tool_calls[0]["id"] = "c" * 41
"""An id that a provider refuses; deepagents' own middleware leaves it as it is."""


class LastOne(PatchToolCallsMiddleware):
    """The repair under a name that deepagents does not know."""


def deep(*middleware: Any, **options: Any) -> Any:
    """A kind of agent: a deep agent with these middlewares."""
    return lambda model, tools, saver: create_deep_agent(
        model, tools, middleware=list(middleware), checkpointer=saver, **options
    )


def delegates(to: str) -> Any:
    """A call of a subagent."""
    return calls(("task", {"description": "mail bob", "subagent_type": to}))


def spec(**more: Any) -> dict[str, Any]:
    """A declarative subagent."""
    return {"name": "clerk", "description": "a clerk", "system_prompt": "", **more}


@pytest.mark.needs(deepagents="0.7")
@pytest.mark.parametrize("takes", [False, True])
def test_it_takes_the_place_of_deepagents_own(takes):
    """In the main agent the recorded result is recovered; deepagents' own middleware finds none."""
    script = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
    agent = Agent(deep(*[PatchToolCallsMiddleware()] * takes), script)
    agent.say("go")
    agent.say("never mind")
    assert (agent.results["c1"] == "sent to bob") is takes
    assert validate_messages(agent.history) == []
    names = [name for name in agent.graph.nodes if "PatchToolCalls" in name]
    assert names == ([] if takes else ["PatchToolCallsMiddleware.before_agent"])


def compiled(*, patched: bool) -> dict[str, Any]:
    """A subagent with a graph of its own."""
    graph = create_agent(
        StrictModel(script=[LONG, AIMessage("mailed")]), Agent("send").desk.tools()
    )
    runnable = with_patching(graph) if patched else graph
    return {"name": "clerk", "description": "a clerk", "runnable": runnable}


OWN = (PatchToolCallsMiddleware(),)
SUBAGENTS: dict[str, Any] = {
    "general-purpose": ("general-purpose", OWN, [], True),
    "general-purpose, without it": ("general-purpose", (), [], False),
    "fork": ("clerk", OWN, [spec(mode="fork")], True),
    "declared": ("clerk", OWN, [spec()], False),
    "declared with its own": ("clerk", OWN, [spec(middleware=[*OWN])], True),
    "compiled": ("clerk", OWN, [compiled(patched=False)], False),
    "compiled and patched": ("clerk", OWN, [compiled(patched=True)], True),
}
"""Which subagent is called, the middleware of the main agent, the subagents, if it is covered."""


@pytest.mark.filterwarnings("ignore:The feature `forked subagents` is in beta")
@pytest.mark.needs(deepagents="0.7")
@pytest.mark.parametrize("name", SUBAGENTS)
def test_which_subagents_it_covers(name):
    """The built-in subagent and forks have it from the main agent; others must list it."""
    to, middleware, subagents, is_covered = SUBAGENTS[name]
    own = [] if "compiled" in name else [LONG, AIMessage("mailed")]  # what the subagent says
    agent = Agent(deep(*middleware, subagents=subagents), delegates(to), *own)
    if is_covered:
        agent.say("go")
        assert [m.text for m in agent.history[-2:]] == ["mailed", "done"]
    else:
        with pytest.raises(RefusedError, match="too long"):
            agent.say("go")


@wrap_model_call
async def cutting(request, handler):
    """Leave out each message with calls, and keep their results."""
    kept = [m for m in request.messages if not getattr(m, "tool_calls", None)]
    return await handler(request.override(messages=kept))


@pytest.mark.needs(deepagents="0.7")
def test_a_subclass_comes_after_your_own_middleware():
    """Under another name it keeps its place in the list, so it sees what yours cut."""
    with pytest.raises(RefusedError, match="answers no call"):
        Agent(deep(cutting, *OWN), MAIL, asynchronous=True).say("go")
    agent = Agent(deep(*OWN, cutting, LastOne()), MAIL, asynchronous=True)
    agent.say("go")
    assert agent.history[-1].text == "done"


@pytest.mark.needs(deepagents="0.7")
def test_a_cut_call_of_a_subagent_does_not_run():
    """The guard of the patched graph reaches the model of the subagent."""
    cut = streamed(("mail", '{"to": "bo'), reason="length", first=2)

    def build(model, tools, saver):
        helper = StrictModel(script=[cut], streaming=True)
        subagents = [spec(model=helper, tools=tools)]
        agent = create_deep_agent(model, [], subagents=subagents, checkpointer=saver)
        return with_patching(agent)

    agent = Agent(build, delegates("clerk"))
    agent.say("go")
    assert agent.desk.did == {}
    assert agent.history[-1].text == "done"


def test_a_patched_model_is_no_model_of_a_deep_agent():
    """It lacks attributes that deepagents reads: the error says what to do instead."""
    with pytest.raises(ModelError, match=r"use with_patching\(agent\)"):
        create_deep_agent(patch_model(StrictModel()), checkpointer=InMemorySaver())
