"""Reads calls and results off a message, whatever its shape.

This is the one place that knows where a tool call can stand in an `AIMessage`
(`tool_calls`, `invalid_tool_calls`, a content block, raw `additional_kwargs`) and
in which messages a result can hide (`ToolMessage`, `FunctionMessage`,
`ChatMessage`, `HumanMessage`). It knows nothing of order or of pairs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

CUSTOM_CALL = "custom_tool_call"

CALL_BLOCKS: Mapping[str, tuple[str, str]] = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "tool_call_chunk": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    CUSTOM_CALL: ("call_id", "input"),
}
"""Content blocks that are client-side calls -> the keys of their id and arguments.

Server-side tool blocks (`server_tool_use`, `web_search_call`, ...) are the provider's own.
"""

Source = Literal["tool_calls", "invalid_tool_calls", "content", "additional_kwargs"]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of an `AIMessage`.

    Attributes:
        id: The call's id as it is stored; `""` where there is none.
        name: The tool's name as it is stored; `""` where there is none.
        args: The arguments; `{}` if they are malformed.
        raw: The text of arguments that are no complete JSON object, else None.
        source: Where the call was found first.
        block_type: The type of the content block that carries it, if one does.
        entry: The call as it should stand in `tool_calls`, save for a new id or name.
        listed: Whether it stands in `tool_calls` as it should.
    """

    id: str
    name: str
    args: Mapping[str, Any]
    raw: str | None
    source: Source
    block_type: str | None
    entry: Mapping[str, Any]
    listed: bool


@dataclass(frozen=True, slots=True)
class Result:
    """One answer to a call, in the form in which it should stand.

    Attributes:
        call_id: The call that it names, or None if it names none.
        name: The tool that it names, or None.
        message: The answer as a `ToolMessage`.
        native: Whether it was stored as a `ToolMessage` already.
        certain: False for a human message that only carries a call's id: it is a
            result if that call has no other.
    """

    call_id: str | None
    name: str | None
    message: ToolMessage
    native: bool
    certain: bool = True


# --- reading calls ---------------------------------------------------------------------


def read_calls(message: AIMessage) -> list[Call]:
    """Every call of `message`, once: listed, invalid, in a block only, raw only."""
    blocks = _blocks_by_id(message)
    raws = _raw_args_of_chunk(message)
    calls = [_call(entry, "tool_calls", blocks, raws) for entry in _dicts(message.tool_calls)]
    calls += [
        _call(entry, "invalid_tool_calls", blocks, raws)
        for entry in _dicts(message.invalid_tool_calls)
    ]
    calls += [_call_of_block(block) for left in blocks.values() for block in left]
    return calls or [_call_of_raw(raw) for raw in _raw_calls(message)]


def _call(
    entry: Mapping[str, Any],
    source: Source,
    blocks: Mapping[str, list[Mapping[str, Any]]],
    raws: Mapping[str, list[Any]],
) -> Call:
    call_id = text_of(entry.get("id"))
    block = blocks[call_id].pop(0) if blocks.get(call_id) else None
    stored = entry.get("args")
    if raws.get(call_id) and complete_args(raw := raws[call_id].pop(0)) is None:
        stored = raw  # the model did not finish it, whatever the partial parser made of it
    return _new_call(
        call_id,
        entry.get("name"),
        stored,
        source,
        block_type=block["type"] if block else None,
        entry=entry if source == "tool_calls" else None,
    )


def _call_of_block(block: Mapping[str, Any]) -> Call:
    id_key, args_key = CALL_BLOCKS[block["type"]]
    args = block.get(args_key)
    if block["type"] == "tool_use" and not args:
        args = block.get("partial_json", args)  # a piece of Claude's stream
    if block["type"] == CUSTOM_CALL:
        args = {"__arg1": args}  # the form that langchain-openai gives to free-text input
    return _new_call(
        text_of(block.get(id_key)), block.get("name"), args, "content", block_type=block["type"]
    )


def _call_of_raw(raw: Mapping[str, Any]) -> Call:
    function = raw.get("function")
    function = function if isinstance(function, Mapping) else {}
    return _new_call(
        text_of(raw.get("id")), function.get("name"), function.get("arguments"), "additional_kwargs"
    )


def _new_call(
    call_id: str,
    name: object,
    stored_args: object,
    source: Source,
    *,
    block_type: str | None = None,
    entry: Mapping[str, Any] | None = None,
) -> Call:
    # Empty arguments that were found invalid are those of a call that the model did not finish.
    unfinished = source == "invalid_tool_calls" and not stored_args
    args = None if unfinished else complete_args(stored_args)
    text = text_of(name)
    built = {"name": text, "args": args or {}, "id": call_id}
    return Call(
        id=call_id,
        name=text,
        args=args or {},
        raw=None if args is not None else _raw_text(stored_args),
        source=source,
        block_type=block_type,
        entry={**(entry or {}), **built},
        listed=entry is not None and entry.get("args") is args,
    )


def complete_args(stored: object) -> dict[str, Any] | None:
    """The arguments as an object, or None if they are not a complete JSON object.

    Complete on purpose: LangChain's partial parser turns `{"q": "wea` into a valid call. Like
    that parser it takes raw newlines in texts: the tool may have run. Empty or absent
    arguments are those of a tool that takes none.
    """
    if isinstance(stored, dict):
        return stored
    if stored is None or stored == "":
        return {}
    if not isinstance(stored, str):
        return None
    try:
        parsed = json.loads(stored, strict=False)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _raw_text(stored: object) -> str:
    return stored if isinstance(stored, str) else "" if stored is None else repr(stored)


def call_blocks(message: AIMessage) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The content blocks of `message` that are client-side calls, with their places."""
    if isinstance(message.content, list):
        for place, block in enumerate(message.content):
            if isinstance(block, dict):
                inner = unwrapped(block)
                if type_of(inner) in CALL_BLOCKS:
                    yield place, inner


def unwrapped(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The block inside a `non_standard` block of LangChain's v1 content, else the block."""
    if block.get("type") != "non_standard":
        return block
    value = block.get("value")
    return value if isinstance(value, Mapping) else block


def type_of(block: Mapping[str, Any]) -> str:
    """What a content block is; nothing if it does not say so in a word."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _blocks_by_id(message: AIMessage) -> dict[str, list[Mapping[str, Any]]]:
    blocks: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for _, block in call_blocks(message):
        blocks[block_call_id(block)].append(block)
    return blocks


def block_call_id(block: Mapping[str, Any]) -> str:
    """The id by which a content block names its call."""
    return text_of(block.get(CALL_BLOCKS[block["type"]][0]))


def _raw_args_of_chunk(message: AIMessage) -> dict[str, list[Any]]:
    raws: dict[str, list[Any]] = defaultdict(list)
    if isinstance(message, AIMessageChunk):
        for chunk in _dicts(message.tool_call_chunks):
            raws[text_of(chunk.get("id"))].append(chunk.get("args"))
    return raws


def _raw_calls(message: AIMessage) -> Iterator[Mapping[str, Any]]:
    """Calls that only the provider's raw form knows: wires send them if nothing else is there."""
    raw = message.additional_kwargs.get("tool_calls")
    if raw:
        yield from _dicts(raw)
    elif isinstance(function := message.additional_kwargs.get("function_call"), dict):
        yield {"function": function}


def computer_call_ids(message: AIMessage) -> set[str]:
    """The ids of OpenAI's computer calls, which stand beside all other calls.

    They are never listed: they stand in content (in v1 inside `non_standard`), in v0 in
    `additional_kwargs`. Their results are `ToolMessage`s of a form that is OpenAI's own.
    """
    blocks = [*_dicts(message.content), *_dicts(message.additional_kwargs.get("tool_outputs"))]
    found = [block for block in map(unwrapped, blocks) if type_of(block) == "computer_call"]
    return {call_id for block in found if (call_id := text_of(block.get("call_id")))}


# --- reading results -------------------------------------------------------


def read_results(message: BaseMessage) -> list[Result]:
    """The answers that `message` holds; an empty list if it holds none."""
    if isinstance(message, ToolMessage):
        return [Result(text_of(message.tool_call_id), message.name, message, native=True)]
    if isinstance(message, FunctionMessage):
        return [Result(None, message.name, _as_tool_message(message, ""), native=False)]
    if isinstance(message, ChatMessage):
        return _results_of_chat(message)
    if isinstance(message, HumanMessage):
        return _results_of_human(message)
    return []


def _results_of_chat(message: ChatMessage) -> list[Result]:
    if message.role not in {"tool", "function"}:
        return []
    call_id = message.additional_kwargs.get("tool_call_id")
    call_id = call_id if isinstance(call_id, str) else None
    name = message.name or message.additional_kwargs.get("name")
    name = name if isinstance(name, str) else None
    return [Result(call_id, name, _as_tool_message(message, call_id or ""), native=False)]


def _results_of_human(message: HumanMessage) -> list[Result]:
    results = [
        Result(
            text_of(block.get("tool_use_id")),
            None,
            ToolMessage(
                content=_content_of(block.get("content")),
                tool_call_id=text_of(block.get("tool_use_id")),
                status="error" if block.get("is_error") else "success",
            ),
            native=False,
        )
        for block in _result_blocks(message)
    ]
    call_id = message.additional_kwargs.get("tool_call_id")
    if not results and isinstance(call_id, str):
        converted = _as_tool_message(message, call_id)
        return [Result(call_id, None, converted, native=False, certain=False)]
    return results


def has_result_blocks(message: HumanMessage) -> bool:
    """Whether a human message carries `tool_result` blocks."""
    return any(True for _ in _result_blocks(message))


def _result_blocks(message: HumanMessage) -> Iterator[Mapping[str, Any]]:
    return filter(is_result_block, _dicts(message.content))


def is_result_block(block: object) -> bool:
    """Whether a content block is Anthropic's form of a result."""
    return isinstance(block, dict) and block.get("type") == "tool_result"


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


def text_of(value: object) -> str:
    """An id or a name as a string; nothing is the empty one."""
    return "" if value is None else str(value)


def _dicts(values: object) -> Iterable[Mapping[str, Any]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []
