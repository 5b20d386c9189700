"""Read the results in a message of any class.

This is the only module that knows which messages can carry a result: `ToolMessage`,
`FunctionMessage`, `ChatMessage`, `HumanMessage`. It looks at one message at a time: `matching`
decides which result belongs to which call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch.history.calls import dicts, text_of
from langgraph_patch.history.ids import valid_name


@dataclass(slots=True, eq=False)
class Result:
    """One result of a call.

    Attributes:
        call_id: The id of the call that the result names, or None if it names no call.
        name: The tool that the result names, or None.
        message: The result as a `ToolMessage`.
        index: The index of its message in the history.
        part: Its position among the results of its message.
        holds_more: Whether its message holds more than results.
        after: The index of the last message before it that holds more than results.
        is_placeholder: Whether it is a placeholder, which gives way to a real result.
        is_fake: Whether a client invented it.
        call_index: The index of the message that makes its call; None if it has no call.
    """

    call_id: str | None
    name: str | None
    message: ToolMessage
    index: int = 0
    part: int = 0
    holds_more: bool = False
    after: int = -1
    is_placeholder: bool = False
    is_fake: bool = False
    call_index: int | None = None

    @property
    def label(self) -> str | None:
        """The tool that the result names, in the form of a valid name; None if it names none."""
        return valid_name(self.name) if self.name else None


def read_results(message: BaseMessage, index: int = 0) -> list[Result]:
    """The results in `message`; an empty list if there are none.

    Args:
        message: The message; its fields are valid (`damaged_fields`).
        index: Its index in the history. Default: 0.
    """
    found = _results_of(message)
    holds_more = bool(found) and without_results(message) is not None
    for part, result in enumerate(found):
        result.index, result.part, result.holds_more = index, part, holds_more
    return found


def _results_of(message: BaseMessage) -> list[Result]:
    if isinstance(message, ToolMessage):
        return [Result(text_of(message.tool_call_id), message.name, message)]
    is_function = isinstance(message, ChatMessage) and message.role in {"tool", "function"}
    if is_function or isinstance(message, FunctionMessage):
        call_id = text_of(message.additional_kwargs.get("tool_call_id")) or None
        name = text_of(message.name or message.additional_kwargs.get("name")) or None
        return [Result(call_id, name, _as_tool_message(message, call_id or ""))]
    if isinstance(message, HumanMessage):
        return _results_of_human(message)
    return []


def _results_of_human(message: HumanMessage) -> list[Result]:
    return [
        Result(
            text_of(block.get("tool_use_id")),
            None,
            ToolMessage(
                content=_content_of(block.get("content")),
                tool_call_id=text_of(block.get("tool_use_id")),
                status="error" if block.get("is_error") else "success",
            ),
        )
        for block in filter(_is_result_block, dicts(message.content))
    ]


def _is_result_block(block: object) -> bool:
    """Whether a content block is a result in Anthropic's form."""
    return isinstance(block, dict) and block.get("type") == "tool_result"


def without_results(message: BaseMessage) -> BaseMessage | None:
    """What remains of a message without its results; None if nothing remains."""
    if not isinstance(message, HumanMessage) or not isinstance(message.content, list):
        return None
    content = [block for block in message.content if not _is_result_block(block)]
    return message.model_copy(update={"content": content}) if content else None


def _as_tool_message(message: BaseMessage, call_id: str) -> ToolMessage:
    return ToolMessage(
        content=message.content,
        tool_call_id=call_id,
        name=message.name,
        id=None if message.id is None else str(message.id),
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
    )


def _content_of(stored: object) -> str | list[str | dict[str, Any]]:
    if stored is None:
        return ""
    if isinstance(stored, list) and all(isinstance(block, str | dict) for block in stored):
        return stored
    return stored if isinstance(stored, str) else repr(stored)
