"""Read a history: its calls and results, paired, and what follows each message that calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_patch.history.calls import Call, computer_call_ids, is_complete, read_calls
from langgraph_patch.history.fields import corrected
from langgraph_patch.history.pairing import CallingMessage, PairedCall, pair
from langgraph_patch.history.placeholders import look_again_from
from langgraph_patch.history.results import Result, read_results


@dataclass(frozen=True, eq=False)
class Reading:
    """The tool calls and results of a history, paired.

    Attributes:
        messages: The history that was read. It is never changed.
        corrected: The messages with corrected fields; the same objects where they are valid.
        calling_messages: The messages that call tools, by their index.
        stored_results: The results, by the index of the message that holds them.
        of_computer: The indexes of the results of computer calls, which stay where they are.
    """

    messages: Sequence[BaseMessage]
    corrected: Sequence[BaseMessage]
    calling_messages: dict[int, CallingMessage]
    stored_results: dict[int, Sequence[Result]]
    of_computer: set[int] = field(default_factory=set)

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
        return {paired.call.id for paired in self.paired_calls}

    @cached_property
    def message_ids(self) -> set[Hashable | None]:
        return {message.id for message in self.messages}


def read_history(
    messages: Sequence[BaseMessage],
    *,
    leaves_open: bool = False,
    look_again: bool = False,
    ends_pauses: bool = False,
) -> Reading:
    """Pair the tool calls and the results of `messages`.

    Args:
        messages: The history; it is not changed.
        leaves_open: Whether calls at the end of the history stay without a result. Default: False.
        look_again: Whether to search again for calls with a placeholder that asks for it.
            Default: False.
        ends_pauses: Whether no pause is open any more: what is read for ends them. Default: False.
    """
    reading = Reading(messages, [corrected(message) for message in messages], {}, {})
    computer_calls: set[str] = set()
    after = -1  # the last message that holds more than results
    before_human = _places_before_human(messages)
    for index, message in enumerate(reading.corrected):
        if isinstance(message, AIMessage):
            computer_calls |= computer_call_ids(message)
            if calls := read_calls(message, index):
                is_over = ends_pauses or index in before_human
                calling = CallingMessage(index, message, after, is_over)
                reading.calling_messages[index] = calling
                calling.calls = [PairedCall(calling, call) for call in calls]
                computer_calls.difference_update(call.id for call in calls)
        elif isinstance(message, ToolMessage) and message.tool_call_id in computer_calls:
            reading.of_computer.add(index)
        elif results := read_results(message, index, after, human_follows=index in before_human):
            reading.stored_results[index] = results
            if results[0].remainder is None:
                continue
        after = index
    pair(reading.calling_messages, reading.stored_results)
    for calling in reading.calling_messages.values():
        _note_what_follows(calling, reading, leaves_open=leaves_open)
    for paired in reading.paired_calls:
        if look_again and paired.stated is not None:
            paired.look_again = look_again_from(paired.stated)
    return reading


def _places_before_human(messages: Sequence[BaseMessage]) -> set[int]:
    """The indexes of the messages behind which a human speaks before a model does."""
    found, is_human = set[int](), False
    for index in reversed(range(len(messages))):
        if is_human:
            found.add(index)
        if isinstance(messages[index], HumanMessage | AIMessage):
            is_human = isinstance(messages[index], HumanMessage)
    return found


# --- what follows a message with its results -------------------------------------------------


def _note_what_follows(calling: CallingMessage, reading: Reading, *, leaves_open: bool) -> None:
    """Note where the results of a message end, and which of its calls stay open there.

    An approval that finds a placeholder behind the message of a model asks nobody. So an invalid
    call stays, too, until the calls beside it have results: nothing will run it. One that is
    listed, and not complete, does not stay: what runs next would run it.
    """
    following = range(calling.index + 1, len(reading.messages))
    calling.end = next((k for k in following if _separates(k, calling, reading)), following.stop)
    others = (reading.messages[k] for k in range(calling.end, following.stop))
    is_left = leaves_open and all(isinstance(each, SystemMessage) for each in others)
    complete = [paired for paired in calling.calls if is_complete(paired.call)]
    is_running = not complete or any(paired.answer is None for paired in complete)
    for paired in calling.calls:
        may_stay = is_complete(paired.call) or (paired.call.is_unfinished and is_running)
        paired.stays_open = is_left and paired.answer is None and may_stay


def _separates(index: int, calling: CallingMessage, reading: Reading) -> bool:
    """Whether a message stays in the history and holds none of these calls' results.

    Results that the repair drops, and results of computer calls, do not separate.
    """
    found = reading.stored_results.get(index, ())
    if not found:
        return not isinstance(reading.messages[index], ToolMessage)
    is_of_others = any(each.call_index not in (None, calling.index) for each in found)
    return found[0].remainder is not None or is_of_others
