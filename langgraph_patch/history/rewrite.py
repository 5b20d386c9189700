"""Rename a tool call: write a new id or tool name everywhere it occurs.

An id or a name occurs in `tool_calls`, in content blocks, in the provider's raw calls, in maps
with call ids as keys, and in results. `write_calls` changes all places of an `AIMessage` at
once, `write_result` those of a `ToolMessage`.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from langgraph_patch.history.calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    Call,
    block_call_id,
    call_blocks,
    text_of,
    type_of,
    unwrapped,
)
from langgraph_patch.history.ids import PLACEHOLDER_KEY, VALID_NAME

_CUSTOM_OUTPUT = f"{CUSTOM_CALL}_output"


class Renaming(NamedTuple):
    """A call with its new id and name, which may be the stored ones."""

    call: Call
    new_id: str
    new_name: str


# --- calls -----------------------------------------------------------------------------


def write_calls(message: AIMessage, renamings: Sequence[Renaming]) -> AIMessage:
    """A copy of `message` that has every call in `tool_calls`, under its new id and name.

    The new id is also written into content blocks, into raw calls, and into the maps in
    `additional_kwargs` with call ids as keys (Gemini's thought signatures).

    Args:
        message: The message as it is stored; it is not changed.
        renamings: All its calls, in the order of `read_calls`.
    """
    update: dict[str, Any] = {
        "tool_calls": [
            {
                **(call.tool_call or {"args": dict(call.args)}),
                "id": new_id,
                "name": new_name,
                "type": "tool_call",
            }
            for call, new_id, new_name in renamings
        ],
        "invalid_tool_calls": [],
    }
    if (content := _written_content(message, renamings)) != message.content:
        update["content"] = content
    if (extra := _written_kwargs(message, renamings)) != message.additional_kwargs:
        update["additional_kwargs"] = extra
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = [_as_chunk(call) for call in update["tool_calls"]]
    return message.model_copy(update=update)


def _as_chunk(tool_call: Mapping[str, Any]) -> ToolCallChunk:
    """The chunk from which LangChain makes this very call when it loads the message."""
    args = json.dumps(tool_call["args"], default=repr)
    return tool_call_chunk(name=tool_call["name"], args=args, id=tool_call["id"], index=None)


def _by_occurrence(renamings: Sequence[Renaming]) -> Callable[[str], Renaming | None]:
    """A function that returns, for the k-th occurrence of a stored id, its k-th renaming."""
    queues: dict[str, deque[Renaming]] = defaultdict(deque)
    for renaming in renamings:
        queues[renaming.call.id].append(renaming)
    return lambda stored: queues[stored].popleft() if queues.get(stored) else None


def _written_content(message: AIMessage, renamings: Sequence[Renaming]) -> Any:
    if not isinstance(message.content, list):
        return message.content
    content: list[Any] = list(message.content)
    next_renaming = _by_occurrence([r for r in renamings if r.call.block_type is not None])
    for index, block in call_blocks(message):
        if (renaming := next_renaming(block_call_id(block))) is None:
            continue
        written = _written_block(block, renaming)
        outer = content[index]
        content[index] = written if outer is block else {**outer, "value": written}
    return content


def _written_block(block: Mapping[str, Any], renaming: Renaming) -> Mapping[str, Any]:
    call = renaming.call
    id_key, _ = CALL_BLOCKS[block["type"]]
    written = {**block, id_key: renaming.new_id, "name": renaming.new_name}
    if block["type"] == "tool_use" and (
        call.raw_args is not None
        or "partial_json" in block
        or not isinstance(block.get("input"), dict)
    ):
        written.pop("partial_json", None)
        # An integration sends a block with a `caller` as it is: its input must be a dict.
        written["input"] = dict(call.args)
    return written


def _written_kwargs(message: AIMessage, renamings: Sequence[Renaming]) -> dict[str, Any]:
    extra = dict(message.additional_kwargs)
    kept_ids = {call.id for call, new_id, _ in renamings if call.id == new_id}
    for key, value in extra.items():
        if isinstance(value, dict) and key not in ("function_call", PLACEHOLDER_KEY):
            extra[key] = _with_new_keys(value, renamings, kept_ids)
    if isinstance(raw_calls := extra.get("tool_calls"), list):
        extra["tool_calls"] = _written_raw_calls(raw_calls, renamings)
    if any(call.source == "additional_kwargs" for call, _, _ in renamings):
        extra.pop("function_call", None)  # `tool_calls` of the message has it now
    earlier = {
        new_id: [*call.earlier_ids, *([call.id] if call.id != new_id else [])]
        for call, new_id, _ in renamings
        if call.earlier_ids or call.id != new_id
    }
    if earlier:
        mark = extra.get(PLACEHOLDER_KEY)
        extra[PLACEHOLDER_KEY] = {
            **(mark if isinstance(mark, dict) else {}),
            "earlier_ids": earlier,
        }
    return extra


def _with_new_keys(
    value: dict[Any, Any], renamings: Sequence[Renaming], kept_ids: set[str]
) -> dict[Any, Any]:
    written = dict(value)
    for call, new_id, _ in renamings:
        if call.id and call.id != new_id and call.id in value:
            written[new_id] = value[call.id]
            if call.id not in kept_ids:
                written.pop(call.id, None)
    return written


def _written_raw_calls(raw_calls: list[Any], renamings: Sequence[Renaming]) -> list[Any]:
    next_renaming = _by_occurrence(renamings)
    return [
        _written_raw_call(raw, next_renaming(text_of(raw.get("id"))))
        if isinstance(raw, dict)
        else raw
        for raw in raw_calls
    ]


def _written_raw_call(raw: dict[str, Any], renaming: Renaming | None) -> dict[str, Any]:
    if renaming is None:
        return raw
    function = raw.get("function")
    if isinstance(function, dict):
        function = {**function, "name": renaming.new_name}
    return {**raw, "id": renaming.new_id, "function": function}


# --- results ---------------------------------------------------------------------------


def write_result(message: ToolMessage, renaming: Renaming) -> ToolMessage:
    """`message` as the result of a call under its new id and name.

    The result of a custom tool call (OpenAI's Responses API: free text in, free text out)
    becomes a block of its own type; plain text would be the result of a function call.

    Returns:
        The same object if nothing has to change, else a copy.
    """
    call, new_id, new_name = renaming
    update: dict[str, Any] = {}
    content: Any = message.content
    if call.block_type == CUSTOM_CALL:
        content = _as_custom_output(message)
    if message.tool_call_id != new_id:
        update["tool_call_id"] = new_id
        content = _with_new_id(content, message.tool_call_id, new_id)
    if content is not message.content:
        update["content"] = content
    if (
        message.name is not None
        and message.name != new_name
        and (message.name == call.name or not VALID_NAME.match(message.name))
    ):
        update["name"] = new_name
    return message.model_copy(update=update) if update else message


def _as_custom_output(message: ToolMessage) -> str | list[Any]:
    """The content as the output of a custom call; the same object if it is one already.

    Integrations send only the first block; blocks that are not text are kept after it.
    """
    content = message.content
    if isinstance(content, str):
        return [{"type": _CUSTOM_OUTPUT, "output": content}]
    blocks = [block for block in content if isinstance(block, dict)]
    if any(type_of(unwrapped(block)) == _CUSTOM_OUTPUT for block in blocks):
        return content
    others = [block for block in blocks if block.get("type") != "text"]
    return [{"type": _CUSTOM_OUTPUT, "output": str(message.text)}, *others]


def _with_new_id(content: Any, old_id: str, new_id: str) -> Any:
    """The content of a result; blocks in it that contain the id of the call get the new one."""
    if not isinstance(content, list):
        return content
    return [
        _block_with_new_id(block, old_id, new_id) if isinstance(block, dict) else block
        for block in content
    ]


def _block_with_new_id(block: Mapping[str, Any], old_id: str, new_id: str) -> dict[str, Any]:
    inner = unwrapped(block)
    ids = {key: new_id for key in ("tool_use_id", "call_id") if inner.get(key) == old_id}
    return {**block, **ids} if inner is block else {**block, "value": {**inner, **ids}}
