"""What the functions for one thread take: a checkpointer, a graph or a server, and a config."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph_storage import (
    RUN_KEYS,
    is_reserved,
    subgraph_path,
    task_of_namespace,
)
from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.errors import GraphError, OptionError, ThreadError
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.server import Activity, LangGraphServer, server_of
from langgraph_patch.threads.stored import config_of, interrupts_of, starts_tasks


def opened(target: Any) -> tuple[BaseCheckpointSaver[Any], Any]:
    """The checkpointer of the threads, or the server, and the application's graph or None.

    Raises:
        GraphError: If `target` is none of these, or a graph without a checkpointer.
    """
    server = server_of(target)
    if server is not None:
        return server, None
    if isinstance(target, BaseCheckpointSaver):
        return target, None
    if not isinstance(target, CompiledStateGraph):
        raise GraphError(
            f"{target!r:.200} is a {type(target).__name__}: expected a checkpointer, the compiled "
            f"graph that your application runs with its checkpointer, or a client of a LangGraph "
            f"Server."
        )
    if not isinstance(target.checkpointer, BaseCheckpointSaver):
        raise GraphError(
            f"The graph {target.name!r} has no checkpointer: pass the checkpointer alone, or "
            f"graph.copy({{'checkpointer': ...}}), with the one that holds the thread."
        )
    return target.checkpointer, target


def subgraph_in(graph: Any, namespace: str) -> Any:
    """The graph that has the history of a namespace; None if no graph was passed.

    Raises:
        GraphError: If the graph has no such subgraph.
    """
    if graph is None or not namespace:
        return graph
    path = subgraph_path(namespace)
    for _, subgraph in graph.get_subgraphs(namespace=path, recurse=True):
        return subgraph
    names = [repr(name) for name, _ in graph.get_subgraphs(recurse=True)]
    raise GraphError(
        f"The graph has no subgraph {path!r}. Its subgraphs are: {', '.join(names) or 'none'}."
    )


def newest_config(config: RunnableConfig) -> RunnableConfig:
    """`config` for the newest checkpoint of its thread and namespace, without the keys of a run.

    Raises:
        ThreadError: If it names no thread, or a namespace that no later run reads.
    """
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping) or configurable.get("thread_id") is None:
        raise ThreadError(f"{config!r:.200} names no thread: expected configurable.thread_id.")
    namespace = str(configurable.get("checkpoint_ns") or "")
    if task_of_namespace(namespace) is not None:
        raise ThreadError(
            f"Namespace {namespace!r} belongs to one run of a node: no later run reads it, so "
            f"there is nothing to repair. Repair the root namespace of the thread."
        )
    # Other keys stay: some checkpointers need more than these two.
    lasting = {k: v for k, v in configurable.items() if k not in RUN_KEYS and not is_reserved(k)}
    lasting |= {"thread_id": str(configurable["thread_id"]), "checkpoint_ns": namespace}
    return {**config, "configurable": lasting}


def key_of(config: RunnableConfig) -> Key:
    """The thread and the namespace that a config of `newest_config` names."""
    configurable = config["configurable"]
    return Key(configurable["thread_id"], configurable["checkpoint_ns"])


def read_newest(saver: Any, config: RunnableConfig) -> IOGenerator[CheckpointTuple | None]:
    """The newest checkpoint; None if a thread of a server has never run.

    Raises:
        ThreadError: If there is no such thread.
        OptionError: If the checkpointer has only the other form, synchronous or asynchronous.
    """
    try:
        saved: CheckpointTuple | None = yield from call_method(saver, "get_tuple", config)
    except (NotImplementedError, asyncio.InvalidStateError) as error:
        if "serialization type" in str(error):
            raise  # LangGraph's serializer raises it for a row of a type that it does not know
        raise OptionError(
            f"{type(saver).__name__} has only the other form: call repair_thread and undo_repair "
            f"with a synchronous checkpointer, await arepair_thread and aundo_repair with an "
            f"asynchronous one."
        ) from error
    key = key_of(config)
    if saved is None and not (yield from may_be_empty(saver, key)):
        where = f" in namespace {key.namespace!r}" if key.namespace else ""
        raise ThreadError(f"There is no thread {key.thread_id!r}{where}.")
    return saved


def read_with_blocked(
    saver: Any, config: RunnableConfig
) -> IOGenerator[tuple[CheckpointTuple | None, list[str]]]:
    """The newest checkpoint, and the classes in it that LangGraph's serializer does not load."""
    events: list[Mapping[str, Any]] = []
    unregister = register_serde_event_listener(events.append)
    try:
        saved = yield from read_newest(saver, config)
    finally:
        unregister()
    blocked = {f"{e['module']}:{e['name']}" for e in events if e["kind"] == "msgpack_blocked"}
    return saved, sorted(blocked)


def may_be_empty(saver: Any, key: Key) -> IOGenerator[bool]:
    """Whether a thread without a checkpoint exists: on a server, it may never have run."""
    if not isinstance(saver, LangGraphServer):
        return False
    return (yield from saver.thread(key.thread_id)) is not None


def activity_of(saver: Any, saved: CheckpointTuple) -> IOGenerator[Activity | None]:
    """Whether a human may still answer or, on a server, a run is in progress; None if neither.

    Args:
        saver: The checkpointer.
        saved: The newest checkpoint of a history.
    """
    if isinstance(saver, LangGraphServer):
        return (yield from saver.activity(saved)) if starts_tasks(saved) else None
    interrupts = {*interrupts_of(saved)}
    named = saved.config["configurable"]
    if interrupts and named.get("checkpoint_ns"):
        # An answer comes through the root graph only. If that has moved on, none will come.
        root = yield from call_method(saver, "get_tuple", config_of(Key(named["thread_id"], "")))
        interrupts &= {*interrupts_of(root)} if root else set()
    return "waiting" if interrupts else None


def other_checkpoint(config: RunnableConfig, newest: str) -> str | None:
    """Why nothing is done, if a config names another checkpoint than the newest one."""
    expected = config["configurable"].get("checkpoint_id")
    if expected in (None, newest):
        return None
    return f"its newest checkpoint is {newest}, not {expected}"
