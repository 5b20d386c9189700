"""Repair a thread in a checkpointer: look, stage, check, write, read back.

`_repair_open_thread` has the steps in order. The repair is written through the application's own
graph, so that its reducers and types are used, and it is checked before it is written. The
checkpoint before the repair stays, as the parent of the new one. What another process writes at
the same time takes precedence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._langgraph_storage import is_delta_channel
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.history.patch import Patch, changes_history
from langgraph_patch.threads.checkpoint_state import age_of
from langgraph_patch.threads.keys import delete_checkpoint
from langgraph_patch.threads.message_equality import are_same
from langgraph_patch.threads.open_thread import (
    OpenThread,
    no_thread_error,
    open_thread,
    written_channels,
)
from langgraph_patch.threads.options import RepairOptions
from langgraph_patch.threads.repair_steps import (
    RefusedError,
    check_staged_state,
    commit_finished_work,
    committed_results,
    drop_next_tasks,
    is_waiting,
    messages_of,
    plan_repair,
    read,
    stage_repair,
    staged_delta_values,
    staged_state,
)
from langgraph_patch.threads.reports import (
    Outcome,
    ThreadRepair,
)
from langgraph_patch.threads.target import graph_mismatch
from langgraph_patch.threads.unwritten import ENDS, MOVED, WAITS, YOUNG, confirmed


def repair_in_checkpointer(
    graph: Any, config: RunnableConfig, options: RepairOptions
) -> IOGenerator[ThreadRepair]:
    """Repair a thread as `repair_thread` documents it.

    Raises:
        ThreadError: If there is no such thread, or if the namespace belongs to one run of a node.
        GraphError: If `graph` is not a compiled graph with a checkpointer, or has no such subgraph
            or state key.
    """
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
        return "paused", WAITS
    if not changes_history(patch):
        return ("paused", ENDS) if waits else ("healthy", None)
    if thread.options.force:
        return None
    age, min_age = age_of(thread.base), thread.options.min_age
    if age < min_age:
        return "young", YOUNG.format(age, min_age)
    mismatch = graph_mismatch(thread.target, thread.base.checkpoint, thread.options.messages_key)
    return ("refused", mismatch) if mismatch else None


def _write(thread: OpenThread, patch: Patch) -> IOGenerator[ThreadRepair]:
    whole = yield from staged_delta_values(thread)
    if is_delta_channel(thread.channel):
        whole[thread.options.messages_key] = patch.messages
    thread.staging.merge(thread.target.channels, whole)
    planned = replace(_result(thread, "planned", patch=patch), after=thread.staging.checkpoint_id)
    refusal = yield from confirmed(thread.options, planned)
    if refusal is not None:
        return _result(thread, "refused", refusal)
    newest = yield from _newest(thread)
    if newest.checkpoint["id"] != thread.base.checkpoint["id"] or (
        written_channels(newest) != written_channels(thread.base)
    ):
        return _result(thread, "moved", MOVED)
    yield from thread.staging.commit()
    return (yield from _read_back(thread, patch))


def _read_back(thread: OpenThread, patch: Patch) -> IOGenerator[ThreadRepair]:
    checkpoint_id = thread.staging.checkpoint_id
    newest = yield from _newest(thread)
    if newest.checkpoint["id"] != checkpoint_id:
        if (yield from _descends_from(thread, newest, checkpoint_id)):
            return _result(thread, "repaired", patch=patch)
        return _result(thread, "moved", MOVED)
    state = yield from call_method(thread.graph, "get_state", thread.config)
    if not state.next and are_same(messages_of(thread, state), patch.messages):
        return _result(thread, "repaired", patch=patch)
    yield from delete_checkpoint(thread.saver, thread.key, checkpoint_id)
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
