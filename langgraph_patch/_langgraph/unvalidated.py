"""Stored messages that are loaded without validation, for a first look at many histories.

To build a message, LangChain validates each of its fields, which takes most of the time in which a
checkpoint is loaded. A message that was stored was validated before. Here it gets its stored
fields as they are, a sixth of the work. Such a message is for reading its `__dict__` alone.

If a private detail changes, `without_validation` finds nothing, and all messages are validated.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_patch._langgraph.details import check

_FIELDS: Final[dict[tuple[str, str], tuple[Any, frozenset[str]]]] = {
    (kind.__module__, kind.__name__): (kind, frozenset(kind.model_fields))
    for kind in (HumanMessage, AIMessage, ToolMessage, SystemMessage)
}
"""The classes of messages, as the serializer names them, and what each of them stores."""

_MODEL: Final = getattr(jsonplus, "EXT_PYDANTIC_V2", None)
"""How the serializer tags a stored model of Pydantic, such as a message."""


def without_validation(saver: Any) -> Any:
    """A checkpointer over the same database that loads messages without validating them.

    Everything else it loads as `saver` does, and it fails where `saver` fails.

    Args:
        saver: The checkpointer, of a class of LangGraph: it is copied.

    Returns:
        The checkpointer; None if `saver` has not the serializer of LangGraph, as it is.
    """
    serde = getattr(saver, "serde", None)
    check("serializer", serde)
    build = getattr(serde, "_unpack_ext_hook", None)
    is_own = getattr(serde, "_custom_unpack_ext_hook", None) is False
    if type(serde) is not JsonPlusSerializer or not is_own or build is None or _MODEL is None:
        return None
    quick: Any = copy(serde)

    def hook(code: int, data: bytes) -> Any:
        message = _unvalidated(quick, data) if code == _MODEL else None
        return build(code, data) if message is None else message

    quick._unpack_ext_hook = hook  # noqa: SLF001 - the private detail
    found = copy(saver)
    found.serde = quick
    return found


def _unvalidated(serde: Any, data: bytes) -> Any:
    """A stored message with its fields and no others; None for anything else.

    From other fields, such as `content_blocks`, LangChain may make more.
    """
    try:
        module, name, fields, _ = serde.loads_typed(("msgpack", data))
        kind, names = _FIELDS[module, name]
        if fields.keys() != names:
            return None
        message = object.__new__(kind)
        object.__setattr__(message, "__dict__", fields)
    except Exception:  # noqa: BLE001 - any: the serializer itself then says what is wrong
        return None
    return message
