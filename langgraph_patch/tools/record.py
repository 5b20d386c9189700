"""`with_patching(record=True)`: a task of its own for each call of a `ToolNode`.

LangGraph stores what each task of a superstep writes, its error and its interrupts. A `ToolNode`
that an edge leads to is one task, so of two calls the result of the first is lost if the second one
waits for a human, fails or is killed. `create_agent` therefore sends each call to its `ToolNode` as
`Send(node, [call])`, and so does this module: every edge and router that leads to the `ToolNode`
leads to one `Send` for each open call instead. LangGraph then keeps each result, does not run a
finished call again, and gives each answer to its own call.

- The state is not part of the `Send`. The `ToolNode` reads it when the call runs, in the schema of
  the node.
- If no call is open, the edge leads to the `ToolNode` itself, which does nothing then, so that the
  run goes where the `ToolNode` leads.
- A router behind the `ToolNode` would run once for each call. It moves to a node of its own, to
  which an edge leads: that node runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Final, cast

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolNode
from langgraph.types import Send
from pydantic import BaseModel

from langgraph_patch._langgraph.graphs import Graph, Tools
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import GeneratorRunnable, IOGenerator, IORequest
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.errors import GraphError, logger
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.repairing.entry import Router
from langgraph_patch.state import history_after, messages_in, open_calls
from langgraph_patch.tools.once import Once

PLACE: Final = "langgraph_patch"
"""The key of a call that a `Send` of this module carries: its index among those of its message."""


def recordable(graph: Graph, tool_nodes: Mapping[str, ToolNode]) -> dict[str, str]:
    """The nodes with a `ToolNode` whose calls are to be sent one by one.

    A node whose calls are sent already stays as it is. A WARNING names each other one.

    Args:
        graph: The graph.
        tool_nodes: The `ToolNode` of each node that is one, or a sequence with one.

    Returns:
        The state key of the history that each of them reads, by its name.
    """
    keys: dict[str, str] = {}
    for node, tool_node in tool_nodes.items() if Tools.takes_calls() else ():
        if graph.sends_each_call(node):
            continue
        if reason := _why_not(graph, node, tool_node):
            logger.warning(
                "record=True does not record the calls of the node %r one by one: it %s. They run "
                "as one task, whose results are lost if one of them pauses or fails",
                node,
                reason,
            )
        else:
            keys[node] = Tools(tool_node).messages_key
    return keys


def _why_not(graph: Graph, node: str, tool_node: ToolNode) -> str | None:
    """Why the calls of a `ToolNode` cannot be sent one by one; None if they can."""
    if hasattr(graph.runnables[node], "steps"):
        return "is a step of a sequence"
    if type(tool_node) is not ToolNode:
        return "is a subclass of ToolNode"
    if graph.has_cache(node):
        return "has a cache, whose keys would be those of the call without the state"
    if graph.handles_errors(node):
        return "has an error handler, which would get the call in place of the state"
    if not graph.is_started_by_edges(node):
        return "is deferred, or started by a Command or by an edge from several nodes"
    return None


def fan_out(graph: Graph, keys: Mapping[str, str]) -> None:
    """Let every edge and router that leads to these nodes lead to a `Send` for each call.

    Args:
        graph: The graph; it is changed.
        keys: What `recordable` returned. Their runnables must have a `recorded_tool_node`.
    """
    for node in keys:
        _move_routers_behind(graph, node)
    for source, name, branch in graph.branches_into(keys):
        path, ends, _ = Graph.parts_of(branch)
        graph.put_branch(source, name, branch, path=_SendEach(path, name, keys, ends))
    for source, target in graph.edges:
        if target in keys:
            router = _SendEach(target, f"each call of {target}", keys)
            graph.route_edge(source, target, router)


def _move_routers_behind(graph: Graph, node: str) -> None:
    """Let the routers of a `ToolNode` run once after all its calls, in a node of their own."""
    routers = graph.take_routers(node)
    if not routers:
        return
    behind = Graph.name_behind(node)
    schema, _ = graph.input_of(node)
    graph.builder.add_node(behind, _Nothing())
    for name, branch in routers.items():
        path, ends, own_schema = Graph.parts_of(branch)
        path = _NotTwice(path, name, ends)
        graph.put_branch(behind, name, branch, path=path, input_schema=own_schema or schema)
    graph.builder.add_edge(node, behind)


class _Nothing(GeneratorRunnable[Any, Any]):
    """The node with the routers of a `ToolNode`. It writes nothing."""

    def run(self, *_: Any, **__: Any) -> IOGenerator[None]:
        """Do nothing; LangGraph accepts a timeout because it can be awaited."""
        yield from ()


class _NotTwice(Router):
    """A router behind a `ToolNode`, without the nodes that run beside it and read the same state.

    A call that had ended before `record=True` was switched on has led to them already.
    """

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[list[Any]]:
        """Where to go."""
        targets = yield from self.onward(input, config)
        started = Run(config).started_nodes
        return [each for each in targets if self.node_of(each) not in started]


# --- before the tool node ------------------------------------------------------------------


class _SendEach(Router):
    """A router that makes a `Send` for each open call of every `ToolNode` to which it leads.

    Args:
        onward: The router before, or where an edge led.
        name: Its name, if `onward` is no router.
        keys: The `ToolNode`s, and the state key of the history that each of them reads.
        ends: The node for each value that the router returns. Default: it returns nodes.
    """

    def __init__(
        self, onward: Any, name: str, keys: Mapping[str, str], ends: Mapping[Any, str] | None = None
    ) -> None:
        super().__init__(onward, name, ends)
        self._keys = keys

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[list[Any]]:
        """Where to go."""
        targets = yield from self.onward(input, config)
        return [each for target in targets for each in self._sends(target, input, Run(config))]

    def _sends(self, target: Any, state: Any, run: Run) -> list[Any]:
        node = self.node_of(target)
        if node not in self._keys or not run.channels:
            return [target]
        calls = _calls_to_run(history_after(state, self._keys[node], run) or [])
        return [Send(node, [{**call, PLACE: i}]) for i, call in calls.items()] or [target]


# --- the tool node -------------------------------------------------------------------------


def recorded_tool_node(graph: Graph, name: str, once: Sequence[str], node: ToolNode) -> ToolNode:
    """A `guarded_tool_node` whose calls come one by one.

    A WARNING says once if several come together: a `Send` or a `Command` of the application, which
    has the state or a list of calls, is passed on as it is.

    Args:
        graph: The graph, before its edges were changed.
        name: The name of the node.
        once: The tools whose calls run once.
        node: The `ToolNode`.
    """
    schema, keys = graph.input_of(name)
    messages_key = Tools(node).messages_key
    routers = [f"{each!r} of {source!r}" for source, each, _ in graph.branches_into([name])]
    to_tell = iter([f"the router {' or '.join(routers)}" if routers else "the node before it"])

    def with_state(value: Any, run: Run) -> Any:
        """The input of the node for a call that `_SendEach` sent; None to run nothing."""
        call = value[0] if isinstance(value, list) and len(value) == 1 else None
        if not (isinstance(call, dict) and PLACE in call):
            history = messages_in(value, messages_key) or []
            calls = value if isinstance(value, list) else _calls_to_run(history)
            if len(calls) > 1 and (sender := next(to_tell, None)):
                logger.warning(_TOGETHER, name, sender)
            last = next((m for m in reversed(history) if isinstance(m, AIMessage)), None)
            has_ended = last and last.tool_calls and not calls
            return None if has_ended else value  # without calls the node raises an error
        own = [send for send in run.sends if send.node == run.node]
        if sum(send.arg == value for send in own) > 1:
            raise GraphError(
                f"Two nodes of one superstep lead to {run.node!r} with the same tool call, "
                f"which record=True would run twice: let one of them lead there, or leave record "
                f"out."
            )
        values = run.values(keys)
        is_object = is_dataclass(schema) or issubclass(schema, BaseModel)  # else LangGraph's dict
        state = schema(**values) if is_object else values
        return Tools.input_for({k: v for k, v in call.items() if k != PLACE}, state)

    return guarded_tool_node(once, node, with_state)


_TOGETHER = (
    "record=True does not record the calls of the node %r one by one: several came in one Send, or "
    "through a Command. They run as one task, whose results are lost if one of them pauses or "
    "fails. Let %s return the name of the node, or a Send for each call"
)


def guarded_tool_node(
    once: Sequence[str], node: ToolNode, prepare: Callable[[Any, Run], Any] | None = None
) -> ToolNode:
    """A copy of a `ToolNode` whose tools run with a `TruncationGuard`.

    So no agent that a tool calls runs a tool call that its model did not finish writing.

    Args:
        once: The tools whose calls run once.
        node: The `ToolNode`.
        prepare: Makes the input of the node; None to run nothing. Default: it stays as it is.
    """
    tools = Tools(node)
    is_all = type(node) is ToolNode and not tools.may_run_others
    own = Once(tuple(once), tools.messages_key, is_all)
    wrapped: Any = tools.with_call_wrappers(own.call) if own.names else node
    inner, ainner = wrapped.func, wrapped.afunc

    def called(value: Any, **kwargs: Any) -> IOGenerator[Any]:
        run = Run(cast("RunnableConfig", kwargs.get("config") or {}))
        value = prepare(value, run) if prepare else value
        if value is None:
            return {tools.messages_key: []}
        request = IORequest(lambda: inner(value, **kwargs), lambda: ainner(value, **kwargs))
        request = TruncationGuard(run, drops=True).around(request)
        return (yield from own.run_task(value, run.config, request))

    patched: ToolNode = tools.running(called)
    return patched


def _calls_to_run(history: Sequence[BaseMessage]) -> dict[int, dict[str, Any]]:
    """The calls of the last message of a model that have no result, by their index in it.

    A placeholder is no result: a call that has one runs if the application leads to it, as in the
    bare graph and in a plain `ToolNode`.
    """
    return open_calls([message for message in history if not is_placeholder(message)])
