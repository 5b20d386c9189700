"""Values of a state of any form, and the one form in which a repaired history is written.

A node that runs alone in its superstep writes a repaired history as an `Overwrite`: one write,
whatever the reducer. What the node itself adds is part of it, because an `Overwrite` discards every
other write of the superstep.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.graph.message import push_message
from langgraph.types import Command, Overwrite
from pydantic import BaseModel

from langgraph_patch._langgraph.run import Run
from langgraph_patch._langgraph.storage import state_keys
from langgraph_patch.errors import GraphError
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.messages import messages_or_none

# --- values of a state ------------------------------------------------------------------


def get_value(state: Any, key: str) -> Any:
    """The value of `key`, or None if `state` has no such key."""
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def messages_in(state: Any, key: str) -> list[BaseMessage] | None:
    """The history under `key`; None if there is none.

    A list without any LangChain message is none: nodes that use plain dicts expect dicts.
    """
    value = get_value(state, key)
    if not isinstance(value, list):
        return None
    if value and not any(isinstance(message, BaseMessage) for message in value):
        return None
    return messages_or_none(value)  # None for a value that only the application understands


def history_after(state: Any, key: str, run: Run) -> list[BaseMessage] | None:
    """The history that a conditional edge decides by; its `state` may lack the key."""
    if get_value(state, key) is None:
        state = run.values([key], fresh=True)
    return messages_in(state, key)


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


def values_in(state: Any) -> dict[str, Any]:
    """The values of a state that is a dict, a model or a dataclass; none of anything else."""
    if isinstance(state, dict):
        return state
    is_model = isinstance(state, BaseModel) and not isinstance(state, BaseMessage)
    is_data = is_dataclass(state) and not isinstance(state, type)
    return dict(getattr(state, "__dict__", {})) if is_model or is_data else {}


def unknown_key_error(key: str, channels: Iterable[str]) -> GraphError:
    """The error for a `messages_key` that is not a key of the state."""
    keys = ", ".join(map(repr, state_keys(channels)))
    return GraphError(f"messages_key={key!r} is no key of the state: expected one of {keys}.")


def open_calls(history: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """The calls of the last message of a model that have no result yet, by their index in it."""
    places = [i for i, message in enumerate(history) if isinstance(message, AIMessage)]
    if not places:
        return {}
    last, after = history[places[-1]], history[places[-1] :]
    answered = Counter(m.tool_call_id for m in after if isinstance(m, ToolMessage))
    found: dict[int, dict[str, Any]] = {}
    for index, call in enumerate(last.tool_calls):
        if answered[str(call["id"])]:
            answered[str(call["id"])] -= 1
        else:
            found[index] = dict(call)
    return found


# --- the output of a node -------------------------------------------------------------------


class NodeOutput:
    """What a node returned, and what it writes to the state.

    Args:
        value: What it returned.

    Attributes:
        update: The state update of a node that returned nothing, a dict, or `Command`s with dicts.
            None for any other form, for a `Command` to another graph, and if two write one key.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._parts = [] if value is None else value if isinstance(value, list) else [value]
        self.update = self._read()

    def _read(self) -> dict[str, Any] | None:
        are_commands = all(isinstance(part, Command) for part in self._parts)
        if isinstance(self.value, list) and not (self._parts and are_commands):
            return None
        update: dict[str, Any] = {}
        for part in self._parts:
            own = _own_update(part)
            is_of_parent = isinstance(part, Command) and part.graph is not None
            if is_of_parent or not isinstance(own, dict) or own.keys() & update.keys():
                return None
            update |= own
        return update

    def messages(self, key: str) -> list[Any]:
        """The messages that the node writes to a history."""
        return listed((self.update or {}).get(key))

    def new_message(self, histories: Mapping[str, Sequence[BaseMessage]]) -> BaseMessage | None:
        """The one message that the node adds to these histories; None if it adds several."""
        known = {message.id for history in histories.values() for message in history} - {None}
        new = {
            id(message): message
            for key in histories
            for message in self.messages(key)
            if not isinstance(message, RemoveMessage) and message.id not in known
        }
        return next(iter(new.values())) if len(new) == 1 else None

    def with_values(self, values: Mapping[str, Any]) -> Any:
        """The output with other values of some keys, each in the `Command` that writes it."""
        if not self._parts:
            return dict(values)
        *others, last = self._parts
        left, changed = dict(values), []
        for part in others:
            own = [key for key in left if key in _own_update(part)]
            changed.append(_replaced(part, {key: left.pop(key) for key in own}))
        changed.append(_replaced(last, left))
        return changed if isinstance(self.value, list) else changed[0]

    def with_messages_before(self, messages: Mapping[str, Sequence[BaseMessage]]) -> Any:
        """The output with messages before its own, but where it overwrites the whole history."""
        values: dict[str, Any] = {}
        for key, before in messages.items():
            if not isinstance((self.update or {}).get(key), Overwrite):
                own = self.messages(key)
                ids = {message.id for message in own if isinstance(message, BaseMessage)} - {None}
                values[key] = [*(each for each in before if each.id not in ids), *own]
        return self.with_values(values)

    def with_writes(self, writes: Mapping[str, Any]) -> Any:
        """The output, with what `whole_write` made for some of its keys.

        An `Overwrite` is added behind the output, so that `stream_mode="messages"` shows the node's
        own messages; LangGraph discards what the output itself writes to the key. It replaces an
        output that removes messages, since these may be new ones that the state does not have.
        """
        own = [message for key in writes for message in self.messages(key)]
        if any(isinstance(message, RemoveMessage) for message in own) or not all(
            isinstance(value, Overwrite) for value in writes.values()
        ):
            return self.with_values(writes)
        return [*self._parts, Command(update=dict(writes))] if self._parts else dict(writes)

    def without_removals_of(self, ids: Collection[str | None]) -> Any:
        """The output without the removal of these messages, which LangGraph would refuse."""
        kept = {
            key: [m for m in value if not (isinstance(m, RemoveMessage) and m.id in ids)]
            for key, value in (self.update or {}).items()
            if isinstance(value, list) and any(isinstance(m, RemoveMessage) for m in value)
        }
        return self.with_values(kept) if kept else self.value


def _own_update(part: Any) -> Any:
    """The state update in what a node returned: a `Command`, or the update itself."""
    return (part.update or {}) if isinstance(part, Command) else part


def _replaced(part: Any, values: Mapping[str, Any]) -> Any:
    update = {**_own_update(part), **values}
    return replace(part, update=update) if isinstance(part, Command) else update


def listed(value: Any) -> list[Any]:
    """The messages that a node writes to its history; one message may be of any form."""
    value = value.value if isinstance(value, Overwrite) else value
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


# --- writing a repaired history ---------------------------------------------------------------


def whole_write(channel: Any, patch: Patch, *own: Any) -> Any:
    """The one value that writes a repaired history, and what the node adds to it.

    Args:
        channel: The live channel of the history; None outside of a graph.
        patch: The repair of its value.
        *own: The value that the node itself writes to the channel, if it does.

    Returns:
        An `Overwrite`, or the plain history for a channel without a reducer. None if the node
        overwrites the history itself, or if the channel accepts neither.
    """
    if any(isinstance(value, Overwrite) for value in own):
        return None
    if channel is None:
        return Overwrite(list(patch.messages))
    for form in (Overwrite, list):
        history = form(list(patch.messages))
        if _value_after(channel, patch, [history]) == list(patch.messages):
            value = _value_after(channel, patch, [history, *own])
            return None if value is None else form(value)
    return None


def _value_after(channel: Any, patch: Patch, writes: Sequence[Any]) -> Any:
    """The value of a channel with the damaged history after these writes, one after the other.

    None if the channel does not accept them.
    """
    # The list is copied: a reducer of the application may extend it in place.
    trial = channel.from_checkpoint(list(patch.before))
    try:
        for write in writes:
            trial.update([write])
        return trial.get()
    except Exception:  # noqa: BLE001 - a reducer may raise anything
        return None


# --- what clients see of it ---------------------------------------------------------------------


def new_messages(patch: Patch) -> list[BaseMessage]:
    """The messages that a repair added: what clients see of it."""
    old_ids = {message.id for message in patch.before}
    return [message for message in patch.messages if message.id not in old_ids]


def stream_results(run: Run, patches: Iterable[Patch]) -> None:
    """Let `stream_mode="messages"` show the new tool messages of repairs.

    LangGraph finds no messages in an `Overwrite`.
    """
    for patch in patches if run.node else ():
        for message in new_messages(patch):
            if isinstance(message, ToolMessage):
                push_message(message, state_key=None)


def show_repairs(
    run: Run,
    patches: Mapping[str, Patch],
    own: Mapping[str, Any],
    keys: Iterable[str],
) -> None:
    """Let `stream_mode="updates"` show one dict with what is new, instead of an `Overwrite`.

    For each history it has the new messages of the repair, then those of the node itself.

    Args:
        run: The run of the node; nothing is shown outside of a graph.
        patches: The repairs that are written, by their state keys.
        own: What the node itself writes.
        keys: The keys of the output schema of the graph.
    """
    shown = set(keys)
    plain = {k: v.value if isinstance(v, Overwrite) else v for k, v in own.items()}
    chunk = {key: value for key, value in plain.items() if key in shown}
    for key, patch in patches.items():
        if key in shown:
            output = listed(own.get(key))
            # A compiled graph that is a node returns its whole history, the placeholders too.
            returned = {message.id for message in output if isinstance(message, BaseMessage)}
            new = [message for message in new_messages(patch) if message.id not in returned]
            chunk[key] = [*new, *output]
    run.show_in_updates(chunk)
