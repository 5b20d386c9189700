"""Read a history: its calls and results, and which belong together.

`matching` decides which result belongs to which call. Here each call also gets its id and name in
the repaired history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_patch.history.calls import Call, computer_call_ids, read_calls
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.ids import VALID_ID, derived_id, valid_name
from langgraph_patch.history.matching import CallingMessage, PairedCall, pair
from langgraph_patch.history.placeholders import is_client_fake, is_synthetic, look_again_from
from langgraph_patch.history.results import Result, read_results


@dataclass(eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        corrected: The messages with corrected fields (`damaged_fields`), by their index.
        calling_messages: The messages that call tools, by their index.
        stored_results: The results, by the index of the message that holds them.
        leaves_open: Whether calls at the end of the history stay without a result, because
            something that answers them runs next.
    """

    messages: Sequence[BaseMessage]
    corrected: Mapping[int, BaseMessage]
    calling_messages: Mapping[int, CallingMessage]
    stored_results: Mapping[int, Sequence[Result]]
    leaves_open: bool = False

    @property
    def paired_calls(self) -> Iterator[PairedCall]:
        """All calls, in the order of the history."""
        return (paired for calling in self.calling_messages.values() for paired in calling.calls)

    @property
    def unanswered(self) -> list[Call]:
        """The calls to search for."""
        return [paired.call for paired in self.paired_calls if paired.is_open]

    @property
    def without_result(self) -> list[Call]:
        """The calls without a real result, also those with a final placeholder."""
        return [paired.call for paired in self.paired_calls if paired.real is None]

    @property
    def looked_for_again(self) -> dict[tuple[int, int], str]:
        """The keys of the calls that this turn searches for once more; from which checkpoint."""
        return {
            paired.call.key: paired.look_again
            for paired in self.paired_calls
            if paired.real is None and paired.look_again is not None
        }

    @cached_property
    def call_ids(self) -> set[str]:
        """The ids of all calls: as stored, in the repaired history, and earlier ones."""
        return {
            call_id
            for paired in self.paired_calls
            for call_id in (paired.call.id, paired.new_id, *paired.call.earlier_ids)
        }

    @cached_property
    def message_ids(self) -> set[Hashable | None]:
        """The ids of all messages."""
        return {message.id for message in self.messages}


def read_history(
    messages: Sequence[BaseMessage],
    *,
    leaves_open: bool = False,
    look_again: bool = False,
    used_ids: Iterable[str] = (),
) -> Reading:
    """Pair the tool calls and the results of `messages`.

    Args:
        messages: The history; it is not changed.
        leaves_open: Whether calls at the end of the history stay without a result. Default: False.
        look_again: Whether to search again for calls with a placeholder that asks for it.
            Default: False.
        used_ids: Ids that calls of an earlier part of the history have. Default: none.
    """
    calling_messages: dict[int, CallingMessage] = {}
    stored_results: dict[int, list[Result]] = {}
    computer_calls: set[str] = set()
    corrections: dict[int, BaseMessage] = {}
    after = -1  # the last message that holds more than results
    for index, stored in enumerate(messages):
        message = corrected(stored)
        if message is not stored:
            corrections[index] = message
        if isinstance(message, AIMessage):
            computer_calls |= computer_call_ids(message)
            if calls := read_calls(message, index):
                calling = calling_messages[index] = CallingMessage(index, message, after)
                calling.calls = [PairedCall(calling, call, call.id, call.name) for call in calls]
                computer_calls.difference_update(call.id for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in computer_calls:
            pass  # it stays where it is
        elif results := read_results(message, index):
            for result in results:
                result.after = after
                result.is_fake = is_client_fake(result.message)
                result.is_placeholder = is_synthetic(result.message)
            stored_results[index] = results
        if index not in stored_results or stored_results[index][0].holds_more:
            after = index
    pair(calling_messages, stored_results)
    _choose_ids_and_names(calling_messages.values(), used_ids)
    for calling in calling_messages.values():
        calling.end = _end_of_results(calling, messages, stored_results)
    _note_placeholders(calling_messages.values(), look_again=look_again)
    return Reading(messages, corrections, calling_messages, stored_results, leaves_open)


def _note_placeholders(calling_messages: Iterable[CallingMessage], *, look_again: bool) -> None:
    """Note of each placeholder whether it stays, and whether this turn searches once more."""
    for paired in (paired for calling in calling_messages for paired in calling.calls):
        if paired.placeholder is not None and not paired.placeholder.is_fake:
            paired.stated = paired.placeholder.message
            paired.look_again = look_again_from(paired.stated) if look_again else None


# --- ids and names in the repaired history -------------------------------------------------


def _choose_ids_and_names(
    calling_messages: Iterable[CallingMessage], used_ids: Iterable[str]
) -> None:
    """Set the new id and name of each call: unique ids, and names that every provider accepts."""
    calls = [paired for calling in calling_messages for paired in calling.calls]
    seen = set(used_ids)
    taken = seen | {paired.call.id for paired in calls}
    salts: Counter[Hashable] = Counter()
    for paired in calls:
        if not VALID_ID.match(paired.call.id) or paired.call.id in seen:
            paired.new_id = _free_id(paired, taken, salts)
            taken.add(paired.new_id)
        seen.add(paired.new_id)
        # A call without a name has the one that its result names.
        paired.new_name = valid_name(paired.call.name or (paired.real and paired.real.name) or "")


def _free_id(paired: PairedCall, taken: AbstractSet[str], salts: Counter[Hashable]) -> str:
    seed = (paired.call.id, paired.calling.message.id, paired.call.ordinal)
    while True:
        found = derived_id(*seed, salt=salts[seed])
        salts[seed] += 1  # calls with equal seeds (messages without ids) do not try a salt twice
        if found not in taken:
            return found


# --- where the results of a message end ----------------------------------------------------


def _end_of_results(
    calling: CallingMessage,
    messages: Sequence[BaseMessage],
    stored_results: Mapping[int, Sequence[Result]],
) -> int:
    """The first index after a message that does not hold one of its results.

    Results that the repair drops, and results of computer calls, may be in between.
    """
    for index in range(calling.index + 1, len(messages)):
        found = stored_results.get(index, ())
        is_computer = not found and isinstance(messages[index], ToolMessage)
        if not is_computer and (
            not found or found[0].holds_more or any(_separates(each, calling) for each in found)
        ):
            return index
    return len(messages)


def _separates(stored: Result, calling: CallingMessage) -> bool:
    """Whether a result stays in the history and is not one of this message's results."""
    return stored.call_index not in (None, calling.index)
