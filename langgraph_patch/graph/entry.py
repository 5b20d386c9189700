"""The entry check: START leads to the patch node if the history is damaged.

The patch node leads where START led before. A router of START runs on a valid history only.

The repair takes one superstep. The value of a channel that lasts for one superstep would be gone
when the first node runs, and a router would lack the keys of the input that its state schema does
not have. If the input has such values the check lets the run pass unrepaired, and the model node
wrapper repairs what the model reads.
"""

from __future__ import annotations

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

from langgraph_patch._langgraph import fresh_value, input_of, is_nested, stored_value
from langgraph_patch._langgraph_builder import (
    put_branch,
    read_by_branches,
    schema_keys,
    take_branches,
)
from langgraph_patch.errors import MessagesError
from langgraph_patch.graph.patch_node import CLIENT_RESULTS, PatchNode, results_of
from langgraph_patch.graph.state_values import get_messages, get_value


def add_entry_check(builder: StateGraph[Any, Any, Any, Any], name: str, node: PatchNode) -> None:
    """Make START lead to `node` if the history is damaged.

    Args:
        builder: The graph; it is changed.
        name: The name of the new node.
        node: The new node. It allows pending calls, since the tools may come next.
    """
    history: type = TypedDict("HistoryView", {node.messages_key: list})  # type: ignore[misc]  # the key is an option
    targets, branches = take_branches(builder, START)
    # The result depends on the thread, so it must never come from a cache.
    never_cached = CachePolicy(key_func=lambda _: uuid.uuid4().hex, ttl=1)
    builder.add_node(name, node, input_schema=history, cache_policy=never_cached)
    check = _EntryCheck(
        name=name,
        node=node,
        one_step_keys=_one_step_keys(builder),
        router_keys=_router_keys(builder, branches.values()),
    )
    for target in targets:
        builder.add_edge(name, target)
    if targets:
        router = _EntryRouter(check, targets, first=True)
        builder.add_conditional_edges(START, router, [name, *targets])
        read_by_branches(builder, START, history)
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
    """The keys that a router without an input schema finds after the repair; None without one.

    At START LangGraph passes the raw input to such a router, which may have further keys.
    """
    if any(branch.input_schema is None for branch in branches):
        return frozenset(schema_keys(builder))
    return None


@dataclass(frozen=True, slots=True)
class _EntryCheck:
    """Decides whether to repair. All edges from START share it, so that they agree."""

    name: str
    node: PatchNode
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
        key = self.node.messages_key
        if get_value(state, key) is None:  # the input schema of a router may lack the key
            state = {key: fresh_value(config, key)}
        history = self.node.history(state, {})
        calls = self._client_calls(config)
        reading = self.node.read(history, client_results=results_of(history, calls))
        if reading is None or self._loses_input(config):
            return None
        if not calls:
            return self.name
        return Send(self.name, {CLIENT_RESULTS: calls}) if first else []  # sent once

    def _client_calls(self, config: RunnableConfig) -> list[str]:
        """The calls that the input of the run answers, without results that the state has.

        The input of a nested graph comes from its parent, not from a client.
        """
        results = self._results(input_of(config))
        if not results or self.node.saver(config) is None or is_nested(config):
            return []
        stored = self._results(
            {self.node.messages_key: stored_value(config, self.node.messages_key)}
        )
        contents = {(result.tool_call_id, str(result.content)) for result in stored}
        return [
            result.tool_call_id
            for result in results
            if (result.tool_call_id, str(result.content)) not in contents
        ]

    def _results(self, state: Any) -> list[ToolMessage]:
        if get_value(state, self.node.messages_key) is None:
            return []
        try:
            messages = get_messages(state, self.node.messages_key)
        except MessagesError:  # it is no list: one message, or a value that a reducer reads
            return []
        return [message for message in messages if isinstance(message, ToolMessage)]

    def _loses_input(self, config: RunnableConfig) -> bool:
        run_input = input_of(config)
        if not isinstance(run_input, dict):
            return any(get_value(run_input, key) is not None for key in self.one_step_keys)
        if self.router_keys is not None and not run_input.keys() <= self.router_keys:
            return True
        return not self.one_step_keys.isdisjoint(run_input)


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

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if isinstance(router := self._next(input, config), Runnable):
            return router.invoke(input, config)
        return router

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if isinstance(router := self._next(input, config), Runnable):
            return await router.ainvoke(input, config)
        return router

    def _next(self, state: Any, config: RunnableConfig | None) -> Any:
        """The next node or nodes, or the router that names them."""
        target = self._check.target(state, config or {}, first=self._first)
        if target is not None:
            return target
        return self._onward if isinstance(self._onward, Runnable) else list(self._onward)
