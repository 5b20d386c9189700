"""Turn LangChain's content block events (streams of version v3) into message chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk

from langgraph_patch.streaming.tool_results import Token


class BlockEvents:
    """Reads the events of the model runs of one stream."""

    def __init__(self) -> None:
        self._ids: dict[object, str] = {}
        """The message of each model run."""

    def read(self, event: Mapping[str, Any], metadata: dict[str, Any]) -> list[Token]:
        """The chunk that an event adds to its message; nothing if it adds nothing."""
        run = metadata.get("run_id")
        if event["event"] == "message-start":
            if event.get("role") == "ai":
                self._ids[run] = str(event.get("id") or event.get("message_id") or run)
            return []
        if run not in self._ids:
            return []  # of a message that is not the model's
        chunk = _chunk(event)
        if chunk is None:
            return []
        chunk.id = self._ids.pop(run) if chunk.chunk_position == "last" else self._ids[run]
        return [(chunk, metadata)]


def _chunk(event: Mapping[str, Any]) -> AIMessageChunk | None:
    match event:
        case {"event": "message-finish"}:
            usage = event.get("usage")
            return AIMessageChunk(content="", chunk_position="last", usage_metadata=usage)
        case {"event": "content-block-delta", "delta": {"type": "text-delta", "text": str(text)}}:
            return AIMessageChunk(content=text)
        case {"event": "content-block-delta", "delta": {"type": "reasoning-delta"} as delta}:
            text = delta.get("reasoning", "")
            return AIMessageChunk(content=[{"type": "reasoning", "reasoning": text}])
    return _chunk_of_block(event)


def _chunk_of_block(event: Mapping[str, Any]) -> AIMessageChunk | None:
    match event:
        case {"event": "content-block-start", "content": {"type": "tool_call_chunk"} as call}:
            piece = tool_call_chunk(
                name=call.get("name"),
                args=call.get("args"),
                id=call.get("id"),
                index=event.get("index"),
            )
            return AIMessageChunk(content="", tool_call_chunks=[piece])
        case {"event": "content-block-start", "content": {"type": "tool_call"} as call}:
            # The whole call was in the last chunk of the message; its arguments are not needed.
            piece = tool_call_chunk(
                name=call.get("name"), args="", id=call.get("id"), index=event.get("index")
            )
            return AIMessageChunk(content="", tool_call_chunks=[piece])
        case {"event": "content-block-start", "content": {"phase": str()} as block}:
            return AIMessageChunk(content=[{**block}])
        case {"event": "content-block-finish", "content": {"type": "non_standard"} as block}:
            return AIMessageChunk(content=[{**block}])
        case {"event": "content-block-finish", "content": {"type": "invalid_tool_call"} as call}:
            invalid = invalid_tool_call(
                name=call.get("name"), args=call.get("args"), id=call.get("id")
            )
            return AIMessageChunk(content="", invalid_tool_calls=[invalid])
    return None
