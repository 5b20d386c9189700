"""Repair a history that a provider has refused, beside its tool calls and results.

These states kill a thread on some providers and are healthy on others. Nothing in a history tells
which provider reads it, so nothing here runs before a request was refused. The calls and results
of the history are valid already (`patch`).

`repair_refused` repairs what can be stored: messages that say nothing or stop halfway, and thinking
that the provider no longer accepts. For one request are `with_texts`, for what nobody but a model
left empty, and `plain_form.plain_form`: texts and calls.

The laws of both (`tests/history/forms/test_whole.py`): nothing that states anything is lost, human
messages stay, they are idempotent, pure and linear. A message in none of these states stays the
same object; `repair_refused` never changes one that is whole.

The sources of the rules are the providers' errors, which this page quotes:
https://github.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/refused.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.changes import Change, DefectKind, Patch
from langgraph_patch.history.fields import (
    Block,
    blocks_of,
    corrected,
    is_v1,
    text_of,
    with_text,
)

NO_TEXT: Final = "[no text]"
"""The text of a message that says nothing, between two human messages."""

_STARTED = "[{name} was started; no result is recorded.]"
_USED = "[{name} was used.]"
_STATING = ("refusal", "audio", "parsed", "tool_outputs")
"""The keys in `additional_kwargs` that state something beside the content."""

_CLAUDES_IDS = ("srvtoolu_", "mcptoolu_")
"""How the ids of calls of tools that Anthropic runs begin."""

_ITEM_IDS = ("rs_", "msg_", "fc_", "ws_")
"""How the ids of items of the Responses API begin. An id may be in a request once."""

_KEYS_OF_TEXT = {"text": "text", "input_text": "text", "": "text", "refusal": "refusal"}
"""The types of blocks that are texts; Bedrock's have none."""

_OF_THINKING = re.compile(r"thinking|thought|signature|reasoning", re.IGNORECASE)


# --- what can be stored -----------------------------------------------------------------------


def repair_refused(messages: Sequence[BaseMessage], refusal: str = "") -> Patch:
    """Repair the messages that say nothing or stop halfway, and thinking that is refused.

    - A message that says nothing, but for the last one, is dropped; before a human message, behind
      one or behind a tool message, it gets the text `[no text]`: roles stay in an order that
      providers accept.
    - Reasoning of the Responses API behind which nothing of its message follows is dropped. The
      item id of a call without its reasoning, and one that an earlier message has, is dropped.
    - Claude's thinking without a signature, or at the end of a message, is dropped.
    - A call of a provider's tool without a result becomes a text that says so, if a human or a
      model spoke after it.
    - If the refusal speaks of thinking, the thinking before the last human message is dropped.

    Args:
        messages: The history; its calls and results are valid. It is not changed.
        refusal: The text of the provider's error. Default: none, which speaks of nothing.

    Returns:
        The patch. If there was nothing to repair, `patch.messages` is `messages` itself.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch.history.forms.whole import repair_refused
        >>> history = [AIMessage("hello"), AIMessage(" "), HumanMessage("well?")]
        >>> patch = repair_refused(history)
        >>> print(patch)
        dropped message 1 (empty)
        >>> [message.content for message in patch.messages]
        ['hello', 'well?']
        >>> signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        >>> history = [AIMessage([signed, {"type": "text", "text": "hello"}]), HumanMessage("hm")]
        >>> print(repair_refused(history, "Invalid `signature` in `thinking` block"))
        corrected message 0 (refused_thinking)
    """
    readings = [corrected(message) for message in messages]
    empty = {k for k, m in enumerate(readings[:-1]) if isinstance(m, AIMessage) and _is_empty(m)}
    kept = [k for k in range(len(readings)) if k not in empty]
    speakers = [k for k in kept if isinstance(readings[k], HumanMessage | AIMessage)]
    humans = {k for k in speakers if isinstance(readings[k], HumanMessage)}
    needed = humans | {k for k in kept if isinstance(readings[k], ToolMessage)}
    between = {k + 1 for k, following in pairwise(kept) if k in needed and following in humans}
    turn = max(humans, default=0) if _OF_THINKING.search(refusal) else 0
    answered, item_ids = _answered_ids(readings), set[str]()
    written: list[BaseMessage] = []
    changes: list[Change] = []
    for index, (stored, message) in enumerate(zip(messages, readings, strict=True)):
        after: BaseMessage | None = message
        defect: DefectKind = "bad_field"
        if index in empty:
            defect = "empty"
            after = _with_no_text(message) if index in between else None
        elif isinstance(message, AIMessage) and isinstance(message.content, list):
            blocks = blocks_of(message)
            accepted = [b for b in blocks if index >= turn or not _is_bound(b)]
            results = answered if index < speakers[-1] else None
            whole = _whole_blocks(message, accepted, results, item_ids)
            if whole != blocks:
                defect = "refused_thinking" if whole == accepted else "unfinished"
                after = _with_content(message, [block.stored for block in whole])
        written += [] if after is None else [after]
        if after is not stored:
            changes.append(Change.of(defect, index, stored, after))
    return Patch.of(messages, written, changes)


def _whole_blocks(
    message: AIMessage, blocks: list[Block], answered: Collection[str] | None, item_ids: set[str]
) -> list[Block]:
    """The blocks of a message without what stops halfway.

    Args:
        message: The message.
        blocks: Its blocks that the provider accepts.
        answered: The ids of the calls with a result; None if other results may still come.
        item_ids: The ids of the items in earlier messages; those of this one are added.
    """
    whole = _without_cut_thinking(message, blocks)
    whole = whole if answered is None else _with_ended_tools(whole, answered)
    whole = _with_own_items(message, whole, item_ids)
    item_ids.update(filter(None, map(_item_id, whole)))
    return whole


def with_texts(messages: Sequence[BaseMessage]) -> Patch:
    """Give messages that say nothing a text, and drop blank texts beside others, for one request.

    Of humans, systems and tools: those of a model are repaired for good (`repair_refused`).
    """
    written = [m if isinstance(m, AIMessage) else _with_a_text(m) for m in messages]
    numbered = enumerate(zip(messages, written, strict=True))
    changes = [Change.of("empty", i, m, after) for i, (m, after) in numbered if after is not m]
    return Patch.of(messages, written, changes)


def _with_a_text(message: BaseMessage) -> BaseMessage:
    """A message without blank texts, or with a text in their place; the same if it has none."""
    blocks = blocks_of(message)
    kept = [block.stored for block in blocks if not is_blank(block)]
    if kept and len(kept) == len(blocks):
        return message
    return _with_content(message, kept) if kept else _with_no_text(message)


def _with_no_text(message: BaseMessage) -> BaseMessage:
    no_content: Any = "" if isinstance(message.content, str) else []
    return _with_content(message, with_text(message, no_content, NO_TEXT))


def _with_content(message: BaseMessage, content: Any) -> BaseMessage:
    return message.model_copy(update={"content": content or ([] if is_v1(message) else "")})


def as_one(messages: Sequence[BaseMessage], between: str = "\n") -> BaseMessage:
    """Messages of one role as one, with the id of the first and all calls; one alone stays itself.

    Where their names differ, it has none, and each part says whose it is; a line of a text that
    begins as a part does is indented.

    Args:
        messages: The messages; they are not changed.
        between: What stands between their texts. Default: a line break.
    """
    first, *others = messages
    if not others:
        return first
    names = {message.name or None for message in messages}
    content, calls = list[Any](), list[Any]()
    for message in messages:
        calls += message.tool_calls if isinstance(message, AIMessage) else []
        own = [block.stored for block in blocks_of(message)]
        if len(names) > 1:
            own = [*map(_indented, own)]
            speaker = re.sub(r"[\s\[\]]+", " ", message.name or "").strip() or "no name"
            text = own.pop(0) if own and isinstance(own[0], str) else ""
            own.insert(0, f"[{speaker}]: {text}")
        content += own
    whole: Any = [Block.of_text(each).stored if isinstance(each, str) else each for each in content]
    if all(isinstance(message.content, str) for message in messages):
        whole = between.join(content)
    update = {"content": whole, "name": None if len(names) > 1 else first.name}
    return first.model_copy(update={**update, "tool_calls": calls} if calls else update)


_BEGINS = re.compile(r"(?:\A|\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029])(?=\W{0,9}\[)")


def _indented(part: Any) -> Any:
    """A text, or a block with one, in which no line begins as a part of a speaker does."""
    if isinstance(part, str):
        return _BEGINS.sub(r"\g<0>  ", part)
    text = part.get("text") if isinstance(part, dict) else None
    return {**part, "text": _indented(text)} if isinstance(text, str) else part


# --- what a message says ----------------------------------------------------------------------


def _is_empty(message: AIMessage) -> bool:
    """Whether a message says nothing: no call, no text, nothing but thinking."""
    if any(message.additional_kwargs.get(key) for key in _STATING) or read_calls(message):
        return False
    return not any(map(_says_something, blocks_of(message)))


def _says_something(block: Block) -> bool:
    """Whether a block is neither thinking nor a text without a visible character."""
    return not (block.is_reasoning or is_blank(block))


def is_blank(block: Block) -> bool:
    """Whether a block is a text without a visible character."""
    key = _KEYS_OF_TEXT.get(block.kind)
    text = block.fields.get(key, "" if block.kind else block.stored) if key else block.stored
    return not isinstance(text, dict) and not text_of(text).strip()


def _is_signed(block: Block) -> bool:
    """Whether thinking has a signature, in Anthropic's form or in LangChain's v1 form."""
    return bool(block.fields.get("signature") or block.v1_extra("signature"))


# --- thinking ---------------------------------------------------------------------------------


def _is_bound(block: Block) -> bool:
    """Whether a block is thinking that its provider checks when it comes back."""
    if block.kind == "reasoning_content":  # Bedrock's
        value = block.fields.get("reasoning_content")
        return isinstance(value, dict) and any(map(value.get, ("signature", "redacted_content")))
    is_signed = block.kind == "reasoning" and _is_signed(block)
    return is_signed or block.kind in ("thinking", "redacted_thinking")


def _without_cut_thinking(message: AIMessage, blocks: list[Block]) -> list[Block]:
    """The blocks of Claude without thinking that is not signed, or that ends the message.

    Servers that imitate Anthropic's API never sign, so the name of the model counts as well.
    """
    metadata = message.response_metadata
    name = text_of(metadata.get("model_name") or metadata.get("model")).lower()
    if metadata.get("model_provider") != "anthropic" or "claude" not in name:
        return blocks
    end = _end(message, blocks, _says_something)
    return [
        block
        for index, block in enumerate(blocks)
        if not (block.is_reasoning and end)
        or (index < end and (block.kind == "redacted_thinking" or _is_signed(block)))
    ]


def _end(message: AIMessage, blocks: Sequence[Block], counts: Callable[[Block], bool]) -> int:
    """The index behind the last block that counts.

    Integrations send calls without a block behind all blocks.
    """
    if any(call.block_type is None for call in read_calls(message)):
        return len(blocks)
    return max((index + 1 for index, block in enumerate(blocks) if counts(block)), default=0)


# --- tools of the provider ----------------------------------------------------------------------


def _answered_ids(messages: Sequence[BaseMessage]) -> set[str]:
    """The ids of the calls that have a result: of the provider's tools, and of computer calls."""
    models = [message for message in messages if isinstance(message, AIMessage)]
    in_blocks = {block.result_id for message in models for block in blocks_of(message)}
    return in_blocks | {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}


def _with_ended_tools(blocks: list[Block], answered: Collection[str]) -> list[Block]:
    """The blocks with a text for each call that has no result; its reasoning goes with it."""
    written: list[Block] = []
    for block in blocks:
        if not _is_call_of_provider(block) or block.call_id in answered:
            written.append(block)
            continue
        while block.kind == "computer_call" and written and written[-1].kind == "reasoning":
            written.pop()
        written.append(Block.of_text(_STARTED.format(name=tool_name_of(block))))
    return written


def _is_call_of_provider(block: Block) -> bool:
    """Whether a block is a call whose result the provider, or OpenAI's computer tool, must have."""
    is_v1 = block.kind == "server_tool_call" and block.call_id.startswith(_CLAUDES_IDS)
    return is_v1 or block.kind in ("server_tool_use", "mcp_tool_use", "computer_call")


def tool_name_of(block: Block) -> str:
    """The name of the tool of a call of the provider."""
    return text_of(block.fields.get("name")) or block.kind.removesuffix("_call") or "content"


# --- items of the Responses API -----------------------------------------------------------------


def _with_own_items(message: AIMessage, blocks: list[Block], taken: Collection[str]) -> list[Block]:
    """The blocks without ids of earlier items, and with both reasoning and what it led to.

    Args:
        message: The message.
        blocks: Its blocks.
        taken: The ids of the items of earlier messages.
    """
    end = _end(message, blocks, lambda block: not _item_id(block).startswith("rs_"))
    usage: Mapping[str, Any] = message.usage_metadata or {}
    tokens = usage.get("output_token_details", {}).get("reasoning")
    is_lost = bool(tokens) or len(blocks) < len(message.content)
    written = []
    for index, block in enumerate(blocks):
        item_id = _item_id(block)
        if block.kind == "reasoning":
            is_lost = item_id in taken or (item_id.startswith("rs_") and index >= end > 0)
            written += [] if is_lost else [block]
        elif item_id in taken or (is_lost and item_id.startswith("fc_")):
            written.append(_without_item_id(block))
        else:
            written.append(block)
    return written


def _item_id(block: Block) -> str:
    """The id that the Responses API gave to an item; `""` if it is none."""
    item_id = block.fields.get("id")
    if block.has_id_of_call:
        item_id = block.v1_extra("item_id") if block.kind == "tool_call" else None
    return item_id if isinstance(item_id, str) and item_id.startswith(_ITEM_IDS) else ""


def _without_item_id(block: Block) -> Block:
    """A block without its id. One without which LangChain cannot read it becomes a text."""
    fields = dict(block.fields)
    if _item_id(block).startswith("ws_"):
        return Block.of_text(_USED.format(name=tool_name_of(block)))
    if block.kind == "tool_call":
        fields["extras"] = {k: v for k, v in fields["extras"].items() if k != "item_id"}
    else:
        fields.pop("id")
    return block.with_fields(fields)
