"""The state of a search: messages, their calls, and the evidence found about each so far."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.open_calls import (
    OpenCall,
    call_in,
    first_result,
    index_of,
    original_message,
)
from langgraph_patch.evidence.supersteps import Superstep
from langgraph_patch.evidence.task_outcomes import TaskOutcome
from langgraph_patch.history.calls import Call
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from langgraph_patch.history.texts import Finding

MAX_SUPERSTEPS = 16
"""How many supersteps after a message are compared."""


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
        child: The checkpoint that was made from it in this branch; None if there is none.
        is_rewrite: Whether the task wrote stored messages again, as a repair does. The task that
            ran the tool is then another one.
        later: The channels that were written since; None if that is not known.
    """

    checkpoint: Checkpoint
    task_id: str
    child: Checkpoint | None
    is_rewrite: bool = False
    later: frozenset[str] | None = None


@dataclass(slots=True)
class TrackedCall:
    """One call and the evidence about it.

    Attributes:
        call: The call.
        original: The same with the ids that the model gave to the calls of its message.
        evidence: The real result, or the cause why there is none, or None.
        source: Where the result was found, if it is one of dropped writes.
        outcome: The newest outcome of a task that ran the call.
        sent_in: The checkpoints with a `Send` of the call, newest first. An `update_state` over a
            pause sends the call again, and starts it anew.
        is_edited: Whether older checkpoints contain the call with another name or arguments.
        is_ambiguous: Whether the evidence may be that of another call with the same id.
        is_doubtful: Whether a superstep was read only in part, because it made another call with
            the id.
        inner: Short texts about the results of calls inside this one, newest first.
        newer: The evidence that is newer than a write of a client that may have edited the call.
        certain: The evidence found so far that is certainly this call's own: a stored history
            showed it, or it has an id that a repair made.
    """

    call: OpenCall
    original: OpenCall
    evidence: ToolMessage | Finding | None = None
    source: Source | None = None
    outcome: TaskOutcome | None = None
    sent_in: list[Checkpoint] = field(default_factory=list)
    is_edited: bool = False
    is_ambiguous: bool = False
    is_doubtful: bool = False
    inner: tuple[str, ...] = ()
    newer: tuple[Any, ...] | None = None
    certain: tuple[Any, ...] = (None, None, None)

    @property
    def found(self) -> tuple[Any, ...]:
        """The evidence, its source and the outcome."""
        return self.evidence, self.source, self.outcome

    @property
    def is_renamed(self) -> bool:
        """Whether a repair gave the call its id."""
        return self.call.id != self.original.id

    @property
    def forms(self) -> tuple[OpenCall, ...]:
        """The call as it is now, and as it was before a repair gave it another id."""
        return (self.call,) if self.original is self.call else (self.call, self.original)

    def add_result(self, result: ToolMessage | None, source: Source | None = None) -> None:
        """Keep the newest result. It takes precedence over an outcome.

        If a repair wrote the result again, its source is where the repair found it.
        """
        if result is None:
            return
        found, is_first = self.evidence, True
        if isinstance(found, ToolMessage):
            is_copy = found.content == result.content or _names_lost_effects(found)
            is_rewrite = self.source is not None and self.source.is_rewrite
            is_first = is_rewrite and is_copy and source is not None
        if is_first:
            self.evidence, self.source = result, source

    @property
    def has_result(self) -> bool:
        """Whether the result is found, and the task that wrote it first."""
        is_rewrite = self.source is not None and self.source.is_rewrite
        return isinstance(self.evidence, ToolMessage) and not is_rewrite

    def add_outcome(self, outcome: TaskOutcome | None) -> None:
        """Keep the newest outcome, also one that says nothing: an older one is not the last."""
        if outcome is not None and self.outcome is None:
            self.outcome = outcome
            self.evidence = self.evidence or outcome.finding

    def reset(self, evidence: tuple[Any, ...] | None = None) -> None:
        """Forget everything but what is certain; `evidence` is what remains instead."""
        self.evidence, self.source, self.outcome = evidence or self.certain


@dataclass(slots=True, eq=False)
class TrackedMessage:
    """One message and its calls without a result.

    Attributes:
        message: The message.
        calls: The calls.
        index: The index of the message in the history.
        oldest: The oldest checkpoint read so far that contains the message.
        origin: Where the message comes from, once that was read.
        unwritten: The checkpoint before the message, if no task is recorded that wrote it.
        is_finished: Whether no older checkpoint has to be read.
        newest_pending: The newest checkpoint in which the calls may have been pending.
        supersteps: The supersteps in which the calls were pending, newest first; the oldest ones.
        later: The channels that were written after the oldest checkpoint read so far; None if
            checkpoints in between were not read.
    """

    message: AIMessage
    calls: list[TrackedCall]
    index: int = 0
    oldest: Checkpoint | None = None
    origin: Origin | None = None
    unwritten: Checkpoint | None = None
    is_finished: bool = False
    newest_pending: Checkpoint | None = None
    supersteps: deque[Superstep] = field(default_factory=lambda: deque(maxlen=MAX_SUPERSTEPS))
    later: frozenset[str] | None = frozenset()

    def calls_without_evidence(self) -> list[TrackedCall]:
        """The calls without a result and without a cause."""
        return [call for call in self.calls if call.evidence is None]

    def is_in(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history contains the message, with at least one of its calls unedited."""
        index = index_of(history, self.message)
        return index is not None and any(
            call_in(history[index], tracked.call) is not None for tracked in self.calls
        )

    def has_result_in(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history has a real result of one of the calls."""
        index = index_of(history, self.message)
        if index is None:
            return False
        results = list(takewhile(lambda m: not isinstance(m, AIMessage), history[index + 1 :]))
        versions = [call_in(history[index], tracked.call) for tracked in self.calls]
        return any(version is not None and first_result(results, version) for version in versions)

    def drop_uncertain(self) -> None:
        """Drop evidence of checkpoints that may be older than the message.

        Without a stored history, only the checkpoint that has the message in its writes shows
        which evidence belongs to it.
        """
        if self.oldest is not None and self.oldest.history is None:
            for tracked in self.calls:
                tracked.reset(tracked.newer)
                tracked.is_ambiguous = tracked.newer is None

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


def track_calls(messages: Sequence[BaseMessage], calls: Sequence[Call]) -> list[TrackedMessage]:
    """Group calls by message, without calls that have an empty id or cannot be identified."""
    tracked: dict[int, TrackedMessage] = {}
    keys = Counter((messages[call.index].id, call.id, call.ordinal) for call in calls)
    for call in calls:
        message = corrected(messages[call.index])
        if call.id and isinstance(message, AIMessage):
            if keys[message.id, call.id, call.ordinal] > 1:
                continue
            entry = tracked.setdefault(call.index, TrackedMessage(message, [], call.index))
            entry.calls.append(track(OpenCall(entry.message, call.id, call.ordinal)))
    return list(tracked.values())


def _names_lost_effects(message: ToolMessage) -> bool:
    """Whether a recovered result names effects of its call that were not restored."""
    mark = message.additional_kwargs.get(PLACEHOLDER_KEY)
    return isinstance(mark, dict) and bool(mark.get("not_kept"))


def track(call: OpenCall) -> TrackedCall:
    """A call without evidence."""
    message = original_message(call.message)
    if message is call.message:
        return TrackedCall(call, call)
    call_id = message.tool_calls[call.ordinal]["id"] or ""
    return TrackedCall(call, call._replace(message=message, id=call_id))
