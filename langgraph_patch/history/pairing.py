"""Decide which result belongs to which call.

Results are paired in document order, not by a set of ids: providers use ids again, and an id
that is used again is another call. A result belongs to the nearest earlier call with its id
that has no result yet. A call that has none then takes a result that is stored before it. A
result that no call takes is an orphan.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.field_check import check_fields
from langgraph_patch.history.ids import VALID_ID, derived_id, possible_stem, stem_of, valid_name
from langgraph_patch.history.placeholders import placeholder_test
from langgraph_patch.history.tool_calls import (
    Call,
    Result,
    computer_call_ids,
    read_calls,
    read_results,
    without_results,
)

_MAX_STEM_MATCHES = 32
"""How many calls with the same stem are checked for a derived id; each check is a digest."""


@dataclass(slots=True, eq=False)
class StoredResult:
    """One result: the `part`-th of those in the message at `index`."""

    index: int
    part: int
    result: Result
    is_placeholder: bool
    paired_call: PairedCall | None = None


@dataclass(slots=True, eq=False)
class PairedCall:
    """One call: the `ordinal`-th of its message, and its result.

    `new_id` and `new_name` are those of the repaired history: the stored ones if they are valid.
    """

    calling: CallingMessage
    ordinal: int
    call: Call
    new_id: str
    new_name: str
    real: StoredResult | None = None
    placeholder: StoredResult | None = None

    @property
    def answer(self) -> StoredResult | None:
        """The real result, else the placeholder."""
        return self.real or self.placeholder


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


@dataclass(eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        replace_foreign: Whether placeholders of other packages count as placeholders.
        calling_messages: The messages that call tools, by their index.
        stored_results: The results, by the index of the message that holds them.
    """

    messages: Sequence[BaseMessage]
    replace_foreign: bool
    calling_messages: Mapping[int, CallingMessage]
    stored_results: Mapping[int, Sequence[StoredResult]]

    @property
    def paired_calls(self) -> Iterator[PairedCall]:
        """All calls, in the order of the history."""
        return (paired for calling in self.calling_messages.values() for paired in calling.calls)

    @property
    def unanswered(self) -> list[tuple[AIMessage, str]]:
        """The calls without a real result: the message that made each, and the stored call id."""
        return [
            (paired.calling.message, paired.call.id)
            for paired in self.paired_calls
            if paired.real is None
        ]

    @cached_property
    def call_ids(self) -> set[str]:
        """The ids of all calls, as stored and as in the repaired history."""
        return {
            call_id for paired in self.paired_calls for call_id in (paired.call.id, paired.new_id)
        }

    @cached_property
    def message_ids(self) -> set[str | None]:
        """The ids of all messages."""
        return {message.id for message in self.messages}

    @cached_property
    def call_counts(self) -> Counter[tuple[str | None, str]]:
        """(id of the message, stored id of the call) -> how many calls have both."""
        return Counter((paired.calling.message.id, paired.call.id) for paired in self.paired_calls)


def read_history(messages: Sequence[BaseMessage], *, replace_foreign: bool = False) -> Reading:
    """Pair the tool calls and the results of `messages`.

    Args:
        messages: The history; it is not changed.
        replace_foreign: Whether placeholders that other packages wrote count as
            placeholders. Default: they count as real results.

    Returns:
        The reading.

    Raises:
        MessagesError: If a message bypassed LangChain's validation and would not pass it.
    """
    is_placeholder = placeholder_test(replace_foreign)
    calling_messages: dict[int, CallingMessage] = {}
    stored_results: dict[int, list[StoredResult]] = {}
    computer_calls: set[str] = set()
    computer_results: set[int] = set()
    for index, message in enumerate(messages):
        check_fields(message)
        if isinstance(message, AIMessage):
            computer_calls |= computer_call_ids(message)
            if calls := read_calls(message):
                calling_messages[index] = _calling_message(index, message, calls)
                computer_calls.difference_update(call.id for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in computer_calls:
            computer_results.add(index)
        elif results := read_results(message):
            synthetic = is_placeholder(message)
            stored_results[index] = [
                StoredResult(index, part, result, synthetic) for part, result in enumerate(results)
            ]
    _pair(calling_messages, stored_results)
    _choose_ids_and_names(calling_messages.values())
    for calling in calling_messages.values():
        calling.end = _end_of_results(calling, messages, stored_results, computer_results)
    return Reading(messages, replace_foreign, calling_messages, stored_results)


def _calling_message(index: int, message: AIMessage, calls: Sequence[Call]) -> CallingMessage:
    calling = CallingMessage(index, message)
    calling.calls = [
        PairedCall(calling, ordinal, call, call.id, call.name) for ordinal, call in enumerate(calls)
    ]
    return calling


def _end_of_results(
    calling: CallingMessage,
    messages: Sequence[BaseMessage],
    stored_results: Mapping[int, Sequence[StoredResult]],
    computer_results: AbstractSet[int],
) -> int:
    """The first index after a message that does not hold one of its results.

    Results that the repair drops, and results of computer calls, may be in between.
    """
    index = calling.index + 1
    while index < len(messages):
        found = stored_results.get(index)
        if index in computer_results:
            index += 1
            continue
        if not found or without_results(messages[index]) is not None:
            break
        if any(_separates(stored, calling) for stored in found):
            break
        index += 1
    return index


def _separates(stored: StoredResult, calling: CallingMessage) -> bool:
    """Whether a result stays in the history and is not one of this message's results."""
    if stored.paired_call is None:
        return not stored.result.is_certain  # a human message that is no result after all
    return stored.paired_call.calling is not calling


# --- pairing ---------------------------------------------------------------------------


def _pair(
    calling_messages: Mapping[int, CallingMessage],
    stored_results: Mapping[int, Sequence[StoredResult]],
) -> None:
    """Find the call of each result, in three passes, each in document order.

    First results that name a call, then results that name only a tool, then human messages
    that are a result only if the call has no other.
    """
    passes: dict[bool | None, dict[int, list[StoredResult]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index, parts in stored_results.items():
        for stored in parts:
            names_call = stored.result.call_id is not None
            passes[names_call if stored.result.is_certain else None][index].append(stored)
    for kind in (True, False, None):
        if results := passes.get(kind):
            matcher = _Matcher()
            for index in sorted(calling_messages.keys() | results.keys()):
                if index in calling_messages:
                    matcher.add_calls(calling_messages[index])
                for stored in results.get(index, ()):
                    matcher.pair(stored)
            matcher.pair_early_results()


class _Matcher:
    """The calls that have no result yet, by id, by name and by stem, the nearest last.

    Calls that have got a result are removed when they are met, so the whole is linear.
    """

    def __init__(self) -> None:
        self._without_real: dict[Hashable, list[PairedCall]] = defaultdict(list)
        self._without_any: dict[Hashable, list[PairedCall]] = defaultdict(list)
        self._all: dict[Hashable, deque[PairedCall]] = defaultdict(deque)
        self._early: list[StoredResult] = []

    def add_calls(self, calling: CallingMessage) -> None:
        """Add the calls of a message; the first of them is the first to get a result."""
        for paired in calling.calls:
            for key in _keys_of_call(paired.call):
                self._all[key].append(paired)
        for paired in reversed(calling.calls):
            for key in _keys_of_call(paired.call):
                self._without_real[key].append(paired)
                self._without_any[key].append(paired)

    def pair(self, stored: StoredResult) -> None:
        """Pair a result with the nearest earlier call that has none."""
        paired = self._nearest(stored)
        if paired is not None:
            _connect(paired, stored)
        elif not stored.is_placeholder:
            self._early.append(stored)

    def pair_early_results(self) -> None:
        """Pair each result that is left with the first later call that has no real result.

        Not placeholders: the text of a placeholder is true only for its own call.
        """
        for stored in self._early:
            queue = self._all[_key_of_result(stored.result)]
            while queue and (queue[0].calling.index < stored.index or queue[0].real is not None):
                queue.popleft()
            if queue:
                _connect(queue[0], stored)

    def _nearest(self, stored: StoredResult) -> PairedCall | None:
        exact = self._with_same_key(stored)
        renamed = self._with_derived_id(stored)
        if exact is None or renamed is None:
            return exact or renamed
        return renamed if renamed.calling.index > exact.calling.index else exact

    def _with_same_key(self, stored: StoredResult) -> PairedCall | None:
        key = _key_of_result(stored.result)
        without_real, without_any = self._without_real[key], self._without_any[key]
        while without_real and without_real[-1].real is not None:
            without_real.pop()
        if not without_real or not stored.is_placeholder:
            return without_real[-1] if without_real else None
        # A placeholder belongs to a call of the nearest message, and only if it has nothing.
        while without_any and without_any[-1].answer is not None:
            without_any.pop()
        nearest = without_real[-1].calling
        return without_any[-1] if without_any and without_any[-1].calling is nearest else None

    def _with_derived_id(self, stored: StoredResult) -> PairedCall | None:
        """A call that an earlier repair renamed from the id that this result names."""
        call_id = stored.result.call_id
        if call_id is None or stored.is_placeholder:
            return None
        calls = self._without_real[("stem", stem_of(call_id))]
        while calls and calls[-1].real is not None:
            calls.pop()
        for paired in islice(reversed(calls), _MAX_STEM_MATCHES):
            derived = derived_id(call_id, paired.calling.message.id, paired.ordinal)
            if paired.real is None and paired.call.id == derived:
                return paired
        return None


def _keys_of_call(call: Call) -> Iterator[Hashable]:
    yield ("id", call.id)
    yield ("name", call.name)
    yield "any"
    if (stem := possible_stem(call.id)) is not None:
        yield ("stem", stem)


def _key_of_result(result: Result) -> Hashable:
    if result.call_id is not None:
        return ("id", result.call_id)
    return ("name", result.name) if result.name else "any"


def _connect(paired: PairedCall, stored: StoredResult) -> None:
    stored.paired_call = paired
    if stored.is_placeholder:
        paired.placeholder = stored
        return
    paired.real = stored
    if paired.placeholder is not None:  # a real result replaces a placeholder
        paired.placeholder.paired_call = None
        paired.placeholder = None


# --- ids and names ---------------------------------------------------------------------


def _choose_ids_and_names(calling_messages: Iterable[CallingMessage]) -> None:
    """Set the new id and name of each call: unique ids, and names that every provider accepts."""
    calls = [paired for calling in calling_messages for paired in calling.calls]
    taken = {paired.call.id for paired in calls}
    seen: set[str] = set()
    salts: Counter[Hashable] = Counter()
    for paired in calls:
        if not VALID_ID.match(paired.call.id) or paired.call.id in seen:
            paired.new_id = _free_id(paired, taken, salts)
            taken.add(paired.new_id)
        seen.add(paired.new_id)
        paired.new_name = valid_name(paired.call.name)


def _free_id(paired: PairedCall, taken: set[str], salts: Counter[Hashable]) -> str:
    seed = (paired.call.id, paired.calling.message.id, paired.ordinal)
    while True:
        found = derived_id(*seed, salt=salts[seed])
        salts[seed] += 1  # calls with equal seeds (messages without ids) do not try a salt twice
        if found not in taken:
            return found
