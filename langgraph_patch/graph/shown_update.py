"""Set what the `updates` stream shows of a node that repairs.

A repair writes a state key twice, so LangGraph's own chunk is a list of dicts, with removals and
messages that are not new. Clients expect a dict. They see what is new: the tool messages that the
repair added, the state keys that it restored, and the node's own output. The state is written by
the node's output as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._langgraph_names import ROOT_CHANNEL
from langgraph_patch._langgraph_tasks import (
    is_node_of_task,
    show_in_updates,
    shown_keys,
    written_pairs,
)
from langgraph_patch.graph.effects import StateWrites
from langgraph_patch.graph.state_values import messages_before
from langgraph_patch.history.field_check import id_of, usable
from langgraph_patch.history.patch import Patch, is_marked_again


def new_results(patch: Patch) -> list[BaseMessage]:
    """The tool messages that a repair added."""
    old_ids = {id_of(message) for message in patch.before}
    return [
        message
        for message in patch.messages
        if isinstance(message, ToolMessage) and id_of(message) not in old_ids
    ]


def new_messages(patch: Patch) -> list[BaseMessage]:
    """What clients see of a repair: the new tool messages, or without any the changed messages.

    A placeholder of which only the marker changed is not shown.
    """
    unchanged = set(map(id, patch.before))
    old = {id_of(message): message for message in usable(patch.before)}
    return new_results(patch) or [
        message
        for message in patch.messages
        if id(message) not in unchanged and not is_marked_again(old.get(id_of(message)), message)
    ]


def show_repair(
    config: RunnableConfig,
    new: Mapping[str, Sequence[BaseMessage]],
    *,
    node: Sequence[object],
    restored: StateWrites = (),
    output: Any = None,
) -> None:
    """Set the `updates` chunk of the node that runs. Call it when the node has returned.

    Args:
        config: The config of the node.
        new: For each repaired history its state key and `new_messages`.
        node: What LangGraph runs as the node if the chunk may be set: the runnable, or the
            methods of it.
        restored: Writes to other state keys.
        output: The node's own output. Default: None, it has none.
    """
    keys = shown_keys(config)
    own = written_pairs(output, root=keys == ROOT_CHANNEL)
    if own is None or keys is None or not is_node_of_task(config, *node):
        return
    shown = {keys} if isinstance(keys, str) else set(keys)
    chunk = _chunk(
        {key: messages for key, messages in new.items() if key in shown},
        [pair for pair in restored if pair[0] in shown],
        [pair for pair in own if pair[0] in shown],
    )
    if not isinstance(keys, str):
        show_in_updates(config, chunk)
    elif keys in chunk:
        show_in_updates(config, chunk[keys])


def _chunk(
    new: Mapping[str, Sequence[BaseMessage]],
    restored: Sequence[tuple[str, Any]],
    own: Sequence[tuple[str, Any]],
) -> Any:
    chunk: dict[str, Any] = {key: [*messages] for key, messages in new.items()}
    for key, value in restored:
        chunk[key] = _joined(chunk[key], value) if key in chunk else value
    if len(dict(own)) < len(own):  # LangGraph shows a list of such an output anyway
        return [chunk, *({key: value} for key, value in own)]
    for key, value in own:
        if key in new:
            chunk[key] = messages_before(new[key], value)
        else:
            chunk[key] = _joined(chunk[key], value) if key in chunk else value
    return chunk


def _joined(one: Any, other: Any) -> Any:
    """Two values that are written to one key, as one value: the later one if they are scalars."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **other}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *other]
    return other
