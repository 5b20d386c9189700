"""Writes a changed id or name back, everywhere it stands, and says what a sound one is.

An id or a name stands in `tool_calls`, in content blocks, in the provider's raw form, in
maps keyed by call id, and in results. It changes in all of them at once or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from langgraph_patch.history.tool_calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    Call,
    block_call_id,
    call_blocks,
    has_result_blocks,
    is_result_block,
    text_of,
    type_of,
    unwrapped,
)

_CUSTOM_OUTPUT = f"{CUSTOM_CALL}_output"

MAX_ID = 40
VALID_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,40}\Z")
"""The ids that every wire carries: Bedrock's characters, and Chat Completions' length."""

MAX_NAME = 64
UNKNOWN_TOOL = "unknown_tool"
VALID_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def write_calls(message: AIMessage, calls: Sequence[tuple[Call, str, str]]) -> AIMessage:
    """A copy of `message` in which every call is listed, under its new id and name.

    The id changes everywhere at once: `tool_calls`, blocks, raw calls, and maps in
    `additional_kwargs` that are keyed by call id (Gemini's thought signatures).

    Args:
        message: The message as it is stored; it is not changed.
        calls: All its calls in the order of `read_calls`, each with its new id and name.
    """
    update: dict[str, Any] = {
        "tool_calls": [
            {**call.entry, "id": call_id, "name": name, "type": "tool_call"}
            for call, call_id, name in calls
        ],
        "invalid_tool_calls": [],
    }
    if (content := _written_blocks(message, calls)) != message.content:
        update["content"] = content
    if (extra := _renamed_kwargs(message, calls)) != message.additional_kwargs:
        update["additional_kwargs"] = extra
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = [_chunk_of(entry) for entry in update["tool_calls"]]
    return message.model_copy(update=update)


def _chunk_of(entry: Mapping[str, Any]) -> ToolCallChunk:
    """A listed call as LangChain writes it into a chunk: loaded again, the message is the same."""
    args = json.dumps(entry["args"], default=repr)
    return tool_call_chunk(name=entry["name"], args=args, id=entry["id"], index=None)


def _finder(
    calls: Sequence[tuple[Call, str, str]],
) -> Callable[[str], tuple[Call, str, str] | None]:
    """A function from the k-th mention of an id to its k-th call."""
    queues: dict[str, deque[tuple[Call, str, str]]] = defaultdict(deque)
    for found in calls:
        queues[found[0].id].append(found)
    return lambda stored: queues[stored].popleft() if queues.get(stored) else None


def _written_blocks(message: AIMessage, calls: Sequence[tuple[Call, str, str]]) -> Any:
    if not isinstance(message.content, list):
        return message.content
    content: list[Any] = list(message.content)
    find = _finder([found for found in calls if found[0].block_type is not None])
    for place, block in call_blocks(message):
        if (found := find(block_call_id(block))) is None:
            continue
        written = _written_block(block, *found)
        outer = content[place]
        content[place] = written if outer is block else {**outer, "value": written}
    return content


def _written_block(
    block: Mapping[str, Any], call: Call, call_id: str, name: str
) -> Mapping[str, Any]:
    written = {**block, CALL_BLOCKS[block["type"]][0]: call_id, "name": name}
    if block["type"] == "tool_use" and (
        call.raw is not None or "partial_json" in block or not isinstance(block.get("input"), dict)
    ):
        written.pop("partial_json", None)
        written["input"] = dict(call.args)  # a block with a `caller` is sent as it is: never a text
    return written


def _renamed_kwargs(message: AIMessage, calls: Sequence[tuple[Call, str, str]]) -> dict[str, Any]:
    extra = dict(message.additional_kwargs)
    kept = {call_id for call, call_id, _ in calls if call.id == call_id}
    for key, value in extra.items():
        if isinstance(value, dict) and key != "function_call":
            extra[key] = _rekeyed(value, calls, kept)
    if isinstance(raw := extra.get("tool_calls"), list):
        extra["tool_calls"] = _renamed_raw(raw, calls)
    if any(call.source == "additional_kwargs" for call, _, _ in calls):
        extra.pop("function_call", None)  # it is listed now: said once, not twice
    return extra


def _rekeyed(
    value: dict[Any, Any], calls: Sequence[tuple[Call, str, str]], kept: set[str]
) -> dict[Any, Any]:
    moved = dict(value)
    for call, call_id, _ in calls:
        if call.id and call.id != call_id and call.id in value:
            moved[call_id] = value[call.id]
            if call.id not in kept:
                moved.pop(call.id, None)
    return moved


def _renamed_raw(raw: list[Any], calls: Sequence[tuple[Call, str, str]]) -> list[Any]:
    find = _finder(calls)
    out = []
    for entry in raw:
        found = find(text_of(entry.get("id"))) if isinstance(entry, dict) else None
        if found is None:
            out.append(entry)
            continue
        _, call_id, name = found
        function = entry.get("function")
        function = {**function, "name": name} if isinstance(function, dict) else function
        out.append({**entry, "id": call_id, "function": function})
    return out


# --- results ---------------------------------------------------------------------------


def point_result(message: ToolMessage, old: Call, call_id: str, name: str) -> ToolMessage:
    """`message` as the result of the call that is now called `call_id` and `name`.

    The result of a custom tool call (OpenAI's Responses API: free text in, free text out)
    stands in a block of its own; as plain text it would answer a function call.

    Returns:
        The same object if nothing has to change, else a copy.
    """
    update: dict[str, Any] = {}
    content: Any = message.content
    if old.block_type == CUSTOM_CALL:
        content = _as_custom_output(message)
    if message.tool_call_id != call_id:
        update["tool_call_id"] = call_id
        content = _repointed(content, message.tool_call_id, call_id)
    if content is not message.content:
        update["content"] = content
    if (
        message.name is not None
        and message.name != name
        and (message.name == old.name or not VALID_NAME.match(message.name))
    ):
        update["name"] = name
    return message.model_copy(update=update) if update else message


def _as_custom_output(message: ToolMessage) -> str | list[Any]:
    """The content in the form of a custom call's output; the same object if it has that form.

    Only its first block is sent. What is no text stays behind it.
    """
    content = message.content
    if isinstance(content, str):
        return [{"type": _CUSTOM_OUTPUT, "output": content}]
    dicts = [block for block in content if isinstance(block, dict)]
    if any(type_of(unwrapped(block)) == _CUSTOM_OUTPUT for block in dicts):
        return content
    others = [block for block in dicts if block.get("type") != "text"]
    return [{"type": _CUSTOM_OUTPUT, "output": str(message.text)}, *others]


def _repointed(content: Any, old_id: str, new_id: str) -> Any:
    """Blocks inside a result that name the call themselves, under its new id."""
    if not isinstance(content, list):
        return content
    return [
        _repointed_block(block, old_id, new_id) if isinstance(block, dict) else block
        for block in content
    ]


def _repointed_block(block: Mapping[str, Any], old_id: str, new_id: str) -> dict[str, Any]:
    inner = unwrapped(block)
    ids = {key: new_id for key in ("tool_use_id", "call_id") if inner.get(key) == old_id}
    return {**block, **ids} if inner is block else {**block, "value": {**inner, **ids}}


def rest_of(message: BaseMessage) -> BaseMessage | None:
    """What is left of a message when its results are taken out; None if nothing is."""
    if not isinstance(message, HumanMessage) or not has_result_blocks(message):
        return None
    rest = [block for block in message.content if not is_result_block(block)]
    extra = {k: v for k, v in message.additional_kwargs.items() if k != "tool_call_id"}
    update = {"content": rest, "additional_kwargs": extra}
    return message.model_copy(update=update) if rest else None


# --- ids and names ---------------------------------------------------------------------


def valid_name(name: str) -> str:
    """`name` as every wire accepts it; the same string if it is fine already."""
    if VALID_NAME.match(name):
        return name
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name[:MAX_NAME]) or UNKNOWN_TOOL


_DIGEST = 8


def derived_id(call_id: str, message_id: str | None, ordinal: int, salt: int = 0) -> str:
    """A call id made of what is known: the same history gives the same id.

    The start of the old id stays readable, so that `origin_of` can find its family.
    """
    digest = digest_of("call", call_id, message_id, ordinal, salt)[:_DIGEST]
    return f"{family_of(call_id)}_{digest}"


def origin_of(call_id: str) -> str | None:
    """The start of the id from which `call_id` may have been derived, or None."""
    head, _, digest = call_id.rpartition("_")
    return head if head and re.fullmatch(r"[0-9a-f]{8}", digest) else None


def family_of(call_id: str) -> str:
    """The start of an id that all ids derived from it share."""
    return re.sub(r"[^a-zA-Z0-9_.:-]", "_", call_id[: MAX_ID - _DIGEST - 1]) or "call"


def digest_of(*parts: object) -> str:
    """A digest of `parts` that no choice of separators inside them can confuse."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
