"""How a task ended that left no result, and whether that applies to one tool call.

An interrupt or an error belongs to a task. It applies to a call only if the task ran nothing
but that call, or if nothing else in the task can have raised it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.errors import GraphBubbleUp
from langgraph.types import Interrupt, Send

from langgraph_patch._langgraph_graphs import runs_after_model
from langgraph_patch._langgraph_storage import (
    NO_TASK,
    RETURN,
    is_node_timeout,
    keeps_state_between_runs,
    own_interrupt_id,
)
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.open_calls import OpenCall, calls_elsewhere, index_of, result_of_call
from langgraph_patch.evidence.supersteps import (
    is_answered,
    pending_sends,
    send_task,
    triggered_nodes,
)
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.texts import Finding

_TOOLS = "tools"
"""LangGraph's name for the node that runs tools. A node with another name may do anything."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How a task ended that ran one call.

    Attributes:
        finding: The cause why the call has no result; None if the writes of the task do not say.
        checkpoint: The checkpoint that has the outcome in its pending writes.
        task_id: The id of the task.
        node: The node of the task.
    """

    finding: Finding | None
    checkpoint: Checkpoint
    task_id: str
    node: str


# --- the outcome of a call ----------------------------------------------------------------


def outcome_of_call(checkpoint: Checkpoint, call: OpenCall) -> TaskOutcome | None:
    """The outcome of the task that ran this one call; None if it has recorded nothing.

    Args:
        checkpoint: The checkpoint before the superstep.
        call: The call.
    """
    tasks = {task for task, _, _ in checkpoint.writes} - {NO_TASK}
    sent = send_task(checkpoint, call) if tasks else None
    if sent is None or sent[0] not in tasks:
        return None
    return TaskOutcome(_finding_of(checkpoint, sent[0]), checkpoint, *sent)


def outcome_of_only_call(
    message: AIMessage, checkpoint: Checkpoint, origin: Checkpoint, origin_task: str
) -> TaskOutcome | None:
    """The outcome of a task over the whole state, if `message` makes a single call.

    Args:
        message: The message that makes the call.
        checkpoint: The oldest checkpoint that contains the message.
        origin: The checkpoint that has the message in its pending writes.
        origin_task: The id of the task that wrote it.
    """
    # After an input, the model or the tools run: which of them ended so cannot be determined.
    if checkpoint.parent_id != origin.id or origin.source == "input":
        return None
    nodes = triggered_nodes(checkpoint)
    ended = {task for task, channel, _ in checkpoint.writes if channel in (INTERRUPT, ERROR)}
    if any(map(runs_after_model, nodes)):
        return None
    # A node runs all calls of a message, also those that a client has answered since.
    if not len(read_calls(message)) == len(nodes) == len(ended) == 1:
        return None
    has_tasks = any(channel == RETURN for _, channel, _ in checkpoint.writes)
    if pending_sends(checkpoint) or has_tasks or _wrote_results(origin, origin_task, message):
        return None
    task_id = ended.pop()
    finding = _finding_of(checkpoint, task_id)
    return TaskOutcome(finding, checkpoint, task_id, nodes.pop()) if finding else None


def _wrote_results(checkpoint: Checkpoint, task_id: str, message: AIMessage) -> bool:
    """Whether the task that wrote `message` also wrote results: it ran its tools itself."""
    return any(
        isinstance(later, ToolMessage)
        for task, written in checkpoint.written()
        if task == task_id
        for later in written[(index_of(written, message) or 0) :]
    )


def _writes_of(checkpoint: Checkpoint, task_id: str) -> list[tuple[str, object]]:
    return [(channel, value) for task, channel, value in checkpoint.writes if task == task_id]


def _finding_of(checkpoint: Checkpoint, task_id: str) -> Finding | None:
    """How a task without a result ended, or None if its writes do not say."""
    own = dict(_writes_of(checkpoint, task_id))
    if ERROR in own:
        failure = _failure(own[ERROR])
        # Both an error and an interrupt: two runs, and their order is recorded only if the task
        # wrote the answer with its error. A cancellation is reported whatever came after it.
        is_last = INTERRUPT not in own or RESUME in own
        return failure if failure and (is_last or failure.cause == "cancelled") else None
    is_waiting = INTERRUPT in own and own.keys() <= {INTERRUPT, RESUME}
    return Finding("awaiting_input") if is_waiting and not is_answered(checkpoint) else None


def _failure(error: object) -> Finding | None:
    """The finding that a recorded error means."""
    text = error if isinstance(error, str) else repr(error)  # most checkpointers store the repr
    if isinstance(error, asyncio.CancelledError) or text.startswith("CancelledError("):
        return Finding("cancelled")
    if isinstance(error, GraphBubbleUp):
        return None
    return Finding("failed", error=text, detail="timeout" if is_node_timeout(error) else None)


# --- tasks that ran subgraphs -------------------------------------------------------------


def interrupted_itself(outcome: TaskOutcome, namespace: str) -> bool:
    """Whether the task of a node raised its interrupts itself, not one of its subgraphs."""
    if outcome.finding is None or outcome.finding.cause != "awaiting_input":
        return False
    own = own_interrupt_id(namespace, outcome.node, outcome.task_id)
    raised = {of for task, of in _interrupts_in(outcome.checkpoint) if task == outcome.task_id}
    return raised <= {own}


def applies_to_call(outcome: TaskOutcome, namespace: str, subgraphs: Sequence[Checkpoint]) -> bool:
    """Whether the outcome of a task that did not interrupt itself applies to its call.

    Args:
        outcome: The outcome.
        namespace: The namespace of the graph that ran the task.
        subgraphs: All checkpoints of the subgraphs that the task ran.
    """
    if outcome.finding is None or outcome.finding.cause != "awaiting_input":
        # In a node with another name, a middleware may have failed.
        return outcome.node == _TOOLS or bool(pending_sends(outcome.checkpoint))
    if subgraphs or keeps_state_between_runs(namespace):
        return True
    # A `@task` inside the tool records its interrupt too; a subgraph without checkpoints does not.
    interrupts = list(_interrupts_in(outcome.checkpoint))
    raised = {of for task, of in interrupts if task == outcome.task_id}
    return raised <= {of for task, of in interrupts if task != outcome.task_id}


def _interrupts_in(checkpoint: Checkpoint) -> Iterator[tuple[str, str | None]]:
    """The task and the id of each interrupt that the superstep recorded."""
    for task_id, channel, value in checkpoint.writes:
        if channel == INTERRUPT:
            for raised in value if isinstance(value, list | tuple) else [value]:
                yield task_id, raised.id if isinstance(raised, Interrupt) else None


def evidence_in_subgraphs(
    subgraphs: Sequence[Checkpoint], outcome: TaskOutcome, forms: Sequence[OpenCall]
) -> ToolMessage | Finding | None:
    """The evidence about a call in all checkpoints of the subgraphs that its task ran.

    A subgraph that received the call may have run it, and interrupted or failed in a later
    node: only a result counts there. A subgraph without the call is part of the tool, and the
    task's outcome applies.
    """
    histories = [checkpoint.history or [] for checkpoint in subgraphs]
    histories += [messages for checkpoint in subgraphs for _, messages in checkpoint.written()]
    for form in forms:
        if not any(calls_elsewhere(messages, form) for messages in histories):
            for messages in histories:
                if result := result_of_call(messages, form):
                    return result
    stored = [(checkpoint.channels, checkpoint.writes) for checkpoint in subgraphs]
    if any(_contains_id(stored, form.id) for form in forms):
        return None
    return outcome.finding


def _contains_id(value: object, call_id: str) -> bool:
    """Whether a call's id occurs anywhere in a value. A graph without it cannot run the call."""
    rest, seen = [value], set[int]()
    while rest:
        part = rest.pop()
        if isinstance(part, str):
            if part == call_id:
                return True
        elif id(part) not in seen:  # a value may contain itself
            seen.add(id(part))
            rest += _parts_of(part)
    return False


def _parts_of(value: object) -> Collection[object]:
    if isinstance(value, Send):
        return [value.arg]
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | deque):
        return value
    return getattr(value, "__dict__", {}).values()
