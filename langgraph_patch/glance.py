"""One cheap look that says whether a history is sound; fit to run before every model call.

It may call a sound history unsound (then the repair finds nothing to do), never the other
way round. Each step of the loop is the shortest that the check allows, so read it with the
table in `messages.py` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch.calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    block_call_id,
    complete_args,
    has_result_blocks,
)
from langgraph_patch.rewriting import VALID_ID, VALID_NAME

_AI: Final = 1
_TOOL: Final = 2
_HUMAN: Final = 3
_CHAT: Final = 4
_OTHER: Final = 5
_REFUSED: Final = 6

_FAMILIES: Mapping[type, int] = {
    AIMessage: _AI,
    ToolMessage: _TOOL,
    HumanMessage: _HUMAN,
    ChatMessage: _CHAT,
    FunctionMessage: _REFUSED,
    BaseMessage: _OTHER,
}
_RARE = {CUSTOM_CALL, "non_standard"}
"""Blocks for which the repair itself is asked: their results have a form of their own."""

_ROLES: dict[type, int] = dict(_FAMILIES)
"""What each message class is, filled as subclasses are met."""


def is_sound(  # noqa: C901, PLR0911, PLR0912 - one loop, on the hot path of every turn
    messages: Sequence[Any], *, allow_pending: bool
) -> bool:
    """Whether all are messages, every call is sound, and its results stand in its place.

    Args:
        messages: Anything that may be a history; never changed.
        allow_pending: Whether calls at the tail may be without results.
    """
    waiting: set[str] = set()
    seen: set[Any] = {None, ""}
    names: set[Any] = {None}
    roles = _ROLES
    try:
        for message in messages:
            kind = message.__class__
            role = roles[kind] if kind in roles else _role_of(kind)
            if role == _TOOL:
                waiting.remove(message.tool_call_id)
                if message.name not in names:
                    return False
            elif waiting:
                return False
            elif role == _AI:
                for call in message.tool_calls:
                    call_id = call["id"]
                    if call_id in seen or not VALID_ID.match(call_id):
                        return False
                    seen.add(call_id)
                    waiting.add(call_id)
                    name = call["name"]
                    if name not in names and not _note_name(name, names):
                        return False
                    if call["args"].__class__ is not dict:
                        return False
                if message.invalid_tool_calls:
                    return False
                if message.content.__class__ is list and not _are_listed(message.content, waiting):
                    return False
                if not waiting and message.additional_kwargs and _has_raw_calls(message):
                    return False
                if kind is not AIMessage and not _is_complete(message):
                    return False
            elif role == _HUMAN:
                if message.content.__class__ is list and has_result_blocks(message):
                    return False
                if message.additional_kwargs and "tool_call_id" in message.additional_kwargs:
                    return False
            elif role == _REFUSED or (role == _CHAT and message.role in {"tool", "function"}):
                return False
    except (KeyError, TypeError):
        return False  # a result that nobody waits for, or a call that lacks a part
    return allow_pending or not waiting


def _role_of(kind: type) -> int:
    role = next((role for cls, role in _FAMILIES.items() if issubclass(kind, cls)), _REFUSED)
    if len(_ROLES) < 100:  # noqa: PLR2004 - classes made at run time must not pile up
        _ROLES[kind] = role
    return role


def _note_name(name: object, names: set[Any]) -> bool:
    """Whether a name is one that every wire accepts; if so, it need not be asked again."""
    if name.__class__ is not str or not VALID_NAME.match(name):  # type: ignore[arg-type]
        return False
    names.add(name)
    return True


def _are_listed(content: list[Any], listed: set[str]) -> bool:
    """Whether each block that calls stands in `tool_calls`, and only one block for each."""
    met = 0
    ids = set()
    for block in content:
        if block.__class__ is str:
            continue
        if block.__class__ is not dict:
            return False
        kind = block.get("type")
        if kind in CALL_BLOCKS:
            met += 1
            ids.add(block_call_id(block))
        if kind in _RARE:
            return False
    return not met or (len(ids) == met and ids <= listed)


def _has_raw_calls(message: AIMessage) -> bool:
    extra = message.additional_kwargs
    return bool(extra.get("tool_calls") or extra.get("function_call"))


def _is_complete(message: AIMessage) -> bool:
    """Whether the model finished the arguments of a message that was stored as a chunk."""
    chunks = message.tool_call_chunks if isinstance(message, AIMessageChunk) else []
    return all(complete_args(chunk.get("args")) is not None for chunk in chunks)
