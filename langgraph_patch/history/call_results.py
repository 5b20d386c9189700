"""Write the result of one call: the stored answer, a recovered result or a placeholder.

Each function returns the message and a note of every difference: the defect and the change that
repairs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_patch.history.answers import dangling_call, evidence_of, is_only_settled
from langgraph_patch.history.ids import digest_of
from langgraph_patch.history.paired_calls import PairedCall, StoredResult
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
from langgraph_patch.history.rewrite import Renaming, write_result
from langgraph_patch.history.tool_calls import text_of

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


def write_answer(paired: PairedCall, reading: Reading) -> tuple[ToolMessage, list[Note]]:
    """The stored answer of a call."""
    answer = paired.answer
    assert answer is not None  # noqa: S101 - by keeps_answer
    stored = answer.result.message
    message = write_result(stored, renaming_of(paired))
    if not answer.result.is_tool_message and message.id is None:
        message = message.model_copy(update={"id": _result_id(paired)})
    before = reading.messages[answer.index]
    notes: list[Note] = []
    if answer.index in reading.corrected and answer.result.is_tool_message:
        notes.append(note_field("corrected", answer.index, before, message))
    found = _change_of_answer(paired, answer, message)
    if found is not None:
        notes.append(note(*found, answer.index, paired, before=before, after=message))
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
    if message is stored or is_renamed(paired) or answer.result.call_id is None:
        return None
    if message.content != stored.content:
        return "converted", "wrong_role"
    return "renamed", "bad_name"


def write_substitute(
    paired: PairedCall, reading: Reading, options: RepairOptions, *, human_follows: bool
) -> tuple[ToolMessage, list[Note]]:
    """What a call gets instead of a stored answer: its recovered result, else a placeholder."""
    evidence = evidence_of(paired, reading, options.evidence)
    before = paired.answer.result.message if paired.answer else None
    defect: DefectKind = "dangling" if paired.call.incomplete_args is None else "malformed"
    if before is not None:
        defect = "superseded"
    index = paired.calling.index
    if isinstance(evidence, RecordedResult):
        message = _recovered_result(evidence, paired, reading, options.language)
        return message, [note("recovered", defect, index, paired, before=before, after=message)]
    call = dangling_call(paired, evidence)
    finding = evidence or Finding("unknown")
    if before is not None and is_only_settled(call, before):
        is_open = finding.recheck and finding.searched is None
        made = with_search_marker(before, finding.searched, recheck=is_open)
    else:
        made = options.make_placeholder(
            call,
            paired.ordinal,
            human_follows=human_follows,
            searched=finding.searched,
            recheck=finding.recheck,
        )
    message = write_result(made, renaming_of(paired))
    found = note("inserted", defect, index, paired, cause=call.cause, before=before, after=message)
    return message, [found]


def _recovered_result(
    found: RecordedResult, paired: PairedCall, reading: Reading, language: Language | None
) -> ToolMessage:
    """The result, under an id that no other message has; it may have that of what it replaces."""
    marked = marked_result(found.message, found.not_kept, found.cause, language)
    message = write_result(marked, renaming_of(paired))
    replaced = paired.answer.result.message.id if paired.answer else None
    if message.id is None or (message.id != replaced and message.id in reading.message_ids):
        return message.model_copy(update={"id": _result_id(paired)})
    return message


def _result_id(paired: PairedCall) -> str:
    """An id for a result that has none, or one that another message has."""
    digest = digest_of("result", paired.calling.message.id, paired.new_id, paired.ordinal)
    return f"result-{digest[:32]}"


# --- notes ---------------------------------------------------------------------------------


def note_field(
    kind: ChangeKind, index: int, before: BaseMessage, after: BaseMessage | None
) -> Note:
    """A note about a message with fields that bypassed LangChain's validation."""
    call_id = text_of(after.tool_call_id) if isinstance(after, ToolMessage) else ""
    name = after.name if isinstance(after, ToolMessage) else None
    return (
        Defect("bad_field", index, call_id, name),
        Change(kind, index, call_id, name, None, before, after),
    )


def renaming_of(paired: PairedCall) -> Renaming:
    """A call with the id and name that it gets."""
    return Renaming(paired.call, paired.new_id, paired.new_name)


def is_renamed(paired: PairedCall) -> bool:
    """Whether a call gets another id or name."""
    return (paired.call.id, paired.call.name) != (paired.new_id, paired.new_name)


def note(
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
