"""What one checkpoint says: who made a message, what was written, how a task ended.

A checkpoint holds a state, and beside it the *pending writes* of the step that followed.
Nothing here decides where to look; `evidence` walks the checkpoints and asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite, Send

from langgraph_patch.calls import read_calls
from langgraph_patch.changes import Finding
from langgraph_patch.errors import MessagesError
from langgraph_patch.host import NO_TASK, PUSH, RETURN
from langgraph_patch.messages import as_messages
from langgraph_patch.placeholders import is_foreign_placeholder, is_placeholder
from langgraph_patch.recorded_call import MARK

_TRIGGERS = ("branch:to:", "join:")  # channels that name the nodes of the step


def id_in(saved: CheckpointTuple) -> str:
    """The id of a checkpoint."""
    return saved.checkpoint["id"]


def id_of(config: RunnableConfig | None) -> str | None:
    """The id of the checkpoint that a config names, or None."""
    found = (config or {}).get("configurable", {}).get("checkpoint_id")
    return str(found) if found else None


def space_of(saved: CheckpointTuple) -> str:
    """The namespace of a checkpoint."""
    return str(saved.config["configurable"]["checkpoint_ns"])


def step_of(saved: CheckpointTuple) -> int:
    """The step in which a checkpoint was made."""
    return saved.metadata.get("step", -1)


def history_in(saved: CheckpointTuple, key: str) -> list[BaseMessage] | None:
    """The history as it was, or None where the checkpoint does not hold it."""
    value = saved.checkpoint["channel_values"].get(key)
    value = getattr(value, "value", value)  # now and then, DeltaChannel state is stored whole
    if not isinstance(value, list):
        return None
    try:
        return as_messages(value)
    except MessagesError:
        return None  # an older version of the application kept something else under the key


def written_in(
    saved: CheckpointTuple, key: str, *, returned: bool = True
) -> Iterator[tuple[str, list[BaseMessage]]]:
    """The task and the messages of each write to the history and of each returned value."""
    for task, channel, value in saved.pending_writes or ():
        if channel == key or (returned and channel == RETURN):
            yield task, list(_messages_in(value, key))


def _messages_in(value: object, key: str) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        for part in value[1:] if value[:1] == (key,) else value:
            yield from _messages_in(part, key)
    elif isinstance(value, Overwrite):
        yield from _messages_in(value.value, key)
    elif isinstance(value, Command):
        yield from _messages_in(value.update, key)
    elif isinstance(value, dict) and "content" in value and ("role" in value or "type" in value):
        with contextlib.suppress(MessagesError):  # LangGraph would have raised it too
            yield from as_messages([value])
    elif isinstance(value, dict):
        recorded = value.get("recorded")
        held = recorded.get("result") if isinstance(recorded, dict) else value.get(key)
        yield from _messages_in(held, key)


def is_same(stored: BaseMessage, message: AIMessage) -> bool:
    """Whether a stored message is `message`."""
    if stored.id is not None and message.id is not None:
        return stored.id == message.id
    # A write may be older than the id that the reducer gave to its message.
    return stored.model_copy(update={"id": None}) == message.model_copy(update={"id": None})


def place_of(history: Sequence[BaseMessage], message: AIMessage) -> int | None:
    """Where `message` stands in a history; the last place if there are several."""
    places = [i for i, stored in enumerate(history) if is_same(stored, message)]
    return places[-1] if places else None


def asks_alike(stored: BaseMessage, message: AIMessage, call_id: str) -> bool:
    """Whether a stored version of `message` makes this call as `message` does.

    Somebody who edits a call keeps its id, and what happened before is of the call as it was.
    """

    def asked(held: BaseMessage) -> list[tuple[str, str]]:
        calls = read_calls(held) if isinstance(held, AIMessage) else []
        return [(c.name, repr(sorted(map(repr, c.args.items())))) for c in calls if c.id == call_id]

    return stored is message or asked(stored) == asked(message)


def is_shared(earlier: Sequence[BaseMessage], call_id: str) -> bool:
    """Whether a call of the same turn that came before, with the same id, is open too."""
    for stored in reversed(earlier):
        answers = isinstance(stored, ToolMessage) and stored.tool_call_id == call_id
        if answers or stored.type == "human":
            return False
        if isinstance(stored, AIMessage) and last_maker([stored], call_id) is not None:
            return True
    return False


def is_part(part: Sequence[BaseMessage], whole: Sequence[BaseMessage]) -> bool:
    """Whether all messages of a history stand in another, in their order."""
    left = iter([stored.id or stored.text for stored in whole])
    return all((stored.id or stored.text) in left for stored in part)


def last_maker(messages: Sequence[BaseMessage], call_id: str) -> int | None:
    """Where the last message stands that makes a call with this id."""
    for place in range(len(messages) - 1, -1, -1):
        stored = messages[place]
        if not isinstance(stored, AIMessage) or _is_mere_text(stored):
            continue
        if any(call.id == call_id for call in read_calls(stored)):
            return place
    return None


def _is_mere_text(stored: AIMessage) -> bool:
    calls = stored.tool_calls or stored.invalid_tool_calls or stored.additional_kwargs
    return isinstance(stored.content, str) and not calls


def answer_in(
    messages: Sequence[BaseMessage], message: AIMessage, call_id: str
) -> ToolMessage | None:
    """The real result of the call in a write, which may be a whole history."""
    place = last_maker(messages, call_id)
    if place is not None:
        made = messages[place]
        if not (is_same(made, message) and asks_alike(made, message, call_id)):
            return None
    return result_in(messages[0 if place is None else place + 1 :], call_id)


def result_in(messages: Sequence[BaseMessage], call_id: str) -> ToolMessage | None:
    """The first real result of a call among `messages`."""
    for stored in messages:
        if isinstance(stored, ToolMessage) and stored.tool_call_id == call_id:
            if is_placeholder(stored) or is_foreign_placeholder(stored):
                continue  # a real one may have come late
            return stored
    return None


def maker_in(saved: CheckpointTuple, message: AIMessage, key: str, *, anew: bool) -> str | None:
    """The task that wrote `message`; with `anew`, not one that only wrote it again.

    A repair removes messages and adds them again, or overwrites all of them.
    """
    written = list(written_in(saved, key))
    again = {task for task, held in written if any(isinstance(m, RemoveMessage) for m in held)}
    again |= {task for task, _, value in saved.pending_writes or () if isinstance(value, Overwrite)}
    for task, held in written:
        if place_of(held, message) is not None and not (anew and task in again):
            return task
    return None


def makes_another(saved: CheckpointTuple, message: AIMessage, call_id: str, key: str) -> bool:
    """Whether a step brought another message that makes a call with this id."""
    for _, held in written_in(saved, key):
        place = last_maker(held, call_id)
        if place is not None and not is_same(held[place], message):
            return True
    return False


def begins_turn(saved: CheckpointTuple, message: AIMessage, key: str) -> bool:
    """Whether a step brought another message than a result, so that `message` is not the last."""
    return any(
        not isinstance(stored, ToolMessage | RemoveMessage) and not is_same(stored, message)
        for _, held in written_in(saved, key, returned=False)
        for stored in held
    )


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
