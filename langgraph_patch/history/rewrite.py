"""Rename a tool call: write a new id or tool name everywhere it occurs.

An id or a name occurs in `tool_calls`, in content blocks, in maps with call ids as keys, and in
results. `write_calls` changes all places of an `AIMessage` at
once, `write_result` those of a `ToolMessage`.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from langgraph_patch.history.calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    block_call_id,
    call_blocks,
    dicts,
    type_of,
    unwrapped,
    with_args,
)
from langgraph_patch.history.ids import PLACEHOLDER_KEY, VALID_NAME
from langgraph_patch.history.matching import PairedCall

_CUSTOM_OUTPUT = f"{CUSTOM_CALL}_output"


# --- calls -----------------------------------------------------------------------------


def write_calls(message: AIMessage, calls: Sequence[PairedCall]) -> AIMessage:
    """A copy of `message` that has its calls in `tool_calls`, under their new ids and names.

    The new id is also written into content blocks and into the maps in `additional_kwargs` with
    call ids as keys (Gemini's thought signatures). Raw copies of the calls go: `tool_calls` has
    them all. The ids that a renamed call had before are stored.

    Args:
        message: The message as it is stored; it is not changed.
        calls: All its calls, in the order of `read_calls`.
    """
    listed = [_listed_call(paired) for paired in calls]
    update: dict[str, Any] = {
        "content": _written_content(message, calls),
        "additional_kwargs": _written_kwargs(message, calls),
        "tool_calls": listed,
        "invalid_tool_calls": [],
    }
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = [_as_chunk(call) for call in listed]
    return message.model_copy(update=update)


def _listed_call(paired: PairedCall) -> dict[str, Any]:
    stored = paired.call.tool_call or {"args": dict(paired.call.args)}
    return {**stored, "id": paired.new_id, "name": paired.new_name, "type": "tool_call"}


def _as_chunk(tool_call: Mapping[str, Any]) -> ToolCallChunk:
    """The chunk from which LangChain makes this very call when it loads the message."""
    args = json.dumps(tool_call["args"], default=repr)
    return tool_call_chunk(name=tool_call["name"], args=args, id=tool_call["id"], index=None)


def _written_content(message: AIMessage, calls: Sequence[PairedCall]) -> Any:
    """The content; the k-th block of a stored id is that of the k-th call with it."""
    if not isinstance(message.content, list):
        return message.content
    content: list[Any] = list(message.content)
    queues: dict[str, deque[PairedCall]] = defaultdict(deque)
    for paired in calls:
        if paired.call.block_type is not None:
            queues[paired.call.id].append(paired)
    for index, block in call_blocks(message):
        if queue := queues[block_call_id(block)]:
            written = _written_block(block, queue.popleft())
            outer = content[index]
            content[index] = written if outer is block else {**outer, "value": written}
    return content


def _written_block(block: Mapping[str, Any], paired: PairedCall) -> Mapping[str, Any]:
    id_key, _ = CALL_BLOCKS[block["type"]]
    written = {**block, id_key: paired.new_id, "name": paired.new_name}
    # An integration sends a block with a `caller` as it is: its input must be a dict.
    return with_args(written, paired.call.args) if block["type"] == "tool_use" else written


def _written_kwargs(message: AIMessage, calls: Sequence[PairedCall]) -> dict[str, Any]:
    # Without raw copies: some integrations send them beside `tool_calls`, which has all calls.
    raw = ("tool_calls", "function_call")
    extra = {key: value for key, value in message.additional_kwargs.items() if key not in raw}
    for key, value in extra.items():
        if isinstance(value, dict) and key != PLACEHOLDER_KEY:
            extra[key] = _with_new_keys(value, calls)
    earlier = {
        p.new_id: [*p.call.earlier_ids, *([p.call.id] if p.call.id != p.new_id else ())]
        for p in calls
        if p.call.earlier_ids or p.call.id != p.new_id
    }
    if earlier:
        extra[PLACEHOLDER_KEY] = {"earlier_ids": earlier}
    return extra


def _with_new_keys(value: dict[Any, Any], calls: Sequence[PairedCall]) -> dict[Any, Any]:
    """A map by call ids under the new ids; an old one stays if another call keeps it."""
    written = {**value}
    written |= {p.new_id: value[p.call.id] for p in calls if p.call.id and p.call.id in value}
    gone = {p.call.id for p in calls if p.call.id} - {p.new_id for p in calls}
    return {key: item for key, item in written.items() if key not in gone}


# --- results ---------------------------------------------------------------------------


def write_result(message: ToolMessage, paired: PairedCall) -> ToolMessage:
    """`message` as the result of a call under its new id and name.

    The result of a custom tool call (OpenAI's Responses API: free text in, free text out)
    becomes a block of its own type; plain text would be the result of a function call.

    Returns:
        The same object if nothing has to change, else a copy.
    """
    new_id, name = paired.new_id, message.name
    update: dict[str, Any] = {}
    if paired.call.block_type == CUSTOM_CALL and not _is_custom_output(message):
        update["content"] = _as_custom_output(message)
    if message.tool_call_id != new_id:
        update["tool_call_id"] = new_id
    is_of_call = name == paired.call.name or not VALID_NAME.match(name or "x")
    if name is not None and name != paired.new_name and is_of_call:
        update["name"] = paired.new_name
    return message.model_copy(update=update) if update else message


def _is_custom_output(message: ToolMessage) -> bool:
    """Whether a result has the form of the result of a custom call."""
    return any(type_of(unwrapped(b)) == _CUSTOM_OUTPUT for b in dicts(message.content))


def _as_custom_output(message: ToolMessage) -> list[Any]:
    """The content in this form. Integrations send only the first block; all blocks are kept."""
    others = message.content if isinstance(message.content, list) else []
    return [{"type": _CUSTOM_OUTPUT, "output": str(message.text)}, *others]
