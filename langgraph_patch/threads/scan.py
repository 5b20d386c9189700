"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph_storage import task_of_namespace
from langgraph_patch._sansio import (
    IOGenerator,
    IOIterator,
    asynchronous_iterator,
    call_method,
    synchronous_iterator,
)
from langgraph_patch.errors import EvidenceError, OptionError, ThreadError
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Patch, changes_history, patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.threads.keys import Key, list_keys
from langgraph_patch.threads.opening import is_database_failure
from langgraph_patch.threads.plan import RepairOptions, plan_repair
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.server import server_of
from langgraph_patch.threads.server_client import ServerClient
from langgraph_patch.threads.stored import (
    age_of,
    config_of,
    history_of,
    interrupts_of,
    is_marked,
    reason_of,
)
from langgraph_patch.threads.target import activity_of, may_be_empty


@synchronous_iterator
def scan_threads(
    saver: BaseCheckpointSaver[Any] | ServerClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
) -> IOIterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every namespace in it that later runs read.

    A namespace of one run of a node (`node:<task id>`) is left out: no later run reads it. What an
    agent in it asks, or did before an input dropped its run, is in the report on the graph above.
    `ascan_threads` is the same for an asynchronous checkpointer or client: iterate over it with
    `async for`.

    A scan makes one query for each history. A thread with subgraphs takes one more, for its newest
    input. Older checkpoints are read only if a history is damaged, or if that input ended tasks.

    Args:
        saver: The checkpointer. It is only read. For the threads of a LangGraph Server: the
            client (`langgraph_sdk.get_sync_client`), or a `LangGraphServer`, which filters them.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on; needed if the checkpointer cannot list its
            threads. Default: all threads.
        include: A function that takes the id of a thread and returns whether to report on it.
            Other threads are not read. Default: all threads.
        since: Report only on histories that were written to at this time or later. A time without
            a zone is UTC. Default: all times.

    Yields:
        The reports, by thread, and for each thread by namespace. Each report is made when it is
        asked for, and none is kept in memory.

    Raises:
        ThreadError: If one of `thread_ids` does not exist, or if the database cannot list its
            threads.
        OptionError: If an option has an invalid value, or if the checkpointer has only the other
            form, synchronous or asynchronous.

    Examples:
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
    target: Any = server_of(saver) or saver
    if not isinstance(target, BaseCheckpointSaver):
        raise OptionError(
            f"{saver!r:.200} is a {type(saver).__name__}: expected a checkpointer, such as a "
            f"SqliteSaver or the `checkpointer` of a graph."
        )
    options = RepairOptions(repairer=Repairer(messages_key=messages_key, recover="required"))
    if include is not None and not callable(include):
        raise OptionError(f"include={include!r:.200}: expected a function of a thread id.")
    if since is not None:
        if not isinstance(since, datetime):
            raise OptionError(f"since={since!r:.200}: expected a datetime.")
        since = since if since.tzinfo else since.replace(tzinfo=UTC)
    ids = None if thread_ids is None else _checked_ids(thread_ids)
    return _reports(_Scan(target, options, since), ids, include)


ascan_threads = asynchronous_iterator(scan_threads)
"""Report on threads as `scan_threads` does, over an asynchronous checkpointer or client."""


def _checked_ids(thread_ids: Iterable[str]) -> Sequence[str]:
    """The ids of the chosen threads, each once, in the order of a scan."""
    ids = None
    if isinstance(thread_ids, Iterable) and not isinstance(thread_ids, str | bytes):
        ids = list(thread_ids)
    if ids is None or not all(isinstance(each, str) for each in ids):
        raise OptionError(
            f"thread_ids={thread_ids!r:.200}: expected the ids of threads, for one a list of one."
        )
    return sorted(set(ids))


# --- the keys ----------------------------------------------------------------------------


def _reports(
    scan: _Scan, ids: Sequence[str] | None, include: Callable[[str], bool] | None
) -> IOIterator[ThreadReport]:
    yield scan.list_keys(ids)
    for key in scan.keys:
        is_chosen = include is None or include(key.thread_id)
        if is_chosen and task_of_namespace(key.namespace) is None:
            yield _report(scan, key)


def _keys_of(saver: BaseCheckpointSaver[Any], ids: Sequence[str]) -> IOGenerator[list[Key]]:
    keys: list[Key] = []
    for thread_id in ids:
        found: list[Key] = []
        with suppress(UnicodeEncodeError):  # no database can hold such an id
            found = yield from list_keys(saver, thread_id)
        if not found:
            raise ThreadError(f"There is no thread {thread_id!r}.")
        keys += found
    return keys


# --- one history -------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """What all reports of a scan share.

    Attributes:
        saver: The checkpointer.
        options: The options of a repair.
        since: Report on nothing older; None for all.
        keys: The keys of all histories.
        with_subgraphs: The threads that have namespaces of subgraphs.
    """

    saver: Any
    options: RepairOptions
    since: datetime | None
    keys: Sequence[Key] = ()
    with_subgraphs: Collection[str] = ()

    def list_keys(self, ids: Sequence[str] | None) -> IOGenerator[None]:
        """Find the keys of all histories, or of those of some threads."""
        self.keys = yield from list_keys(self.saver) if ids is None else _keys_of(self.saver, ids)
        self.with_subgraphs = {key.thread_id for key in self.keys if key.namespace}


def _report(scan: _Scan, key: Key) -> IOGenerator[ThreadReport | None]:
    """The report on one history; None if it is older than what is asked for."""
    try:
        saved: CheckpointTuple | None
        saved = yield from call_method(scan.saver, "get_tuple", config_of(key))
        if saved is not None:
            return (yield from _report_on(scan, key, saved))
        if (yield from may_be_empty(scan.saver, key)):
            return ThreadReport(*key, "healthy")
        return ThreadReport(*key, "unreadable", reason="it was deleted during the scan")
    except Exception as error:  # any: what is stored may make every constructor fail
        if is_database_failure(error):
            raise
        return ThreadReport(*key, "unreadable", reason=reason_of(error))


def _report_on(scan: _Scan, key: Key, saved: CheckpointTuple) -> IOGenerator[ThreadReport | None]:
    age = age_of(saved)
    if scan.since and datetime.now(UTC) - timedelta(seconds=age) < scan.since:
        return None
    activity = yield from activity_of(scan.saver, saved)
    history = yield from history_of(scan.saver, saved, scan.options.messages_key)
    report = ThreadReport(
        *key,
        "healthy",
        checkpoint_id=saved.checkpoint["id"],
        age=age,
        messages=None if history is None else len(history),
        repaired=is_marked(saved),
    )
    reading = _read(history or [], leaves_open=activity is not None)
    defects = patch_reading(reading).changes if reading else ()
    if activity == "waiting":
        return replace(
            report, status="paused", defects=defects, asks=tuple(interrupts_of(saved).values())
        )
    if activity and not defects:
        return report
    try:
        patch = yield from _patch(scan, saved, history or [], reading)
    except EvidenceError as error:
        cause = error.__cause__ or error
        reason = f"its older checkpoints cannot be read: {reason_of(cause)}"
        report = replace(report, reason=reason)
        patch = patch_reading(replace(reading, leaves_open=False)) if reading else None
    if patch is None or not changes_history(patch):
        return report
    defects = (*(c for c in patch.changes if c.defect == "abandoned"), *defects)
    return replace(report, status="damaged", defects=defects, patch=patch)


def _patch(
    scan: _Scan,
    saved: CheckpointTuple,
    history: list[BaseMessage],
    reading: Reading | None,
) -> IOGenerator[Patch | None]:
    """The repair of a history; None if there is none."""
    saver, options = scan.saver, scan.options
    if reading is None:
        return None
    return (yield from plan_repair(saver, saved.config, history, options)).patch


def _read(history: list[BaseMessage], *, leaves_open: bool) -> Reading | None:
    """A history that a repair may change: it has a defect, or a placeholder to search for."""
    reading = read_if_damaged(history, leaves_open=leaves_open)
    if reading is None and any(m.additional_kwargs and is_placeholder(m) for m in history):
        return read_history(history, leaves_open=leaves_open)
    return reading
