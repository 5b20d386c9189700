"""What must be true of a log: no false statement, no certain result lost, no certain call run twice.

A result is certain if the log alone shows that LangGraph recorded it, and whose it is. Of every
other call a model may read that its result is unknown.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from langchain_core.messages import AIMessage, ToolMessage

from ledger.events import CLIENT_TEXT
from ledger.world import RECEIPT, REF, Emitted, Final, Read, ToolEvent

CALL = r"^Tool call \S+ with id \S+"
TEXTS = (
    ("unknown", r"^No result of tool call \S+ with id \S+ (was recorded|is known); it may or may"),
    ("unknown", rf"{CALL} has incomplete arguments; no result was recorded"),
    ("not run", rf"{CALL} (was not run|was not approved|could not be executed)"),
    ("not run", rf"{CALL}: no start and no result were recorded"),
    ("not run", r"(^|result:\n)User rejected the tool call for "),
    ("waiting", rf"{CALL} (was|is) waiting for human input.*; no answer and no result were rec"),
    ("failed", rf"{CALL} failed in its last recorded attempt: "),
    ("timed out", rf"{CALL} timed out; it may have gone on: "),
    ("cancelled", rf"{CALL} (was cancelled - another message|did not complete)"),
    ("cancellation", rf"{CALL}: a cancellation was recorded; it may have taken effect"),
    ("by client", f"^{CLIENT_TEXT}$"),
    ("result", RECEIPT.pattern),
    ("effect", rf"Updated (?:file /?|todo list to .*?)(?P<subject>{REF.pattern})"),
    ("handoff", r"^Successfully transferred to (?P<subject>\w+)"),
    ("answer", r"(?P<subject>final-\d+)"),
    ("own words", r"^Error: |can only be|cannot be called|validation error|^\s*$"),
)
"""The kinds of statements. The first that matches counts."""

DISTURBED = {"cancel", "kill", "overtaken", "overtaking", "saver_fault", "step_timeout"}
"""The events that may keep LangGraph from recording what a tool did, or from reading it."""


def meaning(text):
    """The kind of a statement and its subject."""
    for kind, pattern in TEXTS:
        if found := re.search(pattern, text, re.DOTALL):
            return kind, found.groupdict().get("subject", "")
    return "unclear", ""


@dataclass
class Verdict:
    """A problem: its class, a label, the call, what was read, and the number of the entry."""

    problem: str
    label: str
    key: tuple
    text: str
    at: int


class Judge:
    """Judges a scenario that has ended."""

    def __init__(self, session):
        self.session, self.world, self.runs = session, session.world, session.runs
        self.tools = self.world.all(ToolEvent)
        self.did = defaultdict(dict)  # execution -> {kind of event: number of the last entry}
        self.key = {}  # execution -> call
        for number, event in self.tools:
            self.did[event.execution][event.kind] = number
            self.key[event.execution] = event.key
        self.emitted = dict((e.key, e) for _, e in self.world.all(Emitted))
        self.born = {e.key: n for n, e in reversed(self.world.all(Emitted))}
        self.copies = Counter(e.key[1:3] for _, e in self.world.all(Emitted))
        self.finals = {e.label: e for _, e in self.world.all(Final)}
        self.forks = [run.begin for run in self.runs if run.event == "fork"]
        self.counts = Counter()
        self.verdicts = []
        self._judge()

    def _judge(self):
        first = {}  # (call, text) -> the number of its first reading, and its run
        for at, read in self.world.all(Read):
            for key, result in self._pairs(read.messages):
                seen = first.setdefault((key, result.text), (at, read.run))
                kind, subject = meaning(result.text)
                found = ("unclear", "") if kind == "unclear" else self._lost(key, result, at, seen)
                if seen[0] == at:
                    self.counts.update(["statements", kind])
                    if label := self._false(kind, subject, result, key, at):
                        found = ("false", f"{kind}: {label}")
                if found:
                    self._add(*found, key, result.text, at)
        for number, event in self.tools:
            if event.kind == "start":
                self._judge_start(number, event.key)
            label = self.session.asked.get(event.label, "") if event.kind == "answered" else ""
            own = {n for n in self.did if self.key[n] == event.key}
            if label and self.session.kind.own_tasks and not own & _receipts(label):
                self._add("hurt", "an answer reached another call", event.key, label, number)
        self._judge_last_state()

    def _add(self, problem, label, key, text, at):
        if all((v.problem, v.label, v.key, v.text) != (problem, label, key, text)
               for v in self.verdicts):
            self.verdicts.append(Verdict(problem, label, key, text, at))

    def _pairs(self, messages):
        """Each call of a history that a model wrote, and its result."""
        for index, message in enumerate(messages):
            results, seen = {}, Counter()
            for after in messages[index + 1 :]:
                if not isinstance(after, ToolMessage):
                    break
                results.setdefault(after.tool_call_id, after)
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                ref = "".join(REF.findall(repr(call["args"]))[:1])
                same = call["name"], ref
                key = self.world.find(message.id, *same, call["id"], seen[same])
                seen[same] += 1
                if key is not None and call["id"] in results:
                    yield key, results[call["id"]]

    # --- certain ---------------------------------------------------------------------------

    def _run_of(self, number):
        return [run for run in self.runs if run.begin <= number][-1]

    def _is_certain(self, execution):
        """Whether the log shows that LangGraph recorded this result, and that it is this call's."""
        session, key = self.session, self.key[execution]
        run, end = self._run_of(execution), self.did[execution].get("end")
        return (
            end is not None
            and end < run.end  # no thread that outlived its run
            and session.kind.own_tasks
            and session.settings.durability != "exit"
            and not {run.event, *self._events_beside(run)} & DISTURBED
            and (not run.error or ("kaput" in run.error and not session.driver.loop))
            and self.copies[key[1:3]] == 1
            and not self.emitted[key].malformed
            and key.message not in session.forgotten
        )

    def _events_beside(self, run):
        """The event before a run: its threads and tasks may still be at work."""
        index = self.runs.index(run)
        return [run.event for run in self.runs[max(index - 1, 0) : index]]

    def _is_same_branch(self, execution, at):
        """Whether no run began at an older checkpoint since an execution."""
        return not any(execution < fork <= at for fork in self.forks)

    # --- judgements --------------------------------------------------------------------------

    def _lost(self, key, result, at, seen):
        """A certain result must be read, unless a search in a disturbed run did not find it."""
        own = [n for n, call in self.key.items() if call == key]
        certain = [n for n in own if self._is_certain(n) and self.did[n]["end"] < at]
        if not certain or _receipts(result.text) & set(own):
            return None
        run = self.runs[seen[1]]
        is_calm = run.event not in DISTURBED and self._is_same_branch(certain[-1], at)
        return ("lost", meaning(result.text)[0]) if is_calm else None

    def _judge_start(self, number, key):
        """No call runs that the model did not finish, and no certain call runs twice."""
        if key not in self.emitted:
            self._add("unclear", "a tool ran for no call", key, "", number)
        elif self.emitted[key].malformed and self.copies[key[1:3]] == 1:
            self._add("truncated", "", key, "", number)
        for earlier in (n for n, call in self.key.items() if call == key and n < number):
            effects = "effect" in self.did[earlier] and "effect" in self.did[number]
            certain = effects and self._is_certain(earlier) and self._is_same_branch(earlier, number)
            # an edit of the state may make LangGraph plan the tools anew
            if certain and not any(earlier < edit <= number for edit in self.session.edited):
                self._add("twice", "", key, f"receipts {earlier} and {number}", number)

    def _judge_last_state(self):
        """A result in the last history that states an effect: the state must have it."""
        reads = [r for _, r in self.world.all(Read) if r.agent != "sub"]
        state = {k: repr(self.session.values.get(k)) for k in ("notes", "files")}
        for key, result in self._pairs(reads[-1].messages) if reads and self.session.kind.flag else ():
            name = {"note": "notes", "write_file": "files"}.get(key.name)
            kind = meaning(result.text)[0]
            if name and kind in {"result", "effect"} and "not kept" not in result.text:
                if key.ref not in state[name]:
                    text = f"the state has no such {name}"
                    self._add("false", text, key, result.text, len(self.world.entries))

    def _false(self, kind, subject, result, key, at):
        """Why a statement was false when it was first read; None if it was true."""
        own = {n: did for n, did in self.did.items() if self.key[n] == key and n < at}
        happened = {what for did in own.values() for what, n in did.items() if n < at}
        last = max((n, what) for did in own.values() for what, n in did.items()) if own else (0, "")
        asks = key.name == "task" or key.name.startswith("transfer") or self.session.kind.approval
        for receipt in _receipts(result.text):
            if label := self._false_receipt(receipt, key, at):
                return label
        match kind:
            case "not run" if own:
                return "it had started"
            case "cancelled" if happened & {"effect", "end"}:
                return "its effect had happened"
            case "waiting" if not asks and "asked" not in happened:
                return "it had never asked"
            case "waiting" if last[1] not in {"", "asked", "start"}:
                return f"after it had asked came: {last[1]}"
            case "failed" if own and "raised" not in happened:
                return "it had not raised"
            case "timed out" if all(run.event != "step_timeout" for run in self.runs):
                return "no step had a time limit"
            case "cancellation" if not self.session.driver.loop:
                return "nothing can be cancelled in a synchronous run"
            case "effect" if subject != key.ref:
                return "effect of another call"
            case "handoff" if key.name != f"transfer_to_{subject}":
                return "handoff of another call"
            case "answer" if self.finals[subject].parent != key.ref:
                return "answer of another call"
        return None

    def _false_receipt(self, receipt, key, at):
        """Why an execution cannot have given a text about a call."""
        owner = self.key.get(receipt)
        if owner is None:
            return "a receipt that no tool gave"
        ends = [self.did[receipt][what] for what in ("end", "raised") if what in self.did[receipt]]
        if not ends or ends[0] > at:
            return "of an execution that had not ended"
        inner = key.name == "task" and self.emitted[owner].parent == key.ref
        if owner == key or inner:
            return None
        # A message of LangGraph has the id and the name only: no two open calls may share them.
        both_open = owner[1:3] == key[1:3] and self.born[key] < ends[0]
        return None if both_open else f"result of another call, {owner.name} {owner.ref}"


def _receipts(text):
    return set(map(int, RECEIPT.findall(text)))
