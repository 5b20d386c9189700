"""Make checkpoints of what the API of a LangGraph Server shows.

The API has the state of each checkpoint and, of each task of the superstep that followed it, the
path, the result, the error and the interrupts. From these, `checkpoint_of` makes the checkpoint
that a checkpointer would return. The API hides the versions of channels, and the payload of a
`Send`: `_sends` derives it where only one reading is possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any

from langchain_core.messages import ToolMessage, messages_from_dict
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.types import Interrupt, Send

from langgraph_patch._langgraph_storage import (
    NEWEST_FORMAT,
    ROOT_CHANNEL,
    is_reserved,
    send_index,
    trigger_channel,
)
from langgraph_patch.evidence.address import Address
from langgraph_patch.graph.state import listed, open_calls

_TOOLS = "tools"
"""LangGraph's name for the node that runs tools: each `Send` to it carries one call."""

_NO_WRITES = "__no_writes__"
"""The channel that LangGraph uses for a task that finished without a write."""

_SEVERAL = "$writes"
"""How the API shows a channel to which a task wrote more than once."""


def checkpoint_of(state: Mapping[str, Any]) -> CheckpointTuple:
    """The checkpoint and its pending writes, as a checkpointer would return them.

    Args:
        state: A `ThreadState` of the API.

    Examples:
        >>> from langgraph_patch.threads.server_json import checkpoint_of
        >>> state = {"values": {"messages": [{"type": "human", "content": "hi", "id": "h1"}]},
        ...          "checkpoint": {"thread_id": "1", "checkpoint_id": "c1"}, "tasks": [],
        ...          "metadata": {"step": 3}, "created_at": "2026-01-01T00:00:00+00:00"}
        >>> checkpoint_of(state).checkpoint["channel_values"]["messages"][0].content
        'hi'
    """
    tasks: Sequence[Mapping[str, Any]] = state.get("tasks") or ()
    values = _values_of(state.get("values"))
    triggers = {
        trigger_channel(task["name"]): None
        for task in tasks
        if send_index(task["path"]) is None and not is_reserved(task["name"])
    }
    sends = _sends(tasks, values)
    metadata: Any = state.get("metadata") or {}
    named, parent = state["checkpoint"], state.get("parent_checkpoint")
    return CheckpointTuple(
        config=Address.of({"configurable": _named(named)}).config,
        checkpoint={
            "v": NEWEST_FORMAT,
            "id": named["checkpoint_id"],
            "ts": str(state["created_at"]),
            "channel_values": {**values, **triggers, **({TASKS: sends} if sends else {})},
            # The API hides the versions. These differ, so that values are compared instead.
            "channel_versions": dict.fromkeys([*values, *triggers], named["checkpoint_id"]),
            "versions_seen": {},
            "updated_channels": None,
        },
        metadata=metadata,
        parent_config=Address.of({"configurable": _named(parent)}).config if parent else None,
        pending_writes=[write for task in tasks for write in _writes_of(task)],
    )


def _named(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {name: checkpoint[name] for name in names if name in checkpoint}


# --- its values ------------------------------------------------------------------------------


def _values_of(written: Any) -> dict[str, Any]:
    """What a state, or the result of a task, has in each channel."""
    if written is None:
        return {}
    channels = written if isinstance(written, Mapping) else {ROOT_CHANNEL: written}
    return {key: with_messages(value) for key, value in channels.items()}


def with_messages(value: Any) -> Any:
    """A JSON value in which each message, alone or in a list, is a message object.

    LangChain's `convert_to_messages` would move `usage_metadata` and `invalid_tool_calls` to
    `additional_kwargs`. This keeps every field. What LangChain refuses stays as it is.
    """
    if isinstance(value, list):
        return [with_messages(item) for item in value]
    if isinstance(value, Mapping) and "type" in value and "id" in value:
        with suppress(ValueError, TypeError, KeyError, AttributeError):  # it does not check all
            return messages_from_dict([{"type": value["type"], "data": dict(value)}])[0]
    return value


# --- its tasks -------------------------------------------------------------------------------


def _writes_of(task: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """The pending writes of a task."""
    task_id: str = task["id"]
    if task.get("interrupts"):
        raised = [Interrupt(value=each.get("value"), id=each["id"]) for each in task["interrupts"]]
        yield task_id, INTERRUPT, raised
    if task.get("error") is not None:
        yield task_id, ERROR, str(task["error"])
    result = task.get("result")
    for channel, value in _values_of(result).items():
        several = isinstance(value, Mapping) and value.keys() == {_SEVERAL}
        for each in value[_SEVERAL] if several else [value]:
            yield task_id, channel, with_messages(each)
    if result is not None and not result:
        yield task_id, _NO_WRITES, None


def _sends(tasks: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> list[Send]:
    """The `Send`s of the superstep, each with its call if it is certain which one it carried.

    Both agents of LangGraph send each open call of the last message to the node `tools`. A result
    names its call. If the other tasks have all ended alike, it does not matter which has which of
    the other calls.
    """
    sent = {index: task for task in tasks if (index := send_index(task["path"])) is not None}
    in_order = [sent[index] for index in sorted(sent)]
    results = [_results_of(task) for task in in_order]
    ends = [
        (bool(task.get("interrupts")), task.get("error"), task.get("result") is None)
        for task, ids in zip(in_order, results, strict=True)
        if not ids
    ]
    if {*map(itemgetter("name"), in_order)} == {_TOOLS} and len(set(ends)) <= 1:
        for history in filter(None, map(listed, values.values())):
            calls = {call["id"]: call for call in open_calls(history).values()}
            rest = [call for call_id, call in calls.items() if [call_id] not in results]
            if len(calls) == len(in_order) and len(rest) == len(ends):
                return [Send(_TOOLS, [calls[ids[0]] if ids else rest.pop(0)]) for ids in results]
    return [Send(task["name"], None) for task in in_order]


def _results_of(task: Mapping[str, Any]) -> list[str]:
    """The id of the call of each result that a task wrote."""
    written = [value for _, _, value in _writes_of(task)]
    messages = [each for value in written for each in listed(value)]
    return [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
