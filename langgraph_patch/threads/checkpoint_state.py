"""Read the state, the pauses and the age of a checkpoint without the graph that wrote it.

`get_state()` applies the pending writes of finished tasks. The next message discards them, so
`get_state()` would hide that they are lost. This module reads the state as the next run finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from langgraph_patch._langgraph_storage import (
    ERROR_SOURCE,
    NEWEST_FORMAT,
    NO_TASK,
    triggered_node,
    whole_value,
)
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.history.patch import as_messages

_NO_RESULT = frozenset((INTERRUPT, RESUME, ERROR, ERROR_SOURCE))
"""A write to one of these channels does not show that a task finished."""


# --- the history -------------------------------------------------------------------------


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
    return as_messages(_apply_writes(_checked_messages(delta.get("seed", [])), writes))


def _checked_messages(value: Any) -> list[BaseMessage]:
    """The messages of a stored value; a class that is not loaded leaves only its arguments."""
    value = whole_value(value)
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, BaseMessage | dict):
            raise ThreadError(
                f"its history holds a {type(item).__name__} where a message was expected: a class "
                f"that is not loaded, or another kind of state"
            )
    return as_messages(value)


def _apply_writes(messages: Iterable[BaseMessage], writes: Iterable[Any]) -> list[Any]:
    """Apply writes as the reducers of `DeltaChannel` state do: by id, new messages at the end."""
    state: dict[object, Any] = {_message_identity(m): m for m in messages}
    for write in writes:
        if isinstance(write, Overwrite):
            state = {_message_identity(m): m for m in as_messages(write.value or [])}
            continue
        for message in as_messages(list(write) if isinstance(write, Sequence) else [write]):
            if message.id == REMOVE_ALL_MESSAGES:
                state = {}
            elif isinstance(message, RemoveMessage):
                state.pop(message.id, None)
            else:
                state[_message_identity(message)] = message
    return list(state.values())


def _message_identity(message: BaseMessage) -> object:
    return message.id if message.id is not None else id(message)


# --- pauses and age ----------------------------------------------------------------------


def waiting_tasks(saved: CheckpointTuple) -> Mapping[str, frozenset[str]]:
    """The tasks that wait for a human, each with the ids of its interrupts."""
    waiting: dict[str, frozenset[str]] = {}
    finished: set[str] = set()
    for task, channel, value in saved.pending_writes or ():
        if task == NO_TASK:
            continue
        if channel == INTERRUPT:
            interrupts = value if isinstance(value, Sequence) else [value]
            waiting[task] = frozenset(str(getattr(each, "id", each)) for each in interrupts)
        elif channel not in _NO_RESULT:
            finished.add(task)
    return {task: ids for task, ids in waiting.items() if task not in finished}


def starts_tasks(saved: CheckpointTuple) -> bool:
    """Whether a superstep follows the checkpoint, or was begun."""
    channels = saved.checkpoint["channel_values"]
    return bool(channels.get(TASKS)) or any(triggered_node(channel) for channel in channels)


def asked(saved: CheckpointTuple) -> tuple[Any, ...]:
    """What the tasks that wait for a human ask: the value of each of their interrupts."""
    waiting = waiting_tasks(saved)
    asks = []
    for task, channel, value in saved.pending_writes or ():
        if channel == INTERRUPT and task in waiting:
            interrupts = value if isinstance(value, Sequence) else [value]
            asks += [getattr(each, "value", each) for each in interrupts]
    return tuple(asks)


def age_of(saved: CheckpointTuple) -> float:
    """The seconds since the checkpoint was written; 0 if it has no readable time."""
    try:
        written = datetime.fromisoformat(str(saved.checkpoint["ts"]))
    except (KeyError, ValueError):
        return 0.0
    if written.tzinfo is None:
        written = written.replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - written).total_seconds())
