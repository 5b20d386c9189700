"""`with_patching(graph)` without options, on graphs shaped like real applications."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from langgraph_patch import patch_node, validate_messages, with_patching
from langgraph_patch.errors import GraphError, OptionError
from support.agent_matrix import BREAKS, Desk, MatrixThread, expected_history, script
from support.agents import Graph, both_calls, history, human, lines, thread
from support.applications import (
    APPLICATIONS,
    Application,
    call_model,
    frontend,
    parallel_models,
    two_histories,
)
from support.open_calls import OPEN, REPAIRED, UNKNOWN_RESULTS
from support.placeholder_texts import UNKNOWN
from support.running import in_turn, run, sync_and_async
from support.strict import StrictModel, ai, refuse

each_application = pytest.mark.parametrize(
    "app", APPLICATIONS, ids=[app.agent.name for app in APPLICATIONS]
)


# --- every break ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "way", "asynchronous"),
    [
        pytest.param(app, way, bool((n + k) % 2), id=f"{app.agent.name}-{way}")
        for n, app in enumerate(APPLICATIONS)
        for k, way in enumerate(BREAKS)
        if (n + k) % 2 == 0 or way in ("interrupted", "goto")
    ],
)
async def test_the_thread_goes_on(app: Application, way: str, *, asynchronous: bool):
    """No model refuses, no tool runs twice, the state is repaired at once or by the next turn."""
    it = MatrixThread(app.agent, BREAKS[way].wire, asynchronous)
    value = await BREAKS[way].make(it)
    mails = it.desk.done.count("mail")

    await it.run(it.patched, value)

    expected = expected_history(app.agent, way)
    if app.writes and way != "send":
        assert lines(it.history()) == expected
    for text in ("hello", "and now?", "really?"):
        await it.run(it.patched, {"messages": [human(text)]})
        expected += [f"human: {text}", f"ai: re: {text}"]
        assert lines(it.history())[-1] == f"ai: re: {text}"
        if not app.shortens:
            assert lines(it.history()) == expected
            assert validate_messages(it.history()) == []
            refuse(it.history())
    assert it.desk.done.count("mail") == mails


@each_application
def test_the_log_lists_what_is_covered(app: Application, caplog: pytest.LogCaptureFixture):
    """One INFO line names the model nodes, the nodes that keep calls at the tail, and the rest."""
    with caplog.at_level(logging.DEBUG, logger="langgraph_patch"):
        MatrixThread(app.agent, "asks", asynchronous=False)
    [record] = caplog.records
    covered, _, whole = record.getMessage().partition("; cannot recover results")
    assert (record.levelno, covered) == (logging.INFO, app.covered)
    assert "record=True" in whole or not whole


# --- healthy -------------------------------------------------------------------------------

MODES = ["values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"]
IDS = re.compile(
    r"(lc_run-+)?[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|0x[0-9a-f]+|\d{4}-\d\d-\d\dT[^']+"
)


def shown(value: Any) -> str:
    """What a client sees of a value, without ids and times that differ in each run."""
    return IDS.sub("<id>", repr(value))


def inputs() -> list[Any]:
    """A turn with a pause, its answer, and four turns more."""
    texts = ("thanks", "bye", "hello again", "bye again")
    turns = [
        {"messages": [human(text)], "supervisor_messages": [human(text)]}
        for text in ("book it", *texts)
    ]
    return [turns[0], Command(resume="yes"), *turns[1:]]


async def seen_by_clients(graph: Graph, *, asynchronous: bool, events: bool) -> list[str]:
    """All that the streams show of a healthy thread."""
    seen: list[Any] = []
    options: Any = {"stream_mode": MODES, "subgraphs": True}
    for value in inputs():
        if events:
            found = [event async for event in graph.astream_events(value, thread(), version="v2")]
            hidden = "langsmith:hidden"  # the router of START
            seen += [
                {**event, "parent_ids": len(event["parent_ids"])}
                for event in found
                if hidden not in event["tags"]
            ]
        elif asynchronous:
            seen += [part async for part in graph.astream(value, thread(), **options)]
        else:
            seen += graph.stream(value, thread(), **options)
    return list(map(shown, seen))


def kept(graph: Graph) -> list[str]:
    """The state in each checkpoint of the thread, newest first."""
    return [
        shown((state.values, state.next, state.metadata, state.tasks))
        for state in graph.get_state_history(thread())
    ]


Build = Callable[[Any, BaseCheckpointSaver[Any]], Graph]


def _frontend(wrap: Any, saver: Any) -> Graph:
    answers = [lambda seen: AIMessage(f"re: {seen[-1].text}")] * 9
    return frontend(StrictModel(script=[both_calls(), *answers]), wrap, saver)


def _two_histories(wrap: Any, saver: Any) -> Graph:
    return two_histories(Desk("asks"), script(both_calls()), script(), wrap, saver)


def _parallel(wrap: Any, saver: Any) -> Graph:
    return parallel_models(Desk("asks"), {"left": script(), "right": script()}, wrap, saver)


HEALTHY: dict[str, Build] = {
    **{
        app.agent.name: lambda wrap, saver, app=app: app.agent.build(
            Desk("asks"), script(both_calls()), wrap, saver
        )
        for app in APPLICATIONS
    },
    "frontend": _frontend,
    "two_histories": _two_histories,
    "parallel_models": _parallel,
}


@pytest.mark.parametrize(("name", "how"), in_turn(HEALTHY, ["events", "sync", "async"]))
async def test_a_healthy_thread_is_that_of_the_bare_graph(name: str, how: str):
    """The same chunks in all stream modes, the same events, and the same checkpoints."""
    found = []
    for wrap in (lambda graph: graph, with_patching):
        graph = HEALTHY[name](wrap, InMemorySaver())
        seen = await seen_by_clients(graph, asynchronous=how == "async", events=how == "events")
        found.append((seen, kept(graph)))
    bare, patched = found
    if name == "parallel_models":  # they run at once
        bare[0].sort()
        patched[0].sort()
    assert patched[0] == bare[0]
    assert patched[1] == bare[1]
    assert len(bare[0]) > 20


# --- several histories ---------------------------------------------------------------------

KEYS = ["messages", "supervisor_messages"]


def two(saver: BaseCheckpointSaver[Any]) -> tuple[Graph, StrictModel, StrictModel]:
    """The patched graph with two histories, and its two models."""
    researcher, chief = script(), script()
    wrap = lambda graph: with_patching(graph, messages_key=KEYS)
    return two_histories(Desk("asks"), researcher, chief, wrap, saver), researcher, chief


def kept_lines(graph: Graph, key: str) -> list[str]:
    """A history of the thread, valid and on lines."""
    messages = graph.get_state(thread()).values[key]
    assert validate_messages(messages) == []
    return lines(messages)


@sync_and_async
async def test_two_damaged_histories_are_repaired_by_one_node(*, asynchronous: bool):
    """One superstep, one chunk of new messages; each history gets its own results."""
    graph, researcher, chief = two(InMemorySaver())
    other = ai(("wire_money", {"amount": 1}, "c1"), id="a9")
    damage = {"messages": [human("book it"), both_calls()]}
    damage["supervisor_messages"] = [human("go"), other]
    graph.update_state(thread(), damage, as_node="researcher")
    value = {key: [human("never mind", f"{key}-never")] for key in KEYS}
    stream = (
        [chunk async for chunk in graph.astream(value, thread(), stream_mode="updates")]
        if asynchronous
        else list(graph.stream(value, thread(), stream_mode="updates"))
    )
    [shown_keys] = [chunk["patch_tool_calls"] for chunk in stream if "patch_tool_calls" in chunk]
    assert {key: lines(new) for key, new in shown_keys.items()} == {
        "messages": UNKNOWN_RESULTS,
        "supervisor_messages": [f"tool c1: {UNKNOWN.format('wire_money', 'c1')}"],
    }
    assert kept_lines(graph, "messages") == [*REPAIRED, "ai: re: never mind"]
    assert kept_lines(graph, "supervisor_messages") == [
        "human: go",
        "ai c1: ",
        f"tool c1: {UNKNOWN.format('wire_money', 'c1')}",
        "human: never mind",
        "ai: re: never mind",
    ]
    assert [len(model.seen) for model in (researcher, chief)] == [1, 1]


@pytest.mark.parametrize(("key", "asynchronous"), in_turn(KEYS, [False, True]))
async def test_one_of_two_histories_is_damaged(key: str, *, asynchronous: bool):
    """The other one is left as it is, by the entry node and by a model node."""
    for start in ("message", "goto"):
        graph, researcher, chief = two(InMemorySaver())
        healthy = next(each for each in KEYS if each != key)
        state = {healthy: [human("hi"), AIMessage("hello")], key: [human("book it"), both_calls()]}
        if start == "goto":
            state[key].append(human("never mind"))
        graph.update_state(thread(), state, as_node="researcher")
        before = graph.get_state(thread()).values[healthy]
        node = "supervisor" if key == "supervisor_messages" else "researcher"
        value: Any = {key: [human("never mind")]} if start == "message" else Command(goto=node)
        await run(graph, value, asynchronous=asynchronous)
        assert kept_lines(graph, key)[: len(REPAIRED)] == REPAIRED
        assert graph.get_state(thread()).values[healthy][: len(before)] == before
        for model in (researcher, chief):
            for seen in model.seen:
                refuse(seen)


def test_a_model_node_of_one_history_leaves_the_calls_of_the_other_alone():
    """While the supervisor's calls wait for a human, the researcher answers its own only."""
    graph, researcher, _ = two(InMemorySaver())
    waiting = [human("go"), ai(("wire_money", {"amount": 1}, "c9"), id="a9")]
    state = {"supervisor_messages": waiting, "messages": [human("book it"), both_calls()]}
    graph.update_state(thread(), state, as_node="researcher")
    graph.invoke(Command(goto="researcher"), thread())
    assert lines(researcher.seen[0]) == REPAIRED[:-1]
    assert lines(graph.get_state(thread()).values["supervisor_messages"]) == lines(waiting)


@pytest.mark.parametrize("value", [[], "", ["messages", 3], 3, None, ["messages", ""]])
def test_a_messages_key_that_is_no_name(value: Any):
    """What is no name is quoted, before anything is built."""
    with pytest.raises(OptionError, match=f"messages_key={re.escape(repr(value))}: expected"):
        with_patching(call_model(Desk("asks"), script()), messages_key=value)


def test_one_of_several_keys_is_unknown():
    """It is named, with the keys that hold messages."""
    with pytest.raises(GraphError, match=r"'nope' is no key.*Keys with messages: 'messages'"):
        with_patching(call_model(Desk("asks"), script()), messages_key=["messages", "nope"])


# --- keys and nodes of one's own ----------------------------------------------------------


def test_a_send_without_the_history_is_not_affected():
    """A node that reads something else runs as before."""

    def work(state: Any) -> Any:
        assert state == {"task": "dig"}
        return {"messages": [human("dug")]}

    builder = StateGraph(MessagesState)
    builder.add_node("plan", lambda _: Command(goto=Send("work", {"task": "dig"})))
    builder.add_node("work", work)
    builder.add_edge(START, "plan")
    out = with_patching(builder.compile()).invoke({"messages": [human("go")]})
    assert lines(out["messages"]) == ["human: go", "human: dug"]


@sync_and_async
async def test_a_key_without_messages_beside_a_damaged_history(*, asynchronous: bool):
    """The history is repaired, and the other key is left as it is."""

    class Mixed(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        blob: Any

    seen: list[Any] = []
    builder = StateGraph(Mixed)
    builder.add_node("look", seen.append).add_edge(START, "look")
    graph = with_patching(
        builder.compile(checkpointer=InMemorySaver()), messages_key=["blob", "messages"]
    )
    for place, blob in enumerate((42, {"messages": 3}, "text")):
        config = thread(str(place))
        value = {"messages": OPEN, "blob": blob}
        await run(graph, value, asynchronous=asynchronous, config=config)
        assert lines(seen[-1]["messages"]) == REPAIRED
        assert seen[-1]["blob"] == blob
        assert lines(history(graph, config)) == REPAIRED


def test_a_patch_node_of_ones_own_is_left_as_it_is(caplog: pytest.LogCaptureFixture):
    """It sees the damage and repairs it; so does the node of a subgraph that is patched already."""
    model = script()
    inner = with_patching(call_model(Desk("asks"), script()).compile())
    builder = StateGraph(MessagesState)
    builder.add_node("repair", patch_node)
    builder.add_node("llm", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("team", inner)
    builder.add_edge(START, "repair")
    builder.add_edge("repair", "llm")
    bare = builder.compile(checkpointer=InMemorySaver())
    with caplog.at_level(logging.INFO, logger="langgraph_patch"):
        graph = with_patching(bare)
    assert "repair'" not in caplog.text
    assert "patch_tool_calls" not in caplog.text
    bare.update_state(thread(), {"messages": OPEN}, as_node=START)
    graph.invoke(None, thread())
    assert lines(history(graph, thread())) == [*REPAIRED, "ai: re: never mind"]
