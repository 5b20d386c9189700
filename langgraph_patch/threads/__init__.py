"""Threads that lie in a database: which are broken, and how they are mended.

Laws:

1. A scan only reads. It needs no code of the application, and one broken row never stops it.
2. A repair is written through the application's own graph, so that reducers and types are
   right; it is rehearsed and checked first, and read back after.
3. A live pause is never touched, unless the caller abandons it.
4. Nothing is lost: no message, no answered call, nothing that another process writes at the
   same time. The checkpoint before the repair stays, as its parent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, call_method, run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.history.placeholders import Language, Placeholder
from langgraph_patch.threads.checkpoint_state import id_of
from langgraph_patch.threads.options import OnPause, RepairOptions, check_kind
from langgraph_patch.threads.repair import Repairing
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.scan import Scan
from langgraph_patch.threads.stores.select import Key, Shard, ask_source, source_of
from langgraph_patch.threads.target import saver_of

__all__ = [
    "Shard",
    "ThreadRepair",
    "ThreadReport",
    "arepair_thread",
    "ascan_threads",
    "aundo_repair",
    "repair_thread",
    "scan_threads",
    "undo_repair",
]

MIN_AGE = 60.0
"""How old a thread's newest checkpoint must be, in seconds, to be repaired unforced."""


# --- scanning ----------------------------------------------------------------------------


def scan_threads(
    saver: BaseCheckpointSaver[Any],
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    after: str = "",
    shard: Shard | None = None,
) -> Iterator[ThreadReport]:
    """Report on every thread of a checkpointer, and on every lasting namespace in it.

    A namespace that belongs to one run of a node (`node:<task id>`) is never read again once
    that run is over, so it is reported only while it waits for a human.

    Args:
        saver: The checkpointer. It is only read.
        messages_key: The state key of the history.
        thread_ids: The threads to look at. Default: all.
        after: Where to begin: with those of them that sort after this one. Default: all.
        shard: Which part of them to look at. Default: all.

    Yields:
        A report for each, sorted by thread and namespace. Only the reports that the caller
        keeps are held in memory.

    Raises:
        ThreadError: If there is no such thread, or no keys can be read at all.
        OptionError: If an option cannot be meant, or `saver` is no checkpointer, or one that is
            used in an event loop (`ascan_threads`).

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
    return _reports(Scan(**locals()))


def _reports(scan: Scan) -> Iterator[ThreadReport]:
    for page in scan.pages():
        for key in run_sync(page):
            report = run_sync(scan.look(key))
            if report is not None:
                yield report


def ascan_threads(
    saver: BaseCheckpointSaver[Any],
    *,
    messages_key: str = "messages",
    thread_ids: Iterable[str] | None = None,
    after: str = "",
    shard: Shard | None = None,
) -> AsyncIterator[ThreadReport]:
    """As `scan_threads`, for a checkpointer that is read asynchronously."""
    return _areports(Scan(**locals()))


async def _areports(scan: Scan) -> AsyncIterator[ThreadReport]:
    for page in scan.pages():
        for key in await run_async(page):
            report = await run_async(scan.look(key))
            if report is not None:
                yield report


# --- repairing ---------------------------------------------------------------------------


def repair_thread(
    graph: Any,
    config: RunnableConfig,
    *,
    on_pause: OnPause = "keep",
    min_age: float = MIN_AGE,
    force: bool = False,
    dry_run: bool = False,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> ThreadRepair:
    """Mend one thread, so that its next message goes through.

    Args:
        graph: The compiled graph that the application runs, patched or not.
        config: Names the thread (`thread_id`) and, if it is not the root graph's history that
            is damaged, the namespace (`checkpoint_ns`). With a `checkpoint_id`, nothing is done
            unless that is the newest checkpoint.
        on_pause: What to do with a thread that waits for a human: `"keep"` it as it is, or
            `"abandon"` the pause: what finished beside it is kept, what waited gets a
            placeholder that says so. Default: `"keep"`.
        min_age: How many seconds old the newest checkpoint must be. A younger thread may have
            a tool running. Default: 60.
        force: Whether a younger thread is repaired too. Default: False.
        dry_run: Whether to stop before anything is written. Default: False.
        placeholder: As for `PatchNode`.
        language: As for `PatchNode`.
        messages_key: As for `PatchNode`.
        recover: As for `PatchNode`.
        replace_foreign: As for `PatchNode`.
        checkpointer: The checkpointer that holds the thread. Default: the graph's.

    Returns:
        What was done, or why nothing was.

    Raises:
        ThreadError: If there is no such thread.
        GraphError: If `graph` is no compiled graph, or cannot hold such a history.
        OptionError: If an option is none of the values that it may have.
        EvidenceError: If the checkpointer failed while it was asked what had happened.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import repair_thread
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> _ = graph.invoke({"messages": []}, config)
        >>> print(repair_thread(graph, config, min_age=0))
        '1': repaired - inserted 'wire' 'c1' (unknown)
        >>> [m.type for m in graph.get_state(config).values["messages"]]
        ['ai', 'tool', 'human']
    """
    return run_sync(Repairing(graph, config, _options(locals())).run())


async def arepair_thread(
    graph: Any,
    config: RunnableConfig,
    *,
    on_pause: OnPause = "keep",
    min_age: float = MIN_AGE,
    force: bool = False,
    dry_run: bool = False,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> ThreadRepair:
    """As `repair_thread`, for a checkpointer that is used asynchronously."""
    return await run_async(Repairing(graph, config, _options(locals())).run())


def _options(arguments: dict[str, Any]) -> RepairOptions:
    return RepairOptions(**{k: v for k, v in arguments.items() if k not in ("graph", "config")})


# --- undoing -----------------------------------------------------------------------------


def undo_repair(
    graph: Any, repair: ThreadRepair, *, checkpointer: BaseCheckpointSaver[Any] | None = None
) -> None:
    """Take a repair back: the thread is again as it was, its pause included.

    The checkpoint that the repair wrote is deleted. Do not undo while a run is going on.

    Args:
        graph: The graph through which the thread was repaired.
        repair: What `repair_thread` returned. From what `to_dict()` or the command line's JSON
            said, `ThreadRepair(thread_id, namespace, "repaired", before=..., after=...)` is
            enough.
        checkpointer: The checkpointer that holds the thread. Default: the graph's.

    Raises:
        ThreadError: If the repair wrote nothing or is undone already, if the thread has moved on
            since or is gone, or if the checkpointer is none that can delete single checkpoints
            (SQLite, PostgreSQL and memory can).
        OptionError: If `repair` is no `ThreadRepair`.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import repair_thread, undo_repair
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> _ = graph.invoke({"messages": []}, config)
        >>> repair = repair_thread(graph, config, min_age=0)
        >>> undo_repair(graph, repair)
        >>> [m.type for m in graph.get_state(config).values["messages"]]
        ['ai', 'human']
    """
    run_sync(_undo(saver_of(graph, {}, checkpointer), repair))


async def aundo_repair(
    graph: Any, repair: ThreadRepair, *, checkpointer: BaseCheckpointSaver[Any] | None = None
) -> None:
    """As `undo_repair`, for a checkpointer that is used asynchronously."""
    await run_async(_undo(saver_of(graph, {}, checkpointer), repair))


def _undo(saver: BaseCheckpointSaver[Any], repair: ThreadRepair) -> IOGenerator[None]:
    check_kind("repair", repair, ThreadRepair, "what repair_thread returned")
    if repair.after is None:
        raise ThreadError(
            f"The repair of thread {repair.thread_id!r} wrote nothing ({repair.outcome}): "
            f"there is nothing to undo."
        )
    key = Key(repair.thread_id, repair.namespace)
    if not (yield from ask_source(source_of(saver), "forget", key, repair.after)):
        place = {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}
        newest = yield from call_method(saver, "get_tuple", {"configurable": place})
        raise ThreadError(_why_not(repair, None if newest is None else id_of(newest)))


def _why_not(repair: ThreadRepair, newest: str | None) -> str:
    """Why a repair cannot be undone."""
    if newest is None:
        return f"There is no thread {repair.thread_id!r} any more: there is nothing to undo."
    if newest == repair.before:
        return f"The repair of thread {repair.thread_id!r} has been undone already."
    return (
        f"Thread {repair.thread_id!r} has moved on from checkpoint {repair.after}: the repair "
        f"stays. The history before it is checkpoint {repair.before}."
    )
