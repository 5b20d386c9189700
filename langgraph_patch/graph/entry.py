"""The entry check: START leads to the patch node if the history is damaged.

The patch node leads where START led before. A router of START runs on a valid history only.

The repair takes one superstep. The value of a channel that lasts for one superstep would be gone
when the first node runs, and a router would lack the keys of the input that its state schema does
not have. If the input has such values the check lets the run pass unrepaired, and the model node
wrapper repairs what the model reads.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypedDict

from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels import AnyValue, EphemeralValue, Topic
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy, Send

from langgraph_patch._langgraph import (
    fresh_value,
    input_of,
    is_nested,
    runs_alone,
    stored_value,
)
from langgraph_patch._langgraph_builder import (
    put_branch,
    read_by_branches,
    run_start_untraced,
    schema_keys,
    take_branches,
)
from langgraph_patch._langgraph_tasks import allow_one_more_superstep
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import MessagesError
from langgraph_patch.graph.apply_repair import write_repairs
from langgraph_patch.graph.repairer import CLIENT_RESULTS, Repairer, results_of
from langgraph_patch.graph.state_values import get_value, messages_or_none

logger: logging.Logger = logging.getLogger("langgraph_patch")


def add_entry_check(
    builder: StateGraph[Any, Any, Any, Any], name: str, repairers: Sequence[Repairer]
) -> None:
    """Make START lead to a new node if a history is damaged.

    Args:
        builder: The graph; it is changed.
        name: The name of the new node.
        repairers: One for each history; the new node runs them all. They allow pending calls,
            since the tools may come next.
    """
    keys = {repairer.messages_key: list for repairer in repairers}
    history: type = TypedDict("HistoryView", keys)  # type: ignore[misc]  # the keys are an option
    node = RepairNode(tuple(repairers))
    targets, branches = take_branches(builder, START)
    # The result depends on the thread, so it must never come from a cache.
    never_cached = CachePolicy(key_func=lambda _: uuid.uuid4().hex, ttl=1)
    builder.add_node(name, node, input_schema=history, cache_policy=never_cached)
    check = _EntryCheck(
        name=name,
        repairers=tuple(repairers),
        one_step_keys=_one_step_keys(builder),
        router_keys=_router_keys(builder, branches.values()),
    )
    for target in targets:
        builder.add_edge(name, target)
    if targets:
        router = _EntryRouter(check, targets, first=True)
        builder.add_conditional_edges(START, router, [name, *targets])
        read_by_branches(builder, START, history)
        if not branches:
            run_start_untraced(builder)
    for index, (label, branch) in enumerate(branches.items()):
        schema = branch.input_schema or builder.state_schema
        put_branch(builder, name, label, branch, input_schema=schema)
        ends = {**branch.ends, name: name} if branch.ends is not None else None
        router = _EntryRouter(check, branch.path, first=not targets and index == 0)
        put_branch(builder, START, label, branch, path=router, ends=ends)


def _one_step_keys(builder: StateGraph[Any, Any, Any, Any]) -> frozenset[str]:
    """The keys of values that last for one superstep."""
    return frozenset(
        key
        for key, channel in builder.channels.items()
        if isinstance(channel, EphemeralValue | AnyValue)
        or (isinstance(channel, Topic) and not channel.accumulate)
    )


def _router_keys(
    builder: StateGraph[Any, Any, Any, Any], branches: Iterable[Any]
) -> AbstractSet[str] | None:
    """The keys that a router without an input schema reads after the repair; None if all have one.

    At START LangGraph passes the raw input to such a router, which may have further keys.
    """
    if any(branch.input_schema is None for branch in branches):
        return frozenset(schema_keys(builder))
    return None


class RepairNode(Runnable[Any, Any]):
    """The node that START leads to. It repairs each history, under a state key of its own.

    The superstep that it takes does not count against the `recursion_limit` of the run.
    """

    name: str | None = "patch_tool_calls"

    def __init__(self, repairers: tuple[Repairer, ...]) -> None:
        self._repairers = {repairer.messages_key: repairer for repairer in repairers}

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Return the state update that repairs the histories."""
        allow_one_more_superstep(config or {})
        return run_sync(self._repairs(input, config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        """Do the same as `invoke`, asynchronously."""
        allow_one_more_superstep(config or {})
        return await run_async(self._repairs(input, config or {}))

    def _repairs(self, state: Any, config: RunnableConfig) -> IOGenerator[Any]:
        """The state update. A key that holds no messages is left as it is.

        Nothing is written if a client's `goto` runs another node in this superstep: a repair writes
        the end of the history again, and what that node writes would stand before it. The next
        node that reads the history repairs it.
        """
        if not runs_alone(config):
            return None
        stored = {key: stored_value(config, key) for key in self._repairers}
        repairers = [
            repairer
            for key, repairer in self._repairers.items()
            if messages_or_none(stored, key) is not None
        ]
        return (yield from write_repairs(repairers, state, config, node=self))


@dataclass(frozen=True, slots=True)
class _EntryCheck:
    """Decides whether to repair. All edges from START share it, so that they agree.

    Attributes:
        name: The name of the patch node.
        repairers: One for each history.
        one_step_keys: The keys of values that last for one superstep.
        router_keys: The keys that a router without an input schema reads after the repair; None if
            all routers have one.
    """

    name: str
    repairers: tuple[Repairer, ...]
    one_step_keys: AbstractSet[str]
    router_keys: AbstractSet[str] | None

    def target(self, state: Any, config: RunnableConfig, *, first: bool) -> Any:
        """Where START leads, if a superstep for the repair is needed and loses no input.

        Args:
            state: The state, with the input of the run.
            config: The config of START.
            first: Whether this is the first of the edges from START.

        Returns:
            The patch node; a `Send` to it, which names the calls that the input answers; or None
            if there is nothing to repair.
        """
        calls = self._client_calls(config)
        damaged = any(self._is_damaged(each, state, calls, config) for each in self.repairers)
        if not damaged or self._loses_input(config):
            return None
        if not calls:
            return self.name
        return Send(self.name, {CLIENT_RESULTS: calls}) if first else []  # sent once

    def _is_damaged(
        self, repairer: Repairer, state: Any, calls: Sequence[str], config: RunnableConfig
    ) -> bool:
        key = repairer.messages_key
        if get_value(state, key) is None:  # the input schema of a router may lack the key
            state = {key: fresh_value(config, key)}
        try:
            history = repairer.history(state, {})
        except MessagesError as error:
            logger.debug("no history is checked at START. %s", error)
            return False
        results = results_of(history, calls)
        return repairer.read(history, client_results=results, in_state=True) is not None

    def _client_calls(self, config: RunnableConfig) -> list[str]:
        """The calls that the input of the run answers, without results that the state has.

        The input of a nested graph comes from its parent, not from a client.
        """
        run_input = input_of(config)
        if self.repairers[0].saver(config) is None or is_nested(config):
            return []
        calls: list[str] = []
        for key in (repairer.messages_key for repairer in self.repairers):
            if results := _results(run_input, key):
                stored = _results({key: stored_value(config, key)}, key)
                contents = {(result.tool_call_id, str(result.content)) for result in stored}
                calls += [
                    result.tool_call_id
                    for result in results
                    if (result.tool_call_id, str(result.content)) not in contents
                ]
        return calls

    def _loses_input(self, config: RunnableConfig) -> bool:
        run_input = input_of(config)
        if not isinstance(run_input, dict):
            return any(get_value(run_input, key) is not None for key in self.one_step_keys)
        if self.router_keys is not None and not run_input.keys() <= self.router_keys:
            return True
        return not self.one_step_keys.isdisjoint(run_input)


def _results(state: Any, key: str) -> list[ToolMessage]:
    """The tool messages under `key`; none if the value has a form that only a reducer reads."""
    messages = messages_or_none(state, key) or []
    return [message for message in messages if isinstance(message, ToolMessage)]


class _EntryRouter(Runnable[Any, Any]):
    """A router of START that leads to the patch node if the history is damaged."""

    def __init__(
        self,
        check: _EntryCheck,
        onward: Sequence[str] | Runnable[Any, Any],
        *,
        first: bool,
    ) -> None:
        """Create the router.

        Args:
            check: Decides whether to repair.
            onward: Where START leads otherwise: some nodes, or a router.
            first: Whether this is the first of the edges from START.
        """
        self.name = onward.name if isinstance(onward, Runnable) else check.name
        self._check = check
        self._onward = onward
        self._first = first

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        if isinstance(router := self._next(input, config), Runnable):
            return router.invoke(input, config)
        return router

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:
        if isinstance(router := self._next(input, config), Runnable):
            return await router.ainvoke(input, config)
        return router

    def _next(self, state: Any, config: RunnableConfig | None) -> Any:
        """The next node or nodes, or the router that names them."""
        target = self._check.target(state, config or {}, first=self._first)
        if target is not None:
            return target
        return self._onward if isinstance(self._onward, Runnable) else list(self._onward)
