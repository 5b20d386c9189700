"""Read from a checkpoint which tasks ran in the superstep that followed it.

A checkpoint has no list of tasks. The nodes are derived from the channels that triggered them,
the tool calls from the payload of each `Send`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.graph import START, StateGraph
from langgraph.types import Overwrite, Send

from langgraph_patch._langgraph_graphs import runs_after_model, sent_call
from langgraph_patch._langgraph_storage import (
    NO_TASK,
    RETURN,
    is_delta_snapshot,
    is_node_timeout,
    send_index,
    triggered_node,
)
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, adds_other_message
from langgraph_patch.evidence.open_calls import (
    OpenCall,
    index_of,
    result_of_call,
)
from langgraph_patch.history.calls import read_calls


class Superstep(NamedTuple):
    """What one superstep may have done with the pending calls of a message.

    Attributes:
        parent_id: The id of the checkpoint that the checkpoint before it was made from.
        source: What made the checkpoint before it.
        began: When that checkpoint was made.
        is_pending: Whether no other message follows that of the calls; None if it is not stored.
        adds_other: Whether it wrote another message that is no result.
        is_idle: Whether no node ran.
        is_passed: Whether it ran nothing but nodes between the model and the tools, and what they
            led to is in this branch.
        is_approval: Whether such a node paused and has no recorded answer.
        is_over: Whether each of its tasks has recorded an end, so that none runs, unless a human
            has just answered one.
    """

    parent_id: str | None
    source: str | None
    began: str
    is_pending: bool | None
    adds_other: bool
    is_idle: bool
    is_passed: bool
    is_approval: bool
    is_over: bool


def summarize(
    checkpoint: Checkpoint,
    message: AIMessage,
    child: Checkpoint | None,
    *,
    is_pending: bool | None,
) -> Superstep:
    """What the superstep after a checkpoint may have done with the pending calls of a message.

    Args:
        checkpoint: The checkpoint before the superstep.
        message: The message.
        child: The checkpoint that was made from it in this branch, if any.
        is_pending: Whether no other message follows that of the calls; None if it is not stored.
    """
    nodes, sends = triggered_nodes(checkpoint), pending_sends(checkpoint)
    is_goto = _is_client_goto(checkpoint)
    own = {channel for task, channel, _ in checkpoint.writes if task != NO_TASK}
    is_passed = bool(nodes) and not sends and not is_goto and all(map(runs_after_model, nodes))
    # The tools may have run in another branch, or in a run that was killed before a checkpoint.
    is_left = own - {INTERRUPT, ERROR, RESUME} and (child is None or child.source != "loop")
    is_passed = is_passed and not is_left
    return Superstep(
        checkpoint.parent_id,
        checkpoint.source,
        checkpoint.saved.checkpoint["ts"],
        is_pending,
        adds_other_message(checkpoint, message),
        is_idle=not nodes and not sends and not is_goto,
        is_passed=is_passed,
        is_approval=is_passed and own == {INTERRUPT} and not is_answered(checkpoint),
        is_over=not is_goto and len(_ended_tasks(checkpoint)) >= len(nodes) + len(sends),
    )


def _is_cut_off(error: object) -> bool:
    text = error if isinstance(error, str) else repr(error)
    return is_node_timeout(error) or text.startswith("CancelledError(")


def _ended_tasks(checkpoint: Checkpoint) -> set[str]:
    """The tasks of nodes and of `Send`s that have recorded an end.

    A `@task` writes to `RETURN` only, so it does not count. A task that timed out or was cancelled
    does not count either: a synchronous tool goes on.
    """
    cut_off = {t for t, channel, v in checkpoint.writes if channel == ERROR and _is_cut_off(v)}
    ended = {task for task, channel, _ in checkpoint.writes if channel != RETURN}
    return ended - cut_off - {NO_TASK}


def sends_call(checkpoint: Checkpoint, call: OpenCall) -> bool:
    """Whether a `Send` of a superstep carries a call."""
    return any((sent_call(s) or {}).get("id") == call.id for s in pending_sends(checkpoint))


def sends_request(checkpoint: Checkpoint, call: OpenCall) -> bool:
    """Whether a `Send` of a superstep carries a call with its name and arguments."""
    own = read_calls(call.message)[call.ordinal]
    request = call.id, own.name, dict(own.args)
    sent = [sent_call(send) or {} for send in pending_sends(checkpoint)]
    return request in [(made.get("id"), made.get("name"), made.get("args")) for made in sent]


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


def updated_channels(checkpoint: Checkpoint, child: Checkpoint | None) -> set[str]:
    """The channels that `update_state` may have written to make `child` from a checkpoint."""
    if child is None or child.source in ("input", "loop"):  # these have pending writes
        return set()
    old = checkpoint.saved.checkpoint["channel_versions"]
    new = child.saved.checkpoint["channel_versions"]
    empty = {  # snapshots of channels that nobody has written to
        channel
        for channel, value in child.channels.items()
        if channel not in old and is_delta_snapshot(value) and not value[0]
    }
    return {channel for channel in new if new[channel] != old.get(channel)} - empty


def written_results(
    checkpoint: Checkpoint, call: OpenCall, *, include_returned: bool
) -> Iterator[tuple[str, ToolMessage]]:
    """The results of a call that tasks wrote in a superstep, each with the id of its task.

    Args:
        checkpoint: The checkpoint before the superstep.
        call: The call.
        include_returned: Whether to include what each `@task` returned.
    """
    sent = send_task(checkpoint, call) if len(call.twins) > 1 else None
    whole = {task for task, _, value in checkpoint.writes if isinstance(value, Overwrite)}
    for task_id, messages in checkpoint.written(include_returned=include_returned):
        if task_id in whole and index_of(messages, call.message) is None:
            continue  # a history before the call: its results are those of older calls
        if sent is None or sent[0] == task_id:  # else the task of a call with the same id
            result = result_of_call(messages, call, is_own=sent is not None)
            if result is not None:
                yield task_id, result


def sent_results(checkpoint: Checkpoint, call: OpenCall) -> Iterator[tuple[str, ToolMessage]]:
    """The results that the task of exactly this call's `Send` wrote, each with its id."""
    sent = send_task(checkpoint, call)
    for task_id, messages in checkpoint.written():
        if sent is not None and sent[0] == task_id:
            result = result_of_call(messages, call, is_own=True)
            if result is not None:
                yield task_id, result


def send_task(checkpoint: Checkpoint, call: OpenCall) -> tuple[str, str] | None:
    """The id and the node of the task that a `Send` of exactly this call made, or None.

    If calls of the message have one id, each belongs to a `Send` with its name and arguments.
    """
    sends = pending_sends(checkpoint)
    sent = [sent_call(send) or {} for send in sends]
    indexes = [i for i, made in enumerate(sent) if made.get("id") == call.id]
    calls, twins = read_calls(call.message), call.twins
    own = calls[call.ordinal]
    if len(twins) > 1:
        twins = [i for i in twins if (calls[i].name, calls[i].args) == (own.name, own.args)]
        twins = [i for i in twins if calls[i].source == own.source]
        request = own.name, dict(own.args)
        indexes = [i for i in indexes if (sent[i].get("name"), sent[i].get("args")) == request]
    if len(indexes) != len(twins) or (len(call.twins) > 1 and own.source != "tool_calls"):
        return None
    index = indexes[twins.index(call.ordinal)]
    if sent[index].get("name") != own.name:
        return None
    tasks = [task_id for task_id, i in _send_indexes(checkpoint).items() if i == index]
    return (tasks[0], sends[index].node) if tasks else None


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

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple:  # noqa: ARG002 - of the base class
        return self.saved
