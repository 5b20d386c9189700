"""Decide which nodes of a graph are covered, and how: a pure function of the graph.

A *model node* gets its whole history repaired, calls at the end included, and writes the repair if
it runs alone. Any other node gets its input repaired without the calls at the end: to answer them
may be what the node is for (an approval, a judge, a frontend).

A compiled graph that is a node has a START of its own. But what that adds to the history would be
appended to the history of the parent, behind newer messages. So its input is repaired before it
runs, as that of any other node, and the repair is written with its output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard, get_args

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langgraph.graph import add_messages
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph_graphs import (
    annotations_of,
    can_be_followed,
    keys_read_by,
    node_runnables,
    nodes_after,
    sends_each_call,
    tool_messages_key,
)
from langgraph_patch.graph.entry import PatchNode

if TYPE_CHECKING:
    from langgraph.prebuilt import ToolNode

MODEL_NODES = ("agent", "model")
"""The names of the model node in LangGraph's and LangChain's prebuilt agents."""

ENDS_CALLS = "PatchToolCallsMiddleware.before_agent"
"""The node of deepagents that ends every open call. Its text says less than the record, so the
whole history is repaired before it."""

Kind: TypeAlias = Literal["model", "input", "tools", "repair", "graph", "none"]
"""How a node is covered.

- `model`: the whole history is repaired, and the repair is written if the node runs alone.
- `input`: the node's input is repaired, without the calls at the end of the history.
- `tools`: a `ToolNode`.
- `repair`: a `PatchNode`: it is left as it is.
- `graph`: a compiled graph: as `input`, and the repair is written. It is patched inside too.
- `none`: it reads no history.
"""


class CoveredNode(NamedTuple):
    """How a node is covered.

    Attributes:
        kind: How.
        keys: The state keys that it reads as histories.
        model_keys: Those of them of which it is a model node.
        tools: The tools of a `ToolNode`, by their names.
        is_one_task: Whether it is a `ToolNode` whose calls may run as one task.
        answers_all: Whether calls of tools that no `ToolNode` has are answered before it too.
    """

    kind: Kind
    keys: frozenset[str] = frozenset()
    model_keys: frozenset[str] = frozenset()
    tools: Collection[str] = ()
    is_one_task: bool = False
    answers_all: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """How each node of a graph, and of the graphs inside it, is covered.

    Attributes:
        nodes: By the path of the node: its name, after the names of the graphs that it is in,
            joined by dots.
        named: The names of `model_node` that are names or paths of nodes.
    """

    nodes: dict[str, CoveredNode]
    named: frozenset[str]

    @property
    def keys(self) -> frozenset[str]:
        """The state keys that nodes read as histories."""
        return frozenset(key for node in self.nodes.values() for key in node.keys)

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools of all `ToolNode`s."""
        return frozenset(name for node in self.nodes.values() for name in node.tools)

    def described(self, *, record: bool) -> str:
        """One line for the log.

        Args:
            record: Whether each call of a `ToolNode` becomes a task of its own.
        """
        nodes = self.nodes.items()
        parts = (
            ("repairs the whole history of", self._models()),
            (_CALLS_LEFT, [repr(path) for path, node in nodes if node.kind == "input"]),
            ("does not touch the tool nodes", [repr(p) for p, n in nodes if n.kind == "tools"]),
            (_ONE_TASK, [repr(p) for p, n in nodes if n.is_one_task and not record]),
        )
        return "; ".join(f"{what} {', '.join(paths)}" for what, paths in parts if paths)

    def _models(self) -> list[str]:
        """The model nodes; of several histories with the state keys."""
        several = len(self.keys) > 1
        return [
            f"{path!r} ({', '.join(sorted(node.model_keys))})" if several else repr(path)
            for path, node in self.nodes.items()
            if node.kind == "model"
        ]


_CALLS_LEFT = (
    "leaves calls at the end of the history alone in (if one of them calls a model, name it in "
    "model_node)"
)
_ONE_TASK = (
    "cannot recover results beside a pause or an error, unless each call is a task of its own "
    "(record=True), in the tool nodes"
)


def cover(builder: Any, keys: AbstractSet[str], model_nodes: AbstractSet[str]) -> Coverage:
    """Decide how each node of a graph is covered.

    Args:
        builder: The graph.
        keys: The state keys of the histories.
        model_nodes: The names that the application gave, plain or as paths with dots.
    """
    nodes: dict[str, CoveredNode] = {}
    named: set[str] = set()
    for node in walk(builder):
        covered = nodes[node.path] = _covered(node, keys, model_nodes)
        if covered.kind not in ("tools", "repair", "graph"):
            named |= model_nodes & {node.name, node.path}
    return Coverage(nodes, frozenset(named))


class Node(NamedTuple):
    """A node of a graph, with the graph that it is in."""

    builder: Any
    name: str
    path: str
    runnable: Any


def walk(builder: Any, prefix: str = "") -> Iterator[Node]:
    """All nodes of a graph, each graph before the nodes inside it."""
    for name, runnable in node_runnables(builder).items():
        yield Node(builder, name, prefix + name, runnable)
        if isinstance(runnable, CompiledStateGraph):
            yield from walk(runnable.builder, f"{prefix}{name}.")


def _covered(node: Node, keys: AbstractSet[str], model_nodes: AbstractSet[str]) -> CoveredNode:
    is_named = not model_nodes.isdisjoint((node.name, node.path))
    if (tool_node := tool_node_in(node.runnable)) is not None:
        is_one_task = not sends_each_call(node.builder, node.name)
        return CoveredNode("tools", tools=tool_node.tools_by_name, is_one_task=is_one_task)
    if isinstance(node.runnable, PatchNode):
        return CoveredNode("repair")
    read = frozenset(keys & set(keys_read_by(node.builder, node.name)))
    if isinstance(node.runnable, CompiledStateGraph):
        return CoveredNode("graph", read & node.runnable.builder.channels.keys())
    if not read:
        return CoveredNode("none")
    answers_all = is_named or node.name == ENDS_CALLS
    model_keys = read if answers_all else read & _model_keys(node, keys)
    kind: Kind = "model" if model_keys else "input"
    return CoveredNode(kind, read, model_keys, answers_all=answers_all)


def _model_keys(node: Node, keys: AbstractSet[str]) -> AbstractSet[str]:
    """The histories of which a node is a model node: it has to answer calls at their end."""
    found = {
        tool_messages_key(tools)
        for name, runnable in node_runnables(node.builder).items()
        if node.name in (nodes_after(node.builder, name) or ())
        for tools in tool_nodes_in(runnable)
    }
    if found & keys:
        return found & keys
    is_prebuilt = node.name in MODEL_NODES and can_be_followed(node.builder, node.name)
    return keys if is_prebuilt else frozenset()


# --- tool nodes ------------------------------------------------------------------------


def tool_node_in(runnable: object) -> ToolNode | None:
    """The `ToolNode` that a runnable is, or that it was made of; None for anything else."""
    while (inner := _wrapped(runnable)) is not None:
        runnable = inner
    return runnable if _is_tool_node(runnable) else None


def tool_nodes_in(runnable: object) -> Iterator[ToolNode]:
    """The `ToolNode` that a runnable is, or those of a sequence."""
    if (node := tool_node_in(runnable)) is not None:
        yield node
    for step in getattr(runnable, "steps", None) or ():
        yield from tool_nodes_in(step)


def replace_tool_node(
    runnable: Any, replacement: Callable[[ToolNode], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """A copy of a runnable with another `ToolNode`."""
    if _is_tool_node(runnable):
        return replacement(runnable)
    attribute = "bound" if isinstance(getattr(runnable, "bound", None), Runnable) else "runnable"
    inner = replace_tool_node(getattr(runnable, attribute), replacement)
    copied: Runnable[Any, Any] = runnable.model_copy(update={attribute: inner})
    return copied


def _is_tool_node(runnable: object) -> TypeGuard[ToolNode]:
    """Whether a runnable is a `ToolNode` itself. If there is one, its module is loaded."""
    prebuilt = sys.modules.get("langgraph.prebuilt")
    return prebuilt is not None and isinstance(runnable, prebuilt.ToolNode)


def _wrapped(runnable: object) -> Runnable[Any, Any] | None:
    """What `with_config`, `with_retry` or `with_fallbacks` was called on."""
    if _is_tool_node(runnable):
        return None
    inner = getattr(runnable, "bound", None) or getattr(runnable, "runnable", None)
    return inner if isinstance(inner, Runnable) else None


# --- keys ------------------------------------------------------------------------------


def all_keys(builder: Any) -> set[str]:
    """The state keys of a graph and of the graphs inside it."""
    return {key for each in _builders(builder) for key in each.channels}


def message_keys(builder: Any) -> list[str]:
    """The state keys that hold messages, by their annotations, of a graph and those inside it."""
    annotations = (pair for each in _builders(builder) for pair in annotations_of(each).items())
    return sorted({key for key, annotation in annotations if _mentions_messages(annotation)})


def _builders(builder: Any) -> Iterator[Any]:
    yield builder
    graphs = (n.runnable for n in walk(builder) if isinstance(n.runnable, CompiledStateGraph))
    yield from (graph.builder for graph in graphs)


def _mentions_messages(annotation: Any) -> bool:
    if annotation is add_messages:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseMessage):
        return True
    parts = (*get_args(annotation), *getattr(annotation, "__metadata__", ()))
    return any(map(_mentions_messages, parts))
