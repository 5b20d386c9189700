"""Judge what the supersteps of its window recorded about a call: pure functions.

The window is replayed forward (`replay`): what a later superstep recorded counts more than what an
earlier one did, and a result counts more than any ending. Then the first row of `ROWS` that answers
decides about the call. What may be of another call proves nothing.

Whose a result or an ending is:

- That of the own task of a call, the only `Send` with its id, name and arguments, is the call's,
  whatever name the tool gave it.
- A result with its id that a node over the whole state, a `@task` or an error handler wrote
  (`_written_in`) is the call's if it names no other tool, and if no other open call has the id and
  the tool.
- What a task wrote whose `Send` carries another call, or other arguments, is not the call's.
- In a superstep in which the message made a call with another name or other arguments in its place,
  it is about that call: nothing before it counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.nodes import NO_NODES, Nodes
from langgraph_patch.evidence.superstep import Superstep, Task, is_real
from langgraph_patch.evidence.window import Sighting, Window, called_in, is_version
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.findings import Finding

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """A finding about a call, with the tasks and the superstep that it is from.

    Attributes:
        finding: Its result, or why there is none; None if nothing is certain.
        writer: The task that wrote the result.
        ended: The last task that ran the call and recorded an end without a result.
        own: All tasks that ran the call and nothing else, oldest first.
        last: The newest superstep that may have run it.
    """

    finding: Finding | None = None
    writer: Task | None = None
    ended: Task | None = None
    own: tuple[Task, ...] = ()
    last: Superstep | None = None

    @property
    def result(self) -> ToolMessage | None:
        return self.finding.result if self.finding else None


# --- the rows -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a call.

    Attributes:
        call: The call.
        steps: The supersteps of its message.
        replayed: What they recorded about the call: a result, the tasks that ran it.
        record: What its own record shows, if its tool runs each call once.
        elsewhere: How the graph above or below that ran it judges it.
        is_answered: Whether a graph above recorded an answer to the hook that asked.
    """

    call: Call
    steps: Steps
    replayed: JudgedCall
    record: Finding | None = None
    elsewhere: JudgedCall | None = None
    is_answered: bool = False

    @property
    def judged(self) -> JudgedCall:
        """The judgement before the rows."""
        return self.elsewhere or self.replayed


def _result(facts: Facts) -> JudgedCall | None:
    """A task wrote a result of the call, in this graph or in the one above or below.

    It is what the model would have read, behind all wrappers of the application.
    """
    return facts.judged if facts.judged.result else None


def _record(facts: Facts) -> JudgedCall | None:
    """The record of a call that runs once has a result, an error, a cancellation or a begin.

    Only the run that started this call writes it.
    """
    return replace(facts.judged, finding=facts.record, ended=None) if facts.record else None


def _own_task(facts: Facts) -> JudgedCall | None:
    """The call's own task recorded an error, a cancellation, or an interrupt without an answer.

    It ran nothing else.
    """
    task = facts.replayed.ended
    return replace(facts.replayed, finding=facts.steps.ending_of(task)) if task else None


def _elsewhere(facts: Facts) -> JudgedCall | None:
    """The graph below that wrote the message recorded how the call ended.

    It ran the calls of its message itself, and judges them by these rows.
    """
    return facts.elsewhere


def _incomplete(facts: Facts) -> JudgedCall | None:
    """The arguments of the call are incomplete: such a call is not run.

    If other nodes ran since, a tool may have run with what there was of them.
    """
    if (text := facts.call.raw_args) is None:
        return None
    detail = None if facts.steps.did_not_run else "tools_ran"
    return replace(facts.judged, finding=Finding("malformed", error=text, detail=detail))


def _hook(facts: Facts) -> JudgedCall | None:
    """A hook between the model and the tools asks a human, or failed behind the answer.

    Nothing else ran since the message was written, so nothing has started the call. A hook that
    failed has the same answer whenever it runs again.
    """
    detail = "approval" if facts.steps.asking else None
    is_stopped = facts.steps.has_refused_answer if detail is None else not facts.is_answered
    finding = Finding("not_started", detail=detail)
    return (
        None if facts.replayed.own or not is_stopped else replace(facts.replayed, finding=finding)
    )


def _only_call(facts: Facts) -> JudgedCall | None:
    """A node over the whole state recorded an error, a cancellation, or such an interrupt.

    The message makes this one call, and no other node ran since it was written.
    """
    task = None if facts.replayed.ended or facts.elsewhere else facts.steps.task_of_only_call
    ending = facts.steps.ending_of(task) if task else None
    return replace(facts.replayed, finding=ending, ended=task) if task else None


ROWS: tuple[Callable[[Facts], JudgedCall | None], ...] = (
    *(_result, _record, _own_task, _elsewhere),
    *(_incomplete, _hook, _only_call),
)
"""What decides about a call: the first row that answers. A call without one is `unknown`."""


# --- the supersteps of a message ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Steps:
    """The supersteps in which the calls of a message may have run.

    Attributes:
        window: The window of the message.
        nodes: The nodes of the running graph; none are known of a thread that is only stored.
    """

    window: Window
    nodes: Nodes = NO_NODES

    def replay(self) -> dict[tuple[int, int], JudgedCall]:
        """What they recorded about the calls: results, and the tasks of each."""
        found = {call.key: JudgedCall() for call in self.window.calls}
        for sighting in self.window.sightings:
            seen = _Seen(sighting, self.window.message)
            found = {call.key: seen.add_to(found[call.key], call) for call in self.window.calls}
        for key, judged in found.items():
            steps = [*self.pending, *(task.step for task in judged.own)]
            found[key] = replace(judged, last=max(steps, key=lambda step: step.id, default=None))
        return found

    @cached_property
    def pending(self) -> list[Superstep]:
        """Those of one run that may have run the calls, oldest first, without idle ones."""
        found: list[Superstep] = []
        for seen in self.window.sightings:
            if seen.is_pending and seen.step.source_before == "input":
                break
            if seen.is_pending and not seen.step.is_idle:
                found.append(seen.step)
        return found

    def ending_of(self, task: Task) -> Finding | None:
        """How a task without a result ended; None if the writes are ambiguous."""
        channels = {channel for channel, _ in task.writes}
        if not task.errors:
            # A task that was answered and asks again has recorded an answer.
            is_waiting = channels == {INTERRUPT} and not task.step.is_answered
            detail = "paused" if task.step.source_after is None else None
            return Finding("awaiting_input", detail=detail) if is_waiting else None
        error = task.errors[-1]
        text = error if isinstance(error, str) else repr(error)  # most checkpointers store that
        if text == "CancelledError()":  # an application may have an error of that name
            return Finding("cancelled")
        # Both an error and an interrupt: two runs, and their order is recorded only if the task
        # wrote the answer with its error. An edited call: what failed is the call in its place.
        is_answered = bool(task.answered) if storage.NUMBERS_QUESTIONS else RESUME in channels
        is_last = INTERRUPT not in channels or is_answered
        if not is_last or self._was_edited:
            return None
        detail = "timeout" if storage.is_node_timeout(text) else None
        return Finding("failed", error=text, detail=detail)

    @cached_property
    def _was_edited(self) -> bool:
        """Whether a human may have edited a call; the message has the call as it was before."""
        tasks = [task for seen in self.window.sightings for task in seen.step.writers]
        return any(_has_edit(task.written_to(RESUME)) for task in tasks)

    @cached_property
    def task_of_only_call(self) -> Task | None:
        """The task of a node over the whole state that ran the only call, if certain.

        No other node ran since a node wrote the message, and that node ran no tools itself.
        """
        writer, calls = self.window.writer, read_calls(self.window.message)
        if writer is None or writer.step.is_gap:
            return None
        if [call.source for call in calls] != ["tool_calls"] or len(self.pending) != 1:
            return None
        step = self.pending[0]
        tasks = [task for task in step.tasks if task.interrupt_ids or task.errors]
        is_only = len(step.nodes) == len(tasks) == 1 and not (step.sends or step.is_goto)
        if not is_only or self._starts_no_tool(step):
            return None
        returned = any(task.written_to(storage.RETURN) for task in step.others)
        place = self.window.versions_in(writer.messages)[-1]
        ran_tools = any(isinstance(message, ToolMessage) for message in writer.messages[place:])
        return None if returned or ran_tools else tasks[0]

    @cached_property
    def asking(self) -> Superstep | None:
        """The superstep that asked for an approval, if that is why nothing has started the calls.

        Only nodes between the model and the tools ran since the message was written, and the last
        of them asked a human and has no recorded answer.
        """
        steps = self.pending
        if not (steps and self.did_not_run and _asks(steps[-1])):
            return None
        return steps[-1] if all(_asks(step) or step.was_applied for step in steps) else None

    @cached_property
    def has_refused_answer(self) -> bool:
        """Whether the last of such nodes failed behind the answer that it got.

        It has the same answer whenever it runs again.
        """
        if not (self.pending and self.did_not_run):
            return False
        *before, last = self.pending
        is_refused = any(task.errors and task.written_to(RESUME) for task in last.tasks)
        return is_refused and not last.was_applied and all(step.was_applied for step in before)

    @cached_property
    def did_not_run(self) -> bool:
        """Whether only nodes that start no tool ran since the message was written."""
        origin = self.window.origin
        return origin is not None and not origin.is_gap and all(map(self._is_passed, self.pending))

    def _is_passed(self, step: Superstep) -> bool:
        """Whether nothing in a superstep has started a tool."""
        is_known = self._starts_no_tool(step) and not (step.sends or step.is_goto)
        return is_known and (step.was_applied or _channels_of(step) <= {INTERRUPT, ERROR, RESUME})

    def _starts_no_tool(self, step: Superstep) -> bool:
        return bool(step.nodes) and all(
            self.nodes.starts_no_tool(step.namespace, node) for node in step.nodes
        )


def _has_edit(answer: object) -> bool:
    if isinstance(answer, dict):
        return answer.get("type") == "edit" or any(map(_has_edit, answer.values()))
    return isinstance(answer, list | tuple) and any(map(_has_edit, answer))


def _asks(step: Superstep) -> bool:
    """Whether all that is recorded of a superstep is a question to a human without an answer."""
    return _channels_of(step) == {INTERRUPT} and not step.is_answered


def _channels_of(step: Superstep) -> set[str]:
    return {channel for task in step.tasks for channel, _ in task.writes}


# --- one superstep ------------------------------------------------------------------------------


class _Seen:
    """A message in one superstep, by the ids of its calls: what is looked for is looked up."""

    def __init__(self, seen: Sighting, message: AIMessage) -> None:
        own = [call for call in seen.calls if call.source == "tool_calls"]
        self._calls = _by_id((call.id, call) for call in seen.calls)
        self._rivals = _by_id((call.id, call) for call in (*seen.rivals, *own))
        self._sent = _by_id((str(t.call["id"]), t) for t in seen.step.tasks if t.call)
        self._written = _by_id(
            (result.tool_call_id, (task, result))
            for task, messages in _written_in(seen)
            if not task.is_overwrite
            for result in filter(is_real, messages)
        )
        written = [m for task in seen.step.writers for m in task.messages]
        others = [m for m in written if isinstance(m, AIMessage) and not is_version(m, message)]
        self._called_again = {call.id for other in others for call in read_calls(other)}

    def add_to(self, judged: JudgedCall, call: Call) -> JudgedCall:
        """What is known of a call behind the superstep."""
        versions = (m for m in self._calls[call.id] if (m.name, m.args) == (call.name, call.args))
        made = next(versions, None)
        if made is None:  # the message made another call in its place
            return JudgedCall()
        rivals = [rival for rival in self._rivals[made.id] if rival is not made]
        task = self._own_task(made, rivals)
        if task is not None:
            ended = task if task.writes else judged.ended
            judged = replace(judged, own=(*judged.own, task), ended=ended)
        for result, writer in self._results(made, task, {rival.name for rival in rivals}):
            if judged.result is None or judged.result.content != result.content:
                judged = replace(judged, finding=Finding(result=result), writer=writer)
        return judged

    def _own_task(self, made: Call, rivals: Sequence[Call]) -> Task | None:
        """The task of exactly this call's `Send`, or None."""
        what = made.name, made.args
        equals = [rival for rival in rivals if (rival.name, rival.args) == what]
        if made.source != "tool_calls" or equals:
            return None
        sent = [(task, task.call) for task in self._sent[made.id] if task.call]
        own = [task for task, call in sent if (call["name"] or "", call["args"]) == what]
        return own[0] if len(own) == 1 else None

    def _results(
        self, made: Call, own: Task | None, rivals: AbstractSet[str]
    ) -> Iterator[tuple[ToolMessage, Task]]:
        """The results of a call, with the task that wrote each.

        Args:
            made: The call.
            own: Its own task. What that wrote is the call's, whatever name the tool gave it.
            rivals: The names of the other calls with its id that a task may have run.
        """
        by_own = (m for m in (own.messages if own else ()) if is_real(m))
        result = next((m for m in by_own if m.tool_call_id == made.id), None)
        if own is not None and result is not None:
            yield result, own
        elif not (made.id in self._called_again or rivals & {made.name, ""}):
            for task, pairs in groupby(self._written[made.id], itemgetter(0)):
                if _carries_another(task, made):
                    continue
                found = [m for _, m in pairs if not (m.name and made.name) or m.name == made.name]
                # If an open call of another tool has the id, the results must name their tools.
                if found and (not rivals or all(m.name for m in found)):
                    yield found[0], task


def _carries_another(task: Task, made: Call) -> bool:
    """Whether the `Send` of a task carries another call than this one, under its id.

    A router may add arguments, such as the user's id; but then no other call has just these.
    """
    if task.call is None or task.call["id"] != made.id:
        return False
    name, args = task.call["name"], task.call["args"]
    if (name, args) == (made.name, made.args):
        return False
    is_part = isinstance(args, dict) and all(
        key in args and args[key] == value for key, value in made.args.items()
    )
    others = called_in(task.step.history) if is_part else ()
    equals = [each for each in others if (each.id, each.name, each.args) == (made.id, name, args)]
    return name != made.name or not is_part or bool(equals)


def _by_id(pairs: Iterable[tuple[str, _T]]) -> defaultdict[str, list[_T]]:
    found = defaultdict[str, list[_T]](list)
    for call_id, item in pairs:
        found[call_id].append(item)
    return found


def _written_in(seen: Sighting) -> Iterator[tuple[Task, Sequence[BaseMessage]]]:
    """The messages of each task of a superstep that may have run a call beside others."""
    step = seen.step
    # A node that ran the calls of the whole state, or another one that answers them.
    yield from ((task, task.messages) for task in step.tasks)
    # A `@task` of a node, or an error handler. Once another message follows, what they wrote may
    # be the result of a call that a node made itself.
    is_handled = any(task.written_to(storage.ERROR_SOURCE) for task in step.writers)
    for task in step.others if seen.is_pending else ():
        # `update_state` writes messages under an id of its own, too.
        yield task, [*task.returned, *(task.messages if is_handled else ())]
