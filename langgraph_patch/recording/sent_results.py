"""Find the result of a call that the task of a `Send` finished before an `update_state`.

LangGraph keeps what such a task wrote, but `update_state` makes a new checkpoint with new tasks.
The result is then in the writes of the old task, in the checkpoint before the update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Command

from langgraph_patch._langgraph_names import is_reserved, triggered_node
from langgraph_patch._langgraph_prebuilt import sent_call
from langgraph_patch.recording.records import (
    STARTED,
    CallKey,
    hash_of_call,
    start_marks_in,
)

_BRANCH: Final = "branch:to:"
"""The prefix of the channels that a `goto` or an edge writes to start a node."""


def find_sent_result(
    supersteps: Sequence[CheckpointTuple], call: CallKey, request_hash: str
) -> ToolMessage | Command[Any] | None:
    """What the `ToolNode` received from a finished call, or None.

    Args:
        supersteps: The checkpoint that the node runs on, whose tasks LangGraph keeps itself. Then
            the earlier checkpoints with the same superstep, because only `update_state` was
            called since.
        call: The call.
        request_hash: The `hash_of_call` of the call.
    """
    for saved in supersteps[1:]:
        for task_id in _tasks_of(saved, call, request_hash):
            own = [
                (channel, value)
                for task, channel, value in saved.pending_writes or ()
                if task == task_id
            ]
            result = _result_of(own, call.call_id)
            if result is not None:
                return result
    return None


def _tasks_of(saved: CheckpointTuple, call: CallKey, request_hash: str) -> list[str]:
    """The tasks that ran this very call in the superstep after a checkpoint, the last first."""
    if call.message_id is None:
        return []
    if any(channel == STARTED for _, channel, _ in saved.pending_writes or ()):
        marks = start_marks_in(saved, call.message_id, call.call_id, request_hash=request_hash)
        own = [m for m in marks if (m.message_id, m.node) == (call.message_id, call.node)]
        return [mark.task_id for mark in reversed(own)]
    return _tasks_without_marks(saved, call, request_hash)


def _tasks_without_marks(saved: CheckpointTuple, call: CallKey, request_hash: str) -> list[str]:
    """The same for durability "exit", where no start is marked: only if it is certain."""
    channels = saved.checkpoint["channel_values"]
    sends = [send for send in channels.get(TASKS) or () if send.node == call.node]
    sent = [s for s in sends if (sent_call(s) or {}).get("id") == call.call_id]
    if len(sent) != 1 or not _makes_call(channels.values(), call, request_hash):
        return []
    writers = {
        task
        for task, _, value in saved.pending_writes or ()
        if any(message.tool_call_id == call.call_id for message in _tool_messages(value))
    }
    return list(writers) if len(writers) == 1 else []


def _makes_call(values: Iterable[Any], call: CallKey, request_hash: str) -> bool:
    """Whether a stored history has the message, with the call as it is now."""
    messages = [m for value in values if isinstance(value, list) for m in value]
    return any(
        made["id"] == call.call_id and hash_of_call(message.tool_calls, index) == request_hash
        for message in messages
        if isinstance(message, AIMessage) and message.id == call.message_id
        for index, made in enumerate(message.tool_calls)
    )


def _result_of(
    writes: Sequence[tuple[str, Any]], call_id: str | None
) -> ToolMessage | Command[Any] | None:
    """The result that a task wrote; None if it did not finish, or started other tasks."""
    if any(channel == TASKS for channel, _ in writes):
        return None
    values = [(c, v) for c, v in writes if not (is_reserved(c) or triggered_node(c))]
    messages = [message for _, value in values for message in _tool_messages(value)]
    if not any(message.tool_call_id == call_id for message in messages):
        return None
    if len(values) == 1 and len(messages) == 1:
        return messages[0]
    targets = [triggered_node(channel) for channel, _ in writes if channel.startswith(_BRANCH)]
    return Command(update=values, goto=[target for target in targets if target])


def _tool_messages(value: object) -> Iterator[ToolMessage]:
    """The tool messages of one write."""
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, ToolMessage):
            yield part
