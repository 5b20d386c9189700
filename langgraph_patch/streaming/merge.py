"""Build a message from the chunks of a stream, complete or cut.

Everything but tool calls is merged by LangChain. LangChain's merging of tool calls is not used:
its JSON parser completes truncated arguments (`{"q": "wea` becomes `{"q": "wea"}`), and it joins
names. A call that the model did not finish would then look like one to run. This module parses
the raw arguments strictly instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias, cast

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call

from langgraph_patch.errors import StreamError
from langgraph_patch.history.calls import (
    CALL_BLOCKS,
    block_call_id,
    complete_args,
    text_of,
    type_of,
)
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.ids import derived_id
from langgraph_patch.history.streamed_calls import REASON_KEYS
from langgraph_patch.streaming.call_chunks import merge_tool_call_chunks
from langgraph_patch.streaming.chunk_facts import REASONING_BLOCKS
from langgraph_patch.streaming.sources import sync_iterator

UNFINISHED_KEY: Final = "langgraph_patch_unfinished"
"""Key in `additional_kwargs` of the content blocks that a cut left incomplete."""

_Block: TypeAlias = str | dict[str, Any]
_Blocks: TypeAlias = list[_Block]

_Calls: TypeAlias = Sequence[tuple[ToolCallChunk, dict[str, Any] | None]]
"""Merged tool call chunks, each with its parsed arguments; None if they are incomplete."""

_EXPECTED = "the chunks of one message"
_COLLECT = "Collect it first: message_from_stream([chunk async for chunk in stream])."

_NORMAL_END = re.compile(
    "(?:stop|tool_calls?|function_call|tool_use|end_turn|stop_sequence|completed?|eos|eos_token)+"
)
"""Reasons for which the model ended its turn by itself.

Any other reason counts as a cut: there are many, and a provider may add one at any time. A
reason may be repeated, since LangChain concatenates the reasons of merged chunks.
"""

_PAUSE_REASON = "pause_turn"
"""Claude is to be called again with the message as it is. Its server-side calls stay open."""

_SERVER_CALL_BLOCKS = frozenset(
    {"mcp_tool_use", "server_tool_call", "server_tool_call_chunk", "server_tool_use"}
)


# --- messages --------------------------------------------------------------------------


def message_from_stream(chunks: Iterable[AIMessage], *, ended: bool | None = None) -> AIMessage:
    """Build a message from the chunks that arrived, so that it can be stored.

    Text, reasoning, ids, usage and metadata are merged as LangChain merges them. Tool calls are
    merged by the rules of `merge_tool_call_chunks`. Only a call that the model finished, with a
    name and a complete JSON object as arguments, becomes one of `tool_calls`. Any other becomes
    one of `invalid_tool_calls`, with the raw text of its arguments; `patch_messages` then adds
    a tool message with the cause `malformed` for it. The content block of such a call keeps its
    position, with empty arguments. A call that came without an id gets one that is derived from
    the message's id and the call's position, so that a tool message can name it.

    Providers refuse some content that a cut left incomplete, in this turn and in every later
    one: reasoning at the end of a message, a server-side tool call without its result, a
    fragment of a content block without its beginning. Such blocks are moved, unchanged, from
    the content to `additional_kwargs[UNFINISHED_KEY]`.

    Args:
        chunks: The chunks of one message in the order of arrival, or the one whole message that
            a model with `disable_streaming` yields. They are not changed.
        ended: Whether the model finished the message. If so, a call that arrived without
            arguments is a call with no arguments; otherwise it is incomplete. Default: None,
            decide by the reason that the provider gives in the chunks: `"stop"`,
            `"tool_use"` and the like mean True; `"length"`, `"content_filter"`, any other
            reason and no reason mean False. In chunks that name no provider,
            `chunk_position="last"` without a reason means True, too.
            `ChatAnthropic(stream_usage=False)` gives no reason: pass `ended` yourself.

    Returns:
        The message. A whole message is returned as it is. If all chunks are empty, so is the
        message: do not store it, since some providers refuse an empty message.

    Raises:
        StreamError: If `chunks` holds anything but valid chunks of one message.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import message_from_stream
        >>> call = {"name": "weather", "args": '{"city": "Ro', "id": "c1", "index": 0}
        >>> chunks = [AIMessageChunk("Let me see."), AIMessageChunk("", tool_call_chunks=[call])]
        >>> message = message_from_stream(chunks)
        >>> message.text, message.tool_calls
        ('Let me see.', [])
        >>> message.invalid_tool_calls[0]["args"]
        '{"city": "Ro'
    """
    arrived = list(sync_iterator(chunks, expected=_EXPECTED, twin=_COLLECT))
    if not arrived:
        return AIMessage("")
    if len(arrived) == 1 and type(arrived[0]) is AIMessage:
        return arrived[0]
    arrived = [_checked(chunk) for chunk in arrived]
    paused = False
    if ended is None:
        ended, paused = _has_ended(arrived), _PAUSE_REASON in _reasons(arrived)
    raw_calls = merge_tool_call_chunks(raw for each in arrived for raw in each.tool_call_chunks)
    merged = _merge_chunks(arrived)
    calls = _parsed_calls(raw_calls, merged.id, ended=ended)
    content, unfinished = _split_content(merged.content, calls, ended=ended or paused)
    return AIMessage(
        content or "",  # some providers refuse an empty list and accept an empty text
        id=merged.id,
        tool_calls=[_tool_call(raw, args) for raw, args in calls if args is not None],
        invalid_tool_calls=[_invalid_tool_call(raw) for raw, args in calls if args is None],
        usage_metadata=merged.usage_metadata,
        response_metadata=merged.response_metadata,
        additional_kwargs=_additional_kwargs(merged, calls, unfinished),
    )


def _checked(chunk: object) -> AIMessageChunk:
    """The chunk, with the fields that LangChain's constructor would give it."""
    if not isinstance(chunk, AIMessageChunk):
        raise StreamError(
            f"Expected the chunks of one message (AIMessageChunk), or one whole AIMessage and "
            f"nothing else; got {chunk!r:.200}."
        )
    return cast("AIMessageChunk", corrected(chunk))


def _has_ended(chunks: Sequence[AIMessageChunk]) -> bool:
    if reasons := _reasons(chunks):
        return all(map(_NORMAL_END.fullmatch, reasons))
    # LangChain marks a chunk as last even if the connection was closed without an error. An
    # integration that names its provider also passes on the provider's reason.
    has_provider = any(chunk.response_metadata.get("model_provider") for chunk in chunks)
    return not has_provider and any(chunk.chunk_position == "last" for chunk in chunks)


def _reasons(chunks: Sequence[AIMessageChunk]) -> set[str]:
    metadata = [chunk.response_metadata for chunk in chunks]
    return {str(each[key]).lower() for each in metadata for key in REASON_KEYS if each.get(key)}


def _parsed_calls(merged: list[ToolCallChunk], message_id: str | None, *, ended: bool) -> _Calls:
    calls = [raw for raw in merged if raw.get("id") or raw.get("name") or raw.get("args")]
    for place, raw in enumerate(calls):
        raw["id"] = raw.get("id") or derived_id("", message_id, place)
    return [(raw, _parse_args(raw, ended=ended)) for raw in calls]


def _parse_args(raw: ToolCallChunk, *, ended: bool) -> dict[str, Any] | None:
    if not raw.get("name"):
        return None
    return complete_args(raw.get("args")) if raw.get("args") or ended else None


def _merge_chunks(chunks: Sequence[AIMessageChunk]) -> AIMessageChunk:
    # The position "last" makes LangChain replace content blocks that occur in streams only.
    last = AIMessageChunk(content="", chunk_position="last")
    try:
        return add_ai_message_chunks(*chunks, last)
    except Exception as error:  # LangChain raises various types here
        raise StreamError(
            f"The chunks of the message {chunks[0].id!r} cannot be merged: {error}. "
            "Expected the chunks of one message."
        ) from error


def _tool_call(raw: ToolCallChunk, args: dict[str, Any]) -> ToolCall:
    return tool_call(name=raw["name"] or "", args=args, id=raw.get("id"))


def _invalid_tool_call(raw: ToolCallChunk) -> InvalidToolCall:
    name = raw.get("name")
    return invalid_tool_call(
        name=name,
        args=raw.get("args") or "",
        id=raw.get("id"),
        error=(
            "The arguments of the tool call are not a complete JSON object."
            if name
            else "The tool call has no name."
        ),
    )


def _additional_kwargs(
    merged: AIMessageChunk, calls: _Calls, unfinished: _Blocks
) -> dict[str, Any]:
    kwargs = merged.additional_kwargs
    if any(args is None for _, args in calls):
        # Some integrations keep a raw copy of the calls here, with the incomplete arguments.
        kwargs = {key: value for key, value in kwargs.items() if key != "tool_calls"}
    return {**kwargs, UNFINISHED_KEY: unfinished} if unfinished else kwargs


# --- content blocks --------------------------------------------------------------------


def _split_content(
    content: str | _Blocks, calls: _Calls, *, ended: bool
) -> tuple[str | _Blocks, _Blocks]:
    """The content that a provider accepts, and the unchanged blocks that it would refuse."""
    if isinstance(content, str):
        return content, []
    args_by_id = {raw.get("id"): args for raw, args in calls}
    blocks = [_final_block(block, args_by_id) for block in content]
    removed = {index for index, block in enumerate(blocks) if block is None}
    if not ended:
        removed |= _server_calls_without_result(content)
        removed |= _reasoning_at_end(content, removed, args_by_id)
    kept = [
        block for index, block in enumerate(blocks) if index not in removed and block is not None
    ]
    return kept, [content[index] for index in sorted(removed)]


def _final_block(
    block: _Block, args_by_id: Mapping[str | None, dict[str, Any] | None]
) -> _Block | None:
    """The block as it is stored; None if it is a fragment of a block without its beginning.

    The block of a tool call gets the parsed arguments, or empty ones if they are incomplete.
    """
    if isinstance(block, str) or type_of(block) not in {*CALL_BLOCKS, "input_json_delta"}:
        return block
    kind = block["type"]
    if kind == "input_json_delta" or not (call_id := block_call_id(block)):
        return None
    if call_id not in args_by_id:
        return block
    _, args_key = CALL_BLOCKS[kind]
    args = args_by_id[call_id]
    if args is not None and args_key in block and kind != "tool_call_chunk":
        return block
    final = {key: value for key, value in block.items() if key != "partial_json"}
    final["type"] = "tool_call" if kind == "tool_call_chunk" else kind
    final[args_key] = "{}" if kind == "function_call" else args or {}
    return final


def _server_calls_without_result(content: _Blocks) -> set[int]:
    """The indexes of the server-side tool calls that have no result."""
    blocks = {index: block for index, block in enumerate(content) if isinstance(block, dict)}
    keys = ("tool_use_id", "tool_call_id")
    with_result = {text_of(block.get(key)) for block in blocks.values() for key in keys}
    return {
        index
        for index, block in blocks.items()
        if type_of(block) in _SERVER_CALL_BLOCKS and text_of(block.get("id")) not in with_result
    }


def _reasoning_at_end(
    content: _Blocks, removed: set[int], args_by_id: Mapping[str | None, object]
) -> set[int]:
    """The indexes of the reasoning blocks that no other block follows."""
    blocks = [block for block in content if isinstance(block, dict)]
    ids_in_content = {block_call_id(block) for block in blocks if type_of(block) in CALL_BLOCKS}
    if args_by_id.keys() - ids_in_content:
        return set()  # a provider receives the calls without a block after the content
    remaining = [index for index in range(len(content)) if index not in removed]
    return set(takewhile(lambda index: _is_reasoning(content[index]), reversed(remaining)))


def _is_reasoning(block: _Block) -> bool:
    return isinstance(block, dict) and type_of(block) in REASONING_BLOCKS
