"""Add the turns of agents that are nodes, which LangGraph drops if an input abandons them.

They are added behind the last message that the graph had before the input. The whole history is
repaired at once. While it is, a message behind each turn stands for the input: without it, the
placeholder of a call would say that the call still waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph import (
    channels_of,
    checkpoint_before_run,
    checkpointer_of,
    thread_config,
)
from langgraph_patch._langgraph_storage import is_delta_channel, state_keys
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.checkpointer import Place, Reader, in_namespace
from langgraph_patch.evidence.effects import StateWrites, has_value, whole_value_write
from langgraph_patch.evidence.nested import namespace_of
from langgraph_patch.evidence.tasks import Task
from langgraph_patch.evidence.turns import Turn, dropped_turns, without
from langgraph_patch.evidence.window import called_in
from langgraph_patch.graph.repairer import Repair, Repairer
from langgraph_patch.history.ids import PLACEHOLDER_KEY, digest_of, valid_name
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.repair import Change
from langgraph_patch.history.texts import turn_texts

NAME = "patch_tool_calls"
"""The name of the node to which START leads if a history is to be repaired."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The turns that are to be added to a history, because an input dropped them.

    Attributes:
        index: Where they are added.
        turns: The turns, with the messages that the history does not have.
        restored: Writes to other state keys that the turns changed.
    """

    index: int
    turns: Sequence[Turn]
    restored: StateWrites


def abandoned_turns(
    repairer: Repairer, history: list[BaseMessage] | None, config: RunnableConfig, builder: Any
) -> IOGenerator[Abandoned | EvidenceError | None]:
    """The turns that the input of a run dropped; None if there are none.

    Args:
        repairer: The repairer of the history.
        history: The history, with the input.
        config: The config of START, or of the node that adds the turns.
        builder: The graph; None for none.

    Returns:
        The turns; the error of a checkpointer that cannot be read.
    """
    saver, thread = checkpointer_of(config), thread_config(config)
    loaded = checkpoint_before_run(config)
    if not (builder and repairer.recover and history and saver and thread and loaded):
        return None
    reader = Reader(saver, repairer.messages_key)
    place = in_namespace(thread, namespace_of(thread), loaded)
    found = yield from dropped_turns(reader, place, builder, NAME)
    if reader.error is not None or found is None:
        return reader.error
    own_keys = {repairer.messages_key, *repairer.other_histories}
    live = {key: each for key, each in channels_of(config).items() if key not in own_keys}
    return turns_to_add(history, found, live)


def place_after(history: Sequence[BaseMessage], before: Place) -> int:
    """Where a history goes on after the messages that it had at a checkpoint."""
    index = len(history)
    while index and without(history[index - 1 : index], before.history):
        index -= 1
    return index


def turns_to_add(
    history: Sequence[BaseMessage], found: tuple[Place, Sequence[Turn]], live: Mapping[str, Any]
) -> Abandoned | None:
    """What a history lacks of turns; None if that is nothing.

    Args:
        history: The history, with the input that dropped the turns.
        found: The checkpoint that the input dropped, and its turns.
        live: The channels of the other state keys, with their values. A channel that is None is
            not restored.
    """
    before, dropped = found
    index = place_after(history, before)
    known, turns, restored = list(history), [], dict[str, tuple[str, Any]]()
    for turn in dropped:
        messages = without(turn.messages, known)
        known += messages
        new, writes = _checked(replace(turn, messages=messages), before, live, restored)
        is_told = _id_of(turn.caller) in {message.id for message in history}
        if messages and not is_told and (new.is_known or called_in(messages)):
            turns.append(new)
            restored |= {key: (turn.caller.namespace, write) for key, write in writes.items()}
    pairs = tuple((key, write) for key, (_, write) in restored.items())
    return Abandoned(index, turns, pairs) if index and turns else None


def _checked(
    turn: Turn,
    before: Place,
    live: Mapping[str, Any],
    restored: Mapping[str, tuple[str, Any]],
) -> tuple[Turn, dict[str, Any]]:
    """A turn, and writes that restore the other state keys that it changed.

    If not all can be restored, its results may state what the state does not have, so it is told.
    A key that another turn of the superstep changed cannot be restored twice.
    """
    namespace = turn.caller.namespace
    unchanged = {
        key
        for key in state_keys(live)
        if live[key] is not None
        and has_value(live[key], before.values.get(key))
        and namespace.startswith(restored.get(key, ("",))[0])
    }
    changed = {key: value for key, value in turn.changed.items() if key in live}
    versions = turn.place.step.saved.checkpoint["channel_versions"]
    changed |= {key: None for key in live if key in versions and is_delta_channel(live[key])}
    writes = {key: whole_value_write(live[key], changed[key]) for key in changed.keys() & unchanged}
    is_lost = None in writes.values() or len(writes) < len(changed)
    if turn.is_known and not (is_lost and called_in(turn.messages)):
        return replace(turn, changed={}, unchanged=frozenset(unchanged)), writes
    return replace(turn, changed=changed, is_known=False), {}


# --- the repair -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The turns at one place, while the history is repaired.

    Attributes:
        abandoned: The place and the turns.
        marks: A message before the first turn, and one behind each turn that stands for the input.
    """

    abandoned: Abandoned
    marks: Sequence[BaseMessage]

    @property
    def rows(self) -> Iterator[_Row]:
        """The messages, with the turn of each."""
        yield self.marks[0], None, None
        for turn, mark in zip(self.abandoned.turns, self.marks[1:], strict=True):
            yield from ((message, None, turn) for message in turn.messages)
            yield mark, None, None


_Row: TypeAlias = tuple[BaseMessage, int | None, Turn | None]
"""A message, its index in the history if it is there, and its turn if it is added."""


def repair_with_turns(
    history: Sequence[BaseMessage],
    abandoned: Sequence[Abandoned],
    repair: Callable[[list[BaseMessage], Mapping[int, Turn]], IOGenerator[Repair]],
) -> IOGenerator[Repair]:
    """The repair of a history, with the turns that it lacks.

    Args:
        history: The history.
        abandoned: The turns, in the order of their places.
        repair: Repairs a history that has messages of turns; their indexes say of which turns.
    """
    own: list[_Row] = [(message, index, None) for index, message in enumerate(history)]
    parts = [_Part(each, _marks(each, history)) for each in abandoned]
    rows: list[_Row] = []
    for part in parts:
        done = sum(index is not None for _, index, _ in rows)
        rows += [*own[done : part.abandoned.index], *part.rows]
    rows += own[part.abandoned.index :]
    turns = {i: turn for i, (_, _, turn) in enumerate(rows) if turn is not None}
    made = yield from repair([message for message, _, _ in rows], turns)
    patch = _joined(made.patch, list(history), parts, [*(i for _, i, _ in rows), len(history)])
    restored = tuple(write for each in abandoned for write in each.restored)
    return Repair(patch, (*restored, *made.restored))


def _marks(abandoned: Abandoned, history: Sequence[BaseMessage]) -> list[BaseMessage]:
    is_human = any(isinstance(message, HumanMessage) for message in history[abandoned.index :])
    ends = [HumanMessage("-") if is_human else SystemMessage("-") for _ in abandoned.turns]
    return [SystemMessage("-"), *ends]


def _joined(
    patch: Patch,
    history: list[BaseMessage],
    parts: Sequence[_Part],
    places: Sequence[int | None],
) -> Patch:
    """The repair without the messages that stand for an input."""
    results = {id(c.after): c for c in patch.changes if c.kind in ("inserted", "recovered")}
    where = {id(message): index for index, message in enumerate(patch.messages)}
    messages: list[BaseMessage] = []
    changes: list[Change] = []
    begin = 0
    for part in parts:
        ends = [where[id(mark)] for mark in part.marks]
        added = _added(part, [patch.messages[i + 1 : end] for i, end in pairwise(ends)])
        messages += [*patch.messages[begin : ends[0]], *added]
        begin = ends[-1] + 1
        index = part.abandoned.index
        changes += [replace(results.get(id(m), _restored(m)), index=index) for m in added]
    for change in patch.changes:
        if (place := places[change.index]) is not None:
            changes.append(replace(change, index=place))
    changes.sort(key=lambda change: change.index)
    return Patch([*messages, *patch.messages[begin:]], tuple(changes), history)


def _added(part: _Part, repaired: Sequence[Sequence[BaseMessage]]) -> list[BaseMessage]:
    """The messages of the turns at one place, or what is told of them."""
    added: list[BaseMessage] = []
    pairs = zip(part.abandoned.turns, repaired, strict=True)
    for _, group in groupby(pairs, key=lambda pair: (pair[0].caller, pair[0].is_known)):
        turns, own = zip(*group, strict=True)
        messages = [message for each in own for message in each]
        added += messages if turns[0].is_known else _told(turns, messages)
    return added


def _restored(message: BaseMessage) -> Change:
    call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
    return Change("restored", "abandoned", 0, call_id, message.name, None, None, message)


# --- one message for what a function would have returned ------------------------------------------


def _told(turns: Sequence[Turn], messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """One message that says what was recorded of the calls; none if there are no calls."""
    results = {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}
    lines = [
        f"- {call['name']}({json.dumps(call['args'], ensure_ascii=False, default=repr)}): "
        f"{results.get(str(call['id']), '')}"
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    if not lines:
        return []
    caller = turns[0].caller
    name = valid_name(caller.node or "")
    lost = sorted({key for turn in turns for key in turn.changed})
    text = "\n".join([*turn_texts(name, lost), *lines])
    mark = {PLACEHOLDER_KEY: {"turn_of": caller.node}}
    return [AIMessage(text, id=_id_of(caller), name=name, additional_kwargs=mark)]


def _id_of(caller: Task) -> str:
    return f"patch-{digest_of('turn', caller.namespace)[:32]}"
