"""How a repair is written, under every reducer and in every form of output, and what clients see.

One dict for each node: first the new tool messages, then what the node itself wrote, as in a
healthy turn. Nobody sees an `Overwrite` or a `RemoveMessage` of ours, and nothing else is lost.
"""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command, Overwrite, Send, interrupt
from typing_extensions import TypedDict

from langgraph_patch import patch_node, validate_messages, with_patching
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support import agents
from support.agents import (
    KINDS,
    REDUCERS,
    Bench,
    Graph,
    Kind,
    both_calls,
    history,
    human,
    lines,
    new_turn,
    react_v2,
    reducer_graph,
    thread,
)
from support.paths import ENVIRONMENT
from support.placeholder_texts import UNKNOWN
from support.running import in_turn, pairs, run, sync_and_async
from support.strict import StrictModel, ai, refuse

HEALTHY = [human("hello")]
DAMAGED = [human("book it"), both_calls(), human("never mind")]
NEW = [
    f"tool c1: {UNKNOWN.format('send_email', 'c1')}",
    f"tool c2: {UNKNOWN.format('wire_money', 'c2')}",
]
FINE = AIMessage("fine", id="a2")


class State(TypedDict, total=False):
    """A history and two other keys."""

    messages: Annotated[list[AnyMessage], add_messages]
    note: str
    steps: Annotated[list[str], operator.add]


def model_graph(output: Any) -> Graph:
    """A graph with one model node that returns `output`, and a node that only a goto starts."""

    def model(state: Any) -> Any:
        refuse(state["messages"])
        return output

    builder = StateGraph(State).add_node("model", model, destinations=("after",))
    builder.add_node("after", lambda _: None).add_edge(START, "model")
    return builder.compile(checkpointer=InMemorySaver())


def damaged(graph: Graph, **options: Any) -> Graph:
    """The patched graph. Its thread is damaged, and the model node runs next."""
    graph.update_state(thread(), {"messages": DAMAGED}, as_node=START)
    return with_patching(graph, model_node="model", **options)


async def stream(
    graph: Graph, value: Any, mode: Any = "updates", *, asynchronous: bool = False, **options: Any
) -> list[Any]:
    """The chunks of a run."""
    options["stream_mode"] = mode
    if asynchronous:
        return [chunk async for chunk in graph.astream(value, thread(), **options)]
    return list(graph.stream(value, thread(), **options))


def shown(value: Any) -> Any:
    """A chunk with each message as a line."""
    if isinstance(value, BaseMessage):
        return f"remove {value.id}" if isinstance(value, RemoveMessage) else lines([value])[0]
    if isinstance(value, dict):
        return {key: shown(part) for key, part in value.items()}
    if isinstance(value, Overwrite):
        return ["overwrite", shown(value.value)]
    return [shown(part) for part in value] if isinstance(value, list) else value


# --- nodes that only repair ------------------------------------------------------------------


def with_patch_node(*beside: str) -> Graph:
    """A graph in which the patch node is placed by hand, alone or beside another node."""
    builder = StateGraph(State).add_node("patch", patch_node)
    builder.add_node("model", lambda state: refuse(state["messages"]) or {"messages": [FINE]})
    builder.add_edge(START, "patch").add_edge("patch", "model")
    for name in beside:
        builder.add_node(name, lambda _: {"note": "beside"}).add_edge(START, name)
    return builder.compile(checkpointer=InMemorySaver())


def with_hook() -> Graph:
    """A prebuilt agent with the patch node as its hook."""
    saver = InMemorySaver()
    return react_v2(StrictModel(script=[FINE]), [], pre_model_hook=patch_node, checkpointer=saver)


PLACES: dict[str, tuple[str, Callable[[], Graph]]] = {
    "START": ("patch_tool_calls", lambda: with_patching(model_graph({"messages": [FINE]}))),
    "patch node": ("patch", with_patch_node),
    "patch node beside another": ("patch", lambda: with_patch_node("beside")),
    "pre_model_hook": ("pre_model_hook", with_hook),
}


@pytest.mark.parametrize(("place", "asynchronous"), in_turn(PLACES, [False, True]))
async def test_a_node_that_only_repairs(place: str, *, asynchronous: bool):
    """It shows the new results, and `values` the whole history."""
    node, make = PLACES[place]
    graph = make()
    last = "agent" if place == "pre_model_hook" else "model"
    graph.update_state(thread(), {"messages": DAMAGED[:-1]}, as_node=last)
    modes = ["updates", "messages", "values", "custom"]
    value = {"messages": DAMAGED[-1:]}
    seen = await stream(graph, value, modes, asynchronous=asynchronous)
    chunks = {mode: [chunk for of, chunk in seen if of == mode] for mode in modes}
    updates = [shown(chunk) for chunk in chunks["updates"] if "beside" not in chunk]
    assert updates == [{node: {"messages": NEW}}, {last: {"messages": ["ai: fine"]}}]
    assert [m.text for m, _ in chunks["messages"]][2:] == ["fine"]
    assert [shown(m) for m, _ in chunks["messages"]][:2] == NEW
    repaired = [*lines(DAMAGED[:2]), *NEW, "human: never mind"]
    assert [lines(values["messages"]) for values in chunks["values"][-2:]] == [
        repaired,
        [*repaired, "ai: fine"],
    ]
    assert chunks["custom"] == []
    assert lines(history(graph, thread())) == [*repaired, "ai: fine"]


@pytest.mark.parametrize(("place", "asynchronous"), in_turn(PLACES, [False, True]))
async def test_calls_that_only_get_other_ids(place: str, *, asynchronous: bool):
    """They are edited in their places, and clients see the edited messages."""
    long, (node, make) = "c" * 60, PLACES[place]
    graph = make()
    called = ai(("look", {}, long), id="a1")
    result = ToolMessage("r", tool_call_id=long, id="t1")
    last = "agent" if place == "pre_model_hook" else "model"
    graph.update_state(thread(), {"messages": [called, result]}, as_node=last)
    chunks = await stream(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
    after = history(graph, thread())
    assert [m.id for m in after] == ["a1", "t1", "hello", "a2"]
    assert after[1].tool_call_id == after[0].tool_calls[0]["id"] != long
    assert {node: {"messages": after[:2]}} in chunks


@sync_and_async
async def test_a_repair_that_adds_nothing(*, asynchronous: bool):
    """A dropped result and a placeholder that lost its mark: an empty list, never None."""
    marker = {PLACEHOLDER_KEY: {"cause": "unknown", "look_again": True}}
    text = UNKNOWN.format("look", "c1")
    settled = ToolMessage(text, tool_call_id="c1", id="t1", additional_kwargs=marker)
    orphan = ToolMessage("r", tool_call_id="gone")
    for messages in ([orphan], [ai(("look", {}, "c1"), id="a1"), settled]):
        graph = with_patching(model_graph({"messages": [FINE]}))
        graph.update_state(thread(), {"messages": messages}, as_node="model")
        chunks = await stream(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
        assert chunks[0] == {"patch_tool_calls": {"messages": []}}


# --- a model node, in every form of output -----------------------------------------------------

WRITERS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"messages": [FINE], "note": "n"},
    "dict without messages": lambda: {"note": "n"},
    "one message": lambda: {"messages": FINE},
    "a message as a dict": lambda: {"messages": {"role": "assistant", "content": "fine"}},
    "nothing": lambda: None,
    "command": lambda: Command(update={"messages": [FINE], "note": "n"}, goto="after"),
    "goto": lambda: Command(goto="after"),
    "list of one command": lambda: [Command(update={"messages": [FINE]}, goto="after")],
    "removal": lambda: {"messages": [RemoveMessage(id="book it"), FINE]},
    "unknown key": lambda: {"messages": [FINE], "nobody": 1},
}
OTHERS: dict[str, Callable[[], Any]] = {
    "pairs": lambda: Command(update=[("messages", [FINE]), ("note", "n")]),
    "commands": lambda: [Command(update={"messages": [FINE]}), Command(update={"note": "n"})],
    "a key twice": lambda: [Command(update={"steps": ["a"]}), {"steps": ["b"], "messages": [FINE]}],
    "overwrite": lambda: {"messages": Overwrite([human("all over")])},
}


@pytest.mark.parametrize(("name", "asynchronous"), in_turn([*WRITERS, *OTHERS], [False, True]))
async def test_the_chunk_of_a_model_node(name: str, *, asynchronous: bool):
    """If it writes the repair, the new results come first; else it shows what the bare one does."""
    output = (WRITERS | OTHERS)[name]
    value = {"messages": [human("book it"), *HEALTHY]}
    bare = await stream(model_graph(output()), value)
    graph = damaged(model_graph(output()))
    seen = await stream(graph, None, ["updates", "messages"], asynchronous=asynchronous)
    chunks = [chunk for mode, chunk in seen if mode == "updates"]
    [healthy] = [shown(chunk["model"]) for chunk in bare if "model" in chunk]
    [repaired] = [shown(chunk["model"]) for chunk in chunks if "model" in chunk]
    if name in OTHERS:
        assert repaired == healthy
    else:
        own = (healthy or {}).get("messages", [])
        new = [*NEW, *(own if isinstance(own, list) else [own])]
        assert repaired == {**(healthy or {}), "messages": new}
        streamed = [shown(chunk[0]) for mode, chunk in seen if mode == "messages"]
        assert streamed[: len(NEW)] == NEW
    assert [sorted(chunk) for chunk in chunks] == [sorted(chunk) for chunk in bare]
    if name in OTHERS:
        await run(graph, "hello", asynchronous=asynchronous)
    assert validate_messages(history(graph, thread())) == []
    assert name == "overwrite" or set(NEW) <= set(lines(history(graph, thread())))


@sync_and_async
async def test_two_tasks_of_one_node(*, asynchronous: bool):
    """Neither runs alone: two chunks of the bare graph, and the next message repairs the state."""
    builder = StateGraph(State)
    builder.add_node("model", lambda s: refuse(s["messages"]) or {"messages": [AIMessage("fine")]})
    send = [Send("model", {"messages": DAMAGED}) for _ in range(2)]
    builder.add_conditional_edges(START, lambda _: send, ["model"])
    graph = damaged(builder.compile(checkpointer=InMemorySaver()))
    chunks = await stream(graph, None, asynchronous=asynchronous)
    assert shown(chunks) == [{"model": {"messages": ["ai: fine"]}}] * 2
    chunks = await stream(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
    assert shown(chunks[0]) == {"patch_tool_calls": {"messages": NEW}}
    assert validate_messages(history(graph, thread())) == []


@sync_and_async
async def test_a_node_that_raises_runs_again(*, asynchronous: bool):
    """Nothing is shown before the node has returned: LangGraph would take it as finished."""
    failures = [ConnectionError("down")]

    def model(state: Any) -> Any:
        refuse(state["messages"])
        if failures:
            raise failures.pop()
        return {"messages": [FINE]}

    builder = StateGraph(State).add_node("model", model).add_edge(START, "model")
    graph = damaged(builder.compile(checkpointer=InMemorySaver()))
    with pytest.raises(ConnectionError):
        await run(graph, None, asynchronous=asynchronous)
    await run(graph, None, asynchronous=asynchronous)
    assert lines(history(graph, thread())) == [
        *lines(DAMAGED[:2]), *NEW, "human: never mind", "ai: fine"
    ]  # fmt: skip


# --- what a recovered result restores ------------------------------------------------------


def merge(old: dict[str, str] | None, new: dict[str, str]) -> dict[str, str]:
    """The reducer of the files."""
    return {**(old or {}), **new}


class Files(AgentState[Any], total=False):
    """A state with a key that calls write."""

    files: Annotated[dict[str, str], merge]


@tool
def write_file(path: str, call_id: Annotated[str, InjectedToolCallId]) -> Any:
    """Write a file."""
    done = ToolMessage(f"wrote {path}", tool_call_id=call_id, id=f"r {path}")
    return Command(update={"files": {path: "x"}, "messages": [done]})


@tool
def wire_money() -> str:
    """Wire money."""
    return str(interrupt("wire?"))


@pytest.mark.parametrize(
    ("by", "count", "asynchronous"), pairs(["entry", "middleware"], [1, 2], [False, True])
)
async def test_restored_keys_are_shown(by: str, count: int, *, asynchronous: bool):
    """What the recovered calls wrote is in the chunk and in the state; one dict holds it all."""
    paths = ["a", "b"][:count]
    called = ai(*(("write_file", {"path": p}, p) for p in paths), ("wire_money", {}, "w"), id="a1")
    graph: Any = create_agent(
        StrictModel(script=[called, FINE]),
        [write_file, wire_money],
        state_schema=Files,
        middleware=[PatchToolCallsMiddleware()] if by == "middleware" else [],
        checkpointer=InMemorySaver(),
    )
    graph = with_patching(graph) if by == "entry" else graph
    await run(graph, "go", asynchronous=asynchronous)
    chunks = await stream(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
    files = dict.fromkeys(paths, "x")
    [chunk] = chunks[0].values()
    assert graph.get_state(thread()).values["files"] == files
    assert [m.tool_call_id for m in chunk["messages"] if m.type == "tool"] == [*paths, "w"]
    assert chunk["files"] == files


# --- under every reducer ------------------------------------------------------------------


REMOVES = ("add_messages", "delta", "deepagents")
"""Reducers under which a message can be put between others, beside other writers."""
APPENDS = ("operator_add", "new_only")
"""Reducers that only append: nothing but a step of one's own can put a message between."""
REFORMATS = ("add_messages_openai",)
"""A reducer that takes the ids and marks off all messages, so that none can be removed by it."""

FIRST = [human("hi"), AIMessage("hello", id="a0"), human("book it"), both_calls()]
TURN = ["human: hi", "ai: hello", "human: book it"]
CALLS = ["ai c1 c2: "]
RESULTS = [
    f"tool c1: {UNKNOWN.format('send_email', 'c1')}",
    f"tool c2: {UNKNOWN.format('wire_money', 'c2')}",
]
REPAIRED = [*TURN, *CALLS, *RESULTS, "human: never mind"]


def build(name: str, saver: Any, *beside: str) -> tuple[Any, Any, Any]:
    """The bare graph of a reducer, the patched one, and the model of both."""
    answers = AIMessage("fine", id="a2"), AIMessage("yes?", id="a3")
    bare, model = reducer_graph(REDUCERS[name], *answers, beside=beside, checkpointer=saver)
    return bare, with_patching(bare, model_node="model"), model


def at_the_entry(name: str, saver: Any, *beside: str, config: Any) -> tuple[Any, Any]:
    """A thread with two open calls gets a new message."""
    bare, graph, model = build(name, saver, *beside)
    bare.update_state(config, {"messages": list(FIRST)}, as_node="model")
    new_turn(graph, REDUCERS[name], config, human("never mind"))
    return graph, model


def at_the_model(
    name: str, saver: Any, *beside: str, config: Any, edit: list[BaseMessage]
) -> tuple[Any, Any]:
    """The bare graph is about to run its model, with two open calls; the patched one goes on."""
    bare, graph, model = build(name, saver, *beside)
    bare.update_state(config, {"messages": edit}, as_node=START)
    assert set(bare.get_state(config).next) == {"model", *beside}
    graph.invoke(None, config)
    return graph, model


# --- the entry check ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [*REMOVES, *APPENDS, *REFORMATS])
def test_entry_check_beside_other_nodes(name: str):
    """The repair has a step of its own: no other node's message is lost, nor the answer."""
    graph, model = at_the_entry(name, InMemorySaver(), "a_note", "z_note", config=thread())
    assert lines(history(graph, thread())) == [
        *REPAIRED,
        "human: a_note",
        "ai: fine",
        "human: z_note",
    ]
    assert [lines(seen) for seen in model.seen] == [REPAIRED]


# --- beside other nodes, and alone --------------------------------------------------------

STORED = [*FIRST, human("never mind")]


@pytest.mark.parametrize("name", [*REMOVES, *APPENDS, *REFORMATS])
def test_model_node_beside_other_nodes(name: str):
    """The model sees a valid history; START repairs the state with the next message.

    Nothing that the other nodes write is lost.
    """
    graph, model = at_the_model(
        name, InMemorySaver(), "a_note", "z_note", config=thread(), edit=STORED
    )
    assert [lines(seen) for seen in model.seen] == [REPAIRED]
    texts = ["human: never mind", "human: a_note", "ai: fine", "human: z_note"]
    assert lines(history(graph, thread())) == [*TURN, *CALLS, *texts]
    new_turn(graph, REDUCERS[name], thread(), human("hello"))
    turn = [*TURN, *CALLS, *RESULTS, *texts, "human: hello"]
    assert lines(model.seen[-1]) == turn
    messages = history(graph, thread())
    assert lines(messages) == [*turn, "human: a_note", "ai: yes?", "human: z_note"]
    assert not any(isinstance(m, RemoveMessage) for m in messages)


@pytest.mark.parametrize("name", REDUCERS)
def test_model_node_that_runs_alone(name: str):
    """It writes the repair with its answer, whatever the reducer, or leaves it to START."""
    graph, model = at_the_model(name, InMemorySaver(), config=thread(), edit=STORED)
    assert [lines(seen) for seen in model.seen] == [REPAIRED]
    assert lines(history(graph, thread())) in (
        [*REPAIRED, "ai: fine"],
        [*TURN, *CALLS, "human: never mind", "ai: fine"],
    )
    new_turn(graph, REDUCERS[name], thread(), human("hello"))
    turn = [*REPAIRED, "ai: fine", "human: hello"]
    assert lines(model.seen[-1]) == turn
    assert lines(history(graph, thread())) == [*turn, "ai: yes?"]


# --- a new process -----------------------------------------------------------------------


def stored(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each thread as this process saw it, and as a new process read it from SQLite."""
    here: dict[str, Any] = {}
    with SqliteSaver.from_conn_string(path) as saver:
        for name in REDUCERS:
            beside = () if name == "none" else ("a_note", "z_note")
            for place in ("entry", "model_node"):
                key = f"{name}:{place}"
                if place == "entry":
                    graph, _ = at_the_entry(name, saver, *beside, config=thread(key))
                else:
                    graph, _ = at_the_model(
                        name, saver, *beside, config=thread(key), edit=list(STORED)
                    )
                messages = history(graph, thread(key))
                here[key] = {"lines": lines(messages), "ids": [m.id for m in messages]}
    command = [sys.executable, str(Path(agents.__file__)), path]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)  # noqa: S603 - our own file
    return here, json.loads(ran.stdout)


@pytest.mark.slow
def test_a_new_process_reads_the_same(tmp_path: Path):
    """Order, texts and ids come back as they were, and the next turn there goes on."""
    here, there = stored(str(tmp_path / "threads.db"))
    for key, read in there.items():
        name, place = key.split(":")
        assert {"lines": read["lines"], "ids": read["ids"]} == here[key]
        ids = [i for i in here[key]["ids"] if i]
        assert [i for i in read["then_ids"] if i in ids] == ids
        assert bool(ids) is (name not in REFORMATS)
        expected = [*here[key]["lines"], "human: next", "ai: again"]
        if name != "none" and place == "model_node":
            expected[len(TURN) + 1 : len(TURN) + 1] = RESULTS
        assert read["then"] == expected


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
