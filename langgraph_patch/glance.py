"""One cheap look that says whether a history is sound; fit to run before every model call.

It may call a sound history unsound (then the repair finds nothing to do), never the other
way round. It allocates next to nothing: a set of ids seen and the calls still open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    ToolMessage,
)

from langgraph_patch.calls import (
    CALL_BLOCKS,
    block_call_id,
    complete_args,
    has_result_blocks,
)
from langgraph_patch.rewriting import MAX_ID, VALID_NAME

_AI: Final = 1
_TOOL: Final = 2
_HUMAN: Final = 3
_OTHER: Final = 4
_WRONG: Final = 5

_CLASSES: Mapping[type, int] = {
    AIMessage: _AI,
    ToolMessage: _TOOL,
    HumanMessage: _HUMAN,
    ChatMessage: _WRONG,
    FunctionMessage: _WRONG,
}
_ROLES: dict[type, int] = {}
"""What each message class is, filled as classes are met."""


def is_sound(  # noqa: C901, PLR0911, PLR0912 - one loop, on the hot path of every turn
    messages: Sequence[Any], *, allow_pending: bool
) -> bool:
    """Whether every call is sound and has its result in its place, and nothing else answers."""
    waiting: set[str] = set()
    seen: set[str] = set()
    names: set[str] = set()
    roles = _ROLES
    for message in messages:
        role = roles.get(type(message)) or _role_of(type(message))
        if role == _TOOL:
            call_id = message.tool_call_id
            if call_id not in waiting:
                return False
            waiting.remove(call_id)
            name = message.name
            if name is not None and name not in names:
                return False
        elif waiting:
            return False
        elif role == _AI:
            if not _opens(message, waiting, seen, names):
                return False
        elif role == _HUMAN:
            if type(message.content) is list and has_result_blocks(message):
                return False
            if message.additional_kwargs and "tool_call_id" in message.additional_kwargs:
                return False
        elif role == _WRONG and getattr(message, "role", "function") in ("tool", "function"):
            return False
    return allow_pending or not waiting


def _role_of(kind: type) -> int:
    role = next((role for cls, role in _CLASSES.items() if issubclass(kind, cls)), _OTHER)
    if len(_ROLES) < 100:  # noqa: PLR2004 - classes made at run time must not pile up
        _ROLES[kind] = role
    return role


def _opens(  # noqa: PLR0911 - as is_sound
    message: AIMessage, waiting: set[str], seen: set[str], names: set[str]
) -> bool:
    """Note the calls of `message`; False if one of them is not sound."""
    if message.invalid_tool_calls:
        return False
    calls = message.tool_calls
    if not calls:
        extra = message.additional_kwargs
        if extra and (extra.get("tool_calls") or extra.get("function_call")):
            return False
    for call in calls:
        call_id = call.get("id")
        if type(call_id) is not str or not 0 < len(call_id) <= MAX_ID or call_id in seen:
            return False
        name = call.get("name")
        if name not in names:
            if type(name) is not str or not VALID_NAME.match(name):
                return False
            names.add(name)
        if type(call.get("args")) is not dict:
            return False
        seen.add(call_id)
        waiting.add(call_id)
    if type(message.content) is list and not _blocks_are_listed(message.content, waiting):
        return False
    return not isinstance(message, AIMessageChunk) or _chunks_are_complete(message)


def _blocks_are_listed(content: list[Any], listed: set[str]) -> bool:
    """Whether each block that calls stands in `tool_calls`, and only one block for each."""
    met = 0
    ids = set()
    for block in content:
        if type(block) is dict and block.get("type") in CALL_BLOCKS:
            met += 1
            ids.add(block_call_id(block))
    return not met or (len(ids) == met and ids <= listed)


def _chunks_are_complete(message: AIMessageChunk) -> bool:
    return all(complete_args(chunk.get("args")) is not None for chunk in message.tool_call_chunks)
