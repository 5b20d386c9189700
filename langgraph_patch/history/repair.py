"""Write the repaired history: one pass over a history that has been read.

Each message that calls tools is written with its results after it: the stored answer, together with
others that differ from it; else a recorded result, else a placeholder. A message that only holds
results is left out where it was stored, and every other message is copied. There is a `Change` for
every difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import BaseMessage, FunctionMessage, ToolMessage

from langgraph_patch._text import short
from langgraph_patch.errors import OptionError, note
from langgraph_patch.history.calls import Call, write_calls
from langgraph_patch.history.changes import Change, ChangeKind, DefectKind, Patch
from langgraph_patch.history.fields import UNKNOWN_TOOL, digest_of, is_refused_by_all
from langgraph_patch.history.findings import Cause, DanglingCall, Evidence, Finding
from langgraph_patch.history.joining import joined
from langgraph_patch.history.pairing import CallingMessage, PairedCall
from langgraph_patch.history.placeholders import (
    Placeholder,
    after_search,
    is_better,
    is_placeholder,
    marked,
)
from langgraph_patch.history.reading import Reading
from langgraph_patch.history.results import Result, as_result_of
from langgraph_patch.history.texts import default_text, not_kept_text


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
    return Patch.of(reading.messages, repair.messages, repair.changes)


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
    if paired.real is not None:
        return None
    found = evidence.get(paired.call.key)
    if found is not None and found.result is not None and is_placeholder(found.result):
        found = None
    is_recorded = found is not None and found.result is not None
    if paired.stays_open and not (is_recorded and paired.has_own_id):
        return None  # only a recorded result ends a call that may be alive
    if paired.stated is None:
        return found or Finding()
    if found and found.result and found.result.content == paired.stated.content:
        found = replace(found, result=None)  # it is recorded that a tool returned this text
    looked_again = paired.look_again is not None
    return found if found and is_better(found, paired.stated, looked_again=looked_again) else None


def _dangling_call(paired: PairedCall, finding: Finding) -> DanglingCall:
    """The call with its cause: what is certain of the call itself, else that of the finding."""
    call = paired.call
    cause, error, detail = finding.cause, finding.error, finding.detail
    if detail == "paused" and (paired.calling.is_over or paired.stated is not None):
        detail = None  # as it was before a message, or before the first repair
    if not call.name:
        cause, detail = "malformed", "no_name"
    elif call.raw_args is not None and call.source == "stopped":
        cause, detail = "malformed", "stopped"
    elif call.raw_args is not None and cause == "unknown":
        # LangGraph runs the calls in `tool_calls`. Incomplete arguments there are those of a
        # stored chunk, which LangChain completed: the call may have run.
        cause, detail = "malformed", "tools_ran" if call.source == "tool_calls" else None
    return DanglingCall(
        tool_call_id=call.id,
        name=call.name,
        args=call.args,
        cause=cause,
        error=call.raw_args if cause == "malformed" else error,
        message=paired.calling.message,
        index=call.index,
        detail=detail,
        inner=finding.inner,
    )


# --- the results that are written ----------------------------------------------------------


def _placeholder(call: DanglingCall, finding: Finding, own: Placeholder | None) -> ToolMessage:
    """The placeholder for `call`; its ids are set later.

    Args:
        call: The call without a result.
        finding: What is known of it.
        own: The application's own content. None: the default text of the cause.

    Raises:
        OptionError: If the application's callable returns neither a str nor a `ToolMessage`.
    """
    marker: dict[str, Any] = {"cause": call.cause}
    if call.cause == "malformed" and call.error is not None:
        marker["arguments"] = call.error
    if call.inner:
        marker["inner"] = len(call.inner)
    if finding.look_again and call.cause != "malformed":
        marker["look_again"] = finding.look_again
    content = _content_of(call, own)
    if isinstance(content, str):
        content = ToolMessage(content, name=call.name or None, status="error", tool_call_id="")
    return marked(content, marker)


def _content_of(call: DanglingCall, placeholder: Placeholder | None) -> str | ToolMessage:
    """The application's own content, in whose texts `{name}` and `{id}` are replaced; or ours."""
    if callable(placeholder):
        try:
            content = placeholder(call)
        except Exception as error:
            note(error, "raised by the function placeholder of the application")
            raise
        if not isinstance(content, str | ToolMessage):
            raise OptionError(
                f"placeholder callable returned {short(content)} for tool call "
                f"{call.tool_call_id!r}: expected a str or a ToolMessage."
            )
        return content
    text = placeholder.get(call.cause) if isinstance(placeholder, Mapping) else placeholder
    if text is None:
        return default_text(call)
    return text.replace("{name}", call.name).replace("{id}", call.tool_call_id)


def _recovered(finding: Finding, result: ToolMessage) -> ToolMessage:
    """A recorded result with its marker, and with a sentence that names what was not kept."""
    marker: dict[str, Any] = {"cause": "reconciled"} if finding.is_reconciled else {}
    if not finding.not_kept:
        return marked(result, marker) if marker else result
    sentence = not_kept_text(finding.not_kept, may_be_kept=finding.may_be_kept)
    content: Any = result.content
    if isinstance(content, str):
        content = f"{sentence}\n{content}"
    else:
        content = [{"type": "text", "text": sentence}, *content]
    return marked(result, {**marker, "not_kept": list(finding.not_kept)}, content=content)


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
        own_ids: The ids of the results that the repair wrote anew.
        salts: How many ids were derived from each call, or from equal ones.
        written: The calls as they are written, where they get an id or a name.
        joined: For results that are told in a message with others, that message.
    """

    reading: Reading
    evidence: Evidence
    placeholder: Placeholder | None
    messages: list[BaseMessage] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    own_ids: set[str] = field(default_factory=set)
    salts: Counter[Hashable] = field(default_factory=Counter)
    written: dict[PairedCall, Call] = field(default_factory=dict)
    joined: dict[Result, BaseMessage] = field(default_factory=dict)

    def write(self, index: int, stored: BaseMessage) -> None:
        """Write one message of the history, with the results of its calls."""
        message = stored
        if is_refused_by_all(stored):
            message = self.reading.corrected[index]
            self.changes.append(Change.of("bad_field", index, stored, message))
        if (calling := self.reading.calling_messages.get(index)) is not None:
            self._write_with_results(calling, message)
        elif (results := self.reading.stored_results.get(index)) is not None:
            self._write_without_results(results)
        else:
            self.messages.append(message)

    def _write_with_results(self, calling: CallingMessage, message: BaseMessage) -> None:
        """A message that calls tools, and the result of each of its calls."""
        self.messages.append(self._with_calls(calling) if calling.is_rewritten else message)
        findings = {p: _finding_to_write(p, self.evidence) for p in calling.calls}
        for paired in _in_order_of_results(calling, findings):
            if (finding := findings[paired]) is not None:
                self._write_new(paired, finding)
            elif (answer := paired.answer) is not None:
                self._write_answer(paired, answer)

    def _with_calls(self, calling: CallingMessage) -> BaseMessage:
        """The message with its calls in `tool_calls`."""
        stored = calling.message
        self.written |= {paired: self._named(paired) for paired in calling.calls}
        message = write_calls(stored, [self.written[paired] for paired in calling.calls])
        for paired in calling.calls:
            if paired.call.tool_call is None:
                defect = _defect_of(paired.call, "unlisted")
                self._add("promoted", paired, Change.of(defect, calling.index, stored, message))
        return message

    def _call(self, paired: PairedCall) -> Call:
        """A call as it is written."""
        return self.written.get(paired, paired.call)

    def _named(self, paired: PairedCall) -> Call:
        """A call that is listed only now, with an id and a name if it has none.

        No provider reads an item of `tool_calls` without them. A call in a block has those of its
        block, and one with a `ToolMessage` has the id that this one names.
        """
        call, answer = paired.call, paired.answer
        has_result = answer and isinstance(self.reading.messages[answer.index], ToolMessage)
        is_in_place = call.tool_call is not None or call.block_type is not None or has_result
        if is_in_place or (call.id and call.name):
            return call
        derived = f"call_{digest_of('call', paired.calling.message.id, call.ordinal)[:8]}"
        return replace(call, id=call.id or derived, name=call.name or UNKNOWN_TOOL)

    def _write_answer(self, paired: PairedCall, answer: Result) -> None:
        """The stored answer of a call."""
        before: BaseMessage = self.reading.messages[answer.index]
        is_in_place = paired.calling.has_in_place(answer)
        told = joined(answer.message, [other.message for other in paired.others])
        is_raw = is_in_place and _is_of_raw_call(before, paired)
        if told is answer.message and (is_raw or isinstance(before, ToolMessage)):
            message = told if is_refused_by_all(before) else before
            self.messages.append(message)
            if not is_in_place:
                change = Change.of("misplaced", answer.index, before, message)
                self._add("moved", paired, change)
            return
        own = as_result_of(self._call(paired), told)
        own = own if own.id else self._with_own_id(own, paired)
        self.messages.append(own)
        if told is answer.message:
            self._add("converted", paired, Change.of("wrong_role", answer.index, before, own))
        else:
            self._add("joined", paired, Change.of("duplicate", answer.index, before, own))
            self.joined |= dict.fromkeys(paired.others, own)

    def _write_new(self, paired: PairedCall, finding: Finding) -> None:
        """The recorded result of a call, else a placeholder."""
        old = paired.placeholder
        before = None if old is None else self.reading.messages[old.index]
        kind: ChangeKind = "inserted"
        cause: Cause | None = None
        if finding.result is not None:
            kind, message = "recovered", _recovered(finding, finding.result)
            if message.id is None or self._is_taken(message.id, paired):
                message = self._with_own_id(message, paired)
            self.own_ids.add(str(message.id))
        elif (kept := after_search(paired.stated, finding)) is not None:
            message = kept
        else:
            call = _dangling_call(paired, finding)
            cause = call.cause
            message = _placeholder(call, finding, self.placeholder)
            message = self._with_own_id(message, paired)
        message = as_result_of(self._call(paired), message)
        self.messages.append(message)
        defect = "superseded" if before is not None else _defect_of(paired.call, "dangling")
        self._add(kind, paired, Change.of(defect, paired.call.index, before, message), cause)

    def _with_own_id(self, message: ToolMessage, paired: PairedCall) -> ToolMessage:
        """A message with an id that is derived from a call, and that no other message has.

        The same history always gives the same ids. A salt tells calls with one id apart, whose
        messages have none.
        """
        kind, start = ("placeholder", "patch") if is_placeholder(message) else ("result",) * 2
        seed = (kind, paired.calling.message.id, self._call(paired).id, paired.call.ordinal)
        while True:
            salt = [self.salts[seed]] if self.salts[seed] else []
            self.salts[seed] += 1  # equal calls do not try a salt twice
            own_id = f"{start}-{digest_of(*seed, *salt)[:32]}"
            if not self._is_taken(own_id, paired):
                self.own_ids.add(own_id)
                return message.model_copy(update={"id": own_id})

    def _is_taken(self, message_id: str, paired: PairedCall) -> bool:
        """Whether another message has an id than the placeholder of a call, which is replaced."""
        is_own = paired.placeholder is not None and paired.placeholder.message.id == message_id
        return message_id in self.own_ids or (message_id in self.reading.message_ids and not is_own)

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
        before, after = self.reading.messages[index], self.joined.get(result)
        kind: ChangeKind = "dropped" if after is None else "joined"
        self.changes.append(Change(kind, defect, index, call_id, result.name, None, before, after))

    def _add(
        self, kind: ChangeKind, paired: PairedCall, change: Change, cause: Cause | None = None
    ) -> None:
        """Note the change of a message as one of a call, or of its result."""
        call = self._call(paired)
        named = replace(change, kind=kind, tool_call_id=call.id, name=call.name, cause=cause)
        self.changes.append(named)


def _is_of_raw_call(message: BaseMessage, paired: PairedCall) -> bool:
    """Whether a message is the answer to a `function_call`, the form that OpenAI had first."""
    is_raw = paired.call.source == "additional_kwargs"
    has_others = "tool_calls" in paired.calling.message.additional_kwargs
    return isinstance(message, FunctionMessage) and is_raw and not has_others


def _defect_of(call: Call, defect: DefectKind) -> DefectKind:
    """The defect of a call, if its arguments are complete."""
    return defect if call.raw_args is None else "malformed"


def _in_order_of_results(
    calling: CallingMessage, findings: Mapping[PairedCall, Finding | None]
) -> Sequence[PairedCall]:
    """The calls in the order of their results in the repaired history.

    Stored results keep their order and come first. If the message calls one tool twice, or has one
    id twice, results come in the order of the calls: Gemini gets names and no ids, so order is all
    it has.
    """
    calls = calling.calls
    names, ids = ({p.call.name for p in calls}, {p.call.id for p in calls})
    are_alike = min(len(names), len(ids)) < len(calls)
    stored = [p.answer for p in calls if p.answer is not None and findings[p] is None]
    in_place = all(map(calling.has_in_place, stored))
    if are_alike and (any(findings.values()) or not in_place):
        return calls

    def position(paired: PairedCall) -> tuple[int, int, int]:
        answer = paired.answer
        if answer is None or findings[paired] is not None:
            return 2, paired.call.ordinal, 0
        return int(answer.index < calling.index), answer.index, answer.part

    return sorted(calls, key=position)
