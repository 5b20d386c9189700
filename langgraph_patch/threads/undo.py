"""Undo the last repair of stored threads: find it by its mark, and delete its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.read import StoredHistory
from langgraph_patch.threads.repair import maybe_written
from langgraph_patch.threads.reports import ThreadRepair
from langgraph_patch.threads.selection import Selection, checked_address, read_each
from langgraph_patch.threads.stores import checked_saver, store_of


def undo_repair(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> str:
    """Undo the last repair of a thread, so that it is as it was before, with its pause if any.

    The newest checkpoint is deleted if a repair wrote it, and no other ever is. Do not undo a
    repair while the thread runs.

    Args:
        saver: The checkpointer that holds the thread: one of LangGraph for SQLite or PostgreSQL,
            synchronous.
        config: Names the thread (`thread_id`) and, for a subgraph that keeps its own history, the
            namespace (`checkpoint_ns`). With a `checkpoint_id`, nothing is undone unless that
            checkpoint is the newest.

    Returns:
        The id of the checkpoint before the repair.

    Raises:
        ThreadError: If there is no such thread, if a repair did not write its newest checkpoint,
            or if the checkpointer cannot delete single checkpoints, as one in memory.
        GraphError: If a graph was passed instead of its checkpointer.
        OptionError: If `saver` is no synchronous checkpointer.
        Exception: What the checkpointer raises. If the thread may have been written before that,
            the error has a note that says so.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.sqlite import SqliteSaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch import repair_thread, undo_repair
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> with SqliteSaver.from_conn_string(":memory:") as saver:
        ...     graph = builder.set_entry_point("model").compile(checkpointer=saver)
        ...     _ = graph.invoke({"messages": []}, config)
        ...     repair = repair_thread(saver, config, min_age=0)
        ...     undo_repair(saver, config) == repair.before
        ...     [m.type for m in graph.get_state(config).values["messages"]]
        True
        ['ai', 'human']
    """
    saver, address = checked_saver(saver, write=True), checked_address(config)
    newest = StoredHistory.newest(saver, address)
    written = newest.checkpoint_id
    if reason := newest.differs_from(address):
        raise _nothing_to_undo(address.thread_id, reason)
    if not newest.is_repair():
        raise _nothing_to_undo(address.thread_id, f"{_NO_REPAIR} {written}")
    with maybe_written(address, saver):
        is_done = store_of(saver).delete_checkpoint(saver, replace(address, checkpoint_id=written))
    if not is_done:
        raise _nothing_to_undo(address.thread_id, f"it has moved on from checkpoint {written}")
    return newest.parent_id


_NO_REPAIR = "no repair wrote its newest checkpoint"


def _nothing_to_undo(thread_id: str, reason: str) -> ThreadError:
    return ThreadError(f"Thread {thread_id!r} has no repair to undo: {reason}.")


def find_repairs(
    saver: BaseCheckpointSaver[Any], selection: Selection
) -> Iterator[tuple[Address, ThreadRepair]]:
    """Find the repairs that can be undone. Nothing is searched in the histories.

    Args:
        saver: The checkpointer.
        selection: Which threads, and since when the repairs were written.

    Returns:
        The checkpoint of each repair, and what its undo would do. A thread that cannot be read,
        and one that was named and has no repair, is `refused` with the reason.

    Raises:
        ThreadError: If a named thread does not exist.
    """
    saver = checked_saver(saver, write=True)

    def planned(address: Address, load: storage.Loader) -> tuple[Address, ThreadRepair] | None:
        newest = StoredHistory.loaded(saver, load) or StoredHistory.newest(saver, address)
        names = address.thread_id, address.namespace
        if newest.is_repair():
            at = replace(address, checkpoint_id=newest.checkpoint_id)
            plan = ThreadRepair(*names, "planned", before=newest.parent_id)
            return (at, plan) if selection.has_time(newest.written()) else None
        if selection.thread_ids is None or address.namespace:
            return None
        return refused(address, str(_nothing_to_undo(address.thread_id, _NO_REPAIR)))

    def refused(address: Address, reason: str) -> tuple[Address, ThreadRepair]:
        return address, ThreadRepair(address.thread_id, address.namespace, "refused", reason)

    return read_each(saver, selection, planned, refused)
