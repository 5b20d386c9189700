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
from typing import Any, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph import remade_nodes
from langgraph_patch.errors import GraphError
from langgraph_patch.graph.entry import FrontDoor, add_front_door
from langgraph_patch.graph.model_node import LastMile
from langgraph_patch.graph.patch_node import OnPatch, PatchNode, key_error
from langgraph_patch.history.placeholders import Language, Placeholder

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
            wherever they are. What goes into a node that is a compiled graph is repaired too,
            but for calls at the tail, which it may be about to run: name it if it answers them.
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
        door=FrontDoor(**options),
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
    door: FrontDoor
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
            add_front_door(patched, self.name, self.door)
        return patched

    def _patch_subgraph(
        self,
        patched: StateGraph[Any, Any, Any, Any],
        node: str,
        inner: CompiledStateGraph[Any, Any, Any, Any],
    ) -> None:
        """The last mile around a graph that shares the history, and a patch inside it.

        The graph may be the one that runs the tools: calls at the tail are left to it, unless
        it is named as a model and has none inside that would answer them.
        """
        if self.node.messages_key not in inner.builder.channels:
            return
        is_patched = self.name in inner.builder.nodes
        answers = is_patched or (self.recursive and self._holds_model(inner.builder))
        if self.recursive and not is_patched:
            inner = self.patch(inner)
        if answers and not self.persist:
            # What it was shown it would return, and so write, as its own history.
            self.found.add(node)
            patched.nodes[node] = dataclasses.replace(patched.nodes[node], runnable=inner)
        else:
            allow_pending = answers or node not in self.names
            self._patch_model(patched, node, inner, allow_pending=allow_pending)

    def _holds_model(self, builder: StateGraph[Any, Any, Any, Any]) -> bool:
        return any(
            self._holds_model(spec.runnable.builder)
            if isinstance(spec.runnable, CompiledStateGraph)
            else node in self.names
            for node, spec in builder.nodes.items()
        )

    def _patch_model(
        self,
        patched: StateGraph[Any, Any, Any, Any],
        node: str,
        runnable: Any,
        *,
        allow_pending: bool = False,
    ) -> None:
        self.found.add(node)
        patched.nodes[node] = dataclasses.replace(
            patched.nodes[node],
            runnable=LastMile(
                runnable, self.node, persist=self.persist, allow_pending=allow_pending
            ),
        )


def _copy_of(builder: StateGraph[Any, Any, Any, Any]) -> StateGraph[Any, Any, Any, Any]:
    """A builder of its own: compile() writes into the containers and the node specs."""
    copied = copy.copy(builder)
    for attribute, value in vars(builder).items():
        if not isinstance(value, type):
            setattr(copied, attribute, copy.copy(value))
    remade = remade_nodes(builder)
    copied.nodes = {
        node: copy.copy(spec) for node, spec in builder.nodes.items() if node not in remade
    }
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
