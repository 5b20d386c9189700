"""Make checkpoints of what LangGraph Server's API shows of a thread.

The API has the state of each checkpoint and, of each task of the superstep that followed it, the
path, the result, the error and the interrupts. From these, `checkpoint_of` makes the checkpoint
that a checkpointer would return, so that the rest of the package reads both alike. The API hides:

- the payload of a `Send`. `_sends` derives it where only one reading is possible;
- the answers to interrupts. The caller learns them from the list of runs;
- the versions of channels;
- the checkpoints of a graph that a tool runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, TASKS
from langgraph.types import Interrupt, Send

from langgraph_patch._langgraph_storage import (
    NEWEST_FORMAT,
    NO_TASK,
    ROOT_CHANNEL,
    is_reserved,
    send_index,
    trigger_channel,
)
from langgraph_patch.history.calls import read_calls

_TOOLS = "tools"
"""LangGraph's name for the node that runs tools: each `Send` to it carries one call."""

_NO_WRITES = "__no_writes__"
"""The channel that LangGraph uses for a task that finished without a write."""

_SEVERAL = "$writes"
"""How the API shows a channel to which a task wrote more than once."""


def checkpoint_of(state: Mapping[str, Any], *, is_answered: bool) -> CheckpointTuple:
    """The checkpoint and its pending writes, as a checkpointer would return them.

    Args:
        state: A `ThreadState` of the API.
        is_answered: Whether an answer to an interrupt of this checkpoint was sent.

    Examples:
        >>> from langgraph_patch.threads.server_json import checkpoint_of
        >>> state = {"values": {"messages": [{"type": "human", "content": "hi", "id": "h1"}]},
        ...          "checkpoint": {"thread_id": "1", "checkpoint_id": "c1"}, "tasks": [],
        ...          "metadata": {"step": 3}, "created_at": "2026-01-01T00:00:00+00:00"}
        >>> saved = checkpoint_of(state, is_answered=False)
        >>> saved.checkpoint["channel_values"]["messages"][0].content
        'hi'
    """
    tasks: Sequence[Mapping[str, Any]] = state.get("tasks") or ()
    values = _values_of(state)
    triggers = {
        trigger_channel(task["name"]): None
        for task in tasks
        if send_index(task["path"]) is None and not is_reserved(task["name"])
    }
    sends = _sends(tasks, values)
    metadata: Any = state.get("metadata") or {}
    named, parent = state["checkpoint"], state.get("parent_checkpoint")
    writes = [write for task in tasks for write in _writes_of(task)]
    if is_answered:
        writes.append((NO_TASK, RESUME, None))
    return CheckpointTuple(
        config=_config_of(named),
        checkpoint={
            "v": NEWEST_FORMAT,
            "id": named["checkpoint_id"],
            "ts": str(state.get("created_at") or ""),
            "channel_values": {**values, **triggers, **({TASKS: sends} if sends else {})},
            # The API hides the versions. These differ, so that values are compared instead.
            "channel_versions": dict.fromkeys([*values, *triggers], named["checkpoint_id"]),
            "versions_seen": {},
            "updated_channels": None,
        },
        metadata=metadata,
        parent_config=_config_of(parent) if parent else None,
        pending_writes=writes,
    )


def _values_of(state: Mapping[str, Any]) -> dict[str, Any]:
    values = state.get("values")
    if isinstance(values, Mapping):
        return {key: with_messages(value) for key, value in values.items()}
    return {} if values is None else {ROOT_CHANNEL: with_messages(values)}


def _config_of(checkpoint: Mapping[str, Any]) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": str(checkpoint["thread_id"]),
            "checkpoint_ns": checkpoint.get("checkpoint_ns") or "",
            "checkpoint_id": checkpoint["checkpoint_id"],
        }
    }


# --- messages ----------------------------------------------------------------------------


def with_messages(value: Any) -> Any:
    """A JSON value in which each message, alone or in a list, is a message object.

    LangChain's `convert_to_messages` would move `usage_metadata` and `invalid_tool_calls` to
    `additional_kwargs`. This keeps every field.
    """
    if isinstance(value, list):
        return [_message_of(item) for item in value]
    return _message_of(value)


def _message_of(value: Any) -> Any:
    if not (isinstance(value, Mapping) and "type" in value and "id" in value):
        return value
    try:
        [message] = messages_from_dict([{"type": value["type"], "data": dict(value)}])
    except (ValueError, TypeError, KeyError, AttributeError):  # LangChain does not check all
        return _damaged_message(value)
    return message


_KINDS: Mapping[str, type[BaseMessage]] = {
    "ai": AIMessage,
    "human": HumanMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
}


def _damaged_message(value: Mapping[str, Any]) -> Any:
    """A message with a field that LangChain refuses, as LangGraph's serializer would load it.

    Anything else is a value of the application, and stays as it is.
    """
    kind = value["type"]
    if not isinstance(kind, str) or kind not in _KINDS or "content" not in value:
        return value
    return _KINDS[kind].model_construct(**value)


# --- tasks -------------------------------------------------------------------------------


def _writes_of(task: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The pending writes of a task."""
    task_id: str = task["id"]
    if task.get("interrupts"):
        raised = [Interrupt(value=each.get("value"), id=each["id"]) for each in task["interrupts"]]
        yield task_id, INTERRUPT, raised
    if task.get("error") is not None:
        yield task_id, ERROR, str(task["error"])
    result = task.get("result")
    if isinstance(result, Mapping):
        for channel, value in result.items():
            several = isinstance(value, Mapping) and value.keys() == {_SEVERAL}
            for each in value[_SEVERAL] if several else [value]:
                yield task_id, channel, with_messages(each)
    elif result is not None:
        yield task_id, ROOT_CHANNEL, with_messages(result)
    if result is not None and not result:
        yield task_id, _NO_WRITES, None


def _sends(tasks: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> list[Send]:
    """The `Send`s of the superstep, each with its call if it is certain which one it carried.

    Both agents of LangGraph send one call each, in the order of the last message. So that is
    certain if there is one task of the node `tools` for each open call, each result confirms it,
    and the tasks without a result are one, or have all ended alike.
    """
    sent = {index: t for t in tasks if (index := send_index(t["path"])) is not None}
    if {task["name"] for task in sent.values()} == {_TOOLS}:
        for messages in values.values():
            calls = _open_calls(messages)
            if sorted(sent) == list(range(len(calls))) and _agrees(sent, calls):
                return [Send(_TOOLS, [call]) for call in calls]
    return [Send(task["name"], None) for task in sent.values()]


def _open_calls(messages: Any) -> list[dict[str, Any]]:
    """The calls of the last message with calls that no later message answers."""
    if not isinstance(messages, list):
        return []
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            calls = read_calls(message)
            return [
                {"name": call.name, "args": call.args, "id": call.id, "type": "tool_call"}
                for call in calls
                if call.id not in answered
            ]
    return []


def _agrees(sent: Mapping[int, Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> bool:
    left = []
    for index, task in sent.items():
        results = _results_of(task)
        if not results:
            left.append((bool(task.get("interrupts")), task.get("error")))
        elif [result.tool_call_id for result in results] != [calls[index]["id"]]:
            return False
    return len(set(left)) <= 1


def _results_of(task: Mapping[str, Any]) -> list[ToolMessage]:
    found: list[BaseMessage | Any] = []
    for _, _, value in _writes_of(task):
        found += value if isinstance(value, list) else [value]
    return [message for message in found if isinstance(message, ToolMessage)]
