"""Check the stream that a caller passes, and name the function that takes it if it is wrong."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_patch.errors import StreamError


def sync_iterator(stream: object, *, expected: str, twin: str) -> Iterator[Any]:
    """An iterator over a sync stream.

    Args:
        stream: What the caller passed.
        expected: What the function expects, for the error message.
        twin: What to do with an async stream, for the error message.

    Raises:
        StreamError: If `stream` is anything else.
    """
    if hasattr(stream, "__aiter__") and not hasattr(stream, "__iter__"):
        raise StreamError(f"Expected {expected}, got the async stream {stream!r:.200}. {twin}")
    _check_not_awaitable(stream, expected)
    if not hasattr(stream, "__iter__") or _is_single_value(stream):
        raise StreamError(f"Expected {expected}, got {stream!r:.200}.")
    return iter(stream)


def async_iterator(stream: object, *, expected: str, twin: str) -> AsyncIterator[Any]:
    """An iterator over an async stream.

    Args:
        stream: What the caller passed.
        expected: What the function expects, for the error message.
        twin: What to do with a sync stream, for the error message.

    Raises:
        StreamError: If `stream` is anything else.
    """
    _check_not_awaitable(stream, expected)
    if hasattr(stream, "__aiter__"):
        return aiter(stream)
    if hasattr(stream, "__iter__") and not _is_single_value(stream):
        raise StreamError(f"Expected {expected}, got the sync stream {stream!r:.200}. {twin}")
    raise StreamError(f"Expected {expected}, got {stream!r:.200}.")


def _check_not_awaitable(stream: object, expected: str) -> None:
    if inspect.isawaitable(stream):
        shown = f"{stream!r:.200}"
        if isinstance(stream, Coroutine):
            stream.close()  # otherwise Python warns that it was never awaited
        raise StreamError(f"Expected {expected}, got {shown}. Await it first.")


def _is_single_value(stream: object) -> bool:
    return isinstance(stream, str | bytes | Mapping | BaseMessage)
