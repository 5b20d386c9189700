"""A scripted chat model that refuses what providers refuse, and the graphs to put it in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


class RefusedError(ValueError):
    """What a provider answers with its status 400."""


def refuse(messages: Sequence[BaseMessage]) -> None:
    """Raise as a provider would on a history with calls and results that do not pair.

    Written on its own, from the providers' rules; it shares nothing with the package.
    """
    waiting: list[str] = []
    used: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                raise RefusedError(f"result {message.tool_call_id!r} answers no call before it")
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            raise RefusedError(f"calls {waiting} have no result right after them")
        if message.type in {"function", "chat"} and getattr(message, "role", "") != "user":
            raise RefusedError(f"role {message.type!r} is not accepted")
        if isinstance(message, AIMessage):
            if message.invalid_tool_calls:
                raise RefusedError("a call with malformed arguments")
            for call in message.tool_calls:
                if not call["id"] or len(call["id"]) > 40 or call["id"] in used:
                    raise RefusedError(f"call id {call['id']!r} is missing, too long or used twice")
                if not NAME.match(call["name"]):
                    raise RefusedError(f"tool name {call['name']!r}")
                used.add(call["id"])
                waiting.append(call["id"])
    if waiting:
        raise RefusedError(f"calls {waiting} have no result")


class StrictModel(BaseChatModel):
    """Says its script line by line, and refuses a broken history before each line.

    Attributes:
        script: Its answers. A callable receives the history and returns the answer.
        seen: The histories that it read, in order.
    """

    script: list[Any]
    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "strict"

    def bind_tools(self, tools: Any, **_: Any) -> StrictModel:
        return self

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.seen.append(list(messages))
        refuse(messages)
        line = self.script.pop(0)
        answer = line(messages) if callable(line) else line
        return answer.model_copy()

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._next(messages)
        parts = re.findall(r"\S+\s*", answer.text) or [""]
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            chunk = AIMessageChunk(
                content=part,
                id=answer.id,
                tool_calls=answer.tool_calls if last else [],
                chunk_position="last" if last else None,
            )
            yield ChatGenerationChunk(message=chunk)


def ai(*calls: tuple[str, dict[str, Any], str], text: str = "", **kwargs: Any) -> AIMessage:
    """An `AIMessage` with calls, each as (name, args, id)."""
    tool_calls = [{"name": n, "args": a, "id": i} for n, a, i in calls]
    return AIMessage(text, tool_calls=tool_calls, **kwargs)
