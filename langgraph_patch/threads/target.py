"""Which thread, which checkpointer, which graph: what a caller means by `graph` and `config`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph import checkpointer_of
from langgraph_patch.errors import GraphError, ThreadError
from langgraph_patch.threads.checkpoint_state import is_ephemeral

_OF_A_RUN = ("checkpoint_id", "checkpoint_map")


def saver_of(
    graph: Any, config: RunnableConfig, checkpointer: BaseCheckpointSaver[Any] | None
) -> BaseCheckpointSaver[Any]:
    """The checkpointer that holds the threads of a graph.

    Raises:
        GraphError: If it is no compiled graph, or has no checkpointer.
    """
    if not isinstance(graph, CompiledStateGraph):
        raise GraphError(
            f"{graph!r:.200} is a {type(graph).__name__}: expected the compiled graph that your "
            f"application runs (what `compile()`, `create_agent` or `create_react_agent` returns)."
        )
    saver: Any = checkpointer if checkpointer is not None else checkpointer_of(config)
    if saver is None:
        saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        raise GraphError(
            f"The graph {graph.name!r} has no checkpointer: give the one that holds the thread "
            f"with checkpointer=..."
        )
    return saver


def place_of(config: RunnableConfig) -> RunnableConfig:
    """`config` at the newest checkpoint, without what belongs to a run.

    Raises:
        ThreadError: If it names no thread, or what no later run can read.
    """
    given = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(given, Mapping) or given.get("thread_id") is None:
        raise ThreadError(f"{config!r:.200} names no thread: expected configurable.thread_id.")
    namespace = str(given.get("checkpoint_ns") or "")
    if is_ephemeral(namespace):
        raise ThreadError(
            f"Namespace {namespace!r} belongs to one run of a node: no later run reads it, so "
            f"there is nothing to repair. Repair the thread's root."
        )
    own = {k: v for k, v in given.items() if not k.startswith("__") and k not in _OF_A_RUN}
    place = {**own, "thread_id": str(given["thread_id"]), "checkpoint_ns": namespace}
    return {**config, "configurable": place}


def graph_at(graph: Any, namespace: str) -> Any:
    """The graph whose history a namespace holds.

    Raises:
        GraphError: If there is none.
    """
    if not namespace:
        return graph
    path = "|".join(part for part in namespace.split("|") if not part.isdigit())
    for _, found in graph.get_subgraphs(namespace=path, recurse=True):
        return found
    known = ", ".join(repr(n) for n, _ in graph.get_subgraphs(recurse=True)) or "none"
    raise GraphError(f"The graph has no subgraph {path!r}. Its subgraphs are: {known}.")


def writers(graph: Any) -> Iterator[str]:
    """The nodes as which an update can be written, those without routers first."""
    branches = graph.builder.branches
    yield from sorted(graph.nodes, key=lambda node: (bool(branches.get(node)), node != START))
