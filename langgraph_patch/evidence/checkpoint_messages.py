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
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command, Overwrite

from langgraph_patch._langgraph import RETURN, whole_value
from langgraph_patch.errors import MessagesError
from langgraph_patch.history.patcher import as_messages
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
)
from langgraph_patch.history.tool_calls import read_calls
from langgraph_patch.recording.records import Record, hash_of_call, read_record


class OpenCall(NamedTuple):
    """A call without a result.

    Attributes:
        message: The message that makes the call.
        id: The id of the call.
        client_results: The ids of results that came with the input of the run. They are no
            evidence.
    """

    message: AIMessage
    id: str
    client_results: AbstractSet[str | None] = frozenset()


def request_hash_of(call: OpenCall) -> str | None:
    """The hash of a call in records; None if `tool_calls` does not contain it once."""
    calls = call.message.tool_calls
    found = [index for index, made in enumerate(calls) if made["id"] == call.id]
    return hash_of_call(calls, found[0]) if len(found) == 1 else None


def is_record_of(record: Record, call: OpenCall) -> bool:
    """Whether a record may belong to a call: by message, id and request, where it has them."""
    expected = {"message_id": call.message.id, "request_hash": request_hash_of(call)}
    return record.get("call_id", call.id) == call.id and all(
        None in (value, record.get(key)) or record[key] == value for key, value in expected.items()
    )


# --- one checkpoint -----------------------------------------------------------------------


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
        """The pending writes: task id, channel, value."""
        return self.saved.pending_writes or ()

    @cached_property
    def history(self) -> list[BaseMessage] | None:
        """The messages, or None if they are not stored in this checkpoint (`DeltaChannel`)."""
        value = whole_value(self.channels.get(self.messages_key))
        if not isinstance(value, list):
            return None
        try:
            return as_messages(value)
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
        return [(t, m) for t, c, m, _ in self._written if include_returned or c != RETURN]

    def written_for(
        self, call: OpenCall, *, include_returned: bool = True
    ) -> list[tuple[str, list[BaseMessage]]]:
        """The same without the records of `record_tool_calls` that belong to another call."""
        return [
            (task_id, messages)
            for task_id, channel, messages, record in self._written
            if (include_returned or channel != RETURN)
            and (record is None or is_record_of(record, call))
        ]

    @cached_property
    def _written(self) -> list[tuple[str, str, list[BaseMessage], Record | None]]:
        key = self.messages_key
        read = ((t, c, v) for t, c, v in self.writes if c in (key, RETURN))
        return [(t, c, list(_messages_in(v, key)), read_record(v)) for t, c, v in read]


def configured_id(config: RunnableConfig | None) -> str | None:
    """The id of the checkpoint that a config names, or None."""
    checkpoint_id = (config or {}).get("configurable", {}).get("checkpoint_id")
    return str(checkpoint_id) if checkpoint_id else None


def _messages_in(value: object, messages_key: str) -> Iterator[BaseMessage]:
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, list | tuple):
        for part in value[1:] if value[:1] == (messages_key,) else value:
            yield from _messages_in(part, messages_key)
    elif isinstance(value, Overwrite):
        yield from _messages_in(value.value, messages_key)
    elif isinstance(value, Command):
        yield from _messages_in(value.update, messages_key)
    elif isinstance(value, dict) and "content" in value and ("role" in value or "type" in value):
        with contextlib.suppress(MessagesError):  # LangGraph would have raised it too
            yield from as_messages([value])
    elif isinstance(value, dict):
        record = read_record(value)
        content = value.get(messages_key) if record is None else record.get("result")
        yield from _messages_in(content, messages_key)


# --- a message and its calls --------------------------------------------------------------


def is_version_of(stored: BaseMessage, message: AIMessage) -> bool:
    """Whether a stored message is `message`, as it is now or as it was before an edit."""
    if stored.id is not None and message.id is not None:
        return stored.id == message.id
    # A write may be older than the id that the reducer gave its message.
    return stored.model_copy(update={"id": None}) == message.model_copy(update={"id": None})


def index_of(messages: Sequence[BaseMessage], message: AIMessage) -> int | None:
    """The last index of `message`, or None."""
    indexes = [i for i, stored in enumerate(messages) if is_version_of(stored, message)]
    return indexes[-1] if indexes else None


def index_of_call(messages: Sequence[BaseMessage], call_id: str) -> int | None:
    """The index of the last message that makes a call with this id, or None."""
    for index in range(len(messages) - 1, -1, -1):
        stored = messages[index]
        if not isinstance(stored, AIMessage) or _is_text_only(stored):
            continue
        if any(call.id == call_id for call in read_calls(stored)):
            return index
    return None


def _is_text_only(message: AIMessage) -> bool:
    calls = message.tool_calls or message.invalid_tool_calls or message.additional_kwargs
    return isinstance(message.content, str) and not calls


def has_same_call(stored: BaseMessage, call: OpenCall) -> bool:
    """Whether a version of the call's message makes it with the same name and arguments.

    A call that is edited keeps its id, but earlier results belong to the call before the edit.
    """
    if stored is call.message:
        return True
    return _requests(stored, call.id) == _requests(call.message, call.id)


def _requests(message: BaseMessage, call_id: str) -> list[tuple[str, str]]:
    calls = read_calls(message) if isinstance(message, AIMessage) else []
    return [(c.name, repr(sorted(map(repr, c.args.items())))) for c in calls if c.id == call_id]


def has_earlier_open_call(earlier: Sequence[BaseMessage], call_id: str) -> bool:
    """Whether an earlier message of the same turn makes an open call with the same id."""
    for stored in reversed(earlier):
        is_result = isinstance(stored, ToolMessage) and stored.tool_call_id == call_id
        if is_result or stored.type == "human":
            return False
        if isinstance(stored, AIMessage) and index_of_call([stored], call_id) is not None:
            return True
    return False


def is_subsequence(part: Sequence[BaseMessage], whole: Sequence[BaseMessage]) -> bool:
    """Whether `whole` contains all messages of `part`, in their order."""
    rest = iter([stored.id or stored.text for stored in whole])
    return all((stored.id or stored.text) in rest for stored in part)


def first_result(messages: Sequence[BaseMessage], call: OpenCall) -> ToolMessage | None:
    """The first tool message for a call that is not a placeholder and does not name another tool.

    A missing name agrees with any.
    """
    names = {made.name for made in read_calls(call.message) if made.id == call.id}
    for stored in messages:
        if isinstance(stored, ToolMessage) and stored.tool_call_id == call.id:
            if stored.id in call.client_results:
                continue
            if is_placeholder(stored) or is_foreign_placeholder(stored) or is_client_fake(stored):
                continue  # the real result may have been written later
            if stored.name and names.isdisjoint({stored.name, ""}):
                continue
            return stored
    return None


def result_of_call(messages: Sequence[BaseMessage], call: OpenCall) -> ToolMessage | None:
    """The real result of a call in written messages, which may be a whole history."""
    index = index_of_call(messages, call.id)
    if index is None:
        return first_result(messages, call)
    stored = messages[index]
    if is_version_of(stored, call.message) and has_same_call(stored, call):
        return first_result(messages[index + 1 :], call)
    return None


# --- what a superstep wrote ---------------------------------------------------------------


def writer_of(checkpoint: Checkpoint, message: AIMessage, *, ignore_rewrites: bool) -> str | None:
    """The id of the task that wrote `message`, or None.

    Args:
        checkpoint: The checkpoint before the superstep.
        message: The message.
        ignore_rewrites: Whether to ignore tasks that wrote a stored message again, as a repair
            does: it removes messages and adds them, or overwrites the whole history.
    """
    writes = checkpoint.written()
    rewriters = {task for task, of in writes if any(isinstance(m, RemoveMessage) for m in of)}
    rewriters |= {task for task, _, value in checkpoint.writes if isinstance(value, Overwrite)}
    for task_id, messages in writes:
        if index_of(messages, message) is not None:
            if ignore_rewrites and task_id in rewriters:
                continue
            return task_id
    return None


def calls_elsewhere(messages: Sequence[BaseMessage], call: OpenCall) -> bool:
    """Whether the last call with the id of `call` is made by another message."""
    index = index_of_call(messages, call.id)
    return index is not None and not is_version_of(messages[index], call.message)


def reuses_call_id(checkpoint: Checkpoint, call: OpenCall) -> bool:
    """Whether a superstep wrote another message with a call of this id."""
    return any(calls_elsewhere(messages, call) for _, messages in checkpoint.written())


def adds_other_message(checkpoint: Checkpoint, message: AIMessage) -> bool:
    """Whether a superstep wrote something other than `message` and tool messages.

    `message` is then no longer the last message with open calls.
    """
    return any(
        not isinstance(written, ToolMessage | RemoveMessage) and not is_version_of(written, message)
        for _, messages in checkpoint.written(include_returned=False)
        for written in messages
    )
