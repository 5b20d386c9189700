"""Correct the fields of messages that bypassed LangChain's validation.

LangChain validates a message when it is constructed. `model_construct`, `model_copy(update=...)`,
plain assignment and old checkpoints bypass that. The fields that decide about calls and results
get a valid value:

- A content that is neither a text nor a list becomes its text; None becomes `""`.
- A list of calls that is None becomes empty.
- A `tool_call_id` becomes the text that LangChain's constructor makes of it, or `""`.

No integration, reducer or serializer of a checkpoint damages any other field, or what is in a
list: such a message is an error, as in the graph without this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage


def corrected(message: BaseMessage) -> BaseMessage:
    """A message whose calls and results can be read.

    Args:
        message: The message; it is not changed.

    Returns:
        The same object if its fields are valid, else a corrected copy.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> from langgraph_patch.history.damaged_fields import corrected
        >>> corrected(HumanMessage.model_construct(content=7)).content
        '7'
    """
    fields, update = message.__dict__, {}
    for name, valid in _fields_of(type(message)):
        value = fields.get(name)
        found = valid(value)
        if found is not value:
            update[name] = found
    return message.model_copy(update=update) if update else message


def _content(value: Any) -> Any:
    if isinstance(value, str | list):
        return value
    return "" if value is None else str(value)


def _call_id(value: Any) -> str:
    return str(value) if isinstance(value, str | UUID | int | float) else ""


def _calls(value: Any) -> Any:
    return [] if value is None else value


_VALID: Mapping[str, Callable[[Any], Any]] = {
    "content": _content,
    "tool_call_id": _call_id,
    "tool_calls": _calls,
    "invalid_tool_calls": _calls,
}
"""The fields that are corrected -> a function that returns a valid value as it is."""


@cache
def _fields_of(kind: type[BaseMessage]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, valid) for name, valid in _VALID.items() if name in kind.model_fields]
