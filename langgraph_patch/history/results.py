"""Read and write the results in a message of any class.

This is the only module that knows which messages can carry a result: `ToolMessage`,
`FunctionMessage`, `ChatMessage`, `HumanMessage`. It looks at one message at a time: `reading`
decides which result belongs to which call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import (
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch.history.calls import Call
from langgraph_patch.history.fields import (
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    blocks_of,
    dicts,
    text_of,
)
from langgraph_patch.history.placeholders import is_synthetic


@dataclass(slots=True, eq=False)
class Result:
    """One result of a call.

    Attributes:
        call_id: The id of the call that the result names, or None if it names no call.
        name: The tool that the result names, or None.
        message: The result as a `ToolMessage`.
        index: The index of its message in the history.
        part: Its position among the results of its message.
        after: The index of the last message before it that holds more than results.
        remainder: What its message holds beside results; None if that is nothing.
        is_placeholder: Whether it is a placeholder, which gives way to a real result.
        label: The tool by which it is paired: its name, unless a handoff wrote that into it.
        call_index: The index of the message that makes its call; None if it has no call.
        is_misplaced: Whether neither its place nor its name tells which call it belongs to.
    """

    call_id: str | None
    name: str | None
    message: ToolMessage
    index: int
    part: int
    after: int
    remainder: BaseMessage | None
    is_placeholder: bool
    label: str | None
    call_index: int | None = None
    is_misplaced: bool = False


# --- reading -------------------------------------------------------------------------------


def read_results(
    message: BaseMessage, index: int, after: int, *, human_follows: bool = False
) -> list[Result]:
    """The results in `message`; an empty list if there are none.

    Args:
        message: The message; its fields are valid (`fields.corrected`).
        index: Its index in the history.
        after: The index of the last message before it that holds more than results.
        human_follows: Whether a human message comes before the next message of a model. Default:
            False.
    """
    found = list(_results_of(message))
    remainder = _without_results(message) if found else None
    return [
        Result(
            *(call_id, name, result, index, part, after, remainder),
            is_synthetic(result, human_follows=human_follows),
            name or None,
        )
        for part, (call_id, name, result) in enumerate(found)
    ]


def _results_of(message: BaseMessage) -> Iterator[tuple[str | None, str | None, ToolMessage]]:
    """Each result of a message: the id and the tool that it names, and its `ToolMessage`."""
    extra = message.additional_kwargs
    is_of_tool = isinstance(message, ChatMessage) and message.role in {"tool", "function"}
    if isinstance(message, ToolMessage):
        yield text_of(message.tool_call_id), message.name, message
    elif is_of_tool or isinstance(message, FunctionMessage):
        call_id = text_of(extra.get("tool_call_id")) or None
        name = text_of(message.name or extra.get("name")) or None
        yield call_id, name, _as_tool_message(message, call_id or "")
    elif isinstance(message, HumanMessage):
        for block in filter(_is_result_block, dicts(message.content)):
            call_id = text_of(block.get("tool_use_id"))
            status = "error" if block.get("is_error") else "success"
            content = _content_of(block.get("content"))
            yield call_id, None, ToolMessage(content, tool_call_id=call_id, status=status)


def _is_result_block(block: Any) -> bool:
    """Whether a content block is a result in Anthropic's form."""
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _without_results(message: BaseMessage) -> BaseMessage | None:
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


def _content_of(stored: Any) -> Any:
    """What a `ToolMessage` can hold; anything else as text."""
    is_list = isinstance(stored, list) and all(isinstance(each, str | dict) for each in stored)
    return stored if is_list else text_of(stored)


# --- writing -------------------------------------------------------------------------------


def as_result_of(call: Call, message: ToolMessage) -> ToolMessage:
    """A new `ToolMessage` as the result of a call, which it names.

    The result of a custom tool call (OpenAI's Responses API: free text in, free text out)
    becomes a block of its own type; plain text would be the result of a function call.

    Args:
        call: The call.
        message: The result; it is not changed.

    Returns:
        The same object if nothing has to change, else a copy.
    """
    update = dict[str, Any]()
    is_output = any(block.is_custom_output for block in blocks_of(message))
    if call.block_type == CUSTOM_CALL and not is_output:
        # Integrations send only the first block; all blocks are kept.
        others = message.content if isinstance(message.content, list) else []
        update["content"] = [{"type": CUSTOM_OUTPUT, "output": str(message.text)}, *others]
    if message.tool_call_id != call.id:
        update["tool_call_id"] = call.id
    return message.model_copy(update=update) if update else message
