"""Read a value of any form as messages: `as_messages` raises if it cannot be read, the other not.

Neither skips what is no message: a repair writes the whole history, and would lose it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

from langgraph_patch._text import short
from langgraph_patch.errors import MessagesError

_EXPECTED = "a list of LangChain messages, or of dicts and tuples that LangGraph accepts"


def as_messages(value: object) -> list[BaseMessage]:
    """`value` as a list of messages; the same object if it is one already.

    Raises:
        MessagesError: If it is not a list of messages.
    """
    if isinstance(value, list) and all(
        issubclass(kind, BaseMessage) for kind in set(map(type, value))
    ):
        return value
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise MessagesError(f"{short(value)} is no list of messages: {_remedy(value)}.")
    return [_as_message(value, index) for index in range(len(value))]


def _remedy(value: object) -> str:
    """What to do about a value that is no list; a state holds one."""
    if isinstance(value, Mapping) and "messages" in value:
        return "pass state['messages']"
    return "pass its .messages" if hasattr(value, "messages") else f"expected {_EXPECTED}"


def _as_message(values: Sequence[Any], index: int) -> BaseMessage:
    try:
        return convert_to_messages([values[index]])[0]
    except Exception as error:  # the converter may raise anything
        raise MessagesError(
            f"{short(values[index])}, the item with index {index} of {len(values)}, is no message: "
            f"expected {_EXPECTED}."
        ) from error


def messages_or_none(value: object) -> list[BaseMessage] | None:
    """`value` as a list of messages; None if it is none, or if an item of it is no message.

    Examples:
        >>> from langgraph_patch.history.messages import messages_or_none
        >>> messages_or_none([("human", "hi")])
        [HumanMessage(content='hi', additional_kwargs={}, response_metadata={})]
        >>> messages_or_none([("human", "hi"), 7]) is None
        True
    """
    try:
        return as_messages(value)
    except MessagesError:
        return None
