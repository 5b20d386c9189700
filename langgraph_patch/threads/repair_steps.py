"""The steps of a thread repair; `repair.py` calls them in order.

A step reads and writes through a copy of the application's graph over a `StagingSaver`. So the
graph's own reducers make the new checkpoints, and nothing reaches the database before
`StagingSaver.commit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START
from langgraph.types import Command

from langgraph_patch._langgraph_storage import (
    ROOT_CHANNEL,
    accepted_input,
    is_delta_channel,
    is_reserved,
)
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import PatchError, brief
from langgraph_patch.evidence.effects import StateWrites, settle
from langgraph_patch.evidence.reconcile import reconcile_calls
from langgraph_patch.graph.repairer import Repair
from langgraph_patch.history.damaged_fields import corrected, id_of
from langgraph_patch.history.pairing import Reading, read_history
from langgraph_patch.history.patch import as_messages, patch_reading
from langgraph_patch.history.repair import Change, dangling_calls
from langgraph_patch.history.texts import Evidence
from langgraph_patch.threads.checkpoint_state import waiting_tasks
from langgraph_patch.threads.message_equality import are_same, count_missing, without_ids
from langgraph_patch.threads.open_thread import OpenThread, written_channels
from langgraph_patch.threads.recorded import find_recorded
from langgraph_patch.threads.state_update import Writes, writes_for
from langgraph_patch.threads.target import writing_nodes


class RefusedError(Exception):
    """Why a repair is not written. `repair.py` makes an outcome of it."""


# --- look --------------------------------------------------------------------------------


def staged_state(thread: OpenThread, config: RunnableConfig | None = None) -> IOGenerator[Any]:
    """The state as the application's graph reads it; by default the newest one."""
    return _call_graph(thread, "get_state", config or thread.config)


def _call_graph(thread: OpenThread, method: str, *args: Any, **kwargs: Any) -> IOGenerator[Any]:
    """Call the staged graph.

    Raises:
        RefusedError: If the application's code fails. What the database raises stays as it is.
    """
    try:
        return (yield from call_method(thread.staged_graph, method, *args, **kwargs))
    except Exception as error:  # any: the graph runs the application's reducers and routers
        if isinstance(error, PatchError) or thread.staging.has_raised(error):
            raise
        raise RefusedError(f"the graph cannot read it: {brief(error)}") from error


def messages_of(thread: OpenThread, state: Any) -> list[BaseMessage]:
    """The history in a state that the graph read."""
    messages_key = thread.options.messages_key
    if messages_key == ROOT_CHANNEL:
        return as_messages(state.values)
    return as_messages(state.values.get(messages_key) or [])


def read(thread: OpenThread, messages: list[BaseMessage]) -> Reading:
    """Pair the tool calls and the results of a history."""
    return read_history(messages, replace_foreign=thread.options.replace_foreign)


def plan_repair(thread: OpenThread, reading: Reading) -> IOGenerator[Repair]:
    """The repair of a history, with what the checkpoints of the thread recorded."""
    options = thread.options
    evidence: Evidence = {}
    restored: StateWrites = ()
    if options.recover:
        recovery = yield from find_recorded(
            thread.saver,
            thread.base.config,
            reading,
            options.messages_key,
        )
        evidence, restored = settle(
            recovery.evidence,
            recovery.effects,
            restore=True,
            own_keys={options.messages_key},
            channels=thread.target.channels,
        )
    if options.reconcile:
        answers = yield from reconcile_calls(dangling_calls(reading, evidence), options.reconcile)
        evidence = {**evidence, **answers}
    patch = patch_reading(reading, placeholder=options.placeholder, evidence=evidence)
    return Repair(patch, restored)


def is_waiting(thread: OpenThread, live: Any) -> IOGenerator[bool]:
    """Whether the thread waits for a human, and the answer can still arrive.

    Args:
        thread: The thread.
        live: Its newest state, with the pending writes of finished tasks.
    """
    interrupts = {interrupt.id for interrupt in live.interrupts}
    if interrupts and thread.key.namespace:
        # An answer comes through the root graph only. If that has moved on, none will come.
        root_config: RunnableConfig = {"configurable": {"thread_id": thread.key.thread_id}}
        root = yield from staged_state(thread, root_config)
        interrupts &= {interrupt.id for interrupt in root.interrupts}
    return bool(interrupts) or _is_at_breakpoint(thread.target, live)


def _is_at_breakpoint(graph: Any, live: Any) -> bool:
    """Whether the graph was compiled to stop where the thread is."""
    if not live.next or any(task.error for task in live.tasks):
        return False
    before = graph.interrupt_before_nodes
    if graph.interrupt_after_nodes or before == "*":
        return True
    return any(node in before for node in live.next)


# --- stage -------------------------------------------------------------------------------


def commit_finished_work(thread: OpenThread, before: Reading, live: Any) -> IOGenerator[Reading]:
    """Apply the writes of finished tasks, and drop the tasks that did not finish.

    Args:
        thread: The thread.
        before: The history as it is stored.
        live: The state with the pending writes of finished tasks.

    Returns:
        The history after these writes: `before` itself if they do not change it.

    Raises:
        RefusedError: If work or messages would be lost.
    """
    _check_tasks(thread, live)
    if START in live.next:
        yield from _commit_input(thread)
    yield from _update(thread, None, END)
    committed = messages_of(thread, (yield from staged_state(thread)))
    after = before if are_same(committed, before.messages) else read(thread, committed)
    _check_nothing_lost(before, messages_of(thread, live), after)
    return after


def _check_tasks(thread: OpenThread, live: Any) -> None:
    """Refuse if the graph lacks the node of a task that finished or waits: its work is lost."""
    tasks = {task.id for task in live.tasks}
    for task, channel in written_channels(thread.base):
        if task not in tasks and channel in thread.target.channels and not is_reserved(channel):
            raise RefusedError(_NO_NODE.format("work that finished in this thread"))
    if thread.options.on_pause == "keep" and not tasks.issuperset(waiting_tasks(thread.base)):
        raise RefusedError(_NO_NODE.format("what waits for a human in this thread"))


_NO_NODE = "the graph has no node for {}: is it the graph that the application runs?"


def _commit_input(thread: OpenThread) -> IOGenerator[None]:
    """Apply the input of a run that was killed before its first superstep."""
    if any(map(is_delta_channel, thread.target.channels.values())):
        # Such a channel would not receive the input, and the message would be lost.
        raise RefusedError(
            "a run was killed before its first superstep: continue it with invoke(None) first"
        )
    yield from _update(thread, accepted_input(thread.base), START)


def _check_nothing_lost(before: Reading, live: Sequence[BaseMessage], after: Reading) -> None:
    """Refuse if committing the finished work removed a message or a result."""
    ids = {id_of(message) for message in before.messages}
    # A result gets its id when it is committed, and so does a message written as dict or tuple.
    new = [m for m in live if id_of(m) not in ids and not isinstance(m, ToolMessage)]
    lost = count_missing(before.messages, after.messages)
    lost += count_missing(without_ids(new), without_ids(after.messages))
    if lost or len(after.unanswered) > len(before.unanswered):
        raise RefusedError(
            f"{lost} of its {len(before.messages) + len(new)} messages would be lost: a finished "
            f"node removes or edits them, or the graph is not the one that wrote this thread"
        )


def stage_repair(thread: OpenThread, repair: Repair) -> IOGenerator[None]:
    """Write the repair as a node: the first one for which the graph accepts it.

    Raises:
        RefusedError: If the reducer or every node prevents it.
    """
    messages_key, patch = thread.options.messages_key, repair.patch
    writes: Writes | None = writes_for(thread.channel, patch.before, patch.messages)
    if writes is None:
        raise RefusedError(f"the reducer of {messages_key!r} accepts no form of the repair")
    messages = [(messages_key, write) for write in writes]
    update: Command[Any] = Command(update=[*messages, *repair.restored])
    failed: Exception | None = None
    for node in writing_nodes(thread.target):
        mark = thread.staging.mark()
        try:
            old = yield from _versions(thread)
            yield from _update(thread, update, node)
            new = yield from _versions(thread)
            state = yield from staged_state(thread)
            is_whole = all(new.get(key) != old.get(key) for key, _ in repair.restored)
            if is_whole and are_same(messages_of(thread, state), patch.messages):
                return
        except (RefusedError, PatchError) as error:
            failed = error
        thread.staging.rewind(mark)
    raise RefusedError("no node of the graph can write the repair") from failed


def _versions(thread: OpenThread) -> IOGenerator[Mapping[str, Any]]:
    """The version of each channel in the newest staged checkpoint."""
    saved = yield from call_method(thread.staging, "get_tuple", thread.config)
    return saved.checkpoint["channel_versions"] if saved is not None else {}


def staged_delta_values(thread: OpenThread) -> IOGenerator[dict[str, Any]]:
    """The values of the `DeltaChannel` state that was written since the base."""
    before = thread.base.checkpoint["channel_versions"]
    after = yield from _versions(thread)
    state = yield from staged_state(thread)
    return {
        key: state.values[key]
        for key, channel in thread.target.channels.items()
        if is_delta_channel(channel) and key in state.values and after.get(key) != before.get(key)
    }


def drop_next_tasks(thread: OpenThread) -> IOGenerator[None]:
    """Drop the tasks that the node of the last write would start."""
    if (yield from staged_state(thread)).next:
        yield from _update(thread, None, END)


def _update(thread: OpenThread, values: Any, node: str) -> IOGenerator[None]:
    yield from _call_graph(thread, "update_state", thread.config, values, as_node=node)


# --- check -------------------------------------------------------------------------------


def check_staged_state(thread: OpenThread, wanted: list[BaseMessage]) -> IOGenerator[None]:
    """Check that the staged state starts no task and holds the repaired history.

    Raises:
        RefusedError: If not.
    """
    state = yield from staged_state(thread)
    if state.next or not are_same(messages_of(thread, state), wanted):
        raise RefusedError("the graph did not keep what was written to it")


def committed_results(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage]
) -> Iterator[Change]:
    """The changes that committing finished tasks made: one for each result that they recorded."""
    ids = {message.id for message in before}
    calls = {
        call["id"]: (index, call["name"])
        for index, message in enumerate(map(corrected, before))
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    for message in after:
        if isinstance(message, ToolMessage) and message.id not in ids:
            index, name = calls.get(message.tool_call_id, (len(before), message.name))
            yield Change(
                "recovered", "dangling", index, message.tool_call_id, name, None, None, message
            )
