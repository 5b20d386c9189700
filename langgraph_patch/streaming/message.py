"""Build a message from the chunks of a stream, complete or cut.

Everything but tool calls is merged by LangChain. LangChain's merging of tool calls is not used:
its JSON parser completes truncated arguments (`{"q": "wea` becomes `{"q": "wea"}`), and it joins
names. A call that the model did not finish would then look like one to run. This module parses
the raw arguments strictly instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call

from langgraph_patch._text import short
from langgraph_patch.asking.streamed_calls import REASON_KEYS, group_call_chunks
from langgraph_patch.errors import MessagesError
from langgraph_patch.history.calls import complete_args
from langgraph_patch.history.fields import Block, blocks_of, digest_of
from langgraph_patch.streaming.streams import open_stream

UNFINISHED_KEY: Final = "langgraph_patch_unfinished"
"""Key in `additional_kwargs` of the content blocks that a cut left incomplete."""

_COLLECT = "collect it to a list first: [chunk async for chunk in stream]"

_Args: TypeAlias = Mapping[str | None, dict[str, Any] | None]
"""The parsed arguments of each call by its id; None if they are incomplete."""

_NORMAL_END = re.compile(
    "(?:stop|tool_calls?|function_call|tool_use|end_turn|stop_sequence|completed?|eos|eos_token)+"
)
"""Reasons for which the model ended its turn by itself.

Any other reason counts as a cut: there are many, and a provider may add one at any time. A
reason may be repeated, since LangChain concatenates the reasons of merged chunks.
"""

_PAUSE_REASON = "pause_turn"
"""Claude is to be called again with the message as it is. Its server-side calls stay open."""

_INCOMPLETE = "The tool call has no name, or its arguments are not a complete JSON object."

_SERVER_CALL_BLOCKS = frozenset(
    {"mcp_tool_use", "server_tool_call", "server_tool_call_chunk", "server_tool_use"}
)


# --- messages --------------------------------------------------------------------------


def message_from_stream(chunks: Iterable[AIMessage], *, ended: bool | None = None) -> AIMessage:
    """Build a message from the chunks that arrived, so that it can be stored.

    Only a call that the model finished, with a name and a complete JSON object as arguments,
    becomes one of `tool_calls`. Any other becomes one of `invalid_tool_calls`, with the raw text of
    its arguments; `patch_messages` then adds a tool message with the cause `malformed` for it. A
    call that came without an id gets one that is derived from the message's id and the call's
    position.

    Blocks that a cut left incomplete, and that providers refuse (reasoning at the end, a
    server-side tool call without its result), are moved, unchanged, from the content to
    `additional_kwargs[UNFINISHED_KEY]`.

    Args:
        chunks: The chunks of one message in the order of arrival, or the one whole message that
            a model with `disable_streaming` yields. They are not changed.
        ended: Whether the model finished the message: then a call without arguments is complete.
            Default: None, decide by the reason that the provider gives (`"stop"`, `"tool_use"`
            and the like), or by `chunk_position="last"` in chunks that name no provider.
            `ChatAnthropic(stream_usage=False)` gives no reason: pass `ended` yourself.

    Returns:
        The message. If nothing but empty chunks and reasoning arrived, its content and its calls
        are empty: do not store it, since some providers refuse an empty message.

    Raises:
        MessagesError: If `chunks` holds anything but valid chunks of one message.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import message_from_stream
        >>> call = {"name": "weather", "args": '{"city": "Ro', "id": "c1", "index": 0}
        >>> chunks = [AIMessageChunk("Let me see."), AIMessageChunk("", tool_call_chunks=[call])]
        >>> message = message_from_stream(chunks)
        >>> message.text, message.tool_calls
        ('Let me see.', [])
        >>> message.invalid_tool_calls[0]["args"]
        '{"city": "Ro'
    """
    arrived = list(open_stream(chunks, expected="the chunks of one message", remedy=_COLLECT))
    if len(arrived) == 1 and type(arrived[0]) is AIMessage:
        return arrived[0]
    for chunk in arrived:
        if not isinstance(chunk, AIMessageChunk):
            raise MessagesError(
                f"Expected the chunks of one message (AIMessageChunk), or one whole AIMessage and "
                f"nothing else; got {short(chunk)}."
            )
    paused = ended is None and _PAUSE_REASON in _reasons(arrived)
    ended = _has_ended(arrived) if ended is None else ended
    merged = _merge_chunks(arrived)
    raw_calls = merge_tool_call_chunks(raw for each in arrived for raw in each.tool_call_chunks)
    calls, invalid = _parsed_calls(raw_calls, merged.id, ended=ended)
    args = {call["id"]: call["args"] for call in calls} | {call["id"]: None for call in invalid}
    content, unfinished = _split_content(merged, args, ended=ended or paused)
    kwargs = {**merged.additional_kwargs}
    if invalid:
        # Some integrations keep a raw copy of the calls here, with the incomplete arguments.
        kwargs.pop("tool_calls", None)
    if unfinished:
        kwargs[UNFINISHED_KEY] = unfinished
    return AIMessage(
        content or "",  # some providers refuse an empty list and accept an empty text
        id=merged.id,
        tool_calls=calls,
        invalid_tool_calls=invalid,
        usage_metadata=merged.usage_metadata,
        response_metadata=merged.response_metadata,
        additional_kwargs=kwargs,
    )


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


def _merge_chunks(chunks: Sequence[AIMessageChunk]) -> AIMessageChunk:
    # The position "last" makes LangChain replace content blocks that occur in streams only.
    last = AIMessageChunk(content="", chunk_position="last")
    try:
        return add_ai_message_chunks(*chunks, last)
    except Exception as error:  # LangChain raises various types here
        raise MessagesError(
            f"The chunks of the message {chunks[0].id!r} cannot be merged: {error}. "
            "Expected the chunks of one message."
        ) from error


# --- tool calls --------------------------------------------------------------------------


def merge_tool_call_chunks(chunks: Iterable[ToolCallChunk]) -> list[ToolCallChunk]:
    """Merge the tool call chunks of a stream into one entry for each call.

    Chunks with the same index belong to one call, until a chunk comes with another id. A chunk
    without an index begins a call if it has a name or an id that the newest call does not have;
    otherwise it continues the newest call. Names and ids arrive whole, and may be repeated. The
    arguments are concatenated, and not parsed.

    Args:
        chunks: The chunks in the order of arrival: the entries of
            `AIMessageChunk.tool_call_chunks`. They are not changed.

    Returns:
        The calls: first those without an index in the order of arrival, then the others by index.
        A call that came without an id has none.

    Raises:
        MessagesError: If two chunks of a call have different types or names, or if `chunks`
            is anything but tool call chunks.

    Examples:
        A server that sends index 0 for every call:

        >>> from langgraph_patch import merge_tool_call_chunks
        >>> chunks = [
        ...     {"name": "weather", "args": "", "id": "c1", "index": 0},
        ...     {"name": None, "args": '{"city": "Rome"}', "id": None, "index": 0},
        ...     {"name": "now", "args": "{}", "id": "c2", "index": 0},
        ... ]
        >>> for call in merge_tool_call_chunks(chunks):
        ...     print(call["id"], call["name"], call["args"])
        c1 weather {"city": "Rome"}
        c2 now {}
    """
    arrived = list(open_stream(chunks, expected="an iterable of tool call chunks", remedy=_COLLECT))
    for chunk in arrived:
        _check(chunk)
    merged = [_merge_one_call(call.chunks) for call in group_call_chunks(arrived)]
    return sorted(merged, key=_position)


def _check(chunk: object) -> None:
    """Raise a `MessagesError` for anything but a tool call chunk."""
    if isinstance(chunk, Mapping):
        strings = (chunk.get(key) for key in ("name", "args", "id", "type"))
        index_is_valid = isinstance(chunk.get("index"), int | str | None)
        if index_is_valid and all(isinstance(string, str | None) for string in strings):
            return
    raise MessagesError(
        f"{short(chunk)} is not a tool call chunk. Expected a dict with strings or None as name, "
        "args, id and type, and an integer or None as index."
    )


def _position(call: ToolCallChunk) -> tuple[bool, bool, Any]:
    """Calls without an index, then by index; LangChain's indexes of v1 blocks are strings."""
    index: Any = call.get("index")
    return index is not None, isinstance(index, str), 0 if index is None else index


def _merge_one_call(chunks: Sequence[ToolCallChunk]) -> ToolCallChunk:
    if len(chunks) == 1:
        return chunks[0].copy()
    merged: dict[str, Any] = {**chunks[0]}
    for key in ("id", "type", "name"):
        values = [value for chunk in chunks if (value := chunk.get(key))]
        if other := next((value for value in values if value != values[0]), None):
            raise MessagesError(
                f"The chunks of the tool call with index {merged.get('index')!r} have different "
                f"{key}s: {values[0]!r} and {other!r}. Expected one {key} for each call."
            )
        if values:
            merged[key] = values[0]
    merged["args"] = "".join(chunk.get("args") or "" for chunk in chunks)
    return cast("ToolCallChunk", merged)


def _parsed_calls(
    merged: Iterable[ToolCallChunk], message_id: str | None, *, ended: bool
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """The calls that the model finished, and the others. Each has an id."""
    calls, invalid = [], []
    listed = [raw for raw in merged if raw.get("id") or raw.get("name") or raw.get("args")]
    for place, raw in enumerate(listed):
        name, text = raw.get("name"), raw.get("args") or ""
        # One without an id gets the same one each time.
        call_id = raw.get("id") or f"call_{digest_of('call', message_id, place)[:8]}"
        args = complete_args(text) if text or ended else None
        if name and args is not None:
            calls.append(tool_call(name=name, args=args, id=call_id))
        else:
            invalid.append(invalid_tool_call(name=name, args=text, id=call_id, error=_INCOMPLETE))
    return calls, invalid


# --- content blocks --------------------------------------------------------------------


def _split_content(
    message: AIMessage, args_by_id: _Args, *, ended: bool
) -> tuple[str | list[Any], list[Any]]:
    """The content that a provider accepts, and the unchanged blocks that it would refuse."""
    if isinstance(message.content, str):
        return message.content, []
    blocks = blocks_of(message)
    final = [_final_block(block, args_by_id) for block in blocks]
    if not ended:
        with_result = {block.result_id for block in blocks}
        for index, block in enumerate(blocks):
            if block.kind in _SERVER_CALL_BLOCKS and block.call_id not in with_result:
                final[index] = None
        ids_in_content = {block.call_id for block in blocks if block.is_call}
        if ids_in_content.issuperset(args_by_id):  # other calls are sent behind the content
            says = [b is not None and not b.is_reasoning for b in final]
            end = max((place for place, is_said in enumerate(says, 1) if is_said), default=0)
            final[end:] = [None] * len(final[end:])  # reasoning that nothing follows
    unfinished = [b.stored for b, kept in zip(blocks, final, strict=True) if kept is None]
    return [block.stored for block in final if block is not None], unfinished


def _final_block(block: Block, args_by_id: _Args) -> Block | None:
    """The block as it is stored; None if it is a fragment of a block without its beginning.

    The block of a tool call gets the parsed arguments, or empty ones if they are incomplete.
    """
    if block.kind == "input_json_delta":
        return None
    if not block.is_call:
        return block
    if block.call_id not in args_by_id:
        return block if block.call_id else None
    args = args_by_id[block.call_id]
    has_args = block.args is not None and block.kind != "tool_call_chunk"
    return block if args is not None and has_args else block.with_args(args or {})
