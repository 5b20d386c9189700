"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph_sdk.client import SyncLangGraphClient

from langgraph_patch._langgraph_storage import task_of_namespace
from langgraph_patch.errors import EvidenceError, is_store_failure
from langgraph_patch.evidence.address import Address
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import changes_history, patch_reading, read_if_damaged
from langgraph_patch.history.placeholders import is_foreign_placeholder, is_placeholder
from langgraph_patch.threads.listing import Selection, list_addresses
from langgraph_patch.threads.repair import plan_repair
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.stored import (
    activity_of,
    age_of,
    checked_saver,
    history_of,
    interrupts_of,
    is_repair,
    reason_of,
    written_at,
)


def scan_threads(
    saver: BaseCheckpointSaver[Any] | SyncLangGraphClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
) -> Iterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every namespace in it that later runs read.

    A namespace of one run of a node (`node:<task id>`) is left out: no later run reads it. What an
    agent in it asks is in the report on the graph above.

    A scan makes one query for each history. Older checkpoints are read only if one is damaged.

    Args:
        saver: The checkpointer, synchronous. It is only read. For the threads of a LangGraph
            Server: the client (`langgraph_sdk.get_sync_client`), or a `LangGraphServer`, which
            filters them.
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
        GraphError: If a graph was passed in the place of its checkpointer.
        OptionError: If an option has an invalid value, or the checkpointer is asynchronous.
        Exception: What a database or a server raises that fails.

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
    selection = Selection(thread_ids, include, since)
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
    repairer = Repairer(messages_key=messages_key, recover="required")
    checked = checked_saver(saver, server=True)
    return _reports(checked, selection, repairer, search)


def _reports(
    saver: BaseCheckpointSaver[Any],
    selection: Selection,
    repairer: Repairer,
    search: bool,  # noqa: FBT001 - of this module
) -> Iterator[ThreadReport]:
    for address in list_addresses(saver, selection):
        if task_of_namespace(address.namespace) is not None:
            continue
        report = _report(saver, address, selection, repairer, search=search)
        if report is not None:
            yield report


# --- one history -------------------------------------------------------------------------


def _report(
    saver: BaseCheckpointSaver[Any],
    address: Address,
    selection: Selection,
    repairer: Repairer,
    *,
    search: bool,
) -> ThreadReport | None:
    """The report on one history; None if it is older than what is asked for."""
    names = address.thread_id, address.namespace
    try:
        saved = saver.get_tuple(address.config)
        if saved is not None:
            if selection.since and not selection.has_time(written_at(saved)):
                return None
            return _report_on(saver, address, saved, repairer, search=search)
        if isinstance(saver, LangGraphServer) and saver.exists(address.thread_id):
            return ThreadReport(*names, "healthy")  # it has never run
        return ThreadReport(*names, "unreadable", reason="it was deleted during the scan")
    except Exception as error:  # any: what is stored may make every constructor fail
        if is_store_failure(error):
            raise
        return ThreadReport(*names, "unreadable", reason=reason_of(error))


def _report_on(
    saver: BaseCheckpointSaver[Any],
    address: Address,
    saved: CheckpointTuple,
    repairer: Repairer,
    *,
    search: bool,
) -> ThreadReport:
    activity = activity_of(saver, saved)
    history = history_of(saver, saved, repairer.messages_key)
    written = written_at(saved)
    report = ThreadReport(
        address.thread_id,
        address.namespace,
        "healthy",
        checkpoint_id=saved.checkpoint["id"],
        age=age_of(written),
        written=written.isoformat(timespec="seconds") if written else None,
        messages=None if history is None else len(history),
        repaired=is_repair(saved),
    )
    reading = _read(history or [], leaves_open=activity is not None)
    defects = patch_reading(reading).changes if reading else ()
    if activity == "waiting":
        return replace(
            report, status="paused", defects=defects, asks=tuple(interrupts_of(saved).values())
        )
    if reading is None or (activity and not defects):
        return report
    if not search:
        return replace(report, status="damaged", defects=defects)
    try:
        patch = plan_repair(saver, saved.config, history or [], repairer)
    except EvidenceError as error:
        if is_store_failure(error):
            raise
        reason = f"its older checkpoints cannot be read: {reason_of(error.__cause__ or error)}"
        report = replace(report, reason=reason)
        patch = patch_reading(replace(reading, leaves_open=False))
    if not changes_history(patch):
        return report
    return replace(report, status="damaged", defects=defects, patch=patch)


def _read(history: list[BaseMessage], *, leaves_open: bool) -> Reading | None:
    """A history that a repair may change: it has a defect, or a placeholder to search for."""
    reading = read_if_damaged(history, leaves_open=leaves_open)
    results = (message for message in history if isinstance(message, ToolMessage))
    if reading is None and any(is_placeholder(m) or is_foreign_placeholder(m) for m in results):
        return read_history(history, leaves_open=leaves_open)
    return reading
