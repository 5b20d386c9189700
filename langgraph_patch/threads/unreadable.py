"""Say in words why one thread cannot be read. A scan reports it and goes on."""

from __future__ import annotations

from typing import Any

from langgraph_patch.errors import ThreadError, brief
from langgraph_patch.threads.keys import Key


def reason_of(error: BaseException) -> str:
    """Why a thread cannot be read.

    Args:
        error: What was raised when its checkpoint was read.

    Examples:
        >>> from langgraph_patch.threads.unreadable import reason_of
        >>> reason_of(ValueError("unpack(b) received extra data"))
        'a value of it cannot be loaded (ValueError: unpack(b) received extra data)'
    """
    if isinstance(error, ThreadError):
        return str(error)
    if isinstance(error, UnicodeEncodeError):
        return "its id is not text in UTF-8, so no checkpointer can read it"
    if isinstance(error, UnicodeDecodeError) or "decode to UTF-8" in str(error):
        return f"a text of it is not UTF-8, so it cannot be decoded ({brief(error)})"
    # LangGraph's serializer raises it with the type of the row: pickle, or such as msgpack+aes.
    if isinstance(error, NotImplementedError) and "pickle" in str(error):
        return "a row of it is a pickle, which is never loaded: it could run any code"
    if isinstance(error, NotImplementedError) and "+" in str(error):
        return (
            "its rows are encrypted: scan with the checkpointer of the application, or name its "
            "serializer with --serde module:attribute"
        )
    return f"a value of it cannot be loaded ({brief(error)})"


def as_text(key: Key) -> Key:
    """The key of a report: a row that LangGraph did not write may hold bytes or a number.

    Examples:
        >>> from langgraph_patch.threads.keys import Key
        >>> from langgraph_patch.threads.unreadable import as_text
        >>> as_text(Key(7, ""))
        Key(thread_id='7', namespace='')
    """
    return Key(_text(key.thread_id), _text(key.namespace))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
