"""Undo a repair on LangGraph Server, which cannot delete a checkpoint.

A copy of the checkpoint before the repair becomes the newest. The repair stays in the history.
"""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.checkpoint_state import starts_tasks
from langgraph_patch.threads.reports import ThreadRepair
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.unwritten import gone_error, not_undone_error

_ATTEMPTS = 4
"""How often tasks are dropped: what a finished task wrote may start others."""


def undo_on_server(server: LangGraphServer, repair: ThreadRepair) -> IOGenerator[None]:
    """Undo a repair.

    Raises:
        ThreadError: If the thread has changed since or is gone, or if it waited for a human
            before the repair: the server does not copy the pause.
    """
    config: RunnableConfig = {
        "configurable": {"thread_id": repair.thread_id, "checkpoint_ns": repair.namespace}
    }
    newest: CheckpointTuple | None = yield from call_method(server, "get_tuple", config)
    if newest is None:
        raise gone_error(repair)
    exact = {**config["configurable"], "checkpoint_id": repair.before}
    before = yield from call_method(server, "get_tuple", RunnableConfig(configurable=exact))
    if before is None or newest.checkpoint["id"] != repair.after:
        is_undone = before is not None and _is_undone(newest, before)
        raise not_undone_error(repair, is_undone=is_undone)
    written = {channel for _, channel, _ in before.pending_writes or ()}
    if INTERRUPT in written:
        raise ThreadError(
            f"Thread {repair.thread_id!r} waited for a human before its repair, and LangGraph "
            f"Server cannot make that checkpoint the newest again: answer it with a run with "
            f"checkpoint_id={repair.before!r}."
        )
    if written <= {ERROR}:
        yield from restore(server, before)
        return
    # A copy would lose what finished tasks wrote, and run them again. So it is applied.
    yield from apply_and_drop_tasks(server, before, before.checkpoint["id"])


def restore(server: LangGraphServer, saved: CheckpointTuple) -> IOGenerator[None]:
    """Make a copy of a checkpoint the newest one."""
    names = saved.config["configurable"]
    yield from server.request(
        "threads.update_state",
        names["thread_id"],
        None,
        as_node="__copy__",
        checkpoint_id=names["checkpoint_id"],
    )


def apply_and_drop_tasks(
    server: LangGraphServer, base: CheckpointTuple, checkpoint_id: str | None = None
) -> IOGenerator[CheckpointTuple]:
    """Apply what finished tasks wrote, drop the other tasks, and return the new checkpoint.

    Args:
        server: The server.
        base: A checkpoint of the thread.
        checkpoint_id: The checkpoint to begin with. Default: the newest.

    Raises:
        ThreadError: If the graph starts new tasks again and again.
    """
    for _ in range(_ATTEMPTS):
        saved = yield from end_superstep(server, base, checkpoint_id)
        checkpoint_id = None
        if not starts_tasks(saved):
            return saved
    raise ThreadError("its graph starts new tasks whenever tasks are dropped")


def end_superstep(
    server: LangGraphServer, base: CheckpointTuple, checkpoint_id: str | None = None
) -> IOGenerator[CheckpointTuple]:
    """Write a checkpoint in which the tasks of the superstep have ended, and return it."""
    thread_id = base.config["configurable"]["thread_id"]
    yield from server.request(
        "threads.update_state", thread_id, None, as_node="__end__", checkpoint_id=checkpoint_id
    )
    return (yield from newest_checkpoint(server, base))


def newest_checkpoint(
    server: LangGraphServer, base: CheckpointTuple
) -> IOGenerator[CheckpointTuple]:
    """The newest checkpoint of the thread of `base`.

    Raises:
        ThreadError: If the thread was deleted.
    """
    thread_id = base.config["configurable"]["thread_id"]
    newest: RunnableConfig = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    saved: CheckpointTuple | None = yield from call_method(server, "get_tuple", newest)
    if saved is None:
        raise ThreadError(f"Thread {thread_id!r} was deleted meanwhile.")
    return saved


def _is_undone(newest: CheckpointTuple, before: CheckpointTuple) -> bool:
    is_copy = newest.metadata.get("source") == "fork"
    return (is_copy and newest.parent_config == before.parent_config) or (
        newest.parent_config == before.config
    )
