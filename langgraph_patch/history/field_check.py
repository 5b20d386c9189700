"""Check the types of message fields, so that the other modules can rely on them.

LangChain validates a message when it is constructed. `model_construct`,
`model_copy(update=...)` and plain assignment bypass that. A message that would not pass
validation raises an error: its intention is not guessed.
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
    "id": (Hashable,),  # some applications use a UUID
    "name": (str, NoneType),
    "role": (str,),
    "tool_call_id": (str,),
    "tool_calls": (list,),
    "invalid_tool_calls": (list,),
    "tool_call_chunks": (list,),
}
"""The fields that this package reads -> the types that LangChain accepts."""


def check_fields(message: BaseMessage) -> None:
    """Check the fields of a message that may have bypassed LangChain's validation.

    Raises:
        MessagesError: If a field is missing or has a wrong type.
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
