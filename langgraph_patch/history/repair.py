"""One pass over a history that has been read: every message is written where it belongs.

Each turn writes its message, its real results, then what takes the place of the missing
ones. Everything else is copied as it is. What is done is noted beside the reason for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch.history.pairing import Entry, Reading, Slot, Turn
from langgraph_patch.history.patch import (
    Change,
    ChangeKind,
    Defect,
    DefectKind,
    Evidence,
    Finding,
)
from langgraph_patch.history.placeholders import (
    Cause,
    DanglingCall,
    cause_of,
    is_foreign_placeholder,
    is_placeholder,
)
from langgraph_patch.history.rewrite import digest_of, point_result, rest_of, write_calls


class Repair:
    """One repair of one history.

    Attributes:
        done: Each defect with the change that mended it, in the order of the history.
    """

    def __init__(
        self,
        reading: Reading,
        *,
        make: Callable[..., ToolMessage],
        evidence: Evidence,
        allow_pending: bool,
    ) -> None:
        """Take a history that has been read.

        Args:
            reading: The history with its calls and results paired; never changed.
            make: Makes a placeholder of a `DanglingCall`, its ordinal and `human_follows`.
            evidence: What the checkpoints recorded about calls without a result.
            allow_pending: Whether calls at the tail may stay open.
        """
        self.done: list[tuple[Defect, Change]] = []
        self._history = reading.messages
        self._make = make
        self._evidence = evidence
        self._replace_foreign = reading.replace_foreign
        self._allow_pending = allow_pending
        self._reading = reading

    def run(self) -> list[BaseMessage]:
        """Write the repaired history and note what is done."""
        repaired: list[BaseMessage] = []
        for index, message in enumerate(self._history):
            if (turn := self._reading.turns.get(index)) is not None:
                repaired.extend(self._turn(turn))
            elif (entries := self._reading.entries.get(index)) is not None:
                repaired.extend(self._rest(message, entries))
            else:
                repaired.append(message)
        return repaired

    # --- a message that answers: its results are written by their turns ----------------

    def _rest(self, message: BaseMessage, entries: Sequence[Entry]) -> list[BaseMessage]:
        for entry in entries:
            if entry.slot is not None:
                continue
            if not entry.result.certain:
                return [message]
            self._note(
                "dropped",
                self._why_dropped(entry),
                entry.index,
                entry.result.call_id or "",
                entry.result.name,
                before=message,
            )
        rest = rest_of(message)
        return [] if rest is None else [rest]

    def _why_dropped(self, entry: Entry) -> DefectKind:
        known = entry.result.call_id in self._known_ids
        if known and entry.synthetic:
            return "superseded"
        return "duplicate" if known else "orphan"

    @cached_property
    def _known_ids(self) -> set[str]:
        slots = (slot for turn in self._reading.turns.values() for slot in turn.slots)
        return {known for slot in slots for known in (slot.call.id, slot.call_id)}

    # --- a message that calls ------------------------------------------------------------

    def _turn(self, turn: Turn) -> list[BaseMessage]:
        held = {slot for slot in turn.slots if self._is_held(slot)}
        called = self._calls(turn, held)
        kept = {slot for slot in turn.slots if self._keeps_answer(slot)}
        missing = [slot for slot in turn.slots if slot not in kept and slot not in held]
        order = [*sorted(kept, key=_order_of_answer), *missing]
        if _has_namesakes(turn) and (missing or not all(map(_stands_in_place, kept))):
            order.sort(key=_order_of_call)
        elif missing:
            order.sort(key=_reals_first)
        human_follows = bool(missing) and self._human_follows(turn)
        return [  # a list: what a placeholder callable raises leaves no generator unchanged
            called,
            *[
                self._answer(slot)
                if slot in kept
                else self._substitute(slot, human_follows=human_follows)
                for slot in order
            ],
        ]

    def _is_held(self, slot: Slot) -> bool:
        """Whether a call at the tail is left to whoever runs next.

        A malformed one is not: listed with `{}` and left open, it would be run.
        """
        at_tail = slot.turn.end == len(self._history)
        runnable = slot.call.raw is None and slot.call.source != "invalid_tool_calls"
        return self._allow_pending and at_tail and slot.answer is None and runnable

    def _calls(self, turn: Turn, held: AbstractSet[Slot]) -> AIMessage:
        if all(slot.call.listed or slot in held for slot in turn.slots) and not any(
            _is_renamed(slot) for slot in turn.slots
        ):
            return turn.message
        message = write_calls(
            turn.message, [(slot.call, slot.call_id, slot.name) for slot in turn.slots]
        )
        for slot in turn.slots:
            for kind, why in _reasons(slot):
                self._note_slot(kind, why, slot, before=turn.message, after=message)
        return message

    # --- answers ---------------------------------------------------------------------------

    def _keeps_answer(self, slot: Slot) -> bool:
        if slot.real is not None:
            return True
        if slot.synthetic is None:
            return False
        said = slot.synthetic.result.message
        if self._replace_foreign and is_foreign_placeholder(said):
            return False
        known = self._known(slot)
        if isinstance(known, Finding):
            return known.cause == "unknown" or cause_of(said) != "unknown"
        return known is None

    def _answer(self, slot: Slot) -> ToolMessage:
        entry = slot.answer
        assert entry is not None  # noqa: S101 - by _keeps_answer
        stored = entry.result.message
        message = point_result(stored, slot.call, slot.call_id, slot.name)
        if not entry.result.native:
            if message.id is None:
                message = message.model_copy(update={"id": _result_id(slot)})
            self._note_answer("converted", "wrong_role", slot, entry, message)
        elif not slot.turn.in_place(entry):
            self._note_answer("moved", "misplaced", slot, entry, message)
        elif message.content != stored.content and not _is_renamed(slot):
            self._note_answer("converted", "wrong_role", slot, entry, message)
        elif message is not stored and not _is_renamed(slot):
            self._note_answer("renamed", "bad_name", slot, entry, message)
        return message

    def _substitute(self, slot: Slot, *, human_follows: bool) -> ToolMessage:
        """The recovered result, else a placeholder."""
        known = self._known(slot)
        before = slot.synthetic.result.message if slot.synthetic else None
        why: DefectKind = (
            "superseded" if before else "malformed" if slot.call.raw is not None else "dangling"
        )
        if isinstance(known, ToolMessage):
            message = point_result(known, slot.call, slot.call_id, slot.name)
            replaced = before.id if before else None
            if message.id is None or (message.id != replaced and message.id in self._message_ids):
                message = message.model_copy(update={"id": _result_id(slot)})
            self._note_slot("recovered", why, slot, before=before, after=message)
            return message
        cause, error = _cause(slot, known)
        call = DanglingCall(
            slot.call_id,
            slot.name,
            slot.call.args,
            cause,
            error,
            slot.turn.message,
            slot.turn.index,
        )
        made = self._make(call, slot.ordinal, human_follows=human_follows)
        message = point_result(made, slot.call, slot.call_id, slot.name)
        self._note_slot("inserted", why, slot, cause=cause, before=before, after=message)
        return message

    def _known(self, slot: Slot) -> ToolMessage | Finding | None:
        """What the evidence says of this call, and of no other call with its id."""
        if not self._evidence:
            return None
        key = (slot.turn.message.id, slot.call.id)
        if self._mentions[key] > 1:
            return None
        known = self._evidence.get(key)
        return None if isinstance(known, ToolMessage) and is_placeholder(known) else known

    def _human_follows(self, turn: Turn) -> bool:
        for index in range(turn.end, len(self._history)):
            if isinstance(self._history[index], HumanMessage):
                return True
            if isinstance(self._history[index], AIMessage):
                return False
        return False

    @cached_property
    def _mentions(self) -> Counter[tuple[str | None, str]]:
        turns = self._reading.turns.values()
        return Counter((turn.message.id, slot.call.id) for turn in turns for slot in turn.slots)

    @cached_property
    def _message_ids(self) -> set[str | None]:
        return {message.id for message in self._history}

    # --- notes -----------------------------------------------------------------------------

    def _note(
        self,
        kind: ChangeKind,
        why: DefectKind,
        index: int,
        stored_id: str,
        name: str | None,
        *,
        slot: Slot | None = None,
        cause: Cause | None = None,
        before: BaseMessage | None = None,
        after: BaseMessage | None = None,
    ) -> None:
        new_id, new_name = (slot.call_id, slot.name) if slot else (stored_id, name)
        self.done.append(
            (
                Defect(why, index, stored_id, name),
                Change(kind, index, new_id, new_name, cause, before, after),
            )
        )

    def _note_slot(
        self,
        kind: ChangeKind,
        why: DefectKind,
        slot: Slot,
        *,
        cause: Cause | None = None,
        before: BaseMessage | None,
        after: BaseMessage,
    ) -> None:
        index, call = slot.turn.index, slot.call
        self._note(
            kind, why, index, call.id, call.name, slot=slot, cause=cause, before=before, after=after
        )

    def _note_answer(
        self, kind: ChangeKind, why: DefectKind, slot: Slot, entry: Entry, after: ToolMessage
    ) -> None:
        before = self._history[entry.index]
        call = slot.call
        self._note(
            kind, why, entry.index, call.id, call.name, slot=slot, before=before, after=after
        )


def _stands_in_place(slot: Slot) -> bool:
    return slot.answer is not None and slot.turn.in_place(slot.answer)


def _order_of_answer(slot: Slot) -> tuple[bool, int, int]:
    """In the order of the history; what stood before its call comes last."""
    entry = slot.answer
    assert entry is not None  # noqa: S101 - only slots with an answer are sorted
    return entry.index < slot.turn.index, entry.index, entry.part


def _order_of_call(slot: Slot) -> int:
    return slot.ordinal


def _reals_first(slot: Slot) -> int:
    """Real results in the order in which they stand, then all that takes the place of one."""
    return -1 if slot.real is not None else slot.ordinal


def _has_namesakes(turn: Turn) -> bool:
    """Whether a turn calls one tool twice.

    Gemini gets no ids, only names: there the order alone says which result is whose.
    """
    return len({slot.name for slot in turn.slots}) < len(turn.slots)


def _is_renamed(slot: Slot) -> bool:
    return (slot.call.id, slot.call.name) != (slot.call_id, slot.name)


def _reasons(slot: Slot) -> Iterator[tuple[ChangeKind, DefectKind]]:
    if not slot.call.listed:
        yield "promoted", "unlisted" if slot.call.raw is None else "malformed"
    if slot.call.id != slot.call_id:
        yield "renamed", "bad_id"
    if slot.call.name != slot.name:
        yield "renamed", "bad_name"


def _cause(slot: Slot, known: Finding | None) -> tuple[Cause, str | None]:
    if known is not None:
        return known.cause, known.error
    if slot.call.raw is not None:
        return "malformed", slot.call.raw
    return "unknown", None


def _result_id(slot: Slot) -> str:
    """An id for a result that came without one, or under an id that is another's."""
    digest = digest_of("result", slot.turn.message.id, slot.call_id, slot.ordinal)
    return f"result-{digest[:32]}"
