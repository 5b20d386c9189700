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

from langchain_core.messages import AIMessage

from langgraph_patch.history.calls import Call
from langgraph_patch.history.ids import valid_name
from langgraph_patch.history.results import Result

# --- what is paired -----------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class StoredResult:
    """One result: the `part`-th of those in the message at `index`."""

    index: int
    part: int
    result: Result
    is_placeholder: bool
    is_foreign: bool = False
    """Whether it is a placeholder of another package."""
    holds_more: bool = False
    """Whether its message holds more than results."""
    paired_call: PairedCall | None = None

    @property
    def label(self) -> str | None:
        """The tool that the result names, in the form of a valid name; None if it names none."""
        return valid_name(self.result.name) if self.result.name else None


@dataclass(slots=True, eq=False)
class PairedCall:
    """One call and its result.

    `new_id` and `new_name` are those of the repaired history: the stored ones if they are valid.
    """

    calling: CallingMessage
    call: Call
    new_id: str
    new_name: str
    real: StoredResult | None = None
    placeholder: StoredResult | None = None

    @property
    def label(self) -> str:
        """The tool that the call names, in the form of a valid name; `""` if it names none."""
        return valid_name(self.call.name) if self.call.name else ""

    @property
    def answer(self) -> StoredResult | None:
        """The real result, else the placeholder."""
        return self.real or self.placeholder

    @property
    def is_renamed(self) -> bool:
        """Whether the repair gives the call another id or name."""
        return (self.call.id, self.call.name) != (self.new_id, self.new_name)


@dataclass(slots=True, eq=False)
class CallingMessage:
    """An `AIMessage` that calls tools."""

    index: int
    message: AIMessage
    calls: list[PairedCall] = field(default_factory=list)
    end: int = 0
    """The first index after the message that does not hold one of its results."""

    def has_in_place(self, stored: StoredResult) -> bool:
        """Whether a result is stored directly after this message."""
        return self.index < stored.index < self.end


# --- the calls by what a result can name of them -------------------------------------------


class _Index:
    """All calls, by their keys: ids, also earlier ones, the tool, and nothing.

    Attributes:
        messages: The index in the history -> the message that makes calls.
        by_place: (index, key) -> the calls of that message that have the key.
        names_at: (index, key) -> the tools that these calls name.
        names: The key -> the tools that its calls name, in the whole history.
        before: The index of a message with results -> that of the last one before it that holds
            more than results.
    """

    def __init__(
        self,
        calling_messages: Mapping[int, CallingMessage],
        stored_results: Mapping[int, Sequence[StoredResult]],
    ) -> None:
        self.messages = calling_messages
        self._stored_results = stored_results
        self.by_place: dict[tuple[int, Hashable], list[PairedCall]] = defaultdict(list)
        self.names_at: dict[tuple[int, Hashable], set[str]] = defaultdict(set)
        self.names: dict[Hashable, set[str]] = defaultdict(set)
        for index, calling in calling_messages.items():
            for paired in calling.calls:
                for key in _keys_of(paired.call):
                    self.by_place[index, key].append(paired)
                    self.names_at[index, key].add(paired.label)
                    self.names[key].add(paired.label)
        self.before: dict[int, int] = {}
        for index in sorted(stored_results):
            self.before[index] = self.results_before(index).start - 1

    def results_before(self, index: int) -> range:
        """The indexes of the messages directly before one that hold results and nothing else."""
        parts = self._stored_results.get(index - 1, ())
        if not parts or any(s.holds_more or not s.result.is_certain for s in parts):
            return range(index, index)
        return range(self.before[index - 1] + 1, index)

    def agrees(self, stored: StoredResult, index: int, key: Hashable) -> bool:
        """Whether the tool that a result names is that of its calls in a message (rule 2)."""
        names = self.names[key]
        is_own_name = stored.label is not None and stored.label not in names
        if is_own_name and self.before[stored.index] > index:
            return False
        return _agree(stored.label, self.names_at[index, key], names)


def _keys_of(call: Call) -> set[Hashable]:
    """What a result can name of a call: its id, an earlier id, its tool, nothing."""
    return {*_current_keys_of(call), *(("id", call_id) for call_id in call.earlier_ids)}


def _current_keys_of(call: Call) -> tuple[Hashable, ...]:
    return ("id", call.id), ("name", call.name), "any"


def _key_of_result(result: Result) -> Hashable:
    if result.call_id is not None:
        return ("id", result.call_id)
    return ("name", result.name) if result.name else "any"


def _agree(label: str | None, names: AbstractSet[str], all_names: AbstractSet[str]) -> bool:
    """Whether the name in a result agrees with one of `names`.

    A name that is not in `all_names` does not tell calls apart: some applications write names
    of their own into results.
    """
    return label is None or label not in all_names or label in names or "" in names


# --- the nearest earlier message that has a call of a result ---------------------------


@dataclass(slots=True)
class _Group:
    """The results of one key that come after one message, and the calls they may belong to.

    Attributes:
        calls: The calls that have the key.
        earlier: The calls that had it before a repair renamed them.
        names: The tools that calls of this key name, in the whole history.
        results: The results.
    """

    calls: list[PairedCall]
    earlier: list[PairedCall]
    names: set[str]
    results: list[StoredResult] = field(default_factory=list)

    @property
    def real(self) -> list[StoredResult]:
        """The results that are no placeholders and have no call yet."""
        return [s for s in self.results if not s.is_placeholder and s.paired_call is None]


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
    calls = _Index(calling_messages, stored_results)
    groups: list[_Group] = []
    for kind in (True, False, None):
        if results := passes.get(kind):
            found, early = _grouped(results, calls)
            groups += found
            for group in found:
                _pair_group(group, is_certain=kind is not None)
            for group in found:
                _pair_renamed(group)
            _pair_early_results(early, calls)
    for group in groups:
        _pair_in_order(group.calls, [s for s in group.results if s.is_placeholder], group.names)


def _grouped(
    results: Mapping[int, Sequence[StoredResult]], calls: _Index
) -> tuple[list[_Group], dict[int, list[StoredResult]]]:
    """The results by the nearest earlier message with a call of theirs, and those without one."""
    groups: dict[tuple[int, Hashable], _Group] = {}
    early: dict[int, list[StoredResult]] = defaultdict(list)
    nearest: dict[Hashable, int] = {}
    names_before: dict[Hashable, set[str]] = defaultdict(set)
    for index in sorted(calls.messages.keys() | results.keys()):
        if index in calls.messages:
            for paired in calls.messages[index].calls:
                for key in _keys_of(paired.call):
                    nearest[key] = index
                    names_before[key].add(paired.label)
        for stored in results.get(index, ()):
            key = _key_of_result(stored.result)
            place = nearest.get(key)
            if place is not None and calls.agrees(stored, place, key):
                if (place, key) not in groups:
                    groups[place, key] = _group(place, key, calls)
                groups[place, key].results.append(stored)
            elif place is None or stored.label not in names_before[key]:
                early[index].append(stored)
    return list(groups.values()), early


def _group(index: int, key: Hashable, calls: _Index) -> _Group:
    found = calls.by_place[index, key]
    earlier = [p for p in found if key not in _current_keys_of(p.call)]
    current = [p for p in found if key in _current_keys_of(p.call)]
    return _Group(current, earlier, calls.names[key])


# --- the calls of one message -----------------------------------------------------------


def _pair_group(group: _Group, *, is_certain: bool) -> None:
    """Pair the real results of a group with the calls that have its key."""
    results, possible = group.real, [*group.calls, *group.earlier]
    if not is_certain and len(results) < sum(paired.real is None for paired in possible):
        return
    _assign([paired for paired in group.calls if paired.real is None], results, group.names)


def _pair_renamed(group: _Group) -> None:
    """Pair what is left with calls that were renamed, if the calls with the id have results."""
    free = [paired for paired in group.earlier if paired.real is None]
    if free and group.real and all(paired.real is not None for paired in group.calls):
        _assign(free, group.real, group.names)


def _assign(
    calls: Sequence[PairedCall], results: Sequence[StoredResult], names: AbstractSet[str]
) -> None:
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
            if stored.paired_call is None and _agree(stored.label, own_names, names)
        ]
    if len(results) >= len(calls):
        _pair_in_order(calls, results, names)


def _pair_in_order(
    calls: Sequence[PairedCall], results: Sequence[StoredResult], names: AbstractSet[str]
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


def _pair_early_results(early: Mapping[int, Sequence[StoredResult]], calls: _Index) -> None:
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
                    by_key[_key_of_result(stored.result)].append(stored)
        for key, results in by_key.items():
            free = [p for p in calls.by_place.get((index, key), ()) if p.real is None]
            names = {paired.label for paired in free}
            agreeing = [s for s in results if s.label is None or s.label in names or "" in names]
            _assign(free, agreeing, names)
