"""Repair a thread of a LangGraph Server over its API: no code of the graph is needed.

The API has no staging and no single write that fits, so a repair is these requests:

1. `update_state(None, as_node="__end__")`, until nothing is due. It applies what finished tasks
   wrote and drops the other tasks. Otherwise the next request would run them: tools, and a model.
2. One run with `command={"update": [...]}`. It runs no node. It removes the messages from the first
   new one on and adds them again, behind the new ones. The server refuses it if another run is in
   progress. Its writes wait beside the newest checkpoint: whoever reads the state sees them.
3. `update_state(None, as_node="__end__")` again, which writes the repaired history as a checkpoint.

So each repair adds the checkpoint of the last step and at least one before it. None of them has a
truncated history. The history is read back afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import ThreadError
from langgraph_patch.evidence.effects import settle
from langgraph_patch.evidence.reconcile import reconcile_calls
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import Patch, changes_history, patch_reading
from langgraph_patch.history.repair import dangling_calls
from langgraph_patch.history.texts import Evidence
from langgraph_patch.threads.checkpoint_state import age_of, history_of, starts_tasks
from langgraph_patch.threads.message_equality import are_same
from langgraph_patch.threads.options import RepairOptions
from langgraph_patch.threads.recorded import find_recorded
from langgraph_patch.threads.repair_steps import committed_results
from langgraph_patch.threads.reports import (
    Outcome,
    ThreadRepair,
)
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.server_client import BusyError
from langgraph_patch.threads.server_undo import (
    apply_and_drop_tasks,
    end_superstep,
    newest_checkpoint,
    restore,
)
from langgraph_patch.threads.server_writes import (
    as_json,
    is_as_predicted,
    predict,
    writes_between,
)
from langgraph_patch.threads.target import newest_config
from langgraph_patch.threads.unwritten import ENDS, MOVED, WAITS, YOUNG, confirmed

_MARK = {"langgraph_patch": "repair"}
"""The metadata of the run that writes a repair."""

_BUSY = "a run of it is in progress: wait until it has ended"
_KILLED = "a run was stopped before its first superstep: start a run without input first"


class _StoppedError(Exception):
    """Why a repair is not written: an outcome and its reason."""

    def __init__(self, outcome: Outcome, reason: str | None = None) -> None:
        super().__init__(outcome, reason)
        self.outcome, self.reason = outcome, reason


# --- repair ------------------------------------------------------------------------------


def repair_on_server(
    server: LangGraphServer, config: RunnableConfig, options: RepairOptions
) -> IOGenerator[ThreadRepair]:
    """Repair a thread as `repair_thread` documents it.

    Raises:
        ThreadError: If there is no such thread, or if `config` names a subgraph.
        StoreFailedError: If the server cannot be reached.
    """
    newest = newest_config(config)
    configurable = newest["configurable"]
    thread_id = configurable["thread_id"]
    if configurable["checkpoint_ns"]:
        raise ThreadError(
            f"The API of LangGraph Server cannot write the history of the subgraph "
            f"{configurable['checkpoint_ns']!r} alone: repair it with the graph and its "
            f"checkpointer."
        )
    if (yield from server.thread(thread_id)) is None:
        raise ThreadError(f"There is no thread {thread_id!r}.")
    base: CheckpointTuple | None = yield from call_method(server, "get_tuple", newest)
    if base is None:
        return ThreadRepair(thread_id, "", "healthy")  # no run has written to it
    before = base.checkpoint["id"]
    expected = config["configurable"].get("checkpoint_id")
    if expected is not None and expected != before:
        reason = f"its newest checkpoint is {before}, not {expected}"
        return ThreadRepair(thread_id, "", "moved", reason, before=before)
    try:
        patch, after = yield from _repair(server, base, options)
    except BusyError:
        return ThreadRepair(thread_id, "", "busy", _BUSY, before=before)
    except _StoppedError as stop:
        return ThreadRepair(thread_id, "", stop.outcome, stop.reason, before=before)
    outcome: Outcome = "planned" if after is None else "repaired"
    return ThreadRepair(thread_id, "", outcome, None, patch, before, after)


def _repair(
    server: LangGraphServer, base: CheckpointTuple, options: RepairOptions
) -> IOGenerator[tuple[Patch, str | None]]:
    """Returns the patch and the id of the checkpoint that has it; None for a dry run."""
    stored = yield from _history(server, base, options)
    patch = yield from _plan(server, base, stored, options)
    yield from _check_due(server, base, patch, options)
    _predicted(stored, patch)
    if options.dry_run:
        return patch, None
    yield from _confirm(base, patch, options)
    yield from _check_unmoved(server, base)

    cleared = yield from _clear(server, base)
    committed = yield from _history(server, cleared, options)
    if not are_same(committed, stored):
        added = tuple(committed_results(stored, committed))
        rest = yield from _plan(server, cleared, committed, options)
        patch = Patch(rest.messages, (*added, *rest.changes), list(stored))
    return patch, (yield from _write(server, cleared, committed, patch, options))


def _history(
    server: LangGraphServer, saved: CheckpointTuple, options: RepairOptions
) -> IOGenerator[list[BaseMessage]]:
    return (yield from history_of(server, saved, options.messages_key)) or []


def _plan(
    server: LangGraphServer,
    saved: CheckpointTuple,
    messages: list[BaseMessage],
    options: RepairOptions,
) -> IOGenerator[Patch]:
    """The repair of a history, with what the API shows of the record."""
    reading = read_history(messages, replace_foreign=options.replace_foreign)
    evidence: Evidence = {}
    if options.recover:
        evidence = yield from _recorded(server, saved, reading, options)
    if options.reconcile:
        answers = yield from reconcile_calls(dangling_calls(reading, evidence), options.reconcile)
        evidence = {**evidence, **answers}
    return patch_reading(reading, placeholder=options.placeholder, evidence=evidence)


def _recorded(
    server: LangGraphServer, saved: CheckpointTuple, reading: Reading, options: RepairOptions
) -> IOGenerator[Evidence]:
    recovery = yield from find_recorded(server, saved.config, reading, options.messages_key)
    # Other state keys are not restored: the API does not show whether they have changed.
    evidence, _ = settle(
        recovery.evidence,
        recovery.effects,
        restore=False,
        own_keys={options.messages_key},
        channels={},
    )
    return evidence


def _check_due(
    server: LangGraphServer, base: CheckpointTuple, patch: Patch, options: RepairOptions
) -> IOGenerator[None]:
    """Stop if there is nothing to write, or if it must not be written now."""
    activity = None
    if starts_tasks(base):
        activity = yield from server.activity(base.config["configurable"]["thread_id"])
    if activity == "running":
        raise _StoppedError("busy", _BUSY)
    if activity == "waiting" and options.on_pause == "keep":
        raise _StoppedError("paused", WAITS)
    if not changes_history(patch):
        if activity:
            raise _StoppedError("paused", ENDS)
        raise _StoppedError("healthy")
    age = age_of(base)
    if age < options.min_age and not options.force:
        raise _StoppedError("young", YOUNG.format(age, options.min_age))
    if base.metadata.get("source") == "input":
        raise _StoppedError("refused", _KILLED)


def _confirm(base: CheckpointTuple, patch: Patch, options: RepairOptions) -> IOGenerator[None]:
    """Show the repair to the caller, who may refuse it."""
    thread_id, before = base.config["configurable"]["thread_id"], base.checkpoint["id"]
    planned = ThreadRepair(thread_id, "", "planned", None, patch, before)
    reason = yield from confirmed(options, planned)
    if reason is not None:
        raise _StoppedError("refused", reason)


# --- write -------------------------------------------------------------------------------


def _clear(server: LangGraphServer, base: CheckpointTuple) -> IOGenerator[CheckpointTuple]:
    """Apply what finished tasks wrote, and drop the other tasks."""
    try:
        return (yield from apply_and_drop_tasks(server, base))
    except BusyError:
        raise
    except ThreadError as error:
        raise _StoppedError("refused", str(error)) from error


def _write(
    server: LangGraphServer,
    cleared: CheckpointTuple,
    committed: Sequence[BaseMessage],
    patch: Patch,
    options: RepairOptions,
) -> IOGenerator[str]:
    """Write a repair to a thread without tasks, and read it back; the id of its checkpoint."""
    thread_id = cleared.config["configurable"]["thread_id"]
    thread = yield from server.request("threads.get", thread_id)
    known = thread["metadata"]
    yield from _check_unmoved(server, cleared)
    predicted = _predicted(committed, patch)
    writes = writes_between(committed, patch.messages)
    if not writes:
        return cleared.checkpoint["id"]
    answer = yield from server.request(
        "runs.wait",
        thread_id,
        known.get("assistant_id") or known["graph_id"],
        command={"update": [[options.messages_key, as_json(write)] for write in writes]},
        metadata=_MARK,
        multitask_strategy="reject",
        raise_error=False,
    )
    failed = answer.get("__error__") if isinstance(answer, Mapping) else None
    if failed is None:
        saved = yield from end_superstep(server, cleared)
        written = yield from _history(server, saved, options)
        if is_as_predicted(written, predicted) and not starts_tasks(saved):
            return saved.checkpoint["id"]
    yield from restore(server, cleared)
    problem = f"the graph refused it ({failed})" if failed else "the graph did not keep it"
    raise _StoppedError("refused", f"{problem}; the state before was restored")


# --- the newest checkpoint ---------------------------------------------------------------


def _predicted(old: Sequence[BaseMessage], patch: Patch) -> list[BaseMessage]:
    try:
        return predict(old, patch.messages)
    except ThreadError as error:
        raise _StoppedError("refused", str(error)) from error


def _check_unmoved(server: LangGraphServer, saved: CheckpointTuple) -> IOGenerator[None]:
    """Stop if a checkpoint is not the newest any more."""
    if (yield from newest_checkpoint(server, saved)).checkpoint["id"] != saved.checkpoint["id"]:
        raise _StoppedError("moved", MOVED)
