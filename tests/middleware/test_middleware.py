"""`PatchToolCallsMiddleware` in `create_agent` and in `create_deep_agent`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_patch import is_placeholder, validate_messages, with_patching
from langgraph_patch.errors import OptionError
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import Graph, Tools, both_calls, history, human, lines, thread
from support.placeholder_texts import MALFORMED, UNKNOWN, WAITED
from support.running import run, sync_and_async
from support.strict import RefusedError, StrictModel, ai
from support.versions import newer

TracePolicy = newer("langchain.agents.middleware", "TracePolicy")
omit_payload = newer("langchain.agents.middleware", "omit_payload")

BOOKED = human("book it")
NEVER_MIND = human("never mind")
HEALED = [
    "human: book it",
    "ai c1 c2: ",
    "tool c1: sent to bob",
    f"tool c2: {WAITED.format('wire_money', 'c2')}",
    "human: never mind",
]
DEAD = ["human: book it", "ai c1 c2: ", "human: never mind"]


def agent(
    *middleware: AgentMiddleware[Any, Any, Any],
    script: list[Any],
    saver: InMemorySaver | None = None,
    asynchronous: bool = False,
) -> tuple[Graph, StrictModel]:
    """A `create_agent` agent and its model."""
    model = StrictModel(script=script)
    tools = Tools(asynchronous=asynchronous).tools()
    saver = saver or InMemorySaver()
    return create_agent(model, tools, middleware=middleware, checkpointer=saver), model


def dead_thread() -> InMemorySaver:
    """A thread that the bare agent broke: the model is next, and refuses."""
    saver = InMemorySaver()
    graph, _ = agent(script=[both_calls()], saver=saver)
    graph.invoke({"messages": [BOOKED]}, thread())
    with pytest.raises(RefusedError, match="c1"):
        graph.invoke({"messages": [NEVER_MIND]}, thread())
    assert graph.get_state(thread()).next == ("model",)
    return saver


class Cut(AgentMiddleware):
    """Removes the calls from the model's input, and keeps their results."""

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Leave out each message with calls."""
        kept = [m for m in request.messages if not getattr(m, "tool_calls", None)]
        return handler(request.override(messages=kept))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """As `wrap_model_call`."""
        return await self.wrap_model_call(request, handler)


# --- in create_agent -----------------------------------------------------------------------


@sync_and_async
async def test_a_new_message_after_an_interrupt(*, asynchronous: bool):
    """The state is repaired before the agent runs, with the recorded result."""
    script = [both_calls(), AIMessage("fine"), AIMessage("yes?")]
    graph, model = agent(PatchToolCallsMiddleware(), script=script, asynchronous=asynchronous)
    await run(graph, BOOKED, asynchronous=asynchronous)
    await run(graph, NEVER_MIND, asynchronous=asynchronous)
    assert lines(history(graph, thread())) == [*HEALED, "ai: fine"]
    await run(graph, "hello", asynchronous=asynchronous)
    assert lines(model.seen[-1]) == [*HEALED, "ai: fine", "human: hello"]


@sync_and_async
async def test_a_resume_reaches_the_tool(*, asynchronous: bool):
    """An approval goes to the call that waits: no hook of the middleware runs before it."""
    script = [both_calls(), AIMessage("done")]
    graph, _ = agent(PatchToolCallsMiddleware(), script=script, asynchronous=asynchronous)
    await run(graph, BOOKED, asynchronous=asynchronous)
    await run(graph, Command(resume="yes"), asynchronous=asynchronous)
    assert lines(history(graph, thread()))[2:] == [
        "tool c1: sent to bob",
        "tool c2: wired: yes",
        "ai: done",
    ]


@sync_and_async
@pytest.mark.parametrize("value", [None, Command(goto="model")], ids=["none", "goto"])
async def test_damage_in_front_of_the_model(*, asynchronous: bool, value: Any):
    """The model reads a valid history, and the repair is stored with its answer."""
    reported = []
    middleware = PatchToolCallsMiddleware(on_patch=lambda patch, _: reported.append(patch))
    script = [AIMessage("fine"), AIMessage("yes?")]
    graph, model = agent(middleware, script=script, saver=dead_thread(), asynchronous=asynchronous)
    await run(graph, value, asynchronous=asynchronous)
    assert lines(model.seen[-1]) == HEALED
    assert lines(history(graph, thread())) == [*HEALED, "ai: fine"]
    await run(graph, "hello", asynchronous=asynchronous)
    healed = [*HEALED, "ai: fine", "human: hello", "ai: yes?"]
    assert lines(history(graph, thread())) == healed
    assert len(reported) == 1, "what is written is reported"


@sync_and_async
async def test_last_in_the_list_sees_what_the_others_did(*, asynchronous: bool):
    """After a middleware that cuts the history, the orphan is gone; before it, it is not."""
    script = [ai(("send_email", {"to": "bob"}, "c1"), id="a1"), AIMessage("done")]
    graph, model = agent(
        Cut(), PatchToolCallsMiddleware(), script=list(script), asynchronous=asynchronous
    )
    await run(graph, BOOKED, asynchronous=asynchronous)
    assert lines(model.seen[-1]) == ["human: book it"]
    assert lines(history(graph, thread()))[1:] == ["ai c1: ", "tool c1: sent to bob", "ai: done"]
    graph, _ = agent(
        PatchToolCallsMiddleware(), Cut(), script=list(script), asynchronous=asynchronous
    )
    with pytest.raises(RefusedError, match="answers no call"):
        await run(graph, BOOKED, asynchronous=asynchronous)


@sync_and_async
async def test_a_healthy_agent_is_left_alone(*, asynchronous: bool):
    """Without damage nothing is reported, and the model reads the very same messages."""
    reported = []
    middleware = PatchToolCallsMiddleware(on_patch=lambda *seen: reported.append(seen))
    script = [ai(("send_email", {"to": "bob"}, "c1"), id="a1"), AIMessage("done", id="a2")]
    graph, model = agent(middleware, script=script, asynchronous=asynchronous)
    await run(graph, BOOKED, asynchronous=asynchronous)
    assert lines(model.seen[-1]) == ["human: book it", "ai c1: ", "tool c1: sent to bob"]
    assert reported == []


def test_with_patching_and_the_middleware_together():
    """Both in one agent: the entry check repairs first, and there is one repair."""
    reported = []
    middleware = PatchToolCallsMiddleware(on_patch=lambda *seen: reported.append(seen))
    graph, _ = agent(middleware, script=[AIMessage("fine")], saver=dead_thread())
    patched = with_patching(graph)
    patched.invoke(None, thread())
    assert lines(history(patched, thread())) == [*HEALED, "ai: fine"]
    assert reported == []


def test_clients_see_the_new_results_only():
    """In `messages` mode a repair is its two results and then the answer."""
    script = [both_calls(), AIMessage("fine")]
    graph, _ = agent(PatchToolCallsMiddleware(), script=script)
    graph.invoke({"messages": [BOOKED]}, thread())
    seen = [
        message
        for message, _ in graph.stream({"messages": [NEVER_MIND]}, thread(), stream_mode="messages")
    ]
    assert [message.type for message in seen[:2]] == ["tool", "tool"]
    assert {message.type for message in seen[2:]} == {"AIMessageChunk"}
    assert lines(seen[:2]) == HEALED[2:4]


def test_options_are_those_of_the_node():
    """Placeholder texts reach the state, and a wrong option is refused."""
    graph, _ = agent(
        PatchToolCallsMiddleware(recover=False), script=[AIMessage("fine")], saver=dead_thread()
    )
    graph.invoke({"messages": [human("hello?")]}, thread())
    assert history(graph, thread())[2].text == UNKNOWN.format("send_email", "c1")
    graph, _ = agent(
        PatchToolCallsMiddleware(placeholder={"awaiting_input": "no answer"}),
        script=[AIMessage("fine")],
        saver=dead_thread(),
    )
    graph.invoke({"messages": [human("hello?")]}, thread())
    results = lines(history(graph, thread()))[2:4]
    assert results == ["tool c1: sent to bob", "tool c2: no answer"]
    with pytest.raises(OptionError, match="recover"):
        PatchToolCallsMiddleware(recover="always")


def test_what_on_patch_raises_reaches_the_caller():
    """An application that refuses a repair gets its own error, and nothing is written."""

    def refuse(*_: Any) -> None:
        raise LookupError("not now")

    saver = dead_thread()
    graph, _ = agent(PatchToolCallsMiddleware(on_patch=refuse), script=[], saver=saver)
    with pytest.raises(LookupError, match="not now"):
        graph.invoke({"messages": [human("hello?")]}, thread())
    assert lines(history(graph, thread())) == [*DEAD, "human: hello?"]


# --- in create_deep_agent ------------------------------------------------------------------

LONG = "c" * 41
"""An id that a provider refuses; deepagents' own middleware leaves it as it is."""


def deep_agent(model: StrictModel, *middleware: Any, **options: Any) -> Graph:
    """A deep agent with the two tools."""
    return create_deep_agent(
        model, Tools().tools(), middleware=list(middleware), checkpointer=InMemorySaver(), **options
    )


@pytest.mark.needs(deepagents="0.7")
def test_it_takes_the_place_of_deepagents_own():
    """In the main agent the recorded result is recovered; deepagents' own middleware finds none."""
    for middleware, healed in (((), False), ((PatchToolCallsMiddleware(),), True)):
        model = StrictModel(script=[both_calls(), AIMessage("fine")])
        graph = deep_agent(model, *middleware)
        graph.invoke({"messages": [BOOKED]}, thread())
        graph.invoke({"messages": [NEVER_MIND]}, thread())
        texts = lines(history(graph, thread()))
        assert (texts == [*HEALED, "ai: fine"]) is healed
        assert validate_messages(history(graph, thread())) == []
        names = [name for name in graph.nodes if "PatchToolCalls" in name]
        assert names == ([] if healed else ["PatchToolCallsMiddleware.before_agent"])


def delegates(to: str) -> list[AIMessage]:
    """A script: the subagent makes a call with an id that the model then refuses."""
    task = ai(("task", {"description": "mail bob", "subagent_type": to}, "t1"))
    return [task, ai(("send_email", {"to": "bob"}, LONG)), AIMessage("mailed"), AIMessage("done")]


def spec(**more: Any) -> dict[str, Any]:
    """A declarative subagent."""
    return {"name": "clerk", "description": "a clerk", "system_prompt": "", **more}


@pytest.mark.filterwarnings(
    # deepagents says that forks may change.
    "ignore:The feature `forked subagents` is in beta"
)
@pytest.mark.parametrize(
    ("to", "subagents", "covered"),
    [
        ("general-purpose", [], True),
        ("clerk", [spec(mode="fork")], True),
        ("clerk", [spec()], False),
        ("clerk", [spec(middleware=[PatchToolCallsMiddleware()])], True),
    ],
    ids=["general-purpose", "fork", "declared", "declared with its own"],
)
@pytest.mark.needs(deepagents="0.7")
def test_which_subagents_it_covers(to: str, subagents: list[Any], *, covered: bool):
    """The built-in subagent and forks have it from the main agent; others must list it."""
    model = StrictModel(script=delegates(to))
    graph = deep_agent(model, PatchToolCallsMiddleware(), subagents=subagents)
    if covered:
        answer = graph.invoke({"messages": [BOOKED]}, thread())["messages"]
        assert lines(answer)[-2:] == ["tool t1: mailed", "ai: done"]
    else:
        with pytest.raises(RefusedError, match="too long"):
            graph.invoke({"messages": [BOOKED]}, thread())


def test_without_it_no_subagent_is_covered():
    """The judge of the test above: deepagents' own leaves the general-purpose one to die."""
    graph = deep_agent(StrictModel(script=delegates("general-purpose")))
    with pytest.raises(RefusedError, match="too long"):
        graph.invoke({"messages": [BOOKED]}, thread())


@pytest.mark.parametrize("patched", [False, True])
@pytest.mark.needs(deepagents="0.7")
def test_a_subagent_with_a_graph_of_its_own(*, patched: bool):
    """A compiled subagent is repaired if its graph was patched."""
    model = StrictModel(script=delegates("clerk"))
    graph = create_agent(model, Tools().tools())
    runnable = with_patching(graph) if patched else graph
    clerk = {"name": "clerk", "description": "a clerk", "runnable": runnable}
    deep = deep_agent(model, PatchToolCallsMiddleware(), subagents=[clerk])
    if patched:
        answer = deep.invoke({"messages": [BOOKED]}, thread())["messages"]
        assert lines(answer)[-2:] == ["tool t1: mailed", "ai: done"]
    else:
        with pytest.raises(RefusedError, match="too long"):
            deep.invoke({"messages": [BOOKED]}, thread())


class LastOne(PatchToolCallsMiddleware):
    """The repair under a name that deepagents does not know."""


@sync_and_async
@pytest.mark.needs(deepagents="0.7")
async def test_a_subclass_comes_after_your_own_middleware(*, asynchronous: bool):
    """Under another name it keeps its place in the list, so it sees what yours cut."""
    script = [ai(("send_email", {"to": "bob"}, "c1")), AIMessage("done")]
    graph = deep_agent(StrictModel(script=list(script)), Cut(), PatchToolCallsMiddleware())
    with pytest.raises(RefusedError, match="answers no call"):
        await run(graph, BOOKED, asynchronous=asynchronous)
    graph = deep_agent(
        StrictModel(script=list(script)), PatchToolCallsMiddleware(), Cut(), LastOne()
    )
    await run(graph, BOOKED, asynchronous=asynchronous)
    assert lines(history(graph, thread()))[-1] == "ai: done"


# --- options -------------------------------------------------------------------------------


def test_recover_is_checked():
    """Any other value is an error where it is passed."""
    with pytest.raises(OptionError, match="recover="):
        PatchToolCallsMiddleware(recover="always")


# --- incomplete calls beside complete ones --------------------------------------------------


@sync_and_async
async def test_an_incomplete_call_beside_a_complete_one(*, asynchronous: bool):
    """The complete call runs, and the other is answered by a placeholder of this package."""
    cut = {"name": "wire_money", "args": '{"amount": 1', "id": "c2", "error": None}
    mixed = AIMessage(
        "",
        id="a1",
        tool_calls=[{"name": "send_email", "args": {"to": "bob"}, "id": "c1"}],
        invalid_tool_calls=[{**cut, "type": "invalid_tool_call"}],
    )
    script = [mixed, AIMessage("fine"), AIMessage("bye")]
    graph, model = agent(PatchToolCallsMiddleware(), script=script, asynchronous=asynchronous)
    await run(graph, "book it", asynchronous=asynchronous)
    malformed = f"tool c2: {MALFORMED.format('wire_money', 'c2')}"
    read = [malformed, "tool c1: sent to bob"]
    assert lines(model.seen[1]) == ["human: book it", "ai c1 c2: ", *read]
    assert is_placeholder(model.seen[1][2])
    await run(graph, "thanks", asynchronous=asynchronous)
    after = history(graph, thread())
    assert lines(after)[:4] == ["human: book it", "ai c1 c2: ", *read]
    assert validate_messages(after) == []
