"""Whether a message holds what its class says, so that everything else may rely on it.

LangChain checks a message as it is made. `model_construct`, `model_copy(update=...)` and plain
assignment go past that, and a message that would not have passed is refused, not guessed at.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from types import NoneType

from langchain_core.messages import BaseMessage

from langgraph_patch.errors import MessagesError

_TYPES: Mapping[str, tuple[type, ...]] = {
    "content": (str, list),
    "additional_kwargs": (dict,),
    "response_metadata": (dict,),
    "id": (Hashable,),  # some applications write a UUID there
    "name": (str, NoneType),
    "role": (str,),
    "tool_call_id": (str,),
    "tool_calls": (list,),
    "invalid_tool_calls": (list,),
    "tool_call_chunks": (list,),
}
"""The fields that are read -> what LangChain lets stand there."""


def check_fields(message: BaseMessage) -> None:
    """Refuse a message that was made without LangChain's own checks, and would not pass them.

    Raises:
        MessagesError: If a field is missing, or of a wrong type.
    """
    for name, types in _fields_of(type(message)):
        value = message.__dict__.get(name, message)
        if not isinstance(value, types):
            raise _field_error(message, name)
        if value and isinstance(value, list):
            inner = (str, dict) if name == "content" else dict
            if not all(isinstance(item, inner) for item in value):
                raise _field_error(message, name)


@cache
def _fields_of(kind: type[BaseMessage]) -> list[tuple[str, tuple[type, ...]]]:
    return [(name, types) for name, types in _TYPES.items() if name in kind.model_fields]


def _field_error(message: BaseMessage, name: str) -> MessagesError:
    found = message.__dict__.get(name, "nothing")
    return MessagesError(
        f"{type(message).__name__}.{name} is {found!r:.200}: expected what LangChain's constructor "
        f"accepts there. The message was made or changed without its checks."
    )
