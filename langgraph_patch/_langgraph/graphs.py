"""The private details of LangGraph that this package uses to read and change graphs.

The attributes of `StateGraph`, `CompiledStateGraph` and `ToolNode` are not documented, nor are the
names of the nodes of prebuilt agents. They are in `details.toml`: if LangGraph changes one, an
error or a WARNING says so when the graph is patched, before its first run.

`tests/graph/test_langgraph.py` fails if LangGraph changes a detail that no other test would notice.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import MethodType
from typing import Any, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from langgraph_patch._langgraph.details import check, missing, table, unknown_names
from langgraph_patch._langgraph.nodes import sends_each_call
from langgraph_patch._langgraph.storage import trigger_channel
from langgraph_patch._sansio import (
    GeneratorRunnable,
    IOGenerator,
    IORequest,
    method_request,
    with_methods,
)
from langgraph_patch.errors import GraphError, StartedError

_DEFAULT_HANDLER = "__default_error_handler__"
"""The node that `compile()` creates from a default error handler, each time."""


class Graph:
    """What this package reads and changes of a `StateGraph`.

    Args:
        builder: The `StateGraph`.
    """

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def check(self) -> None:
        """Look for the details of the graph.

        Raises:
            GraphError: If it cannot be patched, because LangGraph has changed one.
        """
        check("StateGraph", self.builder)
        check("node", *self.builder.nodes.values())
        check("defaults", *filter(None, [getattr(self.builder, "_node_defaults", None)]))
        check("edge", *(each for name in self.builder.branches.values() for each in name.values()))

    @property
    def schema(self) -> Any:
        """The schema of the state."""
        return self.builder.state_schema

    @property
    def edges(self) -> list[tuple[str, str]]:
        """The plain edges, sorted."""
        return sorted(self.builder.edges)

    @property
    def keys(self) -> Collection[str]:
        """The keys of the state schema: a node without an input schema of its own reads these."""
        keys: Collection[str] = self.builder.schemas[self.builder.state_schema].keys()
        return keys

    @property
    def channels(self) -> Collection[str]:
        """The names of the channels of a graph: the keys of its state, and those of its inputs."""
        channels: Mapping[str, Any] = self.builder.channels
        return channels.keys()

    @property
    def output_keys(self) -> tuple[str, ...]:
        """The keys of the output schema: those that the `updates` stream shows."""
        return tuple(self.builder.schemas[self.builder.output_schema])

    @property
    def runnables(self) -> dict[str, Any]:
        """The runnable of each node. For a graph that is a node this is the compiled graph itself.

        The node that `compile()` makes of a default error handler is left out.
        """
        nodes = self.builder.nodes.items()
        return {node: spec.runnable for node, spec in nodes if node != _DEFAULT_HANDLER}

    def input_of(self, node: str) -> tuple[type[Any], Collection[str]]:
        """The input schema of a node, and its keys."""
        schema = self.builder.nodes[node].input_schema or self.builder.state_schema
        return schema, self.builder.schemas[schema].keys()

    def has_cache(self, node: str) -> bool:
        """Whether the outputs of a node may come from a cache."""
        defaults = getattr(self.builder, "_node_defaults", None)
        own = getattr(self.builder.nodes[node], "cache_policy", self)
        return any(policy is not None for policy in (own, getattr(defaults, "cache_policy", None)))

    def handles_errors(self, node: str) -> bool:
        """Whether an error handler gets the input of a node, if the node raises."""
        own = getattr(self.builder.nodes[node], "error_handler_node", None)
        default = getattr(getattr(self.builder, "_node_defaults", None), "error_handler", None)
        return own is not None or default is not None

    def graph_that_returns(self, node: str | None, key: str) -> Graph | None:
        """The compiled graph that is a node and returns `key`; None if it is none."""
        runnable = self.builder.nodes[node].runnable if node in self.builder.nodes else None
        if not isinstance(runnable, CompiledStateGraph) or key not in self.channels:
            return None
        graph = Graph(runnable.builder)
        return graph if key in graph.output_keys else None

    def is_started_by_edges(self, node: str) -> bool:
        """Whether edges, and nothing else, start a node, so that `Send`s could replace them."""
        is_joined = any(target == node for _, target in self.builder.waiting_edges)
        nodes = self.builder.nodes
        is_named = any(node in (getattr(each, "ends", [node]) or ()) for each in nodes.values())
        has_edge = any(target == node for _, target in self.builder.edges) or self.branches_into(
            [node]
        )
        return bool(has_edge) and not (is_joined or is_named or getattr(nodes[node], "defer", True))

    def branches_into(self, nodes: Collection[str]) -> list[tuple[str, str, Any]]:
        """The conditional edges that may lead to one of `nodes`: source, name and edge."""
        return [
            (source, name, branch)
            for source, branches in self.builder.branches.items()
            for name, branch in branches.items()
            if branch.ends is None or not set(nodes).isdisjoint(branch.ends.values())
        ]

    def sends_each_call(self, node: str) -> bool:
        """Whether all that leads to a node are routers of prebuilt agents that send each call."""
        routers = [branch.path for _, _, branch in self.branches_into([node])]
        has_edge = any(target == node for _, target in self.builder.edges)
        return bool(routers) and not has_edge and all(map(sends_each_call, routers))

    def copied(self) -> Graph:
        """A copy that shares nothing that `compile()` or an edit changes.

        `compile()` writes defaults into the node specs, and adds the node of a default error
        handler. It refuses a builder that has this node, so the copy lacks it.
        """
        self.check()
        builder, made = self.builder, copy.copy(self.builder)
        for attribute, value in vars(builder).items():
            if not isinstance(value, type):  # a schema is a class
                setattr(made, attribute, copy.copy(value))
        for source, branches in builder.branches.items():
            made.branches[source] = dict(branches)
        made.nodes = {node: copy.copy(spec) for node, spec in builder.nodes.items()}
        defaults = getattr(builder, "_node_defaults", None)
        handler = getattr(defaults, "error_handler", None) and made.nodes.pop(_DEFAULT_HANDLER, 0)
        if handler == 0 and getattr(builder, "compiled", False):
            missing(f"node_name.{_DEFAULT_HANDLER}", raises=True)
        made.compiled = False
        return Graph(made)

    def mark_as_patched(self, options: object) -> None:
        """Keep with what options the graph was patched, and the nodes and edges that it has now."""
        self.builder.langgraph_patch = options, self._shape

    def is_patched_with(self, options: object) -> bool:
        """Whether it was patched with these options, and has the nodes and edges of then."""
        marked: tuple[object, object] | None = getattr(self.builder, "langgraph_patch", None)
        return marked == (options, self._shape)

    @property
    def _shape(self) -> tuple[object, ...]:
        builder = self.builder
        branches = {
            (source, name) for source in builder.branches for name in builder.branches[source]
        }
        return {*self.runnables}, {*builder.edges}, {*builder.waiting_edges}, branches

    def replace_runnable(self, node: str, runnable: Runnable[Any, Any]) -> None:
        """Make `node` run `runnable`, with the same policies, metadata and input schema."""
        self.builder.nodes[node] = dataclasses.replace(self.builder.nodes[node], runnable=runnable)

    def take_edges(self, source: str) -> list[str]:
        """Remove the plain edges that leave `source`, and return their targets, sorted."""
        targets = sorted(target for start, target in self.builder.edges if start == source)
        self.builder.edges = {edge for edge in self.builder.edges if edge[0] != source}
        return targets

    def take_routers(self, source: str) -> dict[str, Any]:
        """Remove the conditional edges that leave `source`, and return them by their names.

        A conditional edge is a named tuple `(path, ends, input_schema)`.
        """
        routers: dict[str, Any] = self.builder.branches.pop(source, {})
        return routers

    @staticmethod
    def parts_of(branch: Any) -> tuple[Runnable[Any, Any], Mapping[Any, str] | None, Any]:
        """The router of a conditional edge, the node for each of its labels, its input schema."""
        return branch.path, branch.ends, branch.input_schema

    def put_branch(self, source: str, name: str, branch: Any, **changes: Any) -> None:
        """Add a conditional edge that `take_routers` removed, with some of its fields changed."""
        self.builder.branches[source][name] = branch._replace(**changes)

    def add_router(self, source: str, router: Runnable[Any, Any], ends: Sequence[str]) -> None:
        """Add a conditional edge whose router reads the state itself (`Run.value_after`)."""
        self.builder.add_conditional_edges(source, router, [*ends])
        self.builder.schemas[_NoKeys] = {}
        *_, (name, branch) = self.builder.branches[source].items()
        self.put_branch(source, name, branch, input_schema=_NoKeys)

    def route_edge(self, source: str, target: str, router: Runnable[Any, Any]) -> None:
        """Replace a plain edge by a conditional edge that still leads to `target` only."""
        self.builder.edges.discard((source, target))
        self.add_router(source, router, [target])

    @staticmethod
    def name_behind(node: str) -> str:
        """The name of the node with the routers of a `ToolNode` (`with_patching(record=True)`)."""
        return f"{node}{_ROUTERS}"

    def compiled_like(self, graph: Any) -> Any:
        """Compile it with everything that a compiled graph was compiled with or set to.

        The result has its class, and the attributes that an application has given it. START emits
        events as it did: none, if it had plain edges only.
        """
        check("graph", graph)
        transformers = getattr(graph, "stream_transformers", None)  # since langgraph 1.2
        made = self.builder.compile(
            checkpointer=graph.checkpointer,
            cache=graph.cache,
            store=graph.store,
            interrupt_before=graph.interrupt_before_nodes,
            interrupt_after=graph.interrupt_after_nodes,
            debug=graph.debug,
            name=graph.name,
            **({} if transformers is None else {"transformers": transformers}),
        )
        if not {*map(trigger_channel, made.builder.nodes)} <= made.channels.keys():
            missing("channel.branch:to:", raises=True)
        compiled: Any = object.__new__(type(graph))
        later = {k: v for k, v in vars(graph).items() if k in table()["details"]["graph"]}
        vars(compiled).update({**vars(graph), **vars(made), **later})
        if not graph.builder.branches.get(START):
            run_start_untraced(compiled)
        return compiled


class _NoKeys(TypedDict):
    """The input schema of the routers that this package adds: LangGraph reads no key for them."""


class _Steps(GeneratorRunnable[Any, Any]):
    """Runs runnables one after the other, without a run of its own in traces and events."""

    def __init__(self, steps: Sequence[Runnable[Any, Any]]) -> None:
        self._steps = steps

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        # LangGraph gives the run of the node its name: the steps have names of their own.
        unnamed = {key: value for key, value in config.items() if key != "run_name"}
        for step in self._steps:
            input = yield method_request(step, "invoke", input, unnamed)
        return input


def run_start_untraced(compiled: Any) -> None:
    """Let START of a compiled graph emit no events of its own.

    LangGraph runs plain edges from START without a run in traces and event streams, but runs
    conditional edges with one, called `__start__`, which some clients show as a step. If LangGraph
    changes what START runs, the run is visible again.
    """
    start = compiled.nodes.get(START)
    steps = getattr(getattr(start, "node", None), "steps", None)
    if steps and isinstance(getattr(type(start), "node", None), cached_property):
        start.__dict__["node"] = _Steps(steps)


# --- nodes and calls --------------------------------------------------------------------------

_ROUTERS = "_routers"
"""The end of the name of the node with the routers of a `ToolNode`."""


def sent_call(send: object) -> dict[str, Any] | None:
    """The one tool call that a `Send` carries, or None.

    `create_agent` sends `[call]`, `create_react_agent` sends `{"tool_call": call, ...}`, and a
    hand-built graph may send the call itself.
    """
    payload = getattr(send, "arg", None)
    call = payload.get("tool_call", payload) if isinstance(payload, dict) else payload
    if isinstance(call, list) and len(call) == 1:
        call = call[0]
    if not isinstance(call, dict) or not {"id", "name", "args"} <= call.keys():
        return None
    return call if call["id"] is not None else None


# --- tool nodes ----------------------------------------------------------------------------


class Tools:
    """What this package reads and changes of a `ToolNode`.

    Args:
        node: The `ToolNode`.
    """

    def __init__(self, node: Any) -> None:
        check("ToolNode", node)
        self.node = node

    @property
    def messages_key(self) -> str:
        """The state key of the history that it reads."""
        key = getattr(self.node, "_messages_key", None)
        return key if isinstance(key, str) else "messages"

    @property
    def may_run_others(self) -> bool:
        """Whether it may run tools that it does not list: a wrapper may bring them."""
        wrappers = ("_wrap_tool_call", "_awrap_tool_call")
        return any(getattr(self.node, name, self) is not None for name in wrappers)

    @staticmethod
    def takes_calls() -> bool:
        """Whether a `ToolNode` takes what `input_for` returns, for all we know."""
        return "ToolNode.tool_call_with_context" not in unknown_names()

    @staticmethod
    def input_for(call: Mapping[str, Any], state: Any) -> dict[str, Any]:
        """The input of a `ToolNode` for one call, with the state that its tool reads."""
        return {"__type": "tool_call_with_context", "tool_call": call, "state": state}

    def running(self, function: Callable[..., IOGenerator[Any]]) -> Any:
        """A copy of the node that runs another function.

        What it is called with is decided by the functions that the node was made with.
        """
        return with_methods(self.node, ("func", "afunc"), function)

    def with_call_wrappers(self, wrapper_of: Callable[..., Any]) -> Any:
        """A copy of the node that wraps calls outside and inside of the application's wrappers.

        A `wrap_tool_call` would be in one place only, and would change which errors it handles.

        Args:
            wrapper_of: Takes a call, the state that it reads, its config, and the call as it runs.
                Returns None if it runs as it is, or an object with two methods that take a
                generator: `around` for the call with all wrappers and error handlers, and `start`,
                which takes the call first, for the tool. A third one, `run`, is both around the
                tool: a wrapper of the application has sent a call to another tool.

        Raises:
            GraphError: If the methods of a `ToolNode` have changed.
        """
        node = self.node
        check("once", ToolNode)
        functions = node.func, node.afunc
        if any(getattr(function, "__self__", None) is not node for function in functions):
            raise GraphError(
                f"The calls of a {type(node).__name__} like this one cannot be wrapped one by one."
            )

        def run(call: Mapping[str, Any], kind: str, runtime: Any) -> IOGenerator[Any]:
            wrapper = wrapper_of(call, runtime.state, runtime.config, call)
            if wrapper is None and not self.may_run_others:
                return (yield from _call(node, _RUN, call, kind, runtime))
            refused: list[Exception] = []

            def execute(request: Any, *rest: Any) -> IOGenerator[Any]:
                sent, own = request.tool_call, _call(node, _EXECUTE, request, *rest)
                if wrapper is not None:
                    return (yield from wrapper.start(sent, own))
                try:
                    inner = wrapper_of(call, runtime.state, runtime.config, sent)
                    return (yield from (inner.run(sent, own) if inner else own))
                except (GraphError, StartedError) as error:
                    refused.append(error)
                    raise

            running = _call(with_methods(node, _EXECUTE, execute), _RUN, call, kind, runtime)
            if wrapper is not None:
                return (yield from wrapper.around(running))
            result = yield from running
            if refused:  # whatever a wrapper made of it
                raise refused[0]
            return result

        copied = with_methods(node, _RUN, run)
        copied.func, copied.afunc = (MethodType(each.__func__, copied) for each in functions)
        return copied


_RUN = ("_run_one", "_arun_one")
"""The methods with which a `ToolNode` runs a call, with all wrappers and error handlers."""

_EXECUTE = ("_execute_tool_sync", "_execute_tool_async")
"""The methods with which the innermost wrapper runs the tool."""


def _call(node: Any, methods: tuple[str, str], *args: Any) -> IOGenerator[Any]:
    sync, asynchronous = (getattr(node, name) for name in methods)
    return (yield IORequest(lambda: sync(*args), lambda: asynchronous(*args)))
