"""The front door: START goes to the patch node if the history is damaged, and else on.

Where START went, the patch node goes. A router of START is asked only about a sound history.

The repair takes a step. What the input put into a channel that lives for one step only would
be gone when the first node runs, and a router would miss keys of the input that its state does
not hold. Such a run goes straight on: the last mile repairs what its models see.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels import AnyValue, EphemeralValue, Topic
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy

from langgraph_patch._langgraph import input_of, read_fresh
from langgraph_patch.graph.patch_node import PatchNode, value_of


class FrontDoor(PatchNode):
    """The visible node. Calls at the tail belong to whoever comes next, it may be the tools."""

    allow_pending = True


def add_front_door(builder: StateGraph[Any, Any, Any, Any], name: str, door: FrontDoor) -> None:
    """START goes to `name` if the history is damaged; `name` goes where START went."""
    view = TypedDict("HistoryView", {door.messages_key: list})  # type: ignore[misc]  # the key is an option
    ends = sorted(end for start, end in builder.edges if start == START)
    branches = builder.branches.pop(START, {})
    builder.edges = {edge for edge in builder.edges if edge[0] != START}
    # What one thread recorded is not for another: the node is never answered from a cache.
    never = CachePolicy(key_func=lambda _: uuid.uuid4().hex, ttl=1)
    builder.add_node(name, door, input_schema=view, cache_policy=never)
    watch = _Watch(name, door, _fleeting(builder), _held(builder, branches.values()))
    for end in ends:
        builder.add_edge(name, end)
    if ends:
        builder.add_conditional_edges(START, _Gate(watch, ends), [name, *ends])
        for label, branch in builder.branches[START].items():
            builder.branches[START][label] = branch._replace(input_schema=view)
    for label, branch in branches.items():
        schema = branch.input_schema or builder.state_schema
        builder.branches[name][label] = branch._replace(input_schema=schema)
        builder.branches[START][label] = branch._replace(
            path=_Gate(watch, branch.path),
            ends={**branch.ends, name: name} if branch.ends is not None else None,
        )


def _fleeting(builder: StateGraph[Any, Any, Any, Any]) -> frozenset[str]:
    """The keys whose values live for one step."""
    return frozenset(
        key
        for key, channel in builder.channels.items()
        if isinstance(channel, EphemeralValue | AnyValue)
        or (isinstance(channel, Topic) and not channel.accumulate)
    )


def _held(
    builder: StateGraph[Any, Any, Any, Any], branches: Collection[Any]
) -> AbstractSet[str] | None:
    """The keys that a router without a schema of its own finds in the state; None without one.

    To such a router of START LangGraph hands the raw input too.
    """
    bare = any(branch.input_schema is None for branch in branches)
    return builder.schemas[builder.state_schema].keys() if bare else None


@dataclass(frozen=True, slots=True)
class _Watch:
    """Decides for all ways out of START alike: some to the door and some not would run twice."""

    name: str
    door: FrontDoor
    fleeting: AbstractSet[str]
    held: AbstractSet[str] | None

    def calls_for_repair(self, state: Any, config: RunnableConfig) -> bool:
        """Whether the history is damaged, and nothing is lost by a step for its repair."""
        key = self.door.messages_key
        if value_of(state, key) is None:  # the schema of a router may lack the history
            state = {key: read_fresh(config, key)}
        history = self.door.history(state, {})
        return self.door.is_damaged(history, allow_pending=True) and not self._would_lose(config)

    def _would_lose(self, config: RunnableConfig) -> bool:
        given = input_of(config)
        if not isinstance(given, dict):
            return any(value_of(given, key) is not None for key in self.fleeting)
        unheld = self.held is not None and not given.keys() <= self.held
        return unheld or not self.fleeting.isdisjoint(given)


class _Gate(Runnable[Any, Any]):
    """The path of a START branch: to the front door if there is something to repair, else on."""

    def __init__(self, watch: _Watch, onward: Sequence[str] | Runnable[Any, Any]) -> None:
        """Guard a way out of START.

        Args:
            watch: Decides.
            onward: Where START goes, or the router that says where.
        """
        self.name = onward.name if isinstance(onward, Runnable) else watch.name
        self._watch = watch
        self._onward = onward

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if self._watch.calls_for_repair(input, config or {}):
            return self._watch.name
        onward = self._onward
        return onward.invoke(input, config) if isinstance(onward, Runnable) else list(onward)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if self._watch.calls_for_repair(input, config or {}):
            return self._watch.name
        onward = self._onward
        return await onward.ainvoke(input, config) if isinstance(onward, Runnable) else list(onward)
