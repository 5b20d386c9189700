"""What one checkpoint says: who made a message, what was written, how a task ended.

A checkpoint holds a state, and beside it the *pending writes* of the step that followed.
Nothing here decides where to look; `evidence` walks the checkpoints and asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite

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


def step_of(saved: CheckpointTuple) -> int:
    """The step in which a checkpoint was made."""
    return saved.metadata.get("step", -1)


def weight_of(known: ToolMessage | Finding | None) -> int:
    """What counts more: a result before an error before an interrupt before nothing."""
    if known is None:
        return 0
    if isinstance(known, ToolMessage):
        return 3
    return 2 if known.cause == "failed" else 1


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


def written_in(saved: CheckpointTuple, key: str) -> Iterator[tuple[str, list[BaseMessage]]]:
    """The task and the messages of each write to the history and of each returned value."""
    for task, channel, value in saved.pending_writes or ():
        if channel in (key, RETURN):
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
    if place is not None and not is_same(messages[place], message):
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


# --- what a task says of its call --------------------------------------------------------


def finding_in(saved: CheckpointTuple, call_id: str) -> Finding | None:
    """What the tasks say that ran this one call; an error before an interrupt."""
    tasks = [task for named, task in _marks_in(saved) if named == call_id]
    sent = [i for i, send in enumerate(_sends_in(saved)) if _sent_call(send) == call_id]
    if len(sent) == 1:
        tasks += [task for task, place in _tasks_of_sends(saved).items() if place == sent[0]]
    findings = [finding for task in tasks if (finding := _finding_of(saved, task))]
    return max(findings, key=weight_of, default=None)


def _finding_of(saved: CheckpointTuple, task: str) -> Finding | None:
    """How a task ended that left no result; None if that says nothing of its call."""
    written = {channel: value for by, channel, value in saved.pending_writes or () if by == task}
    if ERROR in written:
        error = written[ERROR]
        text = error if isinstance(error, str) else repr(error)  # stored as its repr
        cancelled = isinstance(error, asyncio.CancelledError) or text.startswith("CancelledError(")
        told_nothing = cancelled or isinstance(error, GraphBubbleUp)
        return None if told_nothing else Finding("failed", text)
    answered = any(c == RESUME and by == NO_TASK for by, c, _ in saved.pending_writes or ())
    waits = INTERRUPT in written and written.keys() <= {INTERRUPT, RESUME} and not answered
    return Finding("awaiting_input") if waits else None


def finding_of_only_call(
    message: AIMessage, step: CheckpointTuple, made: CheckpointTuple, maker: str, key: str
) -> Finding | None:
    """What a task of several calls says, where only one call of `message` has no result.

    Args:
        message: The message whose calls the task ran.
        step: The oldest checkpoint that has the message.
        made: The checkpoint in whose step the message was made.
        maker: The task that made it.
        key: The state key of the history.
    """
    if id_of(step.parent_config) != id_in(made):
        return None
    values, writes = step.checkpoint["channel_values"], step.pending_writes or ()
    nodes = [channel for channel in values if channel.startswith(_TRIGGERS)]
    ended = {task for task, channel, _ in writes if channel in (INTERRUPT, ERROR)}
    recorded = any(channel in (MARK, RETURN) for _, channel, _ in writes)
    # A task that brought results along with the message has run its tools already.
    ran = any(
        isinstance(stored, ToolMessage)
        for task, held in written_in(made, key)
        for stored in held[(place_of(held, message) or 0) :]
        if task == maker
    )
    if len(nodes) != 1 or len(ended) != 1 or _sends_in(step) or recorded or ran:
        return None
    return _finding_of(step, ended.pop())


def _marks_in(saved: CheckpointTuple) -> Iterator[tuple[str, str]]:
    """The call and the task of each call that `record_tool_calls` ran to no result."""
    for _, channel, value in saved.pending_writes or ():
        if channel == MARK and isinstance(value, dict):
            mark = value.get("recorded", {})
            yield mark.get("call"), mark.get("task")


def _sends_in(saved: CheckpointTuple) -> list[Any]:
    return saved.checkpoint["channel_values"].get(TASKS) or []


def _sent_call(send: Any) -> str | None:
    """The id of the one call that a `Send` carries, in either form that LangGraph has."""
    arg = getattr(send, "arg", None)
    call = arg.get("tool_call") if isinstance(arg, dict) else arg
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    return call.get("id") if isinstance(call, dict) else None


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
    nodes = {send.node for send in _sends_in(saved)}
    builder: StateGraph[Any] = StateGraph(dict)
    for node in nodes:
        builder.add_node(node, lambda _: None)
        builder.add_edge(START, node)
    # A copy without writes: reading must change neither the checkpoint nor the log.
    bare = saved._replace(checkpoint=saved.checkpoint.copy(), pending_writes=[])
    graph = builder.compile(checkpointer=_OneCheckpoint(bare))
    tasks = graph.get_state(RunnableConfig(configurable={"thread_id": ""})).tasks
    return {t.id: t.path[1] for t in tasks if t.path[0] == PUSH and isinstance(t.path[1], int)}
