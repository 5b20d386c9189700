"""Stage a repair in memory, and make of it the one checkpoint that is written. Nothing is written.

A copy of the checkpoint is put into an `InMemorySaver`. There LangGraph itself applies what
finished tasks wrote and drops the other tasks, with `update_state(None, as_node=END)` of a graph
that is made for the purpose: it has the channels and the nodes that the checkpoint names. The
newest checkpoint of that, with the repaired history as the value of its state key, is the new one.
It is checked that the graph reads this history from it, and that it starts no task.

The graph does not know the reducers of other state keys: the caller refuses a checkpoint whose
finished tasks wrote one. A history that a `DeltaChannel` spreads over checkpoints is stored whole,
as LangGraph itself stores it now and then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypedDict

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import TASKS
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from langgraph_patch._langgraph_storage import (
    NO_TASK,
    ROOT_CHANNEL,
    counters_of,
    is_reserved,
    joined_nodes,
    later_checkpoint_id,
    nodes_of_namespace,
    state_keys,
    triggered_node,
)
from langgraph_patch.errors import brief
from langgraph_patch.evidence.address import Address
from langgraph_patch.graph.state import listed
from langgraph_patch.history.patch import Patch
from langgraph_patch.threads.reports import Refused
from langgraph_patch.threads.stored import MARK, are_same, history_of

_SUPERSTEPS = 5
"""How often tasks are dropped: what a finished task wrote may start others."""

_PATCHED = "with with_patching, the next message of the thread repairs it"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a repair is staged.

    Attributes:
        base: The checkpoint that is repaired.
        messages_key: The state key of the history.
        memory: Has a copy of it, and the new checkpoints.
        graph: The graph that was made for it, over `memory`.
    """

    base: CheckpointTuple
    messages_key: str
    memory: InMemorySaver
    graph: Any

    def history(self, saved: CheckpointTuple) -> list[BaseMessage]:
        """The history of a staged checkpoint."""
        return history_of(self.memory, saved, self.messages_key) or []


class _Memory(InMemorySaver):
    """Gives channels the versions that the checkpointer of the thread would give them."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)


# --- the copy ----------------------------------------------------------------------------


def staged(
    saver: BaseCheckpointSaver[Any],
    base: CheckpointTuple,
    messages_key: str,
    history: Sequence[BaseMessage],
) -> Stage:
    """Copy a checkpoint and its pending writes into memory.

    Args:
        saver: The checkpointer that has the checkpoint.
        base: The checkpoint.
        messages_key: The state key of the history.
        history: The history of the checkpoint, whole.

    Raises:
        Stopped: If no graph fits the checkpoint.
    """
    memory, address = _Memory(saver), Address.of(base.config)
    values = {**base.checkpoint["channel_values"], messages_key: list(history)}
    copy: Checkpoint = {**base.checkpoint, "channel_values": values}
    memory.put(address.newest.config, copy, base.metadata, copy["channel_versions"])
    writes: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in base.pending_writes or ():
        writes.setdefault(task, []).append((channel, value))
    for task, own in writes.items():
        memory.put_writes(base.config, own, task)
    try:
        builder = _graph_like(base, messages_key)
        namespace = address.namespace
        for node in reversed(nodes_of_namespace(namespace) if namespace else []):
            outer: StateGraph[Any] = StateGraph(dict)
            outer.add_node(node, builder.compile(checkpointer=True)).add_edge(START, node)
            builder = outer
        return Stage(base, messages_key, memory, builder.compile(checkpointer=memory))
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(f"no graph fits it ({brief(error)}): {_PATCHED}") from error


def _graph_like(base: CheckpointTuple, messages_key: str) -> StateGraph[Any]:
    """A graph with the channels and the nodes that a checkpoint names; the nodes do nothing."""
    checkpoint = base.checkpoint
    pending = {channel: value for _, channel, value in base.pending_writes or ()}
    names = {*checkpoint["channel_versions"], *checkpoint["channel_values"], *pending}
    history = Annotated[list[Any], add_messages]
    fields = {**dict.fromkeys(state_keys(names), Any), messages_key: history}
    schema: Any = TypedDict("State", fields)  # type: ignore[misc]  # its keys are stored
    builder: StateGraph[Any] = StateGraph(history if messages_key == ROOT_CHANNEL else schema)
    nodes = _nodes_of(checkpoint["channel_versions"], checkpoint["channel_values"], pending)
    nodes |= {node for node in checkpoint["versions_seen"] if not is_reserved(node)}
    for node in nodes or {"node"}:
        builder.add_node(node, lambda _: None).add_edge(START, node)
    for channel in names:
        if sources := joined_nodes(channel):
            builder.add_edge(sources, triggered_node(channel) or "")
    return builder


def _nodes_of(*stored: Mapping[str, Any]) -> set[str]:
    """The nodes that channels and their values name."""
    nodes: set[str] = set()
    for channels in stored:
        for channel, value in channels.items():
            nodes |= {triggered_node(channel) or "", *joined_nodes(channel)}
            sends = listed(value) if channel == TASKS else []
            nodes |= {send.node for send in sends if isinstance(send, Send)}
    return nodes - {"", END}


# --- what finished tasks wrote -------------------------------------------------------------


def finished_work(stage: Stage) -> CheckpointTuple:
    """Apply the writes of finished tasks, and drop the tasks that did not finish.

    Returns:
        The newest staged checkpoint, which starts no task.

    Raises:
        Stopped: If the graph cannot, or would lose work.
    """
    config, graph = stage.base.config, stage.graph
    try:
        _check_tasks(stage, {task.id for task in graph.get_state(config).tasks})
        for _ in range(_SUPERSTEPS):
            config = graph.update_state(config, None, as_node=END)
            saved = stage.memory.get_tuple(config)
            if not graph.get_state(config).next and saved is not None:
                return saved
    except Refused:
        raise
    except Exception as error:  # any: a reducer raises for what it cannot apply
        first = str(error).partition("\n")[0][:200]
        raise Refused(
            f"LangGraph cannot apply what its finished tasks wrote: {type(error).__name__}: "
            f"{first} But {_PATCHED}"
        ) from error
    raise Refused(f"it starts new tasks whenever tasks are dropped; {_PATCHED}")


def _check_tasks(stage: Stage, tasks: set[str]) -> None:
    """Refuse if the graph lacks the node of a task that finished: its work would be lost."""
    for task, channel, _ in stage.base.pending_writes or ():
        if task not in (*tasks, NO_TASK) and state_keys([channel]):
            raise Refused(f"the node of work that finished in this thread is not known; {_PATCHED}")


def with_committed(first: Patch, patch: Patch) -> Patch:
    """The repair of a history to which finished tasks wrote, as one of the history before that.

    Args:
        first: The repair of the history before.
        patch: The repair of the history with what they wrote.
    """
    ids = {message.id for message in first.before}
    results = [m for m in patch.before if isinstance(m, ToolMessage) and m.id not in ids]
    written = {message.tool_call_id: message for message in results}
    kept = [
        replace(change, kind="recovered", cause=None, after=written[change.tool_call_id])
        for change in first.changes
        if change.kind in ("inserted", "recovered") and change.tool_call_id in written
    ]
    return Patch(patch.messages, (*kept, *patch.changes), first.before)


# --- the new checkpoint --------------------------------------------------------------------


def new_checkpoint(
    stage: Stage, saved: CheckpointTuple, messages: Sequence[BaseMessage]
) -> CheckpointTuple:
    """The checkpoint with the repaired history, checked.

    Args:
        stage: Where the repair is staged.
        saved: The newest staged checkpoint.
        messages: The repaired history.

    Raises:
        Stopped: If the graph does not read from it what it should, or would start a task.
    """
    base, key = stage.base, stage.messages_key
    versions: dict[str, Any] = {**saved.checkpoint["channel_versions"]}
    versions[key] = stage.memory.get_next_version(versions.get(key), None)
    checkpoint: Checkpoint = {
        **saved.checkpoint,
        "id": id_after(base),
        "channel_values": {**saved.checkpoint["channel_values"], key: list(messages)},
        "channel_versions": versions,
    }
    step = base.metadata.get("step", -1) + 1
    metadata: Any = {**saved.metadata, "step": step, **MARK, **counters_of(base, key)}
    config = stage.memory.put(base.config, checkpoint, metadata, versions)
    read = stage.memory.get_tuple(config)
    if read is None or stage.graph.get_state(config).next:
        raise Refused("its repaired history would start tasks")
    if not are_same(stage.history(read), messages):
        raise Refused("its repaired history is not read back as it is written")
    return saved._replace(checkpoint=checkpoint, metadata=metadata)


def id_after(base: CheckpointTuple) -> str:
    """The id of a checkpoint directly behind another one: a later one is never hidden by it.

    Raises:
        Stopped: If there is none, because the id of the other one is none of LangGraph's.
    """
    new = later_checkpoint_id(base.checkpoint["id"], 1)
    if new is None:
        raise Refused(
            f"the id of its newest checkpoint, {base.checkpoint['id']!r:.100}, is none of "
            f"LangGraph's, so no checkpoint can be written directly behind it; {_PATCHED}"
        )
    return new
