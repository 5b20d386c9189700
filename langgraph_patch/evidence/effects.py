"""What a task wrote beside a recorded result: the effects of the call.

LangGraph drops all writes of an abandoned superstep. The result is recovered from them, so it may
state effects that the state does not have: "Updated file", "Successfully transferred to bob".
These writes are restored with the result if nothing has written their keys since. Otherwise the
message names them. The effects of one task are restored together or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from langgraph.channels import EphemeralValue, LastValue, UntrackedValue
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Overwrite, Send

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.graphs import leads_to_model
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.evidence.superstep import Superstep, Task
from langgraph_patch.history.comparing import is_equal
from langgraph_patch.history.findings import Evidence

StateWrites: TypeAlias = tuple[tuple[str, Any], ...]
"""Writes of a state update, as pairs of key and value."""

_ONE_VALUE = (LastValue, EphemeralValue, UntrackedValue)
"""Channels that accept one write in a superstep: a second one is an error."""

_GOTO = "goto"
"""The name of a lost `Command(goto=...)` among the effects that were not kept."""


@dataclass(frozen=True, slots=True)
class Effects:
    """The other writes of the task that recorded a result, which the state does not have.

    Attributes:
        writes: The state key and the value of each write.
        unchanged: The keys that nothing has written since. Applying the writes now has the same
            effect as then.
        goes_elsewhere: Whether the task started a node that no edge starts.
        task: The task. Results of one task have the same writes.
        is_current: Whether its superstep is the current one, so that they will be applied.
    """

    writes: StateWrites
    unchanged: frozenset[str]
    goes_elsewhere: bool
    task: Task
    is_current: bool


def effects_of(task: Task, newest: Superstep) -> Effects | None:
    """The effects of a task; None if it had none, or if they were applied.

    Args:
        task: The task.
        newest: The superstep after the current checkpoint of the graph that has the call.
    """
    step = task.step
    writes = [
        (channel, value)
        for channel, value in task.writes
        if channel != step.messages_key
        and not (storage.triggered_node(channel) or storage.is_reserved(channel))
    ]
    goes_elsewhere = _goes_elsewhere(task)
    if step.was_applied or not (writes or goes_elsewhere):
        return None
    keys = {key for key, _ in writes if _is_unchanged(key, step, newest)}
    is_current = (step.id, step.namespace) == (newest.id, newest.namespace)
    return Effects(tuple(writes), frozenset(keys), goes_elsewhere, task, is_current=is_current)


def _is_unchanged(key: str, step: Superstep, newest: Superstep) -> bool:
    """Whether nothing has written a state key since a superstep, and nothing is about to."""
    if step.namespace != newest.namespace:
        return False
    old, new = (each.saved.checkpoint["channel_versions"].get(key) for each in (step, newest))
    return old == new and (
        step.id == newest.id or not any(task.written_to(key) for task in newest.writers)
    )


def with_unchanged_deltas(
    saver: BaseCheckpointSaver[Any],
    effects: Mapping[tuple[int, int], Effects],
    channels: Mapping[str, Any],
) -> IOGenerator[Mapping[tuple[int, int], Effects]]:
    """The effects, with the unchanged keys in a `DeltaChannel` among those that are unchanged.

    LangGraph gives each `DeltaChannel` with pending writes a new version when an input drops them.
    So its values are compared: that of then, and the live one.
    """
    found = {}
    for call_key, each in effects.items():
        unchanged = set(each.unchanged)
        for key in sorted({key for key, _ in each.writes} - unchanged):
            channel: Any = channels.get(key)
            if storage.is_delta_channel(channel):
                request = {"config": each.task.step.address.config, "channels": [key]}
                delta = yield from call_method(saver, "get_delta_channel_history", **request)
                then = channel.from_checkpoint(delta[key].get("seed", channel.checkpoint()))
                then.replay_writes(delta[key].get("writes", ()))
                if is_equal(then.get(), channel.get()):
                    unchanged.add(key)
        found[call_key] = replace(each, unchanged=frozenset(unchanged))
    return found


def _goes_elsewhere(task: Task) -> bool:
    """Whether a task started another node than the model, which runs in the next turn anyway."""
    edges = {storage.triggered_node(c) or "" for c, _ in task.writes if c.startswith("branch:to:")}
    sends = {value.node for c, value in task.writes if c == TASKS and isinstance(value, Send)}
    left = (edges | sends) - storage.last_nodes(task.step.saved)
    return not all(map(leads_to_model, left))


# --- restore, or name ---------------------------------------------------------------------------


def settle(
    evidence: Evidence,
    effects: Mapping[tuple[int, int], Effects],
    *,
    restore: bool,
    own_keys: AbstractSet[str],
    channels: Mapping[str, Any],
) -> tuple[Evidence, StateWrites]:
    """Decide about the effects of all recovered results.

    Args:
        evidence: What the checkpoints recorded of each call.
        effects: The dropped effects of the recorded results that had any.
        restore: Whether the repair is written to the state. If False, nothing is restored.
        own_keys: State keys that the caller writes itself. They are neither restored nor named.
        channels: The live channels.

    Returns:
        The evidence, in which each result names the effects that are not kept, and the writes to
        add to the repair.
    """
    settled = dict(evidence)
    writes: list[tuple[str, Any]] = []
    lost: dict[Task, tuple[str, ...]] = {}  # the calls of a task share its writes
    for key, effect in effects.items():
        if effect.is_current:
            continue
        task = effect.task
        pairs = [pair for pair in effect.writes if pair[0] not in own_keys]
        names = {name for name, _ in pairs}
        if task not in lost:
            lost[task] = (*sorted(names), *((_GOTO,) if effect.goes_elsewhere else ()))
            if restore and _can_restore(pairs, effect, writes, channels):
                writes += pairs
                lost[task] = ()
        if lost[task]:
            # What has written a key since may have been a repair that restored it.
            may_be_kept = not names <= effect.unchanged
            settled[key] = replace(settled[key], not_kept=lost[task], may_be_kept=may_be_kept)
    return settled, tuple(writes)


def _can_restore(
    pairs: Collection[tuple[str, Any]],
    effects: Effects,
    before: Iterable[tuple[str, Any]],
    channels: Mapping[str, Any],
) -> bool:
    keys = {key for key, _ in pairs}
    once = [key for key, _ in (*before, *pairs) if isinstance(channels.get(key), _ONE_VALUE)]
    is_unchanged = keys <= effects.unchanged and keys <= channels.keys()
    return is_unchanged and not effects.goes_elsewhere and len(set(once)) == len(once)


def one_write_each(channels: Mapping[str, Any], writes: StateWrites) -> dict[str, Any]:
    """One value for each key, with the effect of all its writes: an `Overwrite` of several."""
    by_key: dict[str, list[Any]] = {}
    for key, value in writes:
        by_key.setdefault(key, []).append(value)
    found = {}
    for key, values in by_key.items():
        found[key] = values[0]
        if len(values) > 1:  # so the channel has a reducer
            trial = channels[key].copy()
            for value in values:  # they may be of several supersteps
                trial.update([value])
            found[key] = Overwrite(trial.get())
    return found
