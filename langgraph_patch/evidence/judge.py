"""Judge what the supersteps of its window recorded about a call: pure functions.

The window is replayed forward: what a later superstep recorded counts more than what an earlier one
did, and a result counts more than any ending. What may be of another call proves nothing. Who
recorded it, and when it is the call's:

- Its own record, if its tool runs each call once (`claims`): a result, if no task recorded one; an
  error, a cancellation, a begin, whatever else ended. Always (`with_record`).
- Its own task, that of the only `Send` with its id, name and arguments: a result, whatever name the
  tool gave it; an error, a cancellation, an interrupt without an answer. Always.
- A node over the whole state, a `@task`, an error handler (`_written_in`): a result with its id, if
  it names no other tool, and if no other open call has the id and the tool.
- A node over the whole state: an error, a cancellation, an interrupt, if the message makes this one
  call, and no other node ran since it was written (`ending_of_only_call`).
- A hook between the model and the tools: an interrupt, if nothing else ran (`approval`); an error
  behind the answer to it (`refused_answer`).
- Nobody, before a breakpoint: the text says that nothing was recorded (`is_at_breakpoint`).

A superstep in which the message made a call with another name or other arguments in its place is
about that call: nothing before it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.types import Send

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.graphs import runs_after_model
from langgraph_patch.evidence.superstep import Superstep, Task, is_real, text_of_error
from langgraph_patch.evidence.window import Sighting, Window
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.comparing import is_version
from langgraph_patch.history.findings import Finding


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


def judge(call: Call, window: Window) -> JudgedCall:
    """What the supersteps of a window recorded about one call."""
    found = JudgedCall()
    for seen in window.sightings:
        made = seen.version_of(call)
        if made is None:
            found = JudgedCall()
            continue
        task = _own_task(seen, made)
        if task is not None:
            found = replace(found, own=(*found.own, task))
            if task.writes:
                finding = found.finding if found.result else _ending_of(task, window)
                found = replace(found, ended=task, finding=finding)
        for result, writer in _results(seen, made, task, window):
            if found.result is None or found.result.content != result.content:
                found = replace(found, finding=Finding(result=result), writer=writer)
    steps = [*_pending_steps(window), *(task.step for task in found.own)]
    return replace(found, last=max(steps, key=lambda step: step.id, default=None))


def with_record(finding: Finding, recorded: Finding | None) -> Finding:
    """A finding about a call, and what the call's own record shows."""
    if recorded is None or finding.result is not None:
        return finding
    return replace(recorded, inner=() if recorded.result else finding.inner)


# --- the own task -------------------------------------------------------------------------------


def _own_task(seen: Sighting, made: Call) -> Task | None:
    """The task of exactly this call's `Send`, or None."""
    request = _request_of(made)
    if made.source != "tool_calls" or request in map(_request_of, seen.rivals_of(made)):
        return None
    sent = [task for task in seen.step.tasks if task.call and _request_sent(task.call) == request]
    return sent[0] if len(sent) == 1 else None


def _request_of(call: Call) -> tuple[str, str, Any]:
    return call.id, call.name, call.args


def _request_sent(sent: Mapping[str, Any]) -> tuple[str, str, Any]:
    return sent["id"], sent.get("name") or "", sent.get("args")


# --- results ------------------------------------------------------------------------------------


def _results(
    seen: Sighting, made: Call, own: Task | None, window: Window
) -> Iterator[tuple[ToolMessage, Task]]:
    """The results of a call in one superstep, with the task that wrote each."""
    result = _own_result(made, own)
    if own is not None and result is not None:
        yield result, own
    elif _is_only_one(seen, made, window):
        is_named = bool(seen.rivals_of(made))
        for task, messages in _written_in(seen):
            result = _result_among(messages, made, is_named=is_named)
            if result is not None and not (task is own or task.is_overwrite):
                yield result, task


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


def _own_result(made: Call, own: Task | None) -> ToolMessage | None:
    """What the own task of a call wrote: it is the call's, whatever name the tool gave it."""
    messages = own.messages if own else []
    return next((message for message in messages if _is_result_of(message, made.id)), None)


def _is_only_one(seen: Sighting, made: Call, window: Window) -> bool:
    """Whether no other open call has the id and the tool of a call, and no task makes one."""
    rivals = [rival.name for rival in seen.rivals_of(made)]
    same_id = [m for task in seen.step.writers for m, call in task.calls_made if call.id == made.id]
    is_called_again = not all(is_version(message, window.message) for message in same_id)
    return not (is_called_again or made.name in rivals or "" in rivals)


def _result_among(
    messages: Sequence[BaseMessage], made: Call, *, is_named: bool
) -> ToolMessage | None:
    """The result of a call among messages; None if it may be that of another call with its id.

    If `is_named`, an open call of another tool has the id: the results must name their tools.
    """
    own = [message for message in messages if _is_result_of(message, made.id)]
    own = [m for m in own if not (m.name and made.name) or m.name == made.name]
    if is_named and not all(m.name for m in own):
        return None
    return next(iter(own), None)


def _is_result_of(message: BaseMessage, call_id: str) -> TypeGuard[ToolMessage]:
    return is_real(message) and message.tool_call_id == call_id


# --- endings ------------------------------------------------------------------------------------


def _ending_of(task: Task, window: Window) -> Finding | None:
    """How a task without a result ended; None if the writes are ambiguous."""
    channels = {channel for channel, _ in task.writes}
    if not task.errors:
        # A task that was answered and asks again has recorded an answer.
        is_waiting = channels == {INTERRUPT} and not task.step.is_answered
        detail = "paused" if task.step.source_after is None else None
        return Finding("awaiting_input", detail=detail) if is_waiting else None
    error = task.errors[-1]
    text = text_of_error(error)
    if text.startswith("CancelledError("):
        return Finding("cancelled")
    # Both an error and an interrupt: two runs, and their order is recorded only if the task wrote
    # the answer with its error. An edited call: what failed is the call in its place.
    is_answered = bool(task.answered) if storage.NUMBERS_QUESTIONS else RESUME in channels
    is_last = INTERRUPT not in channels or is_answered
    if not is_last or _was_edited(window):
        return None
    return Finding(
        "failed", error=text, detail="timeout" if storage.is_node_timeout(error) else None
    )


def _was_edited(window: Window) -> bool:
    """Whether a human may have edited a call; the message has the call as it was before."""
    tasks = [task for seen in window.sightings for task in seen.step.writers]
    return any(_has_edit(task.written_to(RESUME)) for task in tasks)


def _has_edit(answer: object) -> bool:
    if isinstance(answer, dict):
        return answer.get("type") == "edit" or any(map(_has_edit, answer.values()))
    return isinstance(answer, list | tuple) and any(map(_has_edit, answer))


def ending_of_only_call(window: Window) -> tuple[Finding | None, Task] | None:
    """How the node ended that ran the only call of a message over the whole state, if certain.

    No other node ran since a node wrote the message, and that node ran no tools itself.
    """
    origin, writer = window.origin, window.writer
    calls, steps = read_calls(window.message), _pending_steps(window)
    if origin is None or writer is None or origin.source_before == "input" or origin.is_gap:
        return None
    if [call.source for call in calls] != ["tool_calls"] or len(steps) != 1:
        return None
    step = steps[0]
    tasks = [task for task in step.tasks if task.interrupt_ids or task.errors]
    is_only = len(step.nodes) == len(tasks) == 1 and not (step.sends or step.is_goto)
    if not is_only or any(map(runs_after_model, step.nodes)):
        return None
    returned = any(channel == storage.RETURN for task in step.others for channel, _ in task.writes)
    place = window.versions_in(writer.messages)[-1]
    ran_tools = any(isinstance(message, ToolMessage) for message in writer.messages[place:])
    if returned or ran_tools:
        return None
    return _ending_of(tasks[0], window), tasks[0]


def _pending_steps(window: Window) -> list[Superstep]:
    """The supersteps of one run that may have run the calls, oldest first, without idle ones."""
    found: list[Superstep] = []
    for seen in window.sightings:
        if seen.is_pending and seen.step.source_before == "input":
            break
        if seen.is_pending and not seen.step.is_idle:
            found.append(seen.step)
    return found


def approval(window: Window) -> Superstep | None:
    """The superstep that asked for an approval, if that is why nothing has started the calls.

    Only nodes between the model and the tools ran since the message was written, and the last of
    them asked a human and has no recorded answer.
    """
    steps = _pending_steps(window)
    if window.origin is None or window.origin.is_gap or not steps:
        return None
    is_certain = all(_asks(step) or (_is_passed(step) and step.was_applied) for step in steps)
    return steps[-1] if is_certain and _asks(steps[-1]) else None


def refused_answer(window: Window) -> bool:
    """Whether the last of such nodes failed behind the answer that it got: it started nothing.

    It has the same answer whenever it runs again.
    """
    steps = _pending_steps(window)
    if not (steps and did_not_run(window) and all(step.was_applied for step in steps[:-1])):
        return False
    last = steps[-1]
    is_refused = any(task.errors and task.written_to(RESUME) for task in last.tasks)
    return is_refused and not last.was_applied


def _is_passed(step: Superstep) -> bool:
    """Whether only hooks ran between the model and the tools."""
    is_known = bool(step.nodes) and not (step.sends or step.is_goto)
    if not is_known or not all(map(runs_after_model, step.nodes)):
        return False
    return step.was_applied or _channels_of(step) <= {INTERRUPT, ERROR, RESUME}


def _asks(step: Superstep) -> bool:
    """Whether such a hook asked a human and has no recorded answer."""
    return _is_passed(step) and _channels_of(step) == {INTERRUPT} and not step.is_answered


def _channels_of(step: Superstep) -> set[str]:
    return {channel for task in step.tasks for channel, _ in task.writes}


def is_at_breakpoint(window: Window, breakpoints: frozenset[str] | None) -> bool:
    """Whether the run stopped before nodes at which the graph is set to pause, for all we know.

    Nothing was recorded there. A run that was resumed and killed in a tool looks the same.

    Args:
        window: The window of the message.
        breakpoints: The nodes before which the graph pauses; None for every node.
    """
    steps = _pending_steps(window)
    if not steps:
        return False
    *before, last = steps
    if last.is_goto or last.was_applied or any(task.writes for task in last.writers):
        return False
    nodes = {*last.nodes, *(send.node for send in last.sends if isinstance(send, Send))}
    is_set = breakpoints is None or nodes <= breakpoints
    return is_set and all(_is_passed(step) and step.was_applied for step in before)


def did_not_run(window: Window) -> bool:
    """Whether only nodes between the model and the tools ran since the message was written."""
    is_whole = window.origin is not None and not window.origin.is_gap
    return is_whole and all(map(_is_passed, _pending_steps(window)))
