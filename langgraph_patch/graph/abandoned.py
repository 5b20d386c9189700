"""Add the turns of agents that are nodes, which LangGraph drops if an input abandons them.

They are added behind the last message that the graph had before the input. The whole history is
repaired at once. While it is, a message behind each turn stands for the input: without it, the
placeholder of a call would say that the call still waits.

Other state keys that an agent changed are not restored. Its results may state these changes, so a
turn with such changes and with tool calls is told in one message that names the keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

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
    """

    index: int
    turns: Sequence[Turn]


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
    others = {key: each for key, each in channels_of(config).items() if key not in own_keys}
    return turns_to_add(history, found, others)


def place_after(history: Sequence[BaseMessage], before: Place) -> int:
    """Where a history goes on after the messages that it had at a checkpoint."""
    index = len(history)
    while index and without(history[index - 1 : index], before.history):
        index -= 1
    return index


def turns_to_add(
    history: Sequence[BaseMessage], found: tuple[Place, Sequence[Turn]], others: Mapping[str, Any]
) -> Abandoned | None:
    """What a history lacks of turns; None if that is nothing.

    Args:
        history: The history, with the input that dropped the turns.
        found: The checkpoint that the input dropped, and its turns.
        others: The channels of the other state keys.
    """
    before, dropped = found
    index = place_after(history, before)
    ids = {message.id for message in history}
    known, turns = list(history), []
    for turn in dropped:
        messages = without(turn.messages, known)
        known += messages
        new = _told_if_changed(replace(turn, messages=messages), others)
        is_told = _id_of(turn.caller) in ids
        if messages and not is_told and (new.is_known or called_in(messages)):
            turns.append(new)
    return Abandoned(index, turns) if index and turns else None


def _told_if_changed(turn: Turn, others: Mapping[str, Any]) -> Turn:
    """A turn; not a known one if its results may state what other state keys do not have."""
    keys = state_keys(others)
    versions = turn.place.step.saved.checkpoint["channel_versions"]
    changed = {key: value for key, value in turn.changed.items() if key in keys}
    changed |= {key: None for key in keys if key in versions and is_delta_channel(others[key])}
    is_known = turn.is_known and not (changed and called_in(turn.messages))
    return replace(turn, changed=changed, is_known=is_known)


# --- the repair -----------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A message, while the history is repaired.

    Attributes:
        message: The message.
        place: Its index in the history, or the index at which its turn is added.
        turn: Its turn; None for a message of the history.
        is_end: Whether it stands behind a turn, or before the first one of a place.
    """

    message: BaseMessage
    place: int
    turn: Turn | None = None
    is_end: bool = False


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
    own = [_Row(message, index) for index, message in enumerate(history)]
    rows: list[_Row] = []
    done = 0
    for each in abandoned:
        rows += [*own[done : each.index], *_rows_of(each, history[each.index :])]
        done = each.index
    rows += own[done:]
    turns = {i: row.turn for i, row in enumerate(rows) if row.turn and not row.is_end}
    made = yield from repair([row.message for row in rows], turns)
    return made._replace(patch=_joined(made.patch, list(history), rows))


def _rows_of(abandoned: Abandoned, after: Sequence[BaseMessage]) -> Iterator[_Row]:
    """The messages of the turns at one place, with one message before and one behind each turn."""
    is_human = any(isinstance(message, HumanMessage) for message in after)
    yield _Row(SystemMessage("-"), abandoned.index, is_end=True)
    for turn in abandoned.turns:
        yield from (_Row(message, abandoned.index, turn) for message in turn.messages)
        end = HumanMessage("-") if is_human else SystemMessage("-")
        yield _Row(end, abandoned.index, turn, is_end=True)


def _joined(patch: Patch, history: list[BaseMessage], rows: Sequence[_Row]) -> Patch:
    """The repair without the messages that stand for an input."""
    results = {id(c.after): c for c in patch.changes if c.kind in ("inserted", "recovered")}
    messages: list[BaseMessage] = []
    changes: list[Change] = []
    # What one function did is told in one message.
    for _, same in groupby(_parts(patch, rows), key=lambda part: _namespace_of(_told_by(part[0]))):
        parts = list(same)
        if (caller := _told_by(parts[0][0])) is not None:
            parts = [(parts[0][0], _told(caller, parts))]
        for row, own in parts:
            messages += own
            if row is not None and row.turn is not None:
                new = [replace(results.get(id(m), _restored(m)), index=row.place) for m in own]
                changes += new
    places = {i: row.place for i, row in enumerate(rows) if not (row.turn or row.is_end)}
    places[len(rows)] = len(history)
    own_changes = [change for change in patch.changes if change.index in places]
    changes += [replace(change, index=places[change.index]) for change in own_changes]
    return Patch(messages, tuple(sorted(changes, key=lambda change: change.index)), history)


_Part: TypeAlias = tuple[_Row | None, list[BaseMessage]]
"""The end of a part of a repaired history, None at the end of all, and the messages before it."""


def _parts(patch: Patch, rows: Sequence[_Row]) -> Iterator[_Part]:
    where = {id(message): index for index, message in enumerate(patch.messages)}
    begin = 0
    for row in rows:
        if row.is_end:
            yield row, patch.messages[begin : where[id(row.message)]]
            begin = where[id(row.message)] + 1
    yield None, patch.messages[begin:]


def _told_by(end: _Row | None) -> Task | None:
    """The task whose function ran a turn, if the turn is to be told."""
    turn = end.turn if end is not None else None
    return None if turn is None or turn.is_known else turn.caller


def _namespace_of(caller: Task | None) -> str | None:
    return None if caller is None else caller.namespace


def _restored(message: BaseMessage) -> Change:
    call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
    return Change("restored", "abandoned", 0, call_id, message.name, None, None, message)


# --- one message for what a function would have returned ------------------------------------------


def _told(caller: Task, parts: Sequence[_Part]) -> list[BaseMessage]:
    """One message that says what was recorded of the calls; none if there are no calls."""
    messages = [message for _, own in parts for message in own]
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
    name = valid_name(caller.node or "")
    lost = sorted({key for row, _ in parts if row and row.turn for key in row.turn.changed})
    text = "\n".join([*turn_texts(name, lost), *lines])
    mark = {PLACEHOLDER_KEY: {"turn_of": caller.node}}
    return [AIMessage(text, id=_id_of(caller), name=name, additional_kwargs=mark)]


def _id_of(caller: Task) -> str:
    return f"patch-{digest_of('turn', caller.namespace)[:32]}"
