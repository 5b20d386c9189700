"""Read what one superstep did, from the checkpoint before it and its pending writes.

A checkpoint has no list of the tasks of its superstep. LangGraph derives their ids from the
checkpoint, so a graph with the same nodes makes the same tasks, and `get_state` lists them. A
pending write of another task comes from `update_state`, from a `@task`, or from a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeGuard

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Interrupt, Overwrite, Send

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.graphs import sent_call
from langgraph_patch.history.fields import corrected
from langgraph_patch.history.messages import as_messages, messages_or_none
from langgraph_patch.history.placeholders import is_synthetic

_OF_UNFINISHED = (INTERRUPT, ERROR, storage.ERROR_SOURCE, RESUME, storage.RETURN)
"""What a task may write before its node returns."""

WITNESS: Final = "__langgraph_patch_once__"
"""The channel of a pending write that no task made: `claims` says what it is."""


@dataclass(frozen=True, eq=False)
class Task:
    """What one task of a superstep wrote.

    Attributes:
        step: The superstep.
        id: Its id.
        writes: The channel and the value of each of its pending writes.
        node: Its node; None if LangGraph did not start it as a task of this superstep.
        call: The tool call that its `Send` carries, if any.
    """

    step: Superstep
    id: str
    writes: Sequence[tuple[str, Any]]
    node: str | None = None
    call: Mapping[str, Any] | None = None

    @property
    def below(self) -> Address:
        """The newest checkpoint of the first graph that it runs."""
        namespace = f"{self.step.namespace}|{self.node}:{self.id}".removeprefix("|")
        return self.step.address.at(namespace)

    def written_to(self, channel: str) -> list[Any]:
        return [value for name, value in self.writes if name == channel]

    @cached_property
    def messages(self) -> list[BaseMessage]:
        """The messages that it wrote to the history."""
        values = self.written_to(self.step.messages_key)
        return [corrected(message) for value in values for message in written_messages(value)]

    @cached_property
    def returned(self) -> list[BaseMessage]:
        """The messages that it returned as a `@task`."""
        found = _returned_messages(self.written_to(storage.RETURN), self.step.messages_key)
        return [corrected(message) for message in found]

    @property
    def is_overwrite(self) -> bool:
        """Whether it replaced the whole history, or what it removed of it."""
        values = self.written_to(self.step.messages_key)
        gone = {m.id for m in self.messages if isinstance(m, RemoveMessage)}
        kept = {m.id for m in self.messages if not isinstance(m, RemoveMessage)}
        return (
            any(isinstance(value, Overwrite) for value in values)
            or REMOVE_ALL_MESSAGES in gone
            or not gone.isdisjoint(kept)
        )

    @property
    def errors(self) -> list[object]:
        return self.written_to(ERROR)

    @property
    def interrupt_ids(self) -> list[str | None]:
        """The id of each of its interrupts."""
        values = self.written_to(INTERRUPT)
        raised = (each for v in values for each in (v if isinstance(v, list | tuple) else [v]))
        return [each.id if isinstance(each, Interrupt) else None for each in raised]

    @property
    def answered(self) -> frozenset[str]:
        """The ids of its questions behind whose stored answer it failed: they wait for nobody.

        An answer is stored before it is looked at, and the task reads no other one. A task that
        asks its next question, after it failed and was run again, waits.
        """
        answers = self.written_to(RESUME)[-1:]
        has_run = any(channel not in _OF_UNFINISHED for channel, _ in self.writes)
        if has_run or not (storage.NUMBERS_QUESTIONS and answers and self.errors):
            return frozenset()
        count = len(answers[0]) if isinstance(answers[0], list) else 1
        own = {storage.own_interrupt_id(self.below.namespace, number) for number in range(count)}
        return frozenset(each for each in self.interrupt_ids if each in own)

    @property
    def owns_interrupts(self) -> bool:
        """Whether it, or a `@task` in it, raised all its interrupts, and no graph below it."""
        own = storage.own_interrupt_id(self.below.namespace)
        inside = {i for other in self.step.others for i in other.interrupt_ids}
        return set(self.interrupt_ids) <= {own, *inside}

    @property
    def is_finished(self) -> bool:
        """Whether its node returned, and no router behind it raised."""
        return not self.errors and any(c not in _OF_UNFINISHED for c, _ in self.writes)


@dataclass(frozen=True, eq=False)
class Superstep:
    """One superstep: the checkpoint before it, and what its tasks wrote.

    It has the id and the address of the checkpoint before it.

    Attributes:
        saved: The checkpoint before it, without the values of the state.
        messages_key: The state key of the history.
        history: The history before it.
        values: The values of the other state keys before it.
        source_after: What made the next checkpoint of this branch: `loop` if the writes of the
            superstep were applied, `input`, `update` or `fork` if they were dropped; None if there
            is none.
        is_gap: Whether checkpoints between the one before it and that next one are not stored.
    """

    saved: CheckpointTuple
    messages_key: str
    history: Sequence[BaseMessage] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    source_after: str | None = None
    is_gap: bool = False

    @property
    def id(self) -> str:
        """The id of the checkpoint before it."""
        return str(self.saved.checkpoint["id"])

    @property
    def parent(self) -> Address | None:
        """The address of the superstep before it in its branch; None if it is the first."""
        parent = self.saved.parent_config
        return None if parent is None else Address.of(parent)

    @property
    def address(self) -> Address:
        """The address of the checkpoint before it."""
        return Address.of(self.saved.config)

    @property
    def namespace(self) -> str:
        return self.address.namespace

    @property
    def graphs_above(self) -> Mapping[str, str]:
        """The ids of the checkpoints of the graphs above, by their namespaces."""
        return self.saved.metadata.get("parents", {})

    @property
    def number(self) -> int:
        """Its number. LangGraph stores it with the checkpoint that the superstep makes."""
        return self.saved.metadata.get("step", -1) + 1

    @property
    def source_before(self) -> str | None:
        """What made the checkpoint before it: `input`, `loop`, `update` or `fork`."""
        return self.saved.metadata.get("source")

    @property
    def began(self) -> str:
        """When it began: the time of the checkpoint before it."""
        return str(self.saved.checkpoint["ts"])

    @property
    def was_applied(self) -> bool:
        """Whether the state of this branch has what its tasks wrote."""
        return self.source_after == "loop" and not self.is_gap

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes that an edge triggered. Each runs over the whole state."""
        due = storage.due_channels(self.saved.checkpoint["channel_values"])
        return frozenset(node for channel in due if (node := storage.triggered_node(channel)))

    @cached_property
    def sends(self) -> list[Any]:
        return list(self.saved.checkpoint["channel_values"].get(TASKS) or ())

    @cached_property
    def writers(self) -> list[Task]:
        """The tasks that wrote something, whether LangGraph started them here or not."""
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in self.saved.pending_writes or ():
            if channel != WITNESS:
                by_task.setdefault(task_id, []).append((channel, value))
        return [Task(self, task_id, writes) for task_id, writes in by_task.items()]

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks that LangGraph started, also those that have written nothing.

        They are in the order in which LangGraph applies what they wrote.
        """
        writes = {task.id: task.writes for task in self.writers}
        found = [(storage.send_index(task.path), task) for task in _derived(self)]
        found.sort(key=lambda each: (each[0] is not None, each[0] or 0, each[1].name))
        return [
            Task(
                self,
                task.id,
                writes.get(task.id, ()),
                task.name,
                None if index is None else sent_call(self.sends[index]),
            )
            for index, task in found
        ]

    @cached_property
    def messages(self) -> list[BaseMessage]:
        """The history before it, then what was written to it."""
        return [*self.history, *(message for task in self.writers for message in task.messages)]

    @cached_property
    def others(self) -> list[Task]:
        """The writers that it did not start: `update_state`, a `@task` or a client."""
        own = {task.id for task in self.tasks}
        return [task for task in self.writers if task.id not in own]

    @property
    def _commanded(self) -> set[str]:
        """The channels that a client wrote to with a `Command`."""
        writes = self.saved.pending_writes or ()
        return {channel for task_id, channel, _ in writes if task_id == storage.NO_TASK}

    @property
    def is_answered(self) -> bool:
        """Whether an answer without an interrupt id is recorded. Any task may have used it."""
        return RESUME in self._commanded

    @property
    def is_goto(self) -> bool:
        """Whether a client sent the run to a node; of several such runs the first is recorded."""
        return TASKS in self._commanded or bool(self.commanded_nodes)

    @property
    def commanded_nodes(self) -> Mapping[str, str]:
        """The nodes to which a client sent the run, `Command(goto="node")`, by their channels."""
        named = {channel: storage.triggered_node(channel) for channel in self._commanded}
        return {channel: node for channel, node in named.items() if node}

    @property
    def is_idle(self) -> bool:
        return not (self.nodes or self.sends or self.is_goto)

    @property
    def is_over(self) -> bool:
        """Whether each of its tasks has recorded something."""
        return not self.is_goto and all(task.writes for task in self.tasks)


def superstep_of(
    saved: CheckpointTuple,
    messages_key: str,
    history: Sequence[BaseMessage] = (),
    following: Superstep | None = None,
) -> Superstep:
    """The superstep after a checkpoint.

    Args:
        saved: The checkpoint, with its pending writes.
        messages_key: The state key of the history.
        history: The history at the checkpoint. Default: empty.
        following: The next superstep of this branch. Default: there is none.
    """
    stored = saved.checkpoint["channel_values"]
    values = {
        key: storage.whole_value(stored[key])
        for key in storage.state_keys(stored)
        if key != messages_key
    }
    checkpoint: Any = {**saved.checkpoint, "channel_values": storage.trigger_values(stored)}
    step = Superstep(saved._replace(checkpoint=checkpoint), messages_key, history, values)
    if following is None:
        return step
    is_gap = following.number > step.number + 1
    return replace(step, source_after=following.source_before, is_gap=is_gap)


# --- the tasks of a superstep -----------------------------------------------------------------


def _derived(step: Superstep) -> Sequence[Any]:
    """The tasks that LangGraph makes from a checkpoint: those of a graph with the same nodes."""
    checkpoint, commanded = step.saved.checkpoint, step.commanded_nodes
    channels = {**checkpoint["channel_values"], **dict.fromkeys(commanded, START)}
    seen = {k: v for k, v in checkpoint["versions_seen"].items() if k not in commanded.values()}
    sent = {send.node for send in step.sends if isinstance(send, Send)}
    if not (step.nodes or sent or commanded):
        return ()
    joins = {channel: storage.joined_nodes(channel) for channel in channels}
    named = {*sent, *(storage.triggered_node(channel) or "" for channel in joins)}
    graph: StateGraph[Any] = StateGraph(dict)
    for node in sorted(named.union(*joins.values()) - {"", END}):
        graph.add_node(node, lambda _: None).add_edge(START, node)
    for channel, sources in joins.items():
        if sources:
            graph.add_edge(sources, storage.triggered_node(channel) or "")
    values = {**channels, "__root__": {}}
    copy: Any = {**checkpoint, "channel_values": values, "versions_seen": seen}
    saver = _OneCheckpoint(step.saved._replace(checkpoint=copy, pending_writes=[]))
    config = RunnableConfig(configurable={"thread_id": ""})
    return graph.compile(checkpointer=saver).get_state(config).tasks


class _OneCheckpoint(BaseCheckpointSaver[Any]):
    """A checkpointer with one checkpoint."""

    def __init__(self, saved: CheckpointTuple) -> None:
        super().__init__()
        self.saved = saved

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple:  # noqa: ARG002 - of the base class
        return self.saved


# --- the messages of a write --------------------------------------------------------------------

_ROLES = ("human", "user", "ai", "assistant", "system", "developer")
"""The roles of a message that an application writes as a pair of a role and a text."""


def fold(history: Iterable[BaseMessage], writes: Iterable[object]) -> list[BaseMessage]:
    """A history after writes, as the reducers of a `DeltaChannel` make it.

    Raises:
        MessagesError: If something in it is no message.
    """
    state: dict[object, BaseMessage] = {m.id or id(m): m for m in history}
    for write in writes:
        if isinstance(write, Overwrite):
            state = {}
        for message in as_messages(_items_of(write)):
            if message.id == REMOVE_ALL_MESSAGES:
                state = {}
            elif isinstance(message, RemoveMessage):
                state.pop(message.id, None)
            else:
                state[message.id or id(message)] = message
    return list(state.values())


def _items_of(write: object) -> list[Any]:
    """The messages of one write to the history: a list, or one of any form that LangChain knows."""
    value = (write.value or []) if isinstance(write, Overwrite) else write
    is_pair = isinstance(value, list) and [*map(type, value)] == [str, str] and value[0] in _ROLES
    return value if isinstance(value, list) and not is_pair else [value]


def written_messages(write: object) -> list[BaseMessage]:
    """The messages of a write to the history; none if LangGraph could not apply it."""
    return messages_or_none(_items_of(write)) or []


def _returned_messages(value: object, messages_key: str) -> Iterator[BaseMessage]:
    """The messages in what a `@task` returned: texts are none."""
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _returned_messages(part, messages_key)
    elif isinstance(value, Command):
        yield from _returned_messages(value.update, messages_key)
    elif isinstance(value, dict) and messages_key in value:
        yield from _returned_messages(value[messages_key], messages_key)
    elif isinstance(value, dict):
        yield from written_messages(value)


def is_real(message: BaseMessage) -> TypeGuard[ToolMessage]:
    """Whether a message is what a tool returned, and no placeholder of anybody.

    What a client sends with the message of a human is written by START, without that message.
    """
    if not isinstance(message, ToolMessage):
        return False
    return not is_synthetic(message, human_follows=getattr(message, "status", None) == "error")
