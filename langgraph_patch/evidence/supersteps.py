"""Read from a checkpoint which tasks ran in the superstep that followed it.

A checkpoint has no list of tasks. The nodes are derived from the channels that triggered them,
the tool calls from the payload of each `Send` and from the marks of `record_tool_calls`.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, TASKS
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from langgraph_patch._langgraph import send_index, sent_call, triggered_node
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, OpenCall
from langgraph_patch.history.tool_calls import read_calls
from langgraph_patch.recording.records import MARK, read_record


def triggered_nodes(checkpoint: Checkpoint) -> set[str]:
    """The nodes that an edge triggered. Each runs over the whole state."""
    return {node for channel in checkpoint.channels if (node := triggered_node(channel))}


def pending_sends(checkpoint: Checkpoint) -> list[Any]:
    """The `Send`s of the superstep."""
    return checkpoint.channels.get(TASKS) or []


def recorded_tasks(checkpoint: Checkpoint, call_id: str) -> list[str]:
    """The tasks of the last attempt in which `record_tool_calls` ran a call without a result.

    Empty if it is not certain which attempt was the last.
    """
    attempts: dict[str, int] = {}
    for _, channel, value in checkpoint.writes:
        mark = read_record(value) if channel == MARK else None
        if mark is not None and mark.get("call_id") == call_id:
            attempts[mark["task_id"]] = mark["node_attempt"]
    last = max(attempts.values(), default=1)
    interrupted = {task for task, channel, _ in checkpoint.writes if channel == INTERRUPT}
    if any(attempt < last and task in interrupted for task, attempt in attempts.items()):
        return []  # An interrupt ends a run, and the next run counts its attempts from 1.
    tasks = [task for task, attempt in attempts.items() if attempt == last]
    # Several tasks of one attempt: a wrapper or the node itself started the call again. They
    # must agree on how they ended, since their order is not recorded.
    return tasks if len({task in interrupted for task in tasks}) == 1 else []


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
