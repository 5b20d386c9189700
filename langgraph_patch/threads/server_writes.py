"""The writes of a repair over LangGraph Server's API, and what becomes of them there.

The server reads messages from JSON as LangChain does: an AI message that has to move keeps its
`usage_metadata` and its `invalid_tool_calls` in `additional_kwargs` only. So as little as possible
is sent, and the outcome is predicted before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    BaseMessage,
    BaseMessageChunk,
    RemoveMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.graph.message import add_messages

from langgraph_patch.errors import ThreadError
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.patch import patch_reading
from langgraph_patch.threads.message_equality import is_same


def writes_between(
    old: Sequence[BaseMessage], new: Sequence[BaseMessage]
) -> list[list[BaseMessage]]:
    """The writes that turn one history into another, for a state with `add_messages`.

    Messages up to the first new one stay where they are. Those that the repair edits are written
    with their old id, which replaces them in place.
    """
    start = 0
    while start < min(len(old), len(new)) and old[start].id == new[start].id:
        start += 1
    removals: list[BaseMessage] = [RemoveMessage(id=str(message.id)) for message in old[start:]]
    pairs = zip(old[:start], new[:start], strict=True)
    edited = [after for before, after in pairs if not is_same(before, after)]
    return [write for write in (removals, [*edited, *new[start:]]) if write]


def as_json(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Messages as LangChain reads them from JSON, without fields that have no value."""
    found = []
    for message in messages:
        plain = (
            message_chunk_to_message(message) if isinstance(message, BaseMessageChunk) else message
        )
        dumped = plain.model_dump(mode="json")
        kept = {key: value for key, value in dumped.items() if value not in (None, [], {}, "")}
        found.append({**kept, "type": plain.type, "content": dumped["content"]})
    return found


def predict(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The history that the server will have after these writes.

    Raises:
        ThreadError: If it would not be the repaired one.
    """
    if any(message.id is None for message in old):
        raise ThreadError("a message of it has no id")
    value: Any = list(old)
    try:
        for write in writes_between(old, new):
            written: Any = convert_to_messages(as_json(write))
            value = add_messages(value, written)
    except Exception as error:  # LangChain's constructors do not expect every value
        raise ThreadError(f"a message cannot be sent as JSON: {error}") from error
    predicted: list[BaseMessage] = value
    if not _has_order_of(predicted, new) or _is_damaged(predicted):
        raise ThreadError(
            "what makes a call of it invalid cannot be sent as JSON: repair it with the graph and "
            "its checkpointer",
        )
    return predicted


def _has_order_of(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    return [m.id for m in some if m.id] == [m.id for m in others if m.id] and len(some) == len(
        others
    )


def is_as_predicted(written: Sequence[BaseMessage], predicted: Sequence[BaseMessage]) -> bool:
    """Whether the server keeps the repair: what it made of each field is its own affair."""
    return (
        len(written) == len(predicted)
        and [(m.id, m.type, m.content) for m in written]
        == [(m.id, m.type, m.content) for m in predicted]
        and not _is_damaged(list(written))
    )


def _is_damaged(messages: list[BaseMessage]) -> bool:
    """Whether a history has defects."""
    return bool(patch_reading(read_history(messages)))
