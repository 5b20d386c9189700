"""Repair one stored thread, or say why it is left as it is.

There is one path, from top to bottom of this module: read, plan, check, stage, put, read back.

1. Read the newest checkpoint, plan the repair of its history, and check that it may be written.
2. Stage it: apply what finished tasks wrote to the history, which a repair that is written first
   would drop, and make one checkpoint of it, without tasks. Check that one.
3. Compare: is the checkpoint that was read still the newest? Then put the new one behind it, and
   read it back.

A repair writes messages and no other state key. What depends on the application is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, cast

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import BinaryOperatorAggregate
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph.message import add_messages

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import run_sync
from langgraph_patch._text import brief, cut, quoted, short
from langgraph_patch.errors import OptionError, check_flags
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.evidence.superstep import superstep_of
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.patch import changes_history
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.history.reading import read_history
from langgraph_patch.repairing.reconcile import Lookup
from langgraph_patch.repairing.repairer import Repairer
from langgraph_patch.state import unknown_key_error
from langgraph_patch.threads.read import MARK, StoredHistory, age_of, are_equal
from langgraph_patch.threads.reports import Refused, Stopped, ThreadRepair
from langgraph_patch.threads.selection import checked_address
from langgraph_patch.threads.stores import checked_saver, server_of, store_of

OnPause = Literal["keep", "abandon"]

PATCHED: Final = "with with_patching, the next message repairs it"
"""What to do about a thread whose repair is refused."""


def repair_thread(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    *,
    on_pause: OnPause = "keep",
    min_age: float = 60.0,
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
            still be running. With 0 every thread is repaired. Default: 60.
        dry_run: Whether to stop before anything is written; the result has the patch. Default:
            False.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. `{name}` and `{id}` in a text are replaced. Default:
            a text that names the cause.
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
        GraphError: If a graph was passed instead of its checkpointer, or if there is no such
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
        >>> from langgraph_patch import repair_thread
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
    check_flags(dry_run=dry_run, recover=recover)
    if on_pause not in ("keep", "abandon"):
        raise OptionError(f"on_pause={quoted(on_pause)}: expected 'keep' or 'abandon'.")
    if not isinstance(min_age, int | float) or not 0 <= min_age < float("inf"):
        raise OptionError(f"min_age={quoted(min_age)}: expected seconds, 0 or more.")
    repairer = Repairer(
        placeholder=placeholder,
        messages_key=messages_key,
        recover="required" if recover else False,
        reconcile=reconcile,
    )
    saver, address = checked_saver(saver, write=True), checked_address(config)
    base = StoredHistory.newest(saver, address, messages_key)
    versions = base.saved.checkpoint["channel_versions"]
    if messages_key not in versions:
        raise unknown_key_error(messages_key, versions)
    result = partial(ThreadRepair, address.thread_id, address.namespace, before=base.checkpoint_id)
    if reason := base.differs_from(address):
        return result("moved", reason)
    try:
        _check_asks(base, on_pause)
        _id_after(base)
        patch = plan_repair(base, base.messages() or [], repairer)
        _check_due(base, patch, min_age)
        check_safe(base, on_pause)
        patch, repaired = stage(base, patch, repairer)
        if not dry_run:
            _put(base, repaired, patch.messages)
    except Stopped as stop:
        return result(stop.outcome, stop.reason)
    if dry_run:
        return result("planned", patch=patch)
    return result("repaired", patch=patch, after=repaired.checkpoint["id"])


# --- plan --------------------------------------------------------------------------------


def plan_repair(base: StoredHistory, messages: list[BaseMessage], repairer: Repairer) -> Patch:
    """The repair of a history, with what the checkpoints of the thread recorded.

    Recovered results name the effects on other state keys, which are not restored.

    Args:
        base: The checkpoint that has the history.
        messages: The history.
        repairer: Has the options of the repair.

    Raises:
        EvidenceError: If the checkpointer raises.
    """
    reading = read_history(messages, ends_pauses=True)
    recovery = run_sync(
        recover_evidence(
            base.saver,
            Address.of(base.saved.config),
            reading.messages,
            reading.without_result if repairer.recover else (),
            messages_key=base.messages_key,
            required=True,
            # An API does not show the records of calls that run once.
            once=() if server_of(base.saver) else None,
        )
    )
    return run_sync(repairer.repair_with(recovery, reading, {}, restore=False)).patch


# --- check -------------------------------------------------------------------------------


def _check_asks(base: StoredHistory, on_pause: OnPause) -> None:
    """Check that nobody is asked anything, or that the pause is to be ended."""
    if on_pause == "keep" and base.activity() == "waiting":
        raise Stopped("paused", "it waits for a human: answer it, or abandon the pause")


def _check_due(base: StoredHistory, patch: Patch, min_age: float) -> None:
    """Check that there is something to repair, and that it may be written now."""
    if not changes_history(patch):
        ends = "it waits for a human, and nothing in it is damaged: the next message ends the pause"
        raise Stopped("paused", ends) if base.activity() else Stopped("healthy")
    since = age_of(base.written())
    if (age := max(0.0, since)) < min_age:
        ahead = f" (its time is {-since:.0f} s ahead of this machine's: one clock is wrong)"
        raise Stopped(
            "young",
            f"its newest checkpoint is {age:.0f} s old{ahead if since < -1 else ''} and a tool may "
            f"be running: wait until it is {min_age:.0f} s old, or lower the minimum age",
        )


def check_safe(base: StoredHistory, on_pause: OnPause) -> None:
    """Check that nothing depends on what only the graph of the application knows.

    Args:
        base: The checkpoint that has the damaged history.
        on_pause: As for `repair_thread`.

    Raises:
        Stopped: If it is not repaired.
    """
    if storage.accepted_input(base.saved) is not None:
        raise Refused(
            "a run was stopped before its first superstep: continue it with invoke(None) first"
        )
    if names := base.not_loaded:
        raise Refused(
            f"its state holds classes that were not loaded ({', '.join(names)}): allow them in the "
            f"serializer of the checkpointer (--trust {names[0]})"
        )
    if base.is_ambiguous():
        raise Refused(
            f"all messages of its DeltaChannel were removed once, which the reducer of LangGraph "
            f"before 1.2.24 ignores and others obey: {PATCHED}"
        )
    channels = {channel for _, channel, _ in base.saved.pending_writes or ()}
    if others := {*storage.state_keys(channels)} - {base.messages_key}:
        named = ", ".join(map(repr, sorted(others)))
        raise Refused(f"finished tasks wrote the state key {named}: {PATCHED} and restores that")
    is_over = ERROR in channels or base.interrupts()
    if on_pause == "keep" and base.starts_tasks() and not is_over:
        raise Stopped("paused", STOPPED_RUN)


STOPPED_RUN: Final = (
    f"a run of it was stopped without a recorded error, or it waits at a breakpoint, which only "
    f"its graph shows: {PATCHED}; or abandon the pause"
)
"""Why a history is left that nobody is asked about."""


# --- stage -------------------------------------------------------------------------------


def stage(base: StoredHistory, patch: Patch, repairer: Repairer) -> tuple[Patch, CheckpointTuple]:
    """The patch with what finished tasks wrote, and the checkpoint to write.

    Args:
        base: The checkpoint that is repaired.
        patch: The repair of its history.
        repairer: Has the options of the repair.

    Raises:
        Stopped: If it may not be written.
    """
    stored = patch.before
    messages = _committed(base, stored)
    ids = {message.id for message in messages}
    if lost := sum(message.id not in ids for message in stored):
        raise Refused(
            f"{lost} of its {len(stored)} messages would be lost: a finished node removes them"
        )
    if not are_equal(messages, stored):
        patch = _with_committed(patch, plan_repair(base, messages, repairer))
    return patch, _new_checkpoint(base, patch.messages)


def _committed(base: StoredHistory, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """A history with what finished tasks wrote to it.

    Args:
        base: The checkpoint.
        messages: Its history.

    Raises:
        Stopped: If a task that wrote something is not known, or LangGraph cannot apply the writes.
    """
    step = superstep_of(base.saved, base.messages_key)
    try:
        tasks = step.tasks
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(f"no graph fits it ({brief(error)}): {PATCHED}") from error
    others = {task.id: task for task in step.others}
    clients = [others.pop(storage.NO_TASK)] if storage.NO_TASK in others else []
    if any(storage.state_keys(channel for channel, _ in task.writes) for task in others.values()):
        raise Refused(f"the node of work that finished in this thread is not known; {PATCHED}")
    reducer = cast("Any", add_messages)  # it takes and returns more than lists
    channel = BinaryOperatorAggregate(list, reducer).from_checkpoint(list(messages))
    try:
        for task in (*clients, *tasks):
            channel.update(task.written_to(base.messages_key))
    except Exception as error:  # any: the reducer raises for what it cannot apply
        first = cut(str(error).partition("\n")[0])
        raise Refused(
            f"LangGraph cannot apply what its finished tasks wrote: {type(error).__name__}: "
            f"{first} But {PATCHED}"
        ) from error
    return list(channel.get())


def _with_committed(first: Patch, patch: Patch) -> Patch:
    """The repair of a history to which finished tasks wrote, as one of the history before that.

    Args:
        first: The repair of the history before.
        patch: The repair of the history with what they wrote.
    """
    ids = {message.id for message in first.before}
    written: defaultdict[tuple[str | None, str, str], list[ToolMessage]] = defaultdict(list)
    for paired in read_history(patch.before).paired_calls:
        if paired.real is not None and paired.real.message.id not in ids:
            key = paired.calling.message.id, paired.call.id, paired.call.name
            written[key].append(paired.real.message)
    kept = []
    for change in first.changes:
        if change.kind in ("inserted", "recovered"):
            key = first.before[change.index].id, change.tool_call_id, change.name or ""
            if written[key]:
                result = written[key].pop(0)
                kept.append(replace(change, kind="recovered", cause=None, after=result))
    return Patch(patch.messages, (*kept, *patch.changes), first.before)


def _new_checkpoint(base: StoredHistory, messages: Sequence[BaseMessage]) -> CheckpointTuple:
    """The checkpoint to write: the one that is repaired, with another history, without tasks.

    Args:
        base: The checkpoint that is repaired.
        messages: The repaired history.

    Raises:
        Stopped: If the history would not be read back as it is written.
    """
    key, saver, old = base.messages_key, base.saver, base.saved.checkpoint
    stored = saver.serde.loads_typed(saver.serde.dumps_typed(list(messages)))
    if not are_equal(stored, messages):
        raise Refused("its repaired history is not read back as it is written")
    values, versions = {**old["channel_values"]}, {**old["channel_versions"]}
    for channel in base.starting_channels():
        values.pop(channel)
        versions[channel] = saver.get_next_version(versions.get(channel), None)
    values[key] = list(messages)
    versions[key] = saver.get_next_version(versions.get(key), None)
    new: Checkpoint = {
        **old,
        "id": _id_after(base),
        "ts": datetime.now(UTC).isoformat(),
        "channel_values": values,
        "channel_versions": versions,
        "updated_channels": None,
    }
    saved = base.saved.metadata
    parents, step = saved.get("parents", {}), saved.get("step", -1) + 1
    counters = storage.counters_of(base.saved, key)
    metadata: Any = {"source": "update", "step": step, "parents": parents, **MARK, **counters}
    return base.saved._replace(checkpoint=new, metadata=metadata)


def _id_after(base: StoredHistory) -> str:
    """The id of a checkpoint directly behind another one, so that any later one hides it.

    Raises:
        Stopped: If there is none, because LangGraph did not make the id of the other one.
    """
    new = storage.later_checkpoint_id(base.checkpoint_id, 1)
    if new is None:
        raise Refused(
            f"the id of its newest checkpoint, {short(base.checkpoint_id, 100)}, is none of "
            f"LangGraph's, so no checkpoint can be written directly behind it; {PATCHED}"
        )
    return new


# --- put and read back -------------------------------------------------------------------


def _put(base: StoredHistory, repaired: CheckpointTuple, messages: Sequence[BaseMessage]) -> None:
    """Write the checkpoint, if nothing was written since the repair began, and read it back."""
    saver, checkpoint = base.saver, repaired.checkpoint
    address = Address.of(base.saved.config)
    if _identity(base) != _identity(StoredHistory.newest(saver, address)):
        raise Stopped("moved", _MOVED)
    old = base.saved.checkpoint["channel_versions"]
    new = {k: v for k, v in checkpoint["channel_versions"].items() if v != old.get(k)}
    with maybe_written(address, saver):
        saver.put(base.saved.config, checkpoint, repaired.metadata, new)
    with maybe_written(address):
        newest = StoredHistory.newest(saver, address, base.messages_key)
        if newest.checkpoint_id != checkpoint["id"]:
            raise Stopped("moved", _MOVED)
        if newest.starts_tasks() or not are_equal(newest.messages() or [], messages):
            address = replace(address, checkpoint_id=checkpoint["id"])
            store_of(saver).delete_checkpoint(saver, address)
            raise Refused("the database did not return what was written to it")


_MOVED = "something else wrote to it during the repair, and the other write wins: scan it again"


def _identity(base: StoredHistory) -> tuple[str, list[Any]]:
    """The id of a checkpoint, and the pending writes without their values, which may differ."""
    return base.checkpoint_id, [write[:2] for write in base.saved.pending_writes or ()]


WRITTEN: Final = "May have been written: thread "
"""How the note on an error begins that came behind the begin of a write."""


@contextmanager
def maybe_written(
    address: Address, saver: BaseCheckpointSaver[Any] | None = None
) -> Iterator[None]:
    """Note on each error that the thread may have been written before it.

    Args:
        address: What is written.
        saver: The checkpointer, if all that is done is one write: then some errors say that nothing
            was written. Default: None.
    """
    try:
        yield
    except Stopped:
        raise
    except BaseException as error:
        if not (saver and store_of(saver).is_undone(saver, error)):
            error.add_note(f"{WRITTEN}{address.thread_id!r}")
        raise
