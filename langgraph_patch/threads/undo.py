"""Undo the last repair of stored threads: find it by its mark, and delete its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch.errors import ThreadError, is_store_failure
from langgraph_patch.evidence.address import Address
from langgraph_patch.threads.listing import (
    Selection,
    delete_checkpoint,
    list_addresses,
    list_marked,
)
from langgraph_patch.threads.repair import maybe_written
from langgraph_patch.threads.reports import ThreadRepair
from langgraph_patch.threads.stored import (
    address_of,
    checked_saver,
    is_repair,
    other_checkpoint,
    read_newest,
    reason_of,
    written_at,
)


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
        GraphError: If a graph was passed in the place of its checkpointer.
        OptionError: If `saver` is no synchronous checkpointer.
        Exception: What the checkpointer raises. If the thread may have been written before that,
            the error has a note that says so.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.sqlite import SqliteSaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import repair_thread, undo_repair
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
    saver = checked_saver(saver, server=False)
    address = address_of(config)
    saved = read_newest(saver, address)
    written = saved.checkpoint["id"]
    if reason := other_checkpoint(address, written):
        raise _nothing_to_undo(address, reason)
    if not is_repair(saved):
        raise _nothing_to_undo(address, f"no repair wrote its newest checkpoint {written}")
    with maybe_written(address):
        is_done = delete_checkpoint(saver, replace(address, checkpoint_id=written))
    if not is_done:
        raise _nothing_to_undo(address, f"it has moved on from checkpoint {written}")
    return _parent_of(saved)


def find_repairs(
    saver: BaseCheckpointSaver[Any], selection: Selection
) -> Iterator[tuple[Address, ThreadRepair]]:
    """Find the repairs that can be undone. Nothing is searched in the histories.

    Args:
        saver: The checkpointer.
        selection: Which threads, and since when the repairs were written.

    Yields:
        The checkpoint of each repair, and what its undo would do. A thread that cannot be read,
        and one that was named and has no repair, is `refused` with the reason.

    Raises:
        ThreadError: If a named thread does not exist, or if the checkpointer cannot delete single
            checkpoints.
    """
    saver = checked_saver(saver, server=False)
    marked = list_marked(saver)
    named = list_addresses(saver, selection) if selection.thread_ids is not None else marked
    roots = {each.thread_id for each in named} - {each.thread_id for each in marked}
    for address in named:
        names = address.thread_id, address.namespace
        if selection.include is not None and not selection.include(address.thread_id):
            continue
        if address not in marked:
            if address.thread_id in roots and not address.namespace:
                reason = str(_nothing_to_undo(address, "no repair wrote its newest checkpoint"))
                yield address, ThreadRepair(*names, "refused", reason)
            continue
        try:
            saved = read_newest(saver, address)
            is_chosen = is_repair(saved) and selection.has_time(written_at(saved))
        except Exception as error:  # any: what is stored may make every constructor fail
            if is_store_failure(error):
                raise
            yield address, ThreadRepair(*names, "refused", reason_of(error))
            continue
        if is_chosen:
            found = replace(address, checkpoint_id=saved.checkpoint["id"])
            yield found, ThreadRepair(*names, "planned", before=_parent_of(saved))


def _parent_of(saved: CheckpointTuple) -> str:
    parent: Any = saved.parent_config  # a repair has one
    return Address.of(parent).checkpoint_id or ""


def _nothing_to_undo(address: Address, reason: str) -> ThreadError:
    return ThreadError(f"Thread {address.thread_id!r} has no repair to undo: {reason}.")
