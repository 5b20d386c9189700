"""Makes a message out of the chunks of a stream, also of one that was cut.

LangChain's own merging is kept for everything but calls. Its parser completes cut-off
arguments (`{"q": "wea` becomes `{"q": "wea"}`), joins names and splits a call whose id
changes: a call that the model never finished would look like one to run. Here the raw
arguments decide, strictly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, TypeAlias, cast

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call

from langgraph_patch.errors import MessagesError, StreamError
from langgraph_patch.history.field_check import check_fields
from langgraph_patch.history.tool_calls import (
    CALL_BLOCKS,
    block_call_id,
    complete_args,
    text_of,
    type_of,
)

UNFINISHED_KEY: Final = "langgraph_patch_unfinished"
"""The key of `additional_kwargs` under which blocks are kept that a cut left open."""

_Content: TypeAlias = list[str | dict[str, Any]]

_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""Where integrations put the provider's reason for the end of a stream."""

_ENDS = re.compile(
    "(?:stop|tool_calls?|function_call|tool_use|end_turn|stop_sequence|completed?|eos|eos_token)+"
)
"""Reasons that say: the model ended by itself. Chunks that were merged before say it twice.

All others are taken for a cut: there are many, and a provider may add one any day.
"""

_PAUSE = "pause_turn"
"""Claude's reason to be called again as it is: server-side calls stay open, others do not."""

_REASONING = frozenset({"reasoning", "reasoning_content", "redacted_thinking", "thinking"})
_SERVER_CALLS = frozenset(
    {"mcp_tool_use", "server_tool_call", "server_tool_call_chunk", "server_tool_use"}
)


# --- calls -----------------------------------------------------------------------------


def merge_tool_call_chunks(chunks: Iterable[ToolCallChunk]) -> list[ToolCallChunk]:
    """Join the pieces of tool calls.

    Pieces with the same index are one call. Its id, type and name are whole wherever they
    stand: the first one counts, an equal one repeats it, another one contradicts it. The
    arguments are joined in the order of arrival, not parsed. A piece without an index is
    a call of its own, even if another one has the same id. These rules are those of
    eino's message concatenation.

    Args:
        chunks: The pieces in the order of arrival, as in `AIMessageChunk.tool_call_chunks`.
            Not changed.

    Returns:
        The calls: those without an index in the order of arrival, then the others by
        index. Other keys of a call are those of its first piece.

    Raises:
        StreamError: If two pieces with one index differ in id, type or name.

    Example:
        >>> from langgraph_patch.streaming import merge_tool_call_chunks
        >>> start = {"name": "weather", "args": "", "id": "c1", "index": 0}
        >>> rest = {"name": None, "args": '{"city": "Rome"}', "id": None, "index": 0}
        >>> merge_tool_call_chunks([start, rest])
        [{'name': 'weather', 'args': '{"city": "Rome"}', 'id': 'c1', 'index': 0}]
    """
    loose: list[ToolCallChunk] = []
    groups: dict[int, list[ToolCallChunk]] = {}
    for chunk in chunks:
        index = chunk.get("index")
        if index is None:
            loose.append(chunk.copy())
        else:
            groups.setdefault(index, []).append(chunk)
    return loose + [_joined(groups[index]) for index in sorted(groups)]


def _joined(pieces: Sequence[ToolCallChunk]) -> ToolCallChunk:
    whole: dict[str, Any] = {**pieces[0]}
    for key in ("id", "type", "name"):
        values = [value for piece in pieces if (value := piece.get(key))]
        if other := next((value for value in values if value != values[0]), None):
            raise StreamError(
                f"The pieces of the tool call with index {whole['index']!r} have different "
                f"{key}s: {values[0]!r} and {other!r}. Expected one {key} for each index."
            )
        if values:
            whole[key] = values[0]
    whole["args"] = "".join(piece.get("args") or "" for piece in pieces)
    return cast("ToolCallChunk", whole)


# --- a message -------------------------------------------------------------------------


def message_from_stream(
    chunks: Iterable[AIMessageChunk], *, ended: bool | None = None
) -> AIMessage:
    """Make a message of whatever arrived of a stream, so that it can be stored.

    Text, reasoning, ids, usage and metadata are merged as LangChain merges them. Calls are
    merged by the rules of `merge_tool_call_chunks`, and only those that the model finished
    become `tool_calls`: they have a name, and arguments that are a complete JSON object.
    The others become `invalid_tool_calls`, with their raw text; `patch_messages` then
    answers them as malformed. Their content blocks keep their place, with empty arguments.

    What a cut left open and every provider would refuse from then on (reasoning that
    nothing follows, a server-side call without its result, a piece of a block whose
    beginning is missing) leaves the content and is kept whole under `UNFINISHED_KEY` in
    `additional_kwargs`.

    Args:
        chunks: The chunks of one message in the order of arrival. Not changed.
        ended: Whether the model had finished: only then are empty arguments those of a
            call without arguments. Default: as the chunks say it, by the provider's reason
            for the end: `"stop"`, `"tool_use"` and the like, but not `"length"`,
            `"content_filter"` or one that is not known. Chunks that name no provider may say
            it by `chunk_position="last"` alone. `ChatAnthropic(stream_usage=False)` gives no
            reason: say it yourself.

    Returns:
        The message. It is empty if nothing had arrived but empty chunks: there is nothing
        to store then, and some providers refuse an empty message.

    Raises:
        StreamError: If the chunks contradict each other.

    Example:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import message_from_stream
        >>> piece = {"name": "weather", "args": '{"city": "Ro', "id": "c1", "index": 0}
        >>> chunks = [AIMessageChunk("Let me see."), AIMessageChunk("", tool_call_chunks=[piece])]
        >>> message = message_from_stream(chunks)
        >>> message.text, message.tool_calls
        ('Let me see.', [])
        >>> message.invalid_tool_calls[0]["args"]
        '{"city": "Ro'
    """
    arrived = list(chunks)
    if not arrived:
        return AIMessage("")
    for chunk in arrived:
        if not isinstance(chunk, AIMessageChunk):
            raise StreamError(
                f"Expected the chunks of one message (AIMessageChunk), got {chunk!r:.200}."
            )
        _check_chunk(chunk)
    paused = False
    if ended is None:
        ended, paused = _has_ended(arrived), _is_paused(arrived)
    pieces = merge_tool_call_chunks(piece for chunk in arrived for piece in chunk.tool_call_chunks)
    calls = [(piece, _finished_args(piece, ended=ended)) for piece in pieces if _says(piece)]
    merged = _merged(arrived)
    content, unfinished = _settled(merged.content, calls, ended=ended or paused)
    return AIMessage(
        content or "",  # an empty list is refused where an empty text is not
        id=merged.id,
        tool_calls=[_valid(piece, args) for piece, args in calls if args is not None],
        invalid_tool_calls=[_invalid(piece) for piece, args in calls if args is None],
        usage_metadata=merged.usage_metadata,
        response_metadata=merged.response_metadata,
        additional_kwargs=_extra(merged, calls, unfinished),
    )


def _check_chunk(chunk: AIMessageChunk) -> None:
    """Refuse a chunk that LangChain's constructor would not have let through."""
    try:
        check_fields(chunk)
    except MessagesError as error:
        raise StreamError(str(error)) from error
    for piece in chunk.tool_call_chunks:
        texts = (piece.get(key) for key in ("name", "args", "id", "type"))
        if not all(isinstance(text, str | None) for text in texts) or not isinstance(
            piece.get("index"), int | None
        ):
            raise StreamError(
                f"{piece!r:.200} is no piece of a tool call: expected texts, and a number as index."
            )


_Calls: TypeAlias = Sequence[tuple[ToolCallChunk, dict[str, Any] | None]]


def _has_ended(chunks: Sequence[AIMessageChunk]) -> bool:
    if reasons := _reasons(chunks):
        return all(map(_ENDS.fullmatch, reasons))
    # LangChain closes a stream with "last" even if the connection broke off without an error.
    # An integration that names its provider gives a reason where there is one.
    named = any(chunk.response_metadata.get("model_provider") for chunk in chunks)
    return not named and any(chunk.chunk_position == "last" for chunk in chunks)


def _is_paused(chunks: Sequence[AIMessageChunk]) -> bool:
    return _PAUSE in _reasons(chunks)


def _reasons(chunks: Sequence[AIMessageChunk]) -> set[str]:
    metadata = [chunk.response_metadata for chunk in chunks]
    return {str(found[key]).lower() for found in metadata for key in _REASONS if found.get(key)}


def _merged(chunks: Sequence[AIMessageChunk]) -> AIMessageChunk:
    # "last" makes LangChain turn blocks that only occur in streams into final ones.
    last = AIMessageChunk(content="", chunk_position="last")
    try:
        return add_ai_message_chunks(*chunks, last)
    except Exception as error:  # what LangChain's merging raises is any chunk's matter
        raise StreamError(
            f"The chunks of the message {chunks[0].id!r} cannot be merged: {error}. "
            "Expected the chunks of one message."
        ) from error


def _says(piece: ToolCallChunk) -> bool:
    return bool(piece.get("id") or piece.get("name") or piece.get("args"))


def _finished_args(piece: ToolCallChunk, *, ended: bool) -> dict[str, Any] | None:
    if not piece.get("name"):
        return None
    return complete_args(piece.get("args")) if piece.get("args") or ended else None


def _valid(piece: ToolCallChunk, args: dict[str, Any]) -> ToolCall:
    return tool_call(name=piece["name"] or "", args=args, id=piece.get("id"))


def _invalid(piece: ToolCallChunk) -> InvalidToolCall:
    found = "arguments are no complete JSON object" if piece.get("name") else "name did not arrive"
    return invalid_tool_call(
        name=piece.get("name"),
        args=piece.get("args") or "",
        id=piece.get("id"),
        error=f"The stream was cut or broken: the call's {found}.",
    )


def _extra(merged: AIMessageChunk, calls: _Calls, unfinished: _Content) -> dict[str, Any]:
    extra = merged.additional_kwargs
    if any(args is None for _, args in calls):
        # The raw copy that some integrations keep: it would bring the unfinished text back.
        extra = {key: value for key, value in extra.items() if key != "tool_calls"}
    return {**extra, UNFINISHED_KEY: unfinished} if unfinished else extra


# --- content ---------------------------------------------------------------------------


def _settled(
    content: str | _Content, calls: _Calls, *, ended: bool
) -> tuple[str | _Content, _Content]:
    """The content that can be sent again, and the blocks of it that cannot."""
    if isinstance(content, str):
        return content, []
    by_id = {piece.get("id"): args for piece, args in calls}
    blocks = [_settled_block(block, by_id) for block in content]
    open_ = {place for place, block in enumerate(blocks) if block is None}
    if not ended:
        open_ |= _open_server_calls(content)
        open_ |= _open_reasoning(content, open_, by_id)
    kept = [block for place, block in enumerate(blocks) if place not in open_ and block is not None]
    return kept, [content[place] for place in sorted(open_)]


def _settled_block(
    block: str | dict[str, Any], by_id: Mapping[str | None, dict[str, Any] | None]
) -> str | dict[str, Any] | None:
    """The block in its final form, with empty arguments if its call is unfinished.

    None if it is a mere piece.
    """
    if isinstance(block, str) or type_of(block) not in {*CALL_BLOCKS, "input_json_delta"}:
        return block
    kind = block["type"]
    if kind == "input_json_delta" or not (call_id := block_call_id(block)):
        return None
    if call_id not in by_id:
        return block
    _, args_key = CALL_BLOCKS[kind]
    args = by_id[call_id]
    if args is not None and args_key in block and kind != "tool_call_chunk":
        return block
    settled = {key: value for key, value in block.items() if key != "partial_json"}
    settled["type"] = "tool_call" if kind == "tool_call_chunk" else kind
    settled[args_key] = "{}" if kind == "function_call" else args or {}
    return settled


def _open_server_calls(content: _Content) -> set[int]:
    dicts = {place: block for place, block in enumerate(content) if isinstance(block, dict)}
    keys = ("tool_use_id", "tool_call_id")
    answered = {text_of(block.get(key)) for block in dicts.values() for key in keys}
    return {
        place
        for place, block in dicts.items()
        if type_of(block) in _SERVER_CALLS and text_of(block.get("id")) not in answered
    }


def _open_reasoning(
    content: _Content, open_: set[int], by_id: Mapping[str | None, object]
) -> set[int]:
    """Reasoning at the end, which a provider refuses without what it was thought for."""
    dicts = [block for block in content if isinstance(block, dict)]
    placed = {block_call_id(block) for block in dicts if type_of(block) in CALL_BLOCKS}
    if by_id.keys() - placed:
        return set()  # calls without a block of their own follow the content
    left = [place for place in range(len(content)) if place not in open_]
    return set(takewhile(lambda place: _is_reasoning(content[place]), reversed(left)))


def _is_reasoning(block: str | dict[str, Any]) -> bool:
    return isinstance(block, dict) and type_of(block) in _REASONING
