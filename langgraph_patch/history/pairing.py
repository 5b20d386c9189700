"""Read a history: its calls and results, and which belong together.

`matching` decides which result belongs to which call, `new_ids` which id a call gets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.field_check import corrected, id_of, names_call
from langgraph_patch.history.matching import pair
from langgraph_patch.history.new_ids import choose_ids_and_names
from langgraph_patch.history.paired_calls import CallingMessage, PairedCall, StoredResult
from langgraph_patch.history.patch import EvidenceKey
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
    is_settled,
    needs_recheck,
)
from langgraph_patch.history.tool_calls import Call, computer_call_ids, read_calls
from langgraph_patch.history.tool_results import Result, read_results, without_results

AskedCall: TypeAlias = tuple[AIMessage, str] | tuple[AIMessage, str, int]
"""A message and the stored id of one of its calls.

If several calls of the message have the id: also the position of the call among all its calls.
"""


@dataclass(eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        replace_foreign: Whether placeholders of other packages count as placeholders.
        calling_messages: The messages that call tools, by their index.
        stored_results: The results, by the index of the message that holds them.
        client_results: The ids of `ToolMessage`s that came with the input of the run.
        corrected: The messages with corrected fields (`field_check`), by their index.
        unusable: The indexes of messages that no model can read.
        kept: The indexes of results that stay in the state also if they belong to no call: they
            name no call, or follow an unusable message that may have made it.
        recheck: Whether placeholders that ask for another search count. A turn needs that once.
    """

    messages: Sequence[BaseMessage]
    replace_foreign: bool
    calling_messages: Mapping[int, CallingMessage]
    stored_results: Mapping[int, Sequence[StoredResult]]
    client_results: AbstractSet[str | None] = frozenset()
    corrected: Mapping[int, BaseMessage] = field(default_factory=dict)
    unusable: AbstractSet[int] = frozenset()
    kept: AbstractSet[int] = frozenset()
    recheck: bool = True

    @property
    def paired_calls(self) -> Iterator[PairedCall]:
        """All calls, in the order of the history."""
        return (paired for calling in self.calling_messages.values() for paired in calling.calls)

    @property
    def unanswered(self) -> list[AskedCall]:
        """The calls to search for.

        Those without a real result, unless their placeholder is settled, and the doubted ones.
        """
        return [
            self._asked(paired)
            for paired in self.paired_calls
            if self.is_doubted(paired) or (paired.real is None and not self._is_searched(paired))
        ]

    def _is_searched(self, paired: PairedCall) -> bool:
        """Whether the placeholder of a call, if any, asks for no search now."""
        if paired.placeholder is None:
            return False
        stored = paired.placeholder.result.message
        return is_settled(stored) or (needs_recheck(stored) and not self.recheck)

    @property
    def without_result(self) -> list[AskedCall]:
        """The calls without a real result, also those with a settled placeholder."""
        return [self._asked(paired) for paired in self.paired_calls if paired.real is None]

    @property
    def doubted(self) -> list[AskedCall]:
        """The calls with a result that came with the input of the run: a client may invent it."""
        return [self._asked(paired) for paired in self.paired_calls if self.is_doubted(paired)]

    def _asked(self, paired: PairedCall) -> AskedCall:
        call = (paired.calling.message, paired.call.id)
        return (*call, paired.ordinal) if _has_twin(paired) else call

    def key_of(self, paired: PairedCall) -> EvidenceKey | None:
        """The key of a call in the evidence; None if calls of two messages have the same."""
        message_id, call_id = paired.calling.message.id, paired.call.id
        twins = sum(other.call.id == call_id for other in paired.calling.calls)
        if self.call_counts[message_id, call_id] > twins:
            return None
        return (message_id, call_id) if twins == 1 else (message_id, call_id, paired.ordinal)

    def is_doubted(self, paired: PairedCall) -> bool:
        """Whether the result of a call came with the input of the run."""
        return paired.real is not None and self._is_from_client(paired.real.result.message)

    def _is_from_client(self, message: BaseMessage) -> bool:
        return message.id is not None and message.id in self.client_results

    @property
    def needs_search(self) -> bool:
        """Whether a valid history is to be searched for: for doubted calls or for a recheck."""
        return any(
            self.is_doubted(paired)
            or (
                self.recheck
                and paired.placeholder
                and needs_recheck(paired.placeholder.result.message)
            )
            for paired in self.paired_calls
        )

    @cached_property
    def call_ids(self) -> set[str]:
        """The ids of all calls, as stored and as in the repaired history."""
        return {
            call_id for paired in self.paired_calls for call_id in (paired.call.id, paired.new_id)
        }

    @cached_property
    def message_ids(self) -> set[Hashable | None]:
        """The ids of all messages."""
        return {id_of(message) for message in self.messages}

    @cached_property
    def call_counts(self) -> Counter[tuple[str | None, str]]:
        """(id of the message, stored id of the call) -> how many calls have both."""
        return Counter((paired.calling.message.id, paired.call.id) for paired in self.paired_calls)


def read_history(
    messages: Sequence[BaseMessage],
    *,
    replace_foreign: bool = False,
    client_results: AbstractSet[str | None] = frozenset(),
    recheck: bool = True,
) -> Reading:
    """Pair the tool calls and the results of `messages`.

    Args:
        messages: The history; it is not changed.
        replace_foreign: Whether placeholders that other packages wrote count as
            placeholders. Default: they count as real results, unless there is another.
        client_results: The ids of `ToolMessage`s that came with the input of the run.
            Default: none.
        recheck: Whether placeholders that ask for another search count. Default: True.

    Returns:
        The reading.
    """
    calling_messages: dict[int, CallingMessage] = {}
    stored_results: dict[int, list[StoredResult]] = {}
    computer_calls: set[str] = set()
    skipped: set[int] = set()
    corrections: dict[int, BaseMessage] = {}
    unusable: set[int] = set()
    for index, stored in enumerate(messages):
        message = corrected(stored)
        if message is None:
            unusable.add(index)
            continue
        if message is not stored:
            corrections[index] = message
        if isinstance(message, AIMessage):
            computer_calls |= computer_call_ids(message)
            if calls := read_calls(message):
                calling_messages[index] = _calling_message(index, message, calls)
                computer_calls.difference_update(call.id for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in computer_calls:
            skipped.add(index)
        elif results := _results_of(message, stored):
            stored_results[index] = _stored(
                index, message, results, replace_foreign, client_results
            )
    _pair(calling_messages, stored_results)
    choose_ids_and_names(calling_messages.values())
    for calling in calling_messages.values():
        calling.end = _end_of_results(calling, messages, stored_results, skipped | unusable)
    return Reading(
        messages,
        replace_foreign,
        calling_messages,
        stored_results,
        client_results,
        corrections,
        unusable,
        _kept_results(messages, unusable),
        recheck,
    )


def _results_of(message: BaseMessage, stored: BaseMessage) -> list[Result]:
    """The results in a message. One whose stored call id is None names no call, not the id `""`."""
    results = read_results(message)
    if message is stored or not isinstance(message, ToolMessage) or names_call(stored):
        return results
    return [replace(result, call_id=None) for result in results]


def _kept_results(messages: Sequence[BaseMessage], unusable: AbstractSet[int]) -> set[int]:
    """See `Reading.kept`."""
    kept: set[int] = set()
    follows = False  # an unusable message of a model, and nothing but results since
    for index, message in enumerate(messages):
        if not isinstance(message, ToolMessage):
            follows = index in unusable and isinstance(message, AIMessage)
        elif follows or not names_call(message):
            kept.add(index)
    return kept


def _pair(
    calling_messages: Mapping[int, CallingMessage],
    stored_results: Mapping[int, Sequence[StoredResult]],
) -> None:
    """Find the call of each result; without tool messages of which the call is uncertain."""
    pair(calling_messages, stored_results)
    uncertain = _uncertain_results(calling_messages, stored_results)
    if not uncertain:
        return
    for calling in calling_messages.values():
        for paired in calling.calls:
            paired.real = paired.placeholder = None
    certain: dict[int, list[StoredResult]] = {}
    for index, results in stored_results.items():
        for stored in results:
            stored.paired_call = None
        certain[index] = [stored for stored in results if stored not in uncertain]
    pair(calling_messages, certain)


def _uncertain_results(
    calling_messages: Mapping[int, CallingMessage],
    stored_results: Mapping[int, Sequence[StoredResult]],
) -> set[StoredResult]:
    """Tool messages that name no call, unless each is the only one possible for the call it got."""
    nameless: dict[int, list[StoredResult]] = defaultdict(list)
    before = -1
    for index in sorted(calling_messages.keys() | stored_results.keys()):
        before = index if index in calling_messages else before
        for stored in stored_results.get(index, ()):
            if stored.result.is_tool_message and stored.result.call_id is None:
                nameless[before].append(stored)
    found: set[StoredResult] = set()
    for place, results in nameless.items():
        pairs = [stored.paired_call for stored in results]
        if any(paired is None or paired.calling.index != place for paired in pairs):
            found.update(results)
    return found


def _stored(
    index: int,
    message: BaseMessage,
    results: Sequence[Result],
    replace_foreign: bool,  # noqa: FBT001
    client_results: AbstractSet[str | None],
) -> list[StoredResult]:
    is_foreign = is_foreign_placeholder(message)
    is_synthetic = (
        is_placeholder(message)
        or is_client_fake(message, from_client=message.id in client_results)
        or (replace_foreign and is_foreign)
    )
    holds_more = without_results(message) is not None
    return [
        StoredResult(index, part, result, is_synthetic, is_foreign, holds_more)
        for part, result in enumerate(results)
    ]


def _has_twin(paired: PairedCall) -> bool:
    """Whether another call of the same message has the id."""
    return sum(other.call.id == paired.call.id for other in paired.calling.calls) > 1


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
    skipped: AbstractSet[int],
) -> int:
    """The first index after a message that does not hold one of its results.

    Results that the repair drops, results of computer calls and unusable messages may be in
    between.
    """
    index = calling.index + 1
    while index < len(messages):
        found = stored_results.get(index)
        if index in skipped:
            index += 1
            continue
        if not found or found[0].holds_more:
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
