"""Read the tool calls of an `AIMessage` of any shape.

This is the only module that knows where an `AIMessage` can carry a tool call: `tool_calls`,
`invalid_tool_calls`, a content block, raw `additional_kwargs`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.history.ids import PLACEHOLDER_KEY

CUSTOM_CALL = "custom_tool_call"

CALL_BLOCKS: Mapping[str, tuple[str, str]] = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "tool_call_chunk": ("id", "args"),
    "invalid_tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
    CUSTOM_CALL: ("call_id", "input"),
}
"""The types of content blocks that are client-side calls -> the keys of their id and arguments.

Blocks of server-side tools (`server_tool_use`, `web_search_call`, ...) are not calls: the
provider runs those tools itself.
"""

REASONING_BLOCKS: Final = frozenset(
    {"reasoning", "reasoning_content", "redacted_thinking", "thinking"}
)
"""The types of content blocks in which a model thinks. They say nothing to a reader."""

Source = Literal["tool_calls", "invalid_tool_calls", "stopped", "content", "additional_kwargs"]

UNFINISHED: Final = ("invalid_tool_calls", "stopped")
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
        earlier_ids: The ids that the call had before repairs renamed it, the oldest first.
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
    earlier_ids: tuple[str, ...] = ()
    block_type: str | None = None
    tool_call: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The index of the message and the position of the call in it."""
        return self.index, self.ordinal


def read_calls(message: AIMessage, index: int = 0) -> list[Call]:
    """All calls of `message`, each once.

    The order: `tool_calls`, `invalid_tool_calls`, calls that are only in a content block.
    Raw calls in `additional_kwargs` count only if there is no other call.

    Args:
        message: The message; its fields are valid (`damaged_fields`).
        index: Its index in the history. Default: 0.
    """
    blocks = _blocks_by_id(message)
    chunk_args = _args_of_chunks(message)
    found = [
        _listed_call(item, source, blocks, chunk_args)
        for source in ("tool_calls", "invalid_tool_calls")
        for item in dicts(getattr(message, source))
    ]
    found += [_call_of_block(block) for unlisted in blocks.values() for block in unlisted]
    found = found or [_call_of_raw(raw) for raw in _raw_calls(message)]
    earlier = _earlier_ids(message) if found else {}
    return [
        replace(call, index=index, ordinal=ordinal, earlier_ids=earlier.get(call.id, ()))
        for ordinal, call in enumerate(found)
    ]


def _listed_call(
    item: Mapping[str, Any],
    source: Source,
    blocks: Mapping[str, list[Mapping[str, Any]]],
    chunk_args: Mapping[str, list[Any]],
) -> Call:
    """An item of `tool_calls` or `invalid_tool_calls`; its block and chunk are removed."""
    call_id = text_of(item.get("id"))
    block = blocks[call_id].pop(0) if blocks.get(call_id) else None
    args = item.get("args")
    if chunk_args.get(call_id) and complete_args(streamed := chunk_args[call_id].pop(0)) is None:
        args = streamed  # incomplete; LangChain's partial JSON parser made complete ones of them
    if source == "invalid_tool_calls" and item.get("error") == STOPPED:
        source = "stopped"
    call = _new_call(item, "id", args, source, block["type"] if block else None)
    is_whole = source == "tool_calls" and isinstance(args, dict)
    return replace(call, tool_call=item) if is_whole else call


def _call_of_block(block: Mapping[str, Any]) -> Call:
    id_key, args_key = CALL_BLOCKS[block["type"]]
    args = block.get(args_key)
    if block["type"] == "tool_use" and not args:
        args = block.get("partial_json", args)  # part of a stream of Claude
    if block["type"] == CUSTOM_CALL:
        args = {"__arg1": args}  # the form that langchain-openai gives to free-text input
    return _new_call(block, id_key, args, "content", block["type"])


def _call_of_raw(raw: Mapping[str, Any]) -> Call:
    function = raw.get("function")
    function = {**function, "id": raw.get("id")} if isinstance(function, Mapping) else raw
    return _new_call(function, "id", function.get("arguments"), "additional_kwargs")


def _new_call(
    item: Mapping[str, Any], id_key: str, stored: Any, source: Source, block_type: str | None = None
) -> Call:
    """A call with the id and name of a stored item; its place in the history is set later."""
    # Empty arguments of an invalid call are incomplete, not those of a tool without parameters.
    args = None if source in UNFINISHED and not stored else complete_args(stored)
    raw_args = None
    if args is None:
        raw_args = stored if isinstance(stored, str) else "" if stored is None else repr(stored)
    call_id, name = text_of(item.get(id_key)), text_of(item.get("name"))
    return Call(0, 0, call_id, name, args or {}, raw_args, source, block_type=block_type)


def _earlier_ids(message: AIMessage) -> Mapping[str, tuple[str, ...]]:
    """The earlier ids of renamed calls, by their ids."""
    mark = message.additional_kwargs.get(PLACEHOLDER_KEY)
    stored = mark.get("earlier_ids", {}) if isinstance(mark, dict) else {}
    return {call_id: tuple(ids) for call_id, ids in stored.items()}


def is_complete(call: Call) -> bool:
    """Whether the model finished the call: its arguments are complete, and nothing stopped it."""
    return call.raw_args is None and call.source not in UNFINISHED


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


def call_blocks(message: AIMessage) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The content blocks of `message` that are client-side calls, each with its index."""
    if isinstance(message.content, list):
        for index, block in enumerate(message.content):
            if isinstance(block, dict):
                inner = unwrapped(block)
                if type_of(inner) in CALL_BLOCKS:
                    yield index, inner


def unwrapped(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """The block inside a `non_standard` block of LangChain's v1 content, else `block` itself."""
    if block.get("type") != "non_standard":
        return block
    value = block.get("value")
    return value if isinstance(value, Mapping) else block


def type_of(block: Mapping[str, Any]) -> str:
    """The type of a content block; `""` if it is missing or not a string."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _blocks_by_id(message: AIMessage) -> dict[str, list[Mapping[str, Any]]]:
    blocks: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for _, block in call_blocks(message):
        blocks[block_call_id(block)].append(block)
    return blocks


def block_call_id(block: Mapping[str, Any]) -> str:
    """The call id in a content block that is a call."""
    return text_of(block.get(CALL_BLOCKS[block["type"]][0]))


def with_args(block: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """A content block that is a call, in the form of a complete one with these arguments."""
    kind = block["type"]
    written = {key: value for key, value in block.items() if key != "partial_json"}
    written["type"] = "tool_call" if kind == "tool_call_chunk" else kind
    written[CALL_BLOCKS[kind][1]] = json.dumps(args) if kind == "function_call" else dict(args)
    return written


def _args_of_chunks(message: AIMessage) -> dict[str, list[Any]]:
    """The arguments as they were streamed, by call id."""
    args: dict[str, list[Any]] = defaultdict(list)
    if isinstance(message, AIMessageChunk):
        for chunk in dicts(message.tool_call_chunks):
            args[text_of(chunk.get("id"))].append(chunk.get("args"))
    return args


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
    blocks = [*dicts(message.content), *dicts(message.additional_kwargs.get("tool_outputs"))]
    found = [block for block in map(unwrapped, blocks) if type_of(block) == "computer_call"]
    return {call_id for block in found if (call_id := text_of(block.get("call_id")))}


def text_of(value: object) -> str:
    """An id or a name as a string; `""` for None."""
    return "" if value is None else str(value)


def dicts(values: object) -> list[Mapping[str, Any]]:
    """The dicts among the items of a list; nothing if it is not a list."""
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []
