"""A chat model that streams the chunks that a test gives it."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field


class ChunkModel(BaseChatModel):
    """Streams `turns`, one after another; each is a list of chunks, or of errors to raise.

    Attributes:
        turns: What it streams; after the last turn it answers `done`.
        received: The histories that it was called with.
    """

    turns: list[list[Any]] = Field(default_factory=list)
    received: list[list[Any]] = Field(default_factory=list)
    streaming: bool = False

    @property
    def _llm_type(self):
        return "chunks"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.received.append(messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("whole"))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        self.received.append(messages)
        place = len(self.received) - 1
        turn = self.turns[place] if place < len(self.turns) else [AIMessageChunk("done")]
        for chunk in turn:
            if isinstance(chunk, Exception):
                raise chunk
            yield ChatGenerationChunk(message=chunk.model_copy())

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[tool.name for tool in tools], **kwargs)


def piece(args: str | None, index: int | None = 0, **rest: Any) -> AIMessageChunk:
    """A chunk with a piece of a tool call."""
    call = {"name": rest.get("name"), "args": args, "id": rest.get("id"), "index": index}
    return AIMessageChunk("", tool_call_chunks=[call])


def begin(name: str, call_id: str, args: str = "", index: int | None = 0) -> AIMessageChunk:
    """The first piece of a call."""
    return piece(args, index, name=name, id=call_id)


def reason(text: str) -> AIMessageChunk:
    """The chunk with the reason for the end."""
    return AIMessageChunk("", response_metadata={"finish_reason": text})
