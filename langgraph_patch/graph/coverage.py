"""Decide which nodes of a graph are covered, and how: a pure function of the graph.

A *model node* gets its whole history repaired, calls at the end included, and writes the repair to
the state. Any other node gets only its input repaired, without the calls at the end: to answer
them may be what the node is for (an approval, a judge, a frontend). It writes nothing, because two
parallel nodes that both rewrite a history would misplace each other's messages; START repairs the
state when the next message arrives.

A compiled graph as a node returns its whole history, so it writes the repair too. Calls at the end
are left to it, because it may be about to run them, or has a model node that answers them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, get_args

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.pydantic import get_fields
from langgraph.graph import add_messages
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph_builder import (
    annotations_of,
    can_be_followed,
    keys_read_by,
    node_runnables,
    nodes_after,
    sends_each_call,
)
from langgraph_patch._langgraph_names import ROOT_CHANNEL
from langgraph_patch._langgraph_prebuilt import tool_messages_key
from langgraph_patch.graph.entry import RepairNode
from langgraph_patch.graph.patch_node import PatchNode

if TYPE_CHECKING:
    from langgraph.prebuilt import ToolNode

MODEL_NODES = ("agent", "model")
"""The names of the model node in LangGraph's and LangChain's prebuilt agents."""

Kind: TypeAlias = Literal["model", "graph", "input", "tools", "repair", "none"]
"""How a node is covered.

- `model`: the whole history is repaired and the repair is written.
- `graph`: a compiled graph: the same, without the calls at the end of the history.
- `input`: the node's input is repaired, without the calls at the end of the history.
- `tools`: a `ToolNode`: it is left as it is.
- `repair`: a `PatchNode`, or the node of a graph that is patched: it is left as it is.
- `none`: it reads no history.
"""


_ONE_TASK = (
    "cannot recover results beside a pause or an error, unless each call is a task of its own "
    "(record=True), in the tool nodes"
)

_NOT_REACHED = (
    "does not reach the subagents of the tool 'task' (list PatchToolCallsMiddleware() in the "
    "middleware of each of them) in"
)


@dataclass(frozen=True, slots=True)
class CoveredNode:
    """How a node is covered.

    Attributes:
        kind: How.
        keys: The state keys that it reads as histories.
        model_keys: Those of them of which it is a model node.
        written: Those of them whose repair it writes.
        has_subagents: Whether it has a tool that runs agents of its own, as deepagents' `task`
            does. These agents are not nodes, so they cannot be covered.
        is_one_task: Whether it is a `ToolNode` whose calls may run as one task.
    """

    kind: Kind
    keys: frozenset[str] = frozenset()
    model_keys: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    has_subagents: bool = False
    is_one_task: bool = False


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

    def described(self, *, record: bool) -> str:
        """One line for the log.

        Args:
            record: Whether each call of a `ToolNode` becomes a task of its own.
        """
        nodes = self.nodes.items()
        alone = [repr(path) for path, node in nodes if node.kind in ("graph", "input")]
        tools = [repr(path) for path, node in nodes if node.kind == "tools"]
        whole = [repr(path) for path, node in nodes if node.is_one_task and not record]
        parts = (
            ("repairs the whole history of", self._models()),
            ("leaves calls at the end of the history alone in", alone),
            ("does not touch the tool nodes", tools),
            (_ONE_TASK, whole),
            (_NOT_REACHED, [repr(path) for path, node in nodes if node.has_subagents]),
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


def cover(
    builder: Any, keys: AbstractSet[str], model_nodes: AbstractSet[str], *, recursive: bool
) -> Coverage:
    """Decide how each node of a graph is covered.

    Args:
        builder: The graph.
        keys: The state keys of the histories.
        model_nodes: The names that the application gave, plain or as paths with dots.
        recursive: Whether graphs that are nodes are covered inside too.
    """
    nodes: dict[str, CoveredNode] = {}
    named: set[str] = set()
    for node in _walk(builder, recursive=recursive):
        covered = nodes[node.path] = _covered(node, keys, model_nodes, recursive=recursive)
        if covered.kind not in ("tools", "repair"):
            named |= model_nodes & {node.name, node.path}
    return Coverage(nodes, frozenset(named))


@dataclass(frozen=True, slots=True)
class _Node:
    builder: Any
    name: str
    path: str
    runnable: Any


def _walk(builder: Any, *, recursive: bool, prefix: str = "") -> Iterator[_Node]:
    """All nodes, each graph before the nodes inside it."""
    for name, runnable in node_runnables(builder).items():
        yield _Node(builder, name, prefix + name, runnable)
        if recursive and isinstance(runnable, CompiledStateGraph):
            yield from _walk(runnable.builder, recursive=True, prefix=f"{prefix}{name}.")


def _keys_of(node: _Node) -> AbstractSet[str]:
    """The state keys that a node reads. A graph reads those that it has itself."""
    keys = set(keys_read_by(node.builder, node.name))
    if isinstance(node.runnable, CompiledStateGraph):
        keys &= node.runnable.builder.channels.keys()
    return keys


def _covered(
    node: _Node, keys: AbstractSet[str], model_nodes: AbstractSet[str], *, recursive: bool
) -> CoveredNode:
    if is_tool_node(node.runnable):
        return CoveredNode(
            "tools",
            has_subagents=runs_subagents(node.runnable),
            is_one_task=not sends_each_call(node.builder, node.name),
        )
    if isinstance(node.runnable, PatchNode | RepairNode):
        return CoveredNode("repair")
    read = frozenset(keys & _keys_of(node))
    if not read:
        return CoveredNode("none")
    model_keys = read & _model_keys(node, keys, model_nodes)
    if not isinstance(node.runnable, CompiledStateGraph):
        return CoveredNode("model" if model_keys else "input", read, model_keys, model_keys)
    if recursive:
        inner = _walk(node.runnable.builder, recursive=True, prefix=f"{node.path}.")
        model_keys = model_keys.difference(*(_answered(n, keys, model_nodes) for n in inner))
    return CoveredNode("model" if model_keys else "graph", read, model_keys, read)


def _model_keys(
    node: _Node, keys: AbstractSet[str], model_nodes: AbstractSet[str]
) -> AbstractSet[str]:
    """The histories of which a node is a model node: it has to answer calls at their end."""
    found = {
        tool_messages_key(tools)
        for name, runnable in node_runnables(node.builder).items()
        if node.name in (nodes_after(node.builder, name) or ())
        for tools in tool_nodes_in(runnable)
    }
    if found and keys == {ROOT_CHANNEL}:
        return keys
    if found & keys:
        return found & keys
    is_named = not model_nodes.isdisjoint((node.name, node.path))
    is_prebuilt = node.name in MODEL_NODES and can_be_followed(node.builder, node.name)
    return keys if is_named or is_prebuilt else frozenset()


def _answered(
    node: _Node, keys: AbstractSet[str], model_nodes: AbstractSet[str]
) -> AbstractSet[str]:
    """The histories of which a node inside a graph is a model node."""
    if isinstance(node.runnable, CompiledStateGraph) or is_tool_node(node.runnable):
        return frozenset()
    return _model_keys(node, keys, model_nodes)


# --- tool nodes ------------------------------------------------------------------------


def is_tool_node(runnable: object) -> bool:
    """Whether a runnable is a `ToolNode`, also with a config, retries or fallbacks."""
    return tool_node_in(runnable) is not None


def runs_subagents(runnable: object) -> bool:
    """Whether a `ToolNode` has the tool of deepagents that runs agents of its own."""
    node = tool_node_in(runnable)
    tool = node.tools_by_name.get("task") if node is not None else None
    return tool is not None and "subagent_type" in _argument_names(tool)


def _argument_names(tool: BaseTool) -> Collection[str]:
    """The arguments that a model gives. `tool.args` raises for some that LangGraph gives."""
    schema = tool.tool_call_schema
    return schema.get("properties", {}) if isinstance(schema, dict) else get_fields(schema)


def tool_node_in(runnable: object) -> ToolNode | None:
    """The `ToolNode` that a runnable is, or that it was made of; None for anything else."""
    while (inner := _wrapped(runnable)) is not None:
        runnable = inner
    return runnable if _is_bare_tool_node(runnable) else None


def _is_bare_tool_node(runnable: object) -> TypeGuard[ToolNode]:
    """Whether a runnable is a `ToolNode` itself. If there is one, its module is loaded."""
    prebuilt = sys.modules.get("langgraph.prebuilt")
    return prebuilt is not None and isinstance(runnable, prebuilt.ToolNode)


def _wrapped(runnable: object) -> Runnable[Any, Any] | None:
    """What `with_config`, `with_retry` or `with_fallbacks` was called on."""
    if _is_bare_tool_node(runnable):
        return None
    inner = getattr(runnable, "bound", None) or getattr(runnable, "runnable", None)
    return inner if isinstance(inner, Runnable) else None


def replace_tool_node(
    runnable: Any, replacement: Callable[[ToolNode], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """A copy of a runnable with another `ToolNode`."""
    if _is_bare_tool_node(runnable):
        return replacement(runnable)
    attribute = "bound" if isinstance(getattr(runnable, "bound", None), Runnable) else "runnable"
    inner = replace_tool_node(getattr(runnable, attribute), replacement)
    copied: Runnable[Any, Any] = runnable.model_copy(update={attribute: inner})
    return copied


def tool_nodes_in(runnable: object) -> Iterator[ToolNode]:
    """The `ToolNode` that a runnable is, or those of a sequence."""
    if (node := tool_node_in(runnable)) is not None:
        yield node
    for step in getattr(runnable, "steps", None) or ():
        yield from tool_nodes_in(step)


def tools_of(builder: Any, *, recursive: bool) -> set[str]:
    """The names of the tools of all `ToolNode`s of a graph and of the graphs inside it."""
    nodes = _walk(builder, recursive=recursive)
    found = (tools for node in nodes for tools in tool_nodes_in(node.runnable))
    return {name for tools in found for name in tools.tools_by_name}


# --- keys ------------------------------------------------------------------------------


def all_keys(builder: Any, *, recursive: bool) -> set[str]:
    """The state keys of a graph and of the graphs inside it."""
    return {key for each in _builders(builder, recursive=recursive) for key in each.channels}


def message_keys(builder: Any, *, recursive: bool) -> list[str]:
    """The state keys that hold messages, by their annotations, of a graph and those inside it."""
    found = {
        key
        for each in _builders(builder, recursive=recursive)
        for key, annotation in annotations_of(each).items()
        if _mentions_messages(annotation)
    }
    return sorted(found)


def _builders(builder: Any, *, recursive: bool) -> Iterator[Any]:
    yield builder
    for node in _walk(builder, recursive=recursive):
        if recursive and isinstance(node.runnable, CompiledStateGraph):
            yield node.runnable.builder


def _mentions_messages(annotation: Any) -> bool:
    if annotation is add_messages:
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseMessage):
        return True
    parts = (*get_args(annotation), *getattr(annotation, "__metadata__", ()))
    return any(map(_mentions_messages, parts))
