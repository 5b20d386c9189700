"""Decide what the result of a call is: the stored answer, a recorded result or a placeholder.

The stored answer stays if it is a real result or a placeholder that is up to date. Otherwise the
evidence decides: a recorded result, or the cause that the placeholder states.
"""

from __future__ import annotations

from langchain_core.messages import ToolMessage

from langgraph_patch.history.paired_calls import PairedCall
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Evidence, EvidenceKey, Finding, RecordedResult
from langgraph_patch.history.placeholders import (
    Cause,
    DanglingCall,
    cause_of,
    inner_count,
    is_placeholder,
    needs_recheck,
)


def is_pending(paired: PairedCall, reading: Reading, *, allow_pending: bool) -> bool:
    """Whether a call at the end of the history stays without a result.

    Never one with incomplete arguments: it would be listed with `{}`, and a tool node would run it.
    """
    at_end = paired.calling.end == len(reading.messages)
    runnable = paired.call.incomplete_args is None and paired.call.source != "invalid_tool_calls"
    return allow_pending and at_end and paired.answer is None and runnable


def keeps_answer(paired: PairedCall, reading: Reading, evidence: Evidence) -> bool:
    """Whether the stored answer stays: a real result, or a placeholder that is up to date."""
    recorded = evidence_of(paired, reading, evidence)
    if paired.real is not None:
        return not (
            isinstance(recorded, RecordedResult)
            and reading.is_doubted(paired)
            and _differs(recorded.message, paired.real.result.message)
        )
    if paired.placeholder is None:
        return False
    stored = paired.placeholder.result.message
    if not is_placeholder(stored):
        return False  # of another package or of a client
    if isinstance(recorded, Finding):
        return not _is_better(recorded, stored)
    return recorded is None


def _differs(recorded: ToolMessage, stored: ToolMessage) -> bool:
    """Whether a result that came with the input is not the recorded one."""
    return (recorded.content, recorded.status) != (stored.content, stored.status)


def _is_better(finding: Finding, stored: ToolMessage) -> bool:
    """Whether a finding states more than a stored placeholder, or settles it."""
    if needs_recheck(stored) and (not finding.recheck or finding.searched is not None):
        return True
    if len(finding.inner) > inner_count(stored):
        return True
    return finding.cause != "unknown" and cause_of(stored) == "unknown"


def is_only_settled(call: DanglingCall, stored: ToolMessage) -> bool:
    """Whether a search that settled a placeholder found no more than the placeholder states."""
    if len(call.inner) != inner_count(stored):
        return len(call.inner) < inner_count(stored)
    return needs_recheck(stored) and call.cause in {"unknown", cause_of(stored)}


def evidence_of(
    paired: PairedCall, reading: Reading, evidence: Evidence
) -> RecordedResult | Finding | None:
    """The evidence about this call; None if it may be about another call with the same ids."""
    if not evidence:
        return None
    key = reading.key_of(paired)
    found = evidence.get(key) if key is not None else None
    if isinstance(found, ToolMessage):
        found = RecordedResult(found)
    return None if isinstance(found, RecordedResult) and is_placeholder(found.message) else found


def dangling_call(paired: PairedCall, finding: Finding | None) -> DanglingCall:
    """The call with its cause: that of the finding, else what the call itself shows."""
    if finding is None or finding.cause == "unknown":
        cause, error, detail = _own_cause(paired)
    else:
        cause, error, detail = finding.cause, finding.error, finding.detail
    if cause == "malformed" and error is None:
        error = paired.call.incomplete_args
    return DanglingCall(
        tool_call_id=paired.new_id,
        name=paired.new_name,
        args=paired.call.args,
        cause=cause,
        error=error,
        message=paired.calling.message,
        index=paired.calling.index,
        detail=detail,
        inner=() if finding is None else finding.inner,
    )


def _own_cause(paired: PairedCall) -> tuple[Cause, str | None, str | None]:
    """Cause, error and detail of a call that no evidence is about.

    LangGraph runs the calls in `tool_calls`. A call that is there with incomplete arguments is
    a stored chunk, of which LangChain completed the arguments: it may have run.
    """
    incomplete = paired.call.incomplete_args
    if not paired.call.name:
        return "malformed", incomplete, "no_name"
    if incomplete is not None:
        may_have_run = paired.call.source == "tool_calls"
        return "malformed", incomplete, "tools_ran" if may_have_run else None
    return "unknown", None, None


def dangling_calls(
    reading: Reading, evidence: Evidence, *, allow_pending: bool = False
) -> list[tuple[EvidenceKey, DanglingCall]]:
    """The calls for which a repair with this evidence writes placeholders.

    Calls whose message shares its id and theirs with another are left out: evidence about them
    is not used.

    Args:
        reading: The history with its calls and results paired.
        evidence: What checkpoints recorded about calls without a result.
        allow_pending: Whether calls at the end of the history may stay without a result.

    Returns:
        For each call its key in `evidence` and the call, in the order of the history.
    """
    found = []
    for paired in reading.paired_calls:
        key = reading.key_of(paired)
        recorded = evidence_of(paired, reading, evidence)
        if (
            key is not None
            and not isinstance(recorded, RecordedResult)
            and not is_pending(paired, reading, allow_pending=allow_pending)
            and not keeps_answer(paired, reading, evidence)
        ):
            found.append((key, dangling_call(paired, recorded)))
    return found
