"""Read and replace values in a state and in the output of a node, whatever its form."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command, Overwrite
from pydantic import BaseModel

from langgraph_patch._langgraph_names import ROOT_CHANNEL, state_keys
from langgraph_patch.errors import GraphError, MessagesError
from langgraph_patch.history.field_check import id_of
from langgraph_patch.history.patcher import as_messages


def get_value(state: Any, key: str) -> Any:
    """The value of `key`, or None if `state` has no such key.

    The state of a graph over a bare list is the value of `__root__` itself.
    """
    if isinstance(state, dict):
        return state.get(key)
    return state if key == ROOT_CHANNEL else getattr(state, key, None)


def get_messages(state: Any, key: str) -> list[BaseMessage]:
    """The value of `key` as a list of messages.

    Raises:
        MessagesError: If the value is not a list of messages.
    """
    try:
        return as_messages(get_value(state, key))
    except MessagesError as error:
        raise MessagesError(f"State key {key!r}: {error}") from error


def messages_or_none(state: Any, key: str) -> list[BaseMessage] | None:
    """The value of `key` as a list of messages; None if it has no value, or another one."""
    if get_value(state, key) is None:
        return None
    try:
        return get_messages(state, key)
    except MessagesError:
        return None


def replace_values(state: Any, values: Mapping[str, Any]) -> Any:
    """A copy of `state`, of the same type, with other values."""
    if ROOT_CHANNEL in values:
        return values[ROOT_CHANNEL]
    if isinstance(state, dict):
        return {**state, **values}
    if isinstance(state, BaseModel):
        return state.model_copy(update=values)
    copied = copy.copy(state)
    for key, value in values.items():
        object.__setattr__(copied, key, value)  # the dataclass may be frozen
    return copied


def is_state(value: Any) -> bool:
    """Whether a value may be a state that is no dict: a model or a dataclass."""
    is_model = isinstance(value, BaseModel) and not isinstance(value, BaseMessage)
    return is_model or (is_dataclass(value) and not isinstance(value, type))


def written_keys(output: Any) -> set[str]:
    """The state keys that the output of a node writes, of any form of output."""
    if isinstance(output, Command):
        return written_keys(output.update)
    if _is_pair(output):
        return {output[0]}
    if isinstance(output, list | tuple):
        return {key for part in output for key in written_keys(part)}
    if isinstance(output, dict):
        return set(output)
    return set(vars(output)) if is_state(output) else set()


def written_messages(output: Any, key: str) -> list[Any]:
    """The messages that a dict, a `Command` with a dict, or a list of these writes to `key`."""
    if isinstance(output, Command):
        output = output.update
    if isinstance(output, list):
        return [message for part in output for message in written_messages(part, key)]
    value = output.get(key) if isinstance(output, dict) else None
    return _listed(value.value if isinstance(value, Overwrite) else value)


def with_messages_before(output: Any, key: str, messages: Sequence[BaseMessage]) -> Any:
    """The output of a node that also writes `messages`, before its own.

    An output that overwrites the whole history stays as it is.
    """
    if isinstance(output, Command) and isinstance(output.update, dict):
        return replace(output, update=with_messages_before(output.update, key, messages))
    if isinstance(output, dict):
        return {**output, key: messages_before(messages, output.get(key))}
    if isinstance(output, list):
        for place, part in enumerate(output):
            if written_messages(part, key):
                before = with_messages_before(part, key, messages)
                return [*output[:place], before, *output[place + 1 :]]
    parts = [] if output is None else output if isinstance(output, list) else [output]
    return [Command(update={key: [*messages]}), *parts]


def is_root_output(output: Any, key: str) -> bool:
    """Whether an output is the value of a state that is a bare list, and nothing else."""
    if key != ROOT_CHANNEL:
        return False
    is_list = isinstance(output, list | tuple) and not _is_pair(output)
    return not any(
        isinstance(part, Command) or (_is_pair(part) and part[0] == key)
        for part in (output if is_list else [output])
    )


def _is_pair(output: Any) -> bool:
    """Whether an update is a pair of a key and a value."""
    return isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], str)  # noqa: PLR2004 - a pair


def messages_before(messages: Sequence[BaseMessage], value: Any) -> Any:
    """What a node writes to its history, with `messages` before; an `Overwrite` as it is."""
    if isinstance(value, Overwrite):
        return value
    own = _listed(value)
    ids = {id_of(message) for message in own if isinstance(message, BaseMessage)} - {None}
    return [*(message for message in messages if id_of(message) not in ids), *own]


def _listed(value: Any) -> list[Any]:
    """A value that a node writes to its history as a list; one message may be of any form."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) and not _is_pair(value) else [value]


def unknown_key_error(
    key: str, channels: Iterable[str], with_messages: Sequence[str] = ()
) -> GraphError:
    """The error for a `messages_key` that is not a key of the state."""
    keys = ", ".join(map(repr, state_keys(channels)))
    found = ", ".join(map(repr, with_messages))
    hint = f" Keys with messages: {found}." if found else ""
    return GraphError(f"messages_key={key!r} is no key of the state: expected one of {keys}.{hint}")
