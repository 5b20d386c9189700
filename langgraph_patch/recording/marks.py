"""Mark each start of a tool body in the checkpoint, and how it ended if it left no result.

The format of the marks is in `records`.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphInterrupt

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.records import MARK, STARTED, CallKey, Start, make_record


@dataclass(frozen=True, slots=True)
class MarkedStart:
    """One start of a call in a task, and the checkpoint that its marks are written to.

    Attributes:
        saver: The checkpointer.
        checkpoint: Names the checkpoint that the node runs on.
        key: Which call of which node this is.
        start: Which start of the call this is.
        task_id: The task that runs the call.
        node_attempt: The attempt of the node, from 1.
        is_in_loop: Whether a loop of the application makes the call, and no `ToolNode`.
    """

    saver: BaseCheckpointSaver[Any]
    checkpoint: RunnableConfig
    key: CallKey
    start: Start
    task_id: str
    node_attempt: int
    is_in_loop: bool


def mark_start(marked: MarkedStart) -> IOGenerator[int]:
    """Record that the tool body starts now, before it does.

    Returns:
        When it starts, in nanoseconds since the epoch.

    Raises:
        RecordingError: If the checkpointer failed. Without its mark, the call would later be
            reported as not started.
    """
    started = time.time_ns()
    try:
        yield from _write(marked, STARTED, started=started)
    except Exception as error:  # a checkpointer may raise anything
        raise RecordingError(
            f"Tool call {marked.key.call_id!r} was not run: the checkpointer raised {error!r} "
            "while the start of the tool was recorded. Run the graph again when the checkpointer "
            "works."
        ) from error
    return started


def mark_end(marked: MarkedStart, started: int | None, error: Exception) -> IOGenerator[None]:
    """Record that a start ended without a result.

    Args:
        marked: The start.
        started: When it started; None if that was not marked.
        error: What ended it. If the checkpointer fails too, this error gets a note.
    """
    ended = "interrupt" if isinstance(error, GraphInterrupt) else "error"
    try:
        yield from _write(marked, MARK, started=started, ended=ended)
    except Exception as failure:  # noqa: BLE001 - the caller must get the tool's error
        error.add_note(f"langgraph-patch could not record the call of this task: {failure!r}")


def _write(marked: MarkedStart, channel: str, **details: Any) -> IOGenerator[None]:
    """Write a mark, under an id of its own.

    After a write of the task itself, LangGraph takes the task as finished.
    """
    number, task_id = marked.node_attempt, marked.task_id
    details |= {"node_attempt": number, "task_id": task_id}
    if marked.is_in_loop:
        details["is_in_loop"] = True
    mark = make_record(marked.key, marked.start, **details)
    parts = (channel, task_id, number, *marked.start, details["started"])
    mark_id = str(uuid.uuid5(uuid.NAMESPACE_OID, repr(parts)))
    writes = [(channel, mark)]
    yield from call_method(marked.saver, "put_writes", marked.checkpoint, writes, mark_id)
