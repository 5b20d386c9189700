"""One test for each function and constant of the modules `_langgraph*.py`.

Each compares the detail with the LangGraph that is installed, and fails if LangGraph changes it.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.channels import DeltaChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.config import get_config
from langgraph.errors import ParentCommand
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer  # no public name in LangGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.managed import RemainingSteps
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.runtime import get_runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from langgraph_patch import _langgraph, _langgraph_builder, _langgraph_tasks, _langgraph_versions
from langgraph_patch._langgraph import (
    AFTER_MODEL,
    ERROR_SOURCE,
    NEWEST_FORMAT,
    NO_TASK,
    PUSH,
    RETURN,
    ROOT_CHANNEL,
    RUN_KEYS,
    accepted_input,
    can_start_tasks,
    carries_call,
    channels_of,
    checkpointer_of,
    child_config,
    comes_first,
    current_checkpoint_id,
    current_config,
    delete_from_memory,
    fresh_value,
    graph_namespace,
    input_of,
    is_delta_channel,
    is_delta_snapshot,
    is_for_node,
    is_in_node,
    is_nested,
    is_node_timeout,
    is_reserved,
    is_resuming,
    keeps_state_between_runs,
    keys_in_memory,
    last_nodes,
    later_checkpoint_id,
    leads_to_model,
    may_run_in_task,
    node_of,
    nodes_of_namespace,
    own_interrupt_id,
    parent_namespace,
    previous_value,
    runs_after_model,
    runs_alone,
    send_index,
    sent_call,
    state_keys,
    state_of,
    stored_value,
    subgraph_path,
    task_kind,
    task_notes,
    task_of_namespace,
    thread_config,
    trigger_channel,
    triggered_node,
    whole_value,
    writes_at_exit,
    wrote_in_older_superstep,
)
from langgraph_patch._langgraph_builder import (
    annotations_of,
    can_be_followed,
    compile_like,
    copy_builder,
    has_routers,
    keys_read_by,
    node_runnables,
    nodes_after,
    put_branch,
    read_by_branches,
    replace_runnable,
    run_start_untraced,
    schema_keys,
    take_branches,
    tool_call_wrappers,
    tool_messages_key,
    with_tool_call_wrappers,
)
from langgraph_patch._langgraph_tasks import (
    UNKNOWN_ATTEMPT,
    allow_one_more_superstep,
    is_node_of_task,
    show_in_updates,
    shown_keys,
    task_info,
    written_pairs,
)
from langgraph_patch._langgraph_versions import (
    needs,
    recording_blocked_classes,
    safe_serializer,
    stream_transformer,
)
from langgraph_patch.errors import ThreadError
from support.agents import thread
from support.callbacks import RunNames
from support.running import sync_and_async

Builder: TypeAlias = "StateGraph[Any, Any, Any, Any]"
Graph: TypeAlias = "CompiledStateGraph[Any, Any, Any, Any]"

QUESTION = {"messages": [HumanMessage("hi", id="h1")]}


class State(MessagesState):
    """A state with a second key."""

    note: str


def build(*nodes: Callable[..., Any] | Graph, schema: Any = State) -> Builder:
    """A graph that runs the nodes `n1`, `n2`, ... one after the other."""
    builder = StateGraph(schema)
    builder.add_sequence([(f"n{number}", node) for number, node in enumerate(nodes, 1)])
    return builder.add_edge(START, "n1")


def run_with(read: Callable[[RunnableConfig], Any], *, durability: Any = "sync", **options: Any):
    """What `read` returns for the config of a node."""
    values = []

    def node(state: State, config: RunnableConfig) -> None:
        values.append(read(config))

    build(node, **options).compile(checkpointer=InMemorySaver()).invoke(
        QUESTION, thread(), durability=durability
    )
    return values[0]


def nothing(state: Any) -> None:
    """A node that writes nothing."""


def pause(state: Any) -> None:
    """A node that waits for an answer."""
    interrupt("?")


def checkpoints(saver: InMemorySaver) -> list[CheckpointTuple]:
    """The checkpoints of the thread in all namespaces, newest first."""
    return list(saver.list({"configurable": {"thread_id": "1"}}))


def namespaces(saver: InMemorySaver) -> set[str]:
    """The namespaces of the thread."""
    return {saved.config["configurable"]["checkpoint_ns"] for saved in checkpoints(saver)}


def pending(saver: InMemorySaver) -> list[Any]:
    """The pending writes of the newest checkpoint of the root graph."""
    saved = saver.get_tuple(thread())
    return list(saved.pending_writes or ()) if saved else []


def public_names() -> list[str]:
    """The functions and constants that the modules define."""
    modules = (_langgraph, _langgraph_builder, _langgraph_tasks, _langgraph_versions)
    paths = [Path(module.__file__ or "") for module in modules]
    source = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return re.findall(r"^(?:def )?([A-Za-z]\w*)(?:\(|: Final)", source, re.MULTILINE)


@pytest.mark.parametrize("name", public_names())
def test_there_is_a_test_for_each_name(name: str):
    """Each function and constant occurs below the imports of this module."""
    tests = Path(__file__).read_text(encoding="utf-8").partition("\nclass State(")[2]
    assert re.search(rf"\b{name}\b", tests)


# --- the config of a node that runs ------------------------------------------------------


def test_checkpointer_of():
    """The config of a node has the checkpointer of the run."""
    assert isinstance(run_with(checkpointer_of), InMemorySaver)
    assert checkpointer_of({}) is None


def test_channels_of():
    """The config of a node has the live channels, with their reducers."""
    channels = run_with(channels_of)
    assert isinstance(channels["messages"], BinaryOperatorAggregate)
    assert channels["messages"].operator is not None
    assert channels_of({}) == {}


def test_stored_value():
    """A node reads the state as it was at the start of the superstep."""
    assert run_with(lambda config: stored_value(config, "messages")) == QUESTION["messages"]
    assert run_with(lambda config: stored_value(config, "note")) is None
    assert stored_value({}, "messages") is None


def test_state_of():
    """The values of the state keys, among those of other channels."""
    values = run_with(state_of)
    assert [m.content for m in values["messages"]] == ["hi"]
    assert state_of({}) == {}


def test_input_of():
    """The input of the run is available while START runs, and not later."""
    inputs = []

    def router(state: State, config: RunnableConfig) -> str:
        inputs.append(input_of(config))
        return "n1"

    def node(state: State, config: RunnableConfig) -> None:
        inputs.append(input_of(config))

    builder = StateGraph(State).add_node("n1", node).add_conditional_edges(START, router)
    builder.compile().invoke(QUESTION)
    assert inputs == [QUESTION, None]


def test_fresh_value():
    """A router reads what its source node has just written, also a key that its schema lacks."""
    values = []

    def router(state: MessagesState, config: RunnableConfig) -> str:
        values.append((fresh_value(config, "note"), stored_value(config, "note")))
        return "n2"

    builder = StateGraph(State).add_node("n1", lambda _: {"note": "new"}).add_node("n2", nothing)
    builder.add_edge(START, "n1").add_conditional_edges("n1", router).compile().invoke(QUESTION)
    assert values == [("new", None)]
    assert fresh_value({}, "note") is None


def test_runs_alone():
    """The node sees whether other tasks run in its superstep."""
    alone = {}

    def node(state: Any, config: RunnableConfig) -> None:
        alone.setdefault(config["metadata"]["langgraph_node"], []).append(runs_alone(config))

    builder = build(node, node)
    builder.add_node("b1", node).add_node("b2", node).add_node("sent", node)
    builder.add_edge("n2", "b1").add_edge("n2", "b2")
    builder.add_conditional_edges("b1", lambda _: [Send("sent", {})], ["sent"])
    builder.compile().invoke(QUESTION)
    assert alone == {"n1": [True], "n2": [True], "b1": [False], "b2": [False], "sent": [True]}
    assert runs_alone({}) is True


def test_runs_alone_beside_tasks_of_a_send():
    """Two tasks of a `Send`, and a task of a `Send` beside a node, are not alone."""
    alone = []

    def node(state: Any, config: RunnableConfig) -> None:
        alone.append(runs_alone(config))

    two = StateGraph(State).add_node("n", node)
    two.add_conditional_edges(START, lambda _: [Send("n", {}), Send("n", {})], ["n"])
    two.compile().invoke(QUESTION)
    mixed = StateGraph(State).add_node("n", node).add_node("m", node)
    mixed.add_conditional_edges(START, lambda _: [Send("n", {}), "m"], ["n", "m"])
    mixed.compile().invoke(QUESTION)
    assert alone == [False] * 4


def test_comes_first():
    """Of the tasks of a superstep the first one knows that it is; tasks of a `Send` are before."""
    first = []

    def node(state: Any, config: RunnableConfig) -> None:
        name, path = config["metadata"]["langgraph_node"], config["metadata"]["langgraph_path"]
        first.append((name, path[1], comes_first(config, {"b", "c"})))

    builder = StateGraph(State)
    for name in ("a", "b", "c"):
        builder.add_node(name, node).add_edge(START, name)
    builder.compile().invoke(QUESTION)
    assert sorted(first) == [("a", "a", True), ("b", "b", True), ("c", "c", False)]
    first.clear()
    builder = StateGraph(State).add_node("b", node).add_node("c", node)
    sends = [Send("c", {}), Send("b", {}), "b"]
    builder.add_conditional_edges(START, lambda _: sends, ["b", "c"])
    builder.compile().invoke(QUESTION)
    assert set(first) == {("c", 0, True), ("b", 1, False), ("b", "b", False)}
    assert comes_first({}, {"b"}) is True


def test_task_notes():
    """Notes last from the first attempt of a task to its last, and no longer."""
    notes = []

    def note(state: State, config: RunnableConfig) -> None:
        notes.append(task_notes(config).get("attempt"))
        task_notes(config)["attempt"] = len(notes)
        if len(notes) == 1:
            raise ConnectionError

    again = RetryPolicy(initial_interval=0, jitter=False)
    builder = StateGraph(State).add_node("n1", note, retry_policy=again).add_node("n2", note)
    builder.add_edge(START, "n1").add_edge("n1", "n2").compile().invoke(QUESTION)
    assert notes == [None, 1, None]
    assert task_notes({}) == {}


def test_can_start_tasks():
    """A `@task` may be called in a node."""
    assert run_with(can_start_tasks) is True
    assert can_start_tasks({}) is False


def test_is_resuming():
    """The config of a node tells whether the run continues from a checkpoint."""
    resuming = []

    def node(state: State, config: RunnableConfig) -> None:
        resuming.append(is_resuming(config))
        interrupt("?")

    graph = build(node).compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, thread())
    graph.invoke(Command(resume="yes"), thread())
    assert resuming == [False, True]


def test_is_in_node():
    """The metadata of a node's config name the node."""
    assert run_with(is_in_node) is True
    assert is_in_node({}) is False


def test_task_kind():
    """The path of a task tells whether an edge, a `Send` or a call of a `@task` started it."""
    kinds = []

    @task
    def child() -> None:
        kinds.append(task_kind(get_config()))

    def node(state: State, config: RunnableConfig) -> None:
        kinds.append(task_kind(config))

    def parent(state: State, config: RunnableConfig) -> None:
        node(state, config)
        child().result()

    builder = build(parent).add_node("sent", node)
    builder.add_conditional_edges("n1", lambda _: [Send("sent", {})])
    builder.compile().invoke(QUESTION)
    assert kinds == ["node", "task", "send"]


# --- namespaces --------------------------------------------------------------------------


def test_current_config():
    """It is the config of the node that runs; outside of a graph it is empty."""
    assert current_config() == {}
    names = run_with(lambda _: current_config()["metadata"]["langgraph_node"])
    assert names == "n1"


def test_child_config(monkeypatch: pytest.MonkeyPatch):
    """A runnable that is called without a config has it as that of its parent."""
    child = RunnableLambda(lambda _, config: config["tags"])
    config: RunnableConfig = {"tags": ["outer"]}
    with child_config(config):
        assert child.invoke(None) == ["outer"]
    assert child.invoke(None) == []
    monkeypatch.setattr(_langgraph, "_PARENT_CONFIG", None)
    with child_config(config):
        assert child.invoke(None) == []


def test_thread_config_names_the_current_checkpoint():
    """The config of a node has the thread and the checkpoint that the run is at."""
    saver, found = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        found.append((thread_config(config), saver.get_tuple(thread())))

    build(node).compile(checkpointer=saver).invoke(QUESTION, thread(), durability="sync")
    ((config, saved),) = found
    assert config == saved.config
    assert thread_config({}) is None


def test_thread_config_with_durability_exit():
    """With `durability="exit"` the current checkpoint is not stored, so it is not named."""
    config = run_with(thread_config, durability="exit")
    assert config == {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def test_graph_namespace():
    """A `@task`, also one inside another, has the namespace and the checkpoint of its graph."""
    saver, found = InMemorySaver(), []

    def note() -> None:
        config = get_config()
        found.append((graph_namespace(config), current_checkpoint_id(config)))

    @task
    def inner() -> None:
        note()

    @task
    def outer() -> None:
        note()
        inner().result()

    def leaf(state: State) -> None:
        note()
        outer().result()
        interrupt("?")

    build(build(leaf).compile()).compile(checkpointer=saver).invoke(QUESTION, thread())
    [leaf_namespace] = {namespace for namespace, _ in found}
    newest = saver.get_tuple({"configurable": {"checkpoint_ns": leaf_namespace, "thread_id": "1"}})
    assert leaf_namespace.startswith("n1:")
    assert {checkpoint_id for _, checkpoint_id in found} == {newest.checkpoint["id"]}
    assert current_checkpoint_id({}) is None


def test_previous_value():
    """What an `@entrypoint` saved is in the checkpoint of its next input."""
    saver = InMemorySaver()

    @entrypoint(checkpointer=saver)
    def run(value: str) -> Any:
        return entrypoint.final(value=1, save=value)

    for value in ("one", "two"):
        run.invoke(value, thread())
    inputs = [saved for saved in saver.list(thread()) if saved.metadata["source"] == "input"]
    assert [previous_value(saved) for saved in inputs] == ["one", None]


def test_thread_config_with_durability_exit_on_a_fork():
    """A run that the caller lets begin at a checkpoint: LangGraph has its id in the metadata."""
    saver, found = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        found.append(thread_config(config))

    graph = build(node).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    older = next(iter(graph.get_state_history(thread(), limit=1, before=None))).config
    graph.invoke(QUESTION, thread())
    graph.invoke(QUESTION, older, durability="exit")
    assert found[-1] == older


def test_namespaces_of_subgraphs():
    """The namespace of a subgraph is `node:task_id`, below that of its parent."""
    saver = InMemorySaver()
    configs: list[Any] = []

    def leaf(state: State, config: RunnableConfig) -> None:
        configs.append(thread_config(config))
        interrupt("?")

    middle = build(build(leaf).compile()).compile()
    graph = build(middle).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    (outer,) = graph.get_state(thread()).tasks
    child = f"n1:{outer.id}"
    (below,) = namespaces(saver) - {"", child}
    assert re.fullmatch(rf"{child}\|n1:[0-9a-f-]{{36}}", below)
    assert configs[0]["configurable"]["checkpoint_ns"] == below
    assert (parent_namespace(below), parent_namespace(child)) == (child, "")
    assert nodes_of_namespace(below) == ["n1", "n1"]
    assert task_of_namespace(child) == outer.id
    assert may_run_in_task(below, "", outer.id)
    assert not may_run_in_task(below, "", "another")
    assert not keeps_state_between_runs(below)


def test_namespaces_that_last_longer_than_a_task():
    """A subgraph with `checkpointer=True` has the namespace `node`, a second one `node|1`."""
    saver = InMemorySaver()
    child = build(nothing).compile(checkpointer=True)

    def caller(state: State) -> None:
        child.invoke(state)
        child.invoke(state)

    graph = build(caller).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    lasting = namespaces(saver) - {""}
    assert lasting == {"n1", "n1|1"}
    assert all(map(keeps_state_between_runs, lasting))
    assert {task_of_namespace(namespace) for namespace in lasting} == {None}
    assert all(may_run_in_task(namespace, "", "any") for namespace in lasting)
    assert {subgraph_path(n) for n in lasting} == {name for name, _ in graph.get_subgraphs()}


def test_is_for_node():
    """A `Command` for the parent names the parent by the namespace of its node."""
    found = []

    def handoff(state: State) -> Command[Any]:
        return Command(graph=Command.PARENT, update={"note": "from below"})

    inner = build(handoff).compile()

    def node(state: State, config: RunnableConfig) -> None:
        with pytest.raises(ParentCommand) as raised:
            inner.invoke(state, config)
        graph = raised.value.args[0].graph
        found.append((is_for_node(graph, config), is_for_node(f"other|{graph}", config)))

    build(build(node).compile()).compile().invoke(QUESTION)
    assert found == [(True, False)]


def test_own_interrupt_id():
    """The id of an interrupt follows from the namespace of the task that raised it."""
    saver = InMemorySaver()
    build(build(pause).compile()).compile(checkpointer=saver).invoke(QUESTION, thread())
    (child,) = namespaces(saver) - {""}
    saved = saver.get_tuple({"configurable": {"thread_id": "1", "checkpoint_ns": child}})
    assert saved is not None
    ((task_id, _, (paused,)),) = saved.pending_writes or ()
    assert own_interrupt_id(child, "n1", task_id) == paused.id
    build(pause).compile(checkpointer=saver).invoke(QUESTION, thread("2"))
    saved = saver.get_tuple(thread("2"))
    assert saved is not None
    ((task_id, _, (paused,)),) = saved.pending_writes or ()
    assert own_interrupt_id("", "n1", task_id) == paused.id


# --- pending writes ----------------------------------------------------------------------


def test_return_channel_and_answers_without_a_task():
    """A `@task` writes its result to RETURN; an answer without an id has the task id NO_TASK."""
    saver = InMemorySaver()

    @task
    def child() -> str:
        return "done"

    def node(state: State) -> None:
        child().result()
        interrupt("first")
        interrupt("second")

    graph = build(node).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    assert (RETURN, "done") in {(channel, str(value)) for _, channel, value in pending(saver)}
    graph.invoke(Command(resume="yes"), thread())
    assert (NO_TASK, "__resume__", "yes") in pending(saver)


def test_error_source_channel():
    """The task that failed writes its node to ERROR_SOURCE if the node has an error handler."""
    saver = InMemorySaver()

    def fail(state: State) -> None:
        raise ConnectionError

    builder = StateGraph(State).add_node("n1", fail, error_handler=pause).add_edge(START, "n1")
    builder.compile(checkpointer=saver).invoke(QUESTION, thread())
    assert (ERROR_SOURCE, "n1") in {(channel, str(value)) for _, channel, value in pending(saver)}


def test_path_of_a_send():
    """The path of a task that a `Send` started has PUSH and the index of the `Send`."""
    builder = build(nothing).add_node("sent", pause)
    builder.add_conditional_edges("n1", lambda _: [Send("sent", {}), Send("sent", {})])
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, thread())
    paths = [task.path for task in graph.get_state(thread()).tasks]
    assert [path[0] for path in paths] == [PUSH, PUSH]
    assert [send_index(path) for path in paths] == [0, 1]
    assert send_index(("__pregel_pull", "n1")) is None


@pytest.mark.parametrize("maker", ["create_agent", "create_react_agent"])
@pytest.mark.filterwarnings("ignore:create_react_agent")
def test_sent_call(maker: str):
    """Both prebuilt agents send one call to each task of the tools node."""
    from langchain.agents import create_agent  # noqa: PLC0415 - slow to import

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    def wire(amount: int) -> None:
        """Wire money."""
        interrupt(amount)

    calls = [{"name": "wire", "args": {"amount": n}, "id": f"c{n}"} for n in (1, 2)]
    model = Model(messages=iter([AIMessage("", tool_calls=calls)]))
    saver = InMemorySaver()
    make = create_agent if maker == "create_agent" else create_react_agent
    make(model, [wire], checkpointer=saver).invoke(QUESTION, thread())
    saved = saver.get_tuple(thread())
    assert saved is not None
    sends = saved.checkpoint["channel_values"]["__pregel_tasks"]
    assert [(sent_call(send) or {}).get("id") for send in sends] == ["c1", "c2"]


# --- stored checkpoints ------------------------------------------------------------------


@pytest.mark.parametrize("maker", ["create_agent", "create_react_agent"])
def test_carries_call(maker: str):
    """The task of a `Send` with one call knows that, and a task with another payload too."""
    found: list[bool] = []
    call = {"name": "t", "args": {}, "id": "c1", "type": "tool_call"}
    payloads: dict[str, Any] = {
        "create_agent": [call],
        "create_react_agent": {"__type": "tool_call_with_context", "tool_call": call, "state": {}},
    }

    def sent(payload: Any, config: RunnableConfig) -> None:
        found.extend(carries_call(config, call_id) for call_id in ("c1", "c2", None))

    builder = StateGraph(State).add_node("sent", sent)
    sends = [Send("sent", payloads[maker]), Send("sent", {"calls": [call]})]
    builder.add_conditional_edges(START, lambda _: sends, ["sent"])
    builder.compile().invoke(QUESTION)
    assert sorted(found) == [False] * 5 + [True]
    assert not run_with(lambda config: carries_call(config, "c1"))


def test_format_of_a_checkpoint():
    """LangGraph writes the newest format that is supported."""
    saver = InMemorySaver()
    build(nothing).compile(checkpointer=saver).invoke(QUESTION, thread())
    assert {saved.checkpoint["v"] for saved in checkpoints(saver)} == {NEWEST_FORMAT}


def test_keys_of_a_run():
    """Beside the thread and its namespace, the config of a run has RUN_KEYS and reserved keys."""
    keys = run_with(lambda config: set(config["configurable"]))
    public = {key for key in keys if not is_reserved(key)}
    assert public == {"thread_id", "checkpoint_ns", *RUN_KEYS}


def test_reserved_and_triggering_channels():
    """The names of the channels that are not keys of the state."""
    saver = InMemorySaver()
    builder = build(nothing, nothing).add_node("other", nothing).add_edge(START, "other")
    builder.add_node("last", pause).add_edge(["n2", "other"], "last")
    graph = builder.compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    keys = {"messages", "note"}
    channels = set(graph.channels) - keys
    triggers = {channel: triggered_node(channel) for channel in channels}
    assert {"n1", "n2", "other", "last"} <= set(triggers.values())
    assert triggers["branch:to:n1"] == "n1"
    assert trigger_channel("n1") == "branch:to:n1"
    assert triggers["join:n2+other:last"] == "last"
    assert all(is_reserved(channel) for channel in channels if triggers[channel] is None)
    assert {triggered_node(key) for key in keys} == {None}
    assert state_keys(graph.channels) == sorted(keys)
    versions = {
        name for saved in checkpoints(saver) for name in saved.checkpoint["channel_versions"]
    }
    assert "branch:to:n1" in versions
    assert {channel for _, channel, _ in pending(saver)} == {"__interrupt__"}
    assert is_reserved("__interrupt__")


def test_accepted_input():
    """The first checkpoint of a run has the input that START has not applied yet."""
    saver = InMemorySaver()
    build(nothing).compile(checkpointer=saver).invoke(QUESTION, thread())
    inputs = [accepted_input(saved) for saved in reversed(checkpoints(saver))]
    assert inputs == [QUESTION, None, None]


def test_root_channel():
    """A state that is a single value has one channel."""
    builder = StateGraph(Annotated[list[Any], operator.add])
    builder.add_node("n1", lambda _: [1]).add_edge(START, "n1")
    assert ROOT_CHANNEL in builder.compile().channels


@pytest.mark.parametrize("frequency", [1, 1000])
def test_delta_channels(frequency: int):
    """A delta channel stores its writes, and its value in a snapshot now and then."""
    channel = DeltaChannel(_messages_delta_reducer, snapshot_frequency=frequency)
    state = TypedDict("state", {"messages": Annotated[list[Any], channel]})  # noqa: UP013
    saver = InMemorySaver()
    graph = build(nothing, schema=state).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    assert is_delta_channel(graph.channels["messages"])
    assert not is_delta_channel(build(nothing).compile().channels["messages"])
    values = [saved.checkpoint["channel_values"].get("messages") for saved in checkpoints(saver)]
    snapshots = [value for value in values if value is not None]
    assert bool(snapshots) == (frequency == 1)
    assert all(is_delta_snapshot(value) for value in snapshots)
    assert not any(map(is_delta_snapshot, ({"value": 1}, [1], (1,), None)))
    assert all(whole_value(value) == QUESTION["messages"] for value in snapshots)
    assert whole_value(QUESTION["messages"]) is QUESTION["messages"]


def test_wrote_in_older_superstep():
    """With durability "exit", the ids of tasks begin with the number of their superstep."""
    channel = DeltaChannel(_messages_delta_reducer)
    state = TypedDict("state", {"messages": Annotated[list[Any], channel]})  # noqa: UP013
    saver = InMemorySaver()
    nodes = [lambda _, text=text: {"messages": [AIMessage(text)]} for text in ("one", "two")]
    graph = build(*nodes, schema=state).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread(), durability="exit")
    writes = [w for saved in checkpoints(saver) for w in saved.pending_writes or ()]
    tasks = {m.content: t for t, c, value in writes if c == "messages" for m in value}
    asked, one, two = (tasks[text] for text in (QUESTION["messages"][0].content, "one", "two"))
    assert wrote_in_older_superstep(asked, one)
    assert wrote_in_older_superstep(one, two)
    assert not wrote_in_older_superstep(two, one)
    assert not wrote_in_older_superstep(one, one)
    assert not wrote_in_older_superstep(one, asked)


def test_later_checkpoint_id():
    """The order of checkpoint ids is the order of time, also for an id that was moved on."""
    saver = InMemorySaver()
    build(nothing).compile(checkpointer=saver).invoke(QUESTION, thread())
    ids = [saved.checkpoint["id"] for saved in reversed(checkpoints(saver))]
    assert ids == sorted(ids)
    one, two = later_checkpoint_id(ids[-1], 1), later_checkpoint_id(ids[-1], 2)
    assert one is not None
    assert two is not None
    assert ids[-1] < one < two
    assert later_checkpoint_id("1", 1) is None


def test_keys_in_memory():
    """Each history that has a checkpoint; unknown if the saver stores them in another way."""
    saver = InMemorySaver()
    graph = build(nothing, nothing).compile(checkpointer=saver)
    for thread_id in "21":
        graph.invoke(QUESTION, thread(thread_id))
    assert sorted(keys_in_memory(saver)) == [("1", ""), ("2", "")]
    saver.delete_thread("1")
    assert keys_in_memory(saver) == [("2", "")]
    assert keys_in_memory(object()) is None  # type: ignore[arg-type]


def test_delete_from_memory():
    """The newest checkpoint of an `InMemorySaver` is deleted, unless it has pending writes."""
    saver = InMemorySaver()
    graph = build(nothing).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    newest, older, *_ = checkpoints(saver)
    assert delete_from_memory(saver, "1", "", older.checkpoint["id"]) is False
    assert delete_from_memory(saver, "1", "", newest.checkpoint["id"]) is True
    assert checkpoints(saver)[0].config == older.config
    paused = InMemorySaver()
    build(pause).compile(checkpointer=paused).invoke(QUESTION, thread())
    (saved, *_) = checkpoints(paused)
    assert delete_from_memory(paused, "1", "", saved.checkpoint["id"]) is False
    assert delete_from_memory(object(), "1", "", "any") is None  # type: ignore[arg-type]


# --- building a graph --------------------------------------------------------------------


def test_schema_keys():
    """A builder lists the keys of the state schema."""
    assert set(schema_keys(build(nothing))) == {"messages", "note"}


def test_node_runnables():
    """The runnable of a graph that is a node is the compiled graph, also with a config."""
    subgraph = build(nothing).compile().with_config(tags=["a"])
    runnables = node_runnables(build(subgraph, nothing))
    assert list(runnables) == ["n1", "n2"]
    assert runnables["n1"] is subgraph


def test_has_routers():
    """A compiled graph lists the conditional edges that leave a node."""
    builder = build(nothing).add_conditional_edges("n1", lambda _: "n2").add_node("n2", nothing)
    graph = builder.compile()
    assert [has_routers(graph, node) for node in ("n1", "n2")] == [True, False]


def test_can_be_followed():
    """A node is followed through edges, routers, annotated commands and free commands."""

    def to_n2(state: State) -> Command[Literal["n2"]]:
        return Command(goto="n2")

    edge = build(nothing, nothing)
    assert [can_be_followed(edge, node) for node in ("n1", "n2")] == [True, False]
    loop = build(nothing).add_conditional_edges("n1", lambda _: "n1", ["n1", END])
    assert not can_be_followed(loop, "n1")
    anywhere = build(nothing).add_conditional_edges("n1", lambda _: END)
    assert can_be_followed(anywhere, "n1")
    annotated = build(to_n2).add_node("n2", nothing).add_edge(START, "n2")
    assert can_be_followed(annotated, "n1")
    free = build(nothing).add_node("n2", nothing)
    assert can_be_followed(free, "n1")
    waiting = build(nothing, nothing).add_node("n3", nothing).add_edge(["n1", "n2"], "n3")
    assert can_be_followed(waiting, "n2")


def test_nodes_after():
    """The targets of edges, routers, waiting edges and annotated commands; None if unknown."""

    def to_n2(state: State) -> Command[Literal["n2"]]:
        return Command(goto="n2")

    builder = build(to_n2).add_node("n2", nothing).add_node("n3", nothing).add_node("n4", nothing)
    builder.add_conditional_edges("n1", lambda _: "n3", {"go": "n3"})
    builder.add_edge(["n1", "n2"], "n4")
    assert nodes_after(builder, "n1") == {"n2", "n3", "n4"}
    assert nodes_after(builder, "n3") == set()
    anywhere = build(nothing).add_conditional_edges("n1", lambda _: END)
    assert nodes_after(anywhere, "n1") is None


def test_keys_read_by():
    """A node reads the keys of its input schema, or else those of the state."""

    class Narrow(TypedDict):
        other: str

    builder = build(nothing).add_node("n2", nothing, input_schema=Narrow)
    assert set(keys_read_by(builder, "n1")) == set(schema_keys(builder))
    assert set(keys_read_by(builder, "n2")) == {"other"}
    root = StateGraph(Annotated[list[Any], operator.add]).add_node("n1", nothing)  # type: ignore[arg-type]
    assert list(keys_read_by(root, "n1")) == [ROOT_CHANNEL]


def test_annotations_of():
    """Annotations are complete, also those of a state that is a bare list."""

    class Noted(TypedDict):
        notes: Annotated[list[str], operator.add]

    assert annotations_of(StateGraph(Noted)) == {"notes": Annotated[list[str], operator.add]}
    bare = Annotated[list[Any], operator.add]
    assert annotations_of(StateGraph(bare)) == {ROOT_CHANNEL: bare}  # type: ignore[arg-type]


def test_tool_messages_key():
    """A `ToolNode` has the key of its history."""
    assert tool_messages_key(ToolNode([])) == "messages"
    assert tool_messages_key(ToolNode([], messages_key="chat")) == "chat"
    assert tool_messages_key(object()) == "messages"


def test_copy_builder():
    """The copy of a builder shares no container with it, and compiling it leaves it alone."""
    builder = build(nothing, nothing).add_conditional_edges("n2", lambda _: "n1")
    builder.set_node_defaults(retry_policy=RetryPolicy(), error_handler=nothing)
    builder.compile()
    copied = copy_builder(builder)
    before = str(sorted(vars(builder).items()))
    copied.add_node("n3", nothing).add_edge("n1", "n3").add_conditional_edges("n1", lambda _: "n3")
    copied.compile()
    assert str(sorted(vars(builder).items())) == before
    containers = {
        name: value for name, value in vars(builder).items() if not isinstance(value, type)
    }
    shared = [value for name, value in containers.items() if vars(copied)[name] is value]
    assert all(value is True or value is None for value in shared)
    assert {"nodes", "edges", "branches", "channels", "schemas", "waiting_edges"} <= set(containers)


def test_replace_runnable():
    """A node runs another runnable with the same policies."""
    builder = StateGraph(State).add_edge(START, "n1")
    builder.add_node("n1", nothing, retry_policy=RetryPolicy(max_attempts=7), defer=True)
    replace_runnable(builder, "n1", RunnableLambda(lambda _: {"note": "replaced"}))
    spec = builder.nodes["n1"]
    assert (spec.retry_policy, spec.defer) == (RetryPolicy(max_attempts=7), True)
    assert builder.compile().invoke(QUESTION)["note"] == "replaced"


def test_take_and_put_branches():
    """Edges are removed from a node, and conditional edges are added again with other fields."""

    def router(state: State) -> str:
        return "n2"

    builder = StateGraph(State).add_node("n1", nothing).add_node("n2", lambda _: {"note": "n2"})
    builder.add_edge(START, "n1").add_conditional_edges("n1", router, ["n1", "n2"])
    assert take_branches(builder, START) == (["n1"], {})
    targets, branches = take_branches(builder, "n1")
    assert (targets, list(branches)) == ([], ["router"])
    assert (builder.edges, dict(builder.branches)) == (set(), {})
    (branch,) = branches.values()
    assert (branch.ends, branch.input_schema) == ({"n1": "n1", "n2": "n2"}, State)
    put_branch(builder, START, "router", branch, ends={"n2": "n2"})
    assert builder.branches[START]["router"].ends == {"n2": "n2"}
    assert builder.compile().invoke(QUESTION)["note"] == "n2"


def test_read_by_branches():
    """A router reads the keys of its input schema."""
    inputs: list[Any] = []
    note = TypedDict("note", {"note": str})  # noqa: UP013
    builder = StateGraph(State).add_node("n1", nothing, input_schema=note)
    builder.add_conditional_edges(START, lambda state: inputs.append(state) or "n1")
    read_by_branches(builder, START, note)
    builder.compile().invoke({**QUESTION, "note": "x"})
    assert inputs == [{"note": "x"}]


def test_compile_like():
    """A graph keeps what it was compiled with and what was set on it since."""
    options = {
        "checkpointer": InMemorySaver(),
        "cache": InMemoryCache(),
        "store": InMemoryStore(),
        "interrupt_before": ["n1"],
        "interrupt_after": ["n2"],
        "debug": True,
        "name": "graph",
        "transformers": [],
    }
    assert set(inspect.signature(StateGraph.compile).parameters) == {"self", *options}
    builder = build(nothing, nothing)
    graph = builder.compile(**options).with_config(tags=["a"])  # type: ignore[arg-type]
    graph.step_timeout, graph.stream_mode, graph.stream_eager = 7.0, "values", True
    graph.retry_policy, graph.cache_policy = (RetryPolicy(),), None
    new = compile_like(graph, builder)
    made_again = {"nodes", "channels", "builder", "managed", "stream_channels", "output_channels"}
    names = [name for name in vars(graph) if not name.startswith("_") and name not in made_again]
    assert {name: getattr(new, name) for name in names} == {
        name: getattr(graph, name) for name in names
    }


# --- the names and the traces of nodes ---------------------------------------------------


def test_wrappers_of_a_tool_node():
    """`ToolNode` keeps its wrappers where a copy can replace them, and runs calls one by one."""

    def tool(to: str) -> str:
        """Do it."""
        return to

    def wrap(request: Any, execute: Any) -> Any:
        return execute(request)

    node = ToolNode([tool], wrap_tool_call=wrap)
    assert tool_call_wrappers(node) == (wrap, None)
    assert tool_call_wrappers(ToolNode) is None
    assert tool_call_wrappers(lambda: None) is None
    seen: list[str] = []

    def replaced(request: Any, execute: Any) -> Any:
        seen.append("wrapper")
        return "packed"

    def unpack(result: Any) -> Any:
        seen.append(result)
        raise ValueError("unpacked")

    copied = with_tool_call_wrappers(node, replaced, None, unpack=unpack)
    call = AIMessage("", tool_calls=[{"name": "tool", "args": {"to": "x"}, "id": "c1"}])
    builder = StateGraph(State).add_edge(START, "tools")
    with pytest.raises(ValueError, match="unpacked"):
        builder.add_node("tools", copied).compile().invoke({"messages": [call]})
    assert seen == ["wrapper", "packed"]
    assert tool_call_wrappers(node) == (wrap, None)


def test_writes_at_exit():
    """The config of a node names the durability of the run."""
    assert run_with(writes_at_exit, durability="exit") is True
    assert run_with(writes_at_exit, durability="sync") is False


def test_is_nested():
    """A node of a nested graph has the namespaces of the graphs above it."""
    assert run_with(is_nested) is False
    values = []

    def node(state: State, config: RunnableConfig) -> None:
        values.append(is_nested(config))

    build(build(node).compile()).compile(checkpointer=InMemorySaver()).invoke(QUESTION, thread())
    assert values == [True]


def test_node_of():
    """The metadata of a node's config has its name."""
    assert run_with(node_of) == "n1"
    assert node_of({}) is None


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_nodes_around_the_model_of_the_prebuilt_agents():
    """`create_react_agent` and `create_agent` name the nodes around the model and tools so."""
    model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
    react = create_react_agent(
        model, [], pre_model_hook=RunnableLambda(nothing), post_model_hook=RunnableLambda(nothing)
    )
    agent = create_agent(model, middleware=[Around()])
    names = {*react.nodes, *agent.nodes} - {START}
    assert {name for name in names if runs_after_model(name)} == {
        AFTER_MODEL[0],
        f"Around{AFTER_MODEL[1]}",
    }
    assert {name for name in names if leads_to_model(name)} == {
        "agent",
        "model",
        "pre_model_hook",
        "Around.before_model",
    }


class Around(AgentMiddleware[Any, Any, Any]):
    """A middleware with a node before and one after the model."""

    def before_model(self, state: Any, runtime: Any) -> None:
        """Do nothing."""

    def after_model(self, state: Any, runtime: Any) -> None:
        """Do nothing."""


def test_last_nodes():
    """A checkpoint notes which version of its trigger each node has seen."""
    saver = InMemorySaver()
    builder = StateGraph(State).add_node("first", nothing).add_node("second", nothing)
    builder.add_edge(START, "first").add_edge("first", "second")
    builder.compile(checkpointer=saver).invoke({"messages": []}, thread())
    after_second, after_first, *_ = checkpoints(saver)
    assert last_nodes(after_second) == {"second"}
    assert last_nodes(after_first) == {"first"}


async def test_is_node_timeout():
    """A node that takes too long records LangGraph's own error."""

    async def slow(state: Any) -> None:
        await asyncio.sleep(5)

    saver = InMemorySaver()
    builder = StateGraph(State).add_node("slow", slow, timeout=0.05).add_edge(START, "slow")
    with pytest.raises(Exception, match=r"(?i)time") as raised:
        await builder.compile(checkpointer=saver).ainvoke({"messages": []}, thread())
    assert is_node_timeout(raised.value)
    [error] = [value for _, channel, value in pending(saver) if channel == "__error__"]
    assert is_node_timeout(error)
    assert not is_node_timeout(TimeoutError("the tool's own"))


# --- the tasks of a run -------------------------------------------------------------------


class Probe(RunnableLambda[Any, Any]):
    """A runnable that notes whether it is the node of the task that runs it."""

    def __init__(self, found: list[bool]) -> None:
        super().__init__(nothing)
        self.found = found

    def invoke(self, input: Any, config: Any = None, **_: Any) -> Any:  # noqa: A002
        self.found.append(is_node_of_task(config, self))

    async def ainvoke(self, input: Any, config: Any = None, **_: Any) -> Any:  # noqa: A002
        self.invoke(input, config)


@sync_and_async
async def test_is_node_of_task(*, asynchronous: bool):
    """A runnable is the node of its task; one that a function of the node calls is not."""
    found: list[bool] = []
    probe = Probe(found)

    def calls(state: Any, config: RunnableConfig) -> None:
        probe.invoke(state, config)
        found.append(is_node_of_task(config, calls))

    graph = build(probe, calls).compile()
    if asynchronous:
        await graph.ainvoke(QUESTION)
    else:
        graph.invoke(QUESTION)
    assert found == [True, False, True]
    assert is_node_of_task({}, probe) is False


@sync_and_async
async def test_shown_keys(*, asynchronous: bool):
    """Those of the state, or those that the caller of `stream` asks for."""
    found: list[Any] = []

    def node(state: State, config: RunnableConfig) -> None:
        found.append(shown_keys(config))

    graph = build(node).compile()
    for keys in (None, ["note"], "note"):
        if asynchronous:
            _ = [chunk async for chunk in graph.astream(QUESTION, output_keys=keys)]
        else:
            _ = list(graph.stream(QUESTION, output_keys=keys))
    assert found == [["messages", "note"], ["note"], "note"]
    assert shown_keys({}) is None


@sync_and_async
async def test_show_in_updates(*, asynchronous: bool):
    """The value is the chunk of the node; the state has what the node returned."""

    def node(state: State, config: RunnableConfig) -> Command[Any]:
        show_in_updates(config, {"note": "shown"})
        return Command(update=[("note", "a"), ("messages", HumanMessage("x", id="h2"))])

    graph = build(node).compile(checkpointer=InMemorySaver())
    if asynchronous:
        chunks = [c async for c in graph.astream(QUESTION, thread(), stream_mode="updates")]
    else:
        chunks = list(graph.stream(QUESTION, thread(), stream_mode="updates"))
    assert chunks == [{"n1": {"note": "shown"}}]
    values = graph.get_state(thread()).values
    assert (values["note"], len(values["messages"])) == ("a", 2)
    show_in_updates({}, {})  # outside of a graph it does nothing


def test_a_task_that_showed_something_is_finished():
    """That is why nothing is shown before the node has returned: it would not run again."""
    saver, runs = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        runs.append("run")
        show_in_updates(config, {})
        raise ConnectionError

    graph = build(node).compile(checkpointer=saver)
    with pytest.raises(ConnectionError):
        graph.invoke(QUESTION, thread())
    graph.invoke(None, thread())
    assert runs == ["run"]


@dataclass
class Note:
    """An output that is a dataclass."""

    note: str
    messages: list[Any] = field(default_factory=list)


class NoteModel(BaseModel):
    """An output that is a pydantic model: a default that is None and was not set is not written."""

    note: str
    messages: Any = None


@pytest.mark.parametrize(
    "output",
    [
        None,
        {"note": "a"},
        Command(update={"note": "a"}, goto="n2"),
        Command(update=[("note", "a"), ("messages", [])]),
        Command(update=NoteModel(note="a")),
        Note("a"),
        NoteModel(note="a"),
        [Command(update={"note": "a"}), {"messages": []}],
        Command(goto="n2"),
    ],
)
def test_written_pairs(output: Any):
    """The pairs are those that LangGraph writes to the channels of the state."""
    saver = InMemorySaver()
    build(lambda _: output, nothing).compile(checkpointer=saver, interrupt_after=["n1"]).invoke(
        QUESTION, thread()
    )
    [written] = [
        saved.pending_writes
        for saved in checkpoints(saver)
        if saved.metadata["step"] == 0 and saved.pending_writes is not None
    ]
    stored = [(key, value) for _, key, value in written if key in State.__annotations__]
    pairs = written_pairs(output)
    assert pairs is not None
    assert sorted(pairs, key=lambda pair: pair[0]) == sorted(stored, key=lambda pair: pair[0])


def test_outputs_without_pairs():
    """What LangGraph refuses has none, and what goes to another graph writes nothing here."""
    assert written_pairs(7) is None
    assert written_pairs([{"note": "a"}, 7]) is None
    assert written_pairs(Command(graph=Command.PARENT, update={"note": "a"})) == []


@sync_and_async
async def test_run_start_untraced(*, asynchronous: bool):
    """Conditional edges from START run without events, and everything else is as before."""
    seen, drawn, routed = [], [], []
    for change in (None, run_start_untraced):
        builder = StateGraph(State).add_node("n1", nothing).add_node("n2", nothing)
        builder.add_conditional_edges(START, lambda _: routed.append(1) or "n2", ["n1", "n2"])
        if change is not None:
            change(builder)
        graph = builder.compile(checkpointer=InMemorySaver())
        assert isinstance(builder, StateGraph)
        assert type(builder).__name__ == "StateGraph"
        drawn.append(graph.get_graph().draw_mermaid())
        if asynchronous:
            events = graph.astream_events(QUESTION, thread())
            seen.append([event["name"] async for event in events])
        else:
            names: list[str] = []
            graph.invoke(QUESTION, {**thread(), "callbacks": [RunNames(names)]})
            seen.append(names)
    assert START in seen[0]
    assert [name for name in seen[0] if name != START] == seen[1]
    assert drawn[0] == drawn[1]
    assert len(routed) == 2


@sync_and_async
async def test_allow_one_more_superstep(*, asynchronous: bool):
    """The limit of the run is one higher, and so is what a managed value says of it."""

    class Counted(State):
        remaining: RemainingSteps

    remaining: list[int] = []

    def node(state: Any, config: RunnableConfig) -> None:
        remaining.append(state["remaining"])
        allow_one_more_superstep(config)

    def last(state: Any) -> None:
        remaining.append(state["remaining"])

    graph = build(node, last, schema=Counted).compile()
    value: Any = QUESTION
    if asynchronous:
        await graph.ainvoke(value, {"recursion_limit": 2})
    else:
        graph.invoke(value, {"recursion_limit": 2})
    assert remaining[0] == remaining[1]
    allow_one_more_superstep({})  # outside of a graph it does nothing


@sync_and_async
async def test_task_info(*, asynchronous: bool):
    """The config of a node has the ids that the runtime has, for langgraph before 1.1.3."""
    found: list[Any] = []

    def node(state: State, config: RunnableConfig) -> None:
        found.append((task_info(config, get_runtime()), task_info(config, None)))

    graph = build(node, build(node).compile()).compile(checkpointer=InMemorySaver())
    if asynchronous:
        await graph.ainvoke(QUESTION, thread())
    else:
        graph.invoke(QUESTION, thread())
    assert [with_runtime == without for with_runtime, without in found] == [True, True]
    [(outer, _), (nested, _)] = found
    [tasks] = [state.tasks for state in graph.get_state_history(thread()) if state.next == ("n1",)]
    assert outer == (tasks[0].id, outer.checkpoint_id, "1", 1)
    assert outer.checkpoint_id != nested.checkpoint_id
    assert task_info({}, None) is None


@pytest.mark.parametrize("of_graph", [False, True])
def test_unknown_attempt(*, of_graph: bool):
    """Without the runtime, nothing tells the attempts of a node with a `RetryPolicy` apart."""
    counted: list[Any] = []
    uncounted: list[Any] = []
    again = RetryPolicy(initial_interval=0, jitter=False)

    def node(state: State, config: RunnableConfig) -> None:
        counted.append(task_info(config, get_runtime()))
        uncounted.append(task_info(config, None))
        if len(counted) == 1:
            raise ConnectionError

    builder = StateGraph(State).add_edge(START, "n1")
    builder.add_node("n1", node, retry_policy=None if of_graph else again)
    graph = builder.compile(checkpointer=InMemorySaver())
    if of_graph:
        graph.retry_policy = [again]
    graph.invoke(QUESTION, thread())
    assert [info.node_attempt for info in counted] == [1, 2]
    assert [info.node_attempt for info in uncounted] == [UNKNOWN_ATTEMPT] * 2
    assert counted[0].task_id == counted[1].task_id == uncounted[0].task_id


# --- what newer versions added --------------------------------------------------------------

_ABSENT = "langgraph.a_module_that_no_version_has"


def test_needs():
    """The text has the version that is needed and the version that is installed."""
    text = needs("The feature", "langgraph", "99")
    assert text == f"The feature needs langgraph 99 or newer; {version('langgraph')} is installed"


def test_stream_transformer(monkeypatch: pytest.MonkeyPatch):
    """The two public classes of the v3 stream; without them, a base class and None."""
    from langgraph.stream import StreamChannel, StreamTransformer  # noqa: PLC0415 - since 1.2

    assert stream_transformer() == (StreamTransformer, StreamChannel)
    monkeypatch.setattr(_langgraph_versions, "_STREAM", _ABSENT)
    assert stream_transformer() == (object, None)


class Unknown(BaseModel):
    """A class that a stored row may name."""

    name: str


def test_safe_serializer_and_recording_blocked_classes():
    """A class that is not trusted is read as a dict and recorded; a trusted one is loaded."""
    name = (Unknown.__module__, Unknown.__qualname__)
    stored = JsonPlusSerializer().dumps_typed(Unknown(name="a"))
    blocked: list[str] = []
    with recording_blocked_classes(blocked.append):
        read = safe_serializer([], ThreadError).loads_typed(stored)
        assert (read, blocked) == ({"name": "a"}, [":".join(name)])
        assert safe_serializer([name], ThreadError).loads_typed(stored) == Unknown(name="a")
    safe_serializer([], ThreadError).loads_typed(stored)
    assert len(blocked) == 1, "nothing is recorded after the block"


def test_a_langgraph_whose_serializer_loads_every_class(monkeypatch: pytest.MonkeyPatch):
    """Before langgraph-checkpoint 4.0.1: no safe serializer, and nothing that is recorded."""
    monkeypatch.setattr(_langgraph_versions, "_EVENT_HOOKS", _ABSENT)
    with pytest.raises(ThreadError, match=r"needs langgraph-checkpoint 4\.0\.1 or newer"):
        safe_serializer([], ThreadError)
    blocked: list[str] = []
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None)
    stored = serializer.dumps_typed(Unknown(name="a"))
    with recording_blocked_classes(blocked.append):
        assert serializer.loads_typed(stored) == {"name": "a"}
    assert blocked == []
