"""Read a stored checkpoint without the graph that wrote it: its history, its pause and its age.

`get_state()` applies the pending writes of finished tasks. The next message discards them, so
`get_state()` would hide that they are lost. This module reads the state as the next run finds it.

It also says in words why a checkpoint cannot be read, and compares messages: `==` raises an error
for arrays and data frames in an artifact, and it is false for NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from langgraph_patch._langgraph_storage import (
    ERROR_SOURCE,
    NEWEST_FORMAT,
    NO_TASK,
    due_channels,
    whole_value,
)
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError, brief
from langgraph_patch.evidence.tasks import fold
from langgraph_patch.history.patch import as_messages
from langgraph_patch.threads.keys import Key

_SERDE = JsonPlusSerializer(pickle_fallback=True)  # only used to write

_NO_RESULT = frozenset((INTERRUPT, RESUME, ERROR, ERROR_SOURCE))
"""A write to one of these channels does not show that a task finished."""


# --- the history -------------------------------------------------------------------------


def config_of(key: Key) -> RunnableConfig:
    """The config that names the newest checkpoint of a history."""
    return {"configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}}


def history_of(
    saver: Any, saved: CheckpointTuple, messages_key: str
) -> IOGenerator[list[BaseMessage] | None]:
    """Read the messages of a checkpoint as the next run finds them.

    Args:
        saver: The checkpointer that holds the checkpoint. It is read only for a `DeltaChannel`:
            the value is spread over older checkpoints.
        saved: The checkpoint.
        messages_key: The state key of the history.

    Returns:
        The messages, or None if the state has no such key.

    Raises:
        ThreadError: If the format of the checkpoint is newer than this module supports, or if
            the value holds anything but messages.
        MessagesError: If the value is not a list of messages.
    """
    checkpoint = saved.checkpoint
    if checkpoint.get("v", 1) > NEWEST_FORMAT:
        raise ThreadError(
            f"its checkpoint has format {checkpoint['v']!r}, which is newer than this version of "
            f"langgraph-patch supports: upgrade langgraph-patch"
        )
    values = checkpoint["channel_values"]
    if messages_key in values:
        return _checked_messages(values[messages_key])
    if messages_key not in checkpoint["channel_versions"]:
        return None
    found = yield from call_method(
        saver, "get_delta_channel_history", config=saved.config, channels=[messages_key]
    )
    delta = found[messages_key]
    writes = [value for _, _, value in delta.get("writes", ())]
    return fold(_checked_messages(delta.get("seed", [])), writes)


def _checked_messages(value: Any) -> list[BaseMessage]:
    """The messages of a stored value; a class that is not loaded leaves only its arguments."""
    value = whole_value(value)
    for kind in set(map(type, value)) if isinstance(value, list) else ():
        if not issubclass(kind, BaseMessage | dict):
            raise ThreadError(
                f"its history holds a {kind.__name__} where a message was expected: a class that "
                f"is not loaded, or another kind of state"
            )
    return as_messages(value)


# --- pauses and age ----------------------------------------------------------------------


def interrupts_of(saved: CheckpointTuple) -> dict[str, Any]:
    """The interrupts of the tasks that wait for a human: what each asks, by its id."""
    waiting: dict[str, Sequence[Any]] = {}
    finished: set[str] = set()
    for task, channel, value in saved.pending_writes or ():
        if channel == INTERRUPT and task != NO_TASK:
            waiting[task] = value if isinstance(value, Sequence) else [value]
        elif channel not in _NO_RESULT:
            finished.add(task)
    asking = [each for task, own in waiting.items() if task not in finished for each in own]
    return {str(getattr(each, "id", each)): getattr(each, "value", each) for each in asking}


def starts_tasks(saved: CheckpointTuple) -> bool:
    """Whether a superstep follows the checkpoint, or was begun."""
    return bool(due_channels(saved.checkpoint["channel_values"]))


MARK: Final = {"langgraph_patch": "repair"}
"""The metadata of a checkpoint, or of a run of a server, that wrote a repair."""


def is_marked(saved: CheckpointTuple) -> bool:
    """Whether a repair wrote the checkpoint. Later turns, forks and copies have no mark."""
    metadata = saved.metadata or {}
    return metadata.get("source") == "update" and all(
        metadata.get(key) == value for key, value in MARK.items()
    )


def age_of(saved: CheckpointTuple) -> float:
    """The seconds since the checkpoint was written; 0 if it has no readable time."""
    try:
        written = datetime.fromisoformat(str(saved.checkpoint["ts"]))
    except (KeyError, ValueError):
        return 0.0
    if written.tzinfo is None:
        written = written.replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - written).total_seconds())


# --- why it cannot be read ---------------------------------------------------------------


def reason_of(error: BaseException) -> str:
    """Why a thread cannot be read.

    Args:
        error: What was raised when its checkpoint was read.

    Examples:
        >>> from langgraph_patch.threads.stored import reason_of
        >>> reason_of(ValueError("unpack(b) received extra data"))
        'a value of it cannot be loaded (ValueError: unpack(b) received extra data)'
    """
    if isinstance(error, ThreadError):
        return str(error)
    # LangGraph's serializer raises it with the type of the row, such as pickle or msgpack+aes.
    if isinstance(error, NotImplementedError) and "serialization type" in str(error):
        return (
            f"a row of it is of a type that is not loaded, because it is encrypted or may run any "
            f"code ({brief(error)}): if you trust it, scan with the checkpointer of the "
            f"application, or name its serializer with --serde module:attribute"
        )
    return f"a value of it cannot be loaded ({brief(error)})"


# --- comparing messages ------------------------------------------------------------------


def is_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages have the same id and equal contents.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.threads.stored import is_same
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, is_same(one, other)
        (False, True)
    """
    if one is other or one.id != other.id:
        return one is other
    # `==` of an application's value may raise anything.
    return _SERDE.dumps_typed(one) == _SERDE.dumps_typed(other)


def are_same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have the same messages in the same order."""
    return len(some) == len(others) and all(map(is_same, some, others))
