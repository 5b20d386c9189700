"""What a client sees while a thread is repaired: the new results, the answer, and no noise.

Tested here because clients read these streams: a repair is one chunk of `updates` with a dict that
holds the new results and the node's own output, `messages` shows the new results and the answer
only, `values` is whole and right, `astream_events` shows the repair as an `Overwrite`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Overwrite, RetryPolicy

from langgraph_patch import with_patching
from support.agents import (
    KINDS,
    REDUCERS,
    Bench,
    Kind,
    both_calls,
    history,
    human,
    lines,
    new_turn,
    reducer_graph,
    thread,
)
from support.callbacks import RunNames
from support.strict import ai

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
PLACES = [(place, way) for way in (False, True) for place in ("entry", "model_node")]
each_kind_and_place = pytest.mark.parametrize(
    ("kind", "place", "asynchronous"),
    [
        pytest.param(kind, *PLACES[(n + turn) % 4], id=f"{kind.name}-{PLACES[(n + turn) % 4]}")
        for n, kind in enumerate(KINDS)
        for turn in (0, 1)
    ],
)
"""Each kind in both places, and sync and async in turn."""


async def broken(kind: Kind, place: str, *, asynchronous: bool = False) -> tuple[Bench, Any]:
    """A thread that the entry check or the node wrapper will repair, and its next input."""
    bench = kind.make(
        both_calls(),
        AIMessage("well then", id="a2"),
        AIMessage("good bye", id="a3"),
        asynchronous=asynchronous,
        checkpointer=InMemorySaver(),
    )
    first = {"messages": [human("book it")]}
    if asynchronous:
        await bench.graph.ainvoke(first, thread())
    else:
        bench.graph.invoke(first, thread())
    message = {"messages": [human("never mind")]}
    if place == "entry":
        return bench, message
    bench.graph.update_state(thread(), message, as_node=kind.entry)
    return bench, None


async def streamed(graph: Any, value: Any, mode: Any, *, asynchronous: bool = False) -> list[Any]:
    """All that a client sees."""
    if asynchronous:
        return [chunk async for chunk in graph.astream(value, thread(), stream_mode=mode)]
    return list(graph.stream(value, thread(), stream_mode=mode))


def chunk_summaries(
    chunks: Iterable[tuple[BaseMessage, dict[str, Any]]],
) -> list[tuple[str, str, str]]:
    """Each chunk of `messages` as (its node, its kind, what it says)."""
    return [(meta["langgraph_node"], message.type, message.text) for message, meta in chunks]


# --- messages ----------------------------------------------------------------------------


@each_kind_and_place
async def test_messages(kind: Kind, place: str, *, asynchronous: bool):
    """The new results and the answer token by token; no `remove`, no old message.

    The node of a repair comes first; a model node has written its answer when it writes the repair.
    """
    bench, value = await broken(kind, place, asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    chunks = await streamed(graph, value, "messages", asynchronous=asynchronous)
    node = "patch_tool_calls" if place == "entry" else kind.model_node
    first, second = kind.results
    results = [(node, "tool", first), (node, "tool", second)]
    answer = [(kind.model_node, "AIMessageChunk", text) for text in ("well ", "then")]
    expected = [*results, *answer] if place == "entry" else [*answer, *results]
    assert chunk_summaries(chunks) == expected
    ids = [m.tool_call_id for m, _ in chunks if isinstance(m, ToolMessage)]
    assert ids == ["c1", "c2"]
    stored = {m.id: m for m in history(graph, thread()) if isinstance(m, ToolMessage)}
    assert {m.tool_call_id for m in stored.values()} == {"c1", "c2"}


@each_kind
async def test_messages_have_the_ids_that_the_state_has(kind: Kind):
    """A client that keeps results by id has the state's ids (where the tool gave it one)."""
    bench, value = await broken(kind, "entry")
    graph = with_patching(bench.graph)
    chunks = await streamed(graph, value, "messages")
    shown = [m.id for m, _ in chunks if isinstance(m, ToolMessage)]
    assert shown == [m.id for m in history(graph, thread()) if isinstance(m, ToolMessage)]


@each_kind
async def test_messages_after_a_repair(kind: Kind):
    """The turn after the repair shows its answer and nothing else."""
    bench, value = await broken(kind, "entry")
    graph = with_patching(bench.graph)
    graph.invoke(value, thread())
    chunks = await streamed(graph, {"messages": [human("hello")]}, "messages")
    assert chunk_summaries(chunks) == [
        (kind.model_node, "AIMessageChunk", "good "),
        (kind.model_node, "AIMessageChunk", "bye"),
    ]


@pytest.mark.parametrize("name", REDUCERS)
def test_messages_under_every_reducer(name: str):
    """However the repair is written, `messages` shows the new results and the answer only."""
    state = REDUCERS[name]
    bare, _ = reducer_graph(state, AIMessage("fine", id="a2"), checkpointer=InMemorySaver())
    graph = with_patching(bare)
    bare.update_state(thread(), {"messages": [human("book it"), both_calls()]}, as_node="model")
    value = [human("never mind")]
    if name == "none":
        value = [*history(graph, thread()), *value]
    chunks = list(graph.stream({"messages": value}, thread(), stream_mode="messages"))
    assert [m.type for m, _ in chunks] == ["tool", "tool", "AIMessageChunk"]
    assert [m.tool_call_id for m, _ in chunks[:2]] == ["c1", "c2"]
    assert chunks[-1][0].text == "fine"


def test_messages_where_nothing_is_written():
    """A repair of a node's input only adds no message to the state, so it shows none."""
    answer, saver = AIMessage("fine", id="a2"), InMemorySaver()
    state = REDUCERS["add_messages"]
    bare, _ = reducer_graph(state, answer, beside=("z_note",), checkpointer=saver)
    graph = with_patching(bare, model_node="model")
    damaged = [human("book it"), both_calls(), human("never mind")]
    bare.update_state(thread(), {"messages": damaged}, as_node=START)
    chunks = list(graph.stream(None, thread(), stream_mode="messages"))
    assert ("model", "AIMessageChunk", "fine") in chunk_summaries(chunks)
    assert not any(isinstance(message, ToolMessage) for message, _ in chunks)


def test_a_retry_shows_and_tells_a_repair_once():
    """A retried model repairs again: the repair that is written is streamed and reported."""
    reported: list[str] = []
    failures = [ConnectionError]

    def flaky(state: Any) -> Any:
        if failures:
            raise failures.pop()
        return {"messages": [AIMessage("fine", id="a2")]}

    builder = StateGraph(MessagesState)
    policy = RetryPolicy(max_attempts=2, initial_interval=0.01, jitter=False)
    builder.add_node("agent", flaky, retry_policy=policy)
    builder.add_edge(START, "agent")
    bare = builder.compile(checkpointer=InMemorySaver())
    damaged = [human("book it"), both_calls(), human("never mind")]
    bare.update_state(thread(), {"messages": damaged}, as_node=START)
    report = lambda patch, _: reported.append(str(patch))
    graph = with_patching(bare, model_node="agent", on_patch=report)
    chunks = list(graph.stream(None, thread(), stream_mode="messages"))
    assert sorted(m.type for m, _ in chunks) == ["ai", "tool", "tool"]
    assert len(reported) == 1


# --- updates -----------------------------------------------------------------------------


@each_kind_and_place
async def test_updates(kind: Kind, place: str, *, asynchronous: bool):
    """A chunk is a dict with the new results, and in a model node the answer after them."""
    bench, value = await broken(kind, place, asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    chunks = await streamed(graph, value, "updates", asynchronous=asynchronous)
    shown = {node: update for chunk in chunks for node, update in chunk.items()}
    first, second = kind.results
    results, answer = [f"tool c1: {first}", f"tool c2: {second}"], ["ai: well then"]
    if place == "entry":
        assert lines(shown["patch_tool_calls"]["messages"]) == results
        assert lines(shown[kind.model_node]["messages"]) == answer
    else:
        assert lines(shown[kind.model_node]["messages"]) == [*results, *answer]
        assert "patch_tool_calls" not in shown


def test_updates_of_an_append():
    """Calls at the tail of the history: the same chunk, though the history is only added to."""
    bare, _ = reducer_graph(
        REDUCERS["operator_add"], AIMessage("fine", id="a2"), checkpointer=InMemorySaver()
    )
    graph = with_patching(bare, model_node="model")
    bare.update_state(thread(), {"messages": [human("book it"), both_calls()]}, as_node=START)
    (chunk,) = graph.stream(None, thread(), stream_mode="updates")
    *results, answer = chunk["model"]["messages"]
    assert [m.tool_call_id for m in results] == ["c1", "c2"]
    assert lines([answer]) == ["ai: fine"]


def test_updates_of_an_overwrite():
    """Under a reducer that only appends, the state is overwritten, and the chunk is the same."""
    bare, _ = reducer_graph(
        REDUCERS["new_only"], AIMessage("fine", id="a2"), checkpointer=InMemorySaver()
    )
    graph = with_patching(bare)
    bare.update_state(thread(), {"messages": [human("book it"), both_calls()]}, as_node="model")
    value = {"messages": [human("never mind")]}
    first, second = graph.stream(value, thread(), stream_mode="updates")
    assert [m.tool_call_id for m in first["patch_tool_calls"]["messages"]] == ["c1", "c2"]
    assert lines(second["model"]["messages"]) == ["ai: fine"]
    kinds = [m.type for m in history(graph, thread())]
    assert kinds == ["human", "ai", "tool", "tool", "human", "ai"]


# --- values ------------------------------------------------------------------------------


@each_kind_and_place
async def test_values(kind: Kind, place: str, *, asynchronous: bool):
    """Each snapshot is whole: before the repair, after it, after the answer; none is half done."""
    bench, value = await broken(kind, place, asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    chunks = await streamed(graph, value, "values", asynchronous=asynchronous)
    first, second = kind.results
    before = ["human: book it", "ai c1 c2: ", "human: never mind"]
    after = [*before[:2], f"tool c1: {first}", f"tool c2: {second}", before[2]]
    shown = [lines(chunk["messages"]) for chunk in chunks]
    seen = [now for place, now in enumerate(shown) if place == 0 or now != shown[place - 1]]
    steps = [before, after] if place == "entry" else [before]
    assert seen == [*steps, [*after, "ai: well then"]]


# --- events ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=lambda kind: kind.name)
@pytest.mark.parametrize("place", ["entry", "model_node"])
async def test_events(kind: Kind, place: str):
    """`astream_events` v2: the model's tokens, and the repair as an `Overwrite`."""
    bench, value = await broken(kind, place, asynchronous=True)
    graph = with_patching(bench.graph)
    tokens, ends = [], {}
    async for event in graph.astream_events(value, thread(), version="v2"):
        if event["event"] == "on_chat_model_stream":
            tokens.append(event["data"]["chunk"].text)
        node = event["metadata"].get("langgraph_node")
        if event["event"] == "on_chain_end" and event["name"] == node:
            ends[node] = event["data"]["output"]
    assert tokens == ["well ", "then"]
    if place == "entry":
        assert isinstance(ends["patch_tool_calls"]["messages"], Overwrite)
    else:
        assert "patch_tool_calls" not in ends


# --- a healthy run -----------------------------------------------------------------------


def picture(mode: str, chunk: Any) -> Any:
    """What of a chunk can be compared between two runs."""
    if mode == "messages":
        return chunk_summaries([chunk])
    if mode == "updates":
        return sorted(chunk)
    if mode == "values":
        return lines(chunk["messages"])
    payload = chunk["payload"] if mode == "debug" else chunk
    return sorted(payload), payload.get("name"), payload.get("next")


MODES = ["messages", "updates", "values", "custom", "tasks", "checkpoints", "debug"]


@pytest.mark.parametrize(
    ("kind", "mode"), [(KINDS[n % len(KINDS)], MODES[n % len(MODES)]) for n in range(14)]
)
async def test_a_healthy_stream_is_as_before(kind: Kind, mode: Any):
    """In every mode, chunk by chunk, what the bare agent streams."""
    streams = []
    for wrap in (lambda graph: graph, with_patching):
        bench = kind.make(
            ai(("send_email", {"to": "bob"}, "c1"), id="a1"),
            AIMessage("well done", id="a2"),
            checkpointer=InMemorySaver(),
        )
        chunks = await streamed(wrap(bench.graph), {"messages": [human("go")]}, mode)
        streams.append([picture(mode, chunk) for chunk in chunks])
    assert streams[1] == streams[0]
    assert bool(streams[0]) is (mode != "custom")


@each_kind
async def test_healthy_events_are_as_before(kind: Kind):
    """Event by event what the bare graph emits, for clients and for a tracer."""
    runs = []
    for wrap in (lambda graph: graph, with_patching):
        bench = kind.make(
            ai(("send_email", {"to": "bob"}, "c1"), id="a1"),
            AIMessage("well done", id="a2"),
            asynchronous=True,
            checkpointer=InMemorySaver(),
        )
        names: list[str] = []
        config = {**thread(), "callbacks": [RunNames(names)]}
        events = wrap(bench.graph).astream_events({"messages": [human("go")]}, config)
        seen = [
            (event["event"], event["name"], event["tags"], len(event["parent_ids"]))
            async for event in events
        ]
        runs.append((seen, names))
    assert runs[1] == runs[0]


def test_a_second_turn_over_every_reducer_shows_nothing_old():
    """After a repair and one more turn, `messages` of a third has its answer only."""
    for name in ("add_messages", "delta", "deepagents", "operator_add"):
        state = REDUCERS[name]
        answers = [AIMessage(f"answer {n}", id=f"a{n}") for n in (2, 3, 4)]
        bare, _ = reducer_graph(state, *answers, checkpointer=InMemorySaver())
        graph = with_patching(bare)
        first = {"messages": [human("book it"), both_calls()]}
        bare.update_state(thread(), first, as_node="model")
        new_turn(graph, state, thread(), human("never mind"))
        new_turn(graph, state, thread(), human("hello"))
        value = {"messages": [human("bye")]}
        chunks = list(graph.stream(value, thread(), stream_mode="messages"))
        assert "".join(m.text for m, _ in chunks) == "answer 4"
