"""Stage a repair in memory, and make of it the one checkpoint that is written. Nothing is written.

A copy of the checkpoint is put into an `InMemorySaver`. There LangGraph itself applies what
finished tasks wrote and drops the other tasks, with `update_state(None, as_node=END)` of a graph
that is made for the purpose: it has the channels and the nodes that the checkpoint names. The
newest checkpoint of that, which starts no task, with the repaired history as the value of its state
key, is the new one. It is checked that this history is read as it is written.

The graph does not know the reducers of other state keys: the caller refuses a checkpoint whose
finished tasks wrote one. A history that a `DeltaChannel` spreads over checkpoints is stored whole,
as LangGraph itself stores it now and then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypedDict

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
    later_checkpoint_id,
    nodes_of_namespace,
    state_keys,
)
from langgraph_patch.errors import brief
from langgraph_patch.evidence.address import Address
from langgraph_patch.evidence.superstep import graph_with
from langgraph_patch.graph.state import listed
from langgraph_patch.threads.read import MARK, StoredHistory
from langgraph_patch.threads.reports import Refused

_SUPERSTEPS = 5
"""How often tasks are dropped: what a finished task wrote may start others."""

PATCHED: Final = "with with_patching, the next message repairs it"
"""What to do about a thread whose repair is refused."""


class _Memory(InMemorySaver):
    """Gives channels the versions that the checkpointer of the thread would give them."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)


# --- the copy, with what finished tasks wrote ----------------------------------------------


def committed(base: StoredHistory, messages: Sequence[BaseMessage]) -> CheckpointTuple:
    """Copy a checkpoint into memory, apply the writes of its finished tasks, and drop the others.

    Args:
        base: The checkpoint.
        messages: Its whole history.

    Returns:
        The newest checkpoint in memory. It starts no task.

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
        graph = _graph_of(base).compile(checkpointer=memory)
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(f"no graph fits it ({brief(error)}): {PATCHED}") from error
    return _without_tasks(base, memory, graph)


def _graph_of(base: StoredHistory) -> StateGraph[Any]:
    """A graph with the channels and the nodes that a checkpoint and its pending writes name."""
    checkpoint, key = base.saved.checkpoint, base.messages_key
    written = [write[1:] for write in base.saved.pending_writes or ()]
    stored = [*checkpoint["channel_values"].items(), *written]
    channels = {*checkpoint["channel_versions"], *(channel for channel, _ in stored)}
    history = Annotated[list[Any], add_messages]
    fields = {**dict.fromkeys(state_keys(channels), Any), key: history}
    schema: Any = TypedDict("State", fields)  # type: ignore[misc]  # its keys are stored
    nodes = {node for node in checkpoint["versions_seen"] if not is_reserved(node)}
    sends = [send for channel, value in stored if channel == TASKS for send in listed(value)]
    nodes |= {send.node for send in sends if isinstance(send, Send)}
    graph = graph_with(history if key == ROOT_CHANNEL else schema, nodes or {"node"}, channels)
    namespace = Address.of(base.saved.config).namespace
    for node in reversed(nodes_of_namespace(namespace) if namespace else []):
        outer: StateGraph[Any] = StateGraph(dict)
        outer.add_node(node, graph.compile(checkpointer=True)).add_edge(START, node)
        graph = outer
    return graph


def _without_tasks(base: StoredHistory, memory: InMemorySaver, graph: Any) -> CheckpointTuple:
    """Apply the writes of finished tasks, and drop the tasks that did not finish."""
    config = base.saved.config
    try:
        known = {NO_TASK, *(task.id for task in graph.get_state(config).tasks)}
        for _ in range(_SUPERSTEPS):
            config = graph.update_state(config, None, as_node=END)
            if not (started := graph.get_state(config).next):
                break
    except Exception as error:  # any: a reducer raises for what it cannot apply
        first = str(error).partition("\n")[0][:200]
        raise Refused(
            f"LangGraph cannot apply what its finished tasks wrote: {type(error).__name__}: "
            f"{first} But {PATCHED}"
        ) from error
    written = base.saved.pending_writes or ()
    if any(task not in known and state_keys([channel]) for task, channel, _ in written):
        raise Refused(f"the node of work that finished in this thread is not known; {PATCHED}")
    saved = memory.get_tuple(config)
    if saved is None or started:
        raise Refused(f"it starts new tasks whenever tasks are dropped; {PATCHED}")
    return saved


# --- the new checkpoint --------------------------------------------------------------------


def new_checkpoint(
    base: StoredHistory, staged: CheckpointTuple, messages: Sequence[BaseMessage]
) -> CheckpointTuple:
    """The checkpoint to write: the staged one, with the repaired history.

    Args:
        base: The checkpoint that is repaired.
        staged: What `committed` returned.
        messages: The repaired history.

    Raises:
        Stopped: If the history would not be read back as it is written.
    """
    key, saver, checkpoint = base.messages_key, base.saver, staged.checkpoint
    stored = saver.serde.loads_typed(saver.serde.dumps_typed(list(messages)))
    if not are_same(stored, messages):
        raise Refused("its repaired history is not read back as it is written")
    old: dict[str, Any] = {**checkpoint["channel_versions"]}
    new: Checkpoint = {
        **checkpoint,
        "id": id_after(base),
        "channel_values": {**checkpoint["channel_values"], key: list(messages)},
        "channel_versions": {**old, key: saver.get_next_version(old.get(key), None)},
    }
    step = base.saved.metadata.get("step", -1) + 1
    counters = counters_of(base.saved, key)
    metadata: Any = {**staged.metadata, "step": step, **MARK, **counters}
    return staged._replace(checkpoint=new, metadata=metadata)


def id_after(base: StoredHistory) -> str:
    """The id of a checkpoint directly behind another one, so that any later one hides it.

    Raises:
        Stopped: If there is none, because LangGraph did not make the id of the other one.
    """
    new = later_checkpoint_id(base.checkpoint_id, 1)
    if new is None:
        raise Refused(
            f"the id of its newest checkpoint, {base.checkpoint_id!r:.100}, is none of "
            f"LangGraph's, so no checkpoint can be written directly behind it; {PATCHED}"
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
    return type(one) is type(other) and _contents(one) == _contents(other)


def _contents(message: BaseMessage) -> Any:
    return _SERDE.dumps_typed(_in_order({**vars(message), **(message.model_extra or {})}))


def _in_order(value: Any) -> Any:
    """A stored value with the keys of its mappings in order, and lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: _in_order(value[key]) for key in sorted(value, key=str)}
    return [*map(_in_order, value)] if isinstance(value, list | tuple) else value
