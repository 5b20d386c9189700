"""Make the one checkpoint that a repair writes. Nothing is written here.

LangGraph keeps what the finished tasks of a superstep wrote as pending writes of the checkpoint
before it. A repair that is written behind that checkpoint drops them, so what they wrote to the
history is applied to it first, in LangGraph's order and by its reducer. The reducers of other state
keys are the application's: the caller refuses a checkpoint whose finished tasks wrote one.

The new checkpoint has no value in a channel that starts a task, so that nothing runs. A history
that a `DeltaChannel` spreads over checkpoints is stored whole, as LangGraph itself does now and
then. It is checked that the history is read as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from langchain_core.messages import BaseMessage
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph.message import add_messages

from langgraph_patch._langgraph_storage import (
    NO_TASK,
    counters_of,
    later_checkpoint_id,
    state_keys,
)
from langgraph_patch.errors import brief
from langgraph_patch.evidence.superstep import superstep_of
from langgraph_patch.threads.read import MARK, StoredHistory
from langgraph_patch.threads.reports import Refused

PATCHED: Final = "with with_patching, the next message repairs it"
"""What to do about a thread whose repair is refused."""


def committed(base: StoredHistory, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """A history with what finished tasks wrote to it.

    Args:
        base: The checkpoint.
        messages: Its history.

    Raises:
        Stopped: If a task that wrote something is not known, or LangGraph cannot apply the writes.
    """
    step = superstep_of(base.saved, base.messages_key)
    try:
        tasks = step.tasks
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(f"no graph fits it ({brief(error)}): {PATCHED}") from error
    others = {task.id: task for task in step.others}
    clients = [others.pop(NO_TASK)] if NO_TASK in others else []
    if any(state_keys(channel for channel, _ in task.writes) for task in others.values()):
        raise Refused(f"the node of work that finished in this thread is not known; {PATCHED}")
    reducer = cast("Any", add_messages)  # it takes and returns more than lists
    channel = BinaryOperatorAggregate(list, reducer).from_checkpoint(list(messages))
    try:
        for task in (*clients, *tasks):
            channel.update(task.written_to(base.messages_key))
    except Exception as error:  # any: the reducer raises for what it cannot apply
        first = str(error).partition("\n")[0][:200]
        raise Refused(
            f"LangGraph cannot apply what its finished tasks wrote: {type(error).__name__}: "
            f"{first} But {PATCHED}"
        ) from error
    return list(channel.get())


def new_checkpoint(base: StoredHistory, messages: Sequence[BaseMessage]) -> CheckpointTuple:
    """The checkpoint to write: the one that is repaired, with another history, without tasks.

    Args:
        base: The checkpoint that is repaired.
        messages: The repaired history.

    Raises:
        Stopped: If the history would not be read back as it is written.
    """
    key, saver, old = base.messages_key, base.saver, base.saved.checkpoint
    stored = saver.serde.loads_typed(saver.serde.dumps_typed(list(messages)))
    if not are_same(stored, messages):
        raise Refused("its repaired history is not read back as it is written")
    values, versions = {**old["channel_values"]}, {**old["channel_versions"]}
    for channel in base.starting_channels():
        values.pop(channel)
        versions[channel] = saver.get_next_version(versions.get(channel), None)
    values[key] = list(messages)
    versions[key] = saver.get_next_version(versions.get(key), None)
    new: Checkpoint = {
        **old,
        "id": id_after(base),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": values,
        "channel_versions": versions,
        "updated_channels": None,
    }
    saved = base.saved.metadata
    parents, step = saved.get("parents", {}), saved.get("step", -1) + 1
    counters = counters_of(base.saved, key)
    metadata: Any = {"source": "update", "step": step, "parents": parents, **MARK, **counters}
    return base.saved._replace(checkpoint=new, metadata=metadata)


def id_after(base: StoredHistory) -> str:
    """The id of a checkpoint directly behind another one, so that any later one hides it.

    Raises:
        Stopped: If there is none, because LangGraph did not make the id of the other one.
    """
    new = later_checkpoint_id(base.checkpoint_id, 1)
    if new is None:
        raise Refused(
            f"the id of its newest checkpoint, {base.checkpoint_id!r:.100}, is none of "
            f"LangGraph's, so no checkpoint can be written directly behind it; {PATCHED}"
        )
    return new


# --- comparing messages ------------------------------------------------------------------

_SERDE = JsonPlusSerializer(pickle_fallback=True)  # only used to write


def are_same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have the same messages in the same order."""
    return len(some) == len(others) and all(map(is_same, some, others))


def is_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages have the same id and equal contents, in whatever order their keys are.

    `==` raises an error for arrays and data frames in an artifact, and it is false for NaN.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.threads.stage import is_same
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, is_same(one, other)
        (False, True)
    """
    return type(one) is type(other) and _contents(one) == _contents(other)


def _contents(message: BaseMessage) -> Any:
    return _SERDE.dumps_typed(_in_order({**vars(message), **(message.model_extra or {})}))


def _in_order(value: Any) -> Any:
    """A stored value with the keys of its mappings in order, and lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: _in_order(value[key]) for key in sorted(value, key=str)}
    return [*map(_in_order, value)] if isinstance(value, list | tuple) else value
