"""Correct the fields of messages that bypassed LangChain's validation.

LangChain validates a message when it is constructed. `model_construct`, `model_copy(update=...)`,
plain assignment and old checkpoints bypass that. Each field that would not pass gets a valid value:

- A content that is neither a text nor a list becomes its text; so does each item of a list that
  is neither a text nor a dict. None is left out.
- Items of lists of calls that are no dicts are left out; an id or a name that is no text becomes
  its text.
- A `tool_call_id` becomes the text that LangChain's constructor makes of it, or `""`.
- Every other field gets its empty value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.messages import BaseMessage

from langgraph_patch.history.calls import dicts


def corrected(message: BaseMessage) -> BaseMessage:
    """A message whose fields have the types that LangChain accepts.

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
        if found is not value or name not in fields:
            update[name] = found
    return message.model_copy(update=update) if update else message


def id_of(message: BaseMessage) -> Hashable | None:
    """The id of a message; None if it has none, or one that cannot be compared."""
    return _hashable(message.__dict__.get("id"))


def _hashable(value: Any) -> Hashable | None:
    """Some applications use a UUID; a tuple may still be unhashable."""
    try:
        hash(value)
    except Exception:  # noqa: BLE001 - the value may be anything
        return None
    found: Hashable = value
    return found


def _content(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        return _text(value)
    items = [item for item in value if item is not None]
    valid = [item if isinstance(item, str | dict) else _text(item) for item in items]
    return _unless_equal(valid, value)


def _text(value: Any) -> str:
    try:
        return "" if value is None else str(value)
    except Exception:  # noqa: BLE001 - the value may be anything
        return f"<{type(value).__name__}>"


def _call_id(value: Any) -> str:
    return str(value) if isinstance(value, str | UUID | int | float) else ""


def _calls(value: Any) -> Any:
    return _unless_equal([_call(item) for item in dicts(value)], value)


def _call(item: Mapping[str, Any]) -> Mapping[str, Any]:
    names = (key for key in ("id", "name") if not isinstance(item.get(key), str | None))
    update = {key: _text(item[key]) for key in names}
    return {**item, **update} if update else item


def _unless_equal(valid: list[Any], value: Any) -> Any:
    """The stored list, if it has valid items only."""
    is_valid = isinstance(value, list) and list(map(id, valid)) == list(map(id, value))
    return value if is_valid else valid


def _mapping(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


_VALID: Mapping[str, Callable[[Any], Any]] = {
    "content": _content,
    "additional_kwargs": _mapping,
    "response_metadata": _mapping,
    "id": _hashable,
    "name": lambda value: value if isinstance(value, str) else None,
    "role": lambda value: value if isinstance(value, str) else "user",
    "tool_call_id": _call_id,
    "tool_calls": _calls,
    "invalid_tool_calls": _calls,
    "tool_call_chunks": lambda value: _unless_equal(dicts(value), value),
}
"""The fields that this package reads -> a function that returns a valid value as it is."""


@cache
def _fields_of(kind: type[BaseMessage]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, valid) for name, valid in _VALID.items() if name in kind.model_fields]
