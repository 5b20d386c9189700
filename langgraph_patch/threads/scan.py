"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.keys import Key, check_saver, list_keys
from langgraph_patch.threads.options import check_kind, sorted_ids
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.server import server_of
from langgraph_patch.threads.server_client import ServerClient
from langgraph_patch.threads.thread_report import ThreadReader


def scan_threads(
    saver: BaseCheckpointSaver[Any] | ServerClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
) -> Iterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every namespace in it that later runs read.

    A namespace of one run of a node (`node:<task id>`) is not read again when that run is over.
    It is reported only while it waits for a human.

    Args:
        saver: The checkpointer. It is only read. For the threads of a LangGraph Server: the
            client (`langgraph_sdk.get_sync_client`), or a `LangGraphServer`, which filters them.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on. Default: all threads.
        include: A function that takes the id of a thread and returns whether to report on it.
            Other threads are not read. Default: all threads.
        since: Report only on histories that were written to at this time or later. A time without
            a zone is UTC. Default: all times.

    Yields:
        The reports, sorted by thread and namespace. Each report is made when it is asked for,
        and none is kept in memory.

    Raises:
        ThreadError: If one of `thread_ids` does not exist, or if the database cannot list its
            threads.
        OptionError: If an option has an invalid value, or if the checkpointer can only be used
            asynchronously (`ascan_threads`).

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
    return _reports(_scan(saver, messages_key, thread_ids, include, since))


def ascan_threads(
    saver: BaseCheckpointSaver[Any] | ServerClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
) -> AsyncIterator[ThreadReport]:
    """Report on threads as `scan_threads` does, over an asynchronous checkpointer.

    Args:
        saver: The checkpointer, or the client of a LangGraph Server (`langgraph_sdk.get_client`),
            or a `LangGraphServer`. It is only read.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on. Default: all threads.
        include: Takes the id of a thread and returns whether to report on it. Default: all.
        since: Report only on histories that were written to at this time or later. Default: all.

    Yields:
        The reports, sorted by thread and namespace.

    Raises:
        ThreadError: If one of `thread_ids` does not exist, or if the database cannot list its
            threads.
        OptionError: If an option has an invalid value, or if the checkpointer can only be used
            synchronously (`scan_threads`).

    Examples:
        >>> import asyncio
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch.threads import ascan_threads
        >>> async def count(saver):
        ...     return len([report async for report in ascan_threads(saver)])
        >>> asyncio.run(count(InMemorySaver()))
        0
    """
    return _areports(_scan(saver, messages_key, thread_ids, include, since))


# --- one scan ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """What a scan reads, and how far it is.

    Attributes:
        ids: The remaining ids of chosen threads; one None for all threads.
        include: Decides by the id which threads to report on; None for all.
        reader: Reads them.
    """

    ids: Iterator[str | None]
    include: Callable[[str], bool] | None
    reader: ThreadReader

    def includes(self, thread_id: str) -> bool:
        return self.include is None or self.include(thread_id)


def _scan(
    target: BaseCheckpointSaver[Any] | ServerClient,
    messages_key: str,
    thread_ids: Iterable[str] | None,
    include: Callable[[str], bool] | None,
    since: datetime | None,
) -> _Scan:
    check_kind("messages_key", messages_key, str, "a state key")
    if include is not None:
        check_kind("include", include, Callable, "a function of a thread id")
    if since is not None:
        check_kind("since", since, datetime, "a datetime")
        since = since if since.tzinfo else since.replace(tzinfo=UTC)
    saver: Any = server_of(target) or target
    check_saver(saver)
    ids = [None] if thread_ids is None else sorted_ids(thread_ids)
    return _Scan(iter(ids), include, ThreadReader(saver, messages_key, since))


def _reports(scan: _Scan) -> Iterator[ThreadReport]:
    for thread_id in scan.ids:
        for key in run_sync(_keys(scan, thread_id)):
            report = run_sync(scan.reader.report(key))
            if report is not None:
                yield report


async def _areports(scan: _Scan) -> AsyncIterator[ThreadReport]:
    for thread_id in scan.ids:
        for key in await run_async(_keys(scan, thread_id)):
            report = await run_async(scan.reader.report(key))
            if report is not None:
                yield report


def _keys(scan: _Scan, thread_id: str | None) -> IOGenerator[list[Key]]:
    """The keys to report on: of one thread, or of all that are included."""
    if thread_id is None:
        keys = yield from list_keys(scan.reader.saver)
        return [key for key in keys if scan.includes(key.thread_id)]
    if not scan.includes(thread_id):
        return []
    found: list[Key] = []
    with suppress(UnicodeEncodeError):  # no database can hold such an id
        found = yield from list_keys(scan.reader.saver, thread_id)
    if not found:
        raise ThreadError(f"There is no thread {thread_id!r}.")
    return found
