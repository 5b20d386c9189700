"""Whether messages are the same, whatever an application has put into them.

`==` raises for arrays and frames in an artifact, and is false for NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

_SERDE = JsonPlusSerializer(pickle_fallback=True)  # only ever to write


def is_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages have one id and hold the same.

    Example:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.graph.message_equality import is_same
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, is_same(one, other)
        (False, True)
    """
    if one is other or one.id != other.id:
        return one is other
    with suppress(Exception):  # whose it is, and so what it raises, nobody knows
        if one == other:
            return True
    return _SERDE.dumps_typed(one) == _SERDE.dumps_typed(other)


def are_same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories are the same."""
    return len(some) == len(others) and all(map(is_same, some, others))


def missing(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> int:
    """How many messages are no longer there, in this order."""
    lost, start = 0, 0
    for message in before:
        rest = range(start, len(after))
        place = next((place for place in rest if is_same(message, after[place])), None)
        if place is None:
            lost += 1
        else:
            start = place + 1
    return lost


def unnamed(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages without their ids."""
    return [message.model_copy(update={"id": None}) for message in messages]
