"""Repair one stored thread, or stop with the reason why it is left as it is.

A thread of a checkpointer is repaired through the application's graph (`checkpointer_repair`), a
thread of a LangGraph Server over its API (`server_repair`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.evidence.reconcile import Lookup, checked_reconcile
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.threads.checkpointer_repair import repair_in_checkpointer
from langgraph_patch.threads.options import MIN_AGE, OnPause, RepairOptions
from langgraph_patch.threads.reports import ThreadRepair
from langgraph_patch.threads.server import server_of
from langgraph_patch.threads.server_repair import repair_on_server


def repair_thread(
    graph: Any,
    config: RunnableConfig,
    *,
    on_pause: OnPause = "keep",
    min_age: float = MIN_AGE,
    force: bool = False,
    dry_run: bool = False,
    placeholder: Placeholder | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    reconcile: Mapping[str, Lookup] | None = None,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    confirm: Callable[[ThreadRepair], str | None] | None = None,
) -> ThreadRepair:
    """Repair the tool-call history of one stored thread, so that it accepts its next message.

    Nothing is written if the thread is healthy, if it waits for a human, if it is too young, or
    if the repair would not be safe. The result says so.

    Args:
        graph: The compiled graph that the application runs, with or without `with_patching`. For
            a thread of a LangGraph Server: the client (`langgraph_sdk.get_sync_client`), or a
            `LangGraphServer`. The server's own graph is then used.
        config: Names the thread (`thread_id`). To repair the history of a subgraph that keeps its
            own, add its namespace (`checkpoint_ns`). With a `checkpoint_id`, nothing is done
            unless that checkpoint is the newest.
        on_pause: What to do with a damaged thread that waits for a human. `"keep"` leaves it as
            it is. `"abandon"` ends the pause: results of finished calls are kept, and calls that
            wait get a placeholder. Default: `"keep"`.
        min_age: How old the newest checkpoint must be, in seconds. In a younger thread a tool may
            still be running. Default: 60.
        force: Whether to repair a younger thread too, and a thread that another graph seems to
            have written. Default: False.
        dry_run: Whether to stop before anything is written; the result has the patch. Default:
            False.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
        messages_key: The state key of the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history, and for causes of missing results. Results that
            finished tasks wrote beside a pause or a failure are kept in any case. A placeholder of
            an earlier repair gives way to what states more. Default: True.
        reconcile: For the name of a tool, a function that is called with a `DanglingCall` if the
            checkpoints do not show what happened to a call of that tool (its cause is `unknown`,
            `cancelled` or `awaiting_input`). It returns the result, a text or a `ToolMessage`,
            or None if it does not know more. In `arepair_thread` it may be asynchronous.
            Default: None.
        replace_foreign: Whether to treat the tool messages that deepagents or
            langgraph-checkpoint-aws wrote for calls without a result as placeholders: they are
            replaced by the recorded result, or by a placeholder with the recorded cause.
            Default: False, such messages count as results.
        checkpointer: The checkpointer that holds the thread. Default: that of the config or the
            graph.
        confirm: A function that is called with the repair directly before it is written: the
            outcome is `planned`, and `after` is the id of the checkpoint that will be written. It
            can log the repair, so that a killed process leaves no repair unreported. It returns
            None to have the repair written, or the reason to refuse it. Default: None.

    Returns:
        What was done, or why nothing was done.

    Raises:
        ThreadError: If there is no such thread, if the namespace belongs to one run of a node, or
            if a LangGraph Server cannot be reached.
        GraphError: If `graph` is not a compiled graph with a checkpointer, or has no such
            subgraph or state key.
        OptionError: If an option has an invalid value.
        MessagesError: If the value of `messages_key` is not a list of messages.
        EvidenceError: If the checkpointer fails while older checkpoints are searched.
        Exception: What a `placeholder` or `confirm` callable or the checkpointer raises.

    Examples:
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
    options = RepairOptions(
        on_pause=on_pause,
        min_age=min_age,
        force=force,
        dry_run=dry_run,
        placeholder=placeholder,
        messages_key=messages_key,
        recover=recover,
        reconcile=checked_reconcile(reconcile),
        replace_foreign=replace_foreign,
        checkpointer=checkpointer,
        confirm=confirm,
    )
    return run_sync(_repair(graph, config, options))


async def arepair_thread(
    graph: Any,
    config: RunnableConfig,
    *,
    on_pause: OnPause = "keep",
    min_age: float = MIN_AGE,
    force: bool = False,
    dry_run: bool = False,
    placeholder: Placeholder | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    reconcile: Mapping[str, Lookup] | None = None,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    confirm: Callable[[ThreadRepair], str | Awaitable[str | None] | None] | None = None,
) -> ThreadRepair:
    """Repair one stored thread as `repair_thread` does, over an asynchronous checkpointer.

    Args:
        graph: The compiled graph that the application runs, with or without `with_patching`; or
            the client of a LangGraph Server (`langgraph_sdk.get_client`), or a `LangGraphServer`.
        config: Names the thread, the namespace (default: the root graph) and, with a
            `checkpoint_id`, the checkpoint that must be the newest.
        on_pause: `"keep"` a damaged thread that waits for a human as it is, or `"abandon"` the
            pause and repair the thread. Default: `"keep"`.
        min_age: How old the newest checkpoint must be, in seconds. Default: 60.
        force: Whether to repair a younger thread, or one of another graph, too. Default: False.
        dry_run: Whether to stop before anything is written. Default: False.
        placeholder: The text for a call without a result, a mapping from cause to text, or a
            callable that takes a `DanglingCall`. Default: a text that names the cause.
        messages_key: The state key of the history. Default: `"messages"`.
        recover: Whether to search older checkpoints for recorded results and causes. Default:
            True.
        reconcile: For the name of a tool, a function that settles a call about which the
            checkpoints record neither a result nor an end. It may be asynchronous. Default: None.
        replace_foreign: Whether to replace the placeholders of deepagents and
            langgraph-checkpoint-aws too. Default: False.
        checkpointer: The checkpointer that holds the thread. Default: that of the config or the
            graph.
        confirm: Called with the planned repair directly before it is written; it returns None, or
            the reason to refuse it. It may be asynchronous. Default: None.

    Returns:
        What was done, or why nothing was done.

    Raises:
        ThreadError, GraphError, OptionError, MessagesError, EvidenceError: As `repair_thread`.

    Examples:
        >>> import asyncio
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import arepair_thread
        >>> builder = StateGraph(MessagesState).add_node("model", lambda state: {})
        >>> graph = builder.set_entry_point("model").compile(checkpointer=InMemorySaver())
        >>> config = {"configurable": {"thread_id": "1"}}
        >>> _ = graph.invoke({"messages": ["hello"]}, config)
        >>> print(asyncio.run(arepair_thread(graph, config)))
        '1': healthy
    """
    options = RepairOptions(
        on_pause=on_pause,
        min_age=min_age,
        force=force,
        dry_run=dry_run,
        placeholder=placeholder,
        messages_key=messages_key,
        recover=recover,
        reconcile=checked_reconcile(reconcile),
        replace_foreign=replace_foreign,
        checkpointer=checkpointer,
        confirm=confirm,
    )
    return await run_async(_repair(graph, config, options))


def _repair(
    graph: Any, config: RunnableConfig, options: RepairOptions
) -> IOGenerator[ThreadRepair]:
    server = server_of(graph) or server_of(options.checkpointer)
    if server is not None:
        return (yield from repair_on_server(server, config, options))
    return (yield from repair_in_checkpointer(graph, config, options))
