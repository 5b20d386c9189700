"""deepagents' `create_deep_agent`: it repairs by itself, so the record must come before that."""

from __future__ import annotations

from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as OtherMiddleware
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from kit import BARE, Agent, Desk, StrictModel, calls, lines, patched, streamed
from langgraph_patch import validate_messages, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.testing import RefusedError
from langgraph_patch.threads import repair_thread
from support.histories import invalid_of
from support.paths import run_page
from support.placeholder_texts import DEEPAGENTS_INCOMPLETE, WAITED

MAIL = calls(("mail", {"to": "bob"}), first=2)
CUT = MAIL.model_copy(update={"invalid_tool_calls": [invalid_of("{", "c9", "wire")]})
"""A call that the model did not finish, beside one that it did."""
OWN = (PatchToolCallsMiddleware(),)
BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
SENT = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}
THEIRS = {c: DEEPAGENTS_INCOMPLETE.format(n, c) for c, n in (("c1", "mail"), ("c2", "wire"))}


def with_own(*middleware: Any, **options: Any) -> Any:
    """A kind of agent: a deep agent with these middlewares."""
    return lambda model, tools, saver: create_deep_agent(
        model, tools, middleware=list(middleware), checkpointer=saver, **options
    )


deep = with_own()


def with_their_middleware(model: Any, tools: Any, saver: Any) -> Any:
    """`create_agent` with deepagents' repair."""
    return create_agent(model, tools, middleware=[OtherMiddleware()], checkpointer=saver)


@pytest.mark.parametrize(
    ("build", "value", "asynchronous"),
    [
        (deep, {"files": {}}, False),
        (deep, {"messages": [HumanMessage("never mind")]}, True),
        (with_their_middleware, {"messages": [HumanMessage("never mind")]}, False),
    ],
)
def test_the_record_wins_over_the_text_of_deepagents(build: Any, value: Any, *, asynchronous: bool):
    """Bare, the sent mail is denied; patched, the model reads it, also without a message."""
    bare = Agent(build, BOTH, asynchronous=asynchronous)
    bare.say("go")
    bare.run(value)
    assert bare.results == THEIRS
    it = patched(Agent(build, BOTH, asynchronous=asynchronous))
    it.say("go")
    it.run(value)
    assert it.results["c1"] == "sent to bob"
    assert "asked for human input" in it.results["c2"]
    assert it.desk.did == {"mail bob": 1}
    it.say("hello")
    assert validate_messages(it.history) == []


def test_a_repair_of_deepagents_is_replaced():
    """Offline, by the result that is recorded; where none is, what it wrote stays.

    Its own repair removes all messages of a `DeltaChannel`, which not every reducer obeys: refused.
    """
    it = Agent(BARE["create_agent"], BOTH)
    it.say("go")
    written = [ToolMessage(text, tool_call_id=call_id) for call_id, text in THEIRS.items()]
    it.run({"messages": [*written, HumanMessage("never mind")]})
    assert repair_thread(it.graph.checkpointer, it.config, min_age=0).outcome == "repaired"
    patched(it).say("hello?")
    assert it.read == it.results == {**THEIRS, "c1": "sent to bob"}
    delta = Agent(deep, BOTH)
    delta.say("go")
    delta.say("never mind")
    refused = repair_thread(delta.graph.checkpointer, delta.config, min_age=0)
    assert (refused.outcome, delta.results) == ("refused", THEIRS)
    assert "removed once" in str(refused.reason)


def test_delta_state(tmp_path: Any):
    """A stored deep agent is repaired without its code, goes on, and nothing is erased."""
    it = Agent(deep, BOTH, saver=tmp_path / "db")
    it.say("go")
    saver = it.graph.checkpointer
    assert repair_thread(saver, it.config, min_age=0, on_pause="abandon").outcome == "repaired"
    for text in ("next", "and then?"):
        it.say(text)
    assert lines(it.history)[:3] == ["human: go", "ai c1 c2: ", "tool c1: sent to bob"]
    assert lines(it.history)[-4:] == ["human: next", "ai: done", "human: and then?", "ai: done"]
    assert it.desk.did == {"mail bob": 1}
    saver.conn.close()


# --- the middleware in a deep agent ---------------------------------------------------------------


class LastOne(PatchToolCallsMiddleware):
    """The repair under a name that deepagents does not know."""


def delegates(to: str, **fields: Any) -> Any:
    """A call of a subagent."""
    return calls(("task", {"description": "mail bob", "subagent_type": to}), **fields)


def spec(**more: Any) -> dict[str, Any]:
    """A declarative subagent."""
    return {"name": "clerk", "description": "a clerk", "system_prompt": "", **more}


@pytest.mark.needs(deepagents="0.7")
def test_it_takes_the_place_of_deepagents_own():
    """In the main agent the recorded result is recovered; deepagents' own middleware finds none."""
    agent = Agent(with_own(*OWN), BOTH)
    agent.say("go")
    agent.say("never mind")
    assert agent.results == SENT
    assert not any("PatchToolCalls" in name for name in agent.graph.nodes)


def compiled() -> dict[str, Any]:
    """A subagent with a graph of its own."""
    graph = create_agent(StrictModel(script=[CUT, AIMessage("mailed")]), Desk().tools())
    return {"name": "clerk", "description": "a clerk", "runnable": graph}


SUBAGENTS: dict[str, Any] = {
    "general-purpose": ("general-purpose", [], True),
    "fork": ("clerk", [spec(mode="fork")], True),
    "declared": ("clerk", [spec()], False),
    "declared with its own": ("clerk", [spec(middleware=[*OWN])], True),
    "compiled": ("clerk", [compiled()], False),
}
"""Which subagent is called, the subagents, whether it is covered by the main agent's."""


@pytest.mark.filterwarnings("ignore:The feature `forked subagents` is in beta")
@pytest.mark.needs(deepagents="0.7")
@pytest.mark.parametrize("name", SUBAGENTS)
def test_which_subagents_it_covers(name):
    """The built-in subagent and forks have it from the main agent; others must list it."""
    to, subagents, is_covered = SUBAGENTS[name]
    own = [] if name == "compiled" else [CUT, AIMessage("mailed")]  # what the subagent says
    agent = Agent(with_own(*OWN, subagents=subagents), delegates(to), *own)
    if is_covered:
        agent.say("go")
        assert [m.text for m in agent.history[-2:]] == ["mailed", "done"]
    else:
        with pytest.raises(RefusedError, match="malformed arguments"):
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
        Agent(with_own(cutting, *OWN), MAIL, asynchronous=True).say("go")
    agent = Agent(with_own(*OWN, cutting, LastOne()), MAIL, asynchronous=True)
    agent.say("go")
    assert agent.history[-1].text == "done"


def with_clerk(**helper: Any) -> Any:
    """A kind of agent: patched, with a subagent whose model has this script."""

    def build(model, tools, saver):
        subagents = [spec(model=StrictModel(**helper), tools=tools)]
        return with_patching(create_deep_agent(model, [], subagents=subagents, checkpointer=saver))

    return build


@pytest.mark.needs(deepagents="0.7")
def test_a_cut_call_of_a_subagent_does_not_run():
    """The guard of the patched graph reaches the model of the subagent."""
    cut = streamed(("mail", '{"to": "bo'), reason="length", first=2)
    agent = Agent(with_clerk(script=[cut], streaming=True), delegates("clerk"))
    agent.say("go")
    assert agent.desk.did == {}
    assert agent.history[-1].text == "done"


def test_the_model_reads_what_a_subagent_did():
    """The subagent waits for a human beside a mail that was sent; the user moves on."""
    call = delegates("clerk", first=9)
    agent = Agent(with_clerk(script=[BOTH]), call, asynchronous=True)
    agent.say("go")
    agent.say("never mind")
    assert agent.desk.did == {"mail bob": 1}
    inside = 'Recorded inside it: mail({"to": "bob"}): sent to bob'
    assert agent.read["c9"] == f"{WAITED.format('task', 'c9')} {inside}"


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    """A reader who pastes its blocks from top to bottom gets no error."""
    monkeypatch.chdir(tmp_path)
    assert "create_deep_agent" in run_page("how-to/wrap-an-agent")
