"""Write the repaired history: one pass over a history that has been read.

Each message that calls tools is written with its results after it (`call_results`). A message
that only holds results is left out where it was stored, and every other message is copied. Each
function returns what it wrote and a note of every difference: the defect and the change that
repairs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.answers import is_pending, keeps_answer
from langgraph_patch.history.call_results import (
    Note,
    RepairOptions,
    is_renamed,
    note,
    note_field,
    renaming_of,
    write_answer,
    write_substitute,
)
from langgraph_patch.history.paired_calls import CallingMessage, PairedCall, StoredResult
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Change, ChangeKind, Defect, DefectKind
from langgraph_patch.history.rewrite import write_calls
from langgraph_patch.history.tool_results import without_results


@dataclass(slots=True)
class Written:
    """A repaired history, all in the order of the history.

    Attributes:
        messages: The repaired messages.
        notes: What was repaired.
        omitted: The messages that were left out and stay in the state. Each with the number of
            repaired messages before it.
    """

    messages: list[BaseMessage] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    omitted: list[tuple[int, BaseMessage]] = field(default_factory=list)


def repair_history(reading: Reading, options: RepairOptions) -> Written:
    """Write the history in its repaired form."""
    history = Written()
    for index, stored in enumerate(reading.messages):
        message = reading.corrected.get(index, stored)
        if _is_omitted(index, reading):
            history.omitted.append((len(history.messages), stored))
            history.notes.append(note_field("omitted", index, stored, None))
            continue
        if message is not stored and not isinstance(message, ToolMessage):
            history.notes.append(note_field("corrected", index, stored, message))
        if (calling := reading.calling_messages.get(index)) is not None:
            written, found = _write_with_results(calling, reading, options)
        elif (results := reading.stored_results.get(index)) is not None:
            written, found = _write_without_results(message, results, reading)
        else:
            written, found = [message], []
        history.messages += written
        history.notes += found
    return history


# --- messages with fields that bypassed LangChain's validation -------------------------------


def _is_omitted(index: int, reading: Reading) -> bool:
    """Whether no model reads a message, and it stays in the state."""
    if index in reading.unusable:
        return True
    results = reading.stored_results.get(index, ())
    return index in reading.kept and all(stored.paired_call is None for stored in results)


# --- a message that holds results ----------------------------------------------------------


def _write_without_results(
    message: BaseMessage, results: Sequence[StoredResult], reading: Reading
) -> tuple[list[BaseMessage], list[Note]]:
    """What remains of the message: each result is written after its call, or dropped."""
    unpaired = [stored for stored in results if stored.paired_call is None]
    if any(not stored.result.is_certain for stored in unpaired):
        return [message], []
    remainder = without_results(message)
    notes = [_note_dropped(stored, message, reading) for stored in unpaired]
    return [] if remainder is None else [remainder], notes


def _note_dropped(stored: StoredResult, message: BaseMessage, reading: Reading) -> Note:
    call_id, name = stored.result.call_id or "", stored.result.name
    kind: DefectKind = "orphan"
    if stored.result.call_id in reading.call_ids:
        synthetic = stored.is_placeholder or stored.is_foreign
        kind = "superseded" if synthetic else "duplicate"
    return (
        Defect(kind, stored.index, call_id, name),
        Change("dropped", stored.index, call_id, name, None, message, None),
    )


# --- a message that calls tools ------------------------------------------------------------


def _write_with_results(
    calling: CallingMessage, reading: Reading, options: RepairOptions
) -> tuple[list[BaseMessage], list[Note]]:
    """The message and the result of each of its calls."""
    pending = {
        paired
        for paired in calling.calls
        if is_pending(paired, reading, allow_pending=options.allow_pending)
    }
    kept = {paired for paired in calling.calls if keeps_answer(paired, reading, options.evidence)}
    message, notes = _write_calling_message(calling, pending)
    messages: list[BaseMessage] = [message]
    has_missing = len(kept) + len(pending) < len(calling.calls)
    human_follows = has_missing and _human_follows(calling, reading)
    for paired in _order_of_results(calling, kept, pending):
        if paired in kept:
            result, found = write_answer(paired, reading)
        else:
            result, found = write_substitute(paired, reading, options, human_follows=human_follows)
        messages.append(result)
        notes += found
    return messages, notes


def _write_calling_message(
    calling: CallingMessage, pending: AbstractSet[PairedCall]
) -> tuple[AIMessage, list[Note]]:
    """The message with all its calls in `tool_calls`, under valid ids and names."""
    if all(
        not is_renamed(paired) and (paired.call.is_listed or paired in pending)
        for paired in calling.calls
    ):
        return calling.message, []
    message = write_calls(calling.message, [renaming_of(paired) for paired in calling.calls])
    return message, [
        note(change, defect, calling.index, paired, before=calling.message, after=message)
        for paired in calling.calls
        for change, defect in _changes_of_call(paired)
    ]


def _changes_of_call(paired: PairedCall) -> Iterator[tuple[ChangeKind, DefectKind]]:
    if not paired.call.is_listed:
        yield "promoted", "unlisted" if paired.call.incomplete_args is None else "malformed"
    if paired.call.id != paired.new_id:
        yield "renamed", "bad_id"
    if paired.call.name != paired.new_name:
        yield "renamed", "bad_name"


def _order_of_results(
    calling: CallingMessage, kept: AbstractSet[PairedCall], pending: AbstractSet[PairedCall]
) -> list[PairedCall]:
    """The calls that have a result in the repaired history, in the order of these results.

    Real results keep their order and come first. If the message calls one tool twice, results
    come in the order of the calls: Gemini gets names and no ids, so order is all it has.
    """
    missing = [paired for paired in calling.calls if paired not in kept and paired not in pending]
    order = [*sorted(kept, key=_stored_position), *missing]
    same_names = len({paired.new_name for paired in calling.calls}) < len(calling.calls)
    in_place = all(paired.answer and calling.has_in_place(paired.answer) for paired in kept)
    if same_names and (missing or not in_place):
        order.sort(key=lambda paired: paired.ordinal)
    elif missing:
        order.sort(key=lambda paired: -1 if paired.real is not None else paired.ordinal)
    return order


def _stored_position(paired: PairedCall) -> tuple[bool, int, int]:
    """In the order of the history; answers that are stored before their call come last."""
    answer = paired.answer
    assert answer is not None  # noqa: S101 - only calls with an answer are sorted
    return answer.index < paired.calling.index, answer.index, answer.part


def _human_follows(calling: CallingMessage, reading: Reading) -> bool:
    """Whether a human message comes before the next message of a model."""
    for index in range(calling.end, len(reading.messages)):
        if isinstance(reading.messages[index], HumanMessage | AIMessage):
            return isinstance(reading.messages[index], HumanMessage)
    return False
