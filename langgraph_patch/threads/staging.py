"""Stage a repair in memory, and make of it the one checkpoint that is written. Nothing is written.

A copy of the checkpoint is put into an `InMemorySaver`. There LangGraph itself applies what
finished tasks wrote and drops the other tasks, with `update_state(None, as_node=END)` of a graph.
The newest checkpoint of that, with the repaired history as the value of its state key, is the new
one. It is checked that the graph reads this history from it, and that it starts no task.

The graph is the application's. Without it, it is one made for the purpose: it has the channels and
the nodes that the checkpoint names. It does not know the reducers of other state keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypedDict

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import TASKS
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from langgraph_patch._langgraph_storage import (
    NO_TASK,
    ROOT_CHANNEL,
    is_delta_channel,
    is_reserved,
    joined_nodes,
    later_checkpoint_id,
    nodes_of_namespace,
    state_keys,
    triggered_node,
)
from langgraph_patch._sansio import IOGenerator, call_method, run_sync
from langgraph_patch.errors import brief
from langgraph_patch.evidence.effects import StateWrites
from langgraph_patch.graph.state import listed
from langgraph_patch.threads.plan import NEEDS_GRAPH, Refused
from langgraph_patch.threads.stored import MARK, are_same, history_of

_SUPERSTEPS = 5
"""How often tasks are dropped: what a finished task wrote may start others."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a repair is staged.

    Attributes:
        base: The checkpoint that is repaired.
        messages_key: The state key of the history.
        next_version: What gives a channel its next version.
        memory: Has a copy of it, and the new checkpoints.
        graph: The application's graph or the one made for the purpose, over `memory`.
        channels: The channels of the graph, or of its subgraph, that has the history.
    """

    base: CheckpointTuple
    messages_key: str
    next_version: Callable[[Any, None], Any]
    memory: InMemorySaver
    graph: Any
    channels: Mapping[str, Any]

    def history(self, saved: CheckpointTuple) -> list[BaseMessage]:
        """The history of a staged checkpoint."""
        return run_sync(history_of(self.memory, saved, self.messages_key)) or []


# --- the copy ----------------------------------------------------------------------------


def staged(
    saver: BaseCheckpointSaver[Any],
    base: CheckpointTuple,
    messages_key: str,
    root: Any = None,
    graph: Any = None,
) -> IOGenerator[Stage]:
    """Copy a checkpoint and its pending writes into memory.

    Args:
        saver: The checkpointer that has the checkpoint.
        base: The checkpoint.
        messages_key: The state key of the history.
        root: The application's graph. Default: one is made for the purpose.
        graph: This graph, or its subgraph, that has the history.

    Raises:
        Stopped: If no graph fits the checkpoint.
    """
    memory, next_version = InMemorySaver(serde=saver.serde), saver.get_next_version
    memory.get_next_version = next_version  # type: ignore[method-assign]
    values = dict(base.checkpoint["channel_values"])
    delta = [key for key, each in graph.channels.items() if is_delta_channel(each)] if graph else []
    if delta:  # the whole values: in the database they are spread over older checkpoints
        over_saver = root.copy({"checkpointer": saver})
        state = yield from call_method(over_saver, "get_state", base.config)
        values |= {key: state.values[key] for key in delta if key in state.values}
    copy: Checkpoint = {**base.checkpoint, "channel_values": values}
    place = {**base.config["configurable"], "checkpoint_id": None}
    memory.put({"configurable": place}, copy, base.metadata, copy["channel_versions"])
    writes: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in base.pending_writes or ():
        writes.setdefault(task, []).append((channel, value))
    for task, own in writes.items():
        memory.put_writes(base.config, own, task)
    stage = partial(Stage, base, messages_key, next_version, memory)
    if root is not None:
        over_memory = root.copy({"checkpointer": memory})
        return stage(over_memory, graph.channels)
    try:
        builder = _graph_like(base, messages_key)
        channels = builder.compile().channels
        namespace = place["checkpoint_ns"]
        for node in reversed(nodes_of_namespace(namespace) if namespace else []):
            outer: StateGraph[Any] = StateGraph(dict)
            outer.add_node(node, builder.compile(checkpointer=True)).add_edge(START, node)
            builder = outer
        return stage(builder.compile(checkpointer=memory), channels)
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(NEEDS_GRAPH.format(f"no graph fits it ({brief(error)})")) from error


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


def finished_work(stage: Stage) -> IOGenerator[CheckpointTuple]:
    """Apply the writes of finished tasks, and drop the tasks that did not finish.

    Returns:
        The newest staged checkpoint, which starts no task.

    Raises:
        Stopped: If the graph cannot, or would lose work.
    """
    config = stage.base.config
    try:
        state = yield from call_method(stage.graph, "get_state", config)
        _check_tasks(stage, {task.id for task in state.tasks})
        for _ in range(_SUPERSTEPS):
            config = yield from call_method(stage.graph, "update_state", config, None, as_node=END)
            state = yield from call_method(stage.graph, "get_state", config)
            if not state.next and (saved := stage.memory.get_tuple(config)) is not None:
                return saved
    except Refused:
        raise
    except Exception as error:  # any: the graph runs the application's reducers
        first = str(error).partition("\n")[0][:200]
        raise Refused(
            f"the graph cannot apply what its finished tasks wrote: {type(error).__name__}: "
            f"{first} With with_patching, the next message repairs it"
        ) from error
    raise Refused("its graph starts new tasks whenever tasks are dropped")


def _check_tasks(stage: Stage, tasks: set[str]) -> None:
    """Refuse if the graph lacks the node of a task that finished: its work would be lost."""
    for task, channel, _ in stage.base.pending_writes or ():
        if task not in (*tasks, NO_TASK) and state_keys([channel]):
            raise Refused(
                "the graph has no node for work that finished in this thread: is it the graph "
                "that the application runs?"
            )


# --- the new checkpoint --------------------------------------------------------------------


def new_checkpoint(
    stage: Stage,
    saved: CheckpointTuple,
    messages: Sequence[BaseMessage],
    restored: StateWrites,
) -> IOGenerator[CheckpointTuple]:
    """The checkpoint with the repaired history, checked.

    Args:
        stage: Where the repair is staged.
        saved: The newest staged checkpoint.
        messages: The repaired history.
        restored: Writes to other state keys.

    Raises:
        Stopped: If the graph does not read from it what it should, or would start a task.
    """
    base, key = stage.base, stage.messages_key
    values = {**(yield from _values(stage, saved)), key: list(messages)}
    versions = dict(saved.checkpoint["channel_versions"])
    for name in dict.fromkeys(name for name, _ in restored):
        channel = stage.channels[name]
        trial = channel.from_checkpoint(values[name]) if name in values else channel.copy()
        trial.update([value for other, value in restored if other == name])
        values[name] = trial.get() if is_delta_channel(channel) else trial.checkpoint()
    for name in {key, *(name for name, _ in restored)}:
        versions[name] = stage.next_version(versions.get(name), None)
    checkpoint: Checkpoint = {
        **saved.checkpoint,
        "id": id_after(base),
        "channel_values": values,
        "channel_versions": versions,
    }
    metadata: Any = {**saved.metadata, "step": base.metadata.get("step", -1) + 1, **MARK}
    config = stage.memory.put(base.config, checkpoint, metadata, versions)
    state = yield from call_method(stage.graph, "get_state", config)
    read = stage.memory.get_tuple(config)
    if state.next or read is None or not are_same(stage.history(read), messages):
        raise Refused("the graph did not keep what was written to it")
    return saved._replace(checkpoint=checkpoint, metadata=metadata)


def _values(stage: Stage, saved: CheckpointTuple) -> IOGenerator[dict[str, Any]]:
    """The values of all channels: also of channels that the graph does not have.

    LangGraph keeps the versions of such channels, and drops their values.
    """
    stored = stage.base.checkpoint
    values = {
        key: value
        for key, value in stored["channel_values"].items()
        if key not in stage.channels and not is_reserved(key) and triggered_node(key) is None
    }
    values |= saved.checkpoint["channel_values"]
    delta = [key for key, channel in stage.channels.items() if is_delta_channel(channel)]
    if delta:
        state = yield from call_method(stage.graph, "get_state", saved.config)
        versions = saved.checkpoint["channel_versions"]
        for key in delta:
            if key in state.values and versions.get(key) != stored["channel_versions"].get(key):
                values[key] = state.values[key]
    return values


def id_after(base: CheckpointTuple) -> str:
    """The id of a checkpoint directly behind another one: a later one is never hidden by it.

    Raises:
        Stopped: If no id of LangGraph sorts after that of the other one.
    """
    old = base.checkpoint["id"]
    new = later_checkpoint_id(old, 1) or empty_checkpoint()["id"]
    if new <= old:
        raise Refused(
            f"the id of its newest checkpoint, {old!r}, sorts after every id of LangGraph, so no "
            f"repair can become the newest one"
        )
    return new
