"""What providers refuse of a history, written from their rules."""

from __future__ import annotations

import re
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


class RefusedError(ValueError):
    """What a provider answers with its status 400."""


def refuse(messages: Sequence[BaseMessage], *, any_names: bool = False) -> None:
    """Raise as a provider would on a history with calls and results that do not pair.

    Written on its own, from the providers' rules; it shares nothing with the package.

    Args:
        messages: The history.
        any_names: Whether ids and names may be anything, as servers of local models have it.
    """
    waiting: list[str] = []
    used: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                raise RefusedError(f"result {message.tool_call_id!r} answers no call before it")
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            raise RefusedError(f"calls {waiting} have no result right after them")
        if message.type in {"function", "chat"} and getattr(message, "role", "") != "user":
            raise RefusedError(f"role {message.type!r} is not accepted")
        if isinstance(message, AIMessage):
            if message.invalid_tool_calls:
                raise RefusedError("a call with malformed arguments")
            for call in message.tool_calls:
                waiting.append(call["id"])
                if any_names:
                    continue
                if not call["id"] or len(call["id"]) > 40 or call["id"] in used:
                    raise RefusedError(f"call id {call['id']!r} is missing, too long or used twice")
                if not NAME.match(call["name"]):
                    raise RefusedError(f"tool name {call['name']!r}")
                used.add(call["id"])
    if waiting:
        raise RefusedError(f"calls {waiting} have no result")
