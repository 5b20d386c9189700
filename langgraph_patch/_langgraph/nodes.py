"""What runs in a node, known by the object itself: a name is no proof.

A running graph knows the runnables of its nodes, and of the graphs inside it. Functions and classes
of libraries are compared as objects: an application may use their names. What only a database is
known of, is not known here, and less is said of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from inspect import getattr_static, getclosurevars
from typing import Any, Final, NamedTuple

from langchain_core.runnables import Runnable
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from langgraph_patch._langgraph.details import read, table
from langgraph_patch._langgraph.storage import nodes_of_namespace
from langgraph_patch._sansio import GeneratorRunnable


def ends_calls(runnable: object) -> bool:
    """Whether no call at the end of a history is alive before a node, whose runnable this is."""
    function = _function_of(runnable)
    names = table()["ending_calls"].get(_library_of(function), ())
    return str(getattr(function, "__name__", "")) in names


def sends_each_call(router: object) -> bool:
    """Whether it is the router of a prebuilt agent that makes a `Send` of each open call.

    `create_react_agent` has one router for both of its versions: the first sends none.
    """
    function = _function_of(router)
    library = _library_of(function)
    if library != "langgraph.prebuilt.chat_agent_executor":
        return library == "langchain.agents.factory"
    return bool(getclosurevars(function).nonlocals.get("version", "v2") == "v2")


def starts_no_tool(runnable: object) -> bool:
    """Whether it is a hook of `langchain` behind a model: one of an application may run tools."""
    owner = getattr(_function_of(runnable), "__self__", None)
    library = sys.modules.get("langchain.agents.middleware")
    return any(type(owner) is getattr(library, name, None) for name in table()["hooks"])


def _function_of(runnable: object) -> Any:
    # Some runnables compute what they are asked for.
    return getattr_static(runnable, "func", None) or getattr_static(runnable, "afunc", None)


def _library_of(function: object) -> str:
    """The module that a function is of, if it is in that module itself; else `""`."""
    function = getattr(function, "__func__", function)
    module = sys.modules.get(str(getattr(function, "__module__", "")))
    is_its_own = getattr(function, "__globals__", None) is getattr(module, "__dict__", function)
    return str(getattr(function, "__module__", "")) if is_its_own else ""


def tool_node_in(runnable: Any) -> ToolNode | None:
    """The `ToolNode` that a runnable is or was made of; None for a sequence and anything else."""
    while runnable is not None and not isinstance(runnable, ToolNode):
        runnable = wrapped(runnable)
    return runnable


def wrapped(runnable: object) -> Runnable[Any, Any] | None:
    """What `with_config`, `with_retry` or `with_fallbacks` was called on."""
    inner = getattr(runnable, "bound", None) or getattr(runnable, "runnable", None)
    return inner if isinstance(inner, Runnable) else None


class Nodes(NamedTuple):
    """The nodes of a running graph.

    Attributes:
        nodes: What LangGraph runs, by the names of the nodes. Default: nothing is known.
        namespace: The namespace of the graph. Default: `""`.
    """

    nodes: Mapping[str, Any] = {}
    namespace: str = ""

    def runnable(self, namespace: str, node: str | None) -> Any:
        """The runnable of a node of the graph, or of one inside it; None if it is not known."""
        own, names = (nodes_of_namespace(each) for each in (self.namespace, namespace))
        if names[: len(own)] != own:
            return None
        nodes = self.nodes
        for name in names[len(own) :]:
            graph = _own(nodes.get(name))
            nodes = graph.nodes if isinstance(graph, CompiledStateGraph) else {}
        return _own(nodes.get(node or ""))

    def runs_calls(self, namespace: str, node: str | None) -> bool:
        """Whether a node runs tool calls, and nothing else: a `ToolNode`, and no subclass."""
        return type(tool_node_in(self.runnable(namespace, node))) is ToolNode

    def starts_no_tool(self, namespace: str, node: str) -> bool:
        """Whether a node starts no tool, whatever it did."""
        return starts_no_tool(self.runnable(namespace, node))


NO_NODES: Final = Nodes()
"""The nodes of a graph of which nothing is known."""


def _own(node: Any) -> Any:
    """The runnable of the application in what LangGraph runs: this package wraps it."""
    runnable = read(node, "PregelNode.bound")
    return getattr(runnable, "inner", None) if isinstance(runnable, GeneratorRunnable) else runnable
