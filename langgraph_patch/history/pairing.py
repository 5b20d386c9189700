"""Read a history: its calls and results, and which belong together.

`matching` decides which result belongs to which call. Here each call also gets its id and name in
the repaired history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.calls import Call, computer_call_ids, is_complete, read_calls
from langgraph_patch.history.fields import VALID_ID, corrected, derived_id, valid_name
from langgraph_patch.history.matching import CallingMessage, PairedCall, pair
from langgraph_patch.history.placeholders import look_again_from
from langgraph_patch.history.results import Result, read_results


@dataclass(eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        corrected: The messages with corrected fields; the same objects where they are valid.
        calling_messages: The messages that call tools, by their index.
        stored_results: The results, by the index of the message that holds them.
    """

    messages: Sequence[BaseMessage]
    corrected: Sequence[BaseMessage]
    calling_messages: dict[int, CallingMessage]
    stored_results: dict[int, Sequence[Result]]

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
            for call_id in (paired.new.id, *paired.new.earlier_ids)
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
    reading = Reading(messages, [corrected(message) for message in messages], {}, {})
    computer_calls: set[str] = set()
    after = -1  # the last message that holds more than results
    for index, message in enumerate(reading.corrected):
        if isinstance(message, AIMessage):
            computer_calls |= computer_call_ids(message)
            if calls := read_calls(message, index):
                calling = reading.calling_messages[index] = CallingMessage(index, message, after)
                calling.calls = [PairedCall(calling, call, call) for call in calls]
                computer_calls.difference_update(call.id for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in computer_calls:
            pass  # it stays where it is
        elif results := read_results(message, index, after):
            reading.stored_results[index] = results
            if results[0].remainder is None:
                continue
        after = index
    pair(reading.calling_messages, reading.stored_results)
    _choose_ids_and_names([*reading.paired_calls], used_ids)
    for calling in reading.calling_messages.values():
        _note_what_follows(calling, reading, leaves_open=leaves_open)
    for paired in reading.paired_calls:
        if look_again and paired.stated is not None:
            paired.look_again = look_again_from(paired.stated)
    return reading


# --- ids and names in the repaired history -------------------------------------------------


def _choose_ids_and_names(calls: Sequence[PairedCall], used_ids: Iterable[str]) -> None:
    """Set the new id and name of each call: unique ids, and names that every provider accepts."""
    seen = set(used_ids)
    taken = seen | {paired.call.id for paired in calls}
    salts: Counter[Hashable] = Counter()
    for paired in calls:
        call, new_id, earlier = paired.call, paired.call.id, paired.call.earlier_ids
        if not VALID_ID.match(call.id) or call.id in seen:
            new_id, earlier = _free_id(paired, taken, salts), (*earlier, call.id)
            taken.add(new_id)
        seen.add(new_id)
        # A call without a name has the one that its result names.
        name = valid_name(call.name or (paired.real and paired.real.name) or "")
        if (new_id, name) != (call.id, call.name):
            paired.new = replace(call, id=new_id, name=name, earlier_ids=earlier)


def _free_id(paired: PairedCall, taken: AbstractSet[str], salts: Counter[Hashable]) -> str:
    seed = (paired.call.id, paired.calling.message.id, paired.call.ordinal)
    while True:
        found = derived_id(*seed, salt=salts[seed])
        salts[seed] += 1  # calls with equal seeds (messages without ids) do not try a salt twice
        if found not in taken:
            return found


# --- what follows a message with its results -------------------------------------------------


def _note_what_follows(calling: CallingMessage, reading: Reading, *, leaves_open: bool) -> None:
    """Note where the results of a message end, and which of its calls stay open there.

    Never one with incomplete arguments: nothing that runs next may run it. While a call stays open,
    its message keeps its ids and names: what asks a human about the call, or answers it, knows it
    by these.
    """
    following = range(calling.index + 1, len(reading.messages))
    calling.end = next((k for k in following if _separates(k, calling, reading)), following.stop)
    others = (reading.messages[k] for k in range(calling.end, following.stop))
    speaker = next((m for m in others if isinstance(m, HumanMessage | AIMessage)), None)
    calling.human_follows = isinstance(speaker, HumanMessage)
    for paired in calling.calls:
        is_left = leaves_open and calling.end == following.stop
        paired.stays_open = is_left and paired.answer is None and is_complete(paired.call)
    if any(paired.stays_open for paired in calling.calls):
        for paired in calling.calls:
            paired.new = paired.call


def _separates(index: int, calling: CallingMessage, reading: Reading) -> bool:
    """Whether a message stays in the history and holds none of these calls' results.

    Results that the repair drops, and results of computer calls, do not separate.
    """
    found = reading.stored_results.get(index, ())
    if not found:
        return not isinstance(reading.messages[index], ToolMessage)
    is_of_others = any(each.call_index not in (None, calling.index) for each in found)
    return found[0].remainder is not None or is_of_others
