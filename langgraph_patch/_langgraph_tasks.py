"""The private details of LangGraph's running tasks: what clients see of one, and the loop.

What a task writes to the channel `__return__` is what the `updates` stream shows of its node.
LangGraph uses this for `@task` functions; it ignores the write when it computes the state. The
config of a node has the function that writes (`__pregel_send`), and in the arguments of
`__pregel_call` the task and the loop that runs it. Without them nothing is written, and clients
see LangGraph's own chunk.

`tests/graph/test_langgraph_tasks.py` tests each function and constant. It fails if
LangGraph changes the detail.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from langgraph_patch._langgraph_names import RETURN, ROOT_CHANNEL

_SEND = "__pregel_send"
"""Adds writes to those of the task that runs."""

_CALL = "__pregel_call"
"""A partial: its first argument is a weak reference to the task, `schedule_task` is a method of
the loop."""


def is_node_of_task(config: RunnableConfig, *runnables: object) -> bool:
    """Whether the task of `config` runs one of `runnables` as its node.

    If so, LangGraph writes what the runnable returns, as it is. A runnable that a node calls in
    its own function gets the same config, but may not set the chunk: its node may still raise, and
    LangGraph takes a task with such a write as finished.

    Args:
        config: The config that the runnable was called with.
        *runnables: The runnable, or the function or method that a node was made of.
    """
    process = getattr(_task(config), "proc", None)
    node = next(iter(getattr(process, "steps", ())), process)
    functions = [getattr(node, "func", None), getattr(node, "afunc", None)]
    return any(part in runnables for part in (node, *functions) if part is not None)


def shown_keys(config: RunnableConfig) -> Collection[str] | str | None:
    """The state keys that the `updates` stream of the run shows; None if they cannot be read.

    It is a string if the caller of `stream` asked for one key with `output_keys`: LangGraph then
    shows the value of that key alone.
    """
    keys = getattr(_loop(config), "output_keys", None)
    return keys if isinstance(keys, str | Collection) else None


def written_pairs(output: Any, *, root: bool = False) -> list[tuple[str, Any]] | None:
    """The writes of a node's output, as pairs of key and value, as LangGraph reads them.

    Args:
        output: What the node returned, or a list of several outputs.
        root: Whether the state of the graph is a single value. Default: False.

    Returns:
        The pairs. None if LangGraph refuses such an output, or if they cannot be read.

    Examples:
        >>> from langgraph.types import Command
        >>> from langgraph_patch._langgraph_tasks import written_pairs
        >>> written_pairs([Command(update={"a": 1}), {"b": 2}])
        [('a', 1), ('b', 2)]
        >>> written_pairs("text") is None
        True
    """
    if output is None:
        return []
    has_commands = isinstance(output, list | tuple) and any(
        isinstance(part, Command) for part in output
    )
    if root and not has_commands and not isinstance(output, Command):
        return [(ROOT_CHANNEL, output)]
    if isinstance(output, list | tuple):
        parts = [written_pairs(part, root=root) for part in output]
        return None if None in parts else [pair for part in parts for pair in part or ()]
    command = output if isinstance(output, Command) else Command(update=output)
    if command.graph == Command.PARENT:
        return []
    read = getattr(command, "_update_as_tuples", None)
    pairs = list(read()) if callable(read) else None
    is_value = pairs is not None and any(key == ROOT_CHANNEL for key, _ in pairs)
    return None if is_value and not root else pairs


def show_in_updates(config: RunnableConfig, value: Any) -> None:
    """Make the `updates` stream show `value` as the chunk of the node that runs.

    Call it only when nothing can fail any more: LangGraph takes a task with this write as
    finished, so that a resumed run would not run its node.
    """
    send = config.get("configurable", {}).get(_SEND)
    if callable(send):
        send([(RETURN, value)])


def allow_one_more_superstep(config: RunnableConfig) -> None:
    """Raise the `recursion_limit` of the run by one, for a superstep that the graph does not know.

    `RemainingSteps` and `IsLastStep` are computed from the raised limit. If LangGraph changes the
    detail, the superstep counts.
    """
    loop = _loop(config)
    if isinstance(getattr(loop, "stop", None), int):
        loop.stop += 1


def _loop(config: RunnableConfig) -> Any:
    """The loop that runs the graph, or None."""
    schedule = getattr(_call(config), "keywords", {}).get("schedule_task")
    return getattr(schedule, "__self__", None)


def _task(config: RunnableConfig) -> Any:
    """The task that runs, or None."""
    reference = next(iter(getattr(_call(config), "args", ())), None)
    return reference() if isinstance(reference, weakref.ref) else None


def _call(config: RunnableConfig) -> Any:
    return config.get("configurable", {}).get(_CALL)
