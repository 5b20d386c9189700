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
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
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
from langgraph_patch.threads.read import MARK, StoredHistory
from langgraph_patch.threads.reports import Refused

_SUPERSTEPS = 5
"""How often tasks are dropped: what a finished task wrote may start others."""

_PATCHED = "with with_patching, the next message of the thread repairs it"


@dataclass(frozen=True, slots=True)
class Stage:
    """A checkpoint under repair, in memory.

    Attributes:
        base: The checkpoint that is repaired.
        memory: Has a copy of it, and the new checkpoints.
        graph: The graph that was made for it, over `memory`.
        committed: The newest staged checkpoint, to which the writes of finished tasks are applied;
            it starts no task.
    """

    base: StoredHistory
    memory: InMemorySaver
    graph: Any
    committed: CheckpointTuple

    def messages(self, saved: CheckpointTuple) -> list[BaseMessage]:
        """The history of a staged checkpoint."""
        return StoredHistory(self.memory, saved, self.base.messages_key).messages() or []


class _Memory(InMemorySaver):
    """Gives channels the versions that the checkpointer of the thread would give them."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)


# --- the copy, with what finished tasks wrote ----------------------------------------------


def staged(base: StoredHistory, messages: Sequence[BaseMessage]) -> Stage:
    """Copy a checkpoint into memory, apply the writes of its finished tasks, and drop the others.

    Args:
        base: The checkpoint.
        messages: Its whole history.

    Raises:
        Stopped: If no graph fits the checkpoint, or LangGraph cannot apply the writes.
    """
    saved, memory = base.saved, _Memory(base.saver)
    values = {**saved.checkpoint["channel_values"], base.messages_key: list(messages)}
    copy: Checkpoint = {**saved.checkpoint, "channel_values": values}
    config = Address.of(saved.config).newest.config
    memory.put(config, copy, saved.metadata, copy["channel_versions"])
    writes: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in saved.pending_writes or ():
        writes.setdefault(task, []).append((channel, value))
    for task, own in writes.items():
        memory.put_writes(saved.config, own, task)
    try:
        graph = _graph_like(base, memory)
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(f"no graph fits it ({brief(error)}): {_PATCHED}") from error
    return Stage(base, memory, graph, _committed(base, memory, graph))


def _graph_like(base: StoredHistory, memory: InMemorySaver) -> Any:
    """A graph with the channels and the nodes that a checkpoint names; the nodes do nothing."""
    checkpoint, key = base.saved.checkpoint, base.messages_key
    pending = {channel: value for _, channel, value in base.saved.pending_writes or ()}
    stored = checkpoint["channel_versions"], checkpoint["channel_values"], pending
    names = {name for channels in stored for name in channels}
    history = Annotated[list[Any], add_messages]
    fields = {**dict.fromkeys(state_keys(names), Any), key: history}
    schema: Any = TypedDict("State", fields)  # type: ignore[misc]  # its keys are stored
    builder: StateGraph[Any] = StateGraph(history if key == ROOT_CHANNEL else schema)
    nodes = {node for channels in stored for node in _nodes_of(channels)}
    nodes |= {node for node in checkpoint["versions_seen"] if not is_reserved(node)}
    for node in nodes or {"node"}:
        builder.add_node(node, lambda _: None).add_edge(START, node)
    for channel in names:
        if sources := joined_nodes(channel):
            builder.add_edge(sources, triggered_node(channel) or "")
    namespace = Address.of(base.saved.config).namespace
    for node in reversed(nodes_of_namespace(namespace) if namespace else []):
        outer: StateGraph[Any] = StateGraph(dict)
        outer.add_node(node, builder.compile(checkpointer=True)).add_edge(START, node)
        builder = outer
    return builder.compile(checkpointer=memory)


def _nodes_of(channels: Mapping[str, Any]) -> set[str]:
    """The nodes that channels and their values name."""
    nodes: set[str] = set()
    for channel, value in channels.items():
        nodes |= {triggered_node(channel) or "", *joined_nodes(channel)}
        sends = listed(value) if channel == TASKS else []
        nodes |= {send.node for send in sends if isinstance(send, Send)}
    return nodes - {"", END}


def _committed(base: StoredHistory, memory: InMemorySaver, graph: Any) -> CheckpointTuple:
    """Apply the writes of finished tasks, and drop the tasks that did not finish."""
    config = base.saved.config
    try:
        _check_tasks(base, {task.id for task in graph.get_state(config).tasks})
        for _ in range(_SUPERSTEPS):
            config = graph.update_state(config, None, as_node=END)
            saved = memory.get_tuple(config)
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


def _check_tasks(base: StoredHistory, tasks: set[str]) -> None:
    """Refuse if the graph lacks the node of a task that finished: its work would be lost."""
    for task, channel, _ in base.saved.pending_writes or ():
        if task not in (*tasks, NO_TASK) and state_keys([channel]):
            raise Refused(f"the node of work that finished in this thread is not known; {_PATCHED}")


# --- the new checkpoint --------------------------------------------------------------------


def new_checkpoint(stage: Stage, messages: Sequence[BaseMessage]) -> CheckpointTuple:
    """The checkpoint with the repaired history, checked.

    Args:
        stage: Where the repair is staged.
        messages: The repaired history.

    Raises:
        Stopped: If the graph does not read from it what it should, or would start a task.
    """
    base, key, committed = stage.base.saved, stage.base.messages_key, stage.committed
    versions: dict[str, Any] = {**committed.checkpoint["channel_versions"]}
    versions[key] = stage.memory.get_next_version(versions.get(key), None)
    checkpoint: Checkpoint = {
        **committed.checkpoint,
        "id": id_after(stage.base),
        "channel_values": {**committed.checkpoint["channel_values"], key: list(messages)},
        "channel_versions": versions,
    }
    step = base.metadata.get("step", -1) + 1
    metadata: Any = {**committed.metadata, "step": step, **MARK, **counters_of(base, key)}
    config = stage.memory.put(base.config, checkpoint, metadata, versions)
    read = stage.memory.get_tuple(config)
    if read is None or stage.graph.get_state(config).next:
        raise Refused("its repaired history would start tasks")
    if not are_same(stage.messages(read), messages):
        raise Refused("its repaired history is not read back as it is written")
    return committed._replace(checkpoint=checkpoint, metadata=metadata)


def id_after(base: StoredHistory) -> str:
    """The id of a checkpoint directly behind another one, so that any later one hides it.

    Raises:
        Stopped: If there is none, because LangGraph did not make the id of the other one.
    """
    new = later_checkpoint_id(base.checkpoint_id, 1)
    if new is None:
        raise Refused(
            f"the id of its newest checkpoint, {base.checkpoint_id!r:.100}, is none of "
            f"LangGraph's, so no checkpoint can be written directly behind it; {_PATCHED}"
        )
    return new


# --- comparing messages ------------------------------------------------------------------

_SERDE = JsonPlusSerializer(pickle_fallback=True)  # only used to write


def are_same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have the same messages in the same order."""
    return len(some) == len(others) and all(map(is_same, some, others))


def is_same(one: BaseMessage, other: BaseMessage) -> bool:
    """Whether two messages have the same id and equal contents, in whatever order their keys are.

    `==` raises an error for arrays and data frames in an artifact, and it is false for NaN.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.threads.stage import is_same
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, is_same(one, other)
        (False, True)
    """
    if one is other or one.id != other.id:
        return one is other
    fields = [{**vars(each), **(each.model_extra or {})} for each in (one, other)]
    return type(one) is type(other) and _is_equal(*fields)


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two stored values are equal; `==` of an application's class may raise anything."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, str | int | None) and isinstance(other, str | int | None):
        return type(one) is type(other) and one == other
    return _SERDE.dumps_typed(one) == _SERDE.dumps_typed(other)
