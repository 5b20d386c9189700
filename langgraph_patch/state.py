"""The values of a state of any form: a dict, a model, a dataclass or an object.

A list is a history if LangChain reads it as messages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from pydantic import BaseModel

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.run import Run
from langgraph_patch.errors import GraphError, logger
from langgraph_patch.history.messages import messages_or_none


def get_value(state: Any, key: str) -> Any:
    """The value of `key`, or None if `state` has no such key."""
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def messages_in(state: Any, key: str) -> list[BaseMessage] | None:
    """The history under `key`; None if there is none.

    A list without any LangChain message is none: nodes that use plain dicts expect dicts. A WARNING
    says so once.
    """
    value = get_value(state, key)
    if not isinstance(value, list):
        return None
    if value and not any(isinstance(message, BaseMessage) for message in value):
        if any(isinstance(each, Mapping) and "role" in each for each in value):
            warn_of_dicts(key)
        return None
    return messages_or_none(value)  # None for a value that only the application understands


@cache
def warn_of_dicts(key: str) -> None:
    """Say once that a history of plain dicts is left alone."""
    logger.warning(
        "the state key %r holds plain dicts and no LangChain messages, so nothing in it is "
        "repaired: give it the reducer add_messages, as MessagesState does, which makes messages",
        key,
    )


def history_after(state: Any, key: str, run: Run) -> list[BaseMessage] | None:
    """The history that a conditional edge decides by; its `state` may lack the key."""
    if get_value(state, key) is None:
        state = {key: run.value_after(key)}
    return messages_in(state, key)


def replace_values(state: Any, values: Mapping[str, Any]) -> Any:
    """A copy of `state`, of the same type, with other values."""
    if isinstance(state, BaseModel):
        return state.model_copy(update=values)
    copied = copy.copy(state)
    for key, value in values.items():
        if isinstance(state, dict):
            copied[key] = value  # `update` of a `Counter` adds
        else:
            object.__setattr__(copied, key, value)  # the dataclass may be frozen
    return copied


def values_in(state: Any) -> dict[str, Any]:
    """The values of a state that is a dict, a model or a dataclass; none of anything else."""
    if isinstance(state, dict):
        return state
    if is_dataclass(state) and not isinstance(state, type):
        return {each.name: getattr(state, each.name, None) for each in fields(state)}
    is_model = isinstance(state, BaseModel) and not isinstance(state, BaseMessage)
    return dict(state.__dict__) if is_model else {}


def with_changed(state: Any, change: Callable[[str, Any], Any]) -> Any:
    """A copy of `state` with other values of its keys; the same object if all stay as they are."""
    old = values_in(state)
    new = {key: value for key in old if (value := change(key, old[key])) is not old[key]}
    return replace_values(state, new) if new else state


def unknown_key_error(key: str, channels: Iterable[str]) -> GraphError:
    """The error for a `messages_key` that is not a key of the state."""
    keys = ", ".join(map(repr, storage.state_keys(channels)))
    return GraphError(f"messages_key={key!r} is no key of the state: expected one of {keys}.")


def open_calls(history: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """The calls of the last message of a model that have no result yet, by their index in it.

    Of calls with one id, a result answers that of the tool that it names, else the first.
    """
    places = [i for i, message in enumerate(history) if isinstance(message, AIMessage)]
    if not places:
        return {}
    last, after = history[places[-1]], history[places[-1] :]
    found = {index: dict(call) for index, call in enumerate(last.tool_calls)}
    results = [message for message in after if isinstance(message, ToolMessage)]
    for is_named in (True, False):
        for result in [*results]:
            same = [i for i, call in found.items() if str(call["id"]) == result.tool_call_id]
            own = [i for i in same if found[i]["name"] == result.name] if is_named else same
            if own:
                del found[own[0]]
                results.remove(result)
    return found
