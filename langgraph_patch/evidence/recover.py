"""Find what the checkpoints of a thread recorded about open tool calls: those without a result.

The patch node, the scan and the repair of stored threads call `recover_evidence` with the open
calls of a history.

When a run stops in the middle of a superstep, LangGraph keeps what the finished tasks wrote as
*pending writes* of the checkpoint before that superstep. The next message drops them from the
state, but they stay in the database, as do older checkpoints. This package reads them:

1. `window` reads the supersteps in which the calls of a message may have run.
2. `judge` replays them forward, and decides about each call by the first of its rows that answers:
   a *result*, the record of a call that runs once (`claims`), the last recorded end of the call's
   own task (an *error*, a *cancellation*, an *interrupt* without an answer), and so on.
3. `nested` checks that against the graphs above and below.
4. `effects` are what a recovered result claims beside its message.

Every finding is one about the record. It stays true if the call was started again without a trace.
What is not certain is `unknown`.

**Limits**: what follows is not recorded in a way that can be read back.

- A waiting call was resumed *by interrupt id* (with durability "exit": resumed at all), and that
  run was cancelled, killed, or still runs: the record shows a call that waits.
- `interrupt_before` leaves no trace, so a call that it stopped is `unknown`.
- With durability "exit", a killed run records nothing.
- A fork has the pending writes of the checkpoint that it begins at in common with the branch that
  was left. What they record about a call may have happened there.
- One search loads about 100,000 stored messages for all its calls, the newest first. A call that
  was made further back is `unknown`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.nodes import NO_NODES, Nodes
from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import logger
from langgraph_patch.evidence.claims import Recorded, read_claims
from langgraph_patch.evidence.effects import Effects, effects_of
from langgraph_patch.evidence.judge import ROWS, Facts, JudgedCall, Steps
from langgraph_patch.evidence.nested import (
    check_below,
    graph_above,
    graph_of_writer,
    inner_results,
    is_answered_above,
)
from langgraph_patch.evidence.superstep import Superstep
from langgraph_patch.evidence.window import Reader, Window, read_windows, windows_of
from langgraph_patch.history.calls import Call
from langgraph_patch.history.findings import Evidence, Finding

_BEING_WRITTEN = timedelta(seconds=5)
"""How long a result may take to be stored, after its superstep began."""

_FIRST_LOOK, _PATIENCE = 0.003, 0.04
"""Seconds until the record is first looked at again, and after which no further look follows.

Each look doubles the time that was waited. What a run stores when it is stopped is there after a
few milliseconds, and the next turn searches once more.
"""

_NOTHING: Mapping[tuple[int, int], str] = {}

_JudgedCalls: TypeAlias = dict[tuple[int, int], JudgedCall]
"""By the keys of the calls."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the checkpoints of a thread recorded.

    Attributes:
        evidence: For each call what was found; `unknown` if that is nothing.
        effects: The dropped effects of the recorded results that had any.
    """

    evidence: Evidence = field(default_factory=dict)
    effects: Mapping[tuple[int, int], Effects] = field(default_factory=dict)


def recover_evidence(
    saver: BaseCheckpointSaver[Any],
    address: Address,
    messages: Sequence[BaseMessage],
    calls: Sequence[Call],
    *,
    messages_key: str = "messages",
    required: bool = False,
    nodes: Nodes = NO_NODES,
    searched_at: Mapping[tuple[int, int], str] = _NOTHING,
    is_over: bool = False,
    once: Collection[str] | None = (),
    seen: CheckpointTuple | None = None,
) -> IOGenerator[Recovery]:
    """Find what the checkpoints of a thread recorded about open tool calls.

    Args:
        saver: The checkpointer. It is only read. It is not read if `calls` is empty.
        address: Names the thread, the namespace of the graph that has the calls, and the current
            checkpoint, which must be stored (`Run.stored`). For what a task is perhaps storing, the
            search waits for 50 ms.
        messages: The history.
        calls: The calls of it to search for.
        messages_key: The state key of the history. Default: `"messages"`.
        required: Whether to raise if the checkpointer raises. Default: False, the logger
            `langgraph_patch` reports it once with level WARNING, and only results that were
            found before are returned.
        nodes: The nodes of the running graph. Default: none are known.
        searched_at: The keys of calls that an earlier turn has searched for, each with the
            checkpoint at which it did (`""` for the current one). For every other call that stays
            open the next turn searches once more. Default: none.
        is_over: Whether the run of the graph is abandoned: neither this search nor the next turn
            looks again for results. Default: False.
        once: The tools whose calls run once, and have a record; None if that is not known: each
            call is looked for. Default: none.
        seen: A checkpoint of the thread that was read a moment ago. Default: none.

    Raises:
        EvidenceError: If the checkpointer raises and `required` is True.

    Examples:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.types import Send, interrupt
        >>> from langgraph_patch._langgraph.address import Address
        >>> from langgraph_patch._sansio import run_sync
        >>> from langgraph_patch.history.calls import read_calls
        >>> def send_email(call):
        ...     return {"messages": [ToolMessage("sent to bob", tool_call_id="c1")]}
        >>> def wire_money(call):
        ...     interrupt("1000 EUR?")
        >>> ai = AIMessage("", id="m1", tool_calls=[
        ...     {"name": "send_email", "args": {}, "id": "c1"},
        ...     {"name": "wire_money", "args": {}, "id": "c2"}])
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [ai]})
        >>> _ = builder.add_node(send_email).add_node(wire_money).set_entry_point("model")
        >>> _ = builder.add_conditional_edges(
        ...     "model", lambda state: [Send(c["name"], [c]) for c in ai.tool_calls])
        >>> saver, address = InMemorySaver(), Address("1")
        >>> _ = builder.compile(checkpointer=saver).invoke({"messages": []}, address.config)
        >>> found = run_sync(recover_evidence(saver, address, [ai], read_calls(ai))).evidence
        >>> found[0, 0].result.content, found[0, 1].cause
        ('sent to bob', 'awaiting_input')
    """
    if not calls:
        return Recovery()
    began, waited = time.monotonic(), 0.0
    while True:
        reader = Reader(saver, messages_key, required, nodes, seen)
        recorded = yield from read_claims(reader, address, messages, calls, once)
        windows = windows_of(messages, calls, searched_at)
        newest, judged_calls = yield from _Search(reader, recorded).run(address, windows)
        shown = {key for key, each in recorded.items() if each.finding}
        awaited = _being_written(each for key, each in judged_calls.items() if key not in shown)
        while awaited and waited < _PATIENCE and not (is_over or reader.error):
            seconds = waited or _FIRST_LOOK
            yield IORequest(partial(time.sleep, seconds), partial(asyncio.sleep, seconds))
            seen = None
            is_more = yield from _has_more(reader, awaited)
            waited = time.monotonic() - began  # what is awaited has come meanwhile, or will not
            if is_more:
                break
        else:
            break
    if reader.error is not None:
        logger.warning(
            "%s The calls are unknown until the next turn searches again.",
            reader.error,
            exc_info=reader.error.__cause__,
        )
    is_read = reader.error is None and newest is not None
    evidence, effects = {}, {}
    for call in calls:
        judged = judged_calls.get(call.key, JudgedCall())  # without an id it was not judged
        is_certain = is_read or judged.result or call.key in shown
        finding = (judged.finding if is_certain else None) or Finding()
        is_first = call.key not in searched_at or not is_read
        if finding.result is None and is_first and not is_over:
            finding = replace(finding, look_again=newest.id if newest and is_read else True)
        evidence[call.key] = finding
        if judged.writer and newest:
            effects[call.key] = effects_of(judged.writer, newest, is_over=is_over)
    return Recovery(evidence, {key: each for key, each in effects.items() if each})


def _being_written(judged_calls: Iterable[JudgedCall]) -> dict[Address, int]:
    """How many writes were read of each superstep with a task whose end is perhaps being stored.

    LangGraph does not wait for that.
    """
    since = (datetime.now(UTC) - _BEING_WRITTEN).isoformat()  # as a checkpoint has it
    steps = [judged.last for judged in judged_calls if judged.finding is None and judged.last]
    awaited = [step for step in steps if step.began > since and not step.is_over]
    return {step.address: len(step.saved.pending_writes or ()) for step in awaited}


def _has_more(reader: Reader, awaited: Mapping[Address, int]) -> IOGenerator[bool]:
    """Whether a checkpoint has another number of writes than this."""
    for address, count in awaited.items():
        saved = yield from reader.read_saved(address)
        if saved is not None and len(saved.pending_writes or ()) != count:
            return True
    return False


# --- one search -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Search:
    """One search, in the checkpoints of a graph and of those above and below.

    Attributes:
        reader: The checkpointer.
        recorded: What the records of calls that run once show, by the keys of the calls.
    """

    reader: Reader
    recorded: Mapping[tuple[int, int], Recorded]

    def run(
        self, address: Address, windows: Sequence[Window], visited: frozenset[str] = frozenset()
    ) -> IOGenerator[tuple[Superstep | None, _JudgedCalls]]:
        """Search the checkpoints of one graph.

        Args:
            address: The current checkpoint.
            windows: The messages that make the calls.
            visited: The namespaces that were searched before this one.

        Returns:
            The superstep after the current checkpoint, and what is known of each call.
        """
        newest = yield from read_windows(self.reader, address, windows)
        visited |= {address.namespace}
        judged_calls: _JudgedCalls = {}
        for window in reversed(windows):
            for facts in (yield from self._facts_of(window, visited)):
                judged_calls[facts.call.key] = yield from self._judge(facts)
        return newest, judged_calls

    def _facts_of(self, window: Window, visited: frozenset[str]) -> IOGenerator[list[Facts]]:
        """What is known of the calls of a message. Other graphs are read where a row needs them."""
        steps = Steps(window, self.reader.nodes)
        replayed = steps.replay()
        rest = {k: v for k, v in replayed.items() if v.result is None and v.ended is None}
        elsewhere: _JudgedCalls = {}
        is_answered = False
        if rest and steps.asking:
            is_answered = yield from is_answered_above(self.reader, steps.asking)
        elif rest and not steps.has_refused_answer:
            elsewhere = yield from self._in_other_graph(window, rest, visited)
        writes = [
            each for seen in window.sightings for each in seen.step.saved.pending_writes or ()
        ]
        claims = {key: each.shown_beside(writes) for key, each in self.recorded.items()}
        return [
            Facts(c, steps, replayed[c.key], claims.get(c.key), elsewhere.get(c.key), is_answered)
            for c in window.calls
        ]

    def _in_other_graph(
        self, window: Window, rest: _JudgedCalls, visited: frozenset[str]
    ) -> IOGenerator[_JudgedCalls]:
        """How the graph above or below that ran calls judges them; nothing without such a graph."""
        above, below = graph_above(window), graph_of_writer(window)
        other = above or below
        if other is None or other.namespace in visited:
            return {}
        calls = [call for call in window.calls if call.key in rest]
        same = [Window(window.message, calls, equals=window.equals)]
        newest, found = yield from self.run(other, same, visited)
        if above is not None:
            # Its open call may be the one that runs this graph, so only results count.
            found = {k: v if v.result else replace(rest[k], last=v.last) for k, v in found.items()}
        return {} if newest is None else found

    def _judge(self, facts: Facts) -> IOGenerator[JudgedCall]:
        """The first judgement that the graphs above and below do not contradict."""
        judged = facts.judged
        for judgement in filter(None, (row(facts) for row in ROWS)):
            judged = yield from check_below(self.reader, facts.steps.window, facts.call, judgement)
            if judged.finding is not None:
                break
        inner = () if judged.result else (yield from inner_results(self.reader, judged))
        if inner:  # what the calls inside the call recorded
            finding = judged.finding or Finding()
            judged = replace(judged, finding=replace(finding, inner=finding.inner or inner))
        return judged
