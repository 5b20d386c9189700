"""A graph that is a node stays a graph, wrapped.

Clients ask a compiled graph which of its nodes are graphs: AG-UI's adapter by the class of
`graph.nodes[name].bound`, LangGraph's server by `get_subgraphs`. So the wrapper of such a node is a
graph itself, of the class that the graph has. It runs as the wrapper does where LangGraph runs it
as the node, and as the graph wherever else it is called.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.pregel.protocol import PregelProtocol

from langgraph_patch._langgraph.run import Run


class _GraphNode(Runnable[Any, Any]):
    """What a graph that is a node does in another way: the methods that LangGraph runs a node by.

    Its `wrapper` is the wrapper of the node. A copy that `with_config` makes has none.
    """

    __slots__ = ()

    def _runs(self, config: RunnableConfig | None) -> Any:
        """What runs: the wrapper, or the graph itself."""
        wrapper = getattr(self, "wrapper", None)
        return wrapper if wrapper and Run(config or {}).is_node(self) else super()

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self._runs(config).invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await self._runs(config).ainvoke(input, config, **kwargs)

    def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self._runs(config).astream(input, config, **kwargs)


def as_graph(wrapper: Any) -> Any:
    """The wrapper of a node, as a graph if it wraps one.

    Args:
        wrapper: The wrapper. Its `inner` is what it wraps.
    """
    kind = type(wrapper.inner)
    if not issubclass(kind, PregelProtocol):
        return wrapper
    if not issubclass(kind, _GraphNode):  # drawings show the name and the module of the class
        own = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__slots__": ("wrapper",)}
        kind = type(kind.__name__, (_GraphNode, kind), own)
    node: Any = object.__new__(kind)
    # The attributes are shared: one that a client sets later is set for both.
    node.__dict__, node.wrapper = wrapper.inner.__dict__, wrapper
    return node
