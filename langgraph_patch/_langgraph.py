"""The private details of LangGraph that this package uses in runs and stored checkpoints.

LangGraph passes a node its checkpointer, its channels and its way to start a child task in
`config["configurable"]`, under keys that start with `__pregel_`. No public API provides them.
Each function checks what it reads: it returns None or an empty value if LangGraph has changed
the detail, and the run goes on. `_langgraph_builder.py` has the details of graphs that are built,
`_langgraph_tasks.py` those of running tasks that decide what clients see.

Names that LangGraph stores in databases cannot change without breaking old threads.

`tests/graph/test_langgraph_internals.py` has one test for each function and constant here. It
fails if LangGraph changes the detail.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables import config as runnable_config
from langgraph import channels
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_config
from langgraph.graph import START
from langgraph.types import Interrupt

if TYPE_CHECKING:
    from langgraph.checkpoint.memory import InMemorySaver

_CHECKPOINTER = "__pregel_checkpointer"
"""The checkpointer of the run. A server sets its own here, so the compiled graph lacks it."""

_READ = "__pregel_read"
"""A partial that reads the state. Its arguments include the live channels with their reducers."""

_CALL = "__pregel_call"
"""Starts a `@task`. It is present only inside a graph, where `task()` may be called."""

_DURABILITY = "__pregel_durability"
"""The durability of the run. With "exit" nothing is written before the run ends."""

_RESUMING = "__pregel_resuming"
"""Whether the run continues from a checkpoint, so that earlier results may exist."""

_PARENT_CONFIG: Any = getattr(runnable_config, "var_child_runnable_config", None)
"""LangChain's context variable with the config of the runnable that runs."""

_TASKS = "__pregel_tasks"
"""The channel of the tasks that a `Send` makes in the next superstep."""

_NODE = "langgraph_node"
"""The metadata key with the name of the node that runs. It is absent outside of a node."""

_PATH = "langgraph_path"
"""The metadata key with the path of the task that runs; `task_kind` describes it."""

_PREVIOUS = "__previous__"
"""The channel with what the last finished run of an `@entrypoint` saved."""

RETURN: Final = "__return__"
"""The channel of what a functional task returned."""

ERROR_SOURCE: Final = "__error_source_node__"
"""The channel that names the node that an error came from."""

PUSH: Final = "__pregel_push"
"""The first part of the path of a task that a `Send` or a `@task` created."""

NO_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task id of a write that no task made, such as an answer without an interrupt id."""


# --- the config of a node that runs ----------------------------------------------------


def checkpointer_of(config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
    """The checkpointer of the run that `config` belongs to, or None."""
    saver = config.get("configurable", {}).get(_CHECKPOINTER)
    return saver if isinstance(saver, BaseCheckpointSaver) else None


def channels_of(config: RunnableConfig) -> Mapping[str, Any]:
    """The live channels of the graph that runs, or an empty mapping outside of a graph."""
    read = config.get("configurable", {}).get(_READ)
    for argument in getattr(read, "args", ()):
        if isinstance(argument, Mapping) and argument and _are_channels(argument):
            return argument
    return {}


def _are_channels(mapping: Mapping[Any, Any]) -> bool:
    return isinstance(next(iter(mapping.values())), BaseChannel)


def stored_value(config: RunnableConfig, key: str) -> Any:
    """The value of a state key at the start of the superstep, or None if it has no value."""
    channel = channels_of(config).get(key)
    return channel.get() if channel is not None and channel.is_available() else None


def state_of(config: RunnableConfig) -> dict[str, Any]:
    """The values of all channels of the graph that runs, at the start of the superstep."""
    channels = channels_of(config).items()
    return {name: channel.get() for name, channel in channels if channel.is_available()}


def input_of(config: RunnableConfig) -> Any:
    """The input of the run, while START runs; None at any other time."""
    return stored_value(config, START)


def fresh_value(config: RunnableConfig, key: str) -> Any:
    """The value of a state key with the writes of the node that runs, or None.

    The router of a conditional edge runs as a part of its source node. It needs this for a key
    that its own input schema lacks.
    """
    read = config.get("configurable", {}).get(_READ)
    return read([key], True).get(key) if callable(read) else None  # noqa: FBT003 - its signature


def runs_alone(config: RunnableConfig) -> bool:
    """Whether no other task runs in the superstep of the node; True outside of a graph.

    The channels that trigger nodes have a value for one superstep. The tasks that a `Send` makes
    are in a channel of their own.
    """
    channels = channels_of(config)
    started = {
        triggered_node(name)
        for name, channel in channels.items()
        if triggered_node(name) is not None and channel.is_available()
    }
    tasks = channels.get(_TASKS)
    sends = tasks.get() if tasks is not None and tasks.is_available() else []
    return len(started) + len(sends) <= 1


def comes_first(config: RunnableConfig, nodes: Collection[str]) -> bool:
    """Whether no other task of `nodes` is before the node in its superstep; True outside a graph.

    Tasks that a `Send` made are first, in their order; then the nodes, by their names.
    """
    channels, kind = channels_of(config), task_kind(config)
    tasks = channels.get(_TASKS)
    sends = tasks.get() if tasks is not None and tasks.is_available() else []
    if kind == "send":
        index = send_index(config.get("metadata", {}).get("langgraph_path", ())) or 0
        return all(send.node not in nodes for send in sends[:index])
    own = node_of(config) or ""
    started = (triggered_node(name) for name, channel in channels.items() if channel.is_available())
    return all(send.node not in nodes for send in sends) and all(
        node is None or node not in nodes or node >= own for node in started
    )


def task_notes(config: RunnableConfig) -> dict[str, Any]:
    """A dict that lives as long as the task of the node, over all attempts of a `RetryPolicy`.

    It is the `__dict__` of the partial that LangGraph creates for each task. Without that
    partial it is a new dict, and what is put into it is lost.
    """
    notes: dict[str, Any] = getattr(config.get("configurable", {}).get(_READ), "__dict__", {})
    return notes


def can_start_tasks(config: RunnableConfig) -> bool:
    """Whether a `@task` may be called here."""
    return config.get("configurable", {}).get(_CALL) is not None


def is_resuming(config: RunnableConfig) -> bool:
    """Whether the run continues from a checkpoint instead of starting with an input."""
    return bool(config.get("configurable", {}).get(_RESUMING))


def is_nested(config: RunnableConfig) -> bool:
    """Whether the graph that runs is a node of another graph, or was called in one.

    The namespace of a node has one segment for each graph above it, and its own.
    """
    return "|" in str(config.get("configurable", {}).get("checkpoint_ns", ""))


def writes_at_exit(config: RunnableConfig) -> bool:
    """Whether the run writes nothing before it ends (durability "exit")."""
    return config.get("configurable", {}).get(_DURABILITY) == "exit"


def node_of(config: RunnableConfig) -> str | None:
    """The name of the node that runs, or None outside of a graph."""
    name = config.get("metadata", {}).get(_NODE)
    return name if isinstance(name, str) else None


def is_in_node(config: RunnableConfig) -> bool:
    """Whether `config` is the config of a node, so that messages may be pushed to its stream."""
    return _NODE in config.get("metadata", {})


def current_config() -> RunnableConfig:
    """The config of the node that runs; an empty one outside of a graph."""
    try:
        return get_config()
    except RuntimeError:
        return {}


def child_config(config: RunnableConfig) -> AbstractContextManager[None]:
    """Let runnables that are called without a config find `config` as that of their parent.

    Without LangChain's context variable it does nothing.
    """
    return nullcontext() if _PARENT_CONFIG is None else _ChildConfig(config)


class _ChildConfig(AbstractContextManager[None]):
    """Sets LangChain's context variable. A generator would take longer, and each node needs it."""

    __slots__ = ("_config", "_token")

    def __init__(self, config: RunnableConfig) -> None:
        self._config = config

    def __enter__(self) -> None:
        self._token = _PARENT_CONFIG.set(self._config)

    def __exit__(self, *_: object) -> None:
        _PARENT_CONFIG.reset(self._token)


# --- namespaces: `node:task_id`, joined by `|` ------------------------------------------


def thread_config(config: RunnableConfig) -> RunnableConfig | None:
    """The thread and the namespace of the graph that the node of `config` belongs to, or None.

    The current checkpoint is included. If it is not written before the run ends, it is the one at
    which the caller let the run begin, if the caller named one.
    """
    configurable = config.get("configurable", {})
    thread_id = configurable.get("thread_id")
    if thread_id is None:
        return None
    namespace = graph_namespace(config)
    thread = {"thread_id": str(thread_id), "checkpoint_ns": namespace}  # str: as it is stored
    current: Any = current_checkpoint_id(config)
    if writes_at_exit(config):
        current = None if namespace else config.get("metadata", {}).get("checkpoint_id")
    if isinstance(current, str):
        thread["checkpoint_id"] = current
    return {"configurable": thread}


def current_checkpoint_id(config: RunnableConfig) -> str | None:
    """The id of the checkpoint that the run of `config` is on, also if it is not written yet."""
    checkpoints = config.get("configurable", {}).get("checkpoint_map", {})
    current = checkpoints.get(graph_namespace(config))
    return current if isinstance(current, str) else None


def graph_namespace(config: RunnableConfig) -> str:
    """The namespace of the graph that the node or the `@task` of `config` belongs to.

    A node's own namespace is that of its graph and one more segment, `node:task_id`. A `@task`
    has one more segment than the node or the task that called it.
    """
    namespace = str(config.get("configurable", {}).get("checkpoint_ns", ""))
    path = config.get("metadata", {}).get(_PATH, ())
    while tuple(path[:1]) == (PUSH,) and path[-1] is True:
        namespace, path = parent_namespace(namespace), path[1]
    return parent_namespace(namespace)


def is_for_node(graph: object, config: RunnableConfig) -> bool:
    """Whether the `graph` of a `Command` names the graph that the node of `config` belongs to.

    LangGraph names a graph by the namespace of its node, with or without the task ids.
    """
    namespace = str(config.get("configurable", {}).get("checkpoint_ns", ""))
    return graph in (namespace, "|".join(nodes_of_namespace(namespace)))


# --- stored threads ----------------------------------------------------------------------

ROOT_CHANNEL: Final = "__root__"
"""The only channel of a graph with a single value as its state, such as a list of messages."""

NEWEST_FORMAT: Final = 4
"""The newest supported `checkpoint["v"]`, the format of a checkpoint."""

RUN_KEYS: Final = ("checkpoint_id", "checkpoint_map")
"""What `config["configurable"]` holds for one run only, beside the keys that start with `__`."""

_DELTA_CHANNEL: Any = getattr(channels, "DeltaChannel", ())
"""The channel that stores its writes and only now and then its value; old versions lack it."""

_UUID6 = 6
"""Checkpoint ids are UUIDs of version 6: their order is the order of time."""


def is_delta_channel(channel: Any) -> bool:
    """Whether the value of a channel is spread over the writes of many checkpoints."""
    return isinstance(channel, _DELTA_CHANNEL)


def is_delta_snapshot(value: object) -> bool:
    """Whether a stored value is the snapshot that a `DeltaChannel` stores now and then."""
    return isinstance(value, tuple) and getattr(value, "_fields", ()) == ("value",)


def wrote_in_older_superstep(task_id: str, other_id: str) -> bool:
    """Whether a task certainly wrote in an older superstep than another task.

    With durability "exit", LangGraph stores what later supersteps wrote to a `DeltaChannel` with
    the checkpoint of the first one. The ids of these tasks begin with `ffffffff`, then the number
    of the superstep.
    """
    return other_id.startswith("ffffffff-") and task_id[:18] < other_id[:18]


def whole_value(value: Any) -> Any:
    """A stored value, taken out of the snapshot that a `DeltaChannel` stores now and then."""
    # The snapshot is a named tuple, so it is a sequence too.
    return value if isinstance(value, list) else getattr(value, "value", value)


def is_reserved(channel: str) -> bool:
    """Whether a channel is LangGraph's own, such as `__interrupt__` or `__pregel_tasks`."""
    return channel.startswith("__")


def state_keys(names: Iterable[str]) -> list[str]:
    """The keys of the state among the channels of a graph, sorted.

    The other channels trigger nodes or are reserved.
    """
    return sorted(name for name in names if not (triggered_node(name) or is_reserved(name)))


def accepted_input(saved: CheckpointTuple) -> Any:
    """The input of a run that is stored and not yet applied to the state; None if there is none."""
    return saved.checkpoint["channel_values"].get(START)


def previous_value(saved: CheckpointTuple) -> Any:
    """What the last finished run of an `@entrypoint` saved; None if there is none."""
    return saved.checkpoint["channel_values"].get(_PREVIOUS)


def task_of_namespace(namespace: str) -> str | None:
    """The task that a namespace belongs to; None if the namespace lasts longer than a task.

    Parts are separated by `|`. A part is `node:task_id`, or `node` for a subgraph that keeps
    its state between runs.

    Examples:
        >>> from langgraph_patch._langgraph import task_of_namespace
        >>> task_of_namespace("agent:7f3a"), task_of_namespace("agent")
        ('7f3a', None)
    """
    return namespace.rpartition(":")[2] if ":" in namespace else None


def subgraph_path(namespace: str) -> str:
    """The name under which `get_subgraphs` lists the graph of a lasting namespace.

    A number is a part of its own where one node calls several subgraphs.
    """
    return "|".join(part for part in namespace.split("|") if not part.isdigit())


def later_checkpoint_id(checkpoint_id: str, ticks: int) -> str | None:
    """A checkpoint id that is `ticks` times 100 ns later; None if it is not a UUID of LangGraph's.

    Examples:
        >>> from langgraph_patch._langgraph import later_checkpoint_id
        >>> later_checkpoint_id("1ef4f797-8335-6428-8001-8a1503f9b875", 1)
        '1ef4f797-8335-6429-8001-8a1503f9b875'
    """
    try:
        old = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if old.version != _UUID6:
        return None
    # The layout: 48 bits of the time, 4 of the version, 12 of the time, 64 of other things.
    time = (old.int >> 80 << 12 | (old.int >> 64) & 0xFFF) + ticks
    rest = old.int & (2**64 - 1)
    return str(uuid.UUID(int=(time >> 12) << 80 | _UUID6 << 76 | (time & 0xFFF) << 64 | rest))


# --- tasks and namespaces in stored checkpoints ------------------------------------------

_TRIGGER_PREFIXES = ("branch:to:", "join:")
"""Channels of a compiled graph that trigger a node: `branch:to:<node>`, `join:<nodes>:<node>`."""


def triggered_node(channel: str) -> str | None:
    """The node that a channel triggers, or None for any other channel."""
    return channel.rpartition(":")[2] if channel.startswith(_TRIGGER_PREFIXES) else None


def trigger_channel(node: str) -> str:
    """The channel with which an edge triggers a node."""
    return f"{_TRIGGER_PREFIXES[0]}{node}"


AFTER_MODEL: Final = ("post_model_hook", ".after_model")
"""How the nodes are called that `create_react_agent` and `create_agent` run between the model and
the tools: a name, and the end of the names of middleware nodes."""

_TO_MODEL = ("agent", "model", "pre_model_hook", ".before_model", ".before_agent")
"""The same for the model node and the nodes that run before it."""


def runs_after_model(node: str) -> bool:
    """Whether a prebuilt agent runs this node between the model and the tools.

    Examples:
        >>> from langgraph_patch._langgraph import runs_after_model
        >>> runs_after_model("HumanInTheLoopMiddleware.after_model"), runs_after_model("tools")
        (True, False)
    """
    return node == AFTER_MODEL[0] or node.endswith(AFTER_MODEL[1])


def leads_to_model(node: str) -> bool:
    """Whether a prebuilt agent goes to this node after its tools."""
    return node in _TO_MODEL[:-2] or node.endswith(_TO_MODEL[-2:])


def last_nodes(saved: CheckpointTuple) -> set[str]:
    """The nodes of the superstep that made a checkpoint, as far as edges triggered them.

    A node notes the version of the channel that triggered it. The newest versions are theirs.
    """
    seen: dict[str, Any] = {}
    for node, versions in (saved.checkpoint.get("versions_seen") or {}).items():
        triggers = [v for c, v in versions.items() if triggered_node(c) == node]
        if triggers:
            seen[node] = max(triggers)
    return {node for node, version in seen.items() if version == max(seen.values())}


def is_node_timeout(error: object) -> bool:
    """Whether a recorded error is LangGraph's for a node that took too long.

    A synchronous node goes on after that. Most checkpointers store the `repr` of the error.
    """
    text = error if isinstance(error, str) else repr(error)
    return text.startswith("NodeTimeoutError(") or type(error).__name__ == "NodeTimeoutError"


def task_kind(config: RunnableConfig) -> Literal["node", "send", "task"]:
    """What started the task that runs with `config`: an edge, a `Send`, or a call of a `@task`.

    Read from the path of the task: `("__pregel_pull", node)`, `("__pregel_push", index, False)`
    or `("__pregel_push", ..., True)`. Without a path, an edge is assumed.
    """
    path = tuple(config.get("metadata", {}).get(_PATH, ()))
    if path[:1] != (PUSH,):
        return "node"
    return "task" if path[-1] is True else "send"


def send_index(path: Sequence[object]) -> int | None:
    """The index of the `Send` that made the task with this path, or None if no `Send` did."""
    if len(path) > 1 and path[0] == PUSH and isinstance(path[1], int):
        return path[1]
    return None


def sent_call(send: object) -> dict[str, Any] | None:
    """The one tool call that a `Send` carries, or None.

    `create_agent` sends `[call]`, `create_react_agent` sends `{"tool_call": call, ...}`.
    """
    payload = getattr(send, "arg", None)
    call = payload.get("tool_call") if isinstance(payload, dict) else payload
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    return call if isinstance(call, dict) and call.get("id") else None


def carries_call(config: RunnableConfig, call_id: str | None) -> bool:
    """Whether a `Send` made the task that runs with `config`, for the tool call with this id."""
    sends, path = stored_value(config, _TASKS) or [], config.get("metadata", {}).get(_PATH, ())
    index = None if task_kind(config) != "send" else send_index(path)
    if index is None or index >= len(sends) or call_id is None:
        return False
    return (sent_call(sends[index]) or {}).get("id") == call_id


def nodes_of_namespace(namespace: str) -> list[str]:
    """The nodes on the way from the root graph to a node, the node itself last."""
    return [part.partition(":")[0] for part in namespace.split("|") if not part.isdigit()]


def parent_namespace(namespace: str) -> str:
    """The namespace of the graph that a subgraph's or a node's namespace is part of."""
    return namespace.rpartition("|")[0]


def own_interrupt_id(namespace: str, node: str, task_id: str) -> str:
    """The id of an interrupt that a task raised itself; LangGraph derives it from its namespace."""
    return Interrupt.from_ns(None, f"{namespace}|{node}:{task_id}".removeprefix("|")).id


def may_run_in_task(namespace: str, parent: str, task_id: str) -> bool:
    """Whether a namespace below `parent` may be that of a subgraph that a task ran.

    A segment without a task id may belong to any task.
    """
    first = namespace.removeprefix(f"{parent}|").partition("|")[0]
    return ":" not in first or task_of_namespace(first) == task_id


def keeps_state_between_runs(namespace: str) -> bool:
    """Whether a segment of a namespace names no task, so that later runs use it too.

    LangGraph names the namespace of a subgraph compiled with `checkpointer=True` so.
    """
    return any(":" not in segment for segment in namespace.split("|")) if namespace else False


def keys_in_memory(saver: InMemorySaver) -> list[tuple[str, str]] | None:
    """The thread and the namespace of each history of an `InMemorySaver`.

    `list(None)` loads every checkpoint, so that one corrupt checkpoint would hide all threads.

    Returns:
        The pairs; None if the saver does not store checkpoints as expected.
    """
    storage = getattr(saver, "storage", None)
    if not isinstance(storage, dict) or not all(
        isinstance(each, dict) for each in list(storage.values())
    ):
        return None
    return [
        (thread_id, namespace)
        for thread_id, namespaces in list(storage.items())
        for namespace, checkpoints in list(namespaces.items())
        if checkpoints
    ]


def delete_from_memory(
    saver: InMemorySaver, thread_id: str, namespace: str, checkpoint_id: str
) -> bool | None:
    """Delete a checkpoint of an `InMemorySaver` if it is the newest and has no pending writes.

    Returns:
        Whether it was deleted; None if the saver does not store checkpoints as expected.
    """
    storage, writes = getattr(saver, "storage", None), getattr(saver, "writes", None)
    if not isinstance(storage, dict) or not isinstance(writes, dict):
        return None
    checkpoints = storage.get(thread_id, {}).get(namespace, {})
    place = (thread_id, namespace, checkpoint_id)
    if max(checkpoints, default=None) != checkpoint_id or writes.get(place):
        return False
    del checkpoints[checkpoint_id]
    writes.pop(place, None)
    return True
