"""Read a history: its calls and results, which belong together, and the ids that calls get.

`matching` decides which result belongs to which call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.field_check import check_fields
from langgraph_patch.history.ids import VALID_ID, derived_id, valid_name
from langgraph_patch.history.matching import CallingMessage, PairedCall, StoredResult, pair
from langgraph_patch.history.placeholders import (
    is_client_fake,
    is_foreign_placeholder,
    is_placeholder,
    is_settled,
    needs_recheck,
)
from langgraph_patch.history.tool_calls import (
    Call,
    Result,
    computer_call_ids,
    read_calls,
    read_results,
    without_results,
)


@dataclass(eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        replace_foreign: Whether placeholders of other packages count as placeholders.
        calling_messages: The messages that call tools, by their index.
        stored_results: The results, by the index of the message that holds them.
        client_results: The ids of `ToolMessage`s that came with the input of the run.
    """

    messages: Sequence[BaseMessage]
    replace_foreign: bool
    calling_messages: Mapping[int, CallingMessage]
    stored_results: Mapping[int, Sequence[StoredResult]]
    client_results: AbstractSet[str | None] = frozenset()

    @property
    def paired_calls(self) -> Iterator[PairedCall]:
        """All calls, in the order of the history."""
        return (paired for calling in self.calling_messages.values() for paired in calling.calls)

    @property
    def unanswered(self) -> list[tuple[AIMessage, str]]:
        """The calls to search for: the message that made each, and the stored call id.

        Those without a real result, unless their placeholder is settled, and the doubted ones.
        """
        return [
            (paired.calling.message, paired.call.id)
            for paired in self.paired_calls
            if self.is_doubted(paired)
            or (
                paired.real is None
                and not (paired.placeholder and is_settled(paired.placeholder.result.message))
            )
        ]

    @property
    def doubted(self) -> list[tuple[AIMessage, str]]:
        """The calls with a result that came with the input of the run: a client may invent it."""
        return [
            (paired.calling.message, paired.call.id)
            for paired in self.paired_calls
            if self.is_doubted(paired)
        ]

    def is_doubted(self, paired: PairedCall) -> bool:
        """Whether the result of a call came with the input of the run."""
        return paired.real is not None and self._is_from_client(paired.real.result.message)

    def _is_from_client(self, message: BaseMessage) -> bool:
        return message.id is not None and message.id in self.client_results

    def needs_search(self, *, recheck: bool) -> bool:
        """Whether a valid history is to be searched for: for doubted calls or for a recheck."""
        return any(
            self.is_doubted(paired)
            or (recheck and paired.placeholder and needs_recheck(paired.placeholder.result.message))
            for paired in self.paired_calls
        )

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


def read_history(
    messages: Sequence[BaseMessage],
    *,
    replace_foreign: bool = False,
    client_results: AbstractSet[str | None] = frozenset(),
) -> Reading:
    """Pair the tool calls and the results of `messages`.

    Args:
        messages: The history; it is not changed.
        replace_foreign: Whether placeholders that other packages wrote count as
            placeholders. Default: they count as real results, unless there is another.
        client_results: The ids of `ToolMessage`s that came with the input of the run.
            Default: none.

    Returns:
        The reading.

    Raises:
        MessagesError: If a message bypassed LangChain's validation and would not pass it.
    """
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
            stored_results[index] = _stored(
                index, message, results, replace_foreign, client_results
            )
    pair(calling_messages, stored_results)
    _choose_ids_and_names(calling_messages.values())
    for calling in calling_messages.values():
        calling.end = _end_of_results(calling, messages, stored_results, computer_results)
    return Reading(messages, replace_foreign, calling_messages, stored_results, client_results)


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
