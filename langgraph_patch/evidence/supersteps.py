"""Read from a checkpoint which tasks ran in the superstep that followed it.

A checkpoint has no list of tasks. The nodes are derived from the channels that triggered them,
the tool calls from the payload of each `Send` and from the marks of `record_tool_calls`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME, TASKS
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from langgraph_patch._langgraph import (
    NO_TASK,
    runs_after_model,
    send_index,
    sent_call,
    triggered_node,
)
from langgraph_patch.evidence.checkpoint_messages import (
    Checkpoint,
    OpenCall,
    adds_other_message,
    is_record_of,
    request_hash_of,
)
from langgraph_patch.history.tool_calls import read_calls
from langgraph_patch.recording.records import (
    MARK,
    STARTED,
    StartMark,
    is_recorded_superstep,
    read_record,
    start_marks_in,
)


class Superstep(NamedTuple):
    """What one superstep may have done with the pending calls of a message.

    Attributes:
        parent_id: The id of the checkpoint that the checkpoint before it was made from.
        source: What made the checkpoint before it.
        began: When that checkpoint was made.
        is_pending: Whether no other message follows that of the calls; None if it is not stored.
        adds_other: Whether it wrote another message that is no result.
        is_idle: Whether no node ran.
        is_passed: Whether it ran nothing but nodes between the model and the tools.
        is_approval: Whether such a node paused and has no recorded answer.
        is_marked: Whether it marked each start of the message's calls, and each start has ended.
    """

    parent_id: str | None
    source: str | None
    began: str
    is_pending: bool | None
    adds_other: bool
    is_idle: bool
    is_passed: bool
    is_approval: bool
    is_marked: bool


def summarize(checkpoint: Checkpoint, message: AIMessage, *, is_pending: bool | None) -> Superstep:
    """What the superstep after a checkpoint may have done with the pending calls of a message."""
    nodes, sends = triggered_nodes(checkpoint), pending_sends(checkpoint)
    is_goto = _is_client_goto(checkpoint)
    own = {channel for task, channel, _ in checkpoint.writes if task != NO_TASK}
    is_passed = bool(nodes) and not sends and not is_goto and all(map(runs_after_model, nodes))
    return Superstep(
        checkpoint.parent_id,
        checkpoint.source,
        checkpoint.saved.checkpoint["ts"],
        is_pending,
        adds_other_message(checkpoint, message),
        is_idle=not nodes and not sends and not is_goto,
        is_passed=is_passed,
        is_approval=is_passed and own == {INTERRUPT} and not is_answered(checkpoint),
        is_marked=_marks_each_start(
            checkpoint, message, nodes | {s.node for s in sends if isinstance(s, Send)}
        ),
    )


def _marks_each_start(checkpoint: Checkpoint, message: AIMessage, nodes: set[str]) -> bool:
    records = [read_record(v) for _, channel, v in checkpoint.writes if channel == STARTED]
    own = [record for record in records if record and record["message_id"] == message.id]
    calls = [OpenCall(message, call.id) for call in read_calls(message)]
    requests = {(call.id, request_hash_of(call)) for call in calls}
    return (
        len(nodes) == 1
        and message.id is not None
        and bool(own)
        # Otherwise, the ids of the calls have been changed since.
        and all((record["call_id"], record["request_hash"]) in requests for record in own)
        and is_recorded_superstep(checkpoint.saved, next(iter(nodes)))
        and not _has_unfinished_start(checkpoint)
    )


def sends_call(checkpoint: Checkpoint, call: OpenCall) -> bool:
    """Whether a `Send` of a superstep carries a call."""
    return any((sent_call(s) or {}).get("id") == call.id for s in pending_sends(checkpoint))


def is_answered(checkpoint: Checkpoint) -> bool:
    """Whether an answer without an interrupt id is recorded. Any task may have used it."""
    return any(task == NO_TASK and channel == RESUME for task, channel, _ in checkpoint.writes)


def _is_client_goto(checkpoint: Checkpoint) -> bool:
    return any(
        task == NO_TASK and (channel == TASKS or triggered_node(channel))
        for task, channel, _ in checkpoint.writes
    )


def triggered_nodes(checkpoint: Checkpoint) -> set[str]:
    """The nodes that an edge triggered. Each runs over the whole state."""
    return {node for channel in checkpoint.channels if (node := triggered_node(channel))}


def pending_sends(checkpoint: Checkpoint) -> list[Any]:
    """The `Send`s of the superstep."""
    return checkpoint.channels.get(TASKS) or []


def recorded_tasks(checkpoint: Checkpoint, call: OpenCall) -> list[str]:
    """The tasks of the last attempt in which `record_tool_calls` ran a call without a result.

    For supersteps without start marks. Empty if it is not certain which attempt was the last.
    """
    attempts: dict[str, int] = {}
    for _, channel, value in checkpoint.writes:
        mark = read_record(value) if channel == MARK else None
        if mark is not None and is_record_of(mark, call):
            attempts[mark["task_id"]] = mark["node_attempt"]
    last = max(attempts.values(), default=1)
    interrupted = {task for task, channel, _ in checkpoint.writes if channel == INTERRUPT}
    if any(attempt < last and task in interrupted for task, attempt in attempts.items()):
        return []  # An interrupt ends a run, and the next run counts its attempts from 1.
    tasks = [task for task, attempt in attempts.items() if attempt == last]
    # Several tasks of one attempt: a wrapper or the node itself started the call again. They
    # must agree on how they ended, since their order is not recorded.
    return tasks if len({task in interrupted for task in tasks}) == 1 else []


def start_marks(checkpoint: Checkpoint, call: OpenCall) -> list[StartMark]:
    """The recorded starts of a call in a superstep, oldest first."""
    request_hash = request_hash_of(call)
    return start_marks_in(checkpoint.saved, call.message.id, call.id, request_hash=request_hash)


def _has_unfinished_start(checkpoint: Checkpoint) -> bool:
    """Whether a recorded start of any call has no end, and its task no writes."""
    with_writes = {task for task, _, _ in checkpoint.writes}
    return any(
        mark["task_id"] not in with_writes
        for _, channel, value in checkpoint.writes
        if channel == STARTED and (mark := read_record(value)) is not None
    )


def send_task(checkpoint: Checkpoint, call: OpenCall) -> tuple[str, str] | None:
    """The id and the node of the task that a `Send` of exactly this call made, or None."""
    sends = pending_sends(checkpoint)
    calls = [sent_call(send) or {} for send in sends]
    sent = [i for i, made in enumerate(calls) if made.get("id") == call.id]
    names = [made.name for made in read_calls(call.message) if made.id == call.id]
    if len(sent) != 1 or [calls[sent[0]].get("name")] != names:
        return None
    tasks = [task_id for task_id, index in _send_indexes(checkpoint).items() if index == sent[0]]
    return (tasks[0], sends[sent[0]].node) if tasks else None


def _send_indexes(checkpoint: Checkpoint) -> dict[str, int]:
    """The id of each task that a `Send` made -> the index of the `Send`.

    How LangGraph derives a task id is private, so LangGraph derives it here: a graph with the
    same nodes makes the same tasks from the same checkpoint. A wrong id matches no writes.
    """
    builder: StateGraph[Any] = StateGraph(dict)
    for node in {send.node for send in pending_sends(checkpoint) if isinstance(send, Send)}:
        builder.add_node(node, lambda _: None)
        builder.add_edge(START, node)
    # A copy without writes, because get_state would apply them to the checkpoint and log errors.
    saved = checkpoint.saved
    copy = saved._replace(checkpoint=saved.checkpoint.copy(), pending_writes=[])
    graph = builder.compile(checkpointer=_OneCheckpoint(copy))
    tasks = graph.get_state(RunnableConfig(configurable={"thread_id": ""})).tasks
    return {task.id: index for task in tasks if (index := send_index(task.path)) is not None}


class _OneCheckpoint(BaseCheckpointSaver[Any]):
    """A checkpointer with one checkpoint."""

    def __init__(self, saved: CheckpointTuple) -> None:
        super().__init__()
        self.saved = saved

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple:  # noqa: ARG002
        return self.saved
