"""`with_patching`: add the entry check and the model node wrappers to a graph.

A patch node before every model call would cost a superstep and a checkpoint in every turn. A
router between the tools and the model would be wrong, since each parallel `Send` task sees its
own result only. So START leads to the node `patch_tool_calls` only if the history is damaged, and
a wrapper around the runnable of each model node checks what the node reads. Both cost next to
nothing if the history is valid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph_builder import (
    can_be_followed,
    compile_like,
    copy_builder,
    node_runnables,
    replace_runnable,
)
from langgraph_patch.errors import GraphError
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.entry import add_entry_check
from langgraph_patch.graph.model_node import ModelNodeWrapper
from langgraph_patch.graph.patch_node import OnPatch, PatchNode, Recover
from langgraph_patch.graph.state_values import unknown_key_error
from langgraph_patch.history.placeholders import Language, Placeholder

MODEL_NODES = ("agent", "model")
"""The names of the model node in LangGraph's and LangChain's prebuilt agents."""

GraphT = TypeVar(
    "GraphT", bound="StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]"
)

_Builder: TypeAlias = "StateGraph[Any, Any, Any, Any]"


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
    recover: Recover = True,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    reconcile: Mapping[str, Lookup] | None = None,
    on_patch: OnPatch | None = None,
) -> GraphT:
    """Make a graph that repairs its own tool-call history.

    The history is checked before the first node of a run and before each model node. A damaged
    history is repaired in the state before the first node runs, by a node of its own. What damages
    it later is repaired around the model node.

    A tool call that the model did not finish writing never runs. When a stream ends inside the
    arguments (token limit, broken connection), LangChain completes them, and a bare graph runs
    the tool with arguments that the model never wrote. In a patched graph the call is listed in
    `invalid_tool_calls`. Complete calls of the same message run. If there are none, the node runs
    once more, with the message and a placeholder for each call at the end of its history. A second
    such message ends the turn.

    The logger `langgraph_patch` reports each repair, with the thread id and the changes: on
    level INFO if the repair is written to the state, on level DEBUG if only the input of a model
    is repaired.

    The check at START applies the reducers to the input, as every conditional edge does. So a
    reducer must return a new value, as LangGraph requires: one that extends its first argument in
    place would extend it twice.

    Results in the input of a run are compared with the checkpoints, because some clients answer
    open calls with invented results: a recorded result replaces what the client sent. A result
    of a call that no task of the graph ran stays as it is.

    Args:
        graph: A `StateGraph` or a compiled graph, built by hand or by `create_react_agent`,
            `create_agent` and others. It is not changed.
        model_node: The name of the node that calls the model, or a list of names. Default: the
            nodes `agent` and `model`, also in subgraphs. If no other node can follow such a node,
            it may run its own tools, and calls at the end of its history are left to it. The
            input of each compiled graph that is a node is repaired too, except for calls at the
            end of the history, which that graph may be about to run: name the node if its graph
            answers them.
        recursive: Whether to patch the compiled graphs that are nodes of the graph, too.
            Default: True.
        persist: Whether to write repairs to the state. If False, only the input of the model
            nodes is repaired, and START does not check. Default: True.
        name: The name of the new node that repairs the state before the first node.
            Default: `"patch_tool_calls"`.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
        language: The language of the default texts, `"en"` or `"zh"`. Default: the language of
            the process (`set_language`).
        messages_key: The state key that has the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history. They are searched only if the history is damaged, or
            if the input of the run has results. If a checkpoint cannot be read, a WARNING reports
            it and the calls count as `unknown`; with `"required"` an `EvidenceError` is raised.
            What the tool wrote to other state keys is restored with its result, if these keys
            have not changed since; otherwise the result names what was not kept. Default: True.
        replace_foreign: Whether to treat the tool messages that deepagents or
            langgraph-checkpoint-aws wrote for calls without a result as placeholders: they are
            replaced by the recorded result, or by a placeholder with the recorded cause. Set it
            for threads that such a package has repaired, as its "was cancelled" may be false.
            It has a cost: every history is then read in full, also a valid one. Default: False,
            such messages count as results.
        checkpointer: The checkpointer to search. Default: the checkpointer of the run.
        reconcile: For each tool name a function that takes a `DanglingCall` and returns the
            result of the call as a `ToolMessage` or a text, or None if it does not know. It is
            asked about calls of which no outcome is recorded (`unknown`, `cancelled`,
            `awaiting_input`). It may be asynchronous if the run is. If it raises, a WARNING
            reports it and the call stays as it was. Default: None.
        on_patch: A function that is called with the `Patch` and the config of the run for each
            repair, before it is written: for metrics, alerts and audits. If it raises, the run
            fails with its exception and nothing is written. Default: None.

    Returns:
        A new graph of the same type, with the same nodes, settings and checkpointer.

    Raises:
        GraphError: If `graph` is not such a graph, the state has no key `messages_key`, there is
            no model node, or the graph has a node called `name` already.
        OptionError: If an option has an invalid value.

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
        "reconcile": reconcile,
        "on_patch": on_patch,
    }
    context = _Context(
        model_nodes=_checked_names(model_node),
        named=model_node is not None,
        recursive=recursive,
        persist=persist,
        name=name,
        node=PatchNode(**options),
        node_before_tools=PatchNode(**options, allow_pending=True),
    )
    patched = _patch_graph(_checked_graph(graph), context)
    missing = context.model_nodes - context.wrapped
    if not context.wrapped or (model_node is not None and missing):
        raise _no_model_error(_builder_of(graph), sorted(missing), recursive=recursive)
    return cast("GraphT", patched)


# --- arguments and errors --------------------------------------------------------------


def _checked_names(model_node: str | Sequence[str] | None) -> frozenset[str]:
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


def _no_model_error(builder: _Builder, missing: Sequence[str], *, recursive: bool) -> GraphError:
    nodes = ", ".join(_node_names(builder, recursive=recursive)) or "none"
    return GraphError(
        f"No node called {' or '.join(map(repr, missing))}: name the node that calls the model "
        f"with model_node=... The nodes are: {nodes}."
    )


def _node_names(builder: _Builder, *, recursive: bool, prefix: str = "") -> Iterator[str]:
    for node, runnable in node_runnables(builder).items():
        yield repr(prefix + node)
        if recursive and isinstance(runnable, CompiledStateGraph):
            yield from _node_names(runnable.builder, recursive=True, prefix=f"{prefix}{node}.")


def _builder_of(graph: Any) -> _Builder:
    return graph.builder if isinstance(graph, CompiledStateGraph) else graph


# --- patching --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Context:
    """The options, and what has been wrapped so far.

    Attributes:
        model_nodes: The names of the model nodes.
        named: Whether the application named them.
        recursive: Whether to patch subgraphs.
        persist: Whether to write repairs to the state.
        name: The name of the new node.
        node: Repairs where a model comes next.
        node_before_tools: Repairs where the tools may come next.
        wrapped: The names of the nodes that have been wrapped, in all graphs.
    """

    model_nodes: frozenset[str]
    named: bool
    recursive: bool
    persist: bool
    name: str
    node: PatchNode
    node_before_tools: PatchNode
    wrapped: set[str] = dataclasses.field(default_factory=set)


def _patch_graph(graph: Any, context: _Context) -> Any:
    if isinstance(graph, CompiledStateGraph):
        return compile_like(graph, _patch_builder(graph.builder, context))
    return _patch_builder(graph, context)


def _patch_builder(builder: _Builder, context: _Context) -> _Builder:
    if context.node.messages_key not in builder.channels:
        raise unknown_key_error(context.node.messages_key, builder.channels)
    if context.name in builder.nodes:
        raise GraphError(
            f"There is a node called {context.name!r} already: either the graph is patched, "
            f"or give the new node another name with name=..."
        )
    patched: _Builder = copy_builder(builder)
    for node, runnable in node_runnables(builder).items():
        if isinstance(runnable, CompiledStateGraph):
            _patch_subgraph(patched, node, runnable, context)
        elif node in context.model_nodes:
            runs_tools = not context.named and not can_be_followed(builder, node)
            repair = context.node_before_tools if runs_tools else context.node
            _wrap(patched, node, runnable, repair, context)
    if context.persist:
        add_entry_check(patched, context.name, context.node_before_tools)
    return patched


def _patch_subgraph(
    patched: _Builder,
    node: str,
    subgraph: CompiledStateGraph[Any, Any, Any, Any],
    context: _Context,
) -> None:
    """Wrap a graph that is a node and has the same history, and patch it.

    The graph may run the tools, so calls at the end of the history are left to it. They are
    answered only if it is named as a model node and no node inside it would answer them.
    """
    if context.node.messages_key not in subgraph.builder.channels:
        return
    is_patched = context.name in subgraph.builder.nodes
    answers = is_patched or (context.recursive and _has_model_node(subgraph.builder, context))
    if context.recursive and not is_patched:
        subgraph = _patch_graph(subgraph, context)
    if answers and not context.persist:
        # A wrapper would not help: the subgraph returns its input, so the repair would be written.
        context.wrapped.add(node)
        replace_runnable(patched, node, subgraph)
        return
    leave_calls = answers or node not in context.model_nodes
    repair = context.node_before_tools if leave_calls else context.node
    _wrap(patched, node, subgraph, repair, context)


def _has_model_node(builder: _Builder, context: _Context) -> bool:
    return any(
        _has_model_node(runnable.builder, context)
        if isinstance(runnable, CompiledStateGraph)
        else node in context.model_nodes and (context.named or can_be_followed(builder, node))
        for node, runnable in node_runnables(builder).items()
    )


def _wrap(
    patched: _Builder, node: str, runnable: Any, patch_node: PatchNode, context: _Context
) -> None:
    context.wrapped.add(node)
    wrapper = ModelNodeWrapper(runnable, patch_node, persist=context.persist)
    replace_runnable(patched, node, wrapper)
