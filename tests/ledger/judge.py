"""Compares what a model read with the ledger and with the records.

Statements about the world ("was cancelled", "failed", a result) are judged by the ledger.
Statements about the record ("no result was recorded") are judged by the checkpoints that the run
had before it, as they were when the run began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ledger.checkpoints import LIBRARY_MARK
from ledger.facts import Case, Facts, Run
from ledger.texts import meaning
from ledger.world import REF, Emitted, Key, Read

TRUE, UNKNOWN, LOST, FALSE, WEAK, UNCLEAR = "true", "unknown", "lost", "false", "weak", "unclear"


ABOUT_RESULTS = frozenset({"result", "effect", "handoff", "answer", "empty", "refused_by_tool"})


@dataclass(frozen=True)
class Verdict:
    """A judgement of one statement.

    Attributes:
        outcome: `true`, `unknown`, `lost` (unknown though recorded), `false`, `weak` (true, but
            more could have been stated), or `unclear` (the harness does not know what it means).
        label: The class of a false, weak or lost statement.
        key: The call.
        text: What was read.
        read: The number of the log entry of the model call.
    """

    outcome: str
    label: str
    key: Key
    text: str
    read: int = 0


@dataclass
class Judge(Facts):
    """Judges the statements of one scenario, after it has ended."""

    def verdicts(self) -> Iterator[Verdict]:
        """A verdict for each call in each model call."""
        for number, read in self.world.all(Read):
            for call, message, result, nth in pairs(read.messages):
                key = self._key(message, call, nth)
                if key is not None and result is not None:
                    verdict = self._verdict(key, result, number, read)
                    yield Verdict(*verdict, key, result.text, number)

    def _key(self, message: AIMessage, call: Any, nth: int) -> Key | None:
        """The call that a model wrote, found by its arguments, else by its id.

        Args:
            message: The message as it was read. The library may have renamed its ids.
            call: The call as it was read.
            nth: How many calls of the same name and arguments precede it in the message.
        """
        refs = REF.findall(repr(call["args"]))
        # `tool_calls` holds the complete calls of a message, before those that were cut off.
        written = sorted(self.calls, key=lambda e: e.malformed)
        own = [e.key for e in written if e.key.message == message.id]
        for keys in (own, [e.key for e in self.calls]):
            alike = [k for k in keys if k.name == call["name"] and (not refs or k.ref == refs[0])]
            exact = [k for k in alike if k.call == call["id"]]
            if exact:
                # If the graph changed the ids of messages, equal calls cannot be told apart.
                return exact[0] if len({k.message for k in exact}) == 1 else None
            if refs and keys is own and nth < len(alike):
                return alike[nth]
            if len(alike) == 1:
                return alike[0]
        return None

    # --- one statement -------------------------------------------------------------------

    def _verdict(self, key: Key, result: ToolMessage, at: int, read: Read) -> tuple[str, str]:
        stated = meaning(result.text, result.additional_kwargs.get(LIBRARY_MARK))
        case = Case(key, stated, result.text, at, read, self.runs[read.run])
        check = self._checks.get(stated.kind)
        if check is not None and (label := check(case)) is not None:
            return FALSE, label
        if stated.kind == "unclear":
            return UNCLEAR, result.text[:60]
        return (TRUE, "") if stated.kind in ABOUT_RESULTS else self._without_result(case)

    def _without_result(self, case: Case) -> tuple[str, str]:
        """The text is true, as far as it goes. Is a result recorded all the same?"""
        if lost := self._recorded_result(case):
            has_rival = self._has_rival(case, of_same_tool=False)
            if has_rival or self._is_ambiguous(case) or self._has_equal_call(case):
                return WEAK, "a result is recorded, but several equal calls may own it"
            return LOST, lost
        if self._hides_inner_results(case):
            return LOST, "a subagent's result is recorded"
        if case.stated.kind in {"unknown", "no_result", "not_complete"}:
            return self._unknown(case)
        return TRUE, ""

    def _unknown(self, case: Case) -> tuple[str, str]:
        """The text knows nothing. Is more recorded?"""
        begun = self._begun(case)
        if any(n in case.evidence.errors for n in begun):
            return WEAK, "unknown, though an error of it is recorded"
        asked = any(case.key.ref in text for text in case.evidence.asked)
        if self.approval and asked and not begun and not case.evidence.answers:
            return WEAK, "may have run, though it was never approved"
        return UNKNOWN, ("" if begun else "nothing has started")

    @property
    def _checks(self) -> dict[str, Callable[[Case], str | None]]:
        """What finds the class of a false statement, by the kind of statement."""
        return {
            "result": self._false_result,
            "effect": self._false_effect,
            "handoff": self._false_handoff,
            "answer": self._false_answer,
            "cancelled": self._false_cancellation,
            "not_complete": self._false_cancellation,
            "no_answer": self._false_wait,
            "waiting_recorded": self._false_recorded_wait,
            "failed": self._false_failure,
            "failed_recorded": self._false_recorded_failure,
            "timed_out_recorded": self._false_recorded_failure,
            "cancel_recorded": self._false_recorded_cancellation,
            "not_run": self._false_rest,
            "rejected": self._false_rest,
            "not_approved_recorded": self._false_recorded_rest,
            "not_started_recorded": self._false_recorded_rest,
        }

    # results

    def _false_result(self, case: Case) -> str | None:
        """A result or error of a tool: of this call, and of an ended execution?"""
        for number in case.stated.receipts:
            execution = self.starts.get(number)
            if execution is None:
                return "result that no tool gave"
            if execution.key != case.key:
                if case.key.name == "task" and execution.agent == "sub":
                    continue
                if self._is_indistinguishable(case, number):
                    continue
                return _other(case.key, execution.key)
            kinds = {e.kind for n, e in self.tools if e.execution == number and n < case.at}
            if not kinds & {"end", "raised"}:
                return "result of an execution that had not ended"
            # A handled error is the recorded result, until a later one is recorded.
            if "raised" in kinds and self._have_all_finished(case):
                return "says failed, but it finished later"
        return None

    def _false_effect(self, case: Case) -> str | None:
        """A result that states an effect in the graph's state."""
        if case.stated.receipts and (label := self._false_result(case)):
            return label
        key, _, ref = case.stated.subject.partition(":")
        if case.key.ref != ref:
            owner = next((e.key for e in self.calls if e.key.ref == ref), None)
            runs = [n for n, e in self.starts.items() if e.key == owner]
            is_open = any(self._is_indistinguishable(case, number) for number in runs)
            has_rival = self._has_rival(case, of_same_tool=True)
            return None if is_open or has_rival else _other(case.key, owner)
        if case.stated.not_kept or self._is_stored(case) or self._is_mixed(case):
            return None
        if case.run.state is None or case.run.error:
            return None  # nobody can tell what the state would have been
        return f"states an effect that the state does not have ({key})"

    def _false_handoff(self, case: Case) -> str | None:
        """A handoff took place if the other agent was called after it was written.

        A run that died may have died between the two: it is not judged.
        """
        emitted = next(n for n, e in self.world.all(Emitted) if e.key == case.key)
        run = [r for r in self.runs if r.begin <= emitted][-1]
        if case.stated.not_kept or run.error or run.event == "kill":
            return None
        readers = {r.agent for n, r in self.world.all(Read) if emitted < n <= case.at}
        return None if case.stated.subject in readers else "states a handoff that did not happen"

    def _false_answer(self, case: Case) -> str | None:
        """The final answer of a subagent."""
        final = self.final_answers.get(case.stated.subject)
        is_own = final is not None and final.parent == case.key.ref
        is_own = is_own or self._has_rival(case, of_same_tool=True)
        return None if is_own else "answer of another call"

    # statements about the world

    def _false_cancellation(self, case: Case) -> str | None:
        says = "says cancelled" if case.stated.kind == "cancelled" else "says did not complete"
        if self._has_worked(case):
            return f"{says}, effect happened"
        return f"{says}, but it raised" if self._happened(case, "raised") else None

    def _false_wait(self, case: Case) -> str | None:
        if self._has_worked(case):
            return "says no answer came, effect happened"
        if any(e.kind == "answered" for _, e in self._events(case, late=False)):
            return "says no answer came, but it was answered"
        return None if self._has_asked(case) else "says waiting, but it never asked"

    def _false_failure(self, case: Case) -> str | None:
        """A failure: did it happen, and is it the last word?"""
        if any(self._key_of(n) != case.key for n in case.stated.receipts):
            return "real error of another call"
        if self._happened(case, "end"):
            return "says failed, but it finished"
        if not case.stated.receipts and self._happened(case, "effect"):
            return "says failed, effect happened"
        return None

    def _false_rest(self, case: Case) -> str | None:
        """A call that is stated not to have run."""
        says = "says not run" if case.stated.kind == "not_run" else "says rejected"
        if self._has_worked(case):
            return f"{says}, effect happened"
        return f"{says}, but it started" if self._begun(case) else None

    # statements about the record

    def _false_recorded_wait(self, case: Case) -> str | None:
        if not self._has_asked(case):
            return "says waiting, but it never asked"
        if self._recorded_result(case) and not self._has_equal_call(case):
            return "says no result recorded, but one is"
        if self._searched_run(case).evidence.answers.intersection(self._last_answers(case)):
            return "says no answer recorded, but one is"
        return None

    def _false_recorded_failure(self, case: Case) -> str | None:
        """A recorded error: is it this call's, is it recorded, and is no result recorded?"""
        if any(self._key_of(n) != case.key for n in case.stated.receipts):
            return "real error of another call"
        is_unclear = self._has_equal_call(case) or self._has_rival(case, of_same_tool=False)
        if self._recorded_result(case) and not is_unclear:
            return "says failed, but a result is recorded"
        if case.stated.receipts:
            # Only the record has the receipt. It may be newer than the beginning of the run.
            recorded = self._raised(case).issuperset(case.stated.receipts)
        else:
            error = case.text.partition("attempt: ")[2] or case.text.partition("gone on: ")[2]
            texts = case.evidence.error_texts
            recorded = any(error[:40] in text or text[:40] in error for text in texts)
        return None if recorded else "says an error is recorded, but none is"

    def _false_recorded_cancellation(self, case: Case) -> str | None:
        # It may be newer than the beginning of the run.
        recorded = any(run.evidence.cancelled for run in self.runs[case.read.run :])
        return None if recorded else "says a cancellation is recorded, but none is"

    def _false_recorded_rest(self, case: Case) -> str | None:
        """A call of which no start and no result is stated to be recorded."""
        if self._recorded_result(case) and not self._has_equal_call(case):
            return "says no result recorded, but one is"
        started = [n for n in self._begun(case) if n < case.run.begin]
        if started and self.recorded and not self.exit_only:
            return "says no start recorded, but one is"
        is_approved = case.key.message in case.evidence.approved
        if case.stated.kind == "not_approved_recorded" and is_approved:
            return "says not approved, but an approval is recorded"
        return None

    def twice(self) -> list[tuple[Key, int, int]]:
        """Recorded calls with an effect that happened twice, though the first result was recorded.

        A run that begins at an older checkpoint runs its calls again on purpose. It may pause in
        one, so that a later run ends it.

        Returns:
            For each: the call, the first execution and the second.
        """
        found = []
        for number, second in self.starts.items():
            if self._may_all_be_first_runs(number):
                continue
            for first in self._run_of(number).evidence.executions:
                same = first in self.starts and self.starts[first].key == second.key
                both = [
                    any(e.execution == n and e.kind == "effect" for _, e in self.tools)
                    for n in (first, number)
                ]
                if same and first < number and all(both):
                    since = [n for n, e in self.starts.items() if e.key == second.key and n > first]
                    if not any(self._run_of(n).replay for n in since if n <= number):
                        found.append((second.key, first, number))
        return found

    def _may_all_be_first_runs(self, number: int) -> bool:
        """Whether as many equal calls were made as have had an effect with this execution."""
        key = self.starts[number].key
        had_effect = {e.execution for _, e in self.tools if e.kind == "effect" and e.key == key}
        equal = sum(e.key == key for e in self.calls)
        return sum(execution <= number for execution in had_effect) <= equal

    def _run_of(self, number: int) -> Run:
        """The run in which a log entry was written."""
        return [r for r in self.runs if r.begin <= number][-1]  # a repair before it has no entry


def _other(key: Key, owner: Key | None) -> str:
    """The class of a result that is another call's."""
    if owner is not None and owner.call == key.call:
        return "result of another call of the same id"
    return "real result of another call"


def pairs(
    messages: Sequence[BaseMessage],
) -> Iterator[tuple[Any, AIMessage, ToolMessage | None, int]]:
    """Each tool call of a history: the call, its message, its result, and its number.

    The number counts the calls of the same name and arguments that precede it in the message.
    """
    for index, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            continue
        answers: dict[str, ToolMessage] = {}
        for after in messages[index + 1 :]:
            if not isinstance(after, ToolMessage):
                break
            answers.setdefault(after.tool_call_id, after)
        seen: Counter[str] = Counter()
        for call in message.tool_calls:
            same = repr((call["name"], call["args"]))
            yield call, message, answers.get(str(call["id"])), seen[same]
            seen[same] += 1
