"""What recorded tool calls write to a checkpoint: the names of tasks, and the format of writes.

Two kinds of pending writes hold `{"recorded": {...}}`. Both have the keys `call_id`,
`node_task_id` (the task id of the node that made the call) and those of `Start`.

- In `__return__`, written by the task when the call finished: also `result`, which is what the
  `ToolNode` received (a `ToolMessage`, a `Command`, or a list of them). Two dicts deep, because
  the `messages` stream would show a result nearer to the top under the name of the task.
- In `MARK`, written when the task ended without a result: also `node_attempt` (the attempt of
  the node, from 1) and `task_id` (the task that ran the call). How the task ended is in its own
  writes, in `__interrupt__` or `__error__`. A task that was killed leaves no mark.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from langchain_core.messages import ToolCall
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._langgraph import RETURN

MARK: Final = "langgraph_patch:recorded"
"""The channel of a mark."""

Record: TypeAlias = dict[str, Any]

_RECORDED = "recorded"


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


def task_name(call_id: str | None, start: Start) -> str:
    """The name of the task that runs a call.

    LangGraph identifies the tasks of a node by name and order. With the whole call in the name,
    a changed order finds no result, but never another call's result or approval. The name is a
    hash, because `|` and `:` are separators in namespaces.

    Example:
        >>> task_name("call_1", Start("4f1c", 1, 1))
        'recorded_bdc917c67fe8'
    """
    return "recorded_" + hashlib.sha256(repr((call_id, *start)).encode()).hexdigest()[:12]


def hash_request(call: ToolCall, index: int | None = None) -> str:
    """A hash of the name and the arguments of a call, and of `index`, if the id is not unique."""
    try:
        args = json.dumps(call["args"], sort_keys=True, default=_without_address)
    except (TypeError, ValueError, RecursionError):  # a wrapper's arguments; a model writes JSON
        args = ""
    return hashlib.sha256(repr((call["name"], args, index)).encode()).hexdigest()[:16]


def _without_address(value: object) -> str:
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))


def make_record(call_id: str | None, node_task_id: str, start: Start, **details: Any) -> Record:
    """The value of a write about one start of a call.

    Args:
        call_id: The id of the call.
        node_task_id: The task id of the node that made the call.
        start: Which start of the call it was.
        **details: `result`, or `node_attempt` and `task_id`.
    """
    key = {"call_id": call_id, "node_task_id": node_task_id, **start._asdict()}
    return {_RECORDED: {**key, **details}}


def read_record(value: object) -> Record | None:
    """The content of a value of `make_record`, or None for any other value."""
    record = value.get(_RECORDED) if isinstance(value, dict) else None
    return record if isinstance(record, dict) else None


def find_result(
    saved: CheckpointTuple | None, call_id: str | None, node_task_id: str, start: Start
) -> Record | None:
    """The record of a start in a checkpoint, or of a later try in the same `ToolNode` run.

    A try that failed left no record, and the next try did its work.
    """
    by_try = {
        record["try_index"]: record
        for record in _records_of(saved, call_id, node_task_id)
        if (record["request_hash"], record["run_index"]) == start[:2]
        and record["try_index"] >= start.try_index
    }
    if not by_try:
        return None
    return make_record(call_id, node_task_id, start, result=by_try[min(by_try)]["result"])


def _records_of(
    saved: CheckpointTuple | None, call_id: str | None, node_task_id: str
) -> Iterator[Record]:
    # The task id of the node identifies the checkpoint too: a run from an older checkpoint runs
    # its tasks again on purpose, under other ids, and finds no record.
    writes = saved.pending_writes if saved is not None else None
    for _, channel, value in writes or ():
        record = read_record(value) if channel == RETURN else None
        key = (record.get("call_id"), record.get("node_task_id")) if record else None
        if record and key == (call_id, node_task_id):
            yield record
