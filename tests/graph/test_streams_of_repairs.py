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
from langgraph.types import Overwrite

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
    reducer_graph,
    thread,
)
from support.callbacks import RunNames
from support.running import in_turn
from support.strict import ai


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


# --- a repair ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "place", "asynchronous"), in_turn(KINDS, ["entry", "model_node"], [False, True, True])
)
async def test_what_clients_see_of_a_repair(kind: Kind, place: str, *, asynchronous: bool):
    """`messages`, `updates` and `values` show the new results and the answer, and no old message.

    The node of a repair comes first; a model node has written its answer when it writes the repair.
    """
    bench, value = await broken(kind, place, asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    modes = ["messages", "updates", "values"]
    seen = await streamed(graph, value, modes, asynchronous=asynchronous)
    chunks = {mode: [chunk for of, chunk in seen if of == mode] for mode in modes}
    node = "patch_tool_calls" if place == "entry" else kind.model_node
    results = [(node, "tool", text) for text in kind.results]
    answer = [(kind.model_node, "AIMessageChunk", text) for text in ("well ", "then")]
    expected = [*results, *answer] if place == "entry" else [*answer, *results]
    assert chunk_summaries(chunks["messages"]) == expected
    shown = [m.id for m, _ in chunks["messages"] if isinstance(m, ToolMessage)]
    assert shown == [m.id for m in history(graph, thread()) if isinstance(m, ToolMessage)]

    new = [f"tool c{n}: {text}" for n, text in enumerate(kind.results, 1)]
    updates = {node: update for chunk in chunks["updates"] for node, update in chunk.items()}
    if place == "entry":
        assert lines(updates["patch_tool_calls"]["messages"]) == new
        assert lines(updates[kind.model_node]["messages"]) == ["ai: well then"]
    else:
        assert lines(updates[kind.model_node]["messages"]) == [*new, "ai: well then"]
        assert "patch_tool_calls" not in updates

    before = ["human: book it", "ai c1 c2: ", "human: never mind"]
    after = [*before[:2], *new, before[2]]
    values = [lines(chunk["messages"]) for chunk in chunks["values"]]
    whole = [now for place, now in enumerate(values) if place == 0 or now != values[place - 1]]
    steps = [before, after] if place == "entry" else [before]
    assert whole == [*steps, [*after, "ai: well then"]]


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


# --- events ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "place"), [(KINDS[0], "entry"), (KINDS[3], "model_node")], ids=["entry", "model node"]
)
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


@pytest.mark.parametrize(("mode", "kind"), in_turn(MODES, KINDS))
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


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[5]], ids=lambda kind: kind.name)
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
