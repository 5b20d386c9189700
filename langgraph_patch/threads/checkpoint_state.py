"""What a raw checkpoint says, read without the graph that wrote it.

`get_state()` would fold in what finished tasks wrote, and so hide that it is lost with the
next message. Here the state is read as the next message will find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from langgraph_patch._langgraph import ERROR_SOURCE, NO_TASK
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.history.patcher import as_messages

_CONTROL = frozenset((INTERRUPT, RESUME, ERROR, ERROR_SOURCE))

_NEWEST_FORMAT = 4
"""The newest layout of a checkpoint that this module knows (`checkpoint["v"]`)."""


def history_of(
    saver: Any, saved: CheckpointTuple, key: str
) -> IOGenerator[list[BaseMessage] | None]:
    """The messages of a checkpoint, as the next run will find them; None if it has no such key.

    Raises:
        ThreadError: If the checkpoint is of a later format than this module knows, or holds
            something else than messages.
        MessagesError: If the value is no list of messages.
    """
    checkpoint = saved.checkpoint
    if checkpoint.get("v", 1) > _NEWEST_FORMAT:
        raise ThreadError(
            f"its format {checkpoint['v']!r} is newer than this langgraph-patch knows: upgrade it"
        )
    values = checkpoint["channel_values"]
    if key in values:
        return _checked(_whole(values[key]))
    if key not in checkpoint["channel_versions"]:
        return None
    histories = yield from call_method(
        saver, "get_delta_channel_history", config=saved.config, channels=[key]
    )
    history = histories[key]
    writes = [value for _, _, value in history.get("writes", ())]
    return as_messages(_replayed(_checked(_whole(history.get("seed", []))), writes))


def _checked(value: Any) -> list[BaseMessage]:
    """The messages of a stored value; a class that is not loaded leaves its bare arguments."""
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, BaseMessage | dict):
            raise ThreadError(
                f"its history holds a {type(item).__name__} where a message was expected: a class "
                f"that is not loaded, or another kind of state"
            )
    return as_messages(value)


def _whole(value: Any) -> Any:
    """A value as it is, or taken out of the snapshot that a `DeltaChannel` stores now and then."""
    # The snapshot is a named tuple, so a sequence too.
    return value if isinstance(value, list) else getattr(value, "value", value)


def _replayed(messages: Iterable[BaseMessage], writes: Iterable[Any]) -> list[Any]:
    """Fold writes as the reducers of `DeltaChannel` state do: by id, later ones at the end."""
    state: dict[object, Any] = {_key(m): m for m in messages}
    for write in writes:
        if isinstance(write, Overwrite):
            state = {_key(m): m for m in as_messages(write.value or [])}
            continue
        for message in as_messages(list(write) if isinstance(write, Sequence) else [write]):
            if message.id == REMOVE_ALL_MESSAGES:
                state = {}
            elif isinstance(message, RemoveMessage):
                state.pop(message.id, None)
            else:
                state[_key(message)] = message
    return list(state.values())


def _key(message: BaseMessage) -> object:
    return message.id if message.id is not None else id(message)


def pauses_of(saved: CheckpointTuple) -> Mapping[str, frozenset[str]]:
    """The tasks that wait for a human, and the ids of the interrupts that they wait on."""
    waits: dict[str, frozenset[str]] = {}
    finished: set[str] = set()
    for task, channel, value in saved.pending_writes or ():
        if task == NO_TASK:
            continue
        if channel == INTERRUPT:
            asked = value if isinstance(value, Sequence) else [value]
            waits[task] = frozenset(str(getattr(question, "id", question)) for question in asked)
        elif channel not in _CONTROL:
            finished.add(task)
    return {task: ids for task, ids in waits.items() if task not in finished}


def age_of(saved: CheckpointTuple) -> float:
    """The seconds since the checkpoint was written; 0 if it does not say when."""
    try:
        written = datetime.fromisoformat(str(saved.checkpoint["ts"]))
    except (KeyError, ValueError):
        return 0.0
    if written.tzinfo is None:
        written = written.replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - written).total_seconds())


def id_of(saved: CheckpointTuple) -> str:
    """The id of the checkpoint."""
    return str(saved.checkpoint["id"])


def is_ephemeral(namespace: str) -> bool:
    """Whether a namespace belongs to one task: no later run will ever read it."""
    return ":" in namespace
