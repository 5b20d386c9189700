"""What must be true of a log: no statement false, no certain result lost, nothing done twice."""

import re
from collections import Counter, defaultdict
from itertools import takewhile

from langchain_core.messages import AIMessage, ToolMessage

from ledger.agents import RECEIPT, REF, Call, Read, ToolEvent

CALL = r"^Tool call \S+ with id \S+"
TEXTS = (
    ("unknown", r"^No result of tool call \S+ with id \S+ (was recorded|is known); it may or may"),
    ("unknown", rf"{CALL} has incomplete arguments; no result (was recorded|is known)"),
    ("started", rf"{CALL} is recorded as started; no result "),
    ("not run", rf"{CALL} (was not run|could not be executed)"),
    ("not run", r"(^|result:\n)User rejected the tool call for "),
    ("no start recorded", rf"{CALL}: an approval was asked for; no answer, no start and no res"),
    ("no start recorded", rf"{CALL}:( its arguments .* object;)? no start and no result are rec"),
    ("waiting", rf"{CALL} asked for human input.*; no answer and no result are recorded"),
    ("failed", rf"{CALL} failed in its last recorded attempt: "),
    ("cancelled", rf"{CALL} (was cancelled - another message|did not complete)"),
    ("cancellation", rf"{CALL}: a cancellation is recorded; it may have taken effect"),
    ("result", RECEIPT.pattern),
    ("named", r"(^|result:\n)(Updated file /?|final answer for |Successfully .* to )(?P<ref>\w+)"),
    ("own words", r"^Error(:| invoking tool) |can only be|cannot be called|validation err|^\s*$"),
)
"""The kinds of statements. The first that matches counts."""

DISTURBED = {"cancel", "kill", "overtaken", "overtaking", "saver_fault", "retention"}
"""The events that may keep LangGraph from recording what a tool did, or from reading it."""


PLAIN = {"message", "resume", "resume_partly"}
"""The events after which START adds what LangGraph dropped."""

RUNS_ALL = {"tool_node", "send", "react_v1", "react_v2", "create_agent", "nested", "gate"}
"""The kinds in which nothing but an answer keeps a call from running."""

NOT_READ = {"supervisor", "deep_agent"}
"""The kinds in which a model does not read what another agent did."""


def _meaning(text):
    """The kind of a statement, and the call or agent that it names, if it names one."""
    for kind, pattern in TEXTS:
        if found := re.search(pattern, text, re.DOTALL):
            return kind, found.groupdict().get("ref", "")
    return "unclear", ""


def _receipts(text):
    return set(map(int, RECEIPT.findall(text)))


class Judge:
    """Judges a scenario that has ended. `verdicts` are (class, label, call, text, log entry)."""

    def __init__(self, session):
        self.session, self.world, self.runs = session, session.world, session.runs
        self.tools, written = self.world.all(ToolEvent), self.world.all(Call)
        self.did = defaultdict(dict)  # execution -> {kind of event: number of the last entry}
        for number, event in self.tools:
            self.did[event.execution][event.kind] = number
        self.call = {event.execution: event.call for _, event in self.tools}
        self.born = {call: number for number, call in written}
        self.names = Counter(call[1:3] for _, call in written)
        self.ids = Counter(call[:2] for _, call in written)
        self.counts, self.verdicts = Counter(), []
        for problem, label in (*session.hurt, *[("dead", session.dead)] * bool(session.dead)):
            self._add(problem, label, "", "", len(self.world.entries))
        self._judge_reads()
        self._judge_presence()
        self._judge_tools()
        self._judge_once()
        self._judge_runs()
        self._judge_answers()
        self._judge_last_state()

    def _add(self, problem, label, call, text, at):
        if (problem, label, call, text) not in {verdict[:4] for verdict in self.verdicts}:
            self.verdicts.append((problem, label, call, text, at))

    def _pairs(self, messages):
        """Each call of a history that a model wrote, and its result."""
        for index, message in enumerate(messages):
            if not isinstance(message, AIMessage):
                continue
            results = [*takewhile(lambda m: isinstance(m, ToolMessage), messages[index + 1 :])]
            for read in message.tool_calls:
                tools = {each["name"] for each in message.tool_calls if each["id"] == read["id"]}
                same = [m for m in results if m.tool_call_id == read["id"]]
                named = [m for m in same if len(tools) > 1 and m.name == read["name"]]
                ref = "".join(REF.findall(repr(read["args"]))[:1])
                call = self.world.find(message.id, read["name"], ref, read["id"])
                if own := (named or same)[:1]:
                    results = [m for m in results if m is not own[0]]
                    if call is not None:
                        yield call, own[0].text

    def _executions(self, call):
        return [number for number, own in self.call.items() if own == call]

    def _run_of(self, number):
        return [run for run in self.runs if run.begin <= number][-1]

    def _is_calm(self, run):
        """Whether LangGraph recorded what tools did in a run, and no tool of one before it runs."""
        index = self.runs.index(run)
        events = {each.event for each in self.runs[max(index - 1, 0) : index + 1]}
        orderly = not run.error or ("kaput" in run.error and not self.session.loop)
        return orderly and not events & DISTURBED and self.session.settings.durability != "exit"

    def _is_certain(self, execution, at):
        """Whether LangGraph recorded, on the branch of `at`, an execution as that of its call."""
        call, run = self.call[execution], self._run_of(execution)
        is_unique = self.names[call[1:3]] == 1 == self.ids[call[:2]]
        own_task = self.session.settings.own_tasks and execution >= self.session.deleted
        raised = [n for n, e in self.tools if n > run.begin and e.kind == "raised"]
        in_time = self.did[execution].get("end", float("inf")) < min(raised, default=run.end)
        forked = any(each.event == "fork" and execution < each.begin <= at for each in self.runs)
        return in_time and is_unique and own_task and self._is_calm(run) and not forked

    def _judge_reads(self):
        """Each statement is judged as it was first read; lost results whenever they are read."""
        first = {}
        for at, read in self.world.all(Read):
            for call, text in self._pairs(read.messages):
                kind, named = _meaning(text)
                before = self.runs[read.run].begin
                if (call, text) not in first:
                    first[call, text] = self.runs[read.run]
                    self.counts.update([kind])
                    if kind == "unclear":
                        self._add("unclear", text[:60], call, text, at)
                    labels = [self._false_receipt(n, call, at) for n in _receipts(text)]
                    labels += self._false(kind, named, call, before, at)
                    for label in filter(None, labels):
                        self._add("false", f"{kind}: {label}", call, text, at)
                # What a search in a disturbed run did not find may stay unknown.
                own = {n for n in self._executions(call) if n < before and self._is_certain(n, at)}
                # What is planned anew after an edit takes the place of what was dropped.
                last, edits = max(self._executions(call), default=0), self.session.edits
                own = {n for n in own if not any(n < each <= last for each in edits)}
                if own - _receipts(text) and self._is_calm(first[call, text]):
                    self._add("lost", f"read instead: {kind}", call, text, at)

    def _judge_presence(self):
        """A turn that a message abandons is read: LangGraph drops that of an agent that is a node.

        A supervisor hides the calls of its workers when they end. A run that does not begin with a
        message does not pass START.
        """
        if self.session.settings.name in NOT_READ or not self.session.wrapped:
            return
        for at, read in self.world.all(Read):
            known = _receipts(" ".join(m.text for m in read.messages))
            for number, call in self.call.items():
                first = self.runs.index(self._run_of(number))
                events = {run.event for run in self.runs[first : read.run + 1]}
                later = first < read.run and events <= PLAIN and not self.runs[read.run].error
                if later and number not in known and self._is_certain(number, at):
                    self._add("lost", "the turn is not read", call, f"receipt {number}", at)

    def _judge_tools(self):
        """No call runs that the model did not finish, and no certain call runs twice."""
        for number, event in self.tools:
            call = event.call
            if event.kind == "start" and call.malformed and self.ids[call[:2]] == 1:
                self._add("truncated", "", call, "", number)
            earlier = [n for n in self._executions(call) if n < event.execution]
            for first in earlier if event.kind == "effect" else ():
                # After an edit of the state LangGraph may plan the tools anew.
                planned = any(first < edit <= number for edit in self.session.edits)
                if self._is_certain(first, number) and not planned:
                    self._add("twice", "", call, f"receipts {first}, {event.execution}", number)

    def _judge_once(self):
        """A call of a tool that runs once has its effect once, whatever was deleted."""
        effects = Counter(e.call for _, e in self.tools if e.kind == "effect")
        for number, event in self.tools:
            runs_once = event.call.name in self.session.settings.runs_once
            if event.kind == "start" and runs_once and effects[event.call] > 1:
                self._add("twice", "a tool that runs once", event.call, "", number)

    def _judge_runs(self):
        """A run that ends, and waits for nothing, has run each call that its model made."""
        if self.session.settings.name not in RUNS_ALL or self.session.settings.approval:
            return
        for run in self.runs:
            if run.waits or run.event in DISTURBED or run.error:
                continue
            # Beside a task that waits, a `goto` starts a model: what it says may come behind the
            # calls that another one has made, before the gate decides about them.
            if run.event == "goto" and self.session.settings.name == "gate":
                continue
            for call, born in self.born.items():
                is_of = run.begin <= born < run.end and self._run_of(born) is run
                is_unique = self.names[call[1:3]] == 1 == self.ids[call[:2]]
                began = any(n < run.end for n in self._executions(call))
                if is_of and is_unique and not call.malformed and not began:
                    self._add("not run", "", call, "", int(run.end))

    def _judge_answers(self):
        """An answer by id to a live pause reaches the call that asked, and no other."""
        for label, (question, index) in self.session.given.items():
            [asked] = _receipts(question)
            call, run = self.call[asked], self.runs[index]
            before = next(each for each in self.runs[index - 1 :: -1] if each.event != "repair")
            reached = [event.call for _, event in self.tools if event.label == label]
            ended = [self.did[n].get("end", run.end) for n in self._executions(call)]
            # A pause of a disturbed run may not be stored in full; one of an ended call is over.
            live = min(ended) >= run.begin and before.event not in DISTURBED
            if live and "resume" in run.event and not run.error and not reached:
                self._add("hurt", "an answer reached no tool", call, question, run.begin)
            if self.session.settings.own_tasks and any(other != call for other in reached):
                self._add("hurt", "an answer reached another call", call, question, run.begin)

    def _judge_last_state(self):
        """A result that states an effect: the state has it, unless two runs mixed their deltas."""
        reads = [(n, read) for n, read in self.world.all(Read) if read.agent != "sub"]
        mixed = self.session.settings.delta and any(r.event == "overtaking" for r in self.runs)
        for call, text in self._pairs(reads[-1][1].messages) if reads and not mixed else ():
            name = {"note": "notes", "write_file": "files"}.get(call.name)
            names_loss = re.search(r"not (have been )?kept", text)
            states = _meaning(text)[0] in {"result", "named"} and not names_loss
            if name and states and call.ref not in repr(self.session.last.values.get(name)):
                self._add("false", f"the state has no such {name}", call, text, reads[-1][0])

    def _false(self, kind, named, call, before, at):
        """Why a statement was false when first read. Of the record it is about calm runs only."""
        events = [(n, e) for n, e in self.tools if e.call == call and n < at]
        happened = {event.kind for _, event in events}
        recorded = [e.kind for n, e in events if n < before and self._is_calm(self._run_of(n))]
        asks = call.name == "task" or self.session.settings.approval
        last = recorded[-1] if recorded else ""
        # When a tool raises, a synchronous run cancels those that have not begun.
        may_cancel = self.session.loop or any(e.kind == "raised" for n, e in self.tools if n < at)
        # A claim is made directly before the start: a fault may come between them.
        is_undisturbed = not any(run.event in DISTURBED for run in self.runs)
        names_it = call.name == f"transfer_to_{named}" or call.ref == named
        rules = (
            ("not run", happened, "it had started"),
            ("started", is_undisturbed and "start" not in happened, "it had not started"),
            ("no start recorded", recorded, "a start was recorded"),
            ("cancelled", happened & {"effect", "end"}, "its effect had happened"),
            ("waiting", not asks and "asked" not in happened, "it had never asked"),
            ("waiting", last in {"answered", "effect", "end", "raised"}, "it had gone on"),
            ("failed", events and "raised" not in happened, "it had not raised"),
            ("failed", last == "end", "it had ended"),
            ("cancellation", not may_cancel, "nothing cancels it in a synchronous run"),
            ("named", not names_it and self.ids[call[:2]] == 1, "result of another call"),
        )
        return [label for of, broken, label in rules if of == kind and broken]

    def _false_receipt(self, receipt, call, at):
        """Why an execution cannot have given a text about a call."""
        owner, did = self.call.get(receipt), self.did.get(receipt, {})
        end = min(did.get("end", at), did.get("raised", at))
        if owner is None or end >= at:
            return "of an execution that had not ended"
        inner = call.name == "task" and owner.parent == call.ref
        # LangGraph's message has the id and the name only: no two open calls may share them.
        # After a goto the model runs beside tools, whose results are stored behind its message.
        run = self._run_of(self.born[call])
        started = [self._run_of(n) for n, c in self.call.items() if c.message == owner.message]
        both_open = self.born[call] < end or (run.event == "goto" and run in started)
        is_alike = owner[1:3] == call[1:3] and both_open
        return None if owner == call or inner or is_alike else "result of another call"
