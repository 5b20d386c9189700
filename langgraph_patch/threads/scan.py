"""Report on the stored threads of a checkpointer, without the code of the application.

A scan only reads. A thread that cannot be read is a report, so it never stops a scan. A failed
database does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.options import check_kind, sorted_ids
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.stores.base import Key, Shard, Store, last_key_of
from langgraph_patch.threads.stores.select import server_of, store_of
from langgraph_patch.threads.stores.server_api import ServerClient
from langgraph_patch.threads.thread_report import ThreadReader


def scan_threads(
    saver: BaseCheckpointSaver[Any] | ServerClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    after: str = "",
    shard: Shard | None = None,
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
        after: Skip the threads up to and including the one with this id, to continue a scan.
            Default: none is skipped.
        shard: Report only on this part of the threads, so that several processes can share a
            scan, such as `Shard(1, 8)`. Default: all parts.
        include: A function that takes the id of a thread and returns whether to report on it.
            Other threads are not read. Default: all threads.
        since: Report only on histories that were written to at this time or later. A time without
            a zone is UTC. Default: all times.

    Yields:
        The reports, by thread in the order of the database, and for each thread by namespace.
        That is Python's order of strings, but in PostgreSQL the order of its collation. Each
        report is made when it is asked for, and none is kept in memory.

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
    return _reports(_scan(saver, messages_key, thread_ids, after, shard, include, since))


def ascan_threads(
    saver: BaseCheckpointSaver[Any] | ServerClient,
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    after: str = "",
    shard: Shard | None = None,
    include: Callable[[str], bool] | None = None,
    since: datetime | None = None,
) -> AsyncIterator[ThreadReport]:
    """Report on threads as `scan_threads` does, over an asynchronous checkpointer.

    Args:
        saver: The checkpointer, or the client of a LangGraph Server (`langgraph_sdk.get_client`),
            or a `LangGraphServer`. It is only read.
        messages_key: The state key of the history. Default: `"messages"`.
        thread_ids: The ids of the threads to report on. Default: all threads.
        after: Skip the threads up to and including the one with this id. Default: none.
        shard: Report only on this part of the threads. Default: all parts.
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
    return _areports(_scan(saver, messages_key, thread_ids, after, shard, include, since))


# --- one scan ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """What a scan reads, and how far it is.

    Attributes:
        store: Lists the threads.
        shard: The part to report on; None for all.
        chosen: The remaining ids of chosen threads; None for all.
        last: The last key that was listed; None before the first page.
        include: Decides by the id which threads to report on; None for all.
        reader: Reads them.
    """

    store: Store
    shard: Shard | None
    chosen: Iterator[str] | None
    last: Key | None
    include: Callable[[str], bool] | None
    reader: ThreadReader

    def includes(self, thread_id: str) -> bool:
        is_chosen = self.include is None or self.include(thread_id)
        return is_chosen and (self.shard is None or self.shard.has(thread_id))


def _scan(  # noqa: PLR0917 - the options of a scan, in the order of `scan_threads`
    target: BaseCheckpointSaver[Any] | ServerClient,
    messages_key: str,
    thread_ids: Iterable[str] | None,
    after: str,
    shard: Shard | None,
    include: Callable[[str], bool] | None,
    since: datetime | None,
) -> _Scan:
    saver: Any = server_of(target) or target
    check_kind("messages_key", messages_key, str, "a state key")
    check_kind("after", after, str, "the id of a thread")
    if shard is not None:
        check_kind("shard", shard, Shard, "a Shard, such as Shard(1, 8)")
    if include is not None:
        check_kind("include", include, Callable, "a function of a thread id")
    if since is not None:
        check_kind("since", since, datetime, "a datetime")
        since = since if since.tzinfo else since.replace(tzinfo=UTC)
    chosen = None
    if thread_ids is not None:
        chosen = iter([each for each in sorted_ids(thread_ids) if not after or each > after])
    last = last_key_of(after) if after else None
    reader = ThreadReader(saver, messages_key, since)
    return _Scan(store_of(saver), shard, chosen, last, include, reader)


def _reports(scan: _Scan) -> Iterator[ThreadReport]:
    while (keys := run_sync(_next_keys(scan))) is not None:
        for key in keys:
            report = run_sync(scan.reader.report(key))
            if report is not None:
                yield report


async def _areports(scan: _Scan) -> AsyncIterator[ThreadReport]:
    while (keys := await run_async(_next_keys(scan))) is not None:
        for key in keys:
            report = await run_async(scan.reader.report(key))
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
