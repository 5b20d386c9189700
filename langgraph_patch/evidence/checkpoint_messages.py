"""What one checkpoint says of messages: which it holds, who made them, what was written.

A checkpoint holds a state, and beside it the *pending writes* of the step that followed.
Nothing here decides where to look; `evidence` walks the checkpoints and asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command, Overwrite

from langgraph_patch._langgraph import RETURN
from langgraph_patch.errors import MessagesError
from langgraph_patch.history.patcher import as_messages
from langgraph_patch.history.placeholders import is_foreign_placeholder, is_placeholder
from langgraph_patch.history.tool_calls import read_calls


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
