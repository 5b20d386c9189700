"""Find the message that makes a tool call in a state of any shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall

from langgraph_patch.recording.records import hash_request


def find_message(state: Any, call: ToolCall) -> tuple[str | None, list[ToolCall]]:
    """The id of the message that makes a call, and all calls of that message.

    Args:
        state: The state of a node: a list of messages, a mapping, or an object.
        call: The call. If the last messages of several lists have a call with its id, the message
            with this very object counts, or else those with the same name and arguments.

    Returns:
        The id is None if the message has none, or if several messages make an equal call. The
        list is empty if no message makes the call.
    """
    found = list(messages_with_call(state, call["id"]))
    same = [m for m in found if any(other is call for other in m.tool_calls)]
    found = same or [m for m in found if any(_is_same(o, call) for o in m.tool_calls)] or found
    if not found:
        return None, []
    is_certain = len({message.id for message in found}) == 1
    return (found[0].id if is_certain else None), found[0].tool_calls


def messages_with_call(state: Any, call_id: str | None) -> Iterator[AIMessage]:
    """The last AI message of each list of messages in a state, if it makes a call with this id."""
    channels = {"": state} if isinstance(state, list) else state
    channels = channels if isinstance(channels, Mapping) else getattr(channels, "__dict__", {})
    for messages in channels.values():
        if isinstance(messages, list) and messages and isinstance(messages[-1], BaseMessage):
            last = next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)
            if last is not None and any(call["id"] == call_id for call in last.tool_calls):
                yield last


def find_index(siblings: list[ToolCall], call: ToolCall) -> int | None:
    """The index of a call: by id, because a wrapper may have changed its name or arguments.

    If several calls have the id, by identity, or else by name and arguments.
    """
    found = [i for i, sibling in enumerate(siblings) if sibling["id"] == call["id"]]
    if len(found) > 1:
        same = [i for i in found if siblings[i] is call]
        found = same or [i for i in found if _is_same(siblings[i], call)] or found
    return found[0] if found else None


def _is_same(one: ToolCall, other: ToolCall) -> bool:
    return one["id"] == other["id"] and hash_request(one) == hash_request(other)
