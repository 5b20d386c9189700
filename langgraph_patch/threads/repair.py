"""Repair one stored thread, or say why it is left as it is.

The repair of a thread in a checkpointer has five steps. Nothing is written before the last one.

1. Read the newest checkpoint, plan the repair of its history, and check that it may be written.
2. Stage: copy the checkpoint into an `InMemorySaver`, apply there what finished tasks wrote, and
   drop the tasks that did not finish, with `update_state(None, as_node=END)` of a graph.
3. Make one checkpoint of that, with the repaired history as the value of its state key.
4. Check that the graph reads this history from it, and would start no task.
5. Compare: is the checkpoint that was read still the newest? Then write the new one behind it.

The graph is the application's. Without it, it is one made for the purpose: it has the channels and
the nodes that the checkpoint names. It does not know the reducers of other state keys, nor the
breakpoints, so what depends on them is refused. `server_repair` has the steps for a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointTuple,
    empty_checkpoint,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.types import ERROR, TASKS
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from langgraph_patch._langgraph_storage import (
    ROOT_CHANNEL,
    accepted_input,
    is_delta_channel,
    is_reserved,
    joined_nodes,
    later_checkpoint_id,
    nodes_of_namespace,
    state_keys,
    subgraph_path,
    triggered_node,
)
from langgraph_patch._sansio import IOGenerator, asynchronous, call_method, synchronous
from langgraph_patch.errors import GraphError, PatchError, ThreadError, brief
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.abandoned import Abandoned
from langgraph_patch.graph.repairer import Repair, Repairer
from langgraph_patch.graph.state import listed, unknown_key_error
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.threads.keys import Key, delete_checkpoint
from langgraph_patch.threads.plan import (
    KILLED,
    MOVED,
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
from langgraph_patch.threads.stored import (
    MARK,
    are_same,
    config_of,
    count_missing,
    history_of,
    interrupts_of,
    starts_tasks,
)
from langgraph_patch.threads.target import (
    key_of,
    newest_config,
    opened,
    other_checkpoint,
    read_newest,
)
from langgraph_patch.threads.turns import lost_turns

_SUPERSTEPS = 5
"""How often tasks are dropped: what a finished task wrote may start others."""


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
        OptionError: If an option has an invalid value, or if the checkpointer has only the other
            form, synchronous or asynchronous.
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
        replace_foreign=replace_foreign,
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
    blocked: set[str] = set()
    with _recording_blocked_classes(blocked):
        base = yield from read_newest(saver, newest)
    if base is None:
        return ThreadRepair(*key, "healthy")
    before = base.checkpoint["id"]
    if reason := other_checkpoint(config, before):
        return ThreadRepair(*key, "moved", reason, before=before)
    try:
        if isinstance(saver, LangGraphServer):
            patch, after = yield from repair_on_server(saver, base, options)
        else:
            thread = _Thread(options, newest, saver, graph, base, sorted(blocked))
            patch, after = yield from _repair(thread)
    except Stopped as stop:
        return ThreadRepair(*key, stop.outcome, stop.reason, before=before)
    return ThreadRepair(*key, "repaired" if after else "planned", None, patch, before, after)


arepair_thread = asynchronous(repair_thread)
"""Repair a thread as `repair_thread` does, over an asynchronous checkpointer or client."""


@contextmanager
def _recording_blocked_classes(blocked: set[str]) -> Iterator[None]:
    """Add each class that LangGraph's serializer does not load to a set, as `module:Class`."""

    def record(event: Mapping[str, Any]) -> None:
        if event["kind"] == "msgpack_blocked":
            blocked.add(f"{event['module']}:{event['name']}")

    unregister = register_serde_event_listener(record)
    try:
        yield
    finally:
        unregister()


# --- the steps ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Thread:
    """A thread under repair.

    Attributes:
        options: The options of the repair.
        config: Names its newest checkpoint.
        saver: The checkpointer of the application.
        own_graph: The application's graph; None if it was not passed.
        base: The checkpoint that is repaired.
        blocked: The classes in it that were not loaded.
    """

    options: RepairOptions
    config: RunnableConfig
    saver: BaseCheckpointSaver[Any]
    own_graph: Any
    base: CheckpointTuple
    blocked: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where a repair is staged.

    Attributes:
        memory: Has the checkpoint that is repaired, and the new ones.
        graph: The application's graph or the one made for the purpose, over `memory`.
        channels: The channels of the graph, or of its subgraph, that has the history.
    """

    memory: InMemorySaver
    graph: Any
    channels: Mapping[str, Any]


def _repair(thread: _Thread) -> IOGenerator[tuple[Patch, str | None]]:
    """Returns the patch and the id of the checkpoint that has it; None for a dry run."""
    options, base = thread.options, thread.base
    # 1. Look.
    _next_id(base)
    target = _graph_of_history(thread)
    stored = yield from _history(thread.saver, base, options)
    activity = yield from _activity(thread, target)
    plan = yield from _plan(thread, target, stored, activity)
    check_due(base, plan.patch, options, activity)
    _check_graph(thread, target)

    # 2. Stage what finished tasks wrote: a repair that is written first would destroy it.
    stage = yield from _staged(thread, target)
    staged = yield from _commit_finished_work(thread, stage)
    committed = yield from _history(stage.memory, staged, options)
    lost = count_missing(stored, committed)
    if lost:
        raise Refused(
            f"{lost} of its {len(stored)} messages would be lost: a finished node removes or edits "
            f"them, or the graph is not the one that wrote this thread"
        )
    if not are_same(stored, committed):
        plan = yield from _plan(thread, target, committed, activity)

    # 3. and 4. Make the new checkpoint, and check it.
    repaired = yield from _repaired(thread, stage, staged, plan.patch, plan.restored)
    patch = with_committed(stored, committed, plan.patch)
    if options.dry_run:
        return patch, None
    # 5. Write it.
    yield from _write(thread, repaired, patch)
    return patch, repaired.checkpoint["id"]


def _plan(
    thread: _Thread, target: Any, messages: list[BaseMessage], activity: Activity | None
) -> IOGenerator[Repair]:
    """The repair of a history of the thread. A live pause keeps the turn that waits."""
    options, base = thread.options, thread.base
    turns: Sequence[Abandoned] = ()
    if options.repairer.recover and (activity is None or options.on_pause == "abandon"):
        key = options.messages_key
        turns = yield from lost_turns(thread.saver, base, messages, key, target)
    channels = None if target is None else target.channels
    plan = plan_repair(thread.saver, base.config, messages, options, channels=channels, turns=turns)
    return (yield from plan)


# --- look --------------------------------------------------------------------------------


def _next_id(base: CheckpointTuple) -> str:
    """The id of a checkpoint directly behind the base: a later one is never hidden by it.

    Raises:
        Stopped: If no id of LangGraph sorts after that of the base.
    """
    old = base.checkpoint["id"]
    new = later_checkpoint_id(old, 1) or empty_checkpoint()["id"]
    if new <= old:
        raise Refused(
            f"the id of its newest checkpoint, {old!r}, sorts after every id of LangGraph, so no "
            f"repair can become the newest one"
        )
    return new


def _history(
    saver: Any, saved: CheckpointTuple, options: RepairOptions
) -> IOGenerator[list[BaseMessage]]:
    return (yield from history_of(saver, saved, options.messages_key)) or []


def _graph_of_history(thread: _Thread) -> Any:
    """The application's graph, or its subgraph, that has the history; None if it is not passed.

    Raises:
        GraphError: If it has no such subgraph, or no such state key.
    """
    graph, messages_key = thread.own_graph, thread.options.messages_key
    namespace = key_of(thread.config).namespace
    known = thread.base.checkpoint["channel_versions"]
    if graph is not None and namespace:
        path = subgraph_path(namespace)
        graph = next((g for _, g in graph.get_subgraphs(namespace=path, recurse=True)), None)
        if graph is None:
            names = [repr(name) for name, _ in thread.own_graph.get_subgraphs(recurse=True)]
            raise GraphError(
                f"The graph has no subgraph {path!r}. Its subgraphs are: "
                f"{', '.join(names) or 'none'}."
            )
    if graph is not None:
        known = graph.channels
    if messages_key not in known:
        raise unknown_key_error(messages_key, known)
    return graph


def _activity(thread: _Thread, target: Any) -> IOGenerator[Activity | None]:
    """Whether the thread waits for a human, and the answer can still arrive."""
    interrupts = interrupts_of(thread.base)
    key = key_of(thread.config)
    if interrupts and key.namespace:
        # An answer comes through the root graph only. If that has moved on, none will come.
        root = yield from call_method(thread.saver, "get_tuple", config_of(Key(key.thread_id, "")))
        interrupts &= interrupts_of(root) if root else set()
    return "waiting" if interrupts or _is_at_breakpoint(target, thread.base) else None


def _is_at_breakpoint(target: Any, base: CheckpointTuple) -> bool:
    """Whether the application's graph was compiled to stop where the thread is."""
    if target is None or not _may_wait(base):
        return False
    before = target.interrupt_before_nodes
    return bool(
        target.interrupt_after_nodes
        or before == "*"
        or _nodes_of([base.checkpoint["channel_values"]]) & set(before)
    )


def _may_wait(base: CheckpointTuple) -> bool:
    """Whether tasks are due, and no recorded error says that a run has ended."""
    return starts_tasks(base) and not any(c == ERROR for _, c, _ in base.pending_writes or ())


def _check_graph(thread: _Thread, target: Any) -> None:
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
    if target is not None:
        lacking = _nodes_of([base.checkpoint["channel_values"]]) - {*target.nodes}
        if lacking and not options.force:
            raise Refused(
                f"the graph has no node {min(lacking)!r}, which comes next in this thread: repair "
                f"it with the graph that the application runs, or force the repair"
            )
        return
    if not isinstance(base.checkpoint["channel_values"].get(options.messages_key), list):
        raise Refused(_NEEDS_GRAPH.format("its history is in a DeltaChannel"))
    written = {channel for _, channel, _ in base.pending_writes or ()}
    others = {*state_keys(written)} - {options.messages_key}
    if others:
        named = ", ".join(map(repr, sorted(others)))
        raise Refused(_NEEDS_GRAPH.format(f"finished tasks wrote the state key {named}"))
    if options.on_pause == "keep" and _may_wait(base) and not interrupts_of(base):
        raise Stopped("paused", _NEEDS_GRAPH.format(_KILLED_OR_WAITS))


_NEEDS_GRAPH = "{}: repair it with the graph of the application (--graph)"
_KILLED_OR_WAITS = (
    "a run of it was stopped without a recorded error, or it waits at a breakpoint, which only "
    "the graph shows; or abandon the pause (on_pause='abandon')"
)


# --- stage -------------------------------------------------------------------------------


def _staged(thread: _Thread, target: Any) -> IOGenerator[_Stage]:
    """Copy the checkpoint and its pending writes into memory."""
    base, memory = thread.base, InMemorySaver(serde=thread.saver.serde)
    memory.get_next_version = thread.saver.get_next_version  # type: ignore[method-assign]
    values = dict(base.checkpoint["channel_values"])
    if target is not None:
        delta = [key for key, each in target.channels.items() if is_delta_channel(each)]
        if delta:  # the whole values: in the database they are spread over older checkpoints
            graph = thread.own_graph.copy({"checkpointer": thread.saver})
            state = yield from call_method(graph, "get_state", base.config)
            values |= {key: state.values[key] for key in delta if key in state.values}
    key = key_of(thread.config)
    versions = base.checkpoint["channel_versions"]
    copy: Checkpoint = {**base.checkpoint, "channel_values": values}
    memory.put(config_of(key), copy, base.metadata, versions)
    writes: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in base.pending_writes or ():
        writes.setdefault(task, []).append((channel, value))
    for task, own in writes.items():
        memory.put_writes(base.config, own, task)
    if target is not None:
        return _Stage(memory, thread.own_graph.copy({"checkpointer": memory}), target.channels)
    try:
        graph = _graph_like(base, thread.options.messages_key)
        channels = graph.compile().channels
        for node in reversed(nodes_of_namespace(key.namespace) if key.namespace else []):
            outer: StateGraph[Any] = StateGraph(dict)
            outer.add_node(node, graph.compile(checkpointer=True)).add_edge(START, node)
            graph = outer
        return _Stage(memory, graph.compile(checkpointer=memory), channels)
    except Exception as error:  # any: what is stored may name what no graph can have
        raise Refused(_NEEDS_GRAPH.format(f"no graph fits it ({brief(error)})")) from error


def _graph_like(base: CheckpointTuple, messages_key: str) -> StateGraph[Any]:
    """A graph with the channels and the nodes that a checkpoint names; the nodes do nothing."""
    checkpoint = base.checkpoint
    pending = {channel: value for _, channel, value in base.pending_writes or ()}
    names = {*checkpoint["channel_versions"], *checkpoint["channel_values"], *pending}
    history = Annotated[list[Any], add_messages]
    fields = {**dict.fromkeys(state_keys(names), Any), messages_key: history}
    schema: Any = TypedDict("State", fields)  # type: ignore[misc]  # its keys are stored
    builder: StateGraph[Any] = StateGraph(history if messages_key == ROOT_CHANNEL else schema)
    nodes = _nodes_of([checkpoint["channel_versions"], checkpoint["channel_values"], pending])
    nodes |= {node for node in checkpoint["versions_seen"] if not is_reserved(node)}
    for node in nodes or {"node"}:
        builder.add_node(node, lambda _: None).add_edge(START, node)
    for channel in names:
        if sources := joined_nodes(channel):
            builder.add_edge(sources, triggered_node(channel) or "")
    return builder


def _nodes_of(stored: Sequence[Mapping[str, Any]]) -> set[str]:
    """The nodes that channels and their values name."""
    nodes: set[str] = set()
    for channels in stored:
        for channel, value in channels.items():
            nodes |= {triggered_node(channel) or "", *joined_nodes(channel)}
            sends = listed(value) if channel == TASKS else []
            nodes |= {send.node for send in sends if isinstance(send, Send)}
    return nodes - {"", END}


def _commit_finished_work(thread: _Thread, stage: _Stage) -> IOGenerator[CheckpointTuple]:
    """Apply the writes of finished tasks, and drop the tasks that did not finish.

    Raises:
        Stopped: If the graph cannot, or would lose work.
    """
    config = thread.base.config
    try:
        state = yield from call_method(stage.graph, "get_state", config)
        _check_tasks(thread, {task.id for task in state.tasks})
        for _ in range(_SUPERSTEPS):
            config = yield from call_method(stage.graph, "update_state", config, None, as_node=END)
            state = yield from call_method(stage.graph, "get_state", config)
            if not state.next:
                saved = stage.memory.get_tuple(config)
                if saved is not None:
                    return saved
    except (Stopped, PatchError):
        raise
    except Exception as error:  # any: the graph runs the application's reducers
        first = str(error).partition("\n")[0][:200]
        raise Refused(
            f"the graph cannot apply what its finished tasks wrote: {type(error).__name__}: "
            f"{first} With with_patching, the next message repairs it"
        ) from error
    raise Refused("its graph starts new tasks whenever tasks are dropped")


def _check_tasks(thread: _Thread, tasks: set[str]) -> None:
    """Refuse if the graph lacks the node of a task that finished: its work would be lost."""
    for task, channel, _ in thread.base.pending_writes or ():
        if task not in tasks and state_keys([channel]):
            raise Refused(
                "the graph has no node for work that finished in this thread: is it the graph "
                "that the application runs?"
            )


# --- make the new checkpoint -------------------------------------------------------------


def _repaired(
    thread: _Thread,
    stage: _Stage,
    staged: CheckpointTuple,
    patch: Patch,
    restored: Sequence[tuple[str, Any]],
) -> IOGenerator[CheckpointTuple]:
    """The checkpoint that has the repaired history, checked."""
    base, messages_key = thread.base, thread.options.messages_key
    values = yield from _values(thread, stage, staged)
    versions = dict(staged.checkpoint["channel_versions"])
    values[messages_key] = list(patch.messages)
    for key in dict.fromkeys(key for key, _ in restored):
        channel = stage.channels[key]
        trial = channel.from_checkpoint(values[key]) if key in values else channel.copy()
        trial.update([value for name, value in restored if name == key])
        values[key] = trial.get() if is_delta_channel(channel) else trial.checkpoint()
    for key in {messages_key, *(key for key, _ in restored)}:
        versions[key] = thread.saver.get_next_version(versions.get(key), None)
    metadata: Any = {**staged.metadata, "step": base.metadata.get("step", -1) + 1, **MARK}
    repaired = staged._replace(
        checkpoint={
            **staged.checkpoint,
            "id": _next_id(base),
            "channel_values": values,
            "channel_versions": versions,
        },
        metadata=metadata,
    )
    yield from _check_staged(thread, stage, repaired, patch.messages)
    return repaired


def _values(thread: _Thread, stage: _Stage, staged: CheckpointTuple) -> IOGenerator[dict[str, Any]]:
    """The values of all channels: also of channels that the graph does not have.

    LangGraph keeps the versions of such channels, and drops their values.
    """
    stored = thread.base.checkpoint
    values = {
        key: value
        for key, value in stored["channel_values"].items()
        if key not in stage.channels and not is_reserved(key) and triggered_node(key) is None
    }
    values |= staged.checkpoint["channel_values"]
    delta = [key for key, channel in stage.channels.items() if is_delta_channel(channel)]
    if delta:
        state = yield from call_method(stage.graph, "get_state", staged.config)
        versions = staged.checkpoint["channel_versions"]
        for key in delta:
            if key in state.values and versions.get(key) != stored["channel_versions"].get(key):
                values[key] = state.values[key]
    return values


def _check_staged(
    thread: _Thread, stage: _Stage, repaired: CheckpointTuple, messages: list[BaseMessage]
) -> IOGenerator[None]:
    """Check that the graph reads the repaired history from the checkpoint, and starts no task."""
    config = stage.memory.put(
        thread.base.config,
        repaired.checkpoint,
        repaired.metadata,
        repaired.checkpoint["channel_versions"],
    )
    state = yield from call_method(stage.graph, "get_state", config)
    saved = stage.memory.get_tuple(config)
    read = [] if saved is None else (yield from _history(stage.memory, saved, thread.options))
    if state.next or not are_same(read, messages):
        raise Refused("the graph did not keep what was written to it")


# --- write -------------------------------------------------------------------------------


def _write(thread: _Thread, repaired: CheckpointTuple, patch: Patch) -> IOGenerator[None]:
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
    read = yield from _history(thread.saver, newest, thread.options)
    if starts_tasks(newest) or not are_same(read, patch.messages):
        yield from delete_checkpoint(thread.saver, key_of(thread.config), checkpoint["id"])
        raise Refused("the database did not return what was written to it")


def _identity(saved: CheckpointTuple | None) -> tuple[str, list[Any]] | None:
    """The id of a checkpoint, and the pending writes without their values, which may differ."""
    if saved is None:
        return None
    return saved.checkpoint["id"], [write[:2] for write in saved.pending_writes or ()]
