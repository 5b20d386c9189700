"""Repair one stored thread: look, stage, check, write, read back.

`_repair_open_thread` has the steps in order. The repair is written through the application's own
graph, so that its reducers and types are used, and it is checked before it is written. The
checkpoint before the repair stays, as the parent of the new one. What another process writes at
the same time takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph import is_delta_channel
from langgraph_patch._sansio import IOGenerator, call_method, run_async, run_sync
from langgraph_patch.evidence.reconcile import Lookup, checked_reconcile
from langgraph_patch.graph.message_equality import are_same
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.placeholders import Language, Placeholder
from langgraph_patch.threads.checkpoint_state import age_of
from langgraph_patch.threads.options import MIN_AGE, OnPause, RepairOptions
from langgraph_patch.threads.repair_steps import (
    OpenThread,
    RefusedError,
    check_staged_state,
    commit_finished_work,
    committed_results,
    drop_next_tasks,
    is_waiting,
    messages_of,
    no_thread_error,
    open_thread,
    plan_repair,
    read,
    stage_repair,
    staged_state,
    written_channels,
)
from langgraph_patch.threads.reports import Outcome, ThreadRepair
from langgraph_patch.threads.stores.select import store_of


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
    reconcile: Mapping[str, Lookup] | None = None,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> ThreadRepair:
    """Repair the tool-call history of one stored thread, so that it accepts its next message.

    Nothing is written if the thread is healthy, if it waits for a human, if it is too young, or
    if the repair would not be safe. The result says so.

    Args:
        graph: The compiled graph that the application runs, with or without `with_patching`.
        config: Names the thread (`thread_id`). To repair the history of a subgraph that keeps its
            own, add its namespace (`checkpoint_ns`). With a `checkpoint_id`, nothing is done
            unless that checkpoint is the newest.
        on_pause: What to do with a damaged thread that waits for a human. `"keep"` leaves it as
            it is. `"abandon"` ends the pause: results of finished calls are kept, and calls that
            wait get a placeholder. Default: `"keep"`.
        min_age: How old the newest checkpoint must be, in seconds. In a younger thread a tool may
            still be running. Default: 60.
        force: Whether to repair a younger thread too. Default: False.
        dry_run: Whether to stop before anything is written; the result has the patch. Default:
            False.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
        language: The language of the default texts, `"en"` or `"zh"`. Default: the language of
            the process (`set_language`).
        messages_key: The state key of the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history, and for causes of missing results. Results that
            finished tasks wrote beside a pause or a failure are kept in any case. Default: True.
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

    Returns:
        What was done, or why nothing was done.

    Raises:
        ThreadError: If there is no such thread, or if the namespace belongs to one run of a node.
        GraphError: If `graph` is not a compiled graph with a checkpointer, or has no such
            subgraph or state key.
        OptionError: If an option has an invalid value.
        MessagesError: If the value of `messages_key` is not a list of messages.
        EvidenceError: If the checkpointer fails while older checkpoints are searched.
        Exception: What a `placeholder` callable or the checkpointer raises.

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
    options = RepairOptions(
        on_pause=on_pause,
        min_age=min_age,
        force=force,
        dry_run=dry_run,
        placeholder=placeholder,
        language=language,
        messages_key=messages_key,
        recover=recover,
        reconcile=checked_reconcile(reconcile),
        replace_foreign=replace_foreign,
        checkpointer=checkpointer,
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
    language: Language | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    reconcile: Mapping[str, Lookup] | None = None,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
) -> ThreadRepair:
    """Repair one stored thread as `repair_thread` does, over an asynchronous checkpointer.

    Args:
        graph: The compiled graph that the application runs, with or without `with_patching`.
        config: Names the thread, the namespace (default: the root graph) and, with a
            `checkpoint_id`, the checkpoint that must be the newest.
        on_pause: `"keep"` a damaged thread that waits for a human as it is, or `"abandon"` the
            pause and repair the thread. Default: `"keep"`.
        min_age: How old the newest checkpoint must be, in seconds. Default: 60.
        force: Whether to repair a younger thread too. Default: False.
        dry_run: Whether to stop before anything is written. Default: False.
        placeholder: The text for a call without a result, a mapping from cause to text, or a
            callable that takes a `DanglingCall`. Default: a text that names the cause.
        language: The language of the default texts, `"en"` or `"zh"`. Default: the language of
            the process.
        messages_key: The state key of the history. Default: `"messages"`.
        recover: Whether to search older checkpoints for recorded results and causes. Default:
            True.
        reconcile: For the name of a tool, a function that settles a call about which the
            checkpoints record neither a result nor an end. It may be asynchronous. Default: None.
        replace_foreign: Whether to replace the placeholders of deepagents and
            langgraph-checkpoint-aws too. Default: False.
        checkpointer: The checkpointer that holds the thread. Default: that of the config or the
            graph.

    Returns:
        What was done, or why nothing was done.

    Raises:
        ThreadError, GraphError, OptionError, MessagesError, EvidenceError: As `repair_thread`.

    Example:
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
        language=language,
        messages_key=messages_key,
        recover=recover,
        reconcile=checked_reconcile(reconcile),
        replace_foreign=replace_foreign,
        checkpointer=checkpointer,
    )
    return await run_async(_repair(graph, config, options))


# --- the repair --------------------------------------------------------------------------


def _repair(
    graph: Any, config: RunnableConfig, options: RepairOptions
) -> IOGenerator[ThreadRepair]:
    thread = yield from open_thread(graph, config, options)
    newest = thread.base.checkpoint["id"]
    expected = config["configurable"].get("checkpoint_id")
    if expected is not None and expected != newest:
        return _result(thread, "moved", f"its newest checkpoint is {newest}, not {expected}")
    try:
        return (yield from _repair_open_thread(thread))
    except RefusedError as refusal:
        return _result(thread, "refused", str(refusal))


def _repair_open_thread(thread: OpenThread) -> IOGenerator[ThreadRepair]:
    # 1. Look: the history as the next run finds it, and the state with what finished tasks wrote.
    stored = yield from staged_state(thread, thread.base.config)
    live = yield from staged_state(thread)
    before = read(thread, messages_of(thread, stored))
    repair = yield from plan_repair(thread, before)
    reason = _reason_to_skip(thread, repair.patch, waits=(yield from is_waiting(thread, live)))
    if reason is not None:
        return _result(thread, *reason)

    # 2. Stage what finished tasks wrote: a repair that is written first would destroy it.
    after = yield from commit_finished_work(thread, before, live)
    if after is not before:
        repair = yield from plan_repair(thread, after)
    patch = repair.patch

    # 3. Stage the repair, and drop the tasks that its node would start.
    if patch:
        yield from stage_repair(thread, repair)
    yield from drop_next_tasks(thread)

    # 4. Check the staged state.
    yield from check_staged_state(thread, patch.messages)
    changes = (*committed_results(before.messages, after.messages), *patch.changes)
    patch = Patch(patch.messages, changes, list(before.messages))
    if thread.options.dry_run:
        return _result(thread, "planned", patch=patch)

    # 5. Write one checkpoint, and read it back.
    return (yield from _write(thread, patch))


def _reason_to_skip(
    thread: OpenThread, patch: Patch, *, waits: bool
) -> tuple[Outcome, str | None] | None:
    """The outcome and the reason if nothing is to be written; otherwise None."""
    keeps = thread.options.on_pause == "keep"
    if waits and keeps:
        return "paused", _WAITS
    if not patch:
        return ("paused", _ENDS) if waits else ("healthy", None)
    age, min_age = age_of(thread.base), thread.options.min_age
    if age < min_age and not thread.options.force:
        return "young", _YOUNG.format(age, min_age)
    return None


def _write(thread: OpenThread, patch: Patch) -> IOGenerator[ThreadRepair]:
    messages_key = thread.options.messages_key
    is_delta = is_delta_channel(thread.channel)
    thread.staging.merge(thread.target.channels, {messages_key: patch.messages} if is_delta else {})
    newest = yield from _newest(thread)
    if newest.checkpoint["id"] != thread.base.checkpoint["id"] or (
        written_channels(newest) != written_channels(thread.base)
    ):
        return _result(thread, "moved", _MOVED)
    yield from thread.staging.commit()
    return (yield from _read_back(thread, patch))


def _read_back(thread: OpenThread, patch: Patch) -> IOGenerator[ThreadRepair]:
    checkpoint_id = thread.staging.checkpoint_id
    newest = yield from _newest(thread)
    if newest.checkpoint["id"] != checkpoint_id:
        if (yield from _descends_from(thread, newest, checkpoint_id)):
            return _result(thread, "repaired", patch=patch)
        return _result(thread, "moved", _MOVED)
    state = yield from call_method(thread.graph, "get_state", thread.config)
    if not state.next and are_same(messages_of(thread, state), patch.messages):
        return _result(thread, "repaired", patch=patch)
    yield from store_of(thread.saver).delete_checkpoint(thread.key, checkpoint_id)
    return _result(thread, "refused", "the database did not return what was written to it")


def _newest(thread: OpenThread) -> IOGenerator[CheckpointTuple]:
    saved: CheckpointTuple | None = yield from call_method(thread.saver, "get_tuple", thread.config)
    if saved is None:
        raise no_thread_error(thread.key)
    return saved


def _descends_from(
    thread: OpenThread, saved: CheckpointTuple | None, ancestor: str
) -> IOGenerator[bool]:
    """Whether a later checkpoint was made from the one that the repair wrote."""
    while saved is not None and saved.parent_config and saved.checkpoint["id"] > ancestor:
        saved = yield from call_method(thread.saver, "get_tuple", saved.parent_config)
    return saved is not None and saved.checkpoint["id"] == ancestor


# --- the result --------------------------------------------------------------------------

_WAITS = "it waits for a human: answer it, or abandon the pause"
_ENDS = "it waits for a human, and nothing in it is damaged: the next message ends the pause"
_YOUNG = (
    "its newest checkpoint is {:.0f} s old and a tool may be running: wait until it is {:.0f} s "
    "old, or force the repair"
)
_MOVED = "something else wrote to it during the repair, and that write takes precedence"


def _result(
    thread: OpenThread, outcome: Outcome, reason: str | None = None, patch: Patch | None = None
) -> ThreadRepair:
    return ThreadRepair(
        *thread.key,
        outcome,
        reason,
        patch,
        before=thread.base.checkpoint["id"],
        after=thread.staging.checkpoint_id if outcome == "repaired" else None,
    )
