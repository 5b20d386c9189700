"""Check in one fast pass whether a history is valid. It runs before every model call.

The check may return False for a valid history (the repair then finds nothing to do), but never
True for a damaged one. So it knows only LangChain's own message classes; a history with
subclasses of them, chunks among them, goes to the repair, and so does one with texts among the
content blocks. For speed, fields are read from a message's `__dict__`
(pydantic's attribute lookup costs as much as the checks). Measure every change with
`python scripts/benchmarks core`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_patch.history.fields import CALL_BLOCKS
from langgraph_patch.history.placeholders import (
    AGENT_CHAT_UI_TEXT,
    ASSISTANT_UI_TEXT,
    is_invented,
    look_again_from,
)

_ID_KEYS: Mapping[Any, Any] = {
    **{kind: id_key for kind, (id_key, _) in CALL_BLOCKS.items()},
    "non_standard": "no key",
}
"""The types of content blocks that are calls -> the key of the call's id.

Wrapped blocks have no key here, so that a history with them goes to the repair.
"""

_RAW_CALLS = ("tool_calls", "function_call")
"""The keys of raw calls in `additional_kwargs`."""


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
    waiting: dict[str, str] = {}  # the tool of each call without a result yet, by the call's id
    if not isinstance(messages, list):
        return False  # the items of another sequence are converted first
    try:
        for message in messages:
            kind = type(message)
            fields = message.__dict__
            content = fields["content"]
            is_text = type(content) is str
            if not is_text and type(content) is not list:
                return False
            if kind is ToolMessage:
                called = waiting.pop(fields["tool_call_id"])
                name = fields["name"]
                if name != called and name is not None:
                    return False
                if content == AGENT_CHAT_UI_TEXT and is_invented(message):
                    return False
                asks = look_again and (fields["additional_kwargs"] or content == ASSISTANT_UI_TEXT)
                if asks and look_again_from(message) is not None:
                    return False
            elif waiting:
                return False
            elif kind is AIMessage:
                calls = fields["tool_calls"]
                for call in calls or ():
                    call_id = call["id"]
                    if type(call_id) is not str or call_id in waiting:
                        return False
                    if type(call["args"]) is not dict:
                        return False
                    waiting[call_id] = call["name"]
                invalid = fields["invalid_tool_calls"]
                if invalid or invalid is None:
                    return False
                if not calls:
                    extra = fields["additional_kwargs"]
                    if calls is None or (extra and not extra.keys().isdisjoint(_RAW_CALLS)):
                        return False
                if not is_text:
                    listed = None
                    for block in content:
                        kind = block["type"]
                        if kind in _ID_KEYS:
                            listed = {*waiting} if listed is None else listed
                            listed.remove(block[_ID_KEYS[kind]])  # one block for each call
            elif kind is HumanMessage:
                if not is_text:
                    for block in content:
                        if block.get("type") == "tool_result":
                            return False
            elif kind is not SystemMessage:
                return False
    except (AttributeError, KeyError, TypeError):
        return False  # not a message, a result or block without its call, or an incomplete call
    return leaves_open or not waiting
