"""Repair one stored thread, or say why it is left as it is.

The repair of a thread in a checkpointer has four steps. Nothing is written before the last one.

1. Read the newest checkpoint, plan the repair of its history, and check that it may be written.
2. Stage it in memory, with what finished tasks wrote: a repair that is written first would destroy
   that (`staging`).
3. Make one checkpoint of it, with the repaired history and without tasks, and check that one.
4. Compare: is the checkpoint that was read still the newest? Then write the new one behind it, and
   read it back.

The reducers and the breakpoints are those of the application's graph. Without it, what depends on
them is refused. `server_repair` has the steps for a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, TASKS
from langgraph.types import Send

from langgraph_patch._langgraph_storage import (
    accepted_input,
    due_channels,
    state_keys,
    triggered_node,
)
from langgraph_patch._sansio import IOGenerator, asynchronous, call_method, synchronous
from langgraph_patch.errors import ThreadError
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.repairer import Repair, Repairer
from langgraph_patch.graph.state import unknown_key_error
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.threads.keys import delete_checkpoint
from langgraph_patch.threads.plan import (
    KILLED,
    MOVED,
    NEEDS_GRAPH,
    OnPause,
    Refused,
    RepairOptions,
    Stopped,
    check_due,
    plan_repair,
    with_committed,
)
from langgraph_patch.threads.reports import ThreadRepair
from langgraph_patch.threads.server import Activity, LangGraphServer
from langgraph_patch.threads.server_repair import repair_on_server
from langgraph_patch.threads.staging import finished_work, id_after, new_checkpoint, staged
from langgraph_patch.threads.stored import (
    are_same,
    history_of,
    interrupts_of,
    starts_tasks,
)
from langgraph_patch.threads.target import (
    activity_of,
    key_of,
    newest_config,
    opened,
    other_checkpoint,
    read_newest,
    read_with_blocked,
    subgraph_in,
)

# --- repair ------------------------------------------------------------------------------


@synchronous
def repair_thread(
    target: Any,
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
    replace_foreign: bool = False,
) -> IOGenerator[ThreadRepair]:
    """Repair the tool-call history of one stored thread, so that it accepts its next message.

    Nothing is written if the thread is healthy, if it waits for a human, if it is too young, or
    if the repair would not be safe. The result says so. The checkpoint before the repair stays,
    as the parent of the new one, which has `{"langgraph_patch": "repair"}` in its metadata:
    `saver.list(None, filter={"langgraph_patch": "repair"})` lists all repairs. `arepair_thread` is
    the asynchronous form.

    Args:
        target: The checkpointer that holds the thread. Or the compiled graph that the application
            runs, with that checkpointer: it is needed for a state with a `DeltaChannel`, if
            finished tasks wrote other state keys, and to know whether a thread without a recorded
            error waits at a breakpoint; the reason of a refused repair says so. Or the client of a
            LangGraph Server (`langgraph_sdk.get_sync_client`), or a `LangGraphServer`.
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

    Returns:
        What was done, or why nothing was done.

    Raises:
        ThreadError: If there is no such thread, if the namespace belongs to one run of a node, if
            the checkpoint cannot be read, or if a LangGraph Server cannot be reached.
        GraphError: If `target` is none of these, or is a graph without a checkpointer, or if
            there is no such subgraph or state key.
        OptionError: If an option has an invalid value.
        MessagesError: If the value of `messages_key` is not a list of messages.
        EvidenceError: If the checkpointer fails while older checkpoints are searched.
        Exception: What a `placeholder` callable or the checkpointer raises.

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
    options = RepairOptions(
        repairer=repairer, on_pause=on_pause, min_age=min_age, force=force, dry_run=dry_run
    )
    saver, graph = opened(target)
    newest = newest_config(config)
    key = key_of(newest)
    if isinstance(saver, LangGraphServer) and key.namespace:
        raise ThreadError(
            f"The API of LangGraph Server cannot write the history of the subgraph "
            f"{key.namespace!r} alone: repair it with the checkpointer of the server."
        )
    base, blocked = yield from read_with_blocked(saver, newest)
    if base is None:
        return ThreadRepair(*key, "healthy")
    before = base.checkpoint["id"]
    if reason := other_checkpoint(config, before):
        return ThreadRepair(*key, "moved", reason, before=before)
    try:
        if isinstance(saver, LangGraphServer):
            patch, after = yield from repair_on_server(saver, base, options)
        else:
            own = subgraph_in(graph, key.namespace)
            thread = _Thread(options, newest, saver, graph, own, base, blocked)
            patch, after = yield from _repair(thread)
    except Stopped as stop:
        return ThreadRepair(*key, stop.outcome, stop.reason, before=before)
    return ThreadRepair(*key, "repaired" if after else "planned", None, patch, before, after)


arepair_thread = asynchronous(repair_thread)
"""Repair a thread as `repair_thread` does, over an asynchronous checkpointer or client."""


# --- the steps ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread under repair.

    Attributes:
        options: The options of the repair.
        config: Names its newest checkpoint.
        saver: The checkpointer of the application.
        own_graph: The application's graph; None if it was not passed.
        graph: This graph, or its subgraph, that has the history; None if it was not passed.
        base: The checkpoint that is repaired.
        blocked: The classes in it that were not loaded.
    """

    options: RepairOptions
    config: RunnableConfig
    saver: BaseCheckpointSaver[Any]
    own_graph: Any
    graph: Any
    base: CheckpointTuple
    blocked: Sequence[str]

    @property
    def next_nodes(self) -> set[str]:
        """The nodes that come next."""
        values = self.base.checkpoint["channel_values"]
        nodes = {triggered_node(channel) or "" for channel in due_channels(values)} - {""}
        sends = values.get(TASKS) or ()
        return {*nodes, *(send.node for send in sends if isinstance(send, Send))}

    @property
    def may_wait(self) -> bool:
        """Whether tasks are due, and no recorded error says that a run has ended."""
        writes = self.base.pending_writes or ()
        return starts_tasks(self.base) and not any(c == ERROR for _, c, _ in writes)

    def history(self, saved: CheckpointTuple) -> IOGenerator[list[BaseMessage]]:
        """The history of a checkpoint of the thread."""
        return (yield from history_of(self.saver, saved, self.options.messages_key)) or []


def _repair(thread: _Thread) -> IOGenerator[tuple[Patch, str | None]]:
    """Returns the patch and the id of the checkpoint that has it; None for a dry run."""
    options, base, key = thread.options, thread.base, thread.options.messages_key
    # 1. Look.
    id_after(base)
    _check_key(thread)
    stored = yield from thread.history(base)
    activity = yield from _activity(thread)
    plan = yield from _plan(thread, stored, activity)
    check_due(base, plan.patch, options, activity)
    _check_graph(thread)

    # 2. Stage what finished tasks wrote.
    stage = yield from staged(thread.saver, base, key, thread.own_graph, thread.graph)
    finished = yield from finished_work(stage)
    history = stage.history(finished)
    ids = {message.id for message in history}
    if lost := sum(message.id not in ids for message in stored):
        raise Refused(
            f"{lost} of its {len(stored)} messages would be lost: a finished node removes them, or "
            f"the graph is not the one that wrote this thread"
        )
    patch = plan.patch
    if not are_same(history, stored):
        plan = yield from _plan(thread, history, activity)
        patch = with_committed(patch, plan.patch)

    # 3. Make the new checkpoint, and check it.
    repaired = yield from new_checkpoint(stage, finished, plan.patch.messages, plan.restored)
    if options.dry_run:
        return patch, None
    # 4. Write it.
    yield from _write(thread, repaired, plan.patch.messages)
    return patch, repaired.checkpoint["id"]


def _plan(
    thread: _Thread, messages: list[BaseMessage], activity: Activity | None
) -> IOGenerator[Repair]:
    """The repair of a history of the thread. A live pause keeps the turn that waits."""
    options, base, graph = thread.options, thread.base, thread.graph
    channels = None if graph is None else graph.channels
    plan = plan_repair(thread.saver, base.config, messages, options, channels=channels)
    return (yield from plan)


# --- look --------------------------------------------------------------------------------


def _check_key(thread: _Thread) -> None:
    """Check that the state has the key of the history.

    Raises:
        GraphError: If it has no such key.
    """
    graph, key = thread.graph, thread.options.messages_key
    known = thread.base.checkpoint["channel_versions"] if graph is None else graph.channels
    if key not in known:
        raise unknown_key_error(key, known)


def _activity(thread: _Thread) -> IOGenerator[Activity | None]:
    """Whether the thread waits for a human: for an answer, or where its graph stops."""
    activity = yield from activity_of(thread.saver, thread.base)
    if activity or thread.graph is None or not thread.may_wait:
        return activity
    before, after = thread.graph.interrupt_before_nodes, thread.graph.interrupt_after_nodes
    is_breakpoint = after or before == "*" or thread.next_nodes & set(before)
    return "waiting" if is_breakpoint else None


def _check_graph(thread: _Thread) -> None:
    """Check that nothing depends on what the graph does not know.

    Raises:
        Stopped: If something does.
    """
    options, base = thread.options, thread.base
    if accepted_input(base) is not None:
        raise Refused(KILLED)
    if thread.blocked:
        names = ", ".join(thread.blocked)
        raise Refused(
            f"its state holds classes that were not loaded ({names}): allow them in the serializer "
            f"of the checkpointer (--trust {thread.blocked[0]})"
        )
    if thread.graph is not None:
        lacking = thread.next_nodes - {*thread.graph.nodes}
        if lacking and not options.force:
            raise Refused(
                f"the graph has no node {min(lacking)!r}, which comes next in this thread: repair "
                f"it with the graph that the application runs, or force the repair"
            )
        return
    if not isinstance(base.checkpoint["channel_values"].get(options.messages_key), list):
        raise Refused(NEEDS_GRAPH.format("its history is in a DeltaChannel"))
    written = {channel for _, channel, _ in base.pending_writes or ()}
    others = {*state_keys(written)} - {options.messages_key}
    if others:
        named = ", ".join(map(repr, sorted(others)))
        raise Refused(NEEDS_GRAPH.format(f"finished tasks wrote the state key {named}"))
    if options.on_pause == "keep" and thread.may_wait and not interrupts_of(base):
        raise Stopped("paused", NEEDS_GRAPH.format(_KILLED_OR_WAITS))


_KILLED_OR_WAITS = (
    "a run of it was stopped without a recorded error, or it waits at a breakpoint, which only "
    "the graph shows; or abandon the pause (on_pause='abandon')"
)


# --- write -------------------------------------------------------------------------------


def _write(
    thread: _Thread, repaired: CheckpointTuple, messages: Sequence[BaseMessage]
) -> IOGenerator[None]:
    """Write the checkpoint, if nothing was written since the repair began, and read it back."""
    base, checkpoint = thread.base, repaired.checkpoint
    if _identity(base) != _identity((yield from read_newest(thread.saver, thread.config))):
        raise Stopped("moved", MOVED)
    old = base.checkpoint["channel_versions"]
    new = {k: v for k, v in checkpoint["channel_versions"].items() if v != old.get(k)}
    yield from call_method(thread.saver, "put", base.config, checkpoint, repaired.metadata, new)
    newest = yield from read_newest(thread.saver, thread.config)
    if newest is None or newest.checkpoint["id"] != checkpoint["id"]:
        raise Stopped("moved", MOVED)
    read = yield from thread.history(newest)
    if starts_tasks(newest) or not are_same(read, messages):
        yield from delete_checkpoint(thread.saver, key_of(thread.config), checkpoint["id"])
        raise Refused("the database did not return what was written to it")


def _identity(saved: CheckpointTuple | None) -> tuple[str, list[Any]] | None:
    """The id of a checkpoint, and the pending writes without their values, which may differ."""
    if saved is None:
        return None
    return saved.checkpoint["id"], [write[:2] for write in saved.pending_writes or ()]
