"""Write the repaired history: one pass over a history that has been read.

Each message that calls tools is written with its results after it: the stored answer, else a
recorded result, else a placeholder. A message that only holds results is left out where it was
stored, and every other message is copied. There is a `Change` for every difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_patch.history.calls import Call, write_calls
from langgraph_patch.history.changes import (
    Change,
    ChangeKind,
    DefectKind,
    Patch,
    change_of,
    patch_of,
)
from langgraph_patch.history.fields import digest_of
from langgraph_patch.history.placeholders import (
    Placeholder,
    is_better,
    is_placeholder,
    make_placeholder,
    recovered_result,
    states_nothing,
    without_look_again,
)
from langgraph_patch.history.reading import CallingMessage, PairedCall, Reading
from langgraph_patch.history.results import Result, write_result
from langgraph_patch.history.texts import Cause, DanglingCall, Evidence, Finding


def patch_reading(
    reading: Reading, *, placeholder: Placeholder | None = None, evidence: Evidence | None = None
) -> Patch:
    """Repair a history that has been read.

    Args:
        reading: The history with its calls and results paired.
        placeholder: The application's own content of placeholders. Default: None, the default
            texts.
        evidence: What checkpoints recorded about calls without a result. Default: None, nothing.

    Returns:
        The patch; its changes are in the order of the history.
    """
    repair = _Repair(reading, evidence or {}, placeholder)
    for index, stored in enumerate(reading.messages):
        repair.write(index, stored)
    return patch_of(reading.messages, repair.messages, repair.changes)


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
        if (finding := _finding_to_write(paired, evidence)) and finding.result is None
    ]


# --- what the result of a call is ----------------------------------------------------------


def _finding_to_write(paired: PairedCall, evidence: Evidence) -> Finding | None:
    """What is known of a call that gets a new result; None if it stays as it is.

    It stays with a real result, with a placeholder that is up to date, or without a result.
    """
    if paired.real is not None or paired.stays_open:
        return None
    found = evidence.get(paired.call.key)
    if found is not None and found.result is not None and is_placeholder(found.result):
        found = None
    if paired.stated is None:
        return found or Finding()
    looked_again = paired.look_again is not None
    return found if found and is_better(found, paired.stated, looked_again=looked_again) else None


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
        tool_call_id=paired.new.id,
        name=paired.new.name,
        args=call.args,
        cause=cause,
        error=call.raw_args if cause == "malformed" else error,
        message=paired.calling.message,
        index=call.index,
        detail=detail,
        inner=finding.inner,
    )


# --- writing the messages --------------------------------------------------------------------


@dataclass(slots=True)
class _Repair:
    """Writes the repaired history, message by message.

    Attributes:
        reading: The history with its calls and results paired.
        evidence: What checkpoints recorded about calls without a result.
        placeholder: The application's own content of placeholders, if there is one.
        messages: The messages that are written.
        changes: The differences to the history.
    """

    reading: Reading
    evidence: Evidence
    placeholder: Placeholder | None
    messages: list[BaseMessage] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def write(self, index: int, stored: BaseMessage) -> None:
        """Write one message of the history, with the results of its calls."""
        message = self.reading.corrected[index]
        if message is not stored:
            self.changes.append(change_of("bad_field", index, stored, message))
        if (calling := self.reading.calling_messages.get(index)) is not None:
            self._write_with_results(calling)
        elif (results := self.reading.stored_results.get(index)) is not None:
            self._write_without_results(results)
        else:
            self.messages.append(message)

    def _write_with_results(self, calling: CallingMessage) -> None:
        """A message that calls tools, and the result of each of its calls."""
        self._write_calls(calling)
        findings = {p: _finding_to_write(p, self.evidence) for p in calling.calls}
        for paired in _in_order_of_results(calling, findings):
            if (finding := findings[paired]) is not None:
                self._write_new(paired, finding)
            elif (answer := paired.answer) is not None:
                self._write_answer(paired, answer)

    def _write_calls(self, calling: CallingMessage) -> None:
        """The message with its calls in `tool_calls`, under valid ids and names."""
        stored, calls = calling.message, calling.calls
        message = stored
        is_written = any(p.new is not p.call or p.call.tool_call is None for p in calls)
        if is_written and not calling.stays_unlisted:
            message = write_calls(stored, [(p.call, p.new) for p in calls])
            for paired in calls:
                call, new = paired.call, paired.new
                if call.tool_call is None:
                    self._add("promoted", _defect_of(call, "unlisted"), paired, stored, message)
                if call.id != new.id:
                    self._add("renamed", "bad_id", paired, stored, message)
                if call.name != new.name:
                    self._add("renamed", "bad_name", paired, stored, message)
        self.messages.append(message)

    def _write_answer(self, paired: PairedCall, answer: Result) -> None:
        """The stored answer of a call."""
        before, stored, call = self.reading.messages[answer.index], answer.message, paired.call
        is_converted = not isinstance(before, ToolMessage)
        message = write_result(stored, call, paired.new)
        if is_converted and not message.id:
            message = _with_own_id(message, paired)
        self.messages.append(message)
        kind: ChangeKind = "renamed"
        defect: DefectKind = "bad_name"
        if is_converted:
            kind, defect = "converted", "wrong_role"
        elif not paired.calling.has_in_place(answer):
            kind, defect = "moved", "misplaced"
        elif message is stored or paired.new is not call:
            return  # the change of the call is all
        elif stored.tool_call_id != call.id:
            defect = "bad_id"  # it names an earlier id of the call
        elif message.content != stored.content:
            kind, defect = "converted", "wrong_role"
        self._add(kind, defect, paired, before, message, index=answer.index)

    def _write_new(self, paired: PairedCall, finding: Finding) -> None:
        """The recorded result of a call, else a placeholder."""
        old = paired.placeholder
        before = None if old is None else self.reading.messages[old.index]
        kind: ChangeKind = "inserted"
        cause: Cause | None = None
        if finding.result is not None:
            kind, message = "recovered", recovered_result(finding, finding.result)
            replaces_itself = before is not None and before.id == message.id
            is_taken = message.id in self.reading.message_ids and not replaces_itself
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
                self.placeholder,
                human_follows=paired.calling.human_follows,
                look_again=cause != "malformed" and finding.look_again,
            )
        message = write_result(message, paired.call, paired.new)
        self.messages.append(message)
        defect = "superseded" if before is not None else _defect_of(paired.call, "dangling")
        self._add(kind, defect, paired, before, message, cause=cause)

    def _write_without_results(self, results: Sequence[Result]) -> None:
        """What remains of a message: each result is written after its call, or dropped."""
        if (remainder := results[0].remainder) is not None:
            self.messages.append(remainder)
        for result in results:
            if result.call_index is None:
                self._drop(result)

    def _drop(self, result: Result) -> None:
        defect: DefectKind = "orphan"
        if result.call_id in self.reading.call_ids:
            defect = "superseded" if result.is_placeholder else "duplicate"
        index, call_id = result.index, result.call_id or ""
        before = self.reading.messages[index]
        change = Change("dropped", defect, index, call_id, result.name, None, before, None)
        self.changes.append(change)

    def _add(
        self,
        kind: ChangeKind,
        defect: DefectKind,
        paired: PairedCall,
        before: BaseMessage | None,
        after: BaseMessage,
        *,
        index: int | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Note a change of a call, or of its result if that has an index."""
        place = paired.call.index if index is None else index
        new = paired.new
        self.changes.append(Change(kind, defect, place, new.id, new.name, cause, before, after))


def _defect_of(call: Call, defect: DefectKind) -> DefectKind:
    """The defect of a call, if its arguments are complete."""
    return defect if call.raw_args is None else "malformed"


def _in_order_of_results(
    calling: CallingMessage, findings: Mapping[PairedCall, Finding | None]
) -> Sequence[PairedCall]:
    """The calls in the order of their results in the repaired history.

    Stored results keep their order and come first. If the message calls one tool twice, results
    come in the order of the calls: Gemini gets names and no ids, so order is all it has.
    """
    calls = calling.calls
    same_names = len({paired.new.name for paired in calls}) < len(calls)
    stored = [p.answer for p in calls if p.answer is not None and findings[p] is None]
    in_place = all(map(calling.has_in_place, stored))
    if same_names and (any(findings.values()) or not in_place):
        return calls

    def position(paired: PairedCall) -> tuple[int, int, int]:
        answer = paired.answer
        if answer is None or findings[paired] is not None:
            return 2, paired.call.ordinal, 0
        return int(answer.index < calling.index), answer.index, answer.part

    return sorted(calls, key=position)


def _with_own_id(message: ToolMessage, paired: PairedCall) -> ToolMessage:
    """A result that has no id, or one that another message has, with an id that is derived."""
    digest = digest_of("result", paired.calling.message.id, paired.new.id, paired.call.ordinal)
    return message.model_copy(update={"id": f"result-{digest[:32]}"})
