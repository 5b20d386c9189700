"""Write the repaired history: one pass over a history that has been read.

Each message that calls tools is written with its results after it: the stored ones, a
recovered one or a placeholder. A message that only holds results is left out where it was
stored, and every other message is copied. Each function returns what it wrote and a note of
every difference: the defect and the change that repairs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.answers import (
    dangling_call,
    evidence_of,
    is_only_settled,
    is_pending,
    keeps_answer,
)
from langgraph_patch.history.ids import digest_of
from langgraph_patch.history.matching import CallingMessage, PairedCall, StoredResult
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import (
    Change,
    ChangeKind,
    Defect,
    DefectKind,
    Evidence,
    Finding,
    RecordedResult,
)
from langgraph_patch.history.placeholders import (
    Cause,
    DanglingCall,
    Language,
    marked_result,
    with_search_marker,
)
from langgraph_patch.history.rewrite import Renaming, write_calls, write_result
from langgraph_patch.history.tool_calls import text_of, without_results

Note: TypeAlias = tuple[Defect, Change]
"""A defect, and the change that repairs it."""


class MakePlaceholder(Protocol):
    """Makes the placeholder of a call; `ordinal` is the position of the call in its message."""

    def __call__(  # noqa: D102
        self,
        call: DanglingCall,
        ordinal: int,
        *,
        human_follows: bool,
        searched: str | None = None,
        recheck: bool = False,
    ) -> ToolMessage: ...


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """How a history is repaired.

    Attributes:
        make_placeholder: Makes a placeholder.
        evidence: What checkpoints recorded about calls without a result.
        allow_pending: Whether calls at the end of the history may stay without a result.
        language: The language of the default texts; None for that of the process.
    """

    make_placeholder: MakePlaceholder
    evidence: Evidence
    allow_pending: bool
    language: Language | None = None


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
            history.notes.append(_note_field("omitted", index, stored, None))
            continue
        if message is not stored and not isinstance(message, ToolMessage):
            history.notes.append(_note_field("corrected", index, stored, message))
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


def _note_field(
    kind: ChangeKind, index: int, before: BaseMessage, after: BaseMessage | None
) -> Note:
    call_id = text_of(after.tool_call_id) if isinstance(after, ToolMessage) else ""
    name = after.name if isinstance(after, ToolMessage) else None
    return (
        Defect("bad_field", index, call_id, name),
        Change(kind, index, call_id, name, None, before, after),
    )


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
            result, found = _write_answer(paired, reading)
        else:
            result, found = _write_substitute(paired, reading, options, human_follows=human_follows)
        messages.append(result)
        notes += found
    return messages, notes


def _write_calling_message(
    calling: CallingMessage, pending: AbstractSet[PairedCall]
) -> tuple[AIMessage, list[Note]]:
    """The message with all its calls in `tool_calls`, under valid ids and names."""
    if all(
        not _is_renamed(paired) and (paired.call.is_listed or paired in pending)
        for paired in calling.calls
    ):
        return calling.message, []
    message = write_calls(calling.message, [_renaming(paired) for paired in calling.calls])
    return message, [
        _note(change, defect, calling.index, paired, before=calling.message, after=message)
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


# --- results -------------------------------------------------------------------------------


def _write_answer(paired: PairedCall, reading: Reading) -> tuple[ToolMessage, list[Note]]:
    """The stored answer of a call."""
    answer = paired.answer
    assert answer is not None  # noqa: S101 - by keeps_answer
    stored = answer.result.message
    message = write_result(stored, _renaming(paired))
    if not answer.result.is_tool_message and message.id is None:
        message = message.model_copy(update={"id": _result_id(paired)})
    before = reading.messages[answer.index]
    notes: list[Note] = []
    if answer.index in reading.corrected and answer.result.is_tool_message:
        notes.append(_note_field("corrected", answer.index, before, message))
    found = _change_of_answer(paired, answer, message)
    if found is not None:
        notes.append(_note(*found, answer.index, paired, before=before, after=message))
    return message, notes


def _change_of_answer(
    paired: PairedCall, answer: StoredResult, message: ToolMessage
) -> tuple[ChangeKind, DefectKind] | None:
    """What `message` changes of the stored answer, if the new id or name of its call is not all."""
    stored = answer.result.message
    if not answer.result.is_tool_message:
        return "converted", "wrong_role"
    if not paired.calling.has_in_place(answer):
        return "moved", "misplaced"
    if message is stored or _is_renamed(paired) or answer.result.call_id is None:
        return None
    if message.content != stored.content:
        return "converted", "wrong_role"
    return "renamed", "bad_name"


def _write_substitute(
    paired: PairedCall, reading: Reading, options: RepairOptions, *, human_follows: bool
) -> tuple[ToolMessage, list[Note]]:
    """The recovered result of a call, else a placeholder."""
    evidence = evidence_of(paired, reading, options.evidence)
    before = paired.answer.result.message if paired.answer else None
    defect: DefectKind = "dangling" if paired.call.incomplete_args is None else "malformed"
    if before is not None:
        defect = "superseded"
    index = paired.calling.index
    if isinstance(evidence, RecordedResult):
        message = _recovered_result(evidence, paired, reading, options.language)
        return message, [_note("recovered", defect, index, paired, before=before, after=message)]
    call = dangling_call(paired, evidence)
    finding = evidence or Finding("unknown")
    if before is not None and is_only_settled(call, before):
        made = with_search_marker(before, finding.searched)
    else:
        made = options.make_placeholder(
            call,
            paired.ordinal,
            human_follows=human_follows,
            searched=finding.searched,
            recheck=finding.recheck,
        )
    message = write_result(made, _renaming(paired))
    note = _note("inserted", defect, index, paired, cause=call.cause, before=before, after=message)
    return message, [note]


def _recovered_result(
    found: RecordedResult, paired: PairedCall, reading: Reading, language: Language | None
) -> ToolMessage:
    """The result, under an id that no other message has; it may have that of what it replaces."""
    marked = marked_result(found.message, found.not_kept, found.cause, language)
    message = write_result(marked, _renaming(paired))
    replaced = paired.answer.result.message.id if paired.answer else None
    if message.id is None or (message.id != replaced and message.id in reading.message_ids):
        return message.model_copy(update={"id": _result_id(paired)})
    return message


def _result_id(paired: PairedCall) -> str:
    """An id for a result that has none, or one that another message has."""
    digest = digest_of("result", paired.calling.message.id, paired.new_id, paired.ordinal)
    return f"result-{digest[:32]}"


# --- both ----------------------------------------------------------------------------------


def _renaming(paired: PairedCall) -> Renaming:
    return Renaming(paired.call, paired.new_id, paired.new_name)


def _is_renamed(paired: PairedCall) -> bool:
    return (paired.call.id, paired.call.name) != (paired.new_id, paired.new_name)


def _note(
    change: ChangeKind,
    defect: DefectKind,
    index: int,
    paired: PairedCall,
    *,
    cause: Cause | None = None,
    before: BaseMessage | None,
    after: BaseMessage,
) -> Note:
    """A note about one call and the message at `index`."""
    return (
        Defect(defect, index, paired.call.id, paired.call.name),
        Change(change, index, paired.new_id, paired.new_name, cause, before, after),
    )
