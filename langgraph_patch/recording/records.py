"""What recorded tool calls write to a checkpoint: the format, and functions that read it.

All of it is in the pending writes of the checkpoint before the superstep, in three channels. Each
value is `{"recorded": {...}}`. A result is two dicts deep in it, because the `messages` stream
would show one that is less deep, under the name of the task. Each value has the keys of `CallKey`
(the owner and the node), those of `Start` (which start of the call), and `started`: when the tool
body started, in nanoseconds since the epoch. `started` identifies the start, and it is None if no
start mark was written.

- `STARTED` (a start mark), written and awaited before each start of the tool body: also
  `node_attempt` (the attempt of the node, from 1) and `task_id` (the task that runs the call: the
  call's own, or the `Send`'s).
- `MARK` (an end mark), written when that start ended with an exception: also `node_attempt`,
  `task_id`, and `ended`: `"interrupt"` or `"error"`. What the task asked or raised is in the
  task's own writes, in `__interrupt__` or `__error__`. After a cancellation or a kill there is no
  end mark; LangGraph may have written a `CancelledError` as the `__error__` of `task_id`.
- `__return__` (a record), written by the call's own task when the call finished: also `result`,
  which is what the `ToolNode` received (a `ToolMessage`, a `Command`, or a list of them). For a
  call in the task of a `Send`, LangGraph stores the result in the channels of the state, under
  `task_id`.

The marks of a `recorded_tool` also have `is_in_loop`: a loop of the application made the call. They
count for their own calls only, because the loop may run other tools that are not recorded.

Marks have task ids of their own, which derive from the task and the start. LangGraph takes a task
with a write of its own as finished.

How to read the marks of a call, if `is_recorded_superstep`:

- No start mark: the tool was not started.
- The last start has `ended == "interrupt"`: the call waits for an answer.
- The last start has `ended == "error"`: it raised; the error is that of `task_id`.
- The last start has no `ended`, and there is no result: indeterminate.

No start mark is written with durability "exit" (the checkpoint does not exist yet), without a
checkpointer, or by a `ToolNode` inside a `@task`. A superstep that goes on after `update_state`
has its marks in the checkpoint of each run.

The absence of a mark is no evidence for a node that passes only some of its calls to
`record_tool_calls`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langchain_core.messages import ToolCall
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._langgraph_names import RETURN

MARK: Final = "langgraph_patch:recorded"
"""The channel of an end mark."""

STARTED: Final = "langgraph_patch:started"
"""The channel of a start mark."""

Record: TypeAlias = dict[str, Any]

_RECORDED = "recorded"


class CallKey(NamedTuple):
    """Identifies a call and the node that makes it; with the arguments, the owner of a record.

    Attributes:
        message_id: The id of the message that makes the call; None if it has no id, or if several
            messages of the state make an equal call.
        call_id: The id that the model gave the call.
        name: The name of the tool in that message.
        node: The name of the node that makes the call.
        node_task_id: The task id of that node. It changes with the checkpoint.
    """

    message_id: str | None
    call_id: str | None
    name: str
    node: str
    node_task_id: str


class Start(NamedTuple):
    """Identifies one start of a call within a node: the same when the node runs again.

    A node always runs again from its beginning, so that counting gives the same numbers. Only
    starts of one and the same request are counted together: if the node makes its calls in
    another order, a start finds no record, but never the record of another request.

    Attributes:
        request_hash: A hash of the tool's name and the arguments in the model's message.
        run_index: The index of the `ToolNode` run that makes this call, from 1. A node may run
            its `ToolNode` in a loop, and ids may occur again.
        try_index: The index of the start in that run, from 1. A wrapper may start a call again.
    """

    request_hash: str
    run_index: int
    try_index: int


@dataclass(frozen=True)
class StartMark:
    """One start of a tool body that was recorded before it began.

    Attributes:
        message_id: The id of the message that makes the call; None if it is not certain.
        call_id: The id of the call.
        name: The name of the tool.
        request_hash: The `hash_of_call` of the call.
        node: The node that made the call.
        task_id: The task that ran the call. Its own writes say what it asked or raised.
        node_attempt: The attempt of the node, from 1.
        started: When the tool body started, in nanoseconds since the epoch.
        ended: How it ended: with a record, an interrupt or an error. None if no end is recorded
            (for the task of a `Send`: also if it returned).
    """

    message_id: str | None
    call_id: str | None
    name: str
    request_hash: str
    node: str
    task_id: str
    node_attempt: int
    started: int
    ended: Literal["result", "interrupt", "error"] | None


# --- names and hashes -----------------------------------------------------------------------


def task_name(call_id: str | None, start: Start) -> str:
    """The name of the task that runs a call.

    LangGraph identifies the tasks of a node by name and order. With the whole call in the name,
    a changed order finds no result, but never another call's result or approval. The name is a
    hash, because `|` and `:` are separators in namespaces.

    Examples:
        >>> task_name("call_1", Start("4f1c", 1, 1))
        'recorded_bdc917c67fe8'
    """
    return f"{_RECORDED}_" + hashlib.sha256(repr((call_id, *start)).encode()).hexdigest()[:12]


def is_task_name(name: str) -> bool:
    """Whether `name` is one of `task_name`.

    Examples:
        >>> is_task_name("recorded_bdc917c67fe8"), is_task_name("recorded_calls")
        (True, False)
    """
    return re.fullmatch(f"{_RECORDED}_[0-9a-f]{{12}}", name) is not None


def hash_of_call(calls: Sequence[ToolCall], index: int) -> str:
    """The `request_hash` of a call of a message.

    Args:
        calls: All calls of the message.
        index: The index of the call among them.
    """
    is_unique = sum(call["id"] == calls[index]["id"] for call in calls) == 1
    return hash_request(calls[index], None if is_unique else index)


def hash_request(call: ToolCall, index: int | None = None) -> str:
    """A hash of the name and the arguments of a call, and of `index`, if the id is not unique."""
    try:
        args = json.dumps(call["args"], sort_keys=True, default=_without_address)
    except (TypeError, ValueError, RecursionError):  # a wrapper's arguments; a model writes JSON
        args = ""
    return hashlib.sha256(repr((call["name"], args, index)).encode()).hexdigest()[:16]


def _without_address(value: object) -> str:
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))


# --- write and read -------------------------------------------------------------------------


def make_record(call: CallKey, start: Start, **details: Any) -> Record:
    """The value of a write about one start of a call.

    Args:
        call: The call.
        start: Which start of the call it was.
        **details: The other keys. The module lists them for each kind of write.
    """
    return {_RECORDED: {**call._asdict(), **start._asdict(), **details}}


def read_record(value: object) -> Record | None:
    """The content of a value of `make_record`, or None for any other value."""
    record = value.get(_RECORDED) if isinstance(value, dict) else None
    return record if isinstance(record, dict) else None


def find_result(
    supersteps: Sequence[CheckpointTuple], call: CallKey, start: Start
) -> Record | None:
    """The record of a start, or of a later try in the same `ToolNode` run.

    A try that failed left no record, and the next try did its work.

    Args:
        supersteps: The checkpoint that the node runs on. Then the earlier checkpoints with the
            same superstep, because only `update_state` was called since.
        call: The call.
        start: The start.
    """
    for index, saved in enumerate(supersteps):
        by_try = {
            record["try_index"]: record
            for record in _records_in(saved, RETURN)
            if (_is_owner if index else _is_same_task)(record, call)
            and (record["request_hash"], record["run_index"]) == start[:2]
            and record["try_index"] >= start.try_index
        }
        if by_try:
            found = by_try[min(by_try)]
            return make_record(call, start, started=found.get("started"), result=found["result"])
    return None


def _is_same_task(record: Record, call: CallKey) -> bool:
    # The task id of the node identifies the checkpoint too: a run from an older checkpoint runs
    # its tasks again on purpose, under other ids, and finds no record.
    return (record.get("call_id"), record.get("node_task_id")) == (call.call_id, call.node_task_id)


def _is_owner(record: Record, call: CallKey) -> bool:
    # `find_result` compares the arguments, as part of the start. An old record has no message id.
    owner = tuple(record.get(key) for key in CallKey._fields[:-1])
    return call.message_id is not None and owner == call[:-1]


def start_marks_in(
    saved: CheckpointTuple,
    message_id: str | None,
    call_id: str | None,
    *,
    request_hash: str | None = None,
) -> list[StartMark]:
    """The recorded starts of a call in the superstep after a checkpoint, in the order of time.

    Args:
        saved: The checkpoint.
        message_id: The id of the message that makes the call. A mark without a message id counts
            too, because it may be a mark of this call.
        call_id: The id of the call.
        request_hash: The `hash_of_call` of the call. A mark with another one does not count.
            None accepts all.
    """
    marks = [
        mark
        for mark in _start_marks(saved)
        if mark.call_id == call_id
        and mark.message_id in (message_id, None)
        and request_hash in (mark.request_hash, None)
    ]
    return sorted(marks, key=lambda mark: (mark.started, mark.node_attempt))


def is_recorded_superstep(saved: CheckpointTuple, node: str | None = None) -> bool:
    """Whether each start of a tool was marked, so that a call without a start mark did not start.

    Args:
        saved: The checkpoint before the superstep.
        node: The name of the node that runs the calls. None means any node.
    """
    # A write without `started` comes from an older version, or from a run with durability "exit".
    others = [*_records_in(saved, MARK), *_records_in(saved, RETURN)]
    if any(other.get("started") is None for other in others):
        return False
    starts = (s for s in _records_in(saved, STARTED) if not s.get("is_in_loop"))
    return any(node in (start["node"], None) for start in starts)


def _start_marks(saved: CheckpointTuple) -> Iterator[StartMark]:
    fields = [name for name in StartMark.__dataclass_fields__ if name != "ended"]
    ends = {_start_key(record): record.get("ended") for record in _records_in(saved, MARK)}
    ends |= dict.fromkeys(map(_start_key, _records_in(saved, RETURN)), "result")
    for record in _records_in(saved, STARTED):
        values = {name: record[name] for name in fields}
        yield StartMark(**values, ended=ends.get(_start_key(record)))


def _start_key(record: Record) -> tuple[Any, ...]:
    names = ("started", "message_id", "call_id", *Start._fields)
    return tuple(record.get(name) for name in names)


def _records_in(saved: CheckpointTuple, channel: str) -> Iterator[Record]:
    for _, name, value in saved.pending_writes or ():
        record = read_record(value) if name == channel else None
        if record is not None and record.keys() >= set(Start._fields):  # else of a user's task
            yield record
