"""The output of a node, and the forms in which a repaired history is written.

A node that runs alone in its superstep writes a repaired history as an `Overwrite`: one write,
whatever the reducer. What the node itself adds is part of it, what `push_message` wrote too,
because an `Overwrite` discards every other write of the superstep. The middleware does not know
what others write: its repair comes before all of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES, push_message
from langgraph.types import Command, Overwrite, Send

from langgraph_patch._langgraph.run import Run
from langgraph_patch._langgraph.storage import is_delta_channel
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.comparing import are_identical, is_equal
from langgraph_patch.history.messages import messages_or_none
from langgraph_patch.state import values_in, with_changed

# --- the output of a node -------------------------------------------------------------------


class NodeOutput:
    """What a node returned, and what it writes to the state.

    Args:
        value: What it returned.

    Attributes:
        updates: The state update of each part of it, if the node returned nothing, a dict, or
            `Command`s with dicts: such an output can be changed. None for any other form, and for
            a `Command` to another graph.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._parts = [] if value is None else value if isinstance(value, list) else [value]
        self.updates = self._read()

    def _read(self) -> list[dict[str, Any]] | None:
        are_commands = all(isinstance(part, Command) for part in self._parts)
        if isinstance(self.value, list) and not (self._parts and are_commands):
            return None
        updates = [_own_update(part) for part in self._parts]
        is_of_parent = any(isinstance(p, Command) and p.graph is not None for p in self._parts)
        are_dicts = all(isinstance(update, dict) for update in updates)
        return updates if are_dicts and not is_of_parent else None

    @property
    def writes(self) -> list[tuple[str, Any]]:
        """The state keys and the values that it writes, in their order, whatever its form."""
        return [write for part in self._parts for write in _writes_of(_own_update(part))]

    def messages(self, key: str) -> list[Any]:
        """The messages that the node writes to a history."""
        return [message for name, value in self.writes if name == key for message in listed(value)]

    def new_message(self, histories: Mapping[str, Sequence[BaseMessage]]) -> BaseMessage | None:
        """The one message that the node adds to these histories; None if it adds several."""
        if self.updates is None:
            return None
        known = {message.id for history in histories.values() for message in history} - {None}
        new = {
            id(message): message
            for key in histories
            for message in self.messages(key)
            # LangGraph also takes a dict, a tuple or a text as a message: such a one has no id.
            if not isinstance(message, RemoveMessage) and getattr(message, "id", None) not in known
        }
        return next(iter(new.values())) if len(new) == 1 else None

    def says_more(
        self,
        key: str,
        read: Sequence[BaseMessage],
        *,
        pushed: Iterable[tuple[str, Any]] = (),
        answers: Collection[str] = (),
    ) -> bool:
        """Whether the node adds a message of a model to a history.

        Args:
            key: The state key of the history.
            read: The history as it was before the node ran.
            pushed: What the node wrote before it returned. Default: nothing.
            answers: What models answered: a message of a human with such a text counts, too. Any
                other one may be a note about a call that is alive. Default: none does.
        """
        known = {id(message) for message in read} | {message.id for message in read} - {None}
        written = [m for name, value in pushed if name == key for m in listed(value)]
        added = [
            m
            for m in messages_or_none([*written, *self.messages(key)]) or ()
            if isinstance(m, AIMessage) or (isinstance(m, HumanMessage) and m.text in answers)
        ]
        new = [m for m in added if known.isdisjoint((id(m), m.id))]
        return any(m.id is not None or m not in read for m in new)  # or a copy without an id

    def with_stored(
        self,
        sent: Mapping[str, Sequence[BaseMessage]],
        stored: Mapping[str, Sequence[BaseMessage]],
    ) -> Any:
        """The output with stored messages in the place of those that the node got.

        A node may return the history that it has read, also under another key, or remove it, as
        one does that summarizes. LangGraph refuses the removal of what is not stored.

        Args:
            sent: The histories that the node got, by their state keys.
            stored: The same histories as they are stored.
        """

        def change(_: str, value: Any) -> Any:
            for key, history in sent.items():
                value = _as_stored(value, history, stored[key])
            return value

        return self._changed(change)

    def with_messages_before(self, messages: Mapping[str, Sequence[BaseMessage]]) -> Any:
        """The output with messages before its own, but where it overwrites the whole history."""
        updates = [dict(update) for update in self.updates or ()] or [{}]
        for key, before in messages.items():
            ids = {m.id for m in self.messages(key) if isinstance(m, BaseMessage)} - {None}
            update = next((each for each in updates if key in each), updates[-1])
            if not any(isinstance(each.get(key), Overwrite) for each in updates):
                kept = [each for each in before if each.id not in ids]
                update[key] = [*kept, *listed(update.get(key))]
        return self._with_updates(updates)

    def with_writes(self, writes: Mapping[str, Any], node: object, run: Run) -> Any:
        """The output, with what `write_repairs` returned.

        An `Overwrite` is written before the node returns, so clients see the output that they know
        from any other run; LangGraph discards what the node itself writes to the key. Where it does
        not, or where a function of the application calls the node, it is added behind the output.

        Args:
            writes: The value for each key. The node itself writes to all, or returned nothing.
            node: The runnable of the node.
            run: The run of the node.
        """
        left, own = dict(writes), [*run.written, *self.writes]
        for key, write in writes.items() if run.can_write_first and run.is_node(node) else ():
            later = [value for name, value in own if name == key]
            if isinstance(write, Overwrite) and _stays_after(run.channels[key], write.value, later):
                run.write_first(key, [left.pop(key)])
        if not (left and self._parts):
            return left or self.value
        if all(isinstance(value, Overwrite) for value in left.values()):
            return [*self._parts, Command(update=left)]
        updates = [{k: left.get(k, v) for k, v in each.items()} for each in self.updates or ()]
        return self._with_updates(updates)

    def _changed(self, change: Callable[[str, Any], Any]) -> Any:
        """The output with other values of its keys; the same object if all stay as they are."""
        changed = [_part_with(part, change) for part in self._parts]
        if are_identical(changed, self._parts):
            return self.value
        return changed if isinstance(self.value, list) else changed[0]

    def _with_updates(self, updates: Sequence[Mapping[str, Any]]) -> Any:
        """The output with other state updates of its parts."""
        if not self._parts:
            return dict(updates[0])
        changed = [_replaced(*each) for each in zip(self._parts, updates, strict=True)]
        return changed if isinstance(self.value, list) else changed[0]


def _own_update(part: Any) -> Any:
    """The state update in what a node returned: a `Command`, or the update itself."""
    return (part.update or {}) if isinstance(part, Command) else part


def _writes_of(update: Any) -> Iterable[tuple[str, Any]]:
    """The state keys and values in an update: a dict, pairs, a model or a dataclass."""
    if isinstance(update, list | tuple):
        return [pair for pair in update if _is_pair(pair)]
    return values_in(update).items()


def _part_with(part: Any, change: Callable[[str, Any], Any]) -> Any:
    """A part of an output, of any form, with other values of its keys."""
    if isinstance(part, Command):
        return with_changed(part, lambda _, value: _part_with(value, change))
    if isinstance(part, Send):
        sent = copy.copy(part)
        sent.arg = _part_with(part.arg, change)
        return part if sent.arg is part.arg else sent
    if isinstance(part, list | tuple):  # the pairs of an update, or several to go to
        parts = [_entry_with(each, change) for each in part]
        return part if are_identical(parts, part) else parts
    return with_changed(part, change)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == len(("key", "value"))


def _entry_with(entry: Any, change: Callable[[str, Any], Any]) -> Any:
    if not _is_pair(entry):
        return _part_with(entry, change)
    value = change(*entry)
    return entry if value is entry[1] else (entry[0], value)


def _replaced(part: Any, update: Mapping[str, Any]) -> Any:
    return replace(part, update=dict(update)) if isinstance(part, Command) else dict(update)


def listed(value: Any) -> list[Any]:
    """The messages that a node writes to its history; one message may be of any form."""
    value = value.value if isinstance(value, Overwrite) else value
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


def _as_stored(value: Any, sent: Sequence[BaseMessage], stored: Sequence[BaseMessage]) -> Any:
    """What a node writes to a history, with stored messages in the place of sent ones.

    Args:
        value: What it writes.
        sent: The history that it has read.
        stored: That history as it is stored.
    """
    new = {message.id for message in sent} - {message.id for message in stored}
    kept = [m for m in listed(value) if not (isinstance(m, RemoveMessage) and m.id in new)]
    value = kept if isinstance(value, list) and len(kept) < len(value) else value
    known = {id(message) for message in stored}
    changed = _Messages(message for message in sent if id(message) not in known)
    written = listed(value)
    if not any(message in changed for message in written):
        return value
    whole, returned = _Messages(sent), _Messages(written)
    if all(message in returned for message in sent):
        place = next(i for i, message in enumerate(written) if message in whole)
        others = [message for message in written[place:] if message not in whole]
        found = [*written[:place], *stored, *others]
    else:
        by_id = {message.id: message for message in stored if message.id is not None}
        if written[0] is value:  # one message, such as the last one
            return by_id.get(value.id) or stored[-1]
        found = [by_id.get(m.id) if m in changed else m for m in written]
        found = [message for message in found if message is not None]
    return Overwrite(found) if isinstance(value, Overwrite) else found


class _Messages:
    """Messages in which an object, or a copy of it with its id, is found again."""

    def __init__(self, messages: Iterable[Any]) -> None:
        each = list(messages)
        self._objects = {id(message) for message in each}
        self._by_id = {getattr(message, "id", None): message for message in each}

    def __contains__(self, message: object) -> bool:
        name = getattr(message, "id", None)
        is_copy = name is not None and is_equal(self._by_id.get(name), message)
        return id(message) in self._objects or is_copy


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
        if _value_after(channel, patch.before, [history]) == list(patch.messages):
            value = _value_after(channel, patch.before, [history], *([each] for each in own))
            return None if value is None else form(value)
    return None


def first_writes(channel: Any, patch: Patch) -> list[list[BaseMessage]] | None:
    """The values that write a repaired history before everything else that a task writes.

    An `Overwrite` would discard the rest. These are for a place that does not know the rest: the
    messages from the first change on are removed, and then written. All messages are, if one has no
    id; a stored thread with such a write in a `DeltaChannel` is read with more care.

    Args:
        channel: The live channel of the history; None outside of a graph.
        patch: The repair of its value.

    Returns:
        None if the channel does not accept them.
    """
    if channel is None or not channel.is_available():
        return None
    old, new = list(channel.get()), list(patch.messages)
    pairs = enumerate(zip(old, new, strict=False))
    place = next((i for i, (a, b) in pairs if a is not b), min(len(old), len(new)))
    ids = [getattr(message, "id", None) for message in old[place:]]
    if None in ids:
        ids, place = [REMOVE_ALL_MESSAGES], 0
    gone: list[BaseMessage] = [RemoveMessage(id=str(each)) for each in ids]
    values = [value for value in (gone, new[place:]) if value]
    return values if _value_after(channel, old, values) == new else None


def _stays_after(channel: Any, value: Any, later: Sequence[Any]) -> bool:
    """Whether later writes of a superstep change nothing behind an `Overwrite`.

    LangGraph discards them. Before 1.2.7, it applied them when it read a `DeltaChannel` again.
    """
    return not is_delta_channel(channel) or _value_after(channel, value, later) == value


def _value_after(channel: Any, before: Any, *supersteps: Sequence[Any]) -> Any:
    """The value of a channel after the writes of these supersteps to a value.

    None if the channel does not accept them.
    """
    # The list is copied: a reducer of the application may extend it in place.
    trial = channel.from_checkpoint(copy.copy(before))
    try:
        for written in supersteps:
            trial.update(written)
        return trial.get()
    except Exception:  # noqa: BLE001 - a reducer may raise anything
        return None


# --- what clients see of it ---------------------------------------------------------------------


def new_messages(patch: Patch) -> list[BaseMessage]:
    """The messages that a repair added: what clients see of it."""
    old_ids = {message.id for message in patch.before}
    return [message for message in patch.messages if message.id not in old_ids]


def stream_results(run: Run, messages: Iterable[BaseMessage]) -> None:
    """Let `stream_mode="messages"` show the tool messages among the new ones of repairs.

    LangGraph finds no messages in an `Overwrite`, and shows none that a node has read.
    """
    for message in messages if run.node else ():
        if isinstance(message, ToolMessage):
            push_message(message, state_key=None)


def show_repairs(
    run: Run,
    patches: Mapping[str, Patch],
    own: Sequence[tuple[str, Any]],
    keys: Iterable[str],
) -> None:
    """Let `stream_mode="updates"` show what is new, instead of an `Overwrite`.

    For each history it has the new messages of the repair, then those of the node itself. It is
    one dict, or a list of dicts if the node writes a key twice, as LangGraph shows it; None if
    there is nothing new.

    Args:
        run: The run of the node; nothing is shown outside of a graph.
        patches: The repairs that are written, by their state keys.
        own: What the node itself writes.
        keys: The keys of the output schema of the graph.
    """
    names = set(keys)
    shown = [(k, v.value if isinstance(v, Overwrite) else v) for k, v in own if k in names]
    for key in names & patches.keys():
        output = [message for name, value in shown if name == key for message in listed(value)]
        # A compiled graph that is a node returns its whole history, the placeholders too.
        returned = {message.id for message in output if isinstance(message, BaseMessage)}
        new = [message for message in new_messages(patches[key]) if message.id not in returned]
        place = next((i for i, (name, _) in enumerate(shown) if name == key), None)
        if place is not None:
            shown[place] = (key, [*new, *listed(shown[place][1])])
        elif new:
            shown.append((key, new))
    is_one_each = len(dict(shown)) == len(shown)
    run.show_in_updates((dict(shown) or None) if is_one_each else [{k: v} for k, v in shown])
