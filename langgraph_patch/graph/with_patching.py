"""`with_patching`: add the entry check and the node wrappers to a graph.

A patch node before every model call would cost a superstep and a checkpoint in every turn. A
router between the tools and the model would be wrong, since each parallel `Send` task sees its
own result only. So START leads to the node `patch_tool_calls` only if a history is damaged, and
a wrapper around the runnable of each node checks what the node reads. Both cost next to nothing if
the history is valid. `wrapping.py` decides what is done around which node.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from itertools import count
from types import FunctionType, NoneType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.graphs import Graph, Tools
from langgraph_patch._text import short
from langgraph_patch.errors import GraphError, OptionError, check_flags, logger
from langgraph_patch.graph.node import PatchedNode
from langgraph_patch.graph.subgraph import as_graph
from langgraph_patch.graph.wrapping import (
    CoveredNode,
    cover,
    described,
    has_fallbacks,
    replace_tool_node,
    tool_step_of,
)
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.repairing.entry import RepairNode, add_entry_check, name_error
from langgraph_patch.repairing.reconcile import Lookup
from langgraph_patch.repairing.repairer import OnPatch, Recover, Repairer
from langgraph_patch.tools.once_names import check_tools, checked_names, warn_of_unknown
from langgraph_patch.tools.record import fan_out, guarded_tool_node, recordable, recorded_tool_node

GraphT = TypeVar(
    "GraphT", bound="StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]"
)

_Builder: TypeAlias = "StateGraph[Any, Any, Any, Any]"


def with_patching(
    graph: GraphT,
    *,
    model_node: str | Sequence[str] | None = None,
    placeholder: Placeholder | None = None,
    messages_key: str | Sequence[str] = "messages",
    recover: Recover = True,
    reconcile: Mapping[str, Lookup] | None = None,
    on_patch: OnPatch | None = None,
    record: bool = False,
    once: Sequence[str] = (),
) -> GraphT:
    """Make a graph that repairs its own tool-call history.

    A damaged history is repaired in the state before the first node of a run, by a node of its own.
    What damages it later is repaired around the nodes, whatever their names:

    - The input of each node is repaired. If the node runs alone in its superstep and adds a message
      of a model, the repair is written to the state with it; otherwise START writes it with the
      next message.
    - Tool calls at the end of the history stay open: the node may stand between a model and its
      tools. If a model that it asks refuses them, they get placeholders for the request, and the
      node runs again: that counts if it adds a message of a model. Before the first request they
      get recorded results only; before a node that `model_node` names, placeholders too.
    - A compiled graph that is a node is patched inside. A `ToolNode` repairs nothing.

    A history without any LangChain message, such as a list of plain dicts, is left alone, and one
    WARNING says so.

    A tool call that was cut off (token limit, broken connection) is not run. If its message has no
    complete call, the node runs once more. If a provider refuses the history (status 400 or 422),
    and nothing else ran in the node, it is repaired, and the node runs again; see
    https://github.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/refused.md.

    The logger `langgraph_patch` lists on level INFO which nodes are covered, and each repair that
    is written; such a repair is a custom event of the run as well. One WARNING comes when a node
    calls a model with a history that `messages_key` does not name.

    Args:
        graph: A `StateGraph` or a compiled graph, built by hand or by `create_react_agent`,
            `create_agent` and others. It is not changed.
        model_node: The name of a node that does nothing but call a model, and behind which no tool
            runs the calls that it reads, or a list of names: open calls at the end of its history
            are answered before the first request, and not after a refusal. A node that asks a human
            about them would find none. `"team.llm"` is the node
            `llm` of the graph that is the node `team`; a name without a dot is that of a node in
            any of the graphs. Default: None.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. `{name}` and `{id}` in a text are replaced. Default:
            a text that names the cause.
        messages_key: The state key that has the history, or a list of keys if there are several
            histories: each is repaired on its own. A key may belong to a graph that is a node
            only. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history. They are searched only if the history is damaged.
            If a checkpoint cannot be read, a WARNING reports
            it and the calls count as `unknown`; with `"required"` an `EvidenceError` is raised,
            also if there is no checkpointer.
            What the tool wrote to other state keys is restored with its result, if these keys
            have not changed since; otherwise the result names what was not kept. Default: True.
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
            fails or is killed, and it is not run again. Two calls that wait at the same time must
            be answered by interrupt id. A WARNING names each `ToolNode` whose calls cannot be sent
            one by one. Default: False, a `ToolNode` stores no result before all its calls have
            ended.
        once: The names of tools whose calls run once, whoever answers, resumes or replays, and how
            often, also in graphs that are nodes. Before such a tool runs, the run claims the call
            in the checkpointer of the thread. A second run gets the recorded result, or a
            `StartedError` if there is none: if the call still runs, failed, or was started with
            other arguments. See
            https://github.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/once.md.
            Default: none.

    Returns:
        A new graph of the same type, with the same settings and checkpointer, the same nodes, and
        the node `patch_tool_calls`. `graph` itself if it is patched already, with these options.

    Raises:
        GraphError: If `graph` is not such a graph, its state has no keys, no node reads the state
            key `messages_key`, there is no node `model_node`, there is a node called
            `patch_tool_calls`, or the graph is patched already with other options.
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
    builder = _checked_builder(graph)
    names = () if model_node is None else _names("model_node", model_node)
    keys = _names("messages_key", messages_key)
    check_flags(record=record)
    repairer = Repairer(
        placeholder=placeholder,
        recover=recover,
        reconcile=reconcile,
        on_patch=on_patch,
        once=checked_names(once),
    )
    options = (names, keys, placeholder, recover, reconcile, on_patch, record, repairer.once)
    if Graph(builder).is_patched_with(options):
        return graph
    nodes = cover(Graph(builder), frozenset(keys), frozenset(names))
    _check_names(names, nodes)
    tool_nodes = [node.tool_node for node in nodes.values() if node.tool_node is not None]
    tools = {name for each in tool_nodes for name in each.tools_by_name}  # other nodes may run more
    alike = [name for name in reconcile or () if get_close_matches(name, tools)]
    warn_of_unknown("reconcile", alike, tools)
    _check_once(repairer.once, tools, nodes)
    _check_keys(Graph(builder), nodes, keys)
    repairers = {key: replace(repairer, messages_key=key, other_histories=keys) for key in keys}
    patched = _patch_graph(graph, _Context(nodes, repairers, repairer.once, record=record))
    Graph(_checked_builder(patched)).mark_as_patched(options)
    if record and not tool_nodes:
        logger.warning("record=True records nothing: no node of the graph is a ToolNode")
    _log_once(described(nodes, record=record))
    return cast("GraphT", patched)


_LOGGED: dict[str, Iterator[int]] = {}
"""The lines that were logged, at most 1,000, and how often each came."""


def _log_once(line: str) -> None:
    """Log which nodes are covered, once for each text: a server may make a graph for each run."""
    if len(_LOGGED) >= 1_000:  # noqa: PLR2004 - said above
        _LOGGED.clear()
    # In one step each: graphs may be made in several threads.
    if logger.isEnabledFor(logging.INFO) and next(_LOGGED.setdefault(line, count())) == 0:
        logger.info("with_patching: %s", line)


# --- patching --------------------------------------------------------------------------


class _Context(NamedTuple):
    """What is to be done around which node.

    Attributes:
        nodes: How each node is covered, by its path.
        repairers: For each state key the repairer of its history.
        once: The tools whose calls run once.
        record: Whether each call of a `ToolNode` becomes a task of its own.
    """

    nodes: Mapping[str, CoveredNode]
    repairers: Mapping[str, Repairer]
    once: Sequence[str]
    record: bool


def _patch_graph(graph: Any, context: _Context, prefix: str = "") -> Any:
    if isinstance(graph, CompiledStateGraph):
        return Graph(_patch_builder(graph.builder, context, prefix)).compiled_like(graph)
    return _patch_builder(graph, context, prefix)


def _patch_builder(builder: _Builder, context: _Context, prefix: str) -> _Builder:
    graph, patched = Graph(builder), Graph(builder).copied()
    repairers = [each for key, each in context.repairers.items() if key in graph.channels]
    if repairers and RepairNode.name in graph.runnables:  # first: it cannot be wrapped again
        raise name_error(graph.runnables[RepairNode.name])
    covered = {node: context.nodes[prefix + node] for node in graph.runnables}
    found = {name: node.tool_node or tool_step_of(node.runnable) for name, node in covered.items()}
    tool_nodes = {name: tool_node for name, tool_node in found.items() if tool_node}
    recorded = recordable(graph, tool_nodes) if context.record else {}
    unpatched = {*graph.channels} - context.repairers.keys()
    for name, node in covered.items():
        runnable = node.runnable
        if name in recorded:
            make = partial(recorded_tool_node, patched, name, context.once)
            runnable = replace_tool_node(runnable, make)
        elif node.tool_node is not None:
            runnable = replace_tool_node(runnable, partial(guarded_tool_node, context.once))
        elif not isinstance(runnable, RepairNode):
            runnable = as_graph(_patched_node(patched, name, context, prefix, unpatched))
        patched.replace_runnable(name, runnable)
    fan_out(patched, recorded)
    if repairers:
        add_entry_check(patched, repairers)
    return cast("_Builder", patched.builder)


def _patched_node(
    patched: Graph, node: str, context: _Context, prefix: str, unpatched: set[str]
) -> PatchedNode:
    covered = context.nodes[prefix + node]
    runnable = covered.runnable
    if covered.is_graph and RepairNode.name not in Graph(runnable.builder).runnables:
        runnable = _patch_graph(runnable, context, f"{prefix}{node}.")
    repairers = {
        key: replace(context.repairers[key], leaves_open=not covered.is_model)
        for key in context.repairers
        if key in covered.keys
    }
    return PatchedNode(
        *(runnable, repairers, patched.output_keys),
        unpatched=unpatched,
        has_cache=patched.has_cache(node),
    )


# --- the arguments -----------------------------------------------------------------------


_REMEDIES: Sequence[tuple[Any, str]] = (
    (NoneType, "Perhaps the function that makes the graph does not return it"),
    (type, "Pass a graph that is made of the class"),
    (FunctionType, "Call the function that makes the graph, and pass what it returns"),
    (BaseChatModel, "A model is patched by patch_model, or as a part of its graph"),
    (BaseTool | ToolNode, "Patch the graph in which it is"),
    (BaseCheckpointSaver, "Its stored threads are repaired by repair_thread"),
    (
        object,
        (
            "Patch the graph before you bind() it, give it a with_retry(), or call it in an "
            "@entrypoint; inside an @entrypoint use patch_model. If it runs on a server, patch it "
            "there, where it is made"
        ),
    ),
)
"""What to do with something that is no graph: the first kind that it is of."""


def _checked_builder(graph: object) -> _Builder:
    """The builder of a graph, compiled or not."""
    builder = graph.builder if isinstance(graph, CompiledStateGraph) else graph
    if not isinstance(builder, StateGraph):
        remedy = next(text for kind, text in _REMEDIES if isinstance(graph, kind))
        raise GraphError(
            f"{short(graph, 60)} is a {type(graph).__name__}: expected a StateGraph, or the "
            f"compiled graph that its compile() returns. {remedy}."
        )
    Graph(builder).check()
    if storage.ROOT_CHANNEL in Graph(builder).channels:
        raise GraphError(
            "The state of the graph is a bare value: expected a schema with a key for the history, "
            "such as StateGraph(MessagesState)."
        )
    return builder


def _names(option: str, value: object) -> tuple[str, ...]:
    """The name or the names that an option has, each once."""
    names = [value] if isinstance(value, str) else value
    names = list(names) if isinstance(names, Sequence | AbstractSet) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        kind = "node" if option == "model_node" else "state key"
        raise OptionError(
            f"{option}={short(value)}: expected the name of a {kind}, or a list of such names."
        )
    return tuple(dict.fromkeys(names))


def _check_names(names: Iterable[str], nodes: Mapping[str, CoveredNode]) -> None:
    """Check that each name is that of a node that may call a model."""
    paths = [path for path, node in nodes.items() if node.may_call_a_model]
    known = {*paths, *(path.rsplit(".", 1)[-1] for path in paths)}
    if missing := sorted(set(names) - known):
        meant = get_close_matches(missing[0], sorted(known), 1)
        raise GraphError(
            f"model_node: no node called {' or '.join(map(repr, missing))} can call a model: "
            f"expected one of {_listed(paths)}." + (f" Did you mean {meant[0]!r}?" if meant else "")
        )


def _check_keys(graph: Graph, nodes: Mapping[str, CoveredNode], keys: Sequence[str]) -> None:
    """Check that a node reads each history."""
    unread = [key for key in keys if not any(key in node.keys for node in nodes.values())]
    if unread:
        graphs = [graph, *(node.graph for node in nodes.values())]
        found = sorted({name for each in graphs for name in storage.state_keys(each.channels)})
        raise GraphError(
            f"No node reads the state key {unread[0]!r}, so there is nothing to patch: give the "
            f"key of the history with messages_key=... The state keys are: {_listed(found)}. The "
            f"nodes are: {_listed(nodes)}."
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _check_once(
    names: Sequence[str], tools: Collection[str], nodes: Mapping[str, CoveredNode]
) -> None:
    """Check that there is a tool for each name, and that nothing takes a refusal for an error."""
    if not names:
        return
    found = {path: node for path, node in nodes.items() if node.tool_node is not None}
    may_run_others = any(Tools(node.tool_node).may_run_others for node in found.values())
    check = partial(warn_of_unknown, "once") if may_run_others else check_tools
    check(names, tools)
    for path, node in found.items():
        if has_fallbacks(node.runnable):
            raise GraphError(
                f"once: the node {path!r} is a ToolNode with_fallbacks, which would take a call "
                f"that is not run again for one that failed. Use handle_tool_errors=..."
            )
