"""Choose the ids and names that calls have in the repaired history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from langgraph_patch.history.ids import VALID_ID, derived_id, valid_name
from langgraph_patch.history.paired_calls import CallingMessage, PairedCall


def choose_ids_and_names(calling_messages: Iterable[CallingMessage]) -> None:
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
