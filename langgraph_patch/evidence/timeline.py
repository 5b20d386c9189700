"""Read one message through its checkpoints, newest first.

A `TrackedMessage` collects the evidence about its calls while checkpoints are read, until the
checkpoint that does not contain the message yet. A `Timeline` selects the checkpoints from which
the current one was made; checkpoints of other branches are skipped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch.evidence.checkpoint_messages import (
    Checkpoint,
    OpenCall,
    first_result,
    has_earlier_open_call,
    has_same_call,
    index_of,
    index_of_call,
    is_version_of,
    result_of_call,
    reuses_call_id,
    writer_of,
)
from langgraph_patch.evidence.supersteps import Superstep, sends_call, summarize
from langgraph_patch.evidence.task_outcomes import (
    TaskOutcome,
    outcome_of_call,
    outcome_of_only_call,
)
from langgraph_patch.history.patch import Finding
from langgraph_patch.history.tool_calls import read_calls

_MAX_SUPERSTEPS = 16
"""How many supersteps after a message are compared."""

# --- the state of a search ----------------------------------------------------------------


class Origin(NamedTuple):
    """Where a message comes from.

    Attributes:
        checkpoint: The checkpoint that has the message in its pending writes.
        task_id: The task that wrote it.
    """

    checkpoint: Checkpoint
    task_id: str


class Source(NamedTuple):
    """Where a recorded result was found that is not in the stored history.

    Attributes:
        checkpoint: The checkpoint that has the result in its pending writes.
        task_id: The task that wrote it.
        is_dropped: Whether the superstep was abandoned, so that its writes were dropped.
    """

    checkpoint: Checkpoint
    task_id: str
    is_dropped: bool


@dataclass(slots=True)
class TrackedCall:
    """One call and the evidence about it.

    Attributes:
        call: The call.
        evidence: The real result, or the cause why there is none, or None.
        source: Where the result was found, if it is one of dropped writes.
        outcome: The newest outcome of a task that ran the call.
        sent_in: The oldest checkpoint read so far with a `Send` of the call.
        is_edited: Whether older checkpoints contain the call with another name or arguments.
        is_ambiguous: Whether the evidence may be that of another call with the same id.
        is_doubtful: Whether a superstep was not read, because it made another call with the id.
        inner: Short texts about the results of calls inside this one, newest first.
        newer: The evidence that is newer than a message that may have been edited.
    """

    call: OpenCall
    evidence: ToolMessage | Finding | None = None
    source: Source | None = None
    outcome: TaskOutcome | None = None
    sent_in: Checkpoint | None = None
    is_edited: bool = False
    is_ambiguous: bool = False
    is_doubtful: bool = False
    inner: tuple[str, ...] = ()
    newer: tuple[Any, ...] | None = None

    def add_result(self, result: ToolMessage | None, source: Source | None = None) -> None:
        """Keep the newest result. It takes precedence over an outcome."""
        if result is not None and not isinstance(self.evidence, ToolMessage):
            self.evidence, self.source = result, source

    def add_outcome(self, outcome: TaskOutcome | None) -> None:
        """Keep the newest outcome, also one that says nothing: an older one is not the last."""
        if outcome is not None and self.outcome is None:
            self.outcome = outcome
            self.evidence = self.evidence or outcome.finding

    def reset(self, evidence: tuple[Any, ...] = (None, None, None)) -> None:
        """Forget everything; `evidence` is what remains."""
        self.evidence, self.source, self.outcome = evidence


@dataclass(slots=True, eq=False)
class TrackedMessage:
    """One message and its calls without a result.

    Attributes:
        message: The message.
        calls: The calls.
        oldest: The oldest checkpoint read so far that contains the message.
        origin: Where the message comes from, once that was read.
        is_finished: Whether no older checkpoint has to be read.
        newest_pending: The newest checkpoint in which the calls may have been pending.
        supersteps: The supersteps in which the calls were pending, newest first; the oldest ones.
    """

    message: AIMessage
    calls: list[TrackedCall]
    oldest: Checkpoint | None = None
    origin: Origin | None = None
    is_finished: bool = False
    newest_pending: Checkpoint | None = None
    supersteps: deque[Superstep] = field(default_factory=lambda: deque(maxlen=_MAX_SUPERSTEPS))

    def calls_without_evidence(self) -> list[TrackedCall]:
        """The calls without a result and without a cause."""
        return [call for call in self.calls if call.evidence is None]

    def is_in(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history contains the message, with at least one of its calls unedited."""
        index = index_of(history, self.message)
        return index is not None and any(
            has_same_call(history[index], tracked.call) for tracked in self.calls
        )

    def pending_supersteps(self) -> list[Superstep]:
        """The supersteps that may have run the calls, oldest first, without idle ones."""
        found: list[Superstep] = []
        for step in reversed(self.supersteps):
            if step.source == "input":
                break
            found.append(step)
            if step.is_pending is None and step.adds_other:
                break
        return [step for step in found if not step.is_idle]


def track_calls(
    calls: Sequence[tuple[AIMessage, str]], client_results: AbstractSet[str | None] = frozenset()
) -> list[TrackedMessage]:
    """Group calls by message, without calls that have an empty id or share one."""
    tracked: dict[int, TrackedMessage] = {}
    keys = Counter((message.id, call_id) for message, call_id in calls)
    for message, call_id in calls:
        is_unique = sum(call.id == call_id for call in read_calls(message)) <= 1
        if call_id and is_unique and keys[message.id, call_id] == 1:
            entry = tracked.setdefault(id(message), TrackedMessage(message, []))
            entry.calls.append(TrackedCall(OpenCall(message, call_id, client_results)))
    return list(tracked.values())


@dataclass(slots=True)
class Timeline:
    """A walk from one checkpoint to the checkpoints that it was made from.

    Attributes:
        config: The thread and the namespace.
        messages: The messages to follow.
        newest: The newest checkpoint read, if any.
        oldest: The oldest checkpoint read so far, if any.
        has_older: Whether the checkpointer may have older ones.
    """

    config: RunnableConfig
    messages: Sequence[TrackedMessage]
    oldest: Checkpoint | None = None
    newest: Checkpoint | None = None
    has_older: bool = True

    def unfinished(self) -> list[TrackedMessage]:
        """The messages for which older checkpoints have to be read."""
        return [message for message in self.messages if not message.is_finished]

    def read(self, page: Sequence[Checkpoint]) -> None:
        """Read the next older checkpoints, newest first. Those of other branches are skipped."""
        for checkpoint in page:
            if self.oldest is None or checkpoint.id == self.oldest.parent_id:
                child, self.oldest = self.oldest, checkpoint
                self.newest = self.newest or checkpoint
                for message in self.unfinished():
                    read_checkpoint(message, checkpoint, child)
        parent = self.oldest.parent_id if self.oldest else None
        self.has_older = bool(page) and parent is not None and parent < page[-1].id


# --- reading one checkpoint ---------------------------------------------------------------


def read_checkpoint(
    message: TrackedMessage, checkpoint: Checkpoint, child: Checkpoint | None
) -> None:
    """Read one checkpoint for all calls of a message.

    Args:
        message: The message.
        checkpoint: The checkpoint, which is older than those read before.
        child: The checkpoint that was made from it, if that was read.
    """
    history = checkpoint.history
    if history is None:
        task_id = writer_of(checkpoint, message.message, ignore_rewrites=True)
        if task_id is not None:
            if child is None or child.source != "update":
                _finish(message, checkpoint, task_id)
                _drop_ambiguous(message, checkpoint, task_id)
                return
            _note_edit(message)
    elif not message.is_in(history):
        task_id = writer_of(checkpoint, message.message, ignore_rewrites=False)
        _finish(message, checkpoint, task_id)
        return
    message.oldest = checkpoint
    _note_superstep(message, checkpoint)
    is_dropped = child is None or child.source != "loop"
    for tracked in message.calls:
        if not tracked.is_edited:
            _read_call(tracked, checkpoint, is_dropped=is_dropped)
    if history is not None:
        message.is_finished = all(
            tracked.is_edited or isinstance(tracked.evidence, ToolMessage)
            for tracked in message.calls
        )


def _note_edit(message: TrackedMessage) -> None:
    """Keep the evidence that is newer than a write of a client, which may have edited a call.

    Older evidence counts only for calls that the message contained before.
    """
    for tracked in message.calls:
        if tracked.newer is None:
            tracked.newer = (tracked.evidence, tracked.source, tracked.outcome)


def _note_superstep(message: TrackedMessage, checkpoint: Checkpoint) -> None:
    is_pending = None
    if checkpoint.history is not None:
        index = index_of(checkpoint.history, message.message) or 0
        is_pending = all(isinstance(m, ToolMessage) for m in checkpoint.history[index + 1 :])
    if is_pending is not False:
        if message.newest_pending is None or is_pending is None:
            message.newest_pending = checkpoint
        message.supersteps.append(summarize(checkpoint, message.message, is_pending=is_pending))


def _read_call(tracked: TrackedCall, checkpoint: Checkpoint, *, is_dropped: bool) -> None:
    call, is_pending = tracked.call, True
    if checkpoint.history is not None:
        later = _messages_after_call(tracked, checkpoint.history)
        if later is None:
            return
        tracked.add_result(first_result(later, call))
        is_pending = all(isinstance(stored, ToolMessage) for stored in later)
    elif reuses_call_id(checkpoint, call):
        tracked.reset()  # What is newer was about the other call, and this superstep is unclear.
        tracked.is_doubtful = True
        return
    # Once the turn is over, a `@task` may have returned results of a node's own calls.
    for task_id, written in checkpoint.written_for(call, include_returned=is_pending):
        source = Source(checkpoint, task_id, is_dropped)
        tracked.add_result(result_of_call(written, call), source)
    tracked.add_outcome(outcome_of_call(checkpoint, call, is_pending=is_pending))
    if sends_call(checkpoint, call):
        tracked.sent_in = checkpoint


def _messages_after_call(
    tracked: TrackedCall, history: Sequence[BaseMessage]
) -> Sequence[BaseMessage] | None:
    """The messages after a call; None if results there may belong to another call of this id."""
    call = tracked.call
    index = index_of_call(history, call.id)
    if index is None or not is_version_of(history[index], call.message):
        return None
    if not has_same_call(history[index], call):
        tracked.is_edited = True
        return None
    return None if has_earlier_open_call(history[:index], call.id) else history[index + 1 :]


def _finish(message: TrackedMessage, checkpoint: Checkpoint, task_id: str | None) -> None:
    """Stop at the checkpoint before the message, and read what its task wrote beside it."""
    message.is_finished = True
    if task_id is None:
        return
    message.origin = Origin(checkpoint, task_id)
    for writer, written in checkpoint.written():
        index = index_of(written, message.message) if writer == task_id else None
        if index is None:
            continue
        for tracked in message.calls:
            tracked.add_result(result_of_call(written, tracked.call))
            if tracked.newer is not None and not has_same_call(written[index], tracked.call):
                tracked.reset(tracked.newer)


def _drop_ambiguous(message: TrackedMessage, checkpoint: Checkpoint, task_id: str) -> None:
    """Drop evidence that may be another call's.

    Without a stored history, the order of the calls with one id in this superstep is unknown.
    """
    for writer, written in checkpoint.written():
        index = index_of(written, message.message) if writer == task_id else None
        for tracked in message.calls:
            call = tracked.call
            if index is None:
                is_ambiguous = index_of_call(written, call.id) is not None
            else:
                is_same = has_same_call(written[index], call)
                is_ambiguous = not is_same or has_earlier_open_call(written[:index], call.id)
            if is_ambiguous:
                tracked.reset()
                tracked.is_ambiguous = True


# --- after the walk -----------------------------------------------------------------------


def settle(message: TrackedMessage) -> None:
    """Drop evidence that needs checkpoints that were not read.

    Without a stored history, only the checkpoint that has the message in its writes shows which
    evidence belongs to it.
    """
    if message.oldest is None or message.oldest.history is not None or message.is_finished:
        return
    for tracked in message.calls:
        tracked.reset(tracked.newer or (None, None, None))
        tracked.is_ambiguous = tracked.newer is None


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
            if tracked.sent_in is None:
                tracked.evidence = Finding("not_started", detail="approval")
        return steps[-1]
    if all(step.is_passed or step.is_marked for step in steps) and steps[-1].is_marked:
        for tracked in open_calls:
            tracked.evidence = Finding("not_started", detail="start_marks")
    return None


def finding_of_malformed(message: TrackedMessage, arguments: str) -> Finding:
    """What supersteps that ran after a message mean for a call with incomplete arguments."""
    first = message.supersteps[-1] if message.supersteps else None
    is_whole = (
        message.origin is not None
        and first is not None
        and first.parent_id == message.origin.checkpoint.id
        and len(message.supersteps) < _MAX_SUPERSTEPS
    )
    did_not_run = is_whole and all(s.is_passed for s in message.pending_supersteps())
    return Finding("malformed", arguments, detail=None if did_not_run else "tools_ran")


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
    began = [step.began for step in message.pending_supersteps() if not step.is_passed]
    if tracked.outcome is not None:
        began.append(tracked.outcome.checkpoint.saved.checkpoint["ts"])
    return max(began, default="") > since
