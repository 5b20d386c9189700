# ruff: noqa: SLF001 - the payload is what a private method builds
"""A model of Claude's kind: its thinking is bound to everything that was sent before it.

It signs each `thinking` block with an HMAC over the system prompt, the tools and the messages
before it, and verifies all signatures of the payload that `ChatAnthropic` builds. The rule is that
of platform.claude.com, build-with-claude/preserved-thinking and .../prefix-checks.
"""

import hmac
import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field

from support.states import CLAUDE

UNBOUND = (
    "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
NO_THINKING = (
    "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When "
    "`thinking` is enabled, a final `assistant` message must start with a thinking block."
)


class BadRequestError(Exception):
    """What an SDK raises for status 400."""

    status_code = 400


class BoundModel(BaseChatModel):
    """Says its script line by line, and then `done`; each line with thinking before it.

    Attributes:
        script: Its answers: texts, or lists of calls as (name, args).
        binds: Whether thinking is bound to what was sent before it.
        demands: Whether a turn in which a tool ran must start with thinking, as with Claude 4.
        requests: How many requests it got.
        refused: The texts of its refusals.
        shared: Another model that counts its requests as well.
    """

    script: list[Any] = Field(default_factory=list)
    binds: bool = True
    demands: bool = False
    requests: int = 0
    refused: list[str] = Field(default_factory=list)
    shared: Any = None

    @property
    def _llm_type(self) -> str:
        return "bound"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        """Bind the names of the tools, which are signed as well."""
        named = [{"type": "function", "function": {"name": each.name}} for each in tools]
        return self.bind(tools=named)

    def _signature(self, sent: dict[str, Any], before: list[Any]) -> str:
        parts = [sent.get("system"), sent["tools"], before]
        return hmac.new(b"secret", json.dumps(parts).encode(), "sha256").hexdigest()

    def _count(self) -> int:
        return self.requests if self.shared is None else self.shared.requests

    def _refuse(self, text: str) -> None:
        self.refused.append(text)
        raise BadRequestError(f"Error code: 400 - {text}")

    def _verify(self, sent: dict[str, Any]) -> None:
        """Raise as Anthropic does on thinking that is bound to something else."""
        messages = sent["messages"]
        for index, message in enumerate(messages):
            blocks = message["content"] if isinstance(message["content"], list) else []
            for place, block in enumerate(blocks):
                before = [*messages[:index], {**message, "content": blocks[:place]}]
                is_checked = self.binds and block["type"] == "thinking"
                if is_checked and block.get("signature") != self._signature(sent, before):
                    self._refuse(UNBOUND.format(index, place))
        if self.demands and len(messages) > 1:
            blocks = [b for b in messages[-1]["content"] if isinstance(b, dict)]
            asked = messages[-2]["content"]
            first = asked[0]["type"] if isinstance(asked, list) else "text"
            if any(b["type"] == "tool_result" for b in blocks) and first != "thinking":
                self._refuse(NO_THINKING.format(len(messages) - 2, first))

    def _answer(self, messages: list[BaseMessage], tools: Sequence[Any]) -> AIMessage:
        self.requests += 1
        if self.shared is not None:
            self.shared.requests += 1
        claude: Any = ChatAnthropic(model="claude-sonnet-4-6", api_key="k")
        sent = {**claude._get_request_payload(messages), "tools": list(tools)}
        self._verify(sent)
        line = self.script.pop(0) if self.script else "done"
        line = line(messages) if callable(line) else line
        before = [*sent["messages"], {"role": "assistant", "content": []}]
        thinking = {"thinking": "hm", "signature": self._signature(sent, before)}
        content: list[Any] = [{"type": "thinking", **thinking}]
        calls: list[Any] = []
        if isinstance(line, str):
            content.append({"type": "text", "text": line})
        for number, (name, args) in enumerate([] if isinstance(line, str) else line):
            call = {"name": name, "id": f"toolu_{self._count()}_{number}"}
            calls.append({**call, "args": args, "type": "tool_call"})
            content.append({"type": "tool_use", **call, "input": args})
        return AIMessage(content, tool_calls=calls, response_metadata=CLAUDE)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        tools: Sequence[Any] = (),
        **_: Any,
    ) -> ChatResult:
        message = self._answer(messages, tools)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        tools: Sequence[Any] = (),
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages, tools)
        fields = answer.model_dump(exclude={"type", "invalid_tool_calls"})
        yield ChatGenerationChunk(message=AIMessageChunk(**fields, chunk_position="last"))
