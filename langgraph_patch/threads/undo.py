"""Undo a repair: delete the one checkpoint that it wrote."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, call_method, run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.keys import Key, delete_checkpoint
from langgraph_patch.threads.options import check_kind
from langgraph_patch.threads.reports import ThreadRepair
from langgraph_patch.threads.server import server_of
from langgraph_patch.threads.server_undo import undo_on_server
from langgraph_patch.threads.target import find_checkpointer
from langgraph_patch.threads.unwritten import gone_error, not_undone_error


def undo_repair(
    graph: Any, repair: ThreadRepair, *, checkpointer: BaseCheckpointSaver[Any] | None = None
) -> None:
    """Undo a repair, so that the thread is as it was before, with its pause if it had one.

    The checkpoint that the repair wrote is deleted. A LangGraph Server deletes none, so there a
    copy of the checkpoint before the repair becomes the newest; what finished tasks had written is
    applied to it, and a pause that was abandoned cannot come back. Do not undo a repair while the
    thread runs.

    Args:
        graph: The compiled graph through which the thread was repaired, or the client of the
            LangGraph Server. None if `checkpointer` is passed.
        repair: The result of `repair_thread`. `ThreadRepair.from_dict` makes it again from its
            `to_dict()` or from the JSON that `langgraph-patch repair --json` printed.
        checkpointer: The checkpointer that holds the thread. Default: that of the graph.

    Raises:
        ThreadError: If the repair wrote nothing or has been undone, if the thread has changed
            since or is gone, or if the checkpointer cannot delete single checkpoints (those for
            SQLite, PostgreSQL and memory can).
        GraphError: If `graph` is not a compiled graph, or has no checkpointer.
        OptionError: If `repair` is not a `ThreadRepair`, if `checkpointer` is not a checkpointer,
            or if the checkpointer can only be used asynchronously (`aundo_repair`).

    Examples:
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
    run_sync(_undo(graph, repair, checkpointer))


async def aundo_repair(
    graph: Any, repair: ThreadRepair, *, checkpointer: BaseCheckpointSaver[Any] | None = None
) -> None:
    """Undo a repair as `undo_repair` does, over an asynchronous checkpointer.

    Args:
        graph: The compiled graph through which the thread was repaired, or the client of the
            LangGraph Server. None if `checkpointer` is passed.
        repair: The result of `arepair_thread` or `repair_thread`.
        checkpointer: The checkpointer that holds the thread. Default: that of the graph.

    Raises:
        ThreadError: If there is nothing to undo, if the thread has changed since or is gone, or
            if the checkpointer cannot delete single checkpoints.
        GraphError: If `graph` is not a compiled graph, or has no checkpointer.
        OptionError: If `repair` is not a `ThreadRepair`, if `checkpointer` is not a checkpointer,
            or if the checkpointer can only be used synchronously (`undo_repair`).

    Examples:
        >>> import asyncio
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import ThreadRepair, aundo_repair
        >>> builder = StateGraph(MessagesState).add_node("model", lambda state: {})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> asyncio.run(aundo_repair(graph, ThreadRepair("1", "", "healthy")))
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: The repair of thread '1' wrote nothing (healthy): \
there is nothing to undo.
    """
    await run_async(_undo(graph, repair, checkpointer))


def _undo(
    graph: Any, repair: ThreadRepair, checkpointer: BaseCheckpointSaver[Any] | None
) -> IOGenerator[None]:
    saver: Any = server_of(graph) or (checkpointer if graph is None else None)
    if saver is None:
        saver = find_checkpointer(graph, {}, checkpointer)
    check_kind("repair", repair, ThreadRepair, "what repair_thread returned")
    if repair.after is None:
        raise ThreadError(
            f"The repair of thread {repair.thread_id!r} wrote nothing ({repair.outcome}): "
            f"there is nothing to undo."
        )
    server = server_of(saver)
    if server is not None:
        yield from undo_on_server(server, repair)
        return
    key = Key(repair.thread_id, repair.namespace)
    if not (yield from delete_checkpoint(saver, key, repair.after)):
        config = {"configurable": {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}}
        newest = yield from call_method(saver, "get_tuple", config)
        if newest is None:
            raise gone_error(repair)
        raise not_undone_error(repair, is_undone=newest.checkpoint["id"] == repair.before)
