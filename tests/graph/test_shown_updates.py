"""What the streams show of a repaired turn: one dict for each node, with what is new.

First the new tool messages, then what the node itself wrote, as in a healthy turn. Nobody sees an
`Overwrite` or a `RemoveMessage` of ours.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command, Overwrite, Send, interrupt
from typing_extensions import TypedDict

from langgraph_patch import PatchNode, patch_node, validate_messages, with_patching
from langgraph_patch._langgraph_storage import RETURN
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import Graph, both_calls, history, human, lines, react_v2, thread
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


@sync_and_async
async def test_two_histories_in_one_chunk(*, asynchronous: bool):
    """Each key has its own new results."""

    class Two(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        notes: Annotated[list[AnyMessage], add_messages]

    builder = StateGraph(Two).add_node("model", lambda _: {"messages": [FINE]})
    builder.add_edge(START, "model")
    graph = with_patching(builder.compile(), messages_key=["messages", "notes"])
    value = {"messages": DAMAGED, "notes": DAMAGED}
    chunks = await stream(graph, value, asynchronous=asynchronous)
    assert shown(chunks[0]) == {"patch_tool_calls": {"messages": NEW, "notes": NEW}}


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


async def test_a_healthy_turn_writes_nothing_more():
    """No node of a healthy turn writes to the reserved channel."""
    graph = with_patching(model_graph({"messages": [FINE]}), model_node="model")
    graph.invoke({"messages": HEALTHY}, thread())
    for saved in graph.checkpointer.list(thread()):
        assert not any(channel == RETURN for _, channel, _ in saved.pending_writes or ())


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


# --- a repair inside other code --------------------------------------------------------------


async def test_a_repair_inside_a_node_of_your_own():
    """A node that calls the patch node shows what it returns, and may raise after it."""
    failures = [ConnectionError("down")]

    def node(state: Any, config: RunnableConfig) -> Any:
        update = PatchNode().invoke(state, config)
        if failures:
            raise failures.pop()
        return update

    builder = StateGraph(State).add_node("mine", node).add_edge(START, "mine")
    graph = builder.compile(checkpointer=InMemorySaver())
    with pytest.raises(ConnectionError):
        graph.invoke({"messages": DAMAGED}, thread())
    graph.invoke(None, thread())
    assert validate_messages(history(graph, thread())) == []
