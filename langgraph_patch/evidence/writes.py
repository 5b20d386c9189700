"""Read the messages of a write: to the history, or of what a `@task` returned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite

from langgraph_patch.errors import MessagesError
from langgraph_patch.history.patch import as_messages
from langgraph_patch.history.placeholders import is_synthetic

_ROLES = ("human", "user", "ai", "assistant", "system", "developer")
"""The roles of a message that an application writes as a pair of a role and a text."""


def fold(history: Iterable[BaseMessage], writes: Iterable[object]) -> list[BaseMessage]:
    """A history after writes, as the reducers of a `DeltaChannel` make it.

    Raises:
        MessagesError: If something in it is no message.
    """
    state: dict[object, BaseMessage] = {m.id or id(m): m for m in history}
    for write in writes:
        if isinstance(write, Overwrite):
            state = {}
        for message in _messages_of(write):
            if message.id == REMOVE_ALL_MESSAGES:
                state = {}
            elif isinstance(message, RemoveMessage):
                state.pop(message.id, None)
            else:
                state[message.id or id(message)] = message
    return list(state.values())


def _messages_of(value: object) -> list[BaseMessage]:
    """The messages of one write to the history: a list, or one of any form that LangChain knows."""
    value = (value.value or []) if isinstance(value, Overwrite) else value
    is_pair = isinstance(value, list) and [*map(type, value)] == [str, str] and value[0] in _ROLES
    return as_messages(value if isinstance(value, list) and not is_pair else [value])


def written_messages(value: object) -> list[BaseMessage]:
    """The messages of a write to the history; none if it is no list of messages."""
    with contextlib.suppress(MessagesError):  # LangGraph would have raised it too
        return _messages_of(value)
    return []


def returned_messages(value: object, messages_key: str) -> Iterator[BaseMessage]:
    """The messages in what a `@task` returned: texts are none."""
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from returned_messages(part, messages_key)
    elif isinstance(value, Command):
        yield from returned_messages(value.update, messages_key)
    elif isinstance(value, dict) and messages_key in value:
        yield from returned_messages(value[messages_key], messages_key)
    elif isinstance(value, dict):
        yield from written_messages(value)


def is_real(message: BaseMessage) -> TypeGuard[ToolMessage]:
    """Whether a message is what a tool returned, and no placeholder of anybody."""
    return isinstance(message, ToolMessage) and not is_synthetic(message)
