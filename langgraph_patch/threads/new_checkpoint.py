"""Make the checkpoint that a repair writes behind the one that it repairs. Nothing is written here.

It has the values of the old one, changed by what finished tasks wrote and by the repair, and
nothing that starts a task. The values of state keys change through the channels of the graph, as in
a superstep of LangGraph. A run that continues from it does nothing; the next message starts a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    empty_checkpoint,
)

from langgraph_patch._langgraph_storage import (
    NEWEST_FORMAT,
    NO_TASK,
    is_delta_channel,
    later_checkpoint_id,
    state_keys,
    triggered_node,
)
from langgraph_patch.evidence.effects import StateWrites
from langgraph_patch.evidence.tasks import Step
from langgraph_patch.threads.plan import Refused
from langgraph_patch.threads.stored import MARK, starting_channels


def finished_writes(step: Step) -> list[StateWrites]:
    """What was written to the state in a superstep that has not ended: by a client, and by tasks.

    The writes are in the order in which LangGraph applies them.

    Raises:
        Stopped: If a task is not one of the superstep: LangGraph would drop its writes.
    """
    client = [task for task in step.others if task.id == NO_TASK]
    unknown = [task for task in step.others if task.id != NO_TASK]
    if any(state_keys(channel for channel, _ in task.writes) for task in unknown):
        raise Refused("work has finished in this thread that belongs to no task of it")
    return [
        tuple(write for task in tasks for write in task.writes if _is_state(write[0], step))
        for tasks in (client, step.tasks)
    ]


def _is_state(channel: str, step: Step) -> bool:
    return channel == step.messages_key or bool(state_keys([channel]))


def updated(
    channels: Mapping[str, Any], values: Mapping[str, Any], batches: Iterable[StateWrites]
) -> dict[str, Any]:
    """The values of the state keys to which something was written.

    Args:
        channels: The channels of the graph.
        values: The values of all state keys; whole, also those of a `DeltaChannel`.
        batches: The writes, one superstep after the other.
    """
    changed: dict[str, Any] = {}
    for writes in batches:
        for key in dict.fromkeys(key for key, _ in writes):
            old = {**values, **changed}
            empty = channels[key].copy()
            channel = empty.from_checkpoint(old[key]) if key in old else empty
            channel.update([value for name, value in writes if name == key])
            changed[key] = channel.get() if is_delta_channel(channel) else channel.checkpoint()
    return changed


def checkpoint_after(
    base: CheckpointTuple, saver: BaseCheckpointSaver[Any], changed: Mapping[str, Any]
) -> CheckpointTuple:
    """The checkpoint behind another one, with other values of some state keys, and without tasks.

    Args:
        base: The other one.
        saver: Its checkpointer.
        changed: The values of the state keys that change.
    """
    old, starting = base.checkpoint, starting_channels(base)
    values = {c: value for c, value in old["channel_values"].items() if c not in starting}
    versions = dict(old["channel_versions"])
    seen = {node: dict(own) for node, own in old["versions_seen"].items()}
    for channel in starting:
        if (node := triggered_node(channel)) and channel in versions:
            seen.setdefault(node, {})[channel] = versions[channel]  # as if the node had run
    for key in {*starting, *changed}:
        versions[key] = saver.get_next_version(versions.get(key), None)
    checkpoint: Checkpoint = {
        "v": NEWEST_FORMAT,  # so that LangGraph does not read triggers with names of old versions
        "id": _id_after(base),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": {**values, **changed},
        "channel_versions": versions,
        "versions_seen": seen,
        "updated_channels": None,
    }
    step = base.metadata.get("step", -1) + 1
    metadata: Any = {**base.metadata, "source": "update", "step": step, **MARK}
    return CheckpointTuple(base.config, checkpoint, metadata)


def _id_after(base: CheckpointTuple) -> str:
    """The id of a checkpoint directly behind another one: a later one is never hidden by it.

    Raises:
        Stopped: If no id of LangGraph sorts after that of the other one.
    """
    old = base.checkpoint["id"]
    new = later_checkpoint_id(old, 1) or empty_checkpoint()["id"]
    if new <= old:
        raise Refused(
            f"the id of its newest checkpoint, {old!r}, sorts after every id of LangGraph, so no "
            f"repair can become the newest one"
        )
    return new
