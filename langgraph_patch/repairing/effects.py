"""Restore the effects of recovered results, or name those that are not kept.

They are restored with the result if nothing has written their keys since. Otherwise the message
names them. The effects of one task are restored together or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from langgraph.channels import EphemeralValue, LastValue, UntrackedValue
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Overwrite

from langgraph_patch._langgraph import storage
from langgraph_patch._sansio import IOGenerator, method_request
from langgraph_patch.evidence.effects import Effects
from langgraph_patch.evidence.superstep import Task
from langgraph_patch.history.comparing import is_equal
from langgraph_patch.history.findings import Evidence

_ONE_VALUE = (LastValue, EphemeralValue, UntrackedValue)
"""Channels that accept one write in a superstep: a second one is an error."""

_GOTO = "goto"
"""The name of a lost `Command(goto=...)` among the effects that were not kept."""


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
                delta = yield method_request(saver, "get_delta_channel_history", **request)
                then = channel.from_checkpoint(delta[key].get("seed", channel.checkpoint()))
                then.replay_writes(delta[key].get("writes", ()))
                if is_equal(then.get(), channel.get()):
                    unchanged.add(key)
        found[call_key] = replace(each, unchanged=frozenset(unchanged))
    return found


def settle(
    evidence: Evidence,
    effects: Mapping[tuple[int, int], Effects],
    *,
    restore: bool,
    own_keys: AbstractSet[str],
    channels: Mapping[str, Any],
) -> tuple[Evidence, Sequence[tuple[str, Any]]]:
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


def one_write_each(
    channels: Mapping[str, Any], writes: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
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
