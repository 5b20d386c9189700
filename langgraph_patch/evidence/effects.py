"""What a task wrote beside a recorded result: the effects of the call.

LangGraph drops all writes of an abandoned superstep. The result is recovered from them, so it may
state effects that the state does not have: "Updated file", "Successfully transferred to bob".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import ToolMessage
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Command, Send

from langgraph_patch._langgraph_graphs import leads_to_model
from langgraph_patch._langgraph_storage import (
    RETURN,
    is_delta_snapshot,
    is_reserved,
    last_nodes,
    triggered_node,
    whole_value,
)
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, messages_in
from langgraph_patch.evidence.tracked_calls import Source

ROUTERS: Final = "_routers"
"""The end of the name of the node that `with_patching(record=True)` puts behind a `ToolNode`."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The other writes of the task that recorded a result, if they were dropped.

    Attributes:
        writes: The state key and the value of each write.
        unchanged: The keys whose value is the same in the current checkpoint as when the writes
            were made. Applying the writes now has the same effect as then.
        goto: The nodes that the result was to start, without those that an edge starts.
        task: Identifies the task. Results of one task have the same writes.
        values: The stored values of the keys when the writes were made.
    """

    writes: tuple[tuple[str, Any], ...] = ()
    unchanged: frozenset[str] = frozenset()
    goto: tuple[str, ...] = ()
    task: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def effects_of(source: Source, current: Checkpoint | None, result: ToolMessage) -> Effects | None:
    """The dropped effects of a recorded result; None if it had none, or if they were applied.

    Args:
        source: Where the result was found.
        current: The current checkpoint of the graph that has the call.
        result: The result.
    """
    if source.is_rewrite or not _is_dropped(source):
        return None
    then, messages_key = source.checkpoint, source.checkpoint.messages_key
    writes: list[tuple[str, Any]] = []
    nodes: list[str] = []
    elsewhere = set[str]()
    for task_id, channel, value in then.writes:
        if task_id != source.task_id:
            continue
        if channel == RETURN:
            for command in _commands_in(value, result, messages_key):
                update = _updates_of(command)
                writes += update
                nodes += _targets_of(command)
                elsewhere |= {key for key, _ in update} if command.graph is not None else set()
        elif not (triggered_node(channel) or is_reserved(channel)):
            writes.append((channel, value))
    goto = [*nodes, *_gotos(then, source.task_id)]
    writes = [write for write in writes if write[0] != messages_key]
    if not writes and not goto:
        return None
    keys = {key for key, _ in writes} - elsewhere
    is_here = current is not None and current.namespace == then.namespace
    unchanged = {key for key in keys if is_here and current and _is_unchanged(key, source, current)}
    task = f"{then.namespace}/{then.id}/{source.task_id}"
    stored = {key: then.channels[key] for key in keys if key in then.channels}
    values = {k: whole_value(v) if is_delta_snapshot(v) else v for k, v in stored.items()}
    return Effects(tuple(writes), frozenset(unchanged), tuple(dict.fromkeys(goto)), task, values)


def _is_dropped(source: Source) -> bool:
    """Whether the superstep of a result was abandoned, or may have been: its writes were dropped.

    A run with durability "exit" stores its last checkpoint only. Between two stored checkpoints, a
    run may have begun with an input, which abandons the superstep.
    """
    then, child = source.checkpoint, source.child
    return child is None or child.source != "loop" or child.step > then.step + 1


def _gotos(checkpoint: Checkpoint, task_id: str) -> Iterator[str]:
    """The nodes that a task started and no edge.

    An edge starts its node after each task of the same node, and usually the model, which runs
    in the next turn anyway.
    """
    targets: dict[str, set[str]] = {}
    for task, channel, value in checkpoint.writes:
        target = triggered_node(channel) if channel.startswith("branch:to:") else None
        if channel == TASKS and isinstance(value, Send):
            target = value.node
        if target is not None:
            targets.setdefault(task, set()).add(target)
    own = targets.pop(task_id, set())
    by_edge = set().union(*targets.values()) | last_nodes(checkpoint.saved)
    left = (node for node in own - by_edge if not node.endswith(ROUTERS))
    yield from sorted(node for node in left if not leads_to_model(node))


def _commands_in(value: object, result: ToolMessage, messages_key: str) -> Iterator[Command[Any]]:
    """The commands with a result among what a `@task` returned."""
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, Command):
            messages = messages_in(part, messages_key)
            if any(getattr(m, "tool_call_id", None) == result.tool_call_id for m in messages):
                yield part


def _updates_of(command: Command[Any]) -> list[tuple[str, Any]]:
    update = command.update
    if isinstance(update, Mapping):
        return list(update.items())
    if isinstance(update, list | tuple) and all(
        isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)  # noqa: PLR2004 - a pair
        for part in update
    ):
        return list(update)
    return []


def _targets_of(command: Command[Any]) -> list[str]:
    goto = command.goto if isinstance(command.goto, list | tuple) else [command.goto]
    names = [part.node if isinstance(part, Send) else str(part) for part in goto]
    return [name for name in names if not leads_to_model(name) and not is_reserved(name)]


def _is_unchanged(key: str, source: Source, now: Checkpoint) -> bool:
    then = source.checkpoint
    versions = [c.saved.checkpoint["channel_versions"].get(key) for c in (then, now)]
    if versions[0] == versions[1]:
        return True
    stored = [c.channels[key] for c in (then, now) if key in c.channels]
    if len(stored) == len(versions) and not any(map(is_delta_snapshot, stored)):
        return are_equal(*stored)
    # The version of a `DeltaChannel` changes without a write, and not every checkpoint stores it.
    return source.later is not None and key not in source.later


def are_equal(left: object, right: object) -> bool:
    """Whether two values of the application are equal; False if they cannot be compared."""
    try:
        return bool(left == right)
    except Exception:  # noqa: BLE001 - an application's values may raise anything
        return False
