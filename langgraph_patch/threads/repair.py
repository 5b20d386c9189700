"""Repair one stored thread, or say why it is left as it is.

There is one path: read, plan, stage, check, put, read back.

1. Read the newest checkpoint, plan the repair of its history, and check that it may be written.
2. Stage it in memory, with what finished tasks wrote: a repair that is written first would destroy
   that (`staging`). Make one checkpoint of it, without tasks, and check that one.
3. Compare: is the checkpoint that was read still the newest? Then put the new one behind it, and
   read it back.

A repair writes messages and no other state key. What depends on the application is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.types import ERROR

from langgraph_patch._langgraph_storage import accepted_input, state_keys
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import OptionError, quoted
from langgraph_patch.evidence.address import Address
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.graph.state import unknown_key_error
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.patch import Patch, changes_history
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.threads.listing import delete_checkpoint
from langgraph_patch.threads.reports import Refused, Stopped, ThreadRepair
from langgraph_patch.threads.server import Activity
from langgraph_patch.threads.staging import (
    finished_work,
    id_after,
    new_checkpoint,
    staged,
    with_committed,
)
from langgraph_patch.threads.stored import (
    activity_of,
    address_of,
    age_of,
    are_same,
    checked_saver,
    history_of,
    interrupts_of,
    is_ambiguous,
    other_checkpoint,
    read_newest,
    starts_tasks,
    written_at,
)

OnPause = Literal["keep", "abandon"]


def repair_thread(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    *,
    on_pause: OnPause = "keep",
    min_age: float = 60.0,
    force: bool = False,
    dry_run: bool = False,
    placeholder: Placeholder | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    reconcile: Mapping[str, Lookup] | None = None,
) -> ThreadRepair:
    """Repair the tool-call history of one stored thread, so that it accepts its next message.

    Nothing is written if the thread is healthy, if it waits for a human, if it is too young, or
    if the repair would not be safe. The result says so. The checkpoint before the repair stays,
    as the parent of the new one, which has `{"langgraph_patch": "repair"}` in its metadata:
    `saver.list(None, filter={"langgraph_patch": "repair"})` lists all repairs.

    Args:
        saver: The checkpointer that holds the thread, synchronous. A service calls this function
            in a thread: `await asyncio.to_thread(repair_thread, saver, config)`.
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
        messages_key: The state key of the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history, and for causes of missing results. Results that
            finished tasks wrote beside a pause or a failure are kept in any case. A placeholder of
            an earlier repair gives way to what states more. Default: True.
        reconcile: For the name of a tool, a function that is called with a `DanglingCall` if the
            checkpoints do not show what happened to a call of that tool (its cause is `unknown`,
            `cancelled` or `awaiting_input`). It returns the result, a text or a `ToolMessage`,
            or None if it does not know more. Default: None.

    Returns:
        What was done, or why nothing was done.

    Raises:
        ThreadError: If there is no such thread, if the namespace belongs to one run of a node, or
            if the checkpoint cannot be read. The threads of a LangGraph Server are not repaired
            over its API.
        GraphError: If a graph was passed in the place of its checkpointer, or if there is no such
            state key.
        OptionError: If an option has an invalid value, or the checkpointer is asynchronous.
        MessagesError: If the value of `messages_key` is not a list of messages.
        EvidenceError: If the checkpointer fails while older checkpoints are searched.
        Exception: What a `placeholder` callable or the checkpointer raises, with a note if the
            thread may have been written before that.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph.graph import MessagesState, StateGraph
        >>> from langgraph_patch.threads import repair_thread
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [
        ...     AIMessage("", tool_calls=[call]), HumanMessage("never mind")]})
        >>> saver, config = InMemorySaver(), {"configurable": {"thread_id": "1"}}
        >>> graph = builder.set_entry_point("model").compile(checkpointer=saver)
        >>> _ = graph.invoke({"messages": []}, config)
        >>> print(repair_thread(saver, config, min_age=0))
        '1': repaired - inserted 'wire' 'c1' (unknown)
        >>> [m.type for m in graph.get_state(config).values["messages"]]
        ['ai', 'tool', 'human']
    """
    repairer = Repairer(
        placeholder=placeholder,
        messages_key=messages_key,
        recover="required" if recover else False,
        reconcile=reconcile,
    )
    options = _Options(repairer, on_pause, min_age, force)
    saver = checked_saver(saver, server=False)
    address = address_of(config)
    base, blocked = _read_with_blocked(saver, address)
    before, names = base.checkpoint["id"], (address.thread_id, address.namespace)
    if reason := other_checkpoint(address, before):
        return ThreadRepair(*names, "moved", reason, before=before)
    thread = _Thread(options, address.newest, saver, base, blocked)
    try:
        patch, repaired, messages = _prepared(thread)
        if not dry_run:
            _put(thread, repaired, messages)
    except Stopped as stop:
        return ThreadRepair(*names, stop.outcome, stop.reason, before=before)
    if dry_run:
        return ThreadRepair(*names, "planned", None, patch, before)
    return ThreadRepair(*names, "repaired", None, patch, before, repaired.checkpoint["id"])


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of `repair_thread`, which documents them."""

    repairer: Repairer
    on_pause: OnPause
    min_age: float
    force: bool

    def __post_init__(self) -> None:
        if self.on_pause not in ("keep", "abandon"):
            raise OptionError(f"on_pause={quoted(self.on_pause)}: expected 'keep' or 'abandon'.")
        age = self.min_age
        if not isinstance(age, int | float) or not 0 <= age < float("inf"):
            raise OptionError(f"min_age={quoted(age)}: expected seconds, 0 or more.")


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread under repair.

    Attributes:
        options: The options of the repair.
        address: Names its newest checkpoint.
        saver: Its checkpointer.
        base: The checkpoint that is repaired; `blocked` are its classes that were not loaded.
    """

    options: _Options
    address: Address
    saver: BaseCheckpointSaver[Any]
    base: CheckpointTuple
    blocked: Sequence[str]

    @property
    def messages_key(self) -> str:
        """The state key of the history."""
        return self.options.repairer.messages_key

    def plan(self, messages: list[BaseMessage]) -> Patch:
        """The repair of a history of the thread."""
        return plan_repair(self.saver, self.base.config, messages, self.options.repairer)


# --- read --------------------------------------------------------------------------------


def _read_with_blocked(
    saver: BaseCheckpointSaver[Any], address: Address
) -> tuple[CheckpointTuple, list[str]]:
    """The newest checkpoint, and the classes in it that LangGraph's serializer does not load."""
    events: list[Mapping[str, Any]] = []
    unregister = register_serde_event_listener(events.append)
    try:
        saved = read_newest(saver, address)
    finally:
        unregister()
    blocked = {f"{e['module']}:{e['name']}" for e in events if e["kind"] == "msgpack_blocked"}
    return saved, sorted(blocked)


# --- plan --------------------------------------------------------------------------------


def plan_repair(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    messages: list[BaseMessage],
    repairer: Repairer,
) -> Patch:
    """The repair of a history, with what the checkpoints of the thread recorded.

    Recovered results name the effects on other state keys, which are not restored.

    Args:
        saver: The checkpointer.
        config: The checkpoint that has the history.
        messages: The history.
        repairer: Has the options of the repair.

    Raises:
        EvidenceError: If the checkpointer raises.
    """
    reading, recovery = read_history(messages), Recovery()
    if repairer.recover:
        key, calls = repairer.messages_key, reading.without_result
        search = recover_evidence(
            saver, config, reading.messages, calls, messages_key=key, required=True
        )
        recovery = run_sync(search)
    # The repair ends the pause that was found.
    evidence = {
        key: replace(finding, detail=None) if finding.detail == "paused" else finding
        for key, finding in recovery.evidence.items()
    }
    recovery = replace(recovery, evidence=evidence)
    return run_sync(repairer.repair_with(recovery, reading, {}, restore=False)).patch


# --- check and stage ---------------------------------------------------------------------


def _prepared(thread: _Thread) -> tuple[Patch, CheckpointTuple, list[BaseMessage]]:
    """The patch, the checkpoint to write, and the history that it has.

    Raises:
        Stopped: If there is nothing to repair, or it may not be written.
    """
    base, key = thread.base, thread.messages_key
    if key not in (known := base.checkpoint["channel_versions"]):
        raise unknown_key_error(key, known)
    id_after(base)
    stored = history_of(thread.saver, base, key) or []
    patch = thread.plan(stored)
    _check_due(thread, patch, activity_of(thread.saver, base))
    _check_safe(thread)
    stage = staged(thread.saver, base, key, stored)
    finished = finished_work(stage)
    history = stage.history(finished)
    ids = {message.id for message in history}
    if lost := sum(message.id not in ids for message in stored):
        raise Refused(
            f"{lost} of its {len(stored)} messages would be lost: a finished node removes them"
        )
    messages = patch.messages
    if not are_same(history, stored):
        rest = thread.plan(history)
        messages, patch = rest.messages, with_committed(patch, rest)
    return patch, new_checkpoint(stage, finished, messages), messages


def _check_due(thread: _Thread, patch: Patch, activity: Activity | None) -> None:
    """Check that there is something to repair, and that it may be written now."""
    options = thread.options
    if activity == "waiting" and options.on_pause == "keep":
        raise Stopped(
            "paused", "it waits for a human: answer it, or abandon the pause (on_pause='abandon')"
        )
    if not changes_history(patch):
        ends = "it waits for a human, and nothing in it is damaged: the next message ends the pause"
        raise Stopped("paused", ends) if activity else Stopped("healthy")
    age = age_of(written_at(thread.base))
    if age < options.min_age and not options.force:
        raise Stopped(
            "young",
            f"its newest checkpoint is {age:.0f} s old and a tool may be running: wait until it is "
            f"{options.min_age:.0f} s old, or force the repair",
        )


def _check_safe(thread: _Thread) -> None:
    """Check that nothing depends on what only the graph of the application knows."""
    options, base = thread.options, thread.base
    if accepted_input(base) is not None:
        raise Refused(
            "a run was stopped before its first superstep: continue it with invoke(None) first"
        )
    if thread.blocked:
        names = ", ".join(thread.blocked)
        raise Refused(
            f"its state holds classes that were not loaded ({names}): allow them in the serializer "
            f"of the checkpointer (--trust {thread.blocked[0]})"
        )
    if is_ambiguous(thread.saver, base, thread.messages_key):
        raise Refused(
            f"all messages of its DeltaChannel were removed once, which the reducer of LangGraph "
            f"ignores and others obey: {_PATCHED} it"
        )
    writes = base.pending_writes or ()
    others = {*state_keys({channel for _, channel, _ in writes})} - {thread.messages_key}
    if others:
        named = ", ".join(map(repr, sorted(others)))
        raise Refused(
            f"finished tasks wrote the state key {named}: {_PATCHED} it and restores that"
        )
    is_over = any(channel == ERROR for _, channel, _ in writes) or interrupts_of(base)
    if options.on_pause == "keep" and starts_tasks(base) and not is_over:
        raise Stopped(
            "paused",
            f"a run of it was stopped without a recorded error, or it waits at a breakpoint, which "
            f"only its graph shows: {_PATCHED} it; or abandon the pause (on_pause='abandon')",
        )


_PATCHED = "with with_patching, the next message repairs"


# --- put and read back -------------------------------------------------------------------


def _put(thread: _Thread, repaired: CheckpointTuple, messages: Sequence[BaseMessage]) -> None:
    """Write the checkpoint, if nothing was written since the repair began, and read it back."""
    saver, base, checkpoint = thread.saver, thread.base, repaired.checkpoint
    if _identity(base) != _identity(read_newest(saver, thread.address)):
        raise Stopped("moved", _MOVED)
    old = base.checkpoint["channel_versions"]
    new = {k: v for k, v in checkpoint["channel_versions"].items() if v != old.get(k)}
    with maybe_written(thread.address):
        saver.put(base.config, checkpoint, repaired.metadata, new)
        newest = read_newest(saver, thread.address)
        if newest.checkpoint["id"] != checkpoint["id"]:
            raise Stopped("moved", _MOVED)
        read = history_of(saver, newest, thread.messages_key) or []
        if starts_tasks(newest) or not are_same(read, messages):
            delete_checkpoint(saver, replace(thread.address, checkpoint_id=checkpoint["id"]))
            raise Refused("the database did not return what was written to it")


_MOVED = (
    "something else wrote to it during the repair, and that write takes precedence: scan it again"
)


@contextmanager
def maybe_written(address: Address) -> Iterator[None]:
    """Note on each error that the thread may have been written before it."""
    try:
        yield
    except Stopped:
        raise
    except BaseException as error:
        error.add_note(f"{MAYBE_WRITTEN} {address.thread_id!r}")
        raise


MAYBE_WRITTEN = "May have been written: thread"


def _identity(saved: CheckpointTuple) -> tuple[str, list[Any]]:
    """The id of a checkpoint, and the pending writes without their values, which may differ."""
    return saved.checkpoint["id"], [write[:2] for write in saved.pending_writes or ()]
