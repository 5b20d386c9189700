"""`PatchNode` repairs the history in the state; the entry check leads to it if that is damaged.

START leads to the repair node, and that leads where START led. A router of START then runs once, on
a valid history. A healthy run has no further superstep, checkpoint or event. What adds no message
START writes itself, in its own superstep: a dropped result, a mark of a placeholder.

The superstep of the repair counts against the `recursion_limit` of the run, and values that the
input has for one superstep only do not outlast it. If a router of START reads a key that only the
input has, the run passes unrepaired, and the node wrappers repair what the nodes read.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypedDict

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START
from langgraph.types import CachePolicy, Overwrite, Send

from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import GeneratorRunnable, IOGenerator, method_request
from langgraph_patch._text import short
from langgraph_patch.errors import GraphError, MessagesError, logger
from langgraph_patch.evidence.window import Reader
from langgraph_patch.history.messages import as_messages
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.history.reading import Reading
from langgraph_patch.repairing.reconcile import Lookup
from langgraph_patch.repairing.repairer import OnPatch, Recover, Repair, Repairer, write_repairs
from langgraph_patch.repairing.turns import NAME, Abandoned, abandoned_turns, repair_with_turns
from langgraph_patch.repairing.writing import NodeOutput, new_messages, whole_write
from langgraph_patch.state import get_value, history_after, messages_in, unknown_key_error

# --- the repair node ------------------------------------------------------------------------


class RepairNode(GeneratorRunnable[Any, Any]):
    """A graph node that repairs histories, and writes nothing if they are valid.

    Args:
        repairers: One for each history.
        graph: The graph, whose agents may have turns that are to be added. Default: None.
    """

    name: str | None = NAME

    def __init__(self, repairers: Sequence[Repairer], graph: Graph | None = None) -> None:
        self._repairers, self._graph = repairers, graph

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """The state update that repairs the histories; None if there is nothing to repair."""
        run, repairs = Run(config), []
        for repairer in self._repairers:
            history = messages_in(input, repairer.messages_key)
            if history and (repair := (yield from self._repair(repairer, history, run))):
                repairs.append((repairer, repair))
        run.kept_by_graph.pop(Reader, None)  # what was read a moment ago is old in the next node
        shown = self._graph.output_keys if self._graph else run.channels
        writes = yield from write_repairs(repairs, [], run, shown=shown)
        return NodeOutput(None).with_writes(writes, self, run)

    def _repair(
        self, repairer: Repairer, history: list[BaseMessage], run: Run
    ) -> IOGenerator[Repair | None]:
        """The repair of a history; None if there is nothing to repair."""
        turns = yield from abandoned_turns(repairer, history, run, self._graph)
        if isinstance(turns, Abandoned):
            return (yield from repair_with_turns(repairer, history, turns, run))
        if turns is not None:
            if repairer.recover == "required":
                raise turns
            logger.warning("%s What agents that are nodes did is not added.", turns)
        damage = repairer.read(history, run, look_again=True)
        if damage is None:
            return None
        return (yield from repairer.repair(damage, run, restore=True))


class PatchNode(RepairNode):
    """A graph node that repairs the tool-call history of the state.

    It writes nothing if the history is valid. Place it directly before the model, or let
    `with_patching` place it. The state may be of any kind, with any reducer that accepts an
    `Overwrite` or the whole list, or without one.

    It writes the whole history as an `Overwrite`, which would discard what another node of the same
    superstep writes to it. So it must run alone. `stream_mode="updates"` shows its new messages
    only.

    Args:
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. `{name}` and `{id}` in a text are replaced. Default:
            a text that names the cause.
        messages_key: The state key that has the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history. They are searched only if the history is damaged.
            If a checkpoint cannot be read, a WARNING reports it and the calls count as `unknown`;
            with `"required"` an `EvidenceError` is raised, also if there is no checkpointer.
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

    Raises:
        OptionError: If an option has an invalid value.

    Examples:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph.graph import START, MessagesState, StateGraph
        >>> from langgraph_patch import patch_node
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("patch_tool_calls", patch_node)
        >>> _ = builder.add_node("model", lambda state: {"messages": [AIMessage("hello")]})
        >>> _ = builder.add_edge(START, "patch_tool_calls")
        >>> _ = builder.add_edge("patch_tool_calls", "model")
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> history = [AIMessage("", tool_calls=[call]), HumanMessage("never mind")]
        >>> [m.type for m in builder.compile().invoke({"messages": history})["messages"]]
        ['ai', 'tool', 'human', 'ai']
    """

    def __init__(
        self,
        *,
        placeholder: Placeholder | None = None,
        messages_key: str = "messages",
        recover: Recover = True,
        reconcile: Mapping[str, Lookup] | None = None,
        on_patch: OnPatch | None = None,
    ) -> None:
        repairer = Repairer(
            placeholder=placeholder,
            messages_key=messages_key,
            recover=recover,
            reconcile=reconcile,
            on_patch=on_patch,
        )
        super().__init__([repairer])

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Say how it is used: a reader of `patch_model(model)` may call it.

        Raises:
            GraphError: In any case.
        """
        raise GraphError(
            "A patch node is no function: add it to the graph, before the model, by "
            "builder.add_node('patch_tool_calls', patch_node) and an edge that leads from it to "
            "the model. In a function use patch_messages(messages) or patch_model(model)."
        )

    def __repr__(self) -> str:
        options = inspect.signature(PatchNode).parameters
        given = {name: getattr(self._repairers[0], name) for name in options}
        own = [f"{k}={short(v, 30)}" for k, v in given.items() if v != options[k].default]
        return f"PatchNode({', '.join(own)})"

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """The state update that repairs the history; None if there is nothing to repair.

        Args:
            input: The state.
            config: The config of the run.

        Raises:
            GraphError: If the state has no key `messages_key`, or the node does not run alone.
            MessagesError: If the value of that key is not a list of messages.
            EvidenceError: If the checkpointer raises an error and `recover="required"`.
        """
        run = Run(config)
        if len(run.started_nodes) + len(run.sends) > 1:
            raise GraphError(
                f"The patch node in {run.node!r} runs beside another node: add it as a node of its "
                f"own that runs alone, before the model. In a function use patch_messages or "
                f"patch_model."
            )
        key, channels = self._repairers[0].messages_key, run.channels
        if channels and key not in channels:
            raise unknown_key_error(key, channels)
        value = get_value(input, key)
        if value is not None and not isinstance(value, list):
            try:
                as_messages(value)
            except MessagesError as error:
                raise MessagesError(f"State key {key!r}: {error}") from error
        return (yield from super().run(input, config))


class EntryNode(RepairNode):
    """The repair node of a patched graph: it repairs all its histories.

    Beside a node that a client's `goto` started it repairs nothing.
    """

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        return (yield from super().run(input, config)) if Run(config).is_alone else None

    def is_needed(self, state: Any, run: Run) -> IOGenerator[bool]:
        """Whether a history is to be repaired by the node; asked at START.

        What adds no message that clients could be shown is repaired here.
        """
        histories = [
            (each, history_after(state, each.messages_key, run)) for each in self._repairers
        ]
        damaged = [
            (repairer, reading)
            for repairer, history in histories
            if history and (reading := repairer.read(history, run, look_again=True)) is not None
        ]
        if any(map(_lacks_result, (reading for _, reading in damaged))):
            return True
        for repairer, history in histories if run.input_ended_tasks else ():
            turns = yield from abandoned_turns(repairer, history, run, self._graph)
            if turns is not None:  # an error too: the node says so, and START would not run again
                return True
        run.kept_by_graph.pop(Reader, None)
        return bool(damaged) and not (yield from self._is_repaired(damaged, run))

    def _is_repaired(
        self, damaged: Sequence[tuple[Repairer, Reading]], run: Run
    ) -> IOGenerator[bool]:
        """Whether START itself has repaired these histories, in which each call has a result."""
        repairs = []
        for repairer, reading in damaged if run.can_write_first else ():
            repair = yield from repairer.repair(reading, run, restore=True)
            write = whole_write(run.channels.get(repairer.messages_key), repair.patch)
            if new_messages(repair.patch) or repair.restored or not isinstance(write, Overwrite):
                return False
            repairs.append((repairer, repair.patch, write))
        for repairer, patch, write in repairs:
            yield from repairer.report(patch, run)
            run.write_first(repairer.messages_key, [write])
        return bool(repairs)


def _lacks_result(reading: Reading) -> bool:
    """Whether a call has neither a result nor a placeholder."""
    searched = reading.looked_for_again
    return any(call.key not in searched for call in reading.unanswered)


# --- the entry check -------------------------------------------------------------------------


class Router(GeneratorRunnable[Any, Any]):
    """A router that wraps another one and may lead elsewhere. It adds no run to traces.

    Args:
        onward: The wrapped router, or where an edge led.
        name: Its name, if `onward` is no router.
        ends: The node for each value that the router returns. Default: it returns nodes.
    """

    def __init__(self, onward: Any, name: str, ends: Mapping[Any, str] | None = None) -> None:
        self.name = onward.name if isinstance(onward, Runnable) else name
        self._onward, self._ends = onward, ends or {}

    def onward(self, input: Any, config: RunnableConfig) -> IOGenerator[Sequence[Any]]:
        """Where the wrapped router leads."""
        found = self._onward
        if isinstance(found, Runnable):
            found = yield method_request(found, "invoke", input, config)
        return found if isinstance(found, list | tuple) else [found]

    def node_of(self, target: Any) -> Any:
        """The node to which one of these leads; None for a `Send`."""
        return None if isinstance(target, Send) else self._ends.get(target, target)


class _EntryCheck(Router):
    """A router of START that leads to the repair node, if a history is to be repaired.

    Args:
        onward: The router before, or where an edge led.
        name: Its name, if `onward` is no router.
        node: The repair node.
        keys: The state keys, if a router reads the whole input: behind the repair, it would not
            find a key that only the input has. Default: None.
    """

    def __init__(
        self, onward: Any, name: str, node: EntryNode, keys: frozenset[str] | None = None
    ) -> None:
        super().__init__(onward, name)
        self._node, self._keys = node, keys

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """Where to go. All edges from START agree."""
        run = Run(config)
        if (yield from self._node.is_needed(input, run)) and not self._reads_more(run):
            return NAME
        return (yield from self.onward(input, config))

    def _reads_more(self, run: Run) -> bool:
        """Whether the input has a key that the state does not have, and a router may read it."""
        if self._keys is None:
            return False
        run_input = run.values([START]).get(START)
        return isinstance(run_input, dict) and not run_input.keys() <= self._keys


def add_entry_check(graph: Graph, repairers: Sequence[Repairer]) -> None:
    """Make START lead to a repair node if a history is damaged.

    Args:
        graph: The graph; it is changed.
        repairers: One for each history.
    """
    histories = {repairer.messages_key: list for repairer in repairers}
    history: type = TypedDict("HistoryView", histories)  # type: ignore[misc]  # the keys are an option
    targets, branches = graph.take_edges(START), graph.take_routers(START)
    # The result depends on the thread, so it must never come from a cache.
    never_cached = CachePolicy(key_func=lambda _: uuid.uuid4().hex, ttl=1)
    # Calls at the end of a history stay open: the tools may come next.
    node = EntryNode([replace(each, leaves_open=True) for each in repairers], graph)
    graph.builder.add_node(NAME, node, input_schema=history, cache_policy=never_cached)
    reads_input = any(Graph.parts_of(each)[2] is None for each in branches.values())
    keys = frozenset(graph.keys) if reads_input else None
    for target in targets:
        graph.builder.add_edge(NAME, target)
    if targets:
        check = _EntryCheck(targets, NAME, node, keys)
        graph.add_router(START, check, [NAME, *targets])
    for name, branch in branches.items():
        path, ends, schema = Graph.parts_of(branch)
        graph.put_branch(NAME, name, branch, input_schema=schema or graph.schema)
        checked_ends = {**ends, NAME: NAME} if ends is not None else None
        check = _EntryCheck(path, name, node, keys)
        graph.put_branch(START, name, branch, path=check, ends=checked_ends)


def name_error(node: object) -> GraphError:
    """The error for a node that has the name of the one that is to be added."""
    remedy = "give yours another name"
    if isinstance(node, RepairNode):
        remedy = (
            "the graph is patched already, with other options or before a node or an edge was "
            "added. Patch the graph that you had before, once"
        )
    if isinstance(node, PatchNode):
        remedy = "leave out your patch node and its edges, or with_patching"
    return GraphError(
        f"There is a node called {NAME!r}, and with_patching adds one of this name: {remedy}."
    )


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
