"""Read one message through its checkpoints, newest first.

A `TrackedMessage` collects the evidence about its calls while checkpoints are read, until the
checkpoint that does not contain the message yet. A `Timeline` selects the checkpoints from which
the current one was made; checkpoints of other branches are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
from langgraph_patch.evidence.restarts import (
    PossibleStart,
    is_stale,
    nodes_that_made,
    with_starts_of,
)
from langgraph_patch.evidence.task_outcomes import (
    TaskOutcome,
    outcome_of_call,
    outcome_of_only_call,
)
from langgraph_patch.history.patch import Finding
from langgraph_patch.history.tool_calls import read_calls

# --- the state of a search ----------------------------------------------------------------


class Origin(NamedTuple):
    """Where a message comes from.

    Attributes:
        checkpoint: The checkpoint that has the message in its pending writes.
        task_id: The task that wrote it.
    """

    checkpoint: Checkpoint
    task_id: str


@dataclass(slots=True)
class TrackedCall:
    """One call and the evidence about it.

    Attributes:
        call: The call.
        evidence: The real result, or the cause why there is none, or None.
        outcome: The newest outcome of a task that ran the call.
        starts_after_outcome: The possible starts of the call after that outcome.
        starts: All possible starts in the checkpoints that were read.
        newer_starts: Those in checkpoints newer than the oldest that contains the message.
        is_edited: Whether older checkpoints contain the call with another name or arguments.
    """

    call: OpenCall
    evidence: ToolMessage | Finding | None = None
    outcome: TaskOutcome | None = None
    starts_after_outcome: set[PossibleStart] = field(default_factory=set)
    starts: set[PossibleStart] = field(default_factory=set)
    newer_starts: set[PossibleStart] = field(default_factory=set)
    is_edited: bool = False

    def add_result(self, result: ToolMessage | None) -> None:
        """Keep the newest result. It takes precedence over an outcome."""
        if result is not None and not isinstance(self.evidence, ToolMessage):
            self.evidence = result

    def add_outcome(self, outcome: TaskOutcome | None) -> None:
        """Keep the newest outcome, unless there is evidence already."""
        if outcome is not None and self.evidence is None and self.outcome is None:
            self.evidence, self.outcome = outcome.finding, outcome
            self.starts_after_outcome = self.newer_starts

    def reset(self) -> None:
        """Forget everything: it was about a later call with the same id."""
        self.evidence = self.outcome = None
        self.starts, self.newer_starts = set(), set()


@dataclass(slots=True, eq=False)
class TrackedMessage:
    """One message and its calls without a result.

    Attributes:
        message: The message.
        calls: The calls.
        oldest: The oldest checkpoint read so far that contains the message.
        origin: Where the message comes from, once that was read.
        is_finished: Whether no older checkpoint has to be read.
    """

    message: AIMessage
    calls: list[TrackedCall]
    oldest: Checkpoint | None = None
    origin: Origin | None = None
    is_finished: bool = False

    def calls_without_evidence(self) -> list[TrackedCall]:
        """The calls without a result and without a cause."""
        return [call for call in self.calls if call.evidence is None]

    def is_in(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history contains the message, with at least one of its calls unedited."""
        index = index_of(history, self.message)
        return index is not None and any(
            has_same_call(history[index], tracked.call) for tracked in self.calls
        )


def track_calls(calls: Sequence[tuple[AIMessage, str]]) -> list[TrackedMessage]:
    """Group calls by message, without calls that have an empty id or share one."""
    tracked: dict[int, TrackedMessage] = {}
    keys = Counter((message.id, call_id) for message, call_id in calls)
    for message, call_id in calls:
        is_unique = sum(call.id == call_id for call in read_calls(message)) <= 1
        if call_id and is_unique and keys[message.id, call_id] == 1:
            entry = tracked.setdefault(id(message), TrackedMessage(message, []))
            entry.calls.append(TrackedCall(OpenCall(message, call_id)))
    return list(tracked.values())


@dataclass(slots=True)
class Timeline:
    """A walk from one checkpoint to the checkpoints that it was made from.

    Attributes:
        config: The thread and the namespace.
        messages: The messages to follow.
        oldest: The oldest checkpoint read so far, if any.
        has_older: Whether the checkpointer may have older ones.
    """

    config: RunnableConfig
    messages: Sequence[TrackedMessage]
    oldest: Checkpoint | None = None
    has_older: bool = True

    def unfinished(self) -> list[TrackedMessage]:
        """The messages for which older checkpoints have to be read."""
        return [message for message in self.messages if not message.is_finished]

    def read(self, page: Sequence[Checkpoint]) -> None:
        """Read the next older checkpoints, newest first. Those of other branches are skipped."""
        for checkpoint in page:
            if self.oldest is None or checkpoint.id == self.oldest.parent_id:
                self.oldest = checkpoint
                for message in self.unfinished():
                    read_checkpoint(message, checkpoint)
        parent = self.oldest.parent_id if self.oldest else None
        self.has_older = bool(page) and parent is not None and parent < page[-1].id


# --- reading one checkpoint ---------------------------------------------------------------


def read_checkpoint(message: TrackedMessage, checkpoint: Checkpoint) -> None:
    """Read one checkpoint, which is older than those read before, for all calls of a message."""
    history = checkpoint.history
    if history is None:
        task_id = writer_of(checkpoint, message.message, ignore_rewrites=True)
        if task_id is not None:
            _finish(message, checkpoint, task_id)
            _drop_ambiguous(message, checkpoint, task_id)
            return
    elif not message.is_in(history):
        task_id = writer_of(checkpoint, message.message, ignore_rewrites=False)
        _finish(message, checkpoint, task_id)
        return
    message.oldest = checkpoint
    for tracked in message.calls:
        if not tracked.is_edited:
            _read_call(tracked, checkpoint)
    if history is not None:
        message.is_finished = all(
            tracked.is_edited or isinstance(tracked.evidence, ToolMessage)
            for tracked in message.calls
        )


def _read_call(tracked: TrackedCall, checkpoint: Checkpoint) -> None:
    call, is_pending = tracked.call, True
    tracked.newer_starts = tracked.starts
    if checkpoint.history is not None:
        later = _messages_after_call(tracked, checkpoint.history)
        if later is None:
            return
        tracked.add_result(first_result(later, call.id))
        is_pending = all(isinstance(stored, ToolMessage) for stored in later)
    elif reuses_call_id(checkpoint, call):
        tracked.reset()
    # Once the turn is over, a `@task` may have returned results of a node's own calls.
    for _, written in checkpoint.written(include_returned=is_pending):
        tracked.add_result(result_of_call(written, call))
    tracked.add_outcome(outcome_of_call(checkpoint, call, is_pending=is_pending))
    tracked.starts = with_starts_of(tracked.starts, checkpoint, call, is_pending=is_pending)


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
        if writer == task_id and index_of(written, message.message) is not None:
            for tracked in message.calls:
                tracked.add_result(result_of_call(written, tracked.call))


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
                tracked.evidence = None


# --- after the walk -----------------------------------------------------------------------


def read_only_task(message: TrackedMessage) -> None:
    """Read how the task over the whole state ended, if one call is left without evidence."""
    calls = message.calls_without_evidence()
    if message.oldest is not None and message.origin is not None and len(calls) == 1:
        outcome = outcome_of_only_call(message.message, message.oldest, *message.origin)
        calls[0].add_outcome(outcome)


def drop_stale_outcomes(message: TrackedMessage) -> list[tuple[TrackedCall, TaskOutcome]]:
    """Drop evidence from outcomes that are stale.

    Returns:
        The calls with a task's outcome as their evidence, and the outcome.
    """
    origin_nodes = set[str]()
    if message.origin is not None and message.oldest is not None:
        origin_nodes = nodes_that_made(message.origin.checkpoint, message.oldest)
    current: list[tuple[TrackedCall, TaskOutcome]] = []
    for tracked in message.calls:
        outcome = tracked.outcome
        if outcome is None or tracked.evidence is not outcome.finding:
            continue
        if is_stale(outcome, tracked.starts_after_outcome, origin_nodes):
            tracked.evidence = None
        else:
            current.append((tracked, outcome))
    return current
