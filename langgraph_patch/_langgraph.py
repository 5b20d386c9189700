"""What LangGraph keeps to itself and we cannot do without, in one place.

It hands a node its checkpointer, its channels and its way to start a child task in
`config["configurable"]`, under keys that start with `__pregel_`. Nothing public gives the
same. Each reader here checks what it finds and answers None if it is not what it was.

A few names stand in the writes and paths of every database, so they cannot change without
breaking old threads. An unknown one is only ever not found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START

_CHECKPOINTER = "__pregel_checkpointer"
"""The saver of the run: a server injects its own here, so the compiled graph cannot tell."""

_READ = "__pregel_read"
"""A partial that reads the state; its arguments hold the live channels, hence the reducers."""

_CALL = "__pregel_call"
"""Starts a `@task`; there only inside a graph, where a call to `task()` is allowed."""

_DURABILITY = "__pregel_durability"
"""With "exit" nothing is written before the run ends, so that there is nothing to wait for."""

_RESUMING = "__pregel_resuming"
"""The run goes on from a checkpoint, so that earlier results may exist."""

RETURN: Final = "__return__"
"""The channel of what a functional task returned."""

ERROR_SOURCE: Final = "__error_source_node__"
"""The channel that says which node an error came from."""

_DEFAULT_HANDLER = "__default_error_handler__"
"""The node that `compile()` makes of a default error handler, each time."""

PUSH: Final = "__pregel_push"
"""The first part of the path of a task that a `Send` or a `@task` made."""

NO_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""Who wrote what no task wrote, such as an answer without an interrupt id."""


def checkpointer_of(config: RunnableConfig) -> BaseCheckpointSaver[Any] | None:
    """The checkpointer of the run that `config` belongs to, or None."""
    saver = config.get("configurable", {}).get(_CHECKPOINTER)
    return saver if isinstance(saver, BaseCheckpointSaver) else None


def channels_of(config: RunnableConfig) -> Mapping[str, Any]:
    """The live channels of the graph that runs, or nothing outside of one."""
    read = config.get("configurable", {}).get(_READ)
    for argument in getattr(read, "args", ()):
        if isinstance(argument, Mapping) and argument and _are_channels(argument):
            return argument
    return {}


def _are_channels(mapping: Mapping[Any, Any]) -> bool:
    return isinstance(next(iter(mapping.values())), BaseChannel)


def input_of(config: RunnableConfig) -> Any:
    """What the run was given, in the step of START; else None."""
    channel = channels_of(config).get(START)
    return channel.get() if channel is not None and channel.is_available() else None


def read_fresh(config: RunnableConfig, key: str) -> Any:
    """The value of a state key, with what the running node has just written; None if it has none.

    A router's own schema may lack the key.
    """
    read = config.get("configurable", {}).get(_READ)
    return read([key], True).get(key) if callable(read) else None  # noqa: FBT003 - its form


def is_for_node(graph: object, config: RunnableConfig) -> bool:
    """Whether a `Command` that a nested graph raised is for the graph whose node runs it.

    LangGraph names a graph by the namespace of that node, with or without the ids of tasks.
    """
    namespace = str(config.get("configurable", {}).get("checkpoint_ns", ""))
    parts = [part.partition(":")[0] for part in namespace.split("|") if not part.isdigit()]
    return graph in (namespace, "|".join(parts))


def memory_of(config: RunnableConfig) -> dict[str, Any]:
    """A place for notes that lives as long as the node's task, from its first attempt to its last.

    It hangs on the partial that LangGraph makes for the task. Without one it is forgotten.
    """
    notes: dict[str, Any] = getattr(config.get("configurable", {}).get(_READ), "__dict__", {})
    return notes


def can_start_tasks(config: RunnableConfig) -> bool:
    """Whether a `@task` may be called here."""
    return config.get("configurable", {}).get(_CALL) is not None


def is_resuming(config: RunnableConfig) -> bool:
    """Whether the run goes on from a checkpoint instead of starting with an input."""
    return bool(config.get("configurable", {}).get(_RESUMING))


def remade_nodes(builder: Any) -> Collection[str]:
    """The nodes of a graph's builder that `compile()` would make again, and so refuse."""
    defaults = getattr(builder, "_node_defaults", None)
    return () if getattr(defaults, "error_handler", None) is None else (_DEFAULT_HANDLER,)


def thread_config(config: RunnableConfig) -> RunnableConfig | None:
    """The thread and the namespace of the graph whose node runs with `config`, or None.

    A node's own namespace is that of its graph and one more segment, `node:task_id`. The
    current checkpoint is named too, unless it will not be written before the run ends.
    """
    configurable = config.get("configurable", {})
    thread_id = configurable.get("thread_id")
    if thread_id is None:
        return None
    namespace = str(configurable.get("checkpoint_ns", "")).rpartition("|")[0]
    place = {"thread_id": str(thread_id), "checkpoint_ns": namespace}  # as it is stored
    current = configurable.get("checkpoint_map", {}).get(namespace)
    if isinstance(current, str) and configurable.get(_DURABILITY) != "exit":
        place["checkpoint_id"] = current
    return {"configurable": place}
