"""Read messages from one checkpoint: its stored history and its pending writes.

The pending writes of a checkpoint are those of the superstep that followed it. Nothing here
decides which checkpoints are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite

from langgraph_patch._langgraph_storage import RETURN, is_reserved, whole_value
from langgraph_patch.errors import MessagesError
from langgraph_patch.evidence.open_calls import (
    OpenCall,
    calls_elsewhere,
    index_of,
    is_version_of,
    renamed_elsewhere,
)
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.patch import as_messages


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A stored checkpoint. Its messages are read once, on demand.

    Attributes:
        saved: The checkpoint as the checkpointer returned it.
        messages_key: The state key of the history.
    """

    saved: CheckpointTuple
    messages_key: str

    @property
    def id(self) -> str:
        """The id of the checkpoint."""
        return self.saved.checkpoint["id"]

    @property
    def parent_id(self) -> str | None:
        """The id of the checkpoint that this one was made from, or None."""
        return configured_id(self.saved.parent_config)

    @property
    def namespace(self) -> str:
        """The namespace of the graph."""
        return str(self.saved.config["configurable"]["checkpoint_ns"])

    @property
    def step(self) -> int:
        """The number of the superstep that made the checkpoint."""
        return self.saved.metadata.get("step", -1)

    @property
    def source(self) -> str | None:
        """What made the checkpoint: `input`, `loop`, `update` or `fork`."""
        return self.saved.metadata.get("source")

    @property
    def channels(self) -> Mapping[str, Any]:
        """The stored value of each channel."""
        return self.saved.checkpoint["channel_values"]

    @property
    def writes(self) -> Sequence[tuple[str, str, Any]]:
        """The pending writes: task id, channel, value; without what repairs showed to clients."""
        shown = self.repairs
        writes = self.saved.pending_writes or ()
        return [w for w in writes if not (w[0] in shown and w[1] == RETURN)] if shown else writes

    @cached_property
    def repairs(self) -> AbstractSet[str]:
        """The tasks that wrote a repair to the state, and what clients see of it to `RETURN`.

        A `@task` writes to `RETURN` too, but it does not write these messages to the state.
        """
        writes, key = self.saved.pending_writes or (), self.messages_key
        found = set()
        for task, channel, value in writes:
            if channel == RETURN:
                own = [(c, v) for t, c, v in writes if t == task and not is_reserved(c)]
                ids = {m.id for c, v in own if c == key for m in messages_in(v, key)}
                if own and ids.issuperset(m.id for m in messages_in(value, key)):
                    found.add(task)
        return found

    @cached_property
    def history(self) -> list[BaseMessage] | None:
        """The messages, or None if they are not stored in this checkpoint (`DeltaChannel`)."""
        value = whole_value(self.channels.get(self.messages_key))
        if not isinstance(value, list):
            return None
        try:
            return list(map(corrected, as_messages(value)))
        except MessagesError:
            return None  # an older version of the application stored something else there

    @property
    def weight(self) -> int:
        """The approximate size of the history, in characters; 1,000 at least for each message."""
        value = whole_value(self.channels.get(self.messages_key))
        contents = [getattr(m, "content", "") for m in value] if isinstance(value, list) else []
        return sum(max(1_000, len(text)) for text in contents if isinstance(text, str | list))

    def written(self, *, include_returned: bool = True) -> list[tuple[str, list[BaseMessage]]]:
        """The task id and the messages of each pending write to the history.

        Args:
            include_returned: Whether to include what each `@task` returned.
        """
        return [(t, m) for t, c, m in self._written if include_returned or c != RETURN]

    @cached_property
    def _written(self) -> list[tuple[str, str, list[BaseMessage]]]:
        key = self.messages_key
        read = ((t, c, v) for t, c, v in self.writes if c in (key, RETURN))
        return [(t, c, list(map(corrected, messages_in(v, key)))) for t, c, v in read]


def configured_id(config: RunnableConfig | None) -> str | None:
    """The id of the checkpoint that a config names, or None."""
    checkpoint_id = (config or {}).get("configurable", {}).get("checkpoint_id")
    return str(checkpoint_id) if checkpoint_id else None


def messages_in(value: object, messages_key: str) -> Iterator[BaseMessage]:
    """The messages in what a task wrote to the history or returned."""
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        for part in value[1:] if value[:1] == (messages_key,) else value:
            yield from messages_in(part, messages_key)
    elif isinstance(value, Overwrite):
        yield from messages_in(value.value, messages_key)
    elif isinstance(value, Command):
        yield from messages_in(value.update, messages_key)
    elif isinstance(value, dict) and "content" in value and ("role" in value or "type" in value):
        with contextlib.suppress(MessagesError):  # LangGraph would have raised it too
            yield from as_messages([value])
    elif isinstance(value, dict):
        yield from messages_in(value.get(messages_key), messages_key)


# --- what a superstep wrote ---------------------------------------------------------------


def tasks_that_rewrite(checkpoint: Checkpoint, message_id: str | None = None) -> set[str]:
    """The tasks that wrote stored messages again, as a repair does.

    A repair removes messages and adds them, overwrites the whole history, or writes messages
    under their ids. A model node that is repaired writes its new message beside them.

    Args:
        checkpoint: The checkpoint before the superstep.
        message_id: Only the tasks that wrote this message again. Default: all.
    """
    wanted = {message_id, REMOVE_ALL_MESSAGES}
    tasks = {
        task
        for task, messages in checkpoint.written()
        for message in messages
        if isinstance(message, RemoveMessage) and (message_id is None or message.id in wanted)
    }
    tasks |= {task for task, _, value in checkpoint.writes if isinstance(value, Overwrite)}
    return tasks | _renaming_tasks(checkpoint, message_id)


def _renaming_tasks(checkpoint: Checkpoint, message_id: str | None) -> set[str]:
    """The tasks that wrote stored messages again under their ids, to rename calls in them."""
    if not checkpoint.repairs:
        return set()
    stored = {message.id for message in checkpoint.history or ()} - {None}
    wanted = stored if message_id is None else stored & {message_id}
    return {
        task
        for task, messages in checkpoint.written()
        if task in checkpoint.repairs and any(message.id in wanted for message in messages)
    }


def writer_of(checkpoint: Checkpoint, message: AIMessage, *, ignore_rewrites: bool) -> str | None:
    """The id of the task that wrote `message`, or None.

    Args:
        checkpoint: The checkpoint before the superstep.
        message: The message.
        ignore_rewrites: Whether to ignore tasks that wrote it again, as a repair does.
    """
    rewriters = tasks_that_rewrite(checkpoint, message.id) if ignore_rewrites else set()
    for task_id, messages in checkpoint.written():
        if index_of(messages, message) is not None and task_id not in rewriters:
            return task_id
    return None


def reuses_call_id(
    checkpoint: Checkpoint, call: OpenCall, *, include_renamed: bool = False
) -> bool:
    """Whether a superstep wrote another message with a call of this id.

    Args:
        checkpoint: The checkpoint before the superstep. With durability "exit" its writes may be
            those of several supersteps.
        call: The call.
        include_renamed: Whether a call counts that a repair renamed from this id. Default: False.
    """
    return any(
        calls_elsewhere(messages, call) or (include_renamed and renamed_elsewhere(messages, call))
        for _, messages in checkpoint.written()
    )


def adds_other_message(checkpoint: Checkpoint, message: AIMessage) -> bool:
    """Whether a superstep wrote something other than `message` and tool messages.

    `message` is then no longer the last message with open calls.
    """
    return any(
        not isinstance(written, ToolMessage | RemoveMessage) and not is_version_of(written, message)
        for _, messages in checkpoint.written(include_returned=False)
        for written in messages
    )
