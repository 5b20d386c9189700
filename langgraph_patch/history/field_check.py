"""Correct the fields of messages that bypassed LangChain's validation.

LangChain validates a message when it is constructed. `model_construct`, `model_copy(update=...)`,
plain assignment and old checkpoints bypass that. A message that would not pass is corrected where
its intention is certain:

- A field that is None or missing gets its empty value: `""`, `[]`, `{}`. So do optional fields
  (`id`, `name`, metadata) that hold anything else. None among the items of a list is left out.
- A `ToolMessage` gets the content and the call id that LangChain's constructor makes of them.
  If there is no call id, `pairing` finds the call, if only one is possible.

A message of which the intention is not certain is unusable: it stays in the state, and no model
reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from types import NoneType
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

_TYPES: Mapping[str, tuple[type, ...]] = {
    "content": (str, list),
    "additional_kwargs": (dict,),
    "response_metadata": (dict,),
    "id": (Hashable,),  # some applications use a UUID; a tuple may still be unhashable
    "name": (str, NoneType),
    "role": (str,),
    "tool_call_id": (str,),
    "tool_calls": (list,),
    "invalid_tool_calls": (list,),
    "tool_call_chunks": (list,),
}
"""The fields that this package reads -> the types that LangChain accepts."""

_EMPTY: Mapping[str, type | None] = {
    "content": str,
    "tool_call_id": str,
    "additional_kwargs": dict,
    "response_metadata": dict,
    "tool_calls": list,
    "invalid_tool_calls": list,
    "tool_call_chunks": list,
    "id": None,
    "name": None,
}
"""The fields that may be empty -> the type of their empty value."""

_OPTIONAL = frozenset(
    ("additional_kwargs", "response_metadata", "tool_call_chunks", "id", "name", "tool_call_id")
)
"""The fields that become empty whatever else they hold: a message means the same without them."""

_NOTHING = object()


def corrected(message: BaseMessage) -> BaseMessage | None:
    """A message whose fields have the types that LangChain accepts.

    Args:
        message: The message; it is not changed.

    Returns:
        The same object if its fields are valid; a corrected copy if the intention is certain;
        None if it is not.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> from langgraph_patch.history.field_check import corrected
        >>> corrected(HumanMessage.model_construct(content=None)).content
        ''
        >>> corrected(HumanMessage.model_construct(content=object())) is None
        True
    """
    update = {}
    for name, types in _fields_of(type(message)):
        value = message.__dict__.get(name, _NOTHING)
        if _is_valid(name, value, types):
            continue
        update[name] = _corrected_value(message, name, value)
        if update[name] is _NOTHING:
            return None
    return message.model_copy(update=update) if update else message


def usable(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """The messages with corrected fields, without those that are unusable."""
    checked = (corrected(message) for message in messages)
    return [message for message in checked if message is not None]


def names_call(message: BaseMessage) -> bool:
    """Whether the stored `tool_call_id` of a `ToolMessage` says which call it answers."""
    return _call_id(message.__dict__.get("tool_call_id")) is not None


def id_of(message: BaseMessage) -> Hashable | None:
    """The id of a message; None if it has none, or one that cannot be compared."""
    found = message.__dict__.get("id")
    return found if _is_hashable(found) else None


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except Exception:  # noqa: BLE001 - the value may be anything
        return False
    return True


@cache
def _fields_of(kind: type[BaseMessage]) -> list[tuple[str, tuple[type, ...]]]:
    return [(name, types) for name, types in _TYPES.items() if name in kind.model_fields]


def _is_valid(name: str, value: object, types: tuple[type, ...]) -> bool:
    if value is _NOTHING:
        return False
    if name == "id":
        return value is None or isinstance(value, str) or _is_hashable(value)
    if value and isinstance(value, list):
        return all(isinstance(item, _item_types(name)) for item in value)
    return isinstance(value, types)


def _corrected_value(message: BaseMessage, name: str, value: Any) -> Any:
    """The value that the field was meant to have; `_NOTHING` if that is not certain."""
    if isinstance(message, ToolMessage):
        if name == "tool_call_id" and (call_id := _call_id(value)) is not None:
            return call_id
        if name == "content" and value is not None and value is not _NOTHING:
            return _tool_content(value)
    if value is None or value is _NOTHING or name in _OPTIONAL:
        return _empty(name)
    if isinstance(value, list | tuple) and list in _TYPES[name]:
        items = [item for item in value if item is not None]
        if all(isinstance(item, _item_types(name)) for item in items):
            return items
    return _NOTHING


def _empty(name: str) -> Any:
    if name not in _EMPTY:
        return _NOTHING
    kind = _EMPTY[name]
    return None if kind is None else kind()


def _item_types(name: str) -> tuple[type, ...]:
    return (str, dict) if name == "content" else (dict,)


def _call_id(value: Any) -> str | None:
    """The call id that LangChain's constructor makes of a value; None if it accepts no such one."""
    if isinstance(value, str):
        return value
    try:
        return ToolMessage("", tool_call_id=value).tool_call_id
    except Exception:  # noqa: BLE001 - the value may be anything
        return None


def _tool_content(value: Any) -> Any:
    """The content that LangChain's constructor makes of a value."""
    if isinstance(value, list | tuple):
        value = [item for item in value if item is not None]
    try:
        return ToolMessage(content=value, tool_call_id="").content
    except Exception:  # noqa: BLE001 - the value may be anything
        return _NOTHING
