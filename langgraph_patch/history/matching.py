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
4. Placeholders, of this or another package, get the calls that are left.
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
class PairedCall:
    """One call and its result.

    `new_id` and `new_name` are those of the repaired history: the stored ones if they are valid.
    """

    calling: CallingMessage
    call: Call
    new_id: str
    new_name: str
    real: Result | None = None
    placeholder: Result | None = None

    @property
    def label(self) -> str:
        """The tool that the call names, in the form of a valid name; `""` if it names none."""
        return valid_name(self.call.name) if self.call.name else ""

    @property
    def answer(self) -> Result | None:
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

    def has_in_place(self, stored: Result) -> bool:
        """Whether a result is stored directly after this message."""
        return self.index < stored.index < self.end


# --- the calls by what a result can name of them -------------------------------------------


@dataclass(slots=True)
class _Place:
    """The calls of one message that have one key, and the results that come after it.

    Attributes:
        names: The tools that calls with this key name, in the whole history.
        calls: The calls that have the key.
        earlier: The calls that had it before a repair renamed them.
        own_names: The tools that all of them name.
        results: The results.
        placeholders: The placeholders among the results. They get what is left.
    """

    names: set[str]
    calls: list[PairedCall] = field(default_factory=list)
    earlier: list[PairedCall] = field(default_factory=list)
    own_names: set[str] = field(default_factory=set)
    results: list[Result] = field(default_factory=list)
    placeholders: list[Result] = field(default_factory=list)


class _Index:
    """The places of all calls.

    Attributes:
        messages: The index in the history -> the message that makes calls.
        places: (index, key) -> the calls of that message that have the key.
        before: The index of a message with results -> that of the last one before it that holds
            more than results.
    """

    def __init__(
        self,
        calling_messages: Mapping[int, CallingMessage],
        stored_results: Mapping[int, Sequence[Result]],
    ) -> None:
        self.messages = calling_messages
        self._stored_results = stored_results
        self.places: dict[tuple[int, Hashable], _Place] = {}
        names: dict[Hashable, set[str]] = defaultdict(set)
        for index, calling in calling_messages.items():
            for paired in calling.calls:
                for key, is_current in _keys_of(paired.call).items():
                    place = self.places.setdefault((index, key), _Place(names[key]))
                    (place.calls if is_current else place.earlier).append(paired)
                    place.own_names.add(paired.label)
                    place.names.add(paired.label)
        self.before: dict[int, int] = {}
        for index in sorted(stored_results):
            self.before[index] = self.results_before(index).start - 1

    def results_before(self, index: int) -> range:
        """The indexes of the messages directly before one that hold results and nothing else."""
        parts = self._stored_results.get(index - 1, ())
        if not parts or parts[0].holds_more:
            return range(index, index)
        return range(self.before[index - 1] + 1, index)

    def agrees(self, stored: Result, index: int, place: _Place) -> bool:
        """Whether the tool that a result names is that of its calls in a message (rule 2)."""
        is_own_name = stored.label is not None and stored.label not in place.names
        if is_own_name and self.before[stored.index] > index:
            return False
        return _agree(stored.label, place.own_names, place.names)


def _keys_of(call: Call) -> dict[Hashable, bool]:
    """What a result can name of a call: its id or an earlier one, its tool, nothing.

    False for an earlier id.
    """
    earlier: dict[Hashable, bool] = {("id", call_id): False for call_id in call.earlier_ids}
    return {**earlier, ("id", call.id): True, ("name", call.name): True, "any": True}


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


# --- pairing ------------------------------------------------------------------------------


def pair(
    calling_messages: Mapping[int, CallingMessage],
    stored_results: Mapping[int, Sequence[Result]],
) -> None:
    """Find the call of each result.

    First results that name a call, then results that name only a tool. Placeholders get what is
    left.
    """
    calls = _Index(calling_messages, stored_results)
    for names_call in (True, False):
        results = {
            index: [stored for stored in parts if (stored.call_id is not None) is names_call]
            for index, parts in stored_results.items()
        }
        _pair_results(results, calls)
    for place in calls.places.values():
        _pair_in_order(place.calls, place.placeholders, place.names)


def _pair_results(results: Mapping[int, Sequence[Result]], calls: _Index) -> None:
    """Pair results of one kind, in the order of the history."""
    early = _place_results(results, calls)
    found = [place for place in calls.places.values() if place.results]
    for place in found:
        _assign([p for p in place.calls if p.real is None], place.results, place.names)
    for place in found:
        _pair_renamed(place)
        place.results = []
    _pair_early_results(early, calls)


def _place_results(
    results: Mapping[int, Sequence[Result]], calls: _Index
) -> dict[int, list[Result]]:
    """Add results to the nearest earlier message with a call of theirs; return those without."""
    early: dict[int, list[Result]] = defaultdict(list)
    nearest: dict[Hashable, int] = {}
    names_before: dict[Hashable, set[str]] = defaultdict(set)
    for index in sorted(calls.messages.keys() | results.keys()):
        if index in calls.messages:
            for paired in calls.messages[index].calls:
                for key in _keys_of(paired.call):
                    nearest[key] = index
                    names_before[key].add(paired.label)
        for stored in results.get(index, ()):
            key = _key_of_result(stored)
            place = calls.places[nearest[key], key] if key in nearest else None
            if place is not None and calls.agrees(stored, nearest[key], place):
                (place.placeholders if stored.is_placeholder else place.results).append(stored)
            elif place is None or stored.label not in names_before[key]:
                early[index].append(stored)
    return early


def _pair_renamed(place: _Place) -> None:
    """Pair what is left with calls that were renamed, if the calls with the id have results."""
    free = [paired for paired in place.earlier if paired.real is None]
    left = [stored for stored in place.results if stored.call_index is None]
    if free and left and all(paired.real is not None for paired in place.calls):
        _assign(free, left, place.names)


def _assign(
    calls: Sequence[PairedCall], results: Sequence[Result], names: AbstractSet[str]
) -> None:
    """Pair results with calls of one message if there are enough of them (rules 2 to 4)."""
    own_names = {paired.label for paired in calls}
    if len(own_names) > 1:
        by_name: dict[str | None, list[Result]] = defaultdict(list)
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
        if stored.call_index is None and _agree(stored.label, own_names, names)
    ]
    if len(results) >= len(calls):
        _pair_in_order(calls, results, names)


def _pair_in_order(
    calls: Sequence[PairedCall], results: Sequence[Result], names: AbstractSet[str]
) -> None:
    """Pair each result with the first call that is left and agrees with it."""
    queues: dict[str | None, deque[PairedCall]] = defaultdict(deque)
    for paired in calls:
        queues[paired.label].append(paired)
        queues[None].append(paired)
    for stored in results:
        label = stored.label if stored.label in names else None
        for key in (label,) if label is None else (label, ""):
            queue = queues[key]
            while queue and queue[0].answer is not None:
                queue.popleft()
            if queue:
                _connect(queue.popleft(), stored)
                break


def _connect(paired: PairedCall, stored: Result) -> None:
    stored.call_index = paired.calling.index
    if stored.is_placeholder:
        paired.placeholder = stored
    else:
        paired.real = stored


# --- results before their call ----------------------------------------------------------


def _pair_early_results(early: Mapping[int, Sequence[Result]], calls: _Index) -> None:
    """Pair results with calls of the next message, if only results are stored between them.

    Not placeholders: the text of a placeholder is true only for its own call.
    """
    for index in calls.messages if early else ():
        by_key: dict[Hashable, list[Result]] = defaultdict(list)
        for before in calls.results_before(index):
            for stored in early.get(before, ()):
                if not stored.is_placeholder:
                    by_key[_key_of_result(stored)].append(stored)
        for key, results in by_key.items():
            place = calls.places.get((index, key))
            possible = [*place.calls, *place.earlier] if place else []
            free = [paired for paired in possible if paired.real is None]
            names = {paired.label for paired in free}
            agreeing = [s for s in results if s.label is None or s.label in names or "" in names]
            _assign(free, agreeing, names)
