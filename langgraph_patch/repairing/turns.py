"""Add the turns of agents that are nodes, which LangGraph drops if an input abandons them.

The messages of each turn are repaired on their own, as a history that a human message follows, with
what the checkpoints of its graph recorded. They are put before the input, and the whole history is
repaired.

Other state keys that an agent changed are not restored, and what a function would have returned is
not known. If its tool calls may have changed something, one message tells what was recorded of
them. It is a human message: what a model reads as its own text, it imitates, and applications send
the newest message of an agent to their users.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IOGenerator
from langgraph_patch._text import cut
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.nested import without
from langgraph_patch.evidence.superstep import Superstep, Task
from langgraph_patch.evidence.turns import AbandonedTurn, read_abandoned_turns
from langgraph_patch.evidence.window import Reader, called_in
from langgraph_patch.history.changes import Change, Patch
from langgraph_patch.history.fields import PLACEHOLDER_KEY, digest_of
from langgraph_patch.history.placeholders import HIDDEN_ID
from langgraph_patch.history.reading import read_history
from langgraph_patch.history.texts import turn_texts
from langgraph_patch.repairing.repairer import Repair, Repairer

NAME = "patch_tool_calls"
"""The name of the node to which START leads if a history is to be repaired."""

_MAX_JSON = 300
"""How many characters a message about a turn has of the arguments, and of the result, of a call."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The turns that are to be added to a history, because an input dropped them.

    Attributes:
        index: Where they are added.
        turns: The turns, with the messages that the history does not have.
    """

    index: int
    turns: Sequence[AbandonedTurn]


def abandoned_turns(
    repairer: Repairer, history: list[BaseMessage] | None, run: Run, graph: Graph | None
) -> IOGenerator[Abandoned | EvidenceError | None]:
    """The turns that the input of a run dropped; None if there are none.

    Args:
        repairer: The repairer of the history.
        history: The history, with the input.
        run: The run, as START or the node that adds the turns sees it.
        graph: The graph; None for none.

    Returns:
        The turns; the error of a checkpointer that cannot be read.
    """
    saver, thread, loaded = run.saver, run.thread, run.loaded_checkpoint
    if not (graph and repairer.recover and history and saver and thread and loaded):
        return None
    reader = Reader(saver, repairer.messages_key)
    before = replace(thread, checkpoint_id=loaded)
    saved = run.kept_by_graph.pop(Reader, None) or (yield from reader.read_saved(before))
    run.kept_by_graph[Reader] = saved  # for the node, and for the search for results
    reader.seen = saved
    found = yield from read_abandoned_turns(reader, before, graph, NAME)
    if reader.error is not None or found is None:
        return reader.error
    own_keys = {repairer.messages_key, *repairer.other_histories}
    others = {key: each for key, each in run.channels.items() if key not in own_keys}
    return _turns_to_add(history, *found, others)


def _turns_to_add(
    history: Sequence[BaseMessage],
    before: Superstep,
    dropped: Iterable[AbandonedTurn],
    others: Mapping[str, Any],
) -> Abandoned | None:
    """What a history lacks of turns; None if that is nothing.

    A turn that is told stands before the message of the input; without one it is not told.
    """
    index = _place_after(history, before)
    ids = {message.id for message in history}
    known, turns = list(history), []
    for turn in dropped:
        messages = without(turn.messages, known)
        known += messages
        new = _told_if_changed(replace(turn, messages=messages), others)
        is_told = not ids.isdisjoint(_ids_of(turn.caller))
        is_wanted = new.is_known or (index < len(history) and bool(called_in(messages)))
        if messages and not is_told and is_wanted:
            turns.append(new)
    return Abandoned(index, turns) if index and turns else None


def _place_after(history: Sequence[BaseMessage], before: Superstep) -> int:
    """Where a history goes on after the messages that it had at a checkpoint."""
    index = len(history)
    while index and without(history[index - 1 : index], before.history):
        index -= 1
    return index


def _told_if_changed(turn: AbandonedTurn, others: Mapping[str, Any]) -> AbandonedTurn:
    """Mark a turn as told if its results may state what other state keys do not have."""
    keys = storage.state_keys(others)
    versions = turn.newest.saved.checkpoint["channel_versions"]
    changed = {key: value for key, value in turn.changed.items() if key in keys}
    changed |= {
        key: None for key in keys if key in versions and storage.is_delta_channel(others[key])
    }
    is_known = turn.is_known and not (changed and called_in(turn.messages))
    return replace(turn, changed=changed, is_known=is_known)


# --- the repair -----------------------------------------------------------------------------------


def repair_with_turns(
    repairer: Repairer,
    history: list[BaseMessage],
    abandoned: Abandoned,
    run: Run,
) -> IOGenerator[Repair]:
    """The repair of a history, with the turns that it lacks.

    Args:
        repairer: The repairer of the history.
        history: The history, with the input.
        abandoned: The turns.
        run: The run of the node that adds them.
    """
    turns, index = (yield from _repaired_turns(repairer, abandoned, run)), abandoned.index
    added = [change for turn in turns for change in _messages_added(turn)]
    added += [_restored(record) for record in _records_of(turns)]
    new = [change.after for change in added if change.after]
    messages = [*history[:index], *new, *history[index:]]
    reading = read_history(messages, leaves_open=repairer.leaves_open, look_again=True)
    made = yield from repairer.repair(reading, run, restore=True)

    def place(change: Change) -> int:
        """Its index in the history without the new messages; theirs is where they are added."""
        return change.index if change.index < index else max(change.index - len(new), index)

    changes = [replace(change, index=index) for change in added]
    changes += [replace(change, index=place(change)) for change in made.patch.changes]
    in_order = tuple(sorted(changes, key=lambda change: change.index))
    return made._replace(patch=Patch(made.patch.messages, in_order, history))


def _restored(message: BaseMessage) -> Change:
    """The change that adds a message; it gets its index where the message is added."""
    call_id = message.tool_call_id if isinstance(message, ToolMessage) else ""
    return Change("restored", "abandoned", 0, call_id, message.name, None, None, message)


# --- the messages of each turn --------------------------------------------------------------------


class _RepairedTurn(NamedTuple):
    """A turn whose calls all have results.

    Attributes:
        turn: The turn.
        first: The results that its messages begin with: its graph may have begun with those of
            calls that are in the history above.
        patch: The repair of its other messages.
    """

    turn: AbandonedTurn
    first: Sequence[BaseMessage]
    patch: Patch


def _repaired_turns(
    repairer: Repairer, abandoned: Abandoned, run: Run
) -> IOGenerator[list[_RepairedTurn]]:
    """The turns, each repaired; what asked in them does not wait any more."""
    repaired = []
    for turn in abandoned.turns:
        first = list(takewhile(lambda m: isinstance(m, ToolMessage), turn.messages))
        reading = read_history(turn.messages[len(first) :], ends_pauses=True)
        patch = yield from repairer.repair_abandoned(reading, turn.newest.address, run)
        repaired.append(_RepairedTurn(turn, first, patch))
    return repaired


def _messages_added(repaired: _RepairedTurn) -> list[Change]:
    """A change for each message of a turn; of one that is told, only for its first results."""
    turn, first, patch = repaired
    made = {id(c.after): c for c in patch.changes if c.kind in ("inserted", "recovered")}
    others = patch.messages if turn.is_known else []
    return [*map(_restored, first), *(made.get(id(each)) or _restored(each) for each in others)]


# --- one message for what a function would have returned ------------------------------------------


def _records_of(repaired: Iterable[_RepairedTurn]) -> list[BaseMessage]:
    """A message for each function that ran turns: what was recorded of their tool calls."""
    told: dict[str, list[_RepairedTurn]] = {}
    for each in repaired:
        if not each.turn.is_known:
            told.setdefault(each.turn.caller.below.namespace, []).append(each)
    return [_record_of(turns) for turns in told.values()]


def _record_of(repaired: Sequence[_RepairedTurn]) -> HumanMessage:
    """A message about the turns that one function ran: their calls, and the keys they changed."""
    caller = repaired[0].turn.caller
    node = caller.node or ""
    lost = {key for each in repaired for key in each.turn.changed}
    lines = [line for each in repaired for line in _lines_of(each.patch.messages)]
    text = "\n".join([*turn_texts(node, sorted(lost)), *lines])
    mark = {PLACEHOLDER_KEY: {"turn_of": node}}
    return HumanMessage(text, id=_ids_of(caller)[0], additional_kwargs=mark)


def _lines_of(messages: Sequence[BaseMessage]) -> Iterator[str]:
    """A line for each call of the messages, with its result."""
    for paired in read_history(messages).paired_calls:
        call, answer = paired.call, paired.answer
        result = _json(answer.message.text if answer else "")
        yield f"- {call.name}({_json(call.args)}): {result}"


def _json(value: object) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=repr), _MAX_JSON)


def _ids_of(caller: Task) -> tuple[str, str]:
    """The id of the message about the turns of a task, and the one that it had before."""
    digest = digest_of("turn", caller.below.namespace)[:32]
    return f"{HIDDEN_ID}{digest}", f"patch-{digest}"
