"""The last chunk that a stream with truncated calls needs, so that nobody completes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from langgraph_patch.history.truncated_calls import StreamedCalls, breaking_suffix, completed_args


class StreamEnd:
    """Passes on the chunks of a stream, and then the chunk that its truncated calls need.

    A chunk that is marked as the last one is held back, so that this chunk comes before it.
    """

    def __init__(self) -> None:
        self._calls = StreamedCalls()
        self._last: list[ChatGenerationChunk] = []
        self._content: str | list[Any] = ""

    def passed(self, chunk: ChatGenerationChunk) -> Iterable[ChatGenerationChunk]:
        """The chunks to pass on now that this one has come."""
        ready, self._last = self._last, []
        message = chunk.message
        if isinstance(message, AIMessageChunk):
            self._calls.add(message)
            self._calls.add_metadata(chunk.generation_info)
            self._content = "" if isinstance(message.content, str) else []
            if message.chunk_position == "last":
                self._last = [chunk]
                return ready
        return [*ready, chunk]

    def chunks(self, *, failed: bool) -> Sequence[ChatGenerationChunk]:
        """The rest of the stream."""
        pieces = [
            tool_call_chunk(args=breaking_suffix(call.raw), index=call.index)
            for call in self._calls.calls(failed=failed)
            if call.args is None
            and isinstance(call.index, int)
            and isinstance(completed_args(call.raw), dict)
        ]
        if not pieces:
            return self._last
        message = AIMessageChunk(content=self._content, tool_call_chunks=pieces)
        return [ChatGenerationChunk(message=message), *self._last]
