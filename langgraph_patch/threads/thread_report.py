"""Report on one history: is it healthy, damaged or paused, and what would a repair do?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._langgraph_storage import task_of_namespace
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import EvidenceError, ThreadError
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import (
    changes_history,
    patch_reading,
    read_if_damaged,
)
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.history.texts import Evidence
from langgraph_patch.threads.checkpoint_state import (
    age_of,
    asked,
    history_of,
    starts_tasks,
    waiting_tasks,
)
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.opening import is_database_failure
from langgraph_patch.threads.recorded import find_recorded
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.server import Activity, LangGraphServer
from langgraph_patch.threads.unreadable import as_text, reason_of


@dataclass(slots=True)
class _LivePause:
    """What waits for a human in the thread that is read.

    Attributes:
        thread_id: The thread.
        tasks: The tasks that wait.
        interrupts: The interrupts of the root graph.
    """

    thread_id: str | None = None
    tasks: set[str] = field(default_factory=set)
    interrupts: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ThreadReader:
    """Reads the histories of a checkpointer, sorted by thread and namespace.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        since: Report on nothing older; None for all.
        pause: The pause of the thread that is read.
    """

    saver: Any
    messages_key: str
    since: datetime | None
    pause: _LivePause = field(default_factory=_LivePause)

    def report(self, key: Key) -> IOGenerator[ThreadReport | None]:
        """The report on one history; None if no later run reads it, or if it is older."""
        if key.thread_id != self.pause.thread_id:
            self.pause = _LivePause(key.thread_id)
        try:
            task = task_of_namespace(key.namespace)
            if task is not None and task not in self.pause.tasks:
                return None
            return (yield from _read_report(self, key))
        except Exception as error:  # any: what is stored may make every constructor fail
            if is_database_failure(error):
                raise
            return ThreadReport(*as_text(key), "unreadable", reason=reason_of(error))


def _read_report(reader: ThreadReader, key: Key) -> IOGenerator[ThreadReport | None]:
    config = {"configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}}
    saved: CheckpointTuple | None = yield from call_method(reader.saver, "get_tuple", config)
    if saved is None:
        yield from _check_exists(reader, key)
        return ThreadReport(*key, "healthy")
    activity = yield from _activity(reader, key, saved)
    age = age_of(saved)
    if reader.since and datetime.now(UTC) - timedelta(seconds=age) < reader.since:
        return None
    history = yield from history_of(reader.saver, saved, reader.messages_key)
    facts: dict[str, Any] = {
        "checkpoint_id": saved.checkpoint["id"],
        "age": age,
        "messages": None if history is None else len(history),
    }
    is_open = activity is not None
    reading = _read(history or [], leaves_open=is_open)
    defects = patch_reading(reading).changes if reading else ()
    if activity == "waiting":
        return ThreadReport(*key, "paused", defects=defects, asks=asked(saved), **facts)
    if reading is None or (is_open and not defects):
        return ThreadReport(*key, "healthy", **facts)
    evidence, reason = yield from _evidence(reader, saved, reading)
    patch = patch_reading(replace(reading, leaves_open=False), evidence=evidence)
    if not changes_history(patch):
        return ThreadReport(*key, "healthy", **facts)
    return ThreadReport(*key, "damaged", defects=defects, patch=patch, reason=reason, **facts)


def _check_exists(reader: ThreadReader, key: Key) -> IOGenerator[None]:
    """A thread that has no checkpoint was deleted; on a server, it may never have run."""
    is_server = isinstance(reader.saver, LangGraphServer)
    if not is_server or (yield from reader.saver.thread(key.thread_id)) is None:
        raise ThreadError("it was deleted during the scan")


def _read(history: list[BaseMessage], *, leaves_open: bool) -> Reading | None:
    """A history that a repair may change: it has a defect, or a placeholder to search for."""
    reading = read_if_damaged(history, leaves_open=leaves_open)
    if reading is None and any(map(is_placeholder, history)):
        return read_history(history, leaves_open=leaves_open)
    return reading


def _activity(
    reader: ThreadReader, key: Key, saved: CheckpointTuple
) -> IOGenerator[Activity | None]:
    """Whether a human may still answer or, on a server, a run of the thread is in progress."""
    if not isinstance(reader.saver, LangGraphServer):
        return "waiting" if _is_waiting(reader.pause, key, saved) else None
    return (yield from reader.saver.activity(key.thread_id)) if starts_tasks(saved) else None


def _is_waiting(pause: _LivePause, key: Key, saved: CheckpointTuple) -> bool:
    """Whether a human may still answer. An answer comes through the root graph only."""
    waiting = waiting_tasks(saved)
    interrupts = {interrupt for ids in waiting.values() for interrupt in ids}
    if not key.namespace:
        pause.interrupts = interrupts
    if not interrupts & pause.interrupts:
        return False
    pause.tasks.update(waiting)
    return True


def _evidence(
    reader: ThreadReader, saved: CheckpointTuple, reading: Reading
) -> IOGenerator[tuple[Evidence, str | None]]:
    """The evidence; if the older checkpoints cannot be read, none, and the reason."""
    try:
        recovery = yield from find_recorded(
            reader.saver, saved.config, reading, reader.messages_key
        )
    except EvidenceError as error:
        return {}, f"its older checkpoints cannot be read: {reason_of(error.__cause__ or error)}"
    return recovery.evidence, None
