"""Merge the tool call chunks of a stream into one entry for each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages.tool import ToolCallChunk

from langgraph_patch.errors import StreamError
from langgraph_patch.history.streamed_calls import group_call_chunks
from langgraph_patch.streaming.sources import sync_iterator


def merge_tool_call_chunks(chunks: Iterable[ToolCallChunk]) -> list[ToolCallChunk]:
    """Merge the tool call chunks of a stream into one entry for each call.

    Chunks with the same index belong to one call, until a chunk comes with another id: it
    begins a call. A chunk without an index begins a call if it has a name or an id that the
    newest call does not have; otherwise it continues the newest call. The id, the type and the
    name of a call each arrive whole, in any of its chunks, and may be repeated. The arguments
    are concatenated in the order of arrival, and not parsed.

    Args:
        chunks: The chunks in the order of arrival: the entries of
            `AIMessageChunk.tool_call_chunks`. They are not changed.

    Returns:
        The calls: first those without an index in the order of arrival, then the others by
        index; calls of one index in the order of arrival. Any other key of a call has the value
        of the call's first chunk. A call that came without an id has none.

    Raises:
        StreamError: If two chunks of a call have different types or names, or if `chunks`
            is anything but tool call chunks.

    Examples:
        A server that sends index 0 for every call:

        >>> from langgraph_patch.streaming import merge_tool_call_chunks
        >>> chunks = [
        ...     {"name": "weather", "args": "", "id": "c1", "index": 0},
        ...     {"name": None, "args": '{"city": "Rome"}', "id": None, "index": 0},
        ...     {"name": "now", "args": "{}", "id": "c2", "index": 0},
        ... ]
        >>> for call in merge_tool_call_chunks(chunks):
        ...     print(call["id"], call["name"], call["args"])
        c1 weather {"city": "Rome"}
        c2 now {}
    """
    arrived = list(
        sync_iterator(
            chunks,
            expected="an iterable of tool call chunks",
            twin="Collect it first: merge_tool_call_chunks([chunk async for chunk in stream]).",
        )
    )
    for chunk in arrived:
        _check(chunk)
    return sorted(map(_merge_one_call, group_call_chunks(arrived)), key=_position)


def _check(chunk: object) -> None:
    """Raise a `StreamError` for anything but a tool call chunk."""
    if isinstance(chunk, Mapping):
        strings = (chunk.get(key) for key in ("name", "args", "id", "type"))
        index_is_valid = isinstance(chunk.get("index"), int | str | None)
        if index_is_valid and all(isinstance(string, str | None) for string in strings):
            return
    raise StreamError(
        f"{chunk!r:.200} is not a tool call chunk. Expected a dict with strings or None as name, "
        "args, id and type, and an integer or None as index."
    )


def _position(call: ToolCallChunk) -> tuple[int, int, str]:
    """Calls without an index, then by index; LangChain's indexes of v1 blocks are strings."""
    index: Any = call.get("index")
    if index is None:
        return 0, 0, ""
    return (1, index, "") if isinstance(index, int) else (2, 0, index)


def _merge_one_call(chunks: Sequence[ToolCallChunk]) -> ToolCallChunk:
    if len(chunks) == 1:
        return chunks[0].copy()
    merged: dict[str, Any] = {**chunks[0]}
    for key in ("id", "type", "name"):
        values = [value for chunk in chunks if (value := chunk.get(key))]
        if other := next((value for value in values if value != values[0]), None):
            raise StreamError(
                f"The chunks of the tool call with index {merged.get('index')!r} have different "
                f"{key}s: {values[0]!r} and {other!r}. Expected one {key} for each call."
            )
        if values:
            merged[key] = values[0]
    merged["args"] = "".join(chunk.get("args") or "" for chunk in chunks)
    return cast("ToolCallChunk", merged)
