"""Read and replace values in a graph's state, which may be a dict, a dataclass or a model."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from langgraph_patch._langgraph import state_keys
from langgraph_patch.errors import GraphError, MessagesError
from langgraph_patch.history.patcher import as_messages


def get_value(state: Any, key: str) -> Any:
    """The value of `key`, or None if `state` has no such key."""
    return state.get(key) if isinstance(state, dict) else getattr(state, key, None)


def get_messages(state: Any, key: str) -> list[BaseMessage]:
    """The value of `key` as a list of messages.

    Raises:
        MessagesError: If the value is not a list of messages.
    """
    try:
        return as_messages(get_value(state, key))
    except MessagesError as error:
        raise MessagesError(f"State key {key!r}: {error}") from error


def replace_values(state: Any, values: Mapping[str, Any]) -> Any:
    """A copy of `state`, of the same type, with other values."""
    if isinstance(state, dict):
        return {**state, **values}
    if isinstance(state, BaseModel):
        return state.model_copy(update=values)
    copied = copy.copy(state)
    for key, value in values.items():
        object.__setattr__(copied, key, value)  # the dataclass may be frozen
    return copied


def unknown_key_error(key: str, channels: Iterable[str]) -> GraphError:
    """The error for a `messages_key` that is not a key of the state."""
    keys = ", ".join(map(repr, state_keys(channels)))
    return GraphError(f"messages_key={key!r} is no key of the state: expected one of {keys}.")
