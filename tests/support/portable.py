"""What some provider refuses of calls that others accept."""

from __future__ import annotations

import re
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_patch.testing import RefusedError, check_request

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
ID = re.compile(r"[a-zA-Z0-9]{9}\Z")


def check_portable(messages: Sequence[BaseMessage]) -> None:
    """Raise for a history that is not for every provider: unique ids, valid ids and names."""
    check_request(messages)
    used: set[str] = set()
    for message in messages:
        if message.type == "function":
            raise RefusedError("role 'function' is not accepted")
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            if not ID.match(call["id"] or "") or call["id"] in used:
                raise RefusedError(f"call id {call['id']!r} is invalid or used twice")
            if not NAME.match(call["name"]):
                raise RefusedError(f"tool name {call['name']!r}")
            used.add(call["id"])
