"""Decide which other effects of a recovered result are restored with it, and which are named.

A tool may write more than its message: `write_file` writes `files`, a handoff goes to another
node. When its message is recovered, these writes are restored too, if nothing has changed their
channels since they were recorded. Otherwise the message names them, because the model would read
"Updated file" for a file that does not exist.

The effects of one task are restored together or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeAlias

from langgraph.channels import EphemeralValue, LastValue, UntrackedValue
from langgraph.types import Overwrite

from langgraph_patch.evidence.effects import Effects, are_equal
from langgraph_patch.evidence.recover import Recovery
from langgraph_patch.history.texts import Evidence

StateWrites: TypeAlias = tuple[tuple[str, Any], ...]
"""Writes of a state update, as pairs of key and value."""

GOTO = "goto"
"""The name of a lost `Command(goto=...)` among the effects that were not kept."""


def settle(
    recovery: Recovery,
    *,
    persist: bool,
    own_keys: AbstractSet[str],
    channels: Mapping[str, Any] | None = None,
    is_ahead: bool = False,
) -> tuple[Evidence, StateWrites]:
    """Decide about the effects of all recovered results.

    Args:
        recovery: What the checkpoints recorded.
        persist: Whether the repair is written to the state. If False, nothing is restored.
        own_keys: State keys that the caller writes itself. They are neither restored nor named.
        channels: The live channels. Default: None, then each key is written once at most.
        is_ahead: Whether the live channels may be newer than the newest checkpoint, as with
            durability "exit". Then their values are compared too. Default: False.

    Returns:
        The evidence, in which each result names the effects that are not kept, and the writes to
        add to the repair.
    """
    evidence = dict(recovery.evidence)
    writes: list[tuple[str, Any]] = []
    decided: dict[str, tuple[str, ...]] = {}  # by task: its calls share its writes
    for key, effects in recovery.effects.items():
        found = evidence.get(key)
        if found is None or found.result is None:
            continue
        if effects.task not in decided:
            pairs = [pair for pair in effects.writes if pair[0] not in own_keys]
            keep = persist and _can_restore(pairs, effects, writes, channels)
            keep = keep and not (is_ahead and _has_changed(pairs, effects, channels or {}))
            writes += pairs if keep else []
            decided[effects.task] = () if keep else _names(pairs, effects)
        if decided[effects.task]:
            names = (*found.not_kept, *decided[effects.task])
            evidence[key] = replace(found, not_kept=names)
    return evidence, tuple(writes)


def _can_restore(
    pairs: Iterable[tuple[str, Any]],
    effects: Effects,
    before: Iterable[tuple[str, Any]],
    channels: Mapping[str, Any] | None,
) -> bool:
    keys = [key for key, _ in pairs]
    taken = {key for key, _ in before}
    once = [key for key in keys if channels is None or is_written_once(channels.get(key))]
    return (
        not effects.goto
        and effects.unchanged.issuperset(keys)
        and (channels is None or all(key in channels for key in keys))
        and len(set(once)) == len(once)
        and taken.isdisjoint(once)
    )


def _has_changed(
    pairs: Iterable[tuple[str, Any]], effects: Effects, channels: Mapping[str, Any]
) -> bool:
    """Whether a live value differs from the one before the writes."""
    old = effects.values
    for key in {key for key, _ in pairs}:
        channel = channels.get(key)
        live = [channel.get()] if channel is not None and channel.is_available() else []
        if live and key not in old and not is_written_once(channel) and _is_empty(live[0]):
            live = []  # a reducer has an empty value before the first write, which is not stored
        if bool(live) != (key in old) or (live and not are_equal(live[0], old[key])):
            return True
    return False


def _is_empty(value: object) -> bool:
    return isinstance(value, Collection) and not len(value)


def _names(pairs: Iterable[tuple[str, Any]], effects: Effects) -> tuple[str, ...]:
    return (*sorted({key for key, _ in pairs}), *([GOTO] if effects.goto else []))


def is_written_once(channel: Any) -> bool:
    """Whether a channel accepts one write in a superstep only, so that a second is an error."""
    if isinstance(channel, EphemeralValue | UntrackedValue):
        return bool(channel.guard)
    return channel is None or isinstance(channel, LastValue)


def one_write_each(channels: Mapping[str, Any], writes: StateWrites) -> dict[str, Any]:
    """One value for each key, with the effect of all its writes: an `Overwrite` of several."""
    by_key: dict[str, list[Any]] = {}
    for key, value in writes:
        by_key.setdefault(key, []).append(value)
    found = {}
    for key, values in by_key.items():
        if len(values) == 1:
            found[key] = values[0]
        else:
            trial = channels[key].copy()
            trial.update(values)
            found[key] = Overwrite(trial.get())
    return found
