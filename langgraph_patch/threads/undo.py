"""Undo the last repair of one stored thread."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._sansio import IOGenerator, asynchronous, synchronous
from langgraph_patch.errors import ThreadError
from langgraph_patch.evidence.tasks import configured_id
from langgraph_patch.threads.keys import Key, delete_checkpoint
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.server_client import ServerClient
from langgraph_patch.threads.server_repair import undo_on_server
from langgraph_patch.threads.stored import is_marked
from langgraph_patch.threads.target import (
    key_of,
    newest_config,
    opened,
    other_checkpoint,
    read_newest,
)


@synchronous
def undo_repair(
    target: BaseCheckpointSaver[Any] | CompiledStateGraph[Any] | ServerClient,
    config: RunnableConfig,
) -> IOGenerator[str]:
    """Undo the last repair of a thread, so that it is as it was before, with its pause if any.

    The newest checkpoint is deleted if it has the mark of a repair, and no other ever is. A
    LangGraph Server deletes none, so there a copy of the checkpoint before the repair becomes the
    newest; what finished tasks had written is applied to it, and a pause that was abandoned cannot
    come back. Do not undo a repair while the thread runs. `aundo_repair` is the asynchronous form.

    Args:
        target: The checkpointer that holds the thread, a compiled graph with it, or the client of
            the LangGraph Server.
        config: Names the thread (`thread_id`) and, for a subgraph that keeps its own history, the
            namespace (`checkpoint_ns`). With a `checkpoint_id`, nothing is undone unless that
            checkpoint is the newest.

    Returns:
        The id of the checkpoint before the repair.

    Raises:
        ThreadError: If there is no such thread, if a repair did not write its newest checkpoint,
            or if the checkpointer cannot delete single checkpoints (those for SQLite, PostgreSQL
            and memory can).
        GraphError: If `target` is none of these, or is a graph without a checkpointer.
        Exception: What the checkpointer raises, such as one that is asynchronous only.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import repair_thread, undo_repair
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
        >>> graph = builder.set_entry_point("model").compile(checkpointer=saver)
        >>> _ = graph.invoke({"messages": []}, config)
        >>> repair = repair_thread(saver, config, min_age=0)
        >>> undo_repair(saver, config) == repair.before
        True
        >>> [m.type for m in graph.get_state(config).values["messages"]]
        ['ai', 'human']
    """
    saver, _ = opened(target)
    newest = newest_config(config)
    key = key_of(newest)
    saved = yield from read_newest(saver, newest)
    if saved is None:
        raise _nothing_to_undo(key, "no run has written to it")
    written = saved.checkpoint["id"]
    if reason := other_checkpoint(config, written):
        raise _nothing_to_undo(key, reason)
    if isinstance(saver, LangGraphServer):
        before = yield from undo_on_server(saver, saved)
    else:
        before = (configured_id(saved.parent_config) or "") if is_marked(saved) else ""
    if not before:
        raise _nothing_to_undo(key, f"no repair wrote its newest checkpoint {written}")
    if isinstance(saver, LangGraphServer):
        return before
    if not (yield from delete_checkpoint(saver, key, written)):
        raise _nothing_to_undo(key, f"it has moved on from checkpoint {written}")
    return before


aundo_repair = asynchronous(undo_repair)
"""Undo a repair as `undo_repair` does, over an asynchronous checkpointer or client."""


def _nothing_to_undo(key: Key, reason: str) -> ThreadError:
    return ThreadError(f"Thread {key.thread_id!r} has no repair to undo: {reason}.")
