"""What providers refuse of a history, written from their rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


class RefusedError(ValueError):
    """What a provider answers with its status 400."""


def refuse(messages: Sequence[BaseMessage], *, portable: bool = False) -> None:
    """Raise as a provider would on a history with calls and results that do not pair.

    Written on its own, from the providers' rules; it shares nothing with the package.

    Args:
        messages: The history.
        portable: Whether each provider must read it: unique ids, and valid ids and names. Default:
            False, the model that wrote them reads them.
    """
    waiting: list[str] = []
    used: set[str] = set()
    for message in messages:
        is_legacy = message.type == "function" and waiting == [""]
        if isinstance(message, ToolMessage) or (is_legacy and not portable):
            call_id = getattr(message, "tool_call_id", "")
            if call_id not in waiting:
                raise RefusedError(f"result {call_id!r} answers no call before it")
            waiting.remove(call_id)
            continue
        if waiting:
            raise RefusedError(f"calls {waiting} have no result right after them")
        if message.type in {"function", "chat"} and getattr(message, "role", "") != "user":
            raise RefusedError(f"role {message.type!r} is not accepted")
        if isinstance(message, AIMessage):
            if message.invalid_tool_calls:
                raise RefusedError("a call with malformed arguments")
            waiting += _checked_ids(message, used) if portable else _ids_of(message)
    if waiting:
        raise RefusedError(f"calls {waiting} have no result")


def _checked_ids(message: AIMessage, used: set[str]) -> Iterator[str]:
    """The ids of the calls in `tool_calls`, which are valid for every provider."""
    for call in message.tool_calls:
        if not call["id"] or len(call["id"]) > 40 or call["id"] in used:
            raise RefusedError(f"call id {call['id']!r} is missing, too long or used twice")
        if not NAME.match(call["name"]):
            raise RefusedError(f"tool name {call['name']!r}")
        used.add(call["id"])
        yield call["id"]


def _ids_of(message: AIMessage) -> list[str]:
    """The ids of all calls of a message, wherever their provider reads them."""
    listed = [call["id"] or "" for call in message.tool_calls]
    blocks = [block for block in message.content if isinstance(block, dict)]
    keys = {"tool_use": "id", "tool_call": "id", "function_call": "call_id"}
    in_blocks = [b[keys[b["type"]]] or "" for b in blocks if b.get("type") in keys]
    ids = [*listed, *(Counter(in_blocks) - Counter(listed)).elements()]
    raw = message.additional_kwargs.get("tool_calls", [])
    return ids or [each["id"] or "" for each in raw]
