"""Check in one fast pass whether a history is valid. It runs before every model call.

The check may return False for a valid history (the repair then finds nothing to do), but never
True for a damaged one. So it knows only LangChain's own message classes; a history with
subclasses of them goes to the repair. For speed, fields are read from a message's `__dict__`
(pydantic's attribute lookup costs as much as the checks), and all ids are checked together at
the end. Measure every change with `python tests/benchmarks core`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_letters, digits
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.calls import (
    CALL_BLOCKS,
    CUSTOM_CALL,
    complete_args,
)
from langgraph_patch.history.ids import MAX_ID, VALID_NAME
from langgraph_patch.history.placeholders import (
    AGENT_CHAT_UI_TEXT,
    ASSISTANT_UI_TEXT,
    asks_to_look_again,
)

_NO_KEY = object()
"""A key that no block has."""

_ID_KEYS: Mapping[Any, Any] = {
    **{kind: id_key for kind, (id_key, _) in CALL_BLOCKS.items()},
    **dict.fromkeys((CUSTOM_CALL, "non_standard"), _NO_KEY),
}
"""The types of content blocks that are calls -> the key of the call's id.

Custom calls and wrapped blocks have no key here, so that a history with them goes to the repair:
results of custom calls have a form of their own.
"""

_ID_KEY = _ID_KEYS.get

_ID_CHARACTERS = f"{ascii_letters}{digits}_.:-".encode()
"""The characters that `VALID_ID` allows."""


def is_valid(  # noqa: C901, PLR0911, PLR0912 - one loop, it runs before every model call
    messages: Sequence[Any], *, leaves_open: bool = False, look_again: bool = False
) -> bool:
    """Whether all are messages, every call is valid, and its results directly follow it.

    Args:
        messages: The items of a history, of any type; never changed.
        leaves_open: Whether calls at the end may be without results. Default: False.
        look_again: Whether a placeholder that asks for another search makes the history one to be
            read. Default: False.
    """
    waiting: set[str] = set()
    ids: list[str] = []
    names: set[Any] = {None}
    if not isinstance(messages, list):
        return False  # the items of another sequence are converted first
    try:
        for message in messages:
            kind = type(message)
            fields = message.__dict__
            content = fields["content"]
            extra = fields["additional_kwargs"]
            if (
                type(extra) is not dict
                or type(fields["response_metadata"]) is not dict
                or (type(fields["id"]) is not str and fields["id"] is not None)
            ):
                return False
            if kind is ToolMessage:
                waiting.remove(fields["tool_call_id"])
                name = fields["name"]
                if name not in names:
                    return False
                if extra and look_again and asks_to_look_again(message):
                    return False
                if type(content) is str:
                    if content == AGENT_CHAT_UI_TEXT:
                        return False
                    if name is None and content == ASSISTANT_UI_TEXT:
                        return False
                elif not _are_blocks(content):
                    return False
            elif waiting or (fields["name"] is not None and type(fields["name"]) is not str):
                return False
            elif kind is AIMessage or kind is AIMessageChunk:
                calls = fields["tool_calls"]
                invalid = fields["invalid_tool_calls"]
                if type(calls) is not list or invalid or type(invalid) is not list:
                    return False
                for call in calls:
                    call_id = call["id"]
                    waiting.add(call_id)
                    ids.append(call_id)
                    name = call["name"]
                    if (name is None or name not in names) and not _add_valid_name(name, names):
                        return False
                    if type(call["args"]) is not dict:
                        return False
                if extra and not calls and _has_raw_calls(extra):
                    return False
                if type(content) is not str and not _blocks_are_listed(content, waiting):
                    return False
                if kind is AIMessageChunk and not _is_complete(message):
                    return False
            elif kind is HumanMessage:
                if type(content) is not str and not _are_blocks(content, without="tool_result"):
                    return False
            elif kind is not SystemMessage or not (type(content) is str or _are_blocks(content)):
                return False
        return (leaves_open or not waiting) and _are_valid(ids)
    except (AttributeError, KeyError, TypeError):
        return False  # not a message, a result or block without its call, or an incomplete call


def _are_blocks(content: object, *, without: str = "") -> bool:
    """Whether a content is a list of strings and dicts, and no dict has the type `without`."""
    if type(content) is not list:
        return False
    for block in content:
        if type(block) is dict:
            if block.get("type") == without:
                return False
        elif type(block) is not str:
            return False
    return True


def _add_valid_name(name: object, names: set[Any]) -> bool:
    """Whether a name is valid; if it is, it is added to `names`, so each is matched only once."""
    if type(name) is not str or not VALID_NAME.match(name):
        return False
    names.add(name)
    return True


def _blocks_are_listed(content: object, listed: set[str]) -> bool:
    """Whether a content is a list of strings and dicts, and each block that is a call is listed.

    Each call may have one block at most.
    """
    if type(content) is not list:
        return False
    ids = []
    for block in content:
        if type(block) is dict:
            if (id_key := _ID_KEY(block.get("type"))) is not None:
                ids.append(block[id_key])
        elif type(block) is not str:
            return False
    return not ids or (listed.issuperset(ids) and len(set(ids)) == len(ids))


def _are_valid(ids: Sequence[str]) -> bool:
    """Whether all ids are valid and no two are equal."""
    distinct = set(ids)
    return not ids or (
        len(distinct) == len(ids)
        and "" not in distinct
        and max(map(len, ids)) <= MAX_ID
        and not "".join(ids).encode("ascii", "replace").translate(None, _ID_CHARACTERS)
    )


def _has_raw_calls(extra: Mapping[str, Any]) -> bool:
    return bool(extra.get("tool_calls")) or extra.get("function_call") is not None


def _is_complete(chunk: AIMessageChunk) -> bool:
    """Whether the streamed arguments of all calls of a chunk are complete."""
    parts = chunk.__dict__["tool_call_chunks"]
    return type(parts) is list and all(complete_args(p.get("args")) is not None for p in parts)
