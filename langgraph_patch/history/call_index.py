"""The calls of a history by what a result can name of them.

A result names the id of its call, or only its tool, or nothing. An id may be one that a repair has
changed since: then the call has a derived id, with the old one as its stem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from langgraph_patch.history.ids import derived_id, possible_stem, stem_of
from langgraph_patch.history.paired_calls import CallingMessage, PairedCall, StoredResult
from langgraph_patch.history.tool_calls import Call
from langgraph_patch.history.tool_results import Result

MAX_STEM_MATCHES = 32
"""How many calls with the same stem are checked for a derived id; each check is a digest."""


class CallIndex:
    """All calls, by what a result can name of them.

    Attributes:
        messages: The index in the history -> the message that makes calls.
        stored_results: The index in the history -> the results in that message.
        by_place: (index, key) -> the calls of that message that have the key.
        names_at: (index, key) -> the tools that these calls name.
        names: The key -> the tools that its calls name, in the whole history.
        answered_ids: The ids that real results name.
        before: The index of a message -> that of the last one before it that is no result. Only
            messages that hold results and nothing else stand between them.
        after: The index of a message with results -> that of the first one after it that is none.
    """

    def __init__(
        self,
        calling_messages: Mapping[int, CallingMessage],
        stored_results: Mapping[int, Sequence[StoredResult]],
    ) -> None:
        self.messages = calling_messages
        self.stored_results = stored_results
        self.by_place: dict[tuple[int, Hashable], list[PairedCall]] = defaultdict(list)
        self.names_at: dict[tuple[int, Hashable], set[str]] = defaultdict(set)
        self.names: dict[Hashable, set[str]] = defaultdict(set)
        for index, calling in calling_messages.items():
            for paired in calling.calls:
                for key in keys_of_call(paired.call):
                    self.by_place[index, key].append(paired)
                    self.names_at[index, key].add(paired.label)
                    self.names[key].add(paired.label)
        self.before: dict[int, int] = {}
        self.after: dict[int, int] = {}
        for index in sorted(stored_results):
            self.before[index] = self.results_before(index).start - 1
        for index in sorted(stored_results, reverse=True):
            self.after[index] = self.after[index + 1] if self._is_result(index + 1) else index + 1
        self.answered_ids = {
            stored.result.call_id
            for parts in stored_results.values()
            for stored in parts
            if not stored.is_placeholder
        }

    def _is_result(self, index: int) -> bool:
        """Whether a message holds results and nothing else."""
        parts = self.stored_results.get(index, ())
        return bool(parts) and not any(s.holds_more or not s.result.is_certain for s in parts)

    def results_before(self, index: int) -> range:
        """The indexes of the messages directly before one that hold results and nothing else."""
        return range(self.before[index - 1] + 1 if self._is_result(index - 1) else index, index)

    def renamed(self, index: int, call_id: str) -> list[PairedCall]:
        """The calls of a message that a repair renamed from `call_id`, without a result."""
        return [
            paired
            for paired in self.with_stem(index, call_id)[:MAX_STEM_MATCHES]
            if paired.call.id not in self.answered_ids and is_renamed_from(paired, call_id)
        ]

    def with_stem(self, index: int, call_id: str) -> Sequence[PairedCall]:
        """The calls of a message that a repair may have renamed from `call_id`."""
        return self.by_place.get((index, ("stem", stem_of(call_id))), ())

    def names_of(self, key: Hashable) -> set[str]:
        """The tools that calls of a key name; for an id also those of calls renamed from it."""
        names = self.names.get(key, set())
        if isinstance(key, tuple) and key[0] == "id":
            return names | self.names.get(("stem", stem_of(key[1])), set())
        return names


def is_renamed_from(paired: PairedCall, call_id: str) -> bool:
    """Whether an earlier repair renamed a call from `call_id`."""
    return paired.call.id == derived_id(call_id, paired.calling.message.id, paired.ordinal)


# --- keys -------------------------------------------------------------------------------


def keys_of_call(call: Call) -> Iterator[Hashable]:
    """What a result can name of a call: its id, its tool, nothing, or the stem of its id."""
    yield ("id", call.id)
    yield ("name", call.name)
    yield "any"
    if (stem := possible_stem(call.id)) is not None:
        yield ("stem", stem)


def is_stem(key: Hashable) -> bool:
    """Whether a key is the stem of an id."""
    return isinstance(key, tuple) and key[0] == "stem"


def key_of_result(result: Result) -> Hashable:
    """What a result names of its call."""
    if result.call_id is not None:
        return ("id", result.call_id)
    return ("name", result.name) if result.name else "any"
