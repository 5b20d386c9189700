"""Compare messages, whatever an application has put into them.

`==` raises an error for arrays and data frames in an artifact, and it is false for NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

_SERDE = JsonPlusSerializer(pickle_fallback=True)  # only used to write


def is_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages have the same id and equal contents.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.threads.message_equality import is_same
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, is_same(one, other)
        (False, True)
    """
    if one is other or one.id != other.id:
        return one is other
    with suppress(Exception):  # `==` of an application's value may raise anything
        if one == other:
            return True
    return _SERDE.dumps_typed(one) == _SERDE.dumps_typed(other)


def are_same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have the same messages in the same order."""
    return len(some) == len(others) and all(map(is_same, some, others))


def are_identical(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories consist of the same objects in the same order."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def count_missing(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> int:
    """How many messages of `before` do not occur in `after`, in the same order."""
    missing, start = 0, 0
    for message in before:
        rest = range(start, len(after))
        index = next((index for index in rest if is_same(message, after[index])), None)
        if index is None:
            missing += 1
        else:
            start = index + 1
    return missing


def without_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Copies of the messages without their ids."""
    return [message.model_copy(update={"id": None}) for message in messages]
