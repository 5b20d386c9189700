"""Check what was found about a call against the graphs above and below the one that has it.

A graph above records the answers to the interrupts of all graphs below. A graph below, which the
tool or its node ran, has checkpoints of its own.
"""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph_storage import may_run_in_task
from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.inner_results import inner_results
from langgraph_patch.evidence.queries import (
    CheckpointReader,
    parent_checkpoints,
    subgraph_checkpoints,
)
from langgraph_patch.evidence.supersteps import (
    is_answered,
    send_task,
    sends_call,
    sends_request,
)
from langgraph_patch.evidence.task_outcomes import (
    TaskOutcome,
    applies_to_call,
    evidence_in_subgraphs,
    interrupted_itself,
)
from langgraph_patch.evidence.tracked_calls import TrackedCall, TrackedMessage
from langgraph_patch.history.texts import Finding


def check_outcome(
    reader: CheckpointReader, config: RunnableConfig, tracked: TrackedCall, outcome: TaskOutcome
) -> IOGenerator[None]:
    """Check an outcome against the subgraphs of its task: their checkpoints take precedence."""
    finding, namespace = outcome.finding, config["configurable"]["checkpoint_ns"]
    is_waiting = finding is not None and finding.cause == "awaiting_input"
    if is_waiting and (yield from _is_answered_above(reader, config, outcome.checkpoint)):
        tracked.evidence = None
        return
    if interrupted_itself(outcome, namespace):
        return
    tracked.evidence = None
    found, is_whole = yield from subgraph_checkpoints(reader, config, outcome.checkpoint)
    if not is_whole:
        return
    own = [c for c in found if may_run_in_task(c.namespace, namespace, outcome.task_id)]
    evidence = evidence_in_subgraphs(own, outcome, tracked.forms)
    if not isinstance(evidence, Finding) or applies_to_call(outcome, namespace, own):
        tracked.evidence = evidence


def _is_answered_above(
    reader: CheckpointReader, config: RunnableConfig, checkpoint: Checkpoint
) -> IOGenerator[bool]:
    """Whether a graph above recorded an answer: it records those to all graphs below."""
    if not config["configurable"]["checkpoint_ns"]:
        return False
    above = yield from parent_checkpoints(reader, config, checkpoint)
    return any(map(is_answered, above)) or reader.error is not None


def drop_answered(
    reader: CheckpointReader, config: RunnableConfig, message: TrackedMessage
) -> IOGenerator[None]:
    """Drop the cause of calls that were not approved, if a graph above recorded an answer."""
    newest = message.newest_pending
    if newest is not None and (yield from _is_answered_above(reader, config, newest)):
        for tracked in message.calls:
            if isinstance(tracked.evidence, Finding) and tracked.evidence.detail == "approval":
                tracked.evidence = None


def add_inner_results(
    reader: CheckpointReader, config: RunnableConfig, tracked: TrackedCall
) -> IOGenerator[None]:
    """Add the results of the calls inside a call, from each task of its own that is known."""
    if tracked.inner:
        return
    namespace = config["configurable"]["checkpoint_ns"]
    found: dict[str, Checkpoint] = {}
    for checkpoint, task_id in _tasks_of(tracked, namespace):
        page, _ = yield from subgraph_checkpoints(reader, config, checkpoint)
        own = [c for c in page if may_run_in_task(c.namespace, namespace, task_id)]
        found |= {checkpoint.id: checkpoint for checkpoint in own}
    tracked.inner = inner_results(list(found.values()))


def _tasks_of(tracked: TrackedCall, namespace: str) -> list[tuple[Checkpoint, str]]:
    """The checkpoints before the tasks that ran a call, and their ids, newest first.

    A task that asked for input itself runs no graph. A `Send` with other arguments is that of
    another call with the id.
    """
    outcome = tracked.outcome
    tasks: dict[str, tuple[Checkpoint, str]] = {}
    for checkpoint in tracked.sent_in:
        for task_id, *_ in filter(None, (send_task(checkpoint, f) for f in tracked.forms)):
            tasks.setdefault(checkpoint.id, (checkpoint, task_id))
    if outcome is not None and interrupted_itself(outcome, namespace):
        tasks.pop(outcome.checkpoint.id, None)
    elif outcome is not None:
        tasks[outcome.checkpoint.id] = outcome.checkpoint, outcome.task_id
    return [task for task in tasks.values() if _may_have_run(task[0], tracked)]


def _may_have_run(checkpoint: Checkpoint, tracked: TrackedCall) -> bool:
    """Whether the superstep after a checkpoint has no `Send` of the id, or one of this call."""
    is_sent = any(sends_call(checkpoint, form) for form in tracked.forms)
    return not is_sent or any(sends_request(checkpoint, form) for form in tracked.forms)
