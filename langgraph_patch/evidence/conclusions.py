"""What the checkpoints that were read mean for calls without a recorded result."""

from __future__ import annotations

from langchain_core.messages import ToolMessage

from langgraph_patch.evidence.supersteps import Superstep
from langgraph_patch.evidence.task_outcomes import outcome_of_only_call
from langgraph_patch.evidence.tracked_calls import MAX_SUPERSTEPS, TrackedCall, TrackedMessage
from langgraph_patch.history.texts import Finding


def read_only_task(message: TrackedMessage) -> None:
    """Read how the task over the whole state ended, if one call is left without evidence."""
    calls = [tracked for tracked in message.calls_without_evidence() if tracked.outcome is None]
    if message.oldest is None or message.origin is None or len(calls) != 1:
        return
    if (
        not calls[0].is_ambiguous
        and not calls[0].is_doubtful
        and len(message.pending_supersteps()) == 1
    ):
        outcome = outcome_of_only_call(message.message, message.oldest, *message.origin)
        calls[0].add_outcome(outcome)


def add_calls_that_did_not_start(message: TrackedMessage) -> Superstep | None:
    """Add the cause of calls that no recorded superstep has started.

    Returns:
        The superstep that paused for an approval, if that is the cause.
    """
    steps = message.pending_supersteps()
    open_calls = [
        tracked
        for tracked in message.calls_without_evidence()
        if tracked.outcome is None and not tracked.is_doubtful and not tracked.is_ambiguous
    ]
    if not message.is_finished or not steps or message.supersteps.maxlen == len(message.supersteps):
        return None
    if all(step.is_approval or step.is_passed for step in steps) and steps[-1].is_approval:
        for tracked in open_calls:
            if not tracked.sent_in:
                tracked.evidence = Finding("not_started", detail="approval")
        return steps[-1]
    return None


def finding_of_malformed(message: TrackedMessage, arguments: str) -> Finding:
    """What supersteps that ran after a message mean for a call with incomplete arguments."""
    first = message.supersteps[-1] if message.supersteps else None
    is_whole = (
        message.origin is not None
        and first is not None
        and first.parent_id == message.origin.checkpoint.id
        and len(message.supersteps) < MAX_SUPERSTEPS
    )
    did_not_run = is_whole and all(s.is_passed for s in message.pending_supersteps())
    return Finding("malformed", error=arguments, detail=None if did_not_run else "tools_ran")


def may_still_run(tracked: TrackedCall, message: TrackedMessage, since: str) -> bool:
    """Whether a task may be running that has recorded no end of a call.

    Args:
        tracked: The call.
        message: Its message.
        since: The time, in the format of a checkpoint; a superstep that began before is over.
    """
    finding = tracked.evidence
    if isinstance(finding, ToolMessage):
        return False
    if finding is not None and finding.detail != "timeout":
        return False
    steps = message.pending_supersteps()
    began = [step.began for step in steps if not (step.is_passed or step.is_over)]
    sent = tracked.sent_in if tracked.outcome is None else [tracked.outcome.checkpoint]
    began += [checkpoint.saved.checkpoint["ts"] for checkpoint in sent]
    return max(began, default="") > since


def may_be_started_again(tracked: TrackedCall, message: TrackedMessage) -> bool:
    """Whether a call that ended without a result may run again, or may be started again.

    A task that is started again records nothing before it ends: not the answer by interrupt id,
    nor that it runs again after an error.
    """
    found, outcome = tracked.evidence, tracked.outcome
    if found is None and outcome is None:  # one task ran all calls, and may have been answered
        return any(step.is_over for step in message.pending_supersteps())
    if isinstance(found, Finding) and found.detail == "approval":
        return True
    return found is not None and outcome is not None and found is outcome.finding
