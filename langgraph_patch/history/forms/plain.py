"""Write a history in the form that every provider's models read, for one request.

It is for a history that was refused also after `refused.repair_refused`: after a change of the
model, for example. It is never stored. It is the only place where ids and names of calls change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.messages.tool import tool_call

from langgraph_patch.history.calls import Call
from langgraph_patch.history.changes import Change, Patch
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.history.fields import (
    UNKNOWN_TOOL,
    Block,
    blocks_beside,
    blocks_of,
    digest_of,
    is_v1,
    text_of,
)
from langgraph_patch.history.forms.whole import as_one, repair_refused, tool_name_of, with_texts
from langgraph_patch.history.pairing import PairedCall
from langgraph_patch.history.patch import patch_messages
from langgraph_patch.history.reading import Reading, read_history

_UNREADABLE = "[{name} was used; this model cannot read it.]"

_SENT_KEYS = ("audio", "reasoning", "reasoning_content", "refusal", "tool_outputs")
_LEFT_OUT = (*_SENT_KEYS, "tool_calls", "function_call")
"""The keys in `additional_kwargs` that some integrations send, and other providers refuse.

The last two have calls in the form of their provider: the field `tool_calls` has them all.
"""

_SIGNATURES = "__gemini_function_call_thought_signatures__"
"""The key in `additional_kwargs` of what Gemini demands back with a call, by the id of the call."""


def plain_form(
    messages: Sequence[BaseMessage], tools: Collection[str] = (), *, keeps_ids: bool = False
) -> Patch:
    r"""Write a history in the form that every provider's models read, for one request.

    A message of a model becomes its text and its calls; for an image, or a tool that its provider
    ran, the text says that it was there. Each call has an id of its own that every provider
    accepts, and so has its result. A name keeps letters, digits, `_` and `-`. System messages go to
    the front as one. Blank text beside calls becomes `""`. Reasoning is left out.

    Args:
        messages: The history; each call has its result behind it. It is not changed.
        tools: The names of the tools that the model is given. They stay: a model that calls a tool
            by the name that it has read in the history finds it. Default: none.
        keeps_ids: Whether ids stay that Mistral alone refuses. Default: False.

    Returns:
        The patch. If the history has this form, `patch.messages` is `messages` itself.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
        >>> from langgraph_patch.history.forms.plain import plain_form
        >>> search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
        >>> found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
        >>> content = [search, found, {"type": "text", "text": "It rains."}]
        >>> patch = plain_form([HumanMessage("Rain?"), AIMessage(content), SystemMessage("Hi.")])
        >>> [message.content for message in patch.messages]
        ['Hi.', 'Rain?', '[web_search was used; this model cannot read it.]\nIt rains.']
        >>> print(patch)
        corrected message 1 (foreign); corrected message 2 (foreign)
    """
    reading = read_history(messages)
    calls = _plain_calls(reading, tools, _COMMON_ID if keeps_ids else _VALID_ID)
    own = {p.answer.index: (p.call, call) for p, call in calls.items() if p.answer is not None}
    front, speakers = _system_message(messages), _speakers(messages)
    written: list[BaseMessage] = [] if front is None else [front]
    changes: list[Change] = []
    for index, stored in enumerate(messages):
        after: BaseMessage | None = stored
        if is_system := isinstance(stored, SystemMessage):
            after = front
        elif (calling := reading.calling_messages.get(index)) is not None:
            after = _plain_answer(calling.message, [(p.call, calls[p]) for p in calling.calls])
        elif index in own:
            [result] = reading.stored_results[index]
            after = _plain_result(result.message, *own[index])
        elif isinstance(stored, AIMessage):
            after = _plain_answer(stored, [])
        elif index in reading.of_computer:
            after = None
        if after is not None and after.name and after.name not in tools:
            after = _named(after, speakers.get(after.name) or valid_name(after.name))
        if after is not None and not is_system:
            written.append(after)
        if after is not stored or (is_system and index):
            changes.append(Change.of("foreign", index, stored, after))
    return Patch.of(messages, written, changes)


def portable_messages(messages: Sequence[Any]) -> Patch:
    """Repair a history and write it in the form that every provider reads, for one request.

    For a change of the model, or a loop of your own that does not ask again after a refusal. Beside
    `patch_messages`, messages that say nothing or stop halfway are repaired, and the plain form is
    written. Do not store it.

    Args:
        messages: The history, as `patch_messages` takes it. It is not changed.

    Returns:
        The patch.

    Raises:
        MessagesError: If `messages` is not a list of messages.

    Examples:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph_patch import portable_messages
        >>> odd = {"name": "bank.wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[odd]), ToolMessage("done", tool_call_id="c1")]
        >>> portable_messages(history).messages[0].tool_calls[0]["name"]
        'bank_wire'
    """
    patch = patch_messages(messages)
    for write in (repair_refused, plain_form, with_texts):
        patch = Patch.joined(patch, write(patch.messages))
    return patch


# --- the ids and names of calls -----------------------------------------------------------------

_VALID_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")
"""Call ids that every provider accepts. Mistral accepts no others."""

_COMMON_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
"""Call ids that the other providers accept: Anthropic's characters, Chat Completions' length."""

_VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")

_MAX_ID, _MAX_NAME = 9, 64


def valid_name(name: str) -> str:
    """`name` with invalid characters replaced; the same string if it is valid already."""
    if _VALID_NAME.match(name):
        return name
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name[:_MAX_NAME]) or UNKNOWN_TOOL


def _plain_calls(
    reading: Reading, tools: Collection[str], valid_id: re.Pattern[str]
) -> dict[PairedCall, ToolCall]:
    """Each call with an id of its own and a name that every provider accepts.

    The ids use no clock and no randomness, so that the same history gives the same request.
    """
    taken = reading.call_ids
    seen, salts = set[str](), Counter[Hashable]()
    found: dict[PairedCall, ToolCall] = {}
    for paired in reading.paired_calls:
        call, new_id = paired.call, paired.call.id
        if new_id in seen or not valid_id.match(new_id):
            new_id = _free_id(paired, taken | seen, salts)
        seen.add(new_id)
        # A call without a name has the one that its result names.
        name = call.name or (paired.answer and paired.answer.message.name) or ""
        name = name if name in tools else valid_name(name)
        listed = call.tool_call
        if listed is None or (listed["id"], listed["name"]) != (new_id, name):
            listed = tool_call(name=name, args=dict(call.args), id=new_id)
        found[paired] = cast("ToolCall", listed)
    return found


def _free_id(paired: PairedCall, taken: AbstractSet[str], salts: Counter[Hashable]) -> str:
    """An id that no other call has."""
    seed = (paired.call.id, paired.calling.message.id, paired.call.ordinal)
    while True:
        found = digest_of("call", *seed, salts[seed])[:_MAX_ID]
        salts[seed] += 1  # calls with equal seeds (messages without ids) do not try a salt twice
        if found not in taken:
            return found


# --- messages -----------------------------------------------------------------------------------


def _system_message(messages: Sequence[BaseMessage]) -> BaseMessage | None:
    """All system messages as one; the same object if there is one, None if there is none."""
    systems = [message for message in messages if isinstance(message, SystemMessage)]
    system = as_one(systems, "\n\n") if systems else None
    return _named(system, valid_name(system.name)) if system and system.name else system


def _plain_answer(message: AIMessage, calls: Sequence[tuple[Call, ToolCall]]) -> AIMessage:
    """A message of a model as its text and its calls; the same object if it is no more.

    Args:
        message: The message.
        calls: Its calls, as they are stored and in the plain form.
    """
    extra = {k: v for k, v in message.additional_kwargs.items() if k not in _LEFT_OUT}
    text = _plain_text(message)
    is_plain = text == message.content and not is_v1(message) and not message.invalid_tool_calls
    listed = [call for _, call in calls]
    is_listed = are_identical(listed, message.tool_calls)
    if is_plain and is_listed and len(extra) == len(message.additional_kwargs):
        return message
    if isinstance(signed := extra.get(_SIGNATURES), dict):
        extra[_SIGNATURES] = {c["id"]: signed[own.id] for own, c in calls if own.id in signed}
    return AIMessage(
        content=text,
        tool_calls=listed,
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
    extra, beside = message.additional_kwargs, blocks_beside(message)
    if isinstance(audio := extra.get("audio"), dict):
        beside.insert(0, Block({"type": "audio", "text": audio.get("transcript")}))
    is_said = any(block.kind == "refusal" for block in blocks_of(message))
    if extra.get("refusal") and not is_said:
        beside.insert(0, Block({"type": "refusal", "refusal": extra["refusal"]}))
    return beside


def _plain_result(message: ToolMessage, stored: Call, call: ToolCall) -> ToolMessage:
    """The result of a call under its id and name, with a text for output in a form of OpenAI's."""
    update = dict[str, Any]()
    outputs = [b.fields.get("output") for b in blocks_of(message) if b.is_custom_output]
    if outputs:
        update["content"] = "\n".join(map(text_of, outputs))
    if message.tool_call_id != call["id"]:
        update["tool_call_id"] = call["id"]
    if message.name == stored.name != call["name"]:
        update["name"] = call["name"]
    return message.model_copy(update=update) if update else message


def _speakers(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """The name of each speaker as it is written; two never become one."""
    names = {m.name: None for m in messages if m.name and not isinstance(m, ToolMessage)}
    found, taken = dict[str, str](), {*names}
    for name in names:
        found[name] = valid_name(name)
        if found[name] != name and found[name] in taken:
            found[name] = f"{found[name][: _MAX_NAME - 9]}_{digest_of(name)[:8]}"
        taken.add(found[name])
    return found


def _named(message: BaseMessage, name: str) -> BaseMessage:
    """A message under a name; the same object if it has that."""
    return message if name == message.name else message.model_copy(update={"name": name})
