"""Puts the patch node into a graph: a front door, and the last mile around each model.

A node before every model call would be easy and dear: a super-step and a checkpoint on
every turn. A router between the tools and the model would be wrong: each parallel `Send`
task sees its own result only. So START looks and goes to `patch_tool_calls` only if the
history is damaged, and the model's own runnable looks at what it was really given. Both
are free when the history is sound.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypedDict, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch.errors import GraphError
from langgraph_patch.last_mile import LastMile
from langgraph_patch.node import OnPatch, PatchNode, key_error
from langgraph_patch.placeholders import Language, Placeholder

MODEL_NODES = ("agent", "model")
"""The names of the model node in LangGraph's and LangChain's prebuilt agents."""

GraphT = TypeVar(
    "GraphT", bound="StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]"
)


def with_patching(
    graph: GraphT,
    *,
    model_node: str | Sequence[str] | None = None,
    recursive: bool = True,
    persist: bool = True,
    name: str = "patch_tool_calls",
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    messages_key: str = "messages",
    recover: bool = True,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    on_patch: OnPatch | None = None,
) -> GraphT:
    """Make a graph that repairs its own tool-call history.

    START looks at the state as a conditional edge does, so every reducer must return a new
    value, as LangGraph asks: one that extends its first argument in place would do it twice.

    Args:
        graph: A `StateGraph`, or what its `compile()` gave, as hand-built or as
            `create_react_agent`, `create_agent` and others build it. It is not changed.
        model_node: The node, or nodes, that call the model. Default: `agent` and `model`,
            wherever they are. A node that is a compiled graph is one as well.
        recursive: Whether compiled graphs that are nodes are patched inside too.
        persist: Whether repairs are written into the state. If not, only what the model
            sees is repaired, and there is no front door.
        name: The name of the node that repairs at the front door.
        placeholder: As for `PatchNode`.
        language: As for `PatchNode`.
        messages_key: As for `PatchNode`.
        recover: As for `PatchNode`.
        replace_foreign: As for `PatchNode`.
        checkpointer: As for `PatchNode`.
        on_patch: As for `PatchNode`.

    Returns:
        A new graph of the kind that was given, with all that it carried.

    Raises:
        GraphError: If `graph` is no such graph, the state has no `messages_key`, there is no
            model node, or a node is called `name` already.
        OptionError: If an option is none of the values that it may have.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.graph import START, MessagesState, StateGraph
        >>> from langgraph_patch import with_patching
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("model", lambda state: {"messages": [AIMessage("hello")]})
        >>> _ = builder.add_edge(START, "model")
        >>> graph = with_patching(builder.compile())
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [m.type for m in graph.invoke({"messages": history})["messages"]]
        ['ai', 'tool', 'human', 'ai']
    """
    options: dict[str, Any] = {
        "placeholder": placeholder,
        "language": language,
        "messages_key": messages_key,
        "recover": recover,
        "replace_foreign": replace_foreign,
        "checkpointer": checkpointer,
        "on_patch": on_patch,
    }
    patcher = _Patcher(
        names=_names_of(model_node),
        recursive=recursive,
        persist=persist,
        name=name,
        door=_FrontDoor(**options),
        node=PatchNode(**options),
    )
    patched = patcher.patch(_checked_graph(graph))
    missing = patcher.names - patcher.found
    if not patcher.found or (model_node is not None and missing):
        raise _no_model_error(_builder_of(graph), sorted(missing), recursive=recursive)
    return cast("GraphT", patched)


def _names_of(model_node: str | Sequence[str] | None) -> frozenset[str]:
    if model_node is None:
        return frozenset(MODEL_NODES)
    names = [model_node] if isinstance(model_node, str) else model_node
    if (
        not isinstance(names, Sequence | AbstractSet)
        or not names
        or not all(isinstance(node, str) for node in names)
    ):
        raise GraphError(
            f"model_node={model_node!r}: expected the name of a node, or a list of such names."
        )
    return frozenset(names)


def _checked_graph(graph: object) -> Any:
    if isinstance(graph, StateGraph | CompiledStateGraph):
        return graph
    raise GraphError(
        f"{graph!r:.200} is a {type(graph).__name__}: expected a StateGraph, or the compiled graph "
        f"that its compile() returns. Patch the graph before you bind() it, give it a "
        f"with_retry(), or call it in an @entrypoint; inside an @entrypoint use patch_messages."
    )


def _no_model_error(
    builder: StateGraph[Any, Any, Any, Any], missing: Sequence[str], *, recursive: bool
) -> GraphError:
    nodes = ", ".join(_node_names(builder, recursive=recursive)) or "none"
    return GraphError(
        f"No node called {' or '.join(map(repr, missing))}: name the node that calls the model "
        f"with model_node=... The nodes are: {nodes}."
    )


def _node_names(
    builder: StateGraph[Any, Any, Any, Any], *, recursive: bool, prefix: str = ""
) -> Iterator[str]:
    for node, spec in builder.nodes.items():
        yield repr(prefix + node)
        if recursive and isinstance(spec.runnable, CompiledStateGraph):
            yield from _node_names(spec.runnable.builder, recursive=True, prefix=f"{prefix}{node}.")


def _builder_of(graph: Any) -> StateGraph[Any, Any, Any, Any]:
    return graph.builder if isinstance(graph, CompiledStateGraph) else graph


# --- the graph -------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Patcher:
    """Patches a graph and the graphs that are its nodes, and notes the models it finds."""

    names: frozenset[str]
    recursive: bool
    persist: bool
    name: str
    door: _FrontDoor
    node: PatchNode
    found: set[str] = dataclasses.field(default_factory=set)

    def patch(self, graph: Any) -> Any:
        if isinstance(graph, CompiledStateGraph):
            return _compiled_like(graph, self._patched(graph.builder))
        return self._patched(graph)

    def _patched(self, builder: StateGraph[Any, Any, Any, Any]) -> StateGraph[Any, Any, Any, Any]:
        key = self.node.messages_key
        if key not in builder.channels:
            raise key_error(key, builder.channels)
        if self.name in builder.nodes:
            raise GraphError(
                f"There is a node called {self.name!r} already: either the graph is patched, "
                f"or give the new node another name with name=..."
            )
        patched = _copy_of(builder)
        for node, spec in builder.nodes.items():
            if isinstance(spec.runnable, CompiledStateGraph):
                self._patch_subgraph(patched, node, spec.runnable)
            elif node in self.names:
                self._patch_model(patched, node, spec.runnable)
        if self.persist:
            _add_front_door(patched, self.name, self.door)
        return patched

    def _patch_subgraph(
        self,
        patched: StateGraph[Any, Any, Any, Any],
        node: str,
        inner: CompiledStateGraph[Any, Any, Any, Any],
    ) -> None:
        """The last mile around a graph that shares the history, and a patch inside it."""
        if self.node.messages_key not in inner.builder.channels:
            return
        if self.recursive and self.name not in inner.builder.nodes:
            inner = self.patch(inner)
        self._patch_model(patched, node, inner)

    def _patch_model(
        self, patched: StateGraph[Any, Any, Any, Any], node: str, runnable: Any
    ) -> None:
        self.found.add(node)
        patched.nodes[node] = dataclasses.replace(
            patched.nodes[node],
            runnable=LastMile(runnable, self.node, persist=self.persist),
        )


def _copy_of(builder: StateGraph[Any, Any, Any, Any]) -> StateGraph[Any, Any, Any, Any]:
    """A builder of its own: compile() writes into the containers and the node specs."""
    copied = copy.copy(builder)
    for attribute, value in vars(builder).items():
        if not isinstance(value, type):
            setattr(copied, attribute, copy.copy(value))
    copied.nodes = {node: copy.copy(spec) for node, spec in builder.nodes.items()}
    for source, branches in builder.branches.items():
        copied.branches[source] = dict(branches)
    copied.compiled = False
    return copied


def _compiled_like(
    old: CompiledStateGraph[Any, Any, Any, Any], builder: StateGraph[Any, Any, Any, Any]
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Compile `builder` with all that the old graph was compiled with or was given since."""
    new = builder.compile(
        checkpointer=old.checkpointer,
        cache=old.cache,
        store=old.store,
        interrupt_before=cast("Any", old.interrupt_before_nodes),
        interrupt_after=cast("Any", old.interrupt_after_nodes),
        debug=old.debug,
        name=old.name,
        transformers=old.stream_transformers,
    )
    for attribute in (
        "config",
        "stream_mode",
        "stream_eager",
        "step_timeout",
        "retry_policy",
        "cache_policy",
    ):
        setattr(new, attribute, getattr(old, attribute))
    return new


# --- the front door --------------------------------------------------------------------


class _FrontDoor(PatchNode):
    """The visible node. Calls at the tail belong to whoever comes next, it may be the tools."""

    allow_pending = True


def _add_front_door(builder: StateGraph[Any, Any, Any, Any], name: str, door: _FrontDoor) -> None:
    """START goes to `name` if the history is damaged; `name` goes where START went."""
    key = door.messages_key
    view = TypedDict("HistoryView", {key: list})  # type: ignore[misc]  # the key is an option
    ends = sorted(end for start, end in builder.edges if start == START)
    branches = builder.branches.pop(START, {})
    builder.edges = {edge for edge in builder.edges if edge[0] != START}
    builder.add_node(name, door, input_schema=view)
    for end in ends:
        builder.add_edge(name, end)
    if ends:
        builder.add_conditional_edges(START, _Gate(name, door, ends), [name, *ends])
        for label, branch in builder.branches[START].items():
            builder.branches[START][label] = branch._replace(input_schema=view)
    for label, branch in branches.items():
        _guard_branch(builder, name, door, label, branch)


def _guard_branch(
    builder: StateGraph[Any, Any, Any, Any], name: str, door: _FrontDoor, label: str, branch: Any
) -> None:
    schema = branch.input_schema or builder.state_schema
    builder.branches[name][label] = branch._replace(input_schema=schema)
    guarded = branch._replace(
        path=_Gate(name, door, branch.path),
        ends={**branch.ends, name: name} if branch.ends is not None else None,
    )
    if door.messages_key not in builder.schemas[schema]:
        view, narrow = _widened(builder, schema, door.messages_key)
        guarded = guarded._replace(path=_Gate(name, door, narrow | branch.path), input_schema=view)
    builder.branches[START][label] = guarded


def _widened(
    builder: StateGraph[Any, Any, Any, Any], schema: Any, key: str
) -> tuple[Any, Runnable[Any, Any]]:
    """A view of `schema` and the history, and the way back from it to `schema`."""
    keys = list(builder.schemas[schema])
    view = TypedDict("RouterView", dict.fromkeys([*keys, key], Any))  # type: ignore[misc]
    builder.schemas[view] = {**builder.schemas[schema], key: builder.channels[key]}

    def narrow(state: dict[str, Any]) -> Any:
        own = {k: v for k, v in state.items() if k in keys}
        return own if issubclass(schema, dict) else schema(**own)

    return view, RunnableLambda(narrow)


class _Gate(Runnable[Any, Any]):
    """The path of a START branch: to the front door if the history is damaged, else on."""

    def __init__(
        self, name: str, door: _FrontDoor, onward: Sequence[str] | Runnable[Any, Any]
    ) -> None:
        self.name = onward.name if isinstance(onward, Runnable) else name
        self._door_name = name
        self._door = door
        self._onward = onward

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if self._is_damaged(input):
            return self._door_name
        onward = self._onward
        return onward.invoke(input, config) if isinstance(onward, Runnable) else list(onward)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if self._is_damaged(input):
            return self._door_name
        onward = self._onward
        return await onward.ainvoke(input, config) if isinstance(onward, Runnable) else list(onward)

    def _is_damaged(self, state: Any) -> bool:
        return self._door.is_damaged(self._door.history(state, {}), allow_pending=True)
