"""`with_patching`: add the entry check and the node wrappers to a graph.

A patch node before every model call would cost a superstep and a checkpoint in every turn. A
router between the tools and the model would be wrong, since each parallel `Send` task sees its
own result only. So START leads to the node `patch_tool_calls` only if a history is damaged, and
a wrapper around the runnable of each node checks what the node reads. Both cost next to nothing if
the history is valid. `coverage.py` decides what is done around which node.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph_builder import (
    compile_like,
    copy_builder,
    input_of_node,
    keys_read_by,
    node_runnables,
    replace_runnable,
)
from langgraph_patch.errors import GraphError
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.checked_arguments import (
    check_coverage,
    check_reconcile,
    checked_builder,
    checked_keys,
    checked_names,
)
from langgraph_patch.graph.coverage import (
    Coverage,
    all_keys,
    cover,
    replace_tool_node,
    tool_nodes_in,
)
from langgraph_patch.graph.entry import add_entry_check
from langgraph_patch.graph.fan_out import (
    fan_out,
    guarded_tool_node,
    recordable,
    recorded_tool_node,
)
from langgraph_patch.graph.histories import Histories
from langgraph_patch.graph.node_wrapper import NodeWrapper
from langgraph_patch.graph.repairer import OnPatch, Recover, Repairer
from langgraph_patch.history.placeholders import Language, Placeholder

logger: logging.Logger = logging.getLogger("langgraph_patch")

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
    messages_key: str | Sequence[str] = "messages",
    recover: Recover = True,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    reconcile: Mapping[str, Lookup] | None = None,
    on_patch: OnPatch | None = None,
    record: bool = False,
) -> GraphT:
    """Make a graph that repairs its own tool-call history.

    The history is checked before the first node of a run and before each node that reads it,
    whatever the names of the nodes. A damaged history is repaired in the state before the first
    node runs, by a node of its own. What damages it later is repaired around the nodes:

    - Around a model node the whole history is repaired, and the repair is written to the state.
      Model nodes are those that `model_node` names, those to which a `ToolNode` leads, and
      `agent` or `model` if another node can follow them.
    - Around any other node only its input is repaired, except for tool calls at the end of the
      history: to answer those may be what the node is for (an approval, a judge, a frontend). It
      writes nothing, and what it returns is what the bare node would return. A compiled graph that
      is a node writes the repair, because it returns its whole history.
    - A `ToolNode` is left as it is.

    A tool call that the model did not finish writing never runs. When a stream ends inside the
    arguments (token limit, broken connection), LangChain completes them, and a bare graph runs
    the tool with arguments that the model never wrote. In a patched graph the call is listed in
    `invalid_tool_calls`. Complete calls of the same message run. If there are none, the node runs
    once more, with the message and a placeholder for each call at the end of its history. A second
    such message ends the turn.

    The logger `langgraph_patch` lists which nodes are covered, and how, on level INFO. It reports
    each repair with the thread id and the changes: on level INFO if the repair is written to the
    state, on level DEBUG if only the input of a node is repaired.

    The check at START applies the reducers to the input, as every conditional edge does. So a
    reducer must return a new value, as LangGraph requires: one that extends its first argument in
    place would extend it twice.

    Results in the input of a run are compared with the checkpoints, because some clients answer
    open calls with invented results: a recorded result replaces what the client sent. A result
    of a call that no task of the graph ran stays as it is.

    Args:
        graph: A `StateGraph` or a compiled graph, built by hand or by `create_react_agent`,
            `create_agent` and others. It is not changed.
        model_node: The name of a node that calls a model, or a list of names. It is needed for
            nodes that are not found as above, if calls at the end of their history must be
            answered. `"team.llm"` is the node `llm` of the graph that is the node `team`; a name
            without a dot is that of a node in any of the graphs. Default: None.
        recursive: Whether to patch the compiled graphs that are nodes of the graph, too.
            Default: True.
        persist: Whether to write repairs to the state. If False, only the input of the nodes is
            repaired, and START does not check. Default: True.
        name: The name of the new node that repairs the state before the first node.
            Default: `"patch_tool_calls"`.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
        language: The language of the default texts, `"en"` or `"zh"`. Default: the language of
            the process (`set_language`).
        messages_key: The state key that has the history, or a list of keys if there are several
            histories: each is repaired on its own. A key may belong to a graph that is a node
            only. If the state is a bare list of messages, the default is that list.
            Default: `"messages"`.
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
        record: Whether each call of a `ToolNode` that an edge or a router leads to becomes a task
            of its own, as in `create_agent`, also in graphs that are nodes. LangGraph then stores
            the result of each call at once: it is not lost if another call of the message pauses,
            fails or is killed, and it is not run again. Two calls that wait for an answer at the
            same time must be answered by interrupt id: `Command(resume="yes")` without an id then
            raises a `RuntimeError`. If a router leaves the `ToolNode`, it runs in a node of its
            own, `<name>_routers`, one superstep later. A WARNING names each `ToolNode` whose calls
            cannot be sent one by one. Default: False, a `ToolNode` stores no result before all its
            calls have ended.

    Returns:
        A new graph of the same type, with the same nodes, settings and checkpointer.

    Raises:
        GraphError: If `graph` is not such a graph, there is no state key `messages_key`, no node
            reads it, there is no node `model_node`, or there is a node called `name` already.
        OptionError: If an option has an invalid value.

    Examples:
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
    builder = checked_builder(graph)
    names = checked_names(model_node)
    keys = checked_keys(messages_key, builder, recursive=recursive)
    options: dict[str, Any] = {
        "placeholder": placeholder,
        "language": language,
        "recover": recover,
        "replace_foreign": replace_foreign,
        "checkpointer": checkpointer,
        "reconcile": reconcile,
        "on_patch": on_patch,
    }
    context = _Context(
        coverage=cover(builder, frozenset(keys), names, recursive=recursive),
        recursive=recursive,
        persist=persist,
        record=record,
        name=name,
        repairers=_repairers(keys, options),
        repairers_before_tools=_repairers(keys, {**options, "allow_pending": True}),
    )
    check_coverage(context.coverage, keys, names, builder, recursive=recursive)
    check_reconcile(reconcile or (), builder, recursive=recursive)
    patched = _patch_graph(graph, context)
    logger.info("with_patching %s", context.coverage.described(record=record))
    return cast("GraphT", patched)


# --- patching --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Context:
    """The options, and what is to be done around which node.

    Attributes:
        coverage: How each node is covered.
        recursive: Whether to patch subgraphs.
        persist: Whether to write repairs to the state.
        record: Whether to record tool calls.
        name: The name of the new node.
        repairers: For each state key the repairer where a model comes next.
        repairers_before_tools: The same where the tools may come next.
    """

    coverage: Coverage
    recursive: bool
    persist: bool
    record: bool
    name: str
    repairers: Mapping[str, Repairer]
    repairers_before_tools: Mapping[str, Repairer]


def _repairers(keys: Sequence[str], options: Mapping[str, Any]) -> dict[str, Repairer]:
    return {key: Repairer(messages_key=key, other_histories=keys, **options) for key in keys}


def _patch_graph(graph: Any, context: _Context, prefix: str = "") -> Any:
    if isinstance(graph, CompiledStateGraph):
        return compile_like(graph, _patch_builder(graph.builder, context, prefix))
    return _patch_builder(graph, context, prefix)


def _patch_builder(builder: _Builder, context: _Context, prefix: str) -> _Builder:
    if context.name in builder.nodes:
        raise GraphError(
            f"There is a node called {context.name!r} already: either the graph is patched, "
            f"or give the new node another name with name=..."
        )
    patched: _Builder = copy_builder(builder)
    nodes = node_runnables(builder)
    recorded: dict[str, str] = {}
    if context.record:
        recorded = recordable(builder, [n for n in nodes if any(tool_nodes_in(nodes[n]))])
    for node in nodes:
        _patch_node(patched, node, context, prefix, is_recorded=node in recorded)
    fan_out(patched, recorded)
    keys = [key for key in context.repairers if key in builder.channels]
    if context.persist and keys:
        repairers = [context.repairers_before_tools[key] for key in keys]
        add_entry_check(patched, context.name, repairers)
    return patched


def _patch_node(
    patched: _Builder, node: str, context: _Context, prefix: str, *, is_recorded: bool
) -> None:
    """Wrap the runnable of a node, and patch it if it is a graph."""
    covered, runnable = context.coverage.nodes[prefix + node], node_runnables(patched)[node]
    if covered.kind == "repair":
        return
    if covered.kind == "tools":
        replacement: Any = guarded_tool_node
        if is_recorded:
            replacement = partial(recorded_tool_node, *input_of_node(patched, node))
        replace_runnable(patched, node, replace_tool_node(runnable, replacement))
        return
    keys = [key for key in context.repairers if key in keys_read_by(patched, node)]
    if isinstance(runnable, CompiledStateGraph):
        runnable = _patch_subgraph(runnable, context, f"{prefix}{node}.")
        keys = [key for key in keys if key in runnable.builder.channels]
    before_model, before_tools = context.repairers, context.repairers_before_tools
    histories = Histories(
        repairers=tuple(
            (before_model if key in covered.model_keys else before_tools)[key] for key in keys
        ),
        writers={
            key: _writers(patched, key, context, prefix)
            for key in keys
            if context.persist and key in covered.written
        },
    )
    replace_runnable(patched, node, NodeWrapper(runnable, histories))


def _writers(patched: _Builder, key: str, context: _Context, prefix: str) -> frozenset[str]:
    """The nodes of a graph that write repairs of a history."""
    covered = context.coverage.nodes
    return frozenset(
        node for node in node_runnables(patched) if key in covered[prefix + node].written
    )


def _patch_subgraph(
    graph: CompiledStateGraph[Any, Any, Any, Any], context: _Context, prefix: str
) -> Any:
    """A graph that is a node, patched unless that is done or there is nothing to patch in it."""
    is_patched = context.name in graph.builder.nodes
    has_history = not all_keys(graph.builder, recursive=True).isdisjoint(context.repairers)
    if not context.recursive or is_patched or not (has_history or context.record):
        return graph
    return _patch_graph(graph, context, prefix)
