"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph import task_of_namespace
from langgraph_patch._sansio import IOGenerator, call_method, run_async, run_sync
from langgraph_patch.errors import EvidenceError, ThreadError, brief
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Evidence
from langgraph_patch.history.patcher import defects_of, patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import is_placeholder, is_settled
from langgraph_patch.threads.checkpoint_state import age_of, history_of, waiting_tasks
from langgraph_patch.threads.options import check_kind, sorted_ids
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.stores.base import Key, Shard, Store, last_key_of
from langgraph_patch.threads.stores.select import is_database_failure, store_of


def scan_threads(
    saver: BaseCheckpointSaver[Any],
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    after: str = "",
    shard: Shard | None = None,
) -> Iterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every namespace in it that later runs read.

    A namespace of one run of a node (`node:<task id>`) is not read again when that run is over.
    It is reported only while it waits for a human.

    Args:
        saver: The checkpointer. It is only read.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on. Default: all threads.
        after: Skip the threads up to and including the one with this id, to continue a scan.
            Default: none is skipped.
        shard: Report only on this part of the threads, so that several processes can share a
            scan, such as `Shard(1, 8)`. Default: all parts.

    Yields:
        The reports, sorted by thread and namespace. Each is made when it is asked for, and none
        is kept in memory.

    Raises:
        ThreadError: If one of `thread_ids` does not exist, or if the database cannot list its
            threads.
        OptionError: If an option has an invalid value, or if the checkpointer can only be used
            asynchronously (`ascan_threads`).

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import scan_threads
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> _ = graph.invoke({"messages": []}, {"configurable": {"thread_id": "1"}})
        >>> [str(report) for report in scan_threads(graph.checkpointer)]
        ["'1': damaged - inserted 'wire' 'c1' (unknown)"]
    """
    return _reports(_scan(saver, messages_key, thread_ids, after, shard))


def ascan_threads(
    saver: BaseCheckpointSaver[Any],
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    after: str = "",
    shard: Shard | None = None,
) -> AsyncIterator[ThreadReport]:
    """Report on threads as `scan_threads` does, over an asynchronous checkpointer.

    Args:
        saver: The checkpointer. It is only read.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on. Default: all threads.
        after: Skip the threads up to and including the one with this id. Default: none.
        shard: Report only on this part of the threads. Default: all parts.

    Yields:
        The reports, sorted by thread and namespace.

    Raises:
        ThreadError: If one of `thread_ids` does not exist, or if the database cannot list its
            threads.
        OptionError: If an option has an invalid value, or if the checkpointer can only be used
            synchronously (`scan_threads`).

    Example:
        >>> import asyncio
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch.threads import ascan_threads
        >>> async def count(saver):
        ...     return len([report async for report in ascan_threads(saver)])
        >>> asyncio.run(count(InMemorySaver()))
        0
    """
    return _areports(_scan(saver, messages_key, thread_ids, after, shard))


# --- one scan ----------------------------------------------------------------------------


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
class _Scan:
    """What a scan reads, and how far it is.

    Attributes:
        saver: The checkpointer.
        store: Lists its threads.
        messages_key: The state key of the history.
        shard: The part to report on; None for all.
        chosen: The remaining ids of chosen threads; None for all.
        last: The last key that was listed; None before the first page.
        pause: The pause of the thread that is read.
    """

    saver: BaseCheckpointSaver[Any]
    store: Store
    messages_key: str
    shard: Shard | None
    chosen: Iterator[str] | None
    last: Key | None
    pause: _LivePause = field(default_factory=_LivePause)

    def includes(self, thread_id: str) -> bool:
        return self.shard is None or self.shard.has(thread_id)


def _scan(
    saver: BaseCheckpointSaver[Any],
    messages_key: str,
    thread_ids: Iterable[str] | None,
    after: str,
    shard: Shard | None,
) -> _Scan:
    check_kind("messages_key", messages_key, str, "a state key")
    check_kind("after", after, str, "the id of a thread")
    if shard is not None:
        check_kind("shard", shard, Shard, "a Shard, such as Shard(1, 8)")
    chosen = None
    if thread_ids is not None:
        chosen = iter([each for each in sorted_ids(thread_ids) if not after or each > after])
    last = last_key_of(after) if after else None
    return _Scan(saver, store_of(saver), messages_key, shard, chosen, last)


def _reports(scan: _Scan) -> Iterator[ThreadReport]:
    while (keys := run_sync(_next_keys(scan))) is not None:
        for key in keys:
            report = run_sync(_report(scan, key))
            if report is not None:
                yield report


async def _areports(scan: _Scan) -> AsyncIterator[ThreadReport]:
    while (keys := await run_async(_next_keys(scan))) is not None:
        for key in keys:
            report = await run_async(_report(scan, key))
            if report is not None:
                yield report


# --- the keys ----------------------------------------------------------------------------


def _next_keys(scan: _Scan) -> IOGenerator[Sequence[Key] | None]:
    """The next keys to report on, perhaps none of a page; None at the end."""
    if scan.chosen is not None:
        thread_id = next(filter(scan.includes, scan.chosen), None)
        return None if thread_id is None else (yield from _keys_of_thread(scan, thread_id))
    page = yield from scan.store.keys_after(scan.last)
    if not page:
        return None
    scan.last = page[-1]
    return [key for key in page if scan.includes(key.thread_id)]


def _keys_of_thread(scan: _Scan, thread_id: str) -> IOGenerator[Sequence[Key]]:
    keys: Sequence[Key] = ()
    with suppress(UnicodeEncodeError):  # no database can hold such an id
        keys = yield from scan.store.keys_of(thread_id)
    if not keys:
        raise ThreadError(f"There is no thread {thread_id!r}.")
    return keys


# --- one report --------------------------------------------------------------------------


def _report(scan: _Scan, key: Key) -> IOGenerator[ThreadReport | None]:
    """The report on one history; None if no later run reads it."""
    if key.thread_id != scan.pause.thread_id:
        scan.pause = _LivePause(key.thread_id)
    try:
        task = task_of_namespace(key.namespace)
        if task is not None and task not in scan.pause.tasks:
            return None
        return (yield from _read_report(scan, key))
    except Exception as error:
        if is_database_failure(error):
            raise
        return ThreadReport(*key, "unreadable", reason=_reason(error))


def _read_report(scan: _Scan, key: Key) -> IOGenerator[ThreadReport]:
    config = {"configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}}
    saved: CheckpointTuple | None = yield from call_method(scan.saver, "get_tuple", config)
    if saved is None:
        raise ThreadError("it was deleted during the scan")
    waits = _is_waiting(scan.pause, key, saved)
    history = yield from history_of(scan.saver, saved, scan.messages_key)
    facts: dict[str, Any] = {
        "checkpoint_id": saved.checkpoint["id"],
        "age": age_of(saved),
        "messages": None if history is None else len(history),
    }
    reading = _read(history or [], allow_pending=waits)
    defects = tuple(defects_of(reading, allow_pending=waits)) if reading else ()
    if waits or reading is None:
        return ThreadReport(*key, "paused" if waits else "healthy", defects=defects, **facts)
    evidence, reason = yield from _evidence(scan, saved, reading)
    patch = patch_reading(reading, evidence=evidence)
    if not patch:
        return ThreadReport(*key, "healthy", **facts)
    return ThreadReport(*key, "damaged", defects=defects, patch=patch, reason=reason, **facts)


def _read(history: list[BaseMessage], *, allow_pending: bool) -> Reading | None:
    """A history that a repair may change: it has a defect, or a placeholder that is not settled."""
    reading = read_if_damaged(history, allow_pending=allow_pending)
    if reading is None and any(is_placeholder(m) and not is_settled(m) for m in history):
        return read_history(history)
    return reading


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
    scan: _Scan, saved: CheckpointTuple, reading: Reading
) -> IOGenerator[tuple[Evidence, str | None]]:
    """The evidence; if the older checkpoints cannot be read, none, and the reason."""
    try:
        recovery = yield from recover_evidence(
            scan.saver,
            saved.config,
            reading.unanswered,
            messages_key=scan.messages_key,
            required=True,
        )
    except EvidenceError as error:
        return {}, f"its older checkpoints cannot be read: {_reason(error.__cause__ or error)}"
    return recovery.evidence, None


def _reason(error: BaseException) -> str:
    if isinstance(error, ThreadError):
        return str(error)
    if isinstance(error, NotImplementedError) and "pickle" in str(error):
        return "a row of it is a pickle, which is never loaded: it could run any code"
    return brief(error)
