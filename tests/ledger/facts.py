"""Facts about a tool call: from the ledger, and from what the checkpoints had recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from langchain_core.messages import ToolMessage

from ledger.checkpoints import Evidence
from ledger.texts import Statement, meaning
from ledger.world import RECEIPT, REF, Emitted, FinalAnswer, Key, Read, ToolEvent, World

AT_ONCE = frozenset({"double_texting", "overtaken", "overtaking"})
"""The events in which two runs of the thread go on at once."""


@dataclass
class Run:
    """One run of the graph, as the judge needs it.

    Attributes:
        event: What happened.
        evidence: What was recorded before it.
        begin: How many log entries there were when it began.
        end: How many there were when it ended.
        state: The refs of files, todos and notes in the state when it ended; None if unread.
        error: How it ended, if with an exception.
        replay: Whether it began at an older checkpoint.
        has_input: Whether it began with a message. The library then searches again.
    """

    event: str
    evidence: Evidence
    begin: int
    end: int = 0
    state: frozenset[str] | None = None
    error: str = ""
    replay: bool = False
    has_input: bool = True


@dataclass(frozen=True)
class Case:
    """A statement and where it was read."""

    key: Key
    stated: Statement
    text: str
    at: int
    read: Read
    run: Run

    @property
    def evidence(self) -> Evidence:
        """What was recorded before the run."""
        return self.run.evidence


@dataclass
class Facts:
    """What the log and the records of a scenario say about a call.

    Attributes:
        world: The log.
        runs: The runs, by number.
        approval: Whether a middleware asks before tools run.
        recorded: Whether calls are recorded by the library.
        own_tasks: Whether each call has a task of its own, by `Send` or by recording.
        exit_only: Whether the durability is `exit`, so that no start mark can be there.
        unordered: Whether LangGraph stores results in the order in which tools ended (in a
            `DeltaChannel`). Nothing then shows which of two results belongs to which of two calls
            of one tool with one id in one message.
        forgotten: The ids of messages that the user deleted.
    """

    world: World
    runs: list[Run]
    approval: bool
    recorded: bool
    own_tasks: bool
    exit_only: bool
    unordered: bool
    forgotten: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.calls = [e for _, e in self.world.all(Emitted)]
        self.tools = list(self.world.all(ToolEvent))
        self.final_answers = {e.label: e for _, e in self.world.all(FinalAnswer)}
        self.starts = {n: e for n, e in self.tools if e.kind == "start"}

    def _events(self, case: Case, *, late: bool) -> Iterator[tuple[int, ToolEvent]]:
        """The events of executions of a call that began before the model call.

        Args:
            case: The case.
            late: Whether events after the model call count too: a thread may have gone on.
        """
        for number, event in self.tools:
            if event.key == case.key and event.execution < case.at and (late or number < case.at):
                yield number, event

    def _happened(self, case: Case, kind: str) -> bool:
        """Whether an execution that began before the model call came so far, then or later."""
        return any(e.kind == kind for _, e in self._events(case, late=True))

    def _has_worked(self, case: Case) -> bool:
        """Whether the call had an effect, or finished."""
        worked = self._happened(case, "effect") or self._happened(case, "end")
        return worked or self._is_stored(case)

    def _has_asked(self, case: Case) -> bool:
        if case.key.name == "task" or self.approval or case.key.name.startswith("transfer"):
            return True
        return any(e.kind == "asked" for _, e in self._events(case, late=False))

    def _is_indistinguishable(self, case: Case, execution: int) -> bool:
        """Whether the messages that LangGraph stores do not show that a result is another call's.

        Both calls have one id and one tool. Either one message makes them, and the results are in
        any order; or the result was written when the newer call had been made already, as happens
        if a `goto` leaves the older call waiting. The older call may then get the newer's result.
        """
        owner = self.starts[execution].key
        if (owner.call, owner.name) != (case.key.call, case.key.name):
            return False
        if owner.message == case.key.message:
            return self.unordered
        own = [n for n, e in self.starts.items() if e.key == case.key]
        is_swapped = any(owner in self._made_meanwhile(number) for number in own)
        return case.key in self._made_meanwhile(execution) or is_swapped

    def _belongs_to_newer(self, execution: int) -> bool:
        """Whether a newer call of its id and tool was made before an execution ended.

        Its result then follows the newer call, and counts as that call's.
        """
        own = self.starts[execution].key
        newer = self._made_meanwhile(execution)
        return any(
            k.message != own.message and (k.call, k.name) == (own.call, own.name) for k in newer
        )

    def _made_meanwhile(self, execution: int) -> set[Key]:
        """The calls that were made after that of an execution, and before its result was stored.

        A model that runs beside the tool does not read the result, also if the tool has ended.
        """
        start = self.starts[execution]
        first = next((n for n, e in self.world.all(Emitted) if e.key == start.key), 0)
        ends = [n for n, e in self.tools if e.execution == execution and e.kind == "end"]
        end = max(ends, default=0)
        run = next(r for r in reversed(self.runs) if r.begin <= max(end, first))
        made = [(n, e) for n, e in self.world.all(Emitted) if first < n]
        beside = {
            e.key
            for n, e in made
            if end < n < run.end and e.agent == start.agent and not self._had_read(n, execution)
        }
        return beside | {e.key for n, e in made if n < end}

    def _had_read(self, number: int, execution: int) -> bool:
        """Whether the model that made a call had read the stored result of an execution.

        A result that the library recovered may be stored later, when the superstep ends.
        """
        reads = [r for n, r in self.world.all(Read) if n < number]
        agent = self.world.entries[number].agent
        last = next(r for r in reversed(reads) if r.agent == agent)
        stored = [m for m in last.messages if not (m.id or "").startswith("result-")]
        receipts = (RECEIPT.findall(message.text) for message in stored)
        return any(execution in map(int, found) for found in receipts)

    def _has_equal_call(self, case: Case) -> bool:
        """Whether one message makes equal calls with one id, and not each has a result."""
        equal = sum(e.key == case.key for e in self.calls)
        results = {n for n in case.evidence.executions if self._key_of(n) == case.key}
        return len(results) < equal

    def _has_rival(self, case: Case, *, of_same_tool: bool) -> bool:
        """Whether a run at the same time made a call with the id of this one.

        A `DeltaChannel` then has what both runs wrote, in an order that is not theirs, and with
        durability `exit` no `Send`s. A result never passes a nearer call.

        Args:
            case: The statement.
            of_same_tool: Whether the other call must be one of the same tool.
        """
        if not self.unordered or not (self.exit_only or of_same_tool):
            return False
        spans = [(r.begin, r.end) for r in self.runs if r.event in AT_ONCE]
        alike = [(n, e.key) for n, e in self.world.all(Emitted) if e.key.call == case.key.call]
        own = min((n for n, key in alike if key == case.key), default=0)
        return any(
            key.message != case.key.message
            and (key.name == case.key.name or not of_same_tool)
            and begin <= n < end
            and own < end
            for n, key in alike
            for begin, end in spans
        )

    def _is_mixed(self, case: Case) -> bool:
        """Whether two runs at once left a state that is neither's.

        A `DeltaChannel` then has the messages of both runs, while other keys have those of one.
        """
        made = next((n for n, e in self.world.all(Emitted) if e.key == case.key), 0)
        runs = self.runs[: case.read.run + 1]
        return self.unordered and any(r.event in AT_ONCE and made < r.end for r in runs)

    def _have_all_finished(self, case: Case) -> bool:
        """Whether a good result is recorded, and one for each call that is equal to this one."""
        ended = {e.execution for _, e in self.tools if e.kind == "end" and e.key == case.key}
        recorded = ended & self._searched_run(case).evidence.executions
        return len(recorded) >= sum(e.key == case.key for e in self.calls)

    def _last_answers(self, case: Case) -> set[str]:
        """The answers that the call got to the last question that it asked."""
        labels = set[str]()
        for _, event in self._events(case, late=False):
            if event.kind == "asked":
                labels = set()
            elif event.kind == "answered":
                labels.add(event.label)
        return labels

    def _raised(self, case: Case) -> set[int]:
        """The executions of the call that raised before the model call."""
        events = self._events(case, late=False)
        return {e.execution for _, e in events if e.kind == "raised"}

    def _begun(self, case: Case) -> list[int]:
        """The executions of the call that began before the model call."""
        return [n for n, e in self.starts.items() if e.key == case.key and n < case.at]

    def _key_of(self, execution: int) -> Key | None:
        return self.starts[execution].key if execution in self.starts else None

    def _is_stored(self, case: Case) -> bool:
        """Whether the state has the effect: when the model was called, or when its run ended."""
        ends = [run.state or frozenset() for run in self.runs[: case.read.run + 1]]
        now = case.read.state | ends[-1]
        match case.key.name:
            case "note":
                return f"notes:{case.key.ref}" in now
            case "write_file":
                return f"files:{case.key.ref}" in now
            case "write_todos":  # the next list takes its place
                earlier = [r.state for n, r in self.world.all(Read) if n <= case.at]
                return any(f"todos:{case.key.ref}" in state for state in (*earlier, *ends))
            case _:
                return False

    def _recorded_result(self, case: Case) -> str:
        """The class of loss, if a result of this very call is recorded; else an empty text."""
        if case.key.message in self.forgotten:
            return ""
        evidence = self._searched_run(case).evidence
        own = any(
            self._key_of(n) == case.key and not self._belongs_to_newer(n)
            for n in evidence.executions
        )
        own = own or any(self._is_result_of(case.key, m) for m in evidence.results)
        return "its result is recorded" if own else ""

    def _searched_run(self, case: Case) -> Run:
        """The run in which the library last had to search the record for a statement.

        That in which it was read for the first time, or a later one that began with a message.
        """
        for read in (r for n, r in self.world.all(Read) if n <= case.at and r.run < case.read.run):
            if any(m.text == case.text for m in read.messages if isinstance(m, ToolMessage)):
                runs = range(case.read.run, read.run, -1)
                later = (self.runs[n] for n in runs if self.runs[n].has_input)
                return next(later, self.runs[read.run])
        return case.run

    def _is_result_of(self, key: Key, message: ToolMessage) -> bool:
        """Whether a recorded message without a receipt is a result of that call."""
        stated = meaning(message.text)
        match stated.kind:
            case "effect":
                return stated.subject.endswith(f":{key.ref}")
            case "answer":
                final = self.final_answers.get(stated.subject)
                return key.name == "task" and final is not None and final.parent == key.ref
            case "handoff":
                unique = sum(e.key.call == key.call for e in self.calls) == 1
                return unique and message.tool_call_id == key.call
            case _:
                return False

    def _is_ambiguous(self, case: Case) -> bool:
        """Whether fewer results are recorded than the message has calls of that id and name.

        A tool message has no more than the id and the name, so it may belong to each of them.
        Calls that are recorded by the library, or have a task each, are not exempted.
        """
        if self.own_tasks:
            return False
        alike = [e.key for e in self.calls if e.key[:3] == case.key[:3] and not e.malformed]
        results = {self._key_of(n) for n in case.evidence.executions}
        return len(results & set(alike)) < len(alike)

    def _hides_inner_results(self, case: Case) -> bool:
        """Whether the work of a subagent is recorded, and the text is silent about it."""
        if case.key.name != "task" or case.text.endswith("…"):  # the list has a limit
            return False
        inner = {e.key for e in self.calls if e.parent == case.key.ref}
        recorded = {self._key_of(n) for n in self._searched_run(case).evidence.executions} & inner
        shown = set(REF.findall(case.text))
        return any(key.ref not in shown for key in recorded if key is not None)
