"""Decide which nodes of a graph are covered, and how: a pure function of the graph.

The input of each node is repaired. Nothing in a graph shows whether a node is a model, or a gate, a
logger or a hub that stands between a model and its tools. So tool calls at the end of the history
stay open before a node: its tools may come next. They get placeholders if a model that the node
asks is refused, and before the first request where no call can be alive: before a node that the
application names as a model, and one that itself ends every open call, or fails. Nothing is
repaired around a `ToolNode` or a `PatchNode`.

A compiled graph that is a node has a START of its own. But what that adds to the history would be
appended to the history of the parent, behind newer messages. So its input is repaired before it
runs, as that of any other node, and the repair is written with its output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import Runnable, RunnableWithFallbacks
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch._langgraph.nodes import ends_calls, tool_node_in, wrapped
from langgraph_patch.repairing.entry import RepairNode


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredNode:
    """A node of a graph, or of a graph inside it, and how it is covered.

    Attributes:
        graph: The graph that it is in.
        runnable: Its runnable.
        tool_node: The `ToolNode` that this is, or that it was made of.
        keys: The state keys that it reads as histories.
        is_model: Whether no call at the end of its history is alive: they are closed before it.
    """

    graph: Graph
    runnable: Any
    tool_node: ToolNode | None
    keys: AbstractSet[str]
    is_model: bool

    @property
    def is_graph(self) -> bool:
        """Whether it is a compiled graph, which is patched inside."""
        return isinstance(self.runnable, CompiledStateGraph)

    @property
    def may_call_a_model(self) -> bool:
        """Whether `model_node` may name it."""
        return self.tool_node is None and not isinstance(
            self.runnable, CompiledStateGraph | RepairNode
        )


def cover(
    graph: Graph, keys: AbstractSet[str], model_nodes: AbstractSet[str], prefix: str = ""
) -> dict[str, CoveredNode]:
    """Decide how each node of a graph is covered.

    Args:
        graph: The graph.
        keys: The state keys of the histories.
        model_nodes: The names that the application gave, plain or as paths with dots.
        prefix: The path of the graph, with a dot. Default: `""`.

    Returns:
        The nodes by their paths: the name, after the names of the graphs that it is in, joined by
        dots.
    """
    nodes: dict[str, CoveredNode] = {}
    for name, runnable in graph.runnables.items():
        path = prefix + name
        tool_node = tool_node_in(runnable)
        read = keys & set(graph.input_of(name)[1])
        if tool_node is not None or isinstance(runnable, RepairNode):
            read = set()
        if isinstance(runnable, CompiledStateGraph):
            read &= set(Graph(runnable.builder).channels)
        nodes[path] = CoveredNode(
            graph=graph,
            runnable=runnable,
            tool_node=tool_node,
            keys=read,
            is_model=not model_nodes.isdisjoint((name, path)) or ends_calls(runnable),
        )
        if isinstance(runnable, CompiledStateGraph):
            nodes |= cover(Graph(runnable.builder), keys, model_nodes, f"{path}.")
    return nodes


def described(nodes: Mapping[str, CoveredNode], *, record: bool) -> str:
    """One line for the log.

    Args:
        nodes: What `cover` returned.
        record: Whether each call of a `ToolNode` becomes a task of its own.
    """
    parts: dict[str, list[str]] = {form: [] for form in _PARTS}
    models, others, one_task, sending = parts.values()
    for path, node in nodes.items():
        if node.is_model:
            models.append(path)
        elif node.keys and not node.is_graph:
            others.append(path)
        elif node.tool_node is not None:
            is_sent = record or node.graph.sends_each_call(path.rsplit(".", 1)[-1])
            (sending if is_sent else one_task).append(path)
    return "; ".join(
        form.format(", ".join(map(repr, named))) for form, named in parts.items() if named
    )


_PARTS = (
    "model nodes {}",
    (
        "other nodes {} (open calls at the end of the history stay open before them; "
        "model_node=... names a model)"
    ),
    "tool nodes {} (one task for all calls of a message; record=True gives each its own)",
    "tool nodes {}",
)


# --- tool nodes ------------------------------------------------------------------------


def tool_step_of(runnable: Any) -> ToolNode | None:
    """The `ToolNode` that is a step of a sequence; None for anything else."""
    found = map(tool_node_in, getattr(runnable, "steps", ()))
    return next(filter(None, found), None)


def has_fallbacks(runnable: Any) -> bool:
    """Whether `with_fallbacks` was called on the `ToolNode` of a runnable."""
    while runnable is not None and not isinstance(runnable, ToolNode | RunnableWithFallbacks):
        runnable = wrapped(runnable)
    return isinstance(runnable, RunnableWithFallbacks)


def replace_tool_node(
    runnable: Any, replacement: Callable[[ToolNode], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """A copy of a runnable in which `tool_node_in` finds one, with another `ToolNode`."""
    inner = wrapped(runnable)
    if inner is None or runnable is tool_node_in(runnable):
        return replacement(runnable)
    attribute = "bound" if inner is getattr(runnable, "bound", None) else "runnable"
    update = {attribute: replace_tool_node(inner, replacement)}
    copied: Runnable[Any, Any] = runnable.model_copy(update=update)
    return copied
