"""One cheap look that says whether a history is sound; fit to run before every model call.

It may call a sound history unsound (then the repair finds nothing to do), never the other
way round: so it knows LangChain's own message classes, and leaves those that an application
derived from them to the repair. Each step of the loop is the shortest that the check allows.
Fields are read from a message's `__dict__`, since pydantic's own lookup costs as much as the
checks, and ids are checked at the end, all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from string import ascii_letters, digits
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch.history.rewrite import MAX_ID, VALID_NAME
from langgraph_patch.history.tool_calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    complete_args,
    has_result_blocks,
)

_NONE = object()
"""The key of no block."""

_ID_KEYS: Mapping[Any, Any] = {
    **{kind: id_key for kind, (id_key, _) in CALL_BLOCKS.items()},
    **dict.fromkeys((CUSTOM_CALL, "non_standard"), _NONE),
}
"""Content blocks that call -> the key of the call's id.

Those without one are left to the repair: their results have a form of their own.
"""

_ID_CHARACTERS = f"{ascii_letters}{digits}_.:-".encode()
"""Those of `VALID_ID`."""


def is_valid(  # noqa: C901, PLR0911, PLR0912 - one loop, on the hot path of every turn
    messages: Sequence[Any], *, allow_pending: bool
) -> bool:
    """Whether all are messages, every call is sound, and its results stand in its place.

    Args:
        messages: Anything that may be a history; never changed.
        allow_pending: Whether calls at the tail may be without results.
    """
    waiting: set[str] = set()
    ids: list[str] = []
    names: set[Any] = {None}
    try:
        for message in messages:
            kind = type(message)
            fields = message.__dict__
            if kind is ToolMessage:
                waiting.remove(fields["tool_call_id"])
                if fields["name"] not in names:
                    return False
            elif waiting:
                return False
            elif kind is AIMessage or kind is AIMessageChunk:
                if calls := fields["tool_calls"]:
                    for call in calls:
                        call_id = call["id"]
                        waiting.add(call_id)
                        ids.append(call_id)
                        name = call["name"]
                        if name not in names and not _note_name(name, names):
                            return False
                        if type(call["args"]) is not dict:
                            return False
                    if kind is AIMessageChunk and not _is_complete(message):
                        return False
                elif fields["additional_kwargs"] and _has_raw_calls(message):
                    return False
                if fields["invalid_tool_calls"]:
                    return False
                content = fields["content"]
                if type(content) is list and not _are_listed(content, waiting):
                    return False
            elif kind is HumanMessage:
                if type(fields["content"]) is list and has_result_blocks(message):
                    return False
                if fields["additional_kwargs"] and "tool_call_id" in fields["additional_kwargs"]:
                    return False
            elif not _is_bystander(message):
                return False
        return (allow_pending or not waiting) and _are_valid(ids)
    except (AttributeError, KeyError, TypeError):
        return False  # no message, a result or block without its call, or a call that lacks a part


def _note_name(name: object, names: set[Any]) -> bool:
    """Whether a name is one that every wire accepts; if so, it need not be asked again."""
    if type(name) is not str or not VALID_NAME.match(name):
        return False
    names.add(name)
    return True


def _are_listed(content: Sequence[Any], listed: AbstractSet[str]) -> bool:
    """Whether each block that calls stands in `tool_calls`, and only one block for each.

    Raises:
        KeyError: If one does not.
    """
    unseen = set(listed)
    for block in content:
        if type(block) is dict:
            id_key = _ID_KEYS.get(block.get("type"))
            if id_key is not None:
                unseen.remove(block[id_key])
        elif type(block) is not str:
            return False
    return True


def _is_bystander(message: object) -> bool:
    """Whether a message neither calls nor answers, whatever it holds."""
    if isinstance(message, ChatMessage):
        return message.role not in {"tool", "function"}
    partners = AIMessage | ToolMessage | HumanMessage | FunctionMessage
    return isinstance(message, BaseMessage) and not isinstance(message, partners)


def _are_valid(ids: Sequence[str]) -> bool:
    """Whether all ids are ones that every wire carries, and no two are alike."""
    distinct = set(ids)
    return not ids or (
        len(distinct) == len(ids)
        and "" not in distinct
        and max(map(len, ids)) <= MAX_ID
        and not "".join(ids).encode("ascii", "replace").translate(None, _ID_CHARACTERS)
    )


def _has_raw_calls(message: AIMessage) -> bool:
    extra = message.additional_kwargs
    return bool(extra.get("tool_calls") or extra.get("function_call"))


def _is_complete(chunk: AIMessageChunk) -> bool:
    """Whether the model finished the arguments of a message that was stored as a chunk."""
    return all(complete_args(part.get("args")) is not None for part in chunk.tool_call_chunks)
