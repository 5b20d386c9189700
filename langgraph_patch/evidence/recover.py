"""Find what the checkpoints of a thread recorded about tool calls without a result.

The patch node, the scan and the repair of stored threads call `recover_evidence` with the calls
that have no result.

When a run stops in the middle of a superstep, LangGraph keeps what the finished tasks wrote as
*pending writes* of the checkpoint before that superstep. The next message drops them from the
state, but they stay in the database, as do older checkpoints. This package reads them.

**What counts as evidence**, in this order of precedence:

1. A *result*: a `ToolMessage` with the id of the call that is not a placeholder and names no
   other tool. It is read from a write to the history, from what a `@task` returned, or from the
   history of an older checkpoint.

   - It counts only if at that point no other message made an open call with the id, and the call
     had the name and the arguments that it has now. With durability "exit", one checkpoint may
     have the writes of several supersteps. If they make another call with the id, only what the
     task of the call's own `Send` wrote counts there.
   - Calls of one message with one id are told apart by their `Send`s, else as in a history. If a
     repair gave the call a new id, its former id counts before that repair.

   What the task of a result wrote beside it is returned as `Effects`, if the superstep was
   abandoned, or if a gap in the step numbers may hide that it was.
2. The last recorded end of a task that ran this call and nothing else: an *error* (`failed`), a
   *cancellation* (`cancelled`), or an *interrupt* without a recorded answer (`awaiting_input`).
   Such a task is that of a `Send`. The task of a node that runs all calls of a message (a plain
   `ToolNode`) counts only if the message makes one call, no other node ran in that superstep, and
   a node wrote the message in the superstep before. An error counts only if that node is called
   `tools`, because in another node a middleware may have failed.
3. That nothing has started the call (`not_started`): only nodes between the model and the tools
   ran, the supersteps that they led to are in this branch, and the last one paused without a
   recorded answer.

Every finding is one about the record. It stays true if the call was started again without a
trace. If the writes of a task do not say how it ended (an error and an interrupt, or an interrupt
and an answer), older outcomes do not count either, because they are not the last.

Without evidence a call is `unknown`.

`Finding.look_again` is set if a task may be running that has not recorded its end, or that goes on
after a timeout: its superstep began in the last 10 minutes. It is set if no checkpoint could be
read: the checkpointer raised, or, with durability "exit", the run has not stored one yet. If the
newest checkpoint is from the last 10 minutes, it is also set:

- for a call that waits, failed or was cancelled, or that was not approved: a task that is started
  again, with an answer by interrupt id or after an error, leaves no trace before it ends;
- for a call without evidence, if each task of a superstep that may have run it has recorded an
  end: one task ran all calls, and it may have been answered.

**Which checkpoints are read**: those from which the current one was made, those of the subgraphs
of the task that wrote the message (if no task is recorded that wrote it, as with durability
"exit": those of the subgraphs of that superstep that have the message), and if the message was the
input of a subgraph, those of its parent graph. With durability "exit", the newest checkpoints may
be of other runs: those that store a result of one of the calls are skipped. Beyond the newest
checkpoints (58, fewer in a long thread), bisection finds the one in which a message was new. If
that is impossible, at most 508 checkpoints are read (gaps between the steps, as durability "exit"
leaves them, or branches that cannot be distinguished), or 1858 (`DeltaChannel` state).

**Limits**: what follows is not recorded in a way that can be read back.

- A waiting call was resumed *by interrupt id* (with durability "exit": resumed at all), and that
  run was cancelled, killed, or still runs: the record shows a call that waits.
- `interrupt_before` leaves no trace, so a call that it stopped is `unknown`.
- With durability "exit", a killed run records nothing.
- A fork has the pending writes of the checkpoint that it begins at in common with the branch that
  was left. What they record about a call may have happened there.
- Two calls of one message with one id, one tool and one task for both: a result that is recorded
  for only one of them is given to neither.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.evidence.checkpoint_messages import Checkpoint
from langgraph_patch.evidence.conclusions import (
    finding_of_malformed,
    may_be_started_again,
    may_still_run,
)
from langgraph_patch.evidence.effects import Effects, effects_of
from langgraph_patch.evidence.queries import CheckpointReader
from langgraph_patch.evidence.search import find_evidence
from langgraph_patch.evidence.tracked_calls import TrackedCall, TrackedMessage, track_calls
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.texts import Evidence, Finding

logger: logging.Logger = logging.getLogger("langgraph_patch")

_RUNNING = timedelta(minutes=10)
"""How long a superstep may be running that has recorded no end."""

_RETRY_SECONDS = (0.01, 0.05, 0.2, 0.4)
"""How long to wait for a result that is perhaps being written, before each further search."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the checkpoints of a thread recorded.

    Attributes:
        evidence: (index of the message, position of the call) -> the recorded result, or the
            cause why there is none, for each call. `unknown` means that the search found nothing,
            that the call cannot be identified, or that the limit of queries was reached first.
        effects: The dropped effects of the recorded results that had any.
    """

    evidence: Evidence = field(default_factory=dict)
    effects: Mapping[tuple[int, int], Effects] = field(default_factory=dict)


def recover_evidence(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    messages: Sequence[BaseMessage],
    calls: Sequence[Call],
    *,
    messages_key: str = "messages",
    required: bool = False,
    is_at_exit: bool = False,
) -> IOGenerator[Recovery]:
    """Find what the checkpoints of a thread recorded about tool calls without a result.

    Args:
        saver: The checkpointer. It is only read. It is not read if `calls` is empty.
        config: Names the thread (`thread_id`), the namespace of the graph that has the calls
            (`checkpoint_ns`, default `""`), and the current checkpoint (`checkpoint_id`,
            default the newest). If the current checkpoint is still being written, the search
            waits for it for a second at most.
        messages: The history.
        calls: The calls of it to search for.
        messages_key: The state key of the history. Default: `"messages"`.
        required: Whether to raise if the checkpointer raises. Default: False, the logger
            `langgraph_patch` reports it once with level WARNING, and only results that were
            found before are returned.
        is_at_exit: Whether the run of these calls stores its checkpoints when it ends (durability
            "exit"). The newest checkpoint may then be that of another run. Default: False.

    Raises:
        EvidenceError: If the checkpointer raises and `required` is True.

    Examples:
        >>> from langchain_core.messages import AIMessage, ToolMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph.types import Send, interrupt
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
        >>> saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
        >>> _ = builder.compile(checkpointer=saver).invoke({"messages": []}, config)
        >>> found = run_sync(recover_evidence(saver, config, [ai], read_calls(ai))).evidence
        >>> found[0, 0].result.content, found[0, 1].cause
        ('sent to bob', 'awaiting_input')
    """
    for seconds in (*_RETRY_SECONDS, None):
        tracked_messages = track_calls(messages, calls)
        reader = CheckpointReader(saver, messages_key, required)
        newest = yield from find_evidence(reader, config, tracked_messages, is_at_exit=is_at_exit)
        if (
            seconds is None
            or reader.error is not None
            or not _may_be_written(tracked_messages, config)
        ):
            break
        yield IORequest(partial(time.sleep, seconds), partial(asyncio.sleep, seconds))
    if reader.error is not None:
        logger.warning(
            "%s The calls are unknown until the next turn searches again.",
            reader.error,
            exc_info=reader.error.__cause__,
        )
    evidence = {call.key: Finding() for call in calls}
    effects: dict[tuple[int, int], Effects] = {}
    for message in tracked_messages:
        for tracked in message.calls:
            key = message.index, tracked.call.ordinal
            found = _evidence_of(reader, tracked, message, newest)
            evidence[key] = found
            if found.result is not None and tracked.source is not None:
                dropped = effects_of(tracked.source, newest, found.result)
                if dropped is not None:
                    effects[key] = dropped
    return Recovery(evidence, effects)


def _may_be_written(messages: Sequence[TrackedMessage], config: RunnableConfig) -> bool:
    """Whether the result of a call is perhaps being written.

    LangGraph does not wait until a result is stored. After a handoff, the next agent, which is a
    nested graph, may read the checkpoint a moment too early.
    """
    is_nested = bool(config.get("configurable", {}).get("checkpoint_ns"))
    return is_nested and any(message.calls_without_evidence() for message in messages)


def _time_before_now(ago: timedelta) -> str:
    """A time in the format of a checkpoint."""
    return (datetime.now(UTC) - ago).isoformat()


def _evidence_of(
    reader: CheckpointReader,
    tracked: TrackedCall,
    message: TrackedMessage,
    newest: Checkpoint | None,
) -> Finding:
    """The evidence about a call as it is returned."""
    found = tracked.evidence
    if isinstance(found, ToolMessage):
        return Finding(result=found)
    if reader.error is not None or newest is None:
        return Finding(look_again=True)
    if found is None and not reader.queries_left:
        return Finding()
    if found is None or found.cause == "not_started":
        found = _malformed(tracked, message) or found
    found = found or Finding("unknown")
    since = _time_before_now(_RUNNING)
    may_change = may_still_run(tracked, message, since)
    is_recent = newest.saved.checkpoint["ts"] > since
    look_again = may_change or (is_recent and may_be_started_again(tracked, message))
    return replace(found, inner=tracked.inner, look_again=look_again)


def _malformed(tracked: TrackedCall, message: TrackedMessage) -> Finding | None:
    arguments = read_calls(message.message)[tracked.call.ordinal].raw_args
    return None if arguments is None else finding_of_malformed(message, arguments)
