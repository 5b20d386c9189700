"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.claims import read_claims
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.patch import changes_history, patch_messages, read_if_damaged
from langgraph_patch.history.placeholders import is_searched
from langgraph_patch.history.reading import Reading, read_history
from langgraph_patch.history.repair import patch_reading
from langgraph_patch.repairing.repairer import Repairer
from langgraph_patch.threads.read import StoredHistory, age_of
from langgraph_patch.threads.repair import check_safe, plan_repair, stage
from langgraph_patch.threads.reports import Stopped, ThreadReport
from langgraph_patch.threads.selection import Selection, read_each, reason_of
from langgraph_patch.threads.stores import check_of_thread, checked_saver, server_of


def scan_threads(
    saver: BaseCheckpointSaver[Any] | SyncLangGraphClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
    shard: tuple[int, int] | None = None,
) -> Iterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every namespace in it that later runs read.

    A namespace of one run of a node (`node:<task id>`) is left out: no later run reads it. What an
    agent in it asks is in the report on the graph above.

    Threads are listed in pages while they are read, in the order of the database: one that appears
    or goes meanwhile may be in the reports or not. PostgreSQL is asked for 64 histories at once,
    of which 64 MB are kept, any other database for one. Older checkpoints are read only if a
    history is damaged, or has a placeholder that may still give way: one that says `unknown`, or is
    marked `look_again`.

    Args:
        saver: The checkpointer, synchronous. It is only read. `open_database` opens the one of a
            file or a URI. For the threads of a LangGraph Server: the client
            (`langgraph_sdk.get_sync_client`).
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on; needed if the checkpointer cannot list its
            threads. Default: all threads.
        include: A function that takes the id of a thread and returns whether to report on it.
            Other threads are not read. Default: all threads.
        since: Report only on histories that were written to at this time or later. A time without
            a zone is UTC. Default: all times.
        shard: Report only on a share of the threads, so that several processes share the work:
            `(3, 16)` is the third of sixteen. A thread is always in the same one. Default: all.

    Yields:
        The reports, by thread, and for each thread by namespace. Each report is made when it is
        asked for, and none is kept in memory.

    Raises:
        ThreadError: If one of `thread_ids` does not exist (on a server it is `unreadable`), or if
            the threads of the checkpointer cannot be listed.
        GraphError: If a graph was passed instead of its checkpointer.
        OptionError: If an option has an invalid value, or the checkpointer is asynchronous.
        Exception: What a database or a server raises that fails, whatever its driver is.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch import scan_threads
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> _ = graph.invoke({"messages": []}, {"configurable": {"thread_id": "1"}})
        >>> [str(report) for report in scan_threads(graph.checkpointer)]
        ["'1': damaged - inserted 'wire' 'c1' (unknown)"]
    """
    selection = Selection(thread_ids, include, since, shard)
    return scan_selected(saver, selection, messages_key=messages_key)


def scan_selected(
    saver: BaseCheckpointSaver[Any] | SyncLangGraphClient,
    selection: Selection,
    *,
    messages_key: str = "messages",
    search: bool = True,
) -> Iterator[ThreadReport]:
    """Report as `scan_threads` does, on the selected threads.

    Args:
        saver: As for `scan_threads`.
        selection: Which threads.
        messages_key: As for `scan_threads`.
        search: Whether to search the older checkpoints of damaged histories. Otherwise a history
            with a defect, or with a placeholder that a search may replace, is reported as damaged
            without a patch. Default: True.
    """
    repairer = Repairer(messages_key=messages_key, recover="required" if search else False)
    checked = checked_saver(saver, write=False)

    def report(address: Address, load: storage.Loader) -> ThreadReport | None:
        stored = StoredHistory.loaded(checked, load, messages_key)
        if stored is None and server_of(checked):  # which would refuse the request
            return ThreadReport(address.thread_id, "", "healthy")  # it has never run
        if stored is None:
            return _unreadable(address, "there is no such thread: deleted, or spelled otherwise")
        if not selection.has_time(stored.written()):
            return None
        return _report(stored, address, repairer)

    return read_each(checked, selection, report, _unreadable)


def _unreadable(address: Address, reason: str) -> ThreadReport:
    return ThreadReport(address.thread_id, address.namespace, "unreadable", reason=reason)


def _report(stored: StoredHistory, address: Address, repairer: Repairer) -> ThreadReport:
    """The report on one history: its status, what is wrong with it and what a repair does.

    Args:
        stored: The history.
        address: Its address, as it was listed.
        repairer: What finds out its status.
    """
    written, found = stored.written(), stored.messages()
    messages, activity = found or [], stored.activity()
    reason = _after_answer(stored)
    if reason or activity == "waiting":
        reason = _started_once(stored, messages) or reason
    report = ThreadReport(
        address.thread_id,
        address.namespace,
        "healthy",
        checkpoint_id=stored.checkpoint_id,
        age=max(0.0, age_of(written)),
        written=written.isoformat(timespec="seconds") if written else None,
        messages=None if found is None else len(found),
        reason=reason,
        repaired=stored.is_repair(),
    )
    reading = _read(messages, leaves_open=activity is not None)
    defects = patch_reading(reading).changes if reading else ()
    if activity == "waiting":
        asks = tuple(stored.interrupts().values())
        return replace(report, status="paused", defects=defects, asks=asks)
    if reading is None or (activity and not defects):
        return report
    patch, is_staged = None, repairer.recover
    if repairer.recover:
        try:
            patch = plan_repair(stored, messages, repairer)
        except EvidenceError as error:
            check_of_thread(error, stored.saver)
            unread = f"its older checkpoints cannot be read: {reason_of(error.__cause__ or error)}"
            report, is_staged = _with_reason(report, unread), False
            patch = patch_messages(messages)
        if not changes_history(patch):
            return report
    report = replace(report, status="damaged", defects=defects, patch=patch)
    if server_of(stored.saver):
        return report
    try:  # what a repair checks too, so that both say the same
        check_safe(stored, "keep")
        if patch and is_staged:
            report = replace(report, patch=stage(stored, patch, repairer)[0])
    except Stopped as stop:
        report = _with_reason(report, stop.reason)
        return replace(report, status="paused") if stop.outcome == "paused" else report
    return report


def _with_reason(report: ThreadReport, reason: str | None) -> ThreadReport:
    """The report with a reason behind those that it has."""
    return replace(report, reason="; ".join(filter(None, (report.reason, reason))))


def _after_answer(stored: StoredHistory) -> str | None:
    """What helps where a task failed behind the answer of a human; None if none did."""
    nodes = sorted({*stored.answered().values()})
    if not nodes:
        return None
    named = " and ".join(map(repr, nodes))
    if stored.interrupts():
        return (
            f"an answer to another question is stored, and {named} failed behind it: each further "
            f"run uses that answer again"
        )
    return (
        f"an answer is stored, and {named} failed behind it: invoke(None) runs it again with that "
        f"answer, and no other answer takes its place; a message goes on without it"
    )


def _started_once(stored: StoredHistory, messages: list[BaseMessage]) -> str | None:
    """What helps where an open call was started, and runs once; None if none was."""
    paired = read_history(messages, leaves_open=True).paired_calls
    calls = [each.call for each in paired if each.stays_open]
    if not calls or server_of(stored.saver):  # whose API shows no records of calls
        return None
    reader = Reader(stored.saver, stored.messages_key, required=True)
    address = Address.of(stored.saved.config)
    found = run_sync(read_claims(reader, address, messages, calls, None))
    writes = stored.saved.pending_writes or ()
    shown = [(c, found[c.key].shown_beside(writes)) for c in calls if c.key in found]
    started = [call for call, finding in shown if finding and finding.result is None]
    if not started:
        return None
    named = " and ".join(f"{call.name!r} {call.id!r}" for call in started)
    return (
        f"{named} runs once and was started: neither an answer nor invoke(None) runs it again; "
        f"if no run is at it, a message goes on"
    )


def _read(messages: list[BaseMessage], *, leaves_open: bool) -> Reading | None:
    """A history that a repair may change: it has a defect, or a placeholder to search for."""
    reading = read_if_damaged(messages, leaves_open=leaves_open)
    if reading is None and any(map(is_searched, messages)):
        return read_history(messages, leaves_open=leaves_open)
    return reading
