"""What ran in the step behind a checkpoint, and how it ended: its nodes, its tasks, their calls.

LangGraph keeps no list of them. Channels name the nodes, `Send`s carry calls, and what a task
wrote last says how it ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from langgraph_patch._langgraph import NO_TASK, PUSH
from langgraph_patch.history.patch import Finding
from langgraph_patch.history.tool_calls import read_calls
from langgraph_patch.recording.recorded_call import MARK

_TRIGGERS = ("branch:to:", "join:")  # channels that name the nodes of the step


# --- which nodes a step ran --------------------------------------------------------------


def nodes_in(saved: CheckpointTuple) -> set[str]:
    """The nodes that a step runs over the whole state."""
    values = saved.checkpoint["channel_values"]
    return {_node_of(channel) for channel in values if channel.startswith(_TRIGGERS)}


def is_over(saved: CheckpointTuple) -> bool:
    """Whether all nodes of a step ended as usual."""
    writes = [(by, c) for by, c, _ in saved.pending_writes or () if by != NO_TASK]
    if sends_in(saved) or any(c in (ERROR, INTERRUPT) for _, c in writes):
        return False
    return len({by for by, _ in writes}) >= len(nodes_in(saved)) > 0


def added_in(saved: CheckpointTuple) -> set[str]:
    """The nodes that a client started in a step by `Command(goto=...)`, whatever it was at."""
    writes = [(c, value) for by, c, value in saved.pending_writes or () if by == NO_TASK]
    nodes = {_node_of(channel) for channel, _ in writes if channel.startswith(_TRIGGERS)}
    return nodes | {send.node for c, send in writes if c == TASKS and isinstance(send, Send)}


def sends_version_in(saved: CheckpointTuple) -> object:
    """The version of a step's `Send`s: one that is not run stays for the next steps, the same."""
    forked = saved.metadata.get("source") == "fork"  # it runs them again
    return None if forked else saved.checkpoint["channel_versions"].get(TASKS)


def starters_in(
    saved: CheckpointTuple, call_id: str, *, pending: bool
) -> set[tuple[str, object | None]]:
    """The nodes that may have started the call in a step, and the version of their `Send`s.

    Whoever is given the whole state may, while the call is `pending`.
    """
    sends = [(send.node, _sent_call(send)) for send in sends_in(saved) if isinstance(send, Send)]
    sent = {node for node, call in sends if call is not None and call.get("id") == call_id}
    if not pending:
        return {(node, sends_version_in(saved)) for node in sent}
    sent |= {node for node, call in sends if call is None}
    nodes = nodes_in(saved) | added_in(saved)
    return {(n, sends_version_in(saved)) for n in sent} | {(n, None) for n in nodes}


def _node_of(channel: str) -> str:
    return channel.rpartition(":")[2]


# --- what a task says of its call --------------------------------------------------------


def finding_of(saved: CheckpointTuple, task: str) -> Finding | None:
    """How a task ended that left no result; None if that says nothing of its call."""
    written = {channel: value for by, channel, value in saved.pending_writes or () if by == task}
    answered = any(c == RESUME and by == NO_TASK for by, c, _ in saved.pending_writes or ())
    if ERROR in written:
        error = written[ERROR]
        text = error if isinstance(error, str) else repr(error)  # stored as its repr
        cancelled = isinstance(error, asyncio.CancelledError) or text.startswith("CancelledError(")
        # Two runs ended so, one of them by asking: nobody knows which was the last.
        both = INTERRUPT in written and RESUME not in written and not answered
        told_nothing = cancelled or both or isinstance(error, GraphBubbleUp)
        return None if told_nothing else Finding("failed", text)
    waits = INTERRUPT in written and written.keys() <= {INTERRUPT, RESUME} and not answered
    return Finding("awaiting_input") if waits else None


def marked_tasks(saved: CheckpointTuple, call_id: str) -> list[str]:
    """The tasks of the last attempt in which `record_tool_calls` ran a call to no result."""
    tasks: dict[str, int] = {}
    for _, channel, value in saved.pending_writes or ():
        mark = value.get("recorded", {}) if channel == MARK and isinstance(value, dict) else {}
        if mark.get("call") == call_id and "task" in mark:
            tasks[mark["task"]] = mark.get("attempt", 1)
    last = max(tasks.values(), default=1)
    asked = {task for task, channel, _ in saved.pending_writes or () if channel == INTERRUPT}
    if any(attempt < last and task in asked for task, attempt in tasks.items()):
        return []  # a question ends a run, and the next counts from 1: which was the last?
    told = [task for task, attempt in tasks.items() if attempt == last]
    # A wrapper tried again, or a node made the call in two rounds: which was the last?
    return told if len({task in asked for task in told}) == 1 else []


def task_of_send(
    saved: CheckpointTuple, message: AIMessage, call_id: str
) -> tuple[str, str] | None:
    """The task that a `Send` of this one call made, and its node."""
    sends = sends_in(saved)
    calls = [_sent_call(send) or {} for send in sends]
    sent = [i for i, call in enumerate(calls) if call.get("id") == call_id]
    names = [call.name for call in read_calls(message) if call.id == call_id]
    if len(sent) != 1 or [calls[sent[0]].get("name")] != names:
        return None
    tasks = [task for task, place in _tasks_of_sends(saved).items() if place == sent[0]]
    return (tasks[0], sends[sent[0]].node) if tasks else None


def is_given(value: object, call_id: str) -> bool:
    """Whether a call's id stands anywhere in a value: a graph without it cannot run the call."""
    left, seen = [value], set[int]()
    while left:
        part = left.pop()
        if isinstance(part, str):
            if part == call_id:
                return True
        elif id(part) not in seen:  # a value may hold itself
            seen.add(id(part))
            left += _parts_of(part)
    return False


def _parts_of(value: object) -> Collection[object]:
    if isinstance(value, Send):
        return [value.arg]
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple | set | deque):
        return value
    return getattr(value, "__dict__", {}).values()


def sends_in(saved: CheckpointTuple) -> list[Any]:
    """The `Send`s that a step ran."""
    return saved.checkpoint["channel_values"].get(TASKS) or []


def _sent_call(send: Any) -> dict[str, Any] | None:
    """The one call that a `Send` carries, in either form that LangGraph has."""
    arg = getattr(send, "arg", None)
    call = arg.get("tool_call") if isinstance(arg, dict) else arg
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    return call if isinstance(call, dict) and call.get("id") else None


class _OneCheckpoint(BaseCheckpointSaver[Any]):
    """A checkpointer that holds one checkpoint."""

    def __init__(self, saved: CheckpointTuple) -> None:
        super().__init__()
        self.saved = saved

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple:  # noqa: ARG002
        return self.saved


def _tasks_of_sends(saved: CheckpointTuple) -> dict[str, int]:
    """The id of each task that a `Send` made -> the place of the `Send`.

    How LangGraph makes an id is its own affair, so it is asked: a graph that has the same nodes
    makes the same tasks of the same checkpoint. A mistake finds no writes and says nothing.
    """
    nodes = {send.node for send in sends_in(saved) if isinstance(send, Send)}
    builder: StateGraph[Any] = StateGraph(dict)
    for node in nodes:
        builder.add_node(node, lambda _: None)
        builder.add_edge(START, node)
    # A copy without writes: reading must change neither the checkpoint nor the log.
    bare = saved._replace(checkpoint=saved.checkpoint.copy(), pending_writes=[])
    graph = builder.compile(checkpointer=_OneCheckpoint(bare))
    tasks = graph.get_state(RunnableConfig(configurable={"thread_id": ""})).tasks
    return {t.id: t.path[1] for t in tasks if t.path[0] == PUSH and isinstance(t.path[1], int)}
