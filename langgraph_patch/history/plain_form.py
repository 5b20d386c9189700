"""Write a history in the form that every provider's models read, for one request.

It is for a history that was refused also after `refused.repair_refused`: after a change of the
model, for example. It is never stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from langgraph_patch.history.calls import computer_call_ids
from langgraph_patch.history.changes import Change, Patch, change_of, patch_of
from langgraph_patch.history.fields import (
    CUSTOM_OUTPUT,
    Block,
    blocks_of,
    dicts,
    is_v1,
    text_block,
    text_of,
    valid_name,
)
from langgraph_patch.history.refused import tool_name_of

_UNREADABLE = "[{name} was used; this model cannot read it.]"

_SENT_KEYS = ("audio", "reasoning", "reasoning_content", "refusal", "tool_outputs")
"""The keys in `additional_kwargs` that some integrations send, and other providers refuse."""


def plain_form(messages: Sequence[BaseMessage]) -> Patch:
    r"""Write a history in the form that every provider's models read, for one request.

    A message of a model becomes its text and its calls; for an image, or a tool that its provider
    ran, the text says that it was there. System messages go to the front as one. A name keeps
    letters, digits, `_` and `-`. Blank text beside calls becomes `""`. Reasoning is left out.

    Args:
        messages: The history; its calls and results are valid. It is not changed.

    Returns:
        The patch. If the history has this form, `patch.messages` is `messages` itself.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
        >>> from langgraph_patch.history.plain_form import plain_form
        >>> search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
        >>> found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
        >>> content = [search, found, {"type": "text", "text": "It rains."}]
        >>> patch = plain_form([HumanMessage("Rain?"), AIMessage(content), SystemMessage("Hi.")])
        >>> [message.content for message in patch.messages]
        ['Hi.', 'Rain?', '[web_search was used; this model cannot read it.]\nIt rains.']
        >>> print(patch)
        corrected message 1 (foreign); corrected message 2 (foreign)
    """
    models = [message for message in messages if isinstance(message, AIMessage)]
    computer_ids = set[str]().union(*map(computer_call_ids, models))
    front = _system_message(messages)
    written: list[BaseMessage] = [] if front is None else [front]
    changes: list[Change] = []
    for index, stored in enumerate(messages):
        is_system = isinstance(stored, SystemMessage)
        after = front if is_system else _plain_message(stored, computer_ids)
        if after is not None and not is_system:
            written.append(after)
        if after is not stored or (is_system and index):
            changes.append(change_of("foreign", index, stored, after))
    return patch_of(messages, written, changes)


def _plain_message(message: BaseMessage, computer_ids: Collection[str]) -> BaseMessage | None:
    """A message in this form; None for the result of a computer call."""
    if isinstance(message, AIMessage):
        return _with_valid_name(_plain_answer(message))
    if isinstance(message, ToolMessage):
        is_computers = message.tool_call_id in computer_ids
        return None if is_computers else _with_valid_name(_plain_result(message))
    return _with_valid_name(message)


def _system_message(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """All system messages as one; the same object if there is one, None if there is none."""
    systems = [message for message in messages if isinstance(message, SystemMessage)]
    if len(systems) < 2:  # noqa: PLR2004 - one needs no joining
        return _with_valid_name(systems[0]) if systems else None
    blocks = [block.stored for message in systems for block in blocks_of(message)]
    content: Any = [text_block(b).stored if isinstance(b, str) else b for b in blocks]
    if all(isinstance(message.content, str) for message in systems):
        content = "\n\n".join(blocks)
    return _with_valid_name(systems[0].model_copy(update={"content": content}))


def _plain_answer(message: AIMessage) -> AIMessage:
    """A message of a model as its text and its calls; the same object if it is no more."""
    extra = {k: v for k, v in message.additional_kwargs.items() if k not in _SENT_KEYS}
    text = _plain_text(message)
    is_plain = text == message.content and not is_v1(message)
    if is_plain and len(extra) == len(message.additional_kwargs):
        return message
    return AIMessage(
        content=text,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
        additional_kwargs=extra,
        id=message.id,
        name=message.name,
    )


def _plain_text(message: AIMessage) -> str:
    """The text of a message, with a line for each block that another model cannot read."""
    if isinstance(message.content, str) and message.content.strip() and not _beside(message):
        return message.content
    blocks = [*blocks_of(message), *_beside(message)]
    calls = {block.call_id for block in blocks} - {""}
    parts: list[str] = []
    for block in blocks:
        text = block.fields.get("text", block.fields.get("refusal"))
        text = block.stored if isinstance(block.stored, str) else text
        if block.is_call or block.is_reasoning or block.result_id in calls:
            continue
        if not isinstance(text, str):
            text = f"\n{_UNREADABLE.format(name=tool_name_of(block))}\n"
        parts.append(text)
    return "".join(parts).strip()


def _beside(message: AIMessage) -> list[Block]:
    """What a message states beside its content, as blocks."""
    extra, beside = message.additional_kwargs, dicts(message.additional_kwargs.get("tool_outputs"))
    if isinstance(audio := extra.get("audio"), dict):
        beside.insert(0, {"type": "audio", "text": audio.get("transcript")})
    is_said = any(block.kind == "refusal" for block in blocks_of(message))
    if extra.get("refusal") and not is_said:
        beside.insert(0, {"type": "refusal", "refusal": extra["refusal"]})
    return [*map(Block, beside)]


def _plain_result(message: ToolMessage) -> ToolMessage:
    """A result whose output OpenAI has in a block of its own, as a text."""
    outputs = [b.fields.get("output") for b in blocks_of(message) if b.kind == CUSTOM_OUTPUT]
    content = "\n".join(map(text_of, outputs))
    return message.model_copy(update={"content": content}) if outputs else message


def _with_valid_name(message: BaseMessage) -> BaseMessage:
    name = message.name
    if not name or valid_name(name) == name:
        return message
    return message.model_copy(update={"name": valid_name(name)})
