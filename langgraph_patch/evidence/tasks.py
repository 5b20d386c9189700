"""Read what one superstep did, from the checkpoint before it and its pending writes.

A checkpoint has no list of the tasks of its superstep. LangGraph derives their ids from the
checkpoint, so a graph with the same nodes makes the same tasks, and `get_state` lists them. A
pending write of another task comes from `update_state`, from a `@task`, or from a client.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Interrupt, Overwrite, Send

from langgraph_patch._langgraph_graphs import runs_after_model, sent_call
from langgraph_patch._langgraph_storage import (
    ERROR_SOURCE,
    NO_TASK,
    RETURN,
    is_node_timeout,
    joined_nodes,
    own_interrupt_id,
    send_index,
    triggered_node,
    whole_value,
)
from langgraph_patch.errors import MessagesError
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.patch import as_messages
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
)

_OF_UNFINISHED = (INTERRUPT, ERROR, ERROR_SOURCE, RESUME, RETURN)
"""What a task may write before its node returns."""


_ROLES = ("human", "user", "ai", "assistant", "system", "developer")
"""The roles of a message that an application writes as a pair of a role and a text."""


@dataclass(frozen=True, eq=False)
class Task:
    """What one task of a superstep wrote.

    Attributes:
        id: Its id.
        node: Its node; None if LangGraph did not start it as a task of this superstep.
        call: The tool call that its `Send` carries, if any.
        writes: The channel and the value of each of its pending writes.
        messages_key: The state key of the history.
    """

    id: str
    node: str | None
    call: Mapping[str, Any] | None
    writes: Sequence[tuple[str, Any]]
    messages_key: str

    @cached_property
    def messages(self) -> list[BaseMessage]:
        """The messages that it wrote to the history."""
        return self._messages_in(self.messages_key)

    @cached_property
    def returned(self) -> list[BaseMessage]:
        """The messages that it returned as a `@task`, or that a repair showed to clients."""
        return self._messages_in(RETURN)

    def _messages_in(self, channel: str) -> list[BaseMessage]:
        values = (value for name, value in self.writes if name == channel)
        texts = channel != RETURN  # a `@task` may return any text
        found = (m for value in values for m in messages_in(value, self.messages_key, texts=texts))
        return [corrected(message) for message in found]

    @property
    def is_repair(self) -> bool:
        """Whether it wrote a repair: to the state, and what clients see of it to `RETURN`."""
        shown = {message.id for message in self.returned}
        return bool(self.messages and shown) and shown <= {m.id for m in self.messages}

    @property
    def is_overwrite(self) -> bool:
        """Whether it replaced the whole history."""
        values = [value for channel, value in self.writes if channel == self.messages_key]
        return any(isinstance(value, Overwrite) for value in values) or any(
            isinstance(m, RemoveMessage) and m.id == REMOVE_ALL_MESSAGES for m in self.messages
        )

    def rewrites(self, message_id: str | None) -> bool:
        """Whether it wrote this message again, as a repair does, and did not make it."""
        shown = {message.id for message in self.returned}
        removed = {message.id for message in self.messages if isinstance(message, RemoveMessage)}
        was_repaired = self.is_repair and message_id not in shown
        return self.is_overwrite or was_repaired or message_id in removed

    @property
    def errors(self) -> list[object]:
        """The errors that it raised."""
        return [value for channel, value in self.writes if channel == ERROR]

    @property
    def answers(self) -> list[Any]:
        """The answers to its interrupts."""
        return [value for channel, value in self.writes if channel == RESUME]

    @property
    def interrupt_ids(self) -> list[str | None]:
        """The id of each of its interrupts."""
        values = (value for channel, value in self.writes if channel == INTERRUPT)
        raised = (each for v in values for each in (v if isinstance(v, list | tuple) else [v]))
        return [each.id if isinstance(each, Interrupt) else None for each in raised]

    @property
    def is_finished(self) -> bool:
        """Whether its node returned."""
        return any(channel not in _OF_UNFINISHED for channel, _ in self.writes)

    @property
    def has_ended(self) -> bool:
        """Whether it has recorded its end. A synchronous tool goes on after a timeout."""
        return bool(self.writes) and not any(map(is_cut_off, self.errors))


def is_cut_off(error: object) -> bool:
    """Whether a recorded error is a cancellation or a timeout."""
    return is_node_timeout(error) or text_of_error(error).startswith("CancelledError(")


def text_of_error(error: object) -> str:
    """The text of a recorded error: most checkpointers store its `repr`."""
    return error if isinstance(error, str) else repr(error)


@dataclass(frozen=True, eq=False)
class Step:
    """One superstep: the checkpoint before it, and what its tasks wrote.

    Attributes:
        saved: The checkpoint before it, without the values of the state.
        messages_key: The state key of the history.
        child: What made the next checkpoint of this branch: `loop` if the writes of the superstep
            were applied, `input`, `update` or `fork` if they were dropped; None if there is none.
        is_gap: Whether checkpoints between this one and the next one are not stored.
        written_since: The channels that were written after this superstep, in this branch.
    """

    saved: CheckpointTuple
    messages_key: str
    child: str | None = None
    is_gap: bool = False
    written_since: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The id of the checkpoint."""
        return str(self.saved.checkpoint["id"])

    @property
    def parent_id(self) -> str | None:
        """The id of the checkpoint that it was made from."""
        return configured_id(self.saved.parent_config)

    @property
    def namespace(self) -> str:
        """The namespace of the graph."""
        return str(self.saved.config["configurable"].get("checkpoint_ns", ""))

    @property
    def number(self) -> int:
        """The number of the superstep that made the checkpoint."""
        return self.saved.metadata.get("step", -1)

    @property
    def source(self) -> str | None:
        """What made the checkpoint: `input`, `loop`, `update` or `fork`."""
        return self.saved.metadata.get("source")

    @property
    def began(self) -> str:
        """When the checkpoint was made."""
        return str(self.saved.checkpoint["ts"])

    @property
    def was_applied(self) -> bool:
        """Whether the state of this branch has what its tasks wrote."""
        return self.child == "loop" and not self.is_gap

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes that an edge triggered. Each runs over the whole state."""
        stored = self.saved.checkpoint["channel_values"]
        return frozenset(node for channel in stored if (node := triggered_node(channel)))

    @cached_property
    def sends(self) -> list[Any]:
        """The `Send`s of the superstep."""
        return list(self.saved.checkpoint["channel_values"].get(TASKS) or ())

    @cached_property
    def written(self) -> list[Task]:
        """What each task id has written, whether LangGraph started it here or not."""
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task_id, channel, value in self.saved.pending_writes or ():
            by_task.setdefault(task_id, []).append((channel, value))
        return [Task(t, None, None, own, self.messages_key) for t, own in by_task.items()]

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks that LangGraph started, also those that have written nothing.

        They are in the order in which LangGraph applies what they wrote.
        """
        writes = {task.id: task.writes for task in self.written}
        found = [(send_index(task.path), task) for task in _derived(self)]
        found.sort(key=lambda each: (each[0] is not None, each[0] or 0, each[1].name))
        return [
            Task(
                id=task.id,
                node=task.name,
                call=None if index is None else sent_call(self.sends[index]),
                writes=writes.get(task.id, ()),
                messages_key=self.messages_key,
            )
            for index, task in found
        ]

    @cached_property
    def others(self) -> list[Task]:
        """What was written under other task ids: by `update_state`, a `@task` or a client."""
        own = {task.id for task in self.tasks}
        return [task for task in self.written if task.id not in own]

    @property
    def is_answered(self) -> bool:
        """Whether an answer without an interrupt id is recorded. Any task may have used it."""
        return any(task.id == NO_TASK and task.answers for task in self.others)

    @cached_property
    def gotos(self) -> list[tuple[str, str, Any]]:
        """The writes with which a client sent the run to a node: `Command(goto=...)`."""
        own = [write for write in self.saved.pending_writes or () if write[0] == NO_TASK]
        return [write for write in own if write[1] == TASKS or triggered_node(write[1])]

    @property
    def is_goto(self) -> bool:
        """Whether a client sent the run to a node."""
        return bool(self.gotos)

    @property
    def is_idle(self) -> bool:
        """Whether no node ran."""
        return not (self.nodes or self.sends or self.is_goto)

    @property
    def is_over(self) -> bool:
        """Whether each of its tasks has recorded its end."""
        return not self.is_goto and all(task.has_ended for task in self.tasks)

    @cached_property
    def is_passed(self) -> bool:
        """Whether nothing ran but nodes between the model and the tools, here and nowhere else."""
        is_known = bool(self.nodes) and not (self.sends or self.is_goto)
        if not is_known or not all(map(runs_after_model, self.nodes)):
            return False
        wrote = {channel for task in self.tasks for channel, _ in task.writes}
        return not wrote - {INTERRUPT, ERROR, RESUME} or self.was_applied

    @property
    def is_approval(self) -> bool:
        """Whether such a node asked a human and has no recorded answer."""
        wrote = {channel for task in self.tasks for channel, _ in task.writes}
        return self.is_passed and wrote == {INTERRUPT} and not self.is_answered

    def owns_interrupts(self, task: Task) -> bool:
        """Whether a task, or a `@task` in it, raised all its interrupts, and no graph below it."""
        own = own_interrupt_id(self.namespace, task.node or "", task.id)
        inside = {i for other in self.others for i in other.interrupt_ids}
        return set(task.interrupt_ids) <= {own, *inside}


class Ran(NamedTuple):
    """A task, and the superstep in which it ran."""

    step: Step
    task: Task


def configured_id(config: RunnableConfig | None) -> str | None:
    """The id of the checkpoint that a config names, or None."""
    checkpoint_id = (config or {}).get("configurable", {}).get("checkpoint_id")
    return str(checkpoint_id) if checkpoint_id else None


def read_step(
    saved: CheckpointTuple, messages_key: str, child: Step | None
) -> tuple[Step, list[BaseMessage] | None]:
    """The superstep after a checkpoint, and the history before it.

    Args:
        saved: The checkpoint, with its pending writes.
        messages_key: The state key of the history.
        child: The superstep after the next checkpoint of this branch, if there is one.

    Returns:
        The superstep, and the messages; None for them if the checkpoint does not store them
        (`DeltaChannel`).
    """
    stored = saved.checkpoint["channel_values"]
    triggers = {c: v for c, v in stored.items() if c == TASKS or triggered_node(c)}
    light = saved._replace(checkpoint={**saved.checkpoint, "channel_values": triggers})
    since: frozenset[str] = frozenset()
    if child is not None:
        since = child.written_since | _channels_of(child, saved)
    step = Step(
        light,
        messages_key,
        child.source if child else None,
        child is not None and child.number > saved.metadata.get("step", -1) + 1,
        since,
    )
    return step, history_in(stored.get(messages_key))


def _channels_of(child: Step, saved: CheckpointTuple) -> frozenset[str]:
    """The channels that were written after a checkpoint was made from `saved`, or to make it."""
    written = {channel for task in child.written for channel, _ in task.writes}
    if child.child == "input":  # dropped
        written = set()
    # The writes that made the checkpoint may be stored after it.
    old, new = (c.checkpoint["channel_versions"] for c in (saved, child.saved))
    return frozenset(written | {channel for channel in new if new[channel] != old.get(channel)})


def history_in(value: object) -> list[BaseMessage] | None:
    """The messages of a stored value; None if it has none, as a `DeltaChannel` mostly."""
    whole = whole_value(value)
    if not isinstance(whole, list):
        return None
    try:
        return [corrected(message) for message in as_messages(whole)]
    except MessagesError:
        return None  # an older version of the application stored something else there


def messages_in(value: object, messages_key: str, *, texts: bool = False) -> Iterator[BaseMessage]:
    """The messages in what a task wrote to the history or returned.

    Args:
        value: What it wrote or returned.
        messages_key: The state key of the history.
        texts: Whether a text, and a pair of a role and a text, is a message too. Default: False.
    """
    if isinstance(value, BaseMessage):
        yield value
    elif _is_message_like(value) and (texts or isinstance(value, dict)):
        with contextlib.suppress(MessagesError):  # LangGraph would have raised it too
            yield from as_messages([value])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from messages_in(part, messages_key, texts=texts)
    elif isinstance(value, Overwrite):
        yield from messages_in(value.value, messages_key, texts=texts)
    elif isinstance(value, Command):
        yield from messages_in(value.update, messages_key, texts=texts)
    elif isinstance(value, dict):
        yield from messages_in(value.get(messages_key), messages_key, texts=texts)


def _is_message_like(value: object) -> bool:
    """Whether LangChain makes a message of a value. A stored pair is a list."""
    if isinstance(value, dict):
        return "content" in value and ("role" in value or "type" in value)
    if isinstance(value, list | tuple):
        return [*map(type, value)] == [str, str] and value[0] in _ROLES
    return isinstance(value, str)


def is_real(message: BaseMessage) -> bool:
    """Whether a message is what a tool returned, and no placeholder of anybody."""
    if not isinstance(message, ToolMessage) or is_placeholder(message):
        return False
    return not (is_foreign_placeholder(message) or is_client_fake(message))


def fold(history: list[BaseMessage], tasks: Sequence[Task]) -> list[BaseMessage]:
    """A history after the writes of tasks, as the usual reducers make it."""
    for task in tasks:
        if task.is_overwrite:
            history = []
        for message in task.messages:
            place = next((i for i, m in enumerate(history) if m.id == message.id), None)
            if isinstance(message, RemoveMessage):
                history = [m for m in history if m.id != message.id]
            elif place is None or message.id is None:
                history = [*history, message]
            else:
                history = [*history[:place], message, *history[place + 1 :]]
    return history


# --- the tasks of a superstep -----------------------------------------------------------------


def _derived(step: Step) -> Sequence[Any]:
    """The tasks that LangGraph makes from a checkpoint, and from a `goto` of a client there."""
    checkpoint = step.saved.checkpoint
    gotos = {channel: value for _, channel, value in step.gotos if channel != TASKS}
    channels = {**checkpoint["channel_values"], **gotos}
    targets = {triggered_node(channel) or "" for channel in gotos}
    nodes = {*step.nodes, *targets, *(s.node for s in step.sends if isinstance(s, Send))}
    if not nodes:
        return ()
    joins = {channel: joined_nodes(channel) for channel in channels}
    builder: StateGraph[Any] = StateGraph(dict)
    for node in sorted(nodes.union(*joins.values())):
        builder.add_node(node, lambda _: None)
        builder.add_edge(START, node)
    for channel, sources in joins.items():
        if sources:
            builder.add_edge(sources, triggered_node(channel) or "")
    versions = checkpoint["channel_versions"]
    newest = dict.fromkeys(gotos, max(versions.values(), default=1))
    seen = {k: v for k, v in checkpoint["versions_seen"].items() if k not in targets}
    copy: Any = {
        **checkpoint,
        "channel_values": {**channels, "__root__": {}},
        "channel_versions": {**versions, **newest},
        "versions_seen": seen,
    }
    saved = step.saved._replace(checkpoint=copy, pending_writes=[])
    graph = builder.compile(checkpointer=_OneCheckpoint(saved))
    return graph.get_state(RunnableConfig(configurable={"thread_id": ""})).tasks


class _OneCheckpoint(BaseCheckpointSaver[Any]):
    """A checkpointer with one checkpoint."""

    def __init__(self, saved: CheckpointTuple) -> None:
        super().__init__()
        self.saved = saved

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple:  # noqa: ARG002 - of the base class
        return self.saved
