"""Read and write the tool calls of an `AIMessage` of any shape.

This is the only module that knows where an `AIMessage` can carry a tool call: `tool_calls`,
`invalid_tool_calls`, a content block, raw `additional_kwargs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

from langgraph_patch.history.fields import (
    CUSTOM_CALL,
    Block,
    blocks_beside,
    blocks_of,
    dicts,
    grouped,
    text_of,
)

Source = Literal["tool_calls", "invalid_tool_calls", "stopped", "content", "additional_kwargs"]

_LISTED: Final[Sequence[Source]] = ("tool_calls", "invalid_tool_calls")
"""The sources of calls that LangChain lists."""

_UNFINISHED: Final = ("invalid_tool_calls", "stopped")
"""The sources of calls that the model did not finish."""

STOPPED: Final = "The model stopped before the arguments were a complete JSON object."
"""The error of an item of `invalid_tool_calls` that this package kept from running."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of an `AIMessage`.

    `(index, ordinal)` identifies it in a history, whatever its id is.

    Attributes:
        index: The index of the message in the history.
        ordinal: The position of the call among all calls of the message.
        id: The stored id; `""` if there is none.
        name: The stored name of the tool; `""` if there is none.
        args: The arguments; `{}` if they are not a complete JSON object.
        raw_args: The text of arguments that are not a complete JSON object, else None.
        source: The first place in the message that holds the call. `"stopped"` is
            `invalid_tool_calls`, if this package moved the call there before it could run.
        block_type: The type of the content block that holds the call, or None.
        tool_call: The item of `tool_calls`, if it holds the call as it is; else None.
    """

    index: int
    ordinal: int
    id: str
    name: str
    args: Mapping[str, Any]
    raw_args: str | None
    source: Source
    block_type: str | None = None
    tool_call: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The index of the message and the position of the call in it."""
        return self.index, self.ordinal

    @property
    def is_unfinished(self) -> bool:
        """Whether it is one that the model did not finish."""
        return self.source in _UNFINISHED


def read_calls(message: AIMessage, index: int = 0) -> list[Call]:
    """All calls of `message`, each once.

    The order: `tool_calls`, `invalid_tool_calls`, calls that are only in a content block.
    Raw calls in `additional_kwargs` count only if there is no other call.

    Args:
        message: The message; its fields are valid (`fields.corrected`).
        index: Its index in the history. Default: 0.
    """
    blocks = grouped((block.call_id, block) for block in blocks_of(message) if block.is_call)
    chunks = dicts(getattr(message, "tool_call_chunks", None))
    chunk_args = grouped((text_of(chunk.get("id")), chunk.get("args")) for chunk in chunks)
    found = list[Call]()
    for source in _LISTED:
        for item in dicts(getattr(message, source)):
            call_id = text_of(item.get("id"))
            block = blocks[call_id].pop(0) if blocks[call_id] else None
            streamed = chunk_args[call_id].pop(0) if chunk_args[call_id] else {}
            # LangChain's partial JSON parser made complete arguments of incomplete ones.
            args = item.get("args") if complete_args(streamed) is not None else streamed
            found.append(_new_call(item, args, source, block.kind if block else None))
    found += [_call_of_block(block) for unlisted in blocks.values() for block in unlisted]
    found = found or [_call_of_raw(raw) for raw in _raw_calls(message)]
    return [replace(call, index=index, ordinal=ordinal) for ordinal, call in enumerate(found)]


def _call_of_block(block: Block) -> Call:
    args = block.args
    if block.kind == "tool_use" and not args:
        args = block.fields.get("partial_json", args)  # part of a stream of Claude
    if block.kind == CUSTOM_CALL:
        args = {"__arg1": args}  # the form that langchain-openai gives to free-text input
    return _new_call({**block.fields, "id": block.call_id}, args, "content", block.kind)


def _call_of_raw(raw: Mapping[str, Any]) -> Call:
    function = raw.get("function")
    function = {**function, "id": raw.get("id")} if isinstance(function, Mapping) else raw
    return _new_call(function, function.get("arguments"), "additional_kwargs")


def _new_call(
    item: Mapping[str, Any], stored: Any, source: Source, block_type: str | None = None
) -> Call:
    """A call with the id and name of a stored item; its place in the history is set later."""
    if source == "invalid_tool_calls" and item.get("error") == STOPPED:
        source = "stopped"
    # Empty arguments of an invalid call are incomplete, not those of a tool without parameters.
    args = None if source in _UNFINISHED and not stored else complete_args(stored)
    raw_args = None
    if args is None:
        raw_args = stored if isinstance(stored, str) else "" if stored is None else repr(stored)
    call_id, name = text_of(item.get("id")), text_of(item.get("name"))
    whole = item if source == "tool_calls" and isinstance(stored, dict) else None
    return Call(0, 0, call_id, name, args or {}, raw_args, source, block_type, whole)


def is_complete(call: Call) -> bool:
    """Whether the model finished the call: its arguments are complete, and nothing stopped it."""
    return call.raw_args is None and not call.is_unfinished


def complete_args(stored: object) -> dict[str, Any] | None:
    """The arguments as a dict, or None if they are not a complete JSON object.

    LangChain's partial JSON parser is not used: it makes a valid call of `{"q": "wea`. Raw
    newlines in strings are accepted, as LangChain does: such a call may have run. Empty or
    missing arguments are `{}`.
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


def _raw_calls(message: AIMessage) -> Iterator[Mapping[str, Any]]:
    """Calls in the provider's raw form: integrations send them if there are no others."""
    raw = message.additional_kwargs.get("tool_calls")
    if raw:
        yield from dicts(raw)
    elif isinstance(function := message.additional_kwargs.get("function_call"), dict):
        yield {"function": function}


def computer_call_ids(message: AIMessage) -> set[str]:
    """The ids of OpenAI's computer calls, which `read_calls` leaves out.

    `tool_calls` never holds them. They are content blocks (in v1 inside `non_standard`), and in
    v0 items of `additional_kwargs["tool_outputs"]`. Their results are `ToolMessage`s in a form
    that only OpenAI accepts.
    """
    blocks = [*blocks_of(message), *blocks_beside(message)]
    return {block.call_id for block in blocks if block.kind == "computer_call"} - {""}


# --- writing -------------------------------------------------------------------------------


def write_calls(message: AIMessage, calls: Sequence[Call]) -> AIMessage:
    """A copy of `message` that has its calls in `tool_calls`, with complete arguments.

    Raw copies of the calls go: `tool_calls` has them all, and some integrations send both.

    Args:
        message: The message as it is stored; it is not changed.
        calls: All its calls, in the order of `read_calls`.
    """
    listed = [_as_listed(call) for call in calls]
    raw = ("tool_calls", "function_call")
    extra = {key: value for key, value in message.additional_kwargs.items() if key not in raw}
    update: dict[str, Any] = {
        "content": _written_content(message, calls),
        "additional_kwargs": extra,
        "tool_calls": listed,
        "invalid_tool_calls": [],
    }
    if isinstance(message, AIMessageChunk):
        update["tool_call_chunks"] = [_as_chunk(call) for call in listed]
    return message.model_copy(update=update)


def _as_listed(call: Call) -> Mapping[str, Any]:
    if call.tool_call is not None:
        return call.tool_call
    return {"name": call.name, "args": dict(call.args), "id": call.id, "type": "tool_call"}


def _as_chunk(tool_call: Mapping[str, Any]) -> ToolCallChunk:
    """The chunk from which LangChain makes this very call when it loads the message."""
    args = json.dumps(tool_call["args"], default=repr)
    return tool_call_chunk(name=tool_call["name"], args=args, id=tool_call["id"], index=None)


def _written_content(message: AIMessage, calls: Sequence[Call]) -> Any:
    """The content, in which each block of Claude's has complete arguments.

    An integration sends a block with a `caller` as it is: its input must be a dict. The k-th block
    with an id is that of the k-th call with it.
    """
    if not isinstance(message.content, list):
        return message.content
    queues = grouped((call.id, call) for call in reversed(calls) if call.block_type is not None)
    blocks = blocks_of(message)
    for index, block in enumerate(blocks):
        if block.is_call and (queue := queues[block.call_id]):
            call = queue.pop()
            if block.kind == "tool_use" and call.tool_call is None:
                blocks[index] = block.with_args(call.args)
    return [block.stored for block in blocks]
