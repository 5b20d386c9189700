"""Find the checkpointer, the checkpoint and the graph that a caller means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint
from langgraph.graph import START
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph import checkpointer_of
from langgraph_patch._langgraph_graphs import has_routers
from langgraph_patch._langgraph_storage import (
    RUN_KEYS,
    is_reserved,
    state_keys,
    subgraph_path,
    task_of_namespace,
)
from langgraph_patch.errors import GraphError, OptionError, ThreadError


def find_checkpointer(
    graph: Any, config: RunnableConfig, checkpointer: BaseCheckpointSaver[Any] | None
) -> BaseCheckpointSaver[Any]:
    """The checkpointer that holds the threads: `checkpointer`, that of `config`, or the graph's.

    Raises:
        GraphError: If `graph` is not a compiled graph, or if there is no checkpointer.
        OptionError: If `checkpointer` is not a checkpointer.
    """
    if not isinstance(graph, CompiledStateGraph):
        raise GraphError(
            f"{graph!r:.200} is a {type(graph).__name__}: expected the compiled graph that your "
            f"application runs (what `compile()`, `create_agent` or `create_react_agent` returns)."
        )
    if checkpointer is not None and not isinstance(checkpointer, BaseCheckpointSaver):
        raise OptionError(f"checkpointer={checkpointer!r:.200}: expected a BaseCheckpointSaver.")
    saver: Any = checkpointer if checkpointer is not None else checkpointer_of(config)
    if saver is None:
        saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        raise GraphError(
            f"The graph {graph.name!r} has no checkpointer: pass the one that holds the thread "
            f"as checkpointer=..."
        )
    return saver


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
    lasting = {
        key: value
        for key, value in configurable.items()
        if key not in RUN_KEYS and not is_reserved(key)
    }
    lasting |= {"thread_id": str(configurable["thread_id"]), "checkpoint_ns": namespace}
    return {**config, "configurable": lasting}


def graph_of_namespace(graph: Any, namespace: str) -> Any:
    """The graph that the history of a namespace belongs to: `graph` or one of its subgraphs.

    Raises:
        GraphError: If there is none.
    """
    if not namespace:
        return graph
    path = subgraph_path(namespace)
    for _, found in graph.get_subgraphs(namespace=path, recurse=True):
        return found
    names = ", ".join(repr(n) for n, _ in graph.get_subgraphs(recurse=True)) or "none"
    raise GraphError(f"The graph has no subgraph {path!r}. Its subgraphs are: {names}.")


def graph_mismatch(graph: Any, checkpoint: Checkpoint, messages_key: str) -> str | None:
    """Why `graph` is probably not the graph that wrote a checkpoint; None if it may be.

    An application may drop a node or a state key and keep its threads. So a graph is a wrong one
    only if it has none of the nodes that ran, or none of the state keys beside the history.

    Args:
        graph: The compiled graph.
        checkpoint: The checkpoint.
        messages_key: The state key of the history.
    """
    ran = {node for node in checkpoint["versions_seen"] if not is_reserved(node)}
    keys = {*state_keys(checkpoint["channel_versions"])} - {messages_key}
    for what, stored, known in (
        ("nodes", ran, {node for node in graph.nodes if not is_reserved(node)}),
        ("state keys", keys, {*state_keys(graph.channels)}),
    ):
        if stored and not stored & known:
            return (
                f"the graph is not the one that wrote this thread: its {what} are "
                f"{_listed(known)}, and the thread has {_listed(stored)}; repair it through the "
                f"graph that the application runs, or force the repair"
            )
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"


def writing_nodes(graph: Any) -> list[str]:
    """The nodes as which an update can be written, those without conditional edges first."""
    return sorted(graph.nodes, key=lambda node: (has_routers(graph, node), node != START))
