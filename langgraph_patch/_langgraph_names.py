"""The names that LangGraph gives to channels, tasks and namespaces.

LangGraph stores these names in databases, so it cannot change them without breaking old threads.

`tests/graph/test_langgraph_names.py` tests each function and constant. It fails if
LangGraph changes the detail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from langgraph.types import Interrupt

# --- channels -----------------------------------------------------------------------------

ROOT_CHANNEL: Final = "__root__"
"""The only channel of a graph with a single value as its state, such as a list of messages."""

RETURN: Final = "__return__"
"""The channel of what a functional task returned."""

ERROR_SOURCE: Final = "__error_source_node__"
"""The channel that names the node that an error came from."""

_TRIGGER_PREFIXES = ("branch:to:", "join:")
"""Channels of a compiled graph that trigger a node: `branch:to:<node>`, `join:<nodes>:<node>`."""


def is_reserved(channel: str) -> bool:
    """Whether a channel is LangGraph's own, such as `__interrupt__` or `__pregel_tasks`."""
    return channel.startswith("__")


def triggered_node(channel: str) -> str | None:
    """The node that a channel triggers, or None for any other channel."""
    return channel.rpartition(":")[2] if channel.startswith(_TRIGGER_PREFIXES) else None


def trigger_channel(node: str) -> str:
    """The channel with which an edge triggers a node."""
    return f"{_TRIGGER_PREFIXES[0]}{node}"


def state_keys(names: Iterable[str]) -> list[str]:
    """The keys of the state among the channels of a graph, sorted.

    The other channels trigger nodes or are reserved.
    """
    return sorted(name for name in names if not (triggered_node(name) or is_reserved(name)))


# --- tasks --------------------------------------------------------------------------------

PUSH: Final = "__pregel_push"
"""The first part of the path of a task that a `Send` or a `@task` created."""

NO_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task id of a write that no task made, such as an answer without an interrupt id."""


def send_index(path: Sequence[object]) -> int | None:
    """The index of the `Send` that made the task with this path, or None if no `Send` did."""
    if len(path) > 1 and path[0] == PUSH and isinstance(path[1], int):
        return path[1]
    return None


# --- namespaces: `node:task_id`, joined by `|` --------------------------------------------


def task_of_namespace(namespace: str) -> str | None:
    """The task that a namespace belongs to; None if the namespace lasts longer than a task.

    Parts are separated by `|`. A part is `node:task_id`, or `node` for a subgraph that keeps
    its state between runs.

    Examples:
        >>> from langgraph_patch._langgraph_names import task_of_namespace
        >>> task_of_namespace("agent:7f3a"), task_of_namespace("agent")
        ('7f3a', None)
    """
    return namespace.rpartition(":")[2] if ":" in namespace else None


def subgraph_path(namespace: str) -> str:
    """The name under which `get_subgraphs` lists the graph of a namespace without task ids.

    Where one node calls several subgraphs, LangGraph adds a number as a segment of its own.
    """
    return "|".join(part for part in namespace.split("|") if not part.isdigit())


def nodes_of_namespace(namespace: str) -> list[str]:
    """The nodes on the way from the root graph to a node, the node itself last."""
    return [part.partition(":")[0] for part in namespace.split("|") if not part.isdigit()]


def parent_namespace(namespace: str) -> str:
    """The namespace of the graph that a subgraph's or a node's namespace is part of."""
    return namespace.rpartition("|")[0]


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


def own_interrupt_id(namespace: str, node: str, task_id: str) -> str:
    """The id of an interrupt that a task raised itself; LangGraph derives it from its namespace."""
    return Interrupt.from_ns(None, f"{namespace}|{node}:{task_id}".removeprefix("|")).id
