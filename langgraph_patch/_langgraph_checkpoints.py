"""The private details of LangGraph's stored checkpoints.

A `CheckpointTuple` is public; what its channel values, versions and ids mean is not documented.
LangGraph stores them in databases, so it cannot change them without breaking old threads.

`tests/graph/test_langgraph_checkpoints.py` tests each function and constant. It fails if
LangGraph changes the detail.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from langgraph import channels
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import START

from langgraph_patch._langgraph_names import triggered_node

if TYPE_CHECKING:
    from langgraph.checkpoint.memory import InMemorySaver

NEWEST_FORMAT: Final = 4
"""The newest supported `checkpoint["v"]`, the format of a checkpoint."""

RUN_KEYS: Final = ("checkpoint_id", "checkpoint_map")
"""What `config["configurable"]` holds for one run only, beside the keys that start with `__`."""

_UUID6 = 6
"""Checkpoint ids are UUIDs of version 6: their order is the order of time."""

_DELTA_CHANNEL: Any = getattr(channels, "DeltaChannel", ())
"""The channel that stores its writes and only now and then its value; old versions lack it."""


def accepted_input(saved: CheckpointTuple) -> Any:
    """The input of a run that is stored and not yet applied to the state; None if there is none."""
    return saved.checkpoint["channel_values"].get(START)


def last_nodes(saved: CheckpointTuple) -> set[str]:
    """The nodes of the superstep that made a checkpoint, as far as edges triggered them.

    A node notes the version of the channel that triggered it. The newest versions are theirs.
    """
    seen: dict[str, Any] = {}
    for node, versions in (saved.checkpoint.get("versions_seen") or {}).items():
        triggers = [v for c, v in versions.items() if triggered_node(c) == node]
        if triggers:
            seen[node] = max(triggers)
    return {node for node, version in seen.items() if version == max(seen.values())}


def is_node_timeout(error: object) -> bool:
    """Whether a recorded error is LangGraph's for a node that took too long.

    A synchronous node goes on after that. Most checkpointers store the `repr` of the error.
    """
    text = error if isinstance(error, str) else repr(error)
    return text.startswith("NodeTimeoutError(") or type(error).__name__ == "NodeTimeoutError"


def later_checkpoint_id(checkpoint_id: str, ticks: int) -> str | None:
    """A checkpoint id that is `ticks` times 100 ns later; None if it is not a UUID of LangGraph's.

    Examples:
        >>> from langgraph_patch._langgraph_checkpoints import later_checkpoint_id
        >>> later_checkpoint_id("1ef4f797-8335-6428-8001-8a1503f9b875", 1)
        '1ef4f797-8335-6429-8001-8a1503f9b875'
    """
    try:
        old = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if old.version != _UUID6:
        return None
    # The layout: 48 bits of the time, 4 of the version, 12 of the time, 64 of other things.
    time = (old.int >> 80 << 12 | (old.int >> 64) & 0xFFF) + ticks
    rest = old.int & (2**64 - 1)
    return str(uuid.UUID(int=(time >> 12) << 80 | _UUID6 << 76 | (time & 0xFFF) << 64 | rest))


# --- values that a `DeltaChannel` spreads over checkpoints --------------------------------


def is_delta_channel(channel: Any) -> bool:
    """Whether the value of a channel is spread over the writes of many checkpoints."""
    return isinstance(channel, _DELTA_CHANNEL)


def is_delta_snapshot(value: object) -> bool:
    """Whether a stored value is the snapshot that a `DeltaChannel` stores now and then."""
    return isinstance(value, tuple) and getattr(value, "_fields", ()) == ("value",)


def whole_value(value: Any) -> Any:
    """A stored value, taken out of the snapshot that a `DeltaChannel` stores now and then."""
    # The snapshot is a named tuple, so it is a sequence too.
    return value if isinstance(value, list) else getattr(value, "value", value)


def wrote_in_older_superstep(task_id: str, other_id: str) -> bool:
    """Whether a task certainly wrote in an older superstep than another task.

    With durability "exit", LangGraph stores what later supersteps wrote to a `DeltaChannel` with
    the checkpoint of the first one. The ids of these tasks begin with `ffffffff`, then the number
    of the superstep.
    """
    return other_id.startswith("ffffffff-") and task_id[:18] < other_id[:18]


# --- the storage of an `InMemorySaver` ----------------------------------------------------


def keys_in_memory(saver: InMemorySaver) -> list[tuple[str, str]] | None:
    """The thread and the namespace of each history of an `InMemorySaver`.

    `list(None)` loads every checkpoint, so that one corrupt checkpoint would hide all threads.

    Returns:
        The pairs; None if the saver does not store checkpoints as expected.
    """
    storage = getattr(saver, "storage", None)
    if not isinstance(storage, dict) or not all(
        isinstance(each, dict) for each in list(storage.values())
    ):
        return None
    return [
        (thread_id, namespace)
        for thread_id, namespaces in list(storage.items())
        for namespace, checkpoints in list(namespaces.items())
        if checkpoints
    ]


def delete_from_memory(
    saver: InMemorySaver, thread_id: str, namespace: str, checkpoint_id: str
) -> bool | None:
    """Delete a checkpoint of an `InMemorySaver` if it is the newest and has no pending writes.

    Returns:
        Whether it was deleted; None if the saver does not store checkpoints as expected.
    """
    storage, writes = getattr(saver, "storage", None), getattr(saver, "writes", None)
    if not isinstance(storage, dict) or not isinstance(writes, dict):
        return None
    checkpoints = storage.get(thread_id, {}).get(namespace, {})
    place = (thread_id, namespace, checkpoint_id)
    if max(checkpoints, default=None) != checkpoint_id or writes.get(place):
        return False
    del checkpoints[checkpoint_id]
    writes.pop(place, None)
    return True
