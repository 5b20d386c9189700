"""Decide which result belongs to which call.

Providers use ids again, and an id that is used again is another call. So results are paired in
document order and not by a set of ids:

1. A result belongs to the nearest earlier message that has a call of its id, never to an older
   one.
2. In that message the tool that it names must be that of the call. A missing name agrees with
   any. A name that no call of this id has agrees if the result stands directly after the message
   or among its other results. The call may be one that a repair renamed from the id, if the call
   that kept the id has a result too.
3. Equally many results as calls that match them pair in order. Fewer results than calls that
   match equally well are paired with none of them.
4. A result of a tool is preferred to a placeholder of another package.
5. A result before its call is paired only if nothing but results is stored between them, and
   the names agree. If it could be the result of an older call too, because the nearer calls of
   its id name other tools, it is paired with neither.

A result that is not paired is a duplicate or an orphan.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from langgraph_patch.history.call_index import (
    MAX_STEM_MATCHES,
    CallIndex,
    is_renamed_from,
    is_stem,
    key_of_result,
    keys_of_call,
)
from langgraph_patch.history.ids import stem_of
from langgraph_patch.history.paired_calls import CallingMessage, PairedCall, StoredResult


def pair(
    calling_messages: Mapping[int, CallingMessage],
    stored_results: Mapping[int, Sequence[StoredResult]],
) -> None:
    """Find the call of each result.

    First results that name a call, then results that name only a tool, then human messages
    that are a result only if the call has no other. Placeholders get what is left.
    """
    passes: dict[bool | None, dict[int, list[StoredResult]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index, parts in stored_results.items():
        for stored in parts:
            names_call = stored.result.call_id is not None
            passes[names_call if stored.result.is_certain else None][index].append(stored)
    calls = CallIndex(calling_messages, stored_results)
    placeholders: list[_Group] = []
    for kind in (True, False, None):
        if results := passes.get(kind):
            groups, early = _grouped(results, calls)
            placeholders += groups
            for group in groups:
                _pair_group(group, calls)
            _pair_early_results(early, calls)
    for group in placeholders:
        made = [stored for stored in group.results if stored.is_placeholder]
        _pair_in_order(group.calls, made, group.names)


# --- the nearest earlier message that has a call of a result ---------------------------


@dataclass(slots=True)
class _Group:
    """The results of one key that come after one message, and the calls they may belong to."""

    key: Hashable
    index: int
    calls: list[PairedCall]
    names: set[str]
    """The tools that calls of this key name, in the whole history."""
    results: list[StoredResult] = field(default_factory=list)


def _grouped(
    results: Mapping[int, Sequence[StoredResult]], calls: CallIndex
) -> tuple[list[_Group], dict[int, list[StoredResult]]]:
    """The results by the nearest earlier message with a call of theirs, and those without one."""
    groups: dict[tuple[int, Hashable], _Group] = {}
    early: dict[int, list[StoredResult]] = defaultdict(list)
    nearest: dict[Hashable, int] = {}
    stems: dict[Hashable, list[PairedCall]] = defaultdict(list)
    for index in sorted(calls.messages.keys() | results.keys()):
        if index in calls.messages:
            for paired in calls.messages[index].calls:
                for key in keys_of_call(paired.call):
                    nearest[key] = index
                    if is_stem(key):
                        stems[key].append(paired)
        for stored in results.get(index, ()):
            place = _place_of(stored, nearest, stems, calls)
            if place is None:
                early[index].append(stored)
                continue
            if _may_be_early(stored, place[0], stems, calls):
                continue
            if place not in groups:
                groups[place] = _group(*place, calls)
            groups[place].results.append(stored)
    return list(groups.values()), early


def _group(index: int, key: Hashable, calls: CallIndex) -> _Group:
    if isinstance(key, tuple) and key[0] == "renamed":
        found = calls.renamed(index, key[1])
        return _Group(key, index, found, calls.names_of(("id", key[1])))
    return _Group(key, index, calls.by_place[index, key], calls.names_of(key))


def _place_of(
    stored: StoredResult,
    nearest: Mapping[Hashable, int],
    stems: Mapping[Hashable, Sequence[PairedCall]],
    calls: CallIndex,
) -> tuple[int, Hashable] | None:
    """The index of the message and the key of the calls that a result may belong to."""
    key = key_of_result(stored.result)
    exact = nearest.get(key)
    renamed = _nearest_renamed(stored, stems, calls)
    if renamed is not None and (exact is None or renamed > exact):
        return renamed, ("renamed", stored.result.call_id)
    if exact is None:
        return None
    place, names = (exact, key), calls.names_of(key)
    if stored.label not in {None, *names} and calls.before[stored.index] > exact:
        return None
    agrees = _agrees(stored.label, calls.names_at[place], names)
    return place if agrees or renamed == exact else None


def _nearest_renamed(
    stored: StoredResult, stems: Mapping[Hashable, Sequence[PairedCall]], calls: CallIndex
) -> int | None:
    """The nearest message with a call that was renamed from the id that this result names.

    Also if that call has a result: a result never passes a nearer call.
    """
    call_id = stored.result.call_id
    if call_id is None or stored.is_placeholder:
        return None
    names = calls.names_of(("id", call_id))
    for paired in islice(reversed(stems.get(("stem", stem_of(call_id)), ())), MAX_STEM_MATCHES):
        if _agrees(stored.label, {paired.label}, names) and (
            not stored.result.is_certain or is_renamed_from(paired, call_id)
        ):
            return paired.calling.index
    return None


def _may_be_early(
    stored: StoredResult,
    place: int,
    stems: Mapping[Hashable, Sequence[PairedCall]],
    calls: CallIndex,
) -> bool:
    """Whether a result may be that of the next message, and not of the older one at `place`.

    It stands directly before a call of its id and tool, and nearer calls of its id than that at
    `place` name other tools. Two runs of one thread at once leave such histories.
    """
    call_id, following = stored.result.call_id, calls.messages.get(calls.after[stored.index])
    if call_id is None or following is None:
        return False
    next_calls = [p for p in following.calls if p.label == stored.label]
    if not any(p.call.id == call_id or is_renamed_from(p, call_id) for p in next_calls):
        return False
    older = stems.get(("stem", stem_of(call_id)), ())
    nearer = (p for p in islice(reversed(older), MAX_STEM_MATCHES) if p.calling.index > place)
    return any(is_renamed_from(paired, call_id) for paired in nearer)


def _agrees(label: str | None, names: AbstractSet[str], all_names: set[str]) -> bool:
    """Whether the name in a result agrees with one of `names`.

    A name that is not in `all_names` does not tell calls apart: some applications write names
    of their own into results.
    """
    return label is None or label not in all_names or label in names or "" in names


# --- the calls of one message -----------------------------------------------------------


def _pair_group(group: _Group, calls: CallIndex) -> None:
    """Pair the real results of a group with its calls."""
    results = [stored for stored in group.results if not stored.is_placeholder]
    if _is_ambiguous(group, results, calls):
        return
    free = [paired for paired in group.calls if paired.real is None]
    _assign(free, results, group.names)
    unpaired = [stored for stored in results if stored.paired_call is None]
    if unpaired and len(results) > len(free) and isinstance(group.key, tuple):
        kind, call_id = group.key
        if kind == "id":
            renamed = calls.renamed(group.index, call_id)
            _assign([paired for paired in renamed if paired.real is None], unpaired, group.names)


def _is_ambiguous(group: _Group, results: Sequence[StoredResult], calls: CallIndex) -> bool:
    """Whether human messages are fewer than the calls that they may name.

    A repair keeps a human message that is of no call, with the id that several calls had. So
    each call counts that may have been renamed from that id.
    """
    if not results or results[0].result.is_certain:
        return False
    named = results[0].result.call_id or ""
    possible = {*group.calls, *calls.with_stem(group.index, named)}
    return len(results) < sum(paired.real is None for paired in possible)


def _assign(calls: Sequence[PairedCall], results: Sequence[StoredResult], names: set[str]) -> None:
    """Pair results with calls of one message if there are enough of them (rules 2 to 4)."""
    own_names = {paired.label for paired in calls}
    if len(own_names) > 1:
        by_name: dict[str | None, list[StoredResult]] = defaultdict(list)
        for stored in results:
            by_name[stored.label].append(stored)
        calls_by_name: dict[str, list[PairedCall]] = defaultdict(list)
        for paired in calls:
            calls_by_name[paired.label].append(paired)
        for name, own in calls_by_name.items():
            if len(by_name[name]) >= len(own):
                _pair_in_order(own, by_name[name], names)
        calls = [paired for paired in calls if paired.real is None]
        own_names = {paired.label for paired in calls}
        results = [
            stored
            for stored in results
            if stored.paired_call is None and _agrees(stored.label, own_names, names)
        ]
    if len(results) >= len(calls):
        _pair_in_order(calls, results, names)


def _pair_in_order(
    calls: Sequence[PairedCall], results: Sequence[StoredResult], names: set[str]
) -> None:
    """Pair each result with the first call that is left and agrees with it."""
    queues: dict[str | None, deque[PairedCall]] = defaultdict(deque)
    for paired in calls:
        queues[paired.label].append(paired)
        queues[None].append(paired)
    for stored in _preferred(results, len(calls)):
        label = stored.label if stored.label in names else None
        for key in (label,) if label is None else (label, ""):
            queue = queues[key]
            while queue and queue[0].answer is not None:
                queue.popleft()
            if queue:
                _connect(queue.popleft(), stored)
                break


def _preferred(results: Sequence[StoredResult], count: int) -> Sequence[StoredResult]:
    """At most `count` results, in their order; placeholders of other packages last."""
    if len(results) <= count:
        return results
    chosen = sorted(results, key=lambda stored: stored.is_foreign)[:count]
    return sorted(chosen, key=lambda stored: (stored.index, stored.part))


def _connect(paired: PairedCall, stored: StoredResult) -> None:
    stored.paired_call = paired
    if stored.is_placeholder:
        paired.placeholder = stored
    else:
        paired.real = stored


# --- results before their call ----------------------------------------------------------


def _pair_early_results(early: Mapping[int, Sequence[StoredResult]], calls: CallIndex) -> None:
    """Pair results with calls of the next message, if only results are stored between them.

    Not placeholders: the text of a placeholder is true only for its own call.
    """
    if not early:
        return
    for index in calls.messages:
        by_key: dict[Hashable, list[StoredResult]] = defaultdict(list)
        for before in calls.results_before(index):
            for stored in early.get(before, ()):
                if not stored.is_placeholder:
                    by_key[key_of_result(stored.result)].append(stored)
        for key, results in by_key.items():
            free = [p for p in calls.by_place.get((index, key), ()) if p.real is None]
            names = {paired.label for paired in free}
            agreeing = [
                stored
                for stored in results
                if stored.label is None or stored.label in names or "" in names
            ]
            _assign(free, agreeing, names)
