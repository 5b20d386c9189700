"""Write the repaired history: one pass over a history that has been read.

Each message that calls tools is written with its results after it: the stored answer, else a
recorded result, else a placeholder. A message that only holds results is left out where it was
stored, and every other message is copied. There is a `Change` for every difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.calls import is_complete
from langgraph_patch.history.changes import Change, ChangeKind, DefectKind
from langgraph_patch.history.ids import digest_of
from langgraph_patch.history.matching import CallingMessage, PairedCall
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.placeholders import (
    Placeholder,
    is_better,
    is_placeholder,
    make_placeholder,
    recovered_result,
    states_nothing,
    without_look_again,
)
from langgraph_patch.history.results import Result, without_results
from langgraph_patch.history.rewrite import write_calls, write_result
from langgraph_patch.history.texts import Cause, DanglingCall, Evidence, Finding


def repair_history(
    reading: Reading, evidence: Evidence, placeholder: Placeholder | None = None
) -> tuple[list[BaseMessage], list[Change]]:
    """Write the history in its repaired form.

    Args:
        reading: The history with its calls and results paired.
        evidence: What checkpoints recorded about calls without a result.
        placeholder: The application's own content of placeholders; None for the default texts.

    Returns:
        The repaired messages, and the changes in the order of the history.
    """
    repair = _Repair(reading, evidence, placeholder)
    for index, stored in enumerate(reading.messages):
        repair.write(index, stored)
    return repair.messages, repair.changes


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
    return [
        (paired.call.key, _dangling_call(paired, finding))
        for paired in reading.paired_calls
        if (finding := _finding_to_write(paired, reading, evidence)) and finding.result is None
    ]


# --- what the result of a call is ----------------------------------------------------------


def _finding_to_write(paired: PairedCall, reading: Reading, evidence: Evidence) -> Finding | None:
    """What is known of a call that gets a new result; None if it stays as it is.

    It stays with a real result, with a placeholder that is up to date, or without a result.
    """
    if paired.real is not None or _stays_open(paired, reading):
        return None
    found = evidence.get(paired.call.key)
    if found is not None and found.result is not None and is_placeholder(found.result):
        found = None
    if paired.stated is None:
        return found or Finding()
    looked_again = paired.look_again is not None
    return found if found and is_better(found, paired.stated, looked_again=looked_again) else None


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
    if not call.name:
        cause, detail = "malformed", "no_name"
    elif call.raw_args is not None and call.source == "stopped":
        cause, detail = "malformed", None
    elif call.raw_args is not None and cause == "unknown":
        # LangGraph runs the calls in `tool_calls`. Incomplete arguments there are those of a
        # stored chunk, which LangChain completed: the call may have run.
        cause, detail = "malformed", "tools_ran" if call.source == "tool_calls" else None
    return DanglingCall(
        tool_call_id=paired.new_id,
        name=paired.new_name,
        args=call.args,
        cause=cause,
        error=call.raw_args if cause == "malformed" else error,
        message=paired.calling.message,
        index=call.index,
        detail=detail,
        inner=finding.inner,
    )


# --- writing the messages --------------------------------------------------------------------


class _Repair:
    """Writes the repaired history, message by message.

    Attributes:
        messages: The messages that are written.
        changes: The differences to the history.
    """

    def __init__(
        self, reading: Reading, evidence: Evidence, placeholder: Placeholder | None
    ) -> None:
        self._reading = reading
        self._evidence = evidence
        self._placeholder = placeholder
        self.messages: list[BaseMessage] = []
        self.changes: list[Change] = []

    def write(self, index: int, stored: BaseMessage) -> None:
        """Write one message of the history, with the results of its calls."""
        message = self._reading.corrected.get(index, stored)
        results = self._reading.stored_results.get(index)
        if message is not stored:
            change = Change("corrected", "bad_field", index, "", None, None, stored, message)
            self.changes.append(change)
        if (calling := self._reading.calling_messages.get(index)) is not None:
            self._write_with_results(calling)
        elif results is None:
            self.messages.append(message)
        else:
            self._write_without_results(message, results)

    def _write_with_results(self, calling: CallingMessage) -> None:
        """A message that calls tools, and the result of each of its calls.

        While one of the calls stays open, none is added to `tool_calls`: it might be run. Such a
        message keeps its ids and names, too.
        """
        calls = calling.calls
        is_open = any(_stays_open(paired, self._reading) for paired in calls)
        if is_open and any(paired.call.tool_call is None for paired in calls):
            calls = [replace(p, new_id=p.call.id, new_name=p.call.name) for p in calls]
            self.messages.append(calling.message)
        else:
            self._write_calling_message(calling)
        findings = {p: _finding_to_write(p, self._reading, self._evidence) for p in calls}
        human_follows = any(findings.values()) and self._human_follows(calling)
        for paired in _in_order_of_results(calls, findings):
            if (finding := findings[paired]) is not None:
                self._write_new(paired, finding, human_follows=human_follows)
            elif (answer := paired.answer) is not None:
                self._write_answer(paired, answer)

    def _write_calling_message(self, calling: CallingMessage) -> None:
        """The message with its calls in `tool_calls`, under valid ids and names."""
        stored, calls = calling.message, calling.calls
        message = stored
        if any(p.is_renamed or p.call.tool_call is None for p in calls):
            message = write_calls(stored, calls)
        self.messages.append(message)
        for paired in calls:
            found: list[tuple[ChangeKind, DefectKind]] = []
            if paired.call.tool_call is None:
                found.append(("promoted", _defect_of(paired, "unlisted")))
            if paired.call.id != paired.new_id:
                found.append(("renamed", "bad_id"))
            if paired.call.name != paired.new_name:
                found.append(("renamed", "bad_name"))
            self.changes += [
                Change(*each, calling.index, *_names(paired), None, stored, message)
                for each in found
            ]

    def _human_follows(self, calling: CallingMessage) -> bool:
        """Whether a human message comes before the next message of a model."""
        messages = self._reading.messages
        following = (messages[index] for index in range(calling.end, len(messages)))
        found = next((m for m in following if isinstance(m, HumanMessage | AIMessage)), None)
        return isinstance(found, HumanMessage)

    def _write_answer(self, paired: PairedCall, answer: Result) -> None:
        """The stored answer of a call."""
        before, stored = self._reading.messages[answer.index], answer.message
        message = write_result(stored, paired)
        if not isinstance(before, ToolMessage):
            message = message if message.id else _with_own_id(message, paired)
        self.messages.append(message)
        kind: ChangeKind = "renamed"
        defect: DefectKind = "bad_name"
        if not isinstance(before, ToolMessage):
            kind, defect = "converted", "wrong_role"
        elif not paired.calling.has_in_place(answer):
            kind, defect = "moved", "misplaced"
        elif message is stored or paired.is_renamed:
            return  # the change of the call is all
        elif stored.tool_call_id != paired.call.id:
            defect = "bad_id"  # it names an earlier id of the call
        elif message.content != stored.content:
            kind, defect = "converted", "wrong_role"
        change = Change(kind, defect, answer.index, *_names(paired), None, before, message)
        self.changes.append(change)

    def _write_new(self, paired: PairedCall, finding: Finding, *, human_follows: bool) -> None:
        """The recorded result of a call, else a placeholder."""
        old = paired.placeholder
        before = None if old is None else self._reading.messages[old.index]
        kind: ChangeKind = "inserted"
        cause: Cause | None = None
        if finding.result is not None:
            kind, message = "recovered", recovered_result(finding, finding.result)
            replaces_itself = before is not None and before.id == message.id
            is_taken = message.id in self._reading.message_ids and not replaces_itself
            if message.id is None or is_taken:
                message = _with_own_id(message, paired)
        elif paired.stated is not None and states_nothing(finding):
            # Another search found no more than it states.
            message = without_look_again(paired.stated)
        else:
            call = _dangling_call(paired, finding)
            cause = call.cause
            message = make_placeholder(
                call,
                paired.call.ordinal,
                self._placeholder,
                human_follows=human_follows,
                look_again=cause != "malformed" and finding.look_again,
            )
        message = write_result(message, paired)
        self.messages.append(message)
        defect = _defect_of(paired, "dangling") if before is None else "superseded"
        change = Change(kind, defect, paired.call.index, *_names(paired), cause, before, message)
        self.changes.append(change)

    def _write_without_results(self, message: BaseMessage, results: Sequence[Result]) -> None:
        """What remains of the message: each result is written after its call, or dropped."""
        if (remainder := without_results(message)) is not None:
            self.messages.append(remainder)
        for result in results:
            if result.call_index is None:
                self._drop(result)

    def _drop(self, result: Result) -> None:
        defect: DefectKind = "orphan"
        if result.call_id in self._reading.call_ids:
            defect = "superseded" if result.is_placeholder else "duplicate"
        index, call_id = result.index, result.call_id or ""
        before = self._reading.messages[index]
        change = Change("dropped", defect, index, call_id, result.name, None, before, None)
        self.changes.append(change)


def _names(paired: PairedCall) -> tuple[str, str]:
    """The id and the name of a call in the repaired history."""
    return paired.new_id, paired.new_name


def _defect_of(paired: PairedCall, defect: DefectKind) -> DefectKind:
    """The defect of a call, if its arguments are complete."""
    return defect if paired.call.raw_args is None else "malformed"


def _in_order_of_results(
    calls: Sequence[PairedCall], findings: Mapping[PairedCall, Finding | None]
) -> Sequence[PairedCall]:
    """The calls in the order of their results in the repaired history.

    Stored results keep their order and come first. If the message calls one tool twice, results
    come in the order of the calls: Gemini gets names and no ids, so order is all it has.
    """
    same_names = len({paired.new_name for paired in calls}) < len(calls)
    stored = [p.answer for p in calls if p.answer is not None and findings[p] is None]
    in_place = all(calls[0].calling.has_in_place(answer) for answer in stored)
    if same_names and (any(findings.values()) or not in_place):
        return calls

    def position(paired: PairedCall) -> tuple[int, int, int]:
        answer = paired.answer
        if answer is None or findings[paired] is not None:
            return 2, paired.call.ordinal, 0
        return int(answer.index < paired.calling.index), answer.index, answer.part

    return sorted(calls, key=position)


def _with_own_id(message: ToolMessage, paired: PairedCall) -> ToolMessage:
    """A result that has no id, or one that another message has, with an id that is derived."""
    digest = digest_of("result", paired.calling.message.id, paired.new_id, paired.call.ordinal)
    return message.model_copy(update={"id": f"result-{digest[:32]}"})
