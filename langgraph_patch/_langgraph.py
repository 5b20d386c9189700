"""The private details of LangGraph that a node reaches through its config.

LangGraph passes a node its checkpointer and its channels in `config["configurable"]`, under keys
that start with `__pregel_`. No public API provides them.
Each function checks what it reads: it returns None or an empty value if LangGraph has changed
the detail, and the run goes on.

The other private details are in `_langgraph_graphs` (graphs and tool nodes that are built) and
`_langgraph_storage` (names in stored checkpoints).

`tests/graph/test_langgraph.py` fails if LangGraph changes a detail that no other test would notice.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import TASKS
from langgraph.config import get_config

from langgraph_patch._langgraph_storage import (
    PUSH,
    RETURN,
    has_ended_tasks,
    parent_namespace,
    triggered_node,
)

_CHECKPOINTER = "__pregel_checkpointer"
"""The checkpointer of the run. A server sets its own here, so the compiled graph lacks it."""

_READ = "__pregel_read"
"""A partial that reads the state. Its arguments include the live channels with their reducers."""

_DURABILITY = "__pregel_durability"
"""The durability of the run. With "exit" nothing is written before the run ends."""

_SCRATCHPAD = "__pregel_scratchpad"
"""The counters of the task that runs; `resume` lists the answers to its interrupts."""

_SEND = "__pregel_send"
"""Adds writes to those of the task that runs."""

_CALL = "__pregel_call"
"""A partial that starts a `@task`: its first argument is a weak reference to the task that runs,
its `schedule_task` is a method of the loop."""

_NODE = "langgraph_node"
"""The metadata key with the name of the node that runs. It is absent outside of a node."""

_PATH = "langgraph_path"
"""The metadata key with the path of the task that runs: `("__pregel_pull", node)` for an edge,
`("__pregel_push", index, False)` for a `Send`, `("__pregel_push", ..., True)` for a `@task`."""


# --- the run ------------------------------------------------------------------------------


def current_config() -> RunnableConfig:
    """The config of the node that runs; an empty one outside of a graph."""
    try:
        return get_config()
    except RuntimeError:
        return {}


def checkpointer_of(config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
    """The checkpointer of the run that `config` belongs to, or None."""
    saver = config.get("configurable", {}).get(_CHECKPOINTER)
    return saver if isinstance(saver, BaseCheckpointSaver) else None


def writes_at_exit(config: RunnableConfig) -> bool:
    """Whether the run writes nothing before it ends (durability "exit")."""
    return config.get("configurable", {}).get(_DURABILITY) == "exit"


def has_interrupts(config: RunnableConfig) -> bool:
    """Whether an `interrupt()` of the task that runs was answered.

    To run its node once more would ask the same question again.
    """
    scratchpad = config.get("configurable", {}).get(_SCRATCHPAD)
    return bool(getattr(scratchpad, "resume", None))


# --- the state ----------------------------------------------------------------------------


def channels_of(config: RunnableConfig) -> Mapping[str, Any]:
    """The live channels of the graph that runs, or an empty mapping outside of a graph."""
    read = config.get("configurable", {}).get(_READ)
    for argument in getattr(read, "args", ()):
        if isinstance(argument, Mapping) and argument and _are_channels(argument):
            return argument
    return {}


def _are_channels(mapping: Mapping[Any, Any]) -> bool:
    return isinstance(next(iter(mapping.values())), BaseChannel)


def values_of(config: RunnableConfig, keys: Collection[str], *, fresh: bool) -> dict[str, Any]:
    """The values of these state keys, as far as they have one; none outside of a graph.

    Args:
        config: The config of a node, or of a conditional edge that leaves it.
        keys: The state keys; managed values, such as `remaining_steps`, are found too.
        fresh: Whether to apply what the node has written: for its conditional edges.
    """
    read = config.get("configurable", {}).get(_READ)
    return dict(read(list(keys), fresh)) if callable(read) else {}


# --- the task and its superstep -----------------------------------------------------------


def node_of(config: RunnableConfig) -> str | None:
    """The name of the node that runs, or None outside of a graph."""
    name = config.get("metadata", {}).get(_NODE)
    return name if isinstance(name, str) else None


def pending_sends(config: RunnableConfig) -> Sequence[Any]:
    """The `Send`s that made tasks of the superstep that runs, in their order."""
    channel = channels_of(config).get(TASKS)
    return channel.get() if channel is not None and channel.is_available() else ()


def runs_alone(config: RunnableConfig) -> bool:
    """Whether no other task runs in the superstep of the node; True outside of a graph.

    The channels that trigger nodes have a value for one superstep. The tasks that a `Send` makes
    are in a channel of their own.
    """
    started = {
        triggered_node(name)
        for name, channel in channels_of(config).items()
        if triggered_node(name) is not None and channel.is_available()
    }
    return len(started) + len(pending_sends(config)) <= 1


# --- the thread ---------------------------------------------------------------------------


def thread_config(config: RunnableConfig) -> RunnableConfig | None:
    """The thread and the namespace of the graph that the node of `config` belongs to, or None.

    It names the current checkpoint. With durability "exit" that one is not stored yet, so it names
    the checkpoint that the caller started the run from, if any.
    """
    configurable = config.get("configurable", {})
    thread_id = configurable.get("thread_id")
    if thread_id is None:
        return None
    namespace = graph_namespace(config)
    thread = {"thread_id": str(thread_id), "checkpoint_ns": namespace}  # str: as it is stored
    current: Any = configurable.get("checkpoint_map", {}).get(namespace)
    if writes_at_exit(config):
        current = None if namespace else config.get("metadata", {}).get("checkpoint_id")
    if isinstance(current, str):
        thread["checkpoint_id"] = current
    return {"configurable": thread}


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


# --- what clients see of a node, and the loop -----------------------------------------------


def show_in_updates(config: RunnableConfig, value: Any) -> None:
    """Make the `updates` stream show `value` as the chunk of the node that runs.

    LangGraph uses the reserved channel `__return__` for `@task` functions, and ignores the write
    when it computes the state. Call it only when nothing can fail any more: LangGraph takes a task
    with this write as finished.
    """
    send = config.get("configurable", {}).get(_SEND)
    if callable(send):
        send([(RETURN, value)])


def is_called_by_node(config: RunnableConfig, runnable: object) -> bool:
    """Whether a function that is the node of the task calls `runnable`, which is not the node.

    If LangGraph changes the detail, it is False.
    """
    reference = next(iter(getattr(config.get("configurable", {}).get(_CALL), "args", ())), None)
    task = reference() if isinstance(reference, weakref.ref) else None
    process = getattr(task, "proc", None)
    node = next(iter(getattr(process, "steps", ())), process)
    return node is not None and node is not runnable


def _loop(config: RunnableConfig) -> Any:
    """The loop of the run, or None."""
    call = config.get("configurable", {}).get(_CALL)
    schedule = getattr(call, "keywords", {}).get("schedule_task")
    return getattr(schedule, "__self__", None)


def breakpoints_of(config: RunnableConfig) -> frozenset[str] | None:
    """The nodes before which the run stops (`interrupt_before`); None for every node.

    Set when the graph was compiled, or for this run. If LangGraph changes the detail, it is empty.
    """
    nodes = getattr(_loop(config), "interrupt_before", ())
    return None if nodes == "*" else frozenset(nodes)


def input_ended_tasks(config: RunnableConfig) -> bool:
    """Whether the input of the run ended tasks that had not been applied; asked while START runs.

    No public API tells this without a query. If LangGraph changes the detail, it is False.
    """
    checkpoint = getattr(_loop(config), "checkpoint", None)
    versions = checkpoint.get("channel_versions") if isinstance(checkpoint, Mapping) else None
    return isinstance(versions, Mapping) and has_ended_tasks(versions)


def checkpoint_before_run(config: RunnableConfig) -> str | None:
    """The id of the checkpoint that the run loaded; None if LangGraph changes the detail."""
    checkpoint_id = getattr(_loop(config), "checkpoint_id_saved", None)
    return checkpoint_id if isinstance(checkpoint_id, str) else None
