"""`PatchNode` repairs the history in the state; the entry check leads to it if that is damaged.

START leads to the repair node, and that leads where START led. A router of START then runs once, on
a valid history. A healthy run has no further superstep, checkpoint or event.

The superstep of the repair would lose what the input has for one superstep only: values of such
channels, and keys without a channel, which a router of START may read. Such a run passes
unrepaired, and the node wrappers repair what the nodes read.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import AnyValue, EphemeralValue, Topic
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy, Command

from langgraph_patch._langgraph import (
    allow_one_more_superstep,
    channels_of,
    input_ended_tasks,
    is_node_of_task,
    runs_alone,
    values_of,
)
from langgraph_patch._langgraph_graphs import (
    output_keys,
    put_branch,
    read_by_branches,
    schema_keys,
    take_edges,
    take_routers,
)
from langgraph_patch._sansio import GeneratorRunnable, IOGenerator
from langgraph_patch.errors import MessagesError
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.evidence.turns import Turn
from langgraph_patch.graph.abandoned import NAME, Abandoned, abandoned_turns, repair_with_turns
from langgraph_patch.graph.repairer import OnPatch, Recover, Repair, Repairer, write_repairs
from langgraph_patch.graph.router import Router
from langgraph_patch.graph.state import (
    get_value,
    history_after,
    messages_in,
    show_repairs,
    stream_results,
    tail_writes,
    unknown_key_error,
)
from langgraph_patch.history.patch import Patch, as_messages
from langgraph_patch.history.placeholders import Placeholder

logger: logging.Logger = logging.getLogger("langgraph_patch")


# --- the repair node ------------------------------------------------------------------------


class PatchNode(GeneratorRunnable):
    """A graph node that repairs the tool-call history of the state.

    It writes nothing if the history is valid. Place it directly before the model, or let
    `with_patching` place it. It works in synchronous and asynchronous graphs, with a state that
    is a dict, a dataclass or a pydantic model, with any reducer that accepts an `Overwrite` or the
    whole list, and without one.

    Alone in its superstep it writes the whole history as an `Overwrite`. Beside other nodes it
    removes the end of the history and adds it again, so that their messages stay; with a reducer
    that cannot remove messages it writes nothing there. `stream_mode="updates"` shows its new
    messages only.

    A list without any LangChain message, such as one of plain dicts, is left alone.

    The logger `langgraph_patch` reports each repair that is written to the state, on level INFO,
    with the thread id and the changes.

    Args:
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. Default: a text that names the cause.
        messages_key: The state key that has the history. Default: `"messages"`.
        recover: Whether to search the checkpoints of the thread for results that were recorded
            but are missing in the history. They are searched only if the history is damaged.
            If a checkpoint cannot be read, a WARNING reports it and the calls count as `unknown`;
            with `"required"` an `EvidenceError` is raised.
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

    name: str | None = NAME
    _output_keys: Collection[str] = ()
    _builder: Any = None

    def __init__(
        self,
        *,
        placeholder: Placeholder | None = None,
        messages_key: str = "messages",
        recover: Recover = True,
        reconcile: Mapping[str, Lookup] | None = None,
        on_patch: OnPatch | None = None,
    ) -> None:
        self._repairers: Sequence[Repairer] = [
            Repairer(
                placeholder=placeholder,
                messages_key=messages_key,
                recover=recover,
                reconcile=reconcile,
                on_patch=on_patch,
            )
        ]

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """The state update that repairs the history; None if there is nothing to repair.

        Args:
            input: The state.
            config: The config of the run.

        Raises:
            GraphError: If the state has no key `messages_key`.
            MessagesError: If the value of that key is not a list of messages.
            EvidenceError: If the checkpointer raises an error and `recover="required"`.
        """
        repairs = []
        for repairer in self._repairers:
            history = messages_in(input, repairer.messages_key)
            if history is None:
                self._check(repairer.messages_key, input, config)
            elif repair := (yield from self._repair(repairer, history, config)):
                repairs.append((repairer, repair))
        # A function that calls this node has a chunk of its own, and may still raise.
        shown = self._output_keys or channels_of(config)
        is_shown = is_node_of_task(config, self)
        write = write_repairs if runs_alone(config) else _write_beside
        update, patches = write(repairs, {}, config, shown=shown if is_shown else None)
        stream_results(config, patches)
        return update or None

    def _repair(
        self, repairer: Repairer, history: list[BaseMessage], config: RunnableConfig
    ) -> IOGenerator[Repair | None]:
        """The repair of a history; None if there is nothing to repair."""
        turns = yield from abandoned_turns(repairer, history, config, self._builder)
        if isinstance(turns, Abandoned):

            def repair(
                messages: list[BaseMessage], of_turns: Mapping[int, Turn]
            ) -> IOGenerator[Repair]:
                reading = repairer.read_all(messages, look_again=True)
                return repairer.repair(reading, config, restore=True, turns=of_turns)

            return (yield from repair_with_turns(history, [turns], repair))
        if turns is not None:
            if repairer.recover == "required":
                raise turns
            logger.warning("%s What agents that are nodes did is not added.", turns)
        damage = repairer.read(history, look_again=True)
        if damage is None:
            return None
        return (yield from repairer.repair(damage, config, restore=runs_alone(config)))

    def _check(self, key: str, state: Any, config: RunnableConfig) -> None:
        """Raise an error if the graph has no such key, or if its value is no list of messages."""
        channels = channels_of(config)
        if channels and key not in channels:
            raise unknown_key_error(key, channels)
        value = get_value(state, key)
        if value is not None and not isinstance(value, list):
            try:
                as_messages(value)
            except MessagesError as error:
                raise MessagesError(f"State key {key!r}: {error}") from error


class EntryNode(PatchNode):
    """The repair node of a patched graph: it repairs all its histories.

    The superstep that it takes does not count against the `recursion_limit` of the run. Beside a
    node that a client's `goto` started it repairs nothing: what that node writes would stand before
    the end of the history.

    Args:
        repairers: One for each history.
        builder: The graph.
    """

    def __init__(self, repairers: Sequence[Repairer], builder: Any) -> None:
        self._repairers, self._builder = repairers, builder
        self._output_keys = output_keys(builder)

    def _check(self, *_: Any) -> None:
        """Accept any value: of several keys, one may have no history."""

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """Repair all histories."""
        allow_one_more_superstep(config)
        return (yield from super().run(input, config)) if runs_alone(config) else None


def _write_beside(
    repairs: Sequence[tuple[Repairer, Repair]],
    own: Mapping[str, Any],
    config: RunnableConfig,
    *,
    shown: Collection[str] | None,
) -> tuple[Command[Any] | None, list[Patch]]:
    """Do what `write_repairs` does, beside other nodes of the superstep.

    Two writes for each history keep the messages that the other nodes add.
    """
    patches: dict[str, Patch] = {}
    writes: list[tuple[str, Any]] = []
    for repairer, repair in repairs:
        key, patch = repairer.messages_key, repair.patch
        if patch and (values := tail_writes(channels_of(config).get(key), patch)):
            repairer.report(patch, config)
            patches[key] = patch
            writes += [(key, value) for value in values]
    if patches and shown is not None:
        show_repairs(config, patches, own, shown)
    return (Command(update=writes) if writes else None), list(patches.values())


# --- the entry check -------------------------------------------------------------------------


def add_entry_check(builder: StateGraph[Any, Any, Any, Any], repairers: Sequence[Repairer]) -> None:
    """Make START lead to a repair node if a history is damaged.

    Args:
        builder: The graph; it is changed.
        repairers: One for each history. They leave calls at the end open, since the tools may
            come next.
    """
    keys = {repairer.messages_key: list for repairer in repairers}
    history: type = TypedDict("HistoryView", keys)  # type: ignore[misc]  # the keys are an option
    targets, branches = take_edges(builder, START), take_routers(builder, START)
    # The result depends on the thread, so it must never come from a cache.
    never_cached = CachePolicy(key_func=lambda _: uuid.uuid4().hex, ttl=1)
    node = EntryNode(repairers, builder)
    builder.add_node(NAME, node, input_schema=history, cache_policy=never_cached)
    known, not_kept = frozenset(schema_keys(builder)), _one_step_keys(builder)
    reads_input = any(branch.input_schema is None for branch in branches.values())

    def check(state: Any, config: RunnableConfig) -> IOGenerator[str | None]:
        """The repair node, if a history is to be repaired. All edges from START agree."""
        histories = [(each, history_after(state, each.messages_key, config)) for each in repairers]
        needed = any(each.read(own, look_again=True) for each, own in histories if own)
        for repairer, history in histories if not needed and input_ended_tasks(config) else ():
            # If the checkpoints cannot be read, the node says so: START would not run again.
            turns = yield from abandoned_turns(repairer, history, config, builder)
            needed = needed or turns is not None
        if not needed:
            return None
        run_input = values_of(config, [START], fresh=False).get(START)
        keys = run_input.keys() if isinstance(run_input, dict) else set()
        return None if not_kept.intersection(keys) or (reads_input and keys - known) else NAME

    for target in targets:
        builder.add_edge(NAME, target)
    if targets:
        router = Router(targets, NAME, before=check)
        builder.add_conditional_edges(START, router, [NAME, *targets])
        read_by_branches(builder, START, history)
    for label, branch in branches.items():
        schema = branch.input_schema or builder.state_schema
        put_branch(builder, NAME, label, branch, input_schema=schema)
        ends = {**branch.ends, NAME: NAME} if branch.ends is not None else None
        router = Router(branch.path, label, before=check)
        put_branch(builder, START, label, branch, path=router, ends=ends)


def _one_step_keys(builder: StateGraph[Any, Any, Any, Any]) -> frozenset[str]:
    """The keys of values that last for one superstep."""
    return frozenset(
        key
        for key, channel in builder.channels.items()
        if isinstance(channel, EphemeralValue | AnyValue)
        or (isinstance(channel, Topic) and not channel.accumulate)
    )


patch_node: PatchNode = PatchNode()
"""A `PatchNode` with all defaults: `builder.add_node("patch_tool_calls", patch_node)`."""
