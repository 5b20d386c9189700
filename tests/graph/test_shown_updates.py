"""The `updates` stream of a repaired turn: each chunk is a dict that holds only what is new.

Shown are the new tool messages, the state keys that a recovered result restored, and the node's
own output as in a healthy turn. The state is written as ever.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import START, StateGraph, add_messages
from langgraph.graph.message import push_message
from langgraph.types import Command, Overwrite, Send, interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from langgraph_patch import PatchNode, patch_node, validate_messages, with_patching
from langgraph_patch._langgraph_storage import RETURN
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, tasks_that_rewrite
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import scan_threads
from support.agents import (
    Graph,
    Tools,
    both_calls,
    history,
    human,
    lines,
    react_v2,
    thread,
)
from support.placeholder_texts import UNKNOWN, WAITED
from support.running import run, sync_and_async
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


@dataclass
class DataState:
    """The same as a dataclass."""

    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    note: str | None = None
    steps: Annotated[list[str], operator.add] = field(default_factory=list)


class ModelState(BaseModel):
    """The same as a pydantic model."""

    messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)
    note: str | None = None
    steps: Annotated[list[str], operator.add] = Field(default_factory=list)


def model_graph(output: Any, *, schema: Any = State, saver: Any = None) -> Graph:
    """A graph with one model node that returns `output`, and a node that only a goto starts."""

    def model(state: Any) -> Any:
        refuse(state["messages"] if isinstance(state, dict) else state.messages)
        return output

    builder = StateGraph(schema).add_node("model", model, destinations=("after",))
    builder.add_node("after", lambda _: None).add_edge(START, "model")
    return builder.compile(checkpointer=saver or InMemorySaver())


def damaged(graph: Graph, **options: Any) -> Graph:
    """The patched graph. Its thread is damaged, and the model node runs next."""
    patched = with_patching(graph, model_node="model", **options)
    graph.update_state(thread(), {"messages": DAMAGED}, as_node=START)
    return patched


async def updates(
    graph: Graph, value: Any, *, asynchronous: bool = False, **options: Any
) -> list[Any]:
    """The chunks of a run in the mode `updates`."""
    options = {"stream_mode": "updates", **options}
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


# --- every form of output ------------------------------------------------------------------

OUTPUTS: dict[str, Callable[[], Any]] = {
    "dict": lambda: {"messages": [FINE], "note": "n"},
    "dict without messages": lambda: {"note": "n"},
    "one message": lambda: {"messages": FINE},
    "a message as a dict": lambda: {"messages": {"role": "assistant", "content": "fine"}},
    "nothing": lambda: None,
    "command": lambda: Command(update={"messages": [FINE], "note": "n"}, goto="after"),
    "pairs": lambda: Command(update=[("messages", [FINE]), ("note", "n")]),
    "goto": lambda: Command(goto="after"),
    "commands": lambda: [Command(update={"messages": [FINE]}), Command(update={"note": "n"})],
    "removal": lambda: {"messages": [RemoveMessage(id="book it"), FINE]},
    "unknown key": lambda: {"messages": [FINE], "nobody": 1},
}


def with_new(chunk: Any) -> Any:
    """A chunk of the bare graph as it must be where the node repairs too."""
    own = (chunk or {}).get("messages", [])
    return {**(chunk or {}), "messages": [*NEW, *(own if isinstance(own, list) else [own])]}


@sync_and_async
@pytest.mark.parametrize("name", OUTPUTS)
async def test_the_chunk_of_a_model_node(name: str, *, asynchronous: bool):
    """The new results, then what the bare graph shows of the node in a healthy turn."""
    value = {"messages": [human("book it"), *HEALTHY]}
    bare = await updates(model_graph(OUTPUTS[name]()), value)
    saver = InMemorySaver()
    graph = damaged(model_graph(OUTPUTS[name](), saver=saver))
    chunks = await updates(graph, None, asynchronous=asynchronous)
    [healthy] = [shown(chunk["model"]) for chunk in bare if "model" in chunk]
    [repaired] = [shown(chunk["model"]) for chunk in chunks if "model" in chunk]
    assert repaired == with_new(healthy)
    assert [sorted(chunk) for chunk in chunks] == [sorted(chunk) for chunk in bare]
    after = history(graph, thread())
    assert validate_messages(after) == []
    assert set(NEW) <= set(lines(after))


@pytest.mark.parametrize("schema", [DataState, ModelState])
@pytest.mark.parametrize("note", ["n", None])
@sync_and_async
async def test_an_output_that_is_a_state(schema: Any, note: str | None, *, asynchronous: bool):
    """A dataclass and a pydantic model show the keys that the bare graph shows of them."""
    output = schema(messages=[FINE], note=note) if note else schema(messages=[FINE])
    value = {"messages": [human("book it"), *HEALTHY]}
    [bare] = await updates(model_graph(output, schema=schema), value)
    graph = damaged(model_graph(output, schema=schema))
    [chunk] = await updates(graph, None, asynchronous=asynchronous)
    assert shown(chunk["model"]) == with_new(shown(bare["model"]))


@sync_and_async
async def test_an_output_that_writes_a_key_twice(*, asynchronous: bool):
    """LangGraph shows a list of such an output; the new results are its first part."""
    output = [Command(update={"steps": ["a"]}), {"steps": ["b"], "messages": [FINE]}]
    [bare] = await updates(model_graph(output), {"messages": [human("book it"), *HEALTHY]})
    [chunk] = await updates(damaged(model_graph(output)), None, asynchronous=asynchronous)
    assert isinstance(bare["model"], list)
    assert shown(chunk["model"]) == [{"messages": NEW}, *shown(bare["model"])]


async def test_an_output_that_overwrites_the_history():
    """It is shown as it is: LangGraph keeps nothing else, so nothing else is new."""
    output = {"messages": Overwrite([human("all over")])}
    [chunk] = await updates(damaged(model_graph(output)), None)
    assert shown(chunk["model"]) == {"messages": ["overwrite", ["human: all over"]]}


@pytest.mark.parametrize(("keys", "expected"), [
    (["note"], {"note": "n"}),
    (["messages"], {"messages": [*NEW, "ai: fine"]}),
    ("messages", [*NEW, "ai: fine"]),
    ("note", "n"),
])  # fmt: skip
async def test_only_the_keys_that_the_caller_asks_for(keys: Any, expected: Any):
    """`output_keys` selects keys of the chunk as in a healthy turn."""
    graph = damaged(model_graph({"messages": [FINE], "note": "n"}))
    [chunk] = await updates(graph, None, output_keys=keys)
    assert shown(chunk) == {"model": expected}


@sync_and_async
async def test_two_tasks_of_one_node(*, asynchronous: bool):
    """A `Send` starts the node twice: two chunks, and the first task repairs."""

    def model(state: Any) -> Any:
        refuse(state["messages"])
        return {"messages": [AIMessage("fine")]}

    builder = StateGraph(State).add_node("model", model)
    send = [Send("model", {"messages": DAMAGED}) for _ in range(2)]
    builder.add_conditional_edges(START, lambda _: send, ["model"])
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, model_node="model")
    bare.update_state(thread(), {"messages": DAMAGED}, as_node="model")
    bare.update_state(thread(), None, as_node=START)
    chunks = await updates(graph, None, asynchronous=asynchronous)
    assert sorted(shown(chunks), key=str) == [
        {"model": {"messages": ["ai: fine"]}},
        {"model": {"messages": [*NEW, "ai: fine"]}},
    ]


# --- every way to repair -------------------------------------------------------------------


def with_patch_node() -> Graph:
    """A graph in which the patch node is placed by hand."""
    builder = StateGraph(State).add_node("patch", patch_node)
    builder.add_node("model", lambda state: refuse(state["messages"]) or {"messages": [FINE]})
    builder.add_edge(START, "patch").add_edge("patch", "model")
    return builder.compile(checkpointer=InMemorySaver())


def with_middleware() -> Graph:
    """An agent with the middleware."""
    model = StrictModel(script=[FINE])
    return create_agent(
        model, middleware=[PatchToolCallsMiddleware()], checkpointer=InMemorySaver()
    )


PLACES: dict[str, Callable[[], Graph]] = {
    "patch_tool_calls": lambda: with_patching(model_graph({"messages": [FINE]})),
    "patch": with_patch_node,
    "PatchToolCallsMiddleware.before_agent": with_middleware,
}


@sync_and_async
@pytest.mark.parametrize("node", PLACES)
async def test_the_chunk_of_a_repair(node: str, *, asynchronous: bool):
    """A node that only repairs shows the new results, in all modes of a run."""
    graph = PLACES[node]()
    graph.update_state(thread(), {"messages": DAMAGED[:-1]}, as_node="model")
    modes = ["updates", "messages", "tasks", "values", "custom"]
    seen = await updates(
        graph, {"messages": DAMAGED[-1:]}, asynchronous=asynchronous, stream_mode=modes
    )
    chunks = {mode: [chunk for of, chunk in seen if of == mode] for mode in modes}
    assert shown(chunks["updates"]) == [
        {node: {"messages": NEW}},
        {"model": {"messages": ["ai: fine"]}},
    ]
    assert [shown(m) for m, _ in chunks["messages"]][:2] == NEW
    results = [c["result"] for c in chunks["tasks"] if "result" in c and c["name"] == node]
    assert [sorted(result) for result in results] == [[RETURN, "messages"]]
    assert lines(chunks["values"][-1]["messages"]) == [
        *lines(DAMAGED[:2]), *NEW, "human: never mind", "ai: fine",
    ]  # fmt: skip
    assert chunks["custom"] == []


@sync_and_async
@pytest.mark.parametrize("node", PLACES)
async def test_a_pure_rename_is_one_write(node: str, *, asynchronous: bool):
    """Calls that only get other ids are edited in their places; clients see the edited messages."""
    long = "c" * 60
    graph = PLACES[node]()
    called = ai(("look", {}, long), id="a1")
    result = ToolMessage("r", tool_call_id=long, id="t1")
    graph.update_state(thread(), {"messages": [called, result]}, as_node="model")
    chunks = await updates(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
    after = history(graph, thread())
    assert [m.id for m in after] == ["a1", "t1", "hello", "a2"]
    assert after[1].tool_call_id == after[0].tool_calls[0]["id"] != long
    assert chunks[0] == {node: {"messages": after[:2]}}
    [writes] = [
        [value for _, key, value in saved.pending_writes or () if key == "messages"]
        for saved in graph.checkpointer.list(thread())
        if any(channel == RETURN for _, channel, _ in saved.pending_writes or ())
    ]
    assert writes == [after[:2]]


@sync_and_async
async def test_a_pure_rename_in_a_model_node_is_one_write(*, asynchronous: bool):
    """The node's own write follows it."""
    long = "c" * 60
    messages = [
        ai(("look", {}, long), id="a1"), ToolMessage("r", tool_call_id=long, id="t1"), *HEALTHY
    ]  # fmt: skip
    bare = model_graph({"messages": [FINE]})
    graph = with_patching(bare, model_node="model")
    bare.update_state(thread(), {"messages": messages}, as_node=START)
    [chunk] = await updates(graph, None, asynchronous=asynchronous)
    after = history(graph, thread())
    assert chunk == {"model": {"messages": [*after[:2], FINE]}}
    [writes] = [
        [value for _, key, value in saved.pending_writes or () if key == "messages"]
        for saved in graph.checkpointer.list(thread())
        if any(channel == RETURN for _, channel, _ in saved.pending_writes or ())
    ]
    assert writes == [after[:2], [FINE]]


@sync_and_async
async def test_a_state_that_is_a_list(*, asynchronous: bool):
    """LangGraph shows the value of such a state without a key: a list of what is new."""
    root: Any = Annotated[list[AnyMessage], add_messages]
    builder = StateGraph(root).add_node("model", lambda _: [FINE]).add_edge(START, "model")
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, messages_key="__root__", model_node="model")
    chunks = await updates(graph, DAMAGED, asynchronous=asynchronous)
    assert shown(chunks) == [{"patch_tool_calls": NEW}, {"model": ["ai: fine"]}]
    bare.update_state(thread(), [both_calls().model_copy(update={"id": "a9"})], as_node="model")
    bare.update_state(thread(), [human("hm")], as_node=START)
    [chunk] = await updates(graph, None, asynchronous=asynchronous)
    *results, answer = chunk["model"]
    assert [m.type for m in results] == ["tool", "tool"]
    assert shown(answer) == "ai: fine"


@sync_and_async
async def test_a_repair_that_adds_nothing(*, asynchronous: bool):
    """A result without a call is dropped: an empty list, never None."""
    graph = with_patching(model_graph({"messages": [FINE]}))
    orphan = ToolMessage("r", tool_call_id="gone")
    graph.update_state(thread(), {"messages": [orphan]}, as_node="model")
    chunks = await updates(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
    assert chunks[0] == {"patch_tool_calls": {"messages": []}}


@sync_and_async
async def test_a_repair_that_settles_a_marker(*, asynchronous: bool):
    """Nothing that clients show is new if only the marker of a placeholder changed."""
    graph = with_patching(model_graph({"messages": [FINE]}))
    marker = {PLACEHOLDER_KEY: {"cause": "unknown", "recheck": True}}
    text = UNKNOWN.format("look", "c1")
    placeholder = ToolMessage(text, tool_call_id="c1", id="t1", additional_kwargs=marker)
    called = ai(("look", {}, "c1"), id="a1")
    graph.update_state(thread(), {"messages": [called, placeholder]}, as_node="model")
    chunks = await updates(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
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
    chunks = await updates(graph, value, asynchronous=asynchronous)
    assert shown(chunks[0]) == {"patch_tool_calls": {"messages": NEW, "notes": NEW}}


async def test_a_subgraph_shows_its_own_chunk():
    """In the namespace of the graph that the node belongs to."""
    inner = StateGraph(State).add_node("model", lambda _: {"messages": [FINE]})
    inner.add_edge(START, "model")
    child = with_patching(inner.compile())
    builder = StateGraph(State).add_node("child", child).add_edge(START, "child")
    graph = builder.compile(checkpointer=InMemorySaver())
    seen = await updates(graph, {"messages": DAMAGED}, subgraphs=True)
    [repaired] = [c for namespace, c in seen if namespace and "patch_tool_calls" in c]
    assert shown(repaired["patch_tool_calls"]) == {"messages": NEW}


# --- what a recovered result restores ------------------------------------------------------


def merge(old: dict[str, str] | None, new: dict[str, str]) -> dict[str, str]:
    """The reducer of the files."""
    return {**(old or {}), **new}


class Files(AgentState[Any], total=False):
    """A state with a key that two calls write, and one that a call writes."""

    files: Annotated[dict[str, str], merge]
    note: str


@tool
def write_file(path: str, call_id: Annotated[str, InjectedToolCallId]) -> Any:
    """Write a file."""
    done = ToolMessage(f"wrote {path}", tool_call_id=call_id, id=f"r {path}")
    return Command(update={"files": {path: "x"}, "messages": [done]})


@tool
def wire_money() -> str:
    """Wire money."""
    return str(interrupt("wire?"))


@sync_and_async
@pytest.mark.parametrize("by", ["entry", "middleware"])
@pytest.mark.parametrize("count", [1, 2])
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
    chunks = await updates(graph, {"messages": HEALTHY}, asynchronous=asynchronous)
    files = dict.fromkeys(paths, "x")
    [chunk] = chunks[0].values()
    assert chunk["files"] == files
    assert [m.tool_call_id for m in chunk["messages"]] == [*paths, "w"]
    assert graph.get_state(thread()).values["files"] == files
    assert [m.text for m in history(graph, thread())][2 : 2 + count] == [
        f"wrote {p}" for p in paths
    ]


# --- when nothing may be shown -------------------------------------------------------------


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
    bare = builder.compile(checkpointer=InMemorySaver())
    graph = with_patching(bare, model_node="model")
    bare.update_state(thread(), {"messages": DAMAGED}, as_node=START)
    with pytest.raises(ConnectionError):
        await run(graph, None, asynchronous=asynchronous)
    await run(graph, None, asynchronous=asynchronous)
    assert lines(history(graph, thread()))[-1] == "ai: fine"


@pytest.mark.parametrize("as_middleware", [False, True])
async def test_a_repair_inside_a_node_of_your_own(*, as_middleware: bool):
    """A node that calls the patch node shows what it returns, and may raise after it."""
    failures = [ConnectionError("down")]

    def unlucky(update: Any) -> Any:
        if failures:
            raise failures.pop()
        return update

    class Mine(PatchToolCallsMiddleware):
        def before_agent(self, state: Any, runtime: Any) -> Any:
            return unlucky(super().before_agent(state, runtime))

    if as_middleware:
        graph = create_agent(
            StrictModel(script=[FINE]), middleware=[Mine()], checkpointer=InMemorySaver()
        )
    else:
        node = lambda state, config: unlucky(PatchNode().invoke(state, config))
        builder = StateGraph(State).add_node("mine", node).add_edge(START, "mine")
        graph = builder.compile(checkpointer=InMemorySaver())
    with pytest.raises(ConnectionError):
        graph.invoke({"messages": DAMAGED}, thread())
    graph.invoke(None, thread())
    after = history(graph, thread())
    assert validate_messages(after) == []
    assert set(NEW) <= set(lines(after))


async def test_a_healthy_turn_writes_nothing_more():
    """No node of a healthy turn writes to the reserved channel."""
    graph = with_patching(model_graph({"messages": [FINE]}), model_node="model")
    graph.invoke({"messages": HEALTHY}, thread())
    for saved in graph.checkpointer.list(thread()):
        assert not any(channel == RETURN for _, channel, _ in saved.pending_writes or ())


# --- the records of tool calls are other values of the same channel --------------------------


def checkpoints_with_return(saver: InMemorySaver) -> list[Checkpoint]:
    """The checkpoints whose pending writes have a value of the reserved channel."""
    return [
        Checkpoint(saved, "messages")
        for saved in saver.list(thread())
        if any(channel == RETURN for _, channel, _ in saved.pending_writes or ())
    ]


@pytest.mark.parametrize("node", PLACES)
def test_a_chunk_is_no_record(node: str):
    """Evidence reads the writes of the state, and not what clients were shown."""
    graph = PLACES[node]()
    graph.update_state(thread(), {"messages": DAMAGED[:-1]}, as_node="model")
    graph.invoke({"messages": DAMAGED[-1:]}, thread())
    [checkpoint] = checkpoints_with_return(graph.checkpointer)
    assert len(checkpoint.repairs) == 1
    assert tasks_that_rewrite(checkpoint) == checkpoint.repairs
    assert RETURN not in {channel for _, channel, _ in checkpoint.writes}
    assert [report.status for report in scan_threads(graph.checkpointer)] == ["healthy"]


def test_what_a_task_returned_is_no_chunk():
    """A `@task` writes to the channel too; its value stays, also beside a message it pushed."""

    @task
    def work() -> ToolMessage:
        push_message(AIMessage("working", id="p1"))
        return ToolMessage("done", tool_call_id="c1", id="t1")

    def node(state: Any) -> Any:
        work().result()
        raise ConnectionError

    builder = StateGraph(State).add_node("node", node).add_edge(START, "node")
    graph = builder.compile(checkpointer=InMemorySaver())
    with pytest.raises(ConnectionError):
        graph.invoke({"messages": HEALTHY}, thread())
    [checkpoint] = checkpoints_with_return(graph.checkpointer)
    assert checkpoint.repairs == set()
    assert RETURN in {channel for _, channel, _ in checkpoint.writes}


def test_a_repaired_thread_is_repaired_again():
    """The next damage is found and reported as in a thread that was never repaired."""
    graph = with_patching(model_graph({"messages": [FINE]}), model_node="model")
    for name in ("1", "2"):
        call = ai(("look", {}, name), id=f"call {name}")
        graph.update_state(thread(), {"messages": [call]}, as_node="model")
        graph.invoke({"messages": [human(f"turn {name}")]}, thread())
    after = lines(history(graph, thread()))
    assert [line for line in after if line.startswith("tool")] == [
        f"tool {name}: {UNKNOWN.format('look', name)}" for name in ("1", "2")
    ]


@sync_and_async
async def test_what_a_repaired_superstep_started_is_recovered(*, asynchronous: bool):
    """The chunk of a model node holds its new calls; their results are found in the next turn."""
    calls = ai(("send_email", {"to": "ann"}, "d1"), ("wire_money", {"amount": 4}, "d2"), id="a2")
    model = StrictModel(script=[calls, FINE.model_copy(update={"id": "a3"})])
    tools = Tools(asynchronous=asynchronous)
    bare = react_v2(model, tools.tools(), checkpointer=InMemorySaver())
    bare.update_state(thread(), {"messages": DAMAGED}, as_node=START)
    graph = with_patching(bare)
    chunks = await updates(graph, None, asynchronous=asynchronous)
    assert shown(chunks[0]) == {"agent": {"messages": [*NEW, "ai d1 d2: "]}}
    [report] = scan_threads(graph.checkpointer)
    assert report.status == "paused"
    await run(graph, "never mind, really", asynchronous=asynchronous)
    after = lines(history(graph, thread()))
    assert after[len(DAMAGED) + 2 :][:3] == [
        "ai d1 d2: ",
        "tool d1: sent to ann",
        f"tool d2: {WAITED.format('wire_money', 'd2')}",
    ]
    assert tools.done == ["mail to ann"]


# --- middleware ------------------------------------------------------------------------------


@sync_and_async
async def test_before_agent_returns_a_dict(*, asynchronous: bool):
    """A hook that a subclass extends finds a dict, as it does with deepagents' middleware."""
    returned: list[Any] = []

    class Mine(PatchToolCallsMiddleware):
        def before_agent(self, state: Any, runtime: Any) -> Any:
            returned.append(super().before_agent(state, runtime))
            return returned[-1]

        async def abefore_agent(self, state: Any, runtime: Any) -> Any:
            returned.append(await super().abefore_agent(state, runtime))
            return returned[-1]

    graph: Any = create_agent(StrictModel(script=[FINE]), middleware=[Mine()])
    await run(graph, DAMAGED, asynchronous=asynchronous)
    [update] = returned
    assert list(update) == ["messages"]
    assert isinstance(update, dict)


def test_other_middleware_keeps_its_chunk():
    """Only the node that repairs shows a repair."""

    class Other(AgentMiddleware):
        def before_agent(self, state: Any, runtime: Any) -> Any:
            return {"messages": [human("by the way")]}

    graph: Any = create_agent(
        StrictModel(script=[FINE]), middleware=[Other(), PatchToolCallsMiddleware()]
    )
    chunks = list(graph.stream({"messages": DAMAGED}, stream_mode="updates"))
    assert [shown(chunk) for chunk in chunks[:2]] == [
        {"Other.before_agent": {"messages": ["human: by the way"]}},
        {"PatchToolCallsMiddleware.before_agent": {"messages": NEW}},
    ]


def test_no_chunk_without_the_details_of_langgraph(monkeypatch: pytest.MonkeyPatch):
    """If LangGraph changes them, clients see its own chunk, and the state is right."""
    monkeypatch.setattr("langgraph_patch._langgraph_tasks._CALL", "__pregel_moved")
    graph = with_patching(model_graph({"messages": [FINE]}))
    chunk, _ = graph.stream({"messages": DAMAGED}, thread(), stream_mode="updates")
    assert len(chunk["patch_tool_calls"]) == 2
    assert validate_messages(history(graph, thread())) == []
