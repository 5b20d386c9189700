"""Which result belongs to which call: by document order, never by a set of ids.

A result belongs to the nearest earlier call with its id that has no result yet. A call
that is still without one takes a result that stands before it. What nobody takes is
loose. An id that is used again is not the same call.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.field_check import check_fields
from langgraph_patch.history.placeholders import synthetic_test
from langgraph_patch.history.rewrite import (
    VALID_ID,
    derived_id,
    family_of,
    origin_of,
    rest_of,
    valid_name,
)
from langgraph_patch.history.tool_calls import (
    Call,
    Result,
    computer_call_ids,
    read_calls,
    read_results,
)

_KIN = 32
"""How many calls of one family are asked whether they were renamed: each costs a digest."""


@dataclass(slots=True, eq=False)
class Entry:
    """One result where it stands: part `part` of the message at `index`."""

    index: int
    part: int
    result: Result
    synthetic: bool
    slot: Slot | None = None


@dataclass(slots=True, eq=False)
class Slot:
    """One call, under the id and name that it will have, and what answers it."""

    turn: Turn
    ordinal: int
    call: Call
    call_id: str
    name: str
    real: Entry | None = None
    synthetic: Entry | None = None

    @property
    def answer(self) -> Entry | None:
        """What stands as its result: a real one before a placeholder."""
        return self.real or self.synthetic


@dataclass(slots=True, eq=False)
class Turn:
    """An `AIMessage` that calls tools."""

    index: int
    message: AIMessage
    slots: list[Slot] = field(default_factory=list)
    end: int = 0
    """The first place behind the message that is not one of its answers."""

    def in_place(self, entry: Entry) -> bool:
        """Whether an answer stands right behind the message, before anything else."""
        return self.index < entry.index < self.end


@dataclass(slots=True, eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        replace_foreign: Whether placeholders of other packages count as placeholders.
        turns: Each message that calls tools, by its index.
        entries: The results in each message that holds results, by its index.
    """

    messages: Sequence[BaseMessage]
    replace_foreign: bool
    turns: dict[int, Turn]
    entries: dict[int, list[Entry]]

    @property
    def unanswered(self) -> list[tuple[AIMessage, str]]:
        """The calls without a real result: the message that made each, and the stored call id."""
        return [
            (turn.message, slot.call.id)
            for turn in self.turns.values()
            for slot in turn.slots
            if slot.real is None
        ]


def read_history(messages: Sequence[BaseMessage], *, replace_foreign: bool = False) -> Reading:
    """Pair the tool calls and the results of `messages`.

    Args:
        messages: The history; it is not changed.
        replace_foreign: Whether placeholders that other packages wrote count as
            placeholders. Default: they count as real results.

    Returns:
        The reading.

    Raises:
        MessagesError: If a message was made without LangChain's checks, and would not pass them.
    """
    is_synthetic = synthetic_test(replace_foreign)
    turns: dict[int, Turn] = {}
    entries: dict[int, list[Entry]] = {}
    computers: set[str] = set()
    bystanders: set[int] = set()
    for index, message in enumerate(messages):
        check_fields(message)
        if isinstance(message, AIMessage):
            computers |= computer_call_ids(message)
            if calls := read_calls(message):
                turns[index] = _turn(index, message, calls)
                computers.difference_update(call.id for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in computers:
            bystanders.add(index)
        elif results := read_results(message):
            synthetic = is_synthetic(message)
            entries[index] = [Entry(index, k, r, synthetic) for k, r in enumerate(results)]
    _match(turns, entries)
    _name_calls(turns.values())
    for turn in turns.values():
        turn.end = _end_of(turn, messages, entries, bystanders)
    return Reading(messages, replace_foreign, turns, entries)


def _turn(index: int, message: AIMessage, calls: Sequence[Call]) -> Turn:
    turn = Turn(index, message)
    turn.slots = [Slot(turn, k, call, call.id, call.name) for k, call in enumerate(calls)]
    return turn


def _end_of(
    turn: Turn,
    messages: Sequence[BaseMessage],
    entries: Mapping[int, list[Entry]],
    bystanders: AbstractSet[int],
) -> int:
    """Results that will be dropped or are a computer call's do not part a call from its own."""
    place = turn.index + 1
    while place < len(messages):
        found = entries.get(place)
        if place in bystanders:
            place += 1
            continue
        if not found or rest_of(messages[place]) is not None:
            break
        if any(_stays(e) if e.slot is None else e.slot.turn is not turn for e in found):
            break
        place += 1
    return place


def _stays(entry: Entry) -> bool:
    """A human message that names a call but turned out to be no result is left as it is."""
    return not entry.result.certain


def _match(turns: Mapping[int, Turn], entries: Mapping[int, list[Entry]]) -> None:
    """Let every entry find its slot: the surest first, each kind in document order.

    A result that names its call comes before one that names only its tool, and that before
    a human message which is a result only if there is no other.
    """
    found: dict[bool | None, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for index, parts in entries.items():
        for entry in parts:
            named = entry.result.call_id is not None
            found[named if entry.result.certain else None][index].append(entry)
    for kind in (True, False, None):
        if takers := found.get(kind):
            matcher = _Matcher()
            for index in sorted(turns.keys() | takers.keys()):
                if index in turns:
                    matcher.open(turns[index])
                for entry in takers.get(index, ()):
                    matcher.take(entry)
            matcher.settle()


class _Matcher:
    """Stacks of slots that still want a result, nearest last, and what came too early.

    Filled slots are removed when they are met, so that the whole is linear.
    """

    def __init__(self) -> None:
        self._stacks: dict[Hashable, list[Slot]] = defaultdict(list)
        self._bare: dict[Hashable, list[Slot]] = defaultdict(list)  # not even a placeholder
        self._slots: dict[Hashable, deque[Slot]] = defaultdict(deque)
        self._early: list[Entry] = []

    def open(self, turn: Turn) -> None:
        """Let the calls of `turn` wait for their results, in call order."""
        for slot in turn.slots:
            for key in _keys_of_slot(slot):
                self._slots[key].append(slot)
        for slot in reversed(turn.slots):
            for key in _keys_of_slot(slot):
                self._stacks[key].append(slot)
                self._bare[key].append(slot)

    def take(self, entry: Entry) -> None:
        """Give `entry` to the nearest earlier call that waits for it."""
        slot = self._nearest(entry)
        if slot is not None:
            _fill(slot, entry)
        elif not entry.synthetic:
            self._early.append(entry)

    def settle(self) -> None:
        """Give what came too early to the first later call that still waits for it.

        A placeholder is not given on: what it says is true of its own call alone.
        """
        for entry in self._early:
            queue = self._slots[_key_of_result(entry.result)]
            while queue and (queue[0].turn.index < entry.index or queue[0].real is not None):
                queue.popleft()
            if queue:
                _fill(queue[0], entry)

    def _nearest(self, entry: Entry) -> Slot | None:
        exact = self._exact(entry)
        renamed = self._renamed(entry)
        if exact is None or renamed is None:
            return exact or renamed
        return renamed if renamed.turn.index > exact.turn.index else exact

    def _exact(self, entry: Entry) -> Slot | None:
        key = _key_of_result(entry.result)
        stack, bare = self._stacks[key], self._bare[key]
        while stack and stack[-1].real is not None:
            stack.pop()
        if not stack or not entry.synthetic:
            return stack[-1] if stack else None
        # A placeholder goes to a call of the nearest turn that has nothing at all.
        while bare and bare[-1].answer is not None:
            bare.pop()
        return bare[-1] if bare and bare[-1].turn is stack[-1].turn else None

    def _renamed(self, entry: Entry) -> Slot | None:
        """A call that was renamed from the id under which this result came."""
        call_id = entry.result.call_id
        if call_id is None or entry.synthetic:
            return None
        stack = self._stacks[("family", family_of(call_id))]
        while stack and stack[-1].real is not None:
            stack.pop()
        for slot in islice(reversed(stack), _KIN):
            old = derived_id(call_id, slot.turn.message.id, slot.ordinal)
            if slot.real is None and slot.call.id == old:
                return slot
        return None


def _keys_of_slot(slot: Slot) -> Iterator[Hashable]:
    yield ("id", slot.call.id)
    yield ("name", slot.call.name)
    yield "any"
    if (family := origin_of(slot.call.id)) is not None:
        yield ("family", family)


def _key_of_result(result: Result) -> Hashable:
    if result.call_id is not None:
        return ("id", result.call_id)
    return ("name", result.name) if result.name else "any"


def _fill(slot: Slot, entry: Entry) -> None:
    entry.slot = slot
    if not entry.synthetic:
        slot.real = entry
        if slot.synthetic is not None:
            slot.synthetic.slot = None  # real beats synthetic
            slot.synthetic = None
    else:
        slot.synthetic = entry


def _name_calls(turns: Iterable[Turn]) -> None:
    """Give each call an id that is its own and a name that every wire accepts."""
    slots = [slot for turn in turns for slot in turn.slots]
    taken = {slot.call.id for slot in slots}
    seen: set[str] = set()
    salts: Counter[Hashable] = Counter()
    for slot in slots:
        if not VALID_ID.match(slot.call.id) or slot.call.id in seen:
            slot.call_id = _free_id(slot, taken, salts)
            taken.add(slot.call_id)
        seen.add(slot.call_id)
        slot.name = valid_name(slot.call.name)


def _free_id(slot: Slot, taken: set[str], salts: Counter[Hashable]) -> str:
    seed = (slot.call.id, slot.turn.message.id, slot.ordinal)
    while True:
        found = derived_id(*seed, salt=salts[seed])
        salts[seed] += 1  # messages without an id share a seed: each goes on where one stopped
        if found not in taken:
            return found
