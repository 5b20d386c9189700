"""Write the repaired history: one pass over a history that has been read.

Each message that calls tools is written with its results after it: the stored answer, else a
recorded result, else a placeholder. A message that only holds results is left out where it was
stored, and every other message is copied. Each function returns what it wrote and a `Change` for
every difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.calls import is_complete
from langgraph_patch.history.ids import digest_of
from langgraph_patch.history.json_values import json_value
from langgraph_patch.history.matching import CallingMessage, PairedCall
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.placeholders import (
    Placeholder,
    asks_to_look_again,
    is_better,
    is_placeholder,
    make_placeholder,
    recovered_result,
    states_nothing,
    without_mark,
)
from langgraph_patch.history.results import Result, without_results
from langgraph_patch.history.rewrite import write_calls, write_result
from langgraph_patch.history.texts import Cause, DanglingCall, Evidence, Finding

DefectKind = Literal[
    "dangling",
    "malformed",
    "unlisted",
    "misplaced",
    "orphan",
    "duplicate",
    "bad_id",
    "bad_name",
    "wrong_role",
    "superseded",
    "bad_field",
    "abandoned",
]
ChangeKind = Literal[
    "inserted",
    "recovered",
    "restored",
    "moved",
    "dropped",
    "converted",
    "promoted",
    "renamed",
    "corrected",
]


@dataclass(frozen=True, slots=True)
class Change:
    """One change that a repair makes, and the defect that it repairs.

    Attributes:
        kind: What is done. One of:

            - `inserted`: a placeholder is added.
            - `recovered`: a real result from a checkpoint is added.
            - `restored`: a message from the checkpoints of an agent that is a node is added.
            - `moved`: a result is moved to its call.
            - `dropped`: a result is removed.
            - `converted`: a result becomes a `ToolMessage`, or gets the form of its call.
            - `promoted`: a call is written into `tool_calls`.
            - `renamed`: an id or a name is replaced everywhere.
            - `corrected`: a field that bypassed LangChain's validation is given a valid value.
        defect: What is wrong. One of:

            - `dangling`: a call has no result.
            - `malformed`: the arguments of a call are not a complete JSON object.
            - `unlisted`: a call is not in `tool_calls`, only in another part of the message.
            - `misplaced`: a result does not directly follow the message of its call.
            - `orphan`: a result has no call.
            - `duplicate`: a call has a second result.
            - `bad_id`: the id of a call is missing, invalid, or that of an earlier call.
            - `bad_name`: the name of a tool is missing or invalid.
            - `wrong_role`: a result is not a `ToolMessage`, or not in the form of its call.
            - `superseded`: there is something better than a stored placeholder.
            - `bad_field`: a field of the message has a value that LangChain's constructor
              refuses, such as `content=None`.
            - `abandoned`: the run of an agent that is a node did not end, so that LangGraph
              dropped its messages.
        index: The index of the message in the damaged history. For `inserted` and
            `recovered`: the index of the message that made the call. For `abandoned`: the index
            at which the messages are added.
        tool_call_id: The id of the call in the repaired history; `""` if there is none.
        name: The name of the tool in the repaired history, or None if none is stored.
        cause: For `inserted`, why there is no result (see `DanglingCall`). Else None.
        before: The message before the change, or None if there was none.
        after: The message after the change, or None if it was dropped.
    """

    kind: ChangeKind
    defect: DefectKind
    index: int
    tool_call_id: str
    name: str | None
    cause: Cause | None
    before: BaseMessage | None
    after: BaseMessage | None

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON values, with complete messages."""
        return {name: json_value(getattr(self, name)) for name in self.__slots__}

    def __str__(self) -> str:
        if self.kind == "corrected":
            return f"corrected message {self.index} ({type(self.before).__name__})"
        if self.kind == "restored":
            return f"restored {type(self.after).__name__} {getattr(self.after, 'id', None)!r}"
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.kind} {self.name or 'result'!r} {self.tool_call_id!r}{cause}"


_Written: TypeAlias = tuple[list[BaseMessage], list[Change]]


@dataclass(frozen=True, slots=True)
class RepairInput:
    """What a repair reads.

    Attributes:
        reading: The history with its calls and results paired.
        evidence: What checkpoints recorded about calls without a result.
        placeholder: The application's own content of placeholders; None for the default texts.
    """

    reading: Reading
    evidence: Evidence
    placeholder: Placeholder | None = None


def repair_history(source: RepairInput) -> _Written:
    """Write the history in its repaired form.

    Returns:
        The repaired messages, and the changes in the order of the history.
    """
    reading = source.reading
    messages: list[BaseMessage] = []
    changes: list[Change] = []
    for index, stored in enumerate(reading.messages):
        message = reading.corrected.get(index, stored)
        results = reading.stored_results.get(index)
        if message is not stored and not (results and isinstance(message, ToolMessage)):
            changes.append(_corrected(index, stored, message))
        written: _Written = [message], []
        if (calling := reading.calling_messages.get(index)) is not None:
            written = _write_with_results(calling, source)
        elif results is not None:
            written = _write_without_results(message, results, reading)
        messages += written[0]
        changes += written[1]
    return messages, changes


def dangling_calls(
    reading: Reading, evidence: Evidence
) -> list[tuple[tuple[int, int], DanglingCall]]:
    """The calls for which a repair with this evidence writes placeholders.

    Args:
        reading: The history with its calls and results paired.
        evidence: What checkpoints recorded about calls without a result.

    Returns:
        For each call its key in `evidence` and the call, in the order of the history.
    """
    source = RepairInput(reading, evidence)
    return [
        (paired.call.key, _dangling_call(paired, finding))
        for paired in reading.paired_calls
        if (finding := _finding_to_write(paired, source)) and finding.result is None
    ]


# --- what the result of a call is ----------------------------------------------------------


def _finding_to_write(paired: PairedCall, source: RepairInput) -> Finding | None:
    """What is known of a call that gets a new result; None if it stays as it is.

    It stays with a real result, with a placeholder that is up to date, or without a result.
    """
    if paired.real is not None or _stays_open(paired, source.reading):
        return None
    found = source.evidence.get(paired.call.key)
    if found is not None and found.result is not None and is_placeholder(found.result):
        found = None
    stored = _stored_placeholder(paired)
    if stored is None or not is_placeholder(stored):  # none, or of another package or a client
        return found or Finding()
    looked_again = source.reading.look_again and asks_to_look_again(stored)
    if found is not None and looked_again and found.cause != "unknown":
        found = replace(found, look_again=False)  # once is enough for a task that has ended
    return found if found and is_better(found, stored, looked_again=looked_again) else None


def _stored_placeholder(paired: PairedCall) -> ToolMessage | None:
    return None if paired.placeholder is None else paired.placeholder.message


def _stays_open(paired: PairedCall, reading: Reading) -> bool:
    """Whether a call at the end of the history stays without a result.

    Never one with incomplete arguments: nothing that runs next may run it.
    """
    at_end = paired.calling.end == len(reading.messages)
    return reading.leaves_open and at_end and paired.answer is None and is_complete(paired.call)


def _dangling_call(paired: PairedCall, finding: Finding) -> DanglingCall:
    """The call with its cause: what is certain of the call itself, else that of the finding."""
    call = paired.call
    cause, error, detail = finding.cause, finding.error, finding.detail
    is_whole = call.raw_args is None
    if not call.name:
        cause, detail = "malformed", "no_name"
    elif not is_whole and call.source == "stopped":
        cause, detail = "malformed", None
    elif not is_whole and cause == "unknown":
        # LangGraph runs the calls in `tool_calls`. Incomplete arguments there are those of a
        # stored chunk, which LangChain completed: the call may have run.
        cause, detail = "malformed", "tools_ran" if call.source == "tool_calls" else None
    return DanglingCall(
        tool_call_id=paired.new_id,
        name=paired.new_name,
        args=call.args,
        cause="unknown" if cause == "reconciled" else cause,
        error=call.raw_args if cause == "malformed" else error,
        message=paired.calling.message,
        index=call.index,
        detail=detail,
        inner=finding.inner,
    )


# --- a message that calls tools ------------------------------------------------------------


def _write_with_results(calling: CallingMessage, source: RepairInput) -> _Written:
    """The message and the result of each of its calls."""
    findings = {paired: _finding_to_write(paired, source) for paired in calling.calls}
    missing = [paired for paired in calling.calls if findings[paired] is not None]
    kept = [p for p in calling.calls if findings[p] is None and p.answer is not None]
    is_whole = len(missing) + len(kept) == len(calling.calls)
    message, changes = _write_calling_message(calling, leaves_open=not is_whole)
    messages: list[BaseMessage] = [message]
    human_follows = bool(missing) and _human_follows(calling, source.reading)
    for paired in _order_of_results(calling, kept, missing):
        if (finding := findings[paired]) is None:
            result, found = _write_answer(paired, source.reading)
        else:
            result, found = _write_new(paired, finding, source, human_follows=human_follows)
        messages.append(result)
        changes += found
    return messages, changes


def _write_calling_message(
    calling: CallingMessage, *, leaves_open: bool
) -> tuple[AIMessage, list[Change]]:
    """The message with its calls in `tool_calls`, under valid ids and names.

    While a call of the message stays open, no other is added to `tool_calls`: it might be run.
    """
    unlisted = [p for p in calling.calls if p.call.tool_call is None]
    if not any(p.is_renamed for p in calling.calls) and (leaves_open or not unlisted):
        return calling.message, []
    left_out = [p for p in unlisted if leaves_open and p.call.source != "tool_calls"]
    message = write_calls(calling.message, calling.calls, left_out)
    return message, [
        _change(change, defect, calling.index, paired, before=calling.message, after=message)
        for paired in calling.calls
        for change, defect in _changes_of_call(paired, is_listed=paired not in left_out)
    ]


def _changes_of_call(
    paired: PairedCall, *, is_listed: bool
) -> Iterator[tuple[ChangeKind, DefectKind]]:
    call = paired.call
    if call.tool_call is None and is_listed:
        yield "promoted", "unlisted" if call.raw_args is None else "malformed"
    if call.id != paired.new_id:
        yield "renamed", "bad_id"
    if call.name != paired.new_name:
        yield "renamed", "bad_name"


def _order_of_results(
    calling: CallingMessage, kept: list[PairedCall], missing: list[PairedCall]
) -> list[PairedCall]:
    """The calls that have a result in the repaired history, in the order of these results.

    Real results keep their order and come first. If the message calls one tool twice, results
    come in the order of the calls: Gemini gets names and no ids, so order is all it has.
    """
    order = [*sorted(kept, key=_stored_position), *missing]
    same_names = len({paired.new_name for paired in calling.calls}) < len(calling.calls)
    in_place = all(paired.answer and calling.has_in_place(paired.answer) for paired in kept)
    if same_names and (missing or not in_place):
        order.sort(key=lambda paired: paired.call.ordinal)
    elif missing:
        order.sort(key=lambda paired: -1 if paired.real is not None else paired.call.ordinal)
    return order


def _stored_position(paired: PairedCall) -> tuple[bool, int, int]:
    """In the order of the history; answers that are stored before their call come last."""
    answer = _answer_of(paired)
    return answer.index < paired.calling.index, answer.index, answer.part


def _answer_of(paired: PairedCall) -> Result:
    answer = paired.answer
    assert answer is not None  # noqa: S101 - its finding says that the answer stays
    return answer


def _human_follows(calling: CallingMessage, reading: Reading) -> bool:
    """Whether a human message comes before the next message of a model."""
    for index in range(calling.end, len(reading.messages)):
        if isinstance(reading.messages[index], HumanMessage | AIMessage):
            return isinstance(reading.messages[index], HumanMessage)
    return False


# --- the result of a call ------------------------------------------------------------------


def _write_answer(paired: PairedCall, reading: Reading) -> tuple[ToolMessage, list[Change]]:
    """The stored answer of a call."""
    answer = _answer_of(paired)
    before = reading.messages[answer.index]
    message = write_result(answer.message, paired)
    changes: list[Change] = []
    if not isinstance(before, ToolMessage):
        message = message if message.id else message.model_copy(update={"id": _result_id(paired)})
    elif answer.index in reading.corrected:
        changes.append(_corrected(answer.index, before, message))
    found = _change_of_answer(paired, answer, before, message)
    if found is not None:
        changes.append(_change(*found, answer.index, paired, before=before, after=message))
    return message, changes


def _change_of_answer(
    paired: PairedCall, answer: Result, before: BaseMessage, message: ToolMessage
) -> tuple[ChangeKind, DefectKind] | None:
    """What `message` changes of the stored answer, if the new id or name of its call is not all."""
    stored = answer.message
    if not isinstance(before, ToolMessage):
        return "converted", "wrong_role"
    if not paired.calling.has_in_place(answer):
        return "moved", "misplaced"
    if message is stored or paired.is_renamed:
        return None
    if stored.tool_call_id != paired.call.id:
        return "renamed", "bad_id"  # it names an earlier id of the call
    if message.content != stored.content:
        return "converted", "wrong_role"
    return "renamed", "bad_name"


def _write_new(
    paired: PairedCall, finding: Finding, source: RepairInput, *, human_follows: bool
) -> tuple[ToolMessage, list[Change]]:
    """The recorded result of a call, else a placeholder."""
    stored = _stored_placeholder(paired)
    before = paired.placeholder and source.reading.messages[paired.placeholder.index]
    kind: ChangeKind = "inserted"
    cause: Cause | None = None
    if finding.result is not None:
        kind, message = "recovered", recovered_result(finding, finding.result)
        if message.id is None or message.id in source.reading.message_ids - {before and before.id}:
            message = message.model_copy(update={"id": _result_id(paired)})
    elif stored is not None and is_placeholder(stored) and states_nothing(finding):
        message = without_mark(stored)  # another search found no more than the placeholder states
    else:
        call = _dangling_call(paired, finding)
        cause = call.cause
        message = make_placeholder(
            call,
            paired.call.ordinal,
            source.placeholder,
            human_follows=human_follows,
            look_again=finding.look_again,
        )
    message = write_result(message, paired)
    defect: DefectKind = "dangling" if paired.call.raw_args is None else "malformed"
    defect = defect if before is None else "superseded"
    index = paired.call.index
    return message, [
        _change(kind, defect, index, paired, before=before, after=message, cause=cause)
    ]


def _result_id(paired: PairedCall) -> str:
    """An id for a result that has none, or one that another message has."""
    digest = digest_of("result", paired.calling.message.id, paired.new_id, paired.call.ordinal)
    return f"result-{digest[:32]}"


# --- a message that holds results ----------------------------------------------------------


def _write_without_results(
    message: BaseMessage, results: Sequence[Result], reading: Reading
) -> _Written:
    """What remains of the message: each result is written after its call, or dropped."""
    remainder = without_results(message)
    changes = [_dropped(stored, reading) for stored in results if stored.call_index is None]
    return [] if remainder is None else [remainder], changes


def _dropped(stored: Result, reading: Reading) -> Change:
    call_id, name = stored.call_id or "", stored.name
    defect: DefectKind = "orphan"
    if stored.call_id in reading.call_ids:
        synthetic = stored.is_placeholder or stored.is_foreign
        defect = "superseded" if synthetic else "duplicate"
    before = reading.messages[stored.index]
    return Change("dropped", defect, stored.index, call_id, name, None, before, None)


# --- changes -------------------------------------------------------------------------------


def _corrected(index: int, before: BaseMessage, after: BaseMessage) -> Change:
    """The change of a message with fields that bypassed LangChain's validation."""
    return Change("corrected", "bad_field", index, "", None, None, before, after)


def _change(
    kind: ChangeKind,
    defect: DefectKind,
    index: int,
    paired: PairedCall,
    *,
    before: BaseMessage | None,
    after: BaseMessage,
    cause: Cause | None = None,
) -> Change:
    """A change that concerns one call and the message at `index`."""
    return Change(kind, defect, index, paired.new_id, paired.new_name, cause, before, after)
