"""The front door: START goes to the patch node if the history is damaged, and else on.

Where START went, the patch node goes. A router of START is asked only about a sound history.

The repair takes a step. What the input put into a channel that lives for one step only would
be gone when the first node runs, and a router would miss keys of the input that no channel
holds. Such a run goes straight on: the last mile repairs what its models see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels import AnyValue, EphemeralValue, Topic
from langgraph.graph import START, StateGraph

from langgraph_patch.node import PatchNode, value_of


class FrontDoor(PatchNode):
    """The visible node. Calls at the tail belong to whoever comes next, it may be the tools."""

    allow_pending = True


def add_front_door(builder: StateGraph[Any, Any, Any, Any], name: str, door: FrontDoor) -> None:
    """START goes to `name` if the history is damaged; `name` goes where START went."""
    wanted = [door.messages_key, *_fleeting(builder)]
    view = TypedDict("HistoryView", dict.fromkeys(wanted, Any))  # type: ignore[misc]  # keys are data
    ends = sorted(end for start, end in builder.edges if start == START)
    branches = builder.branches.pop(START, {})
    builder.edges = {edge for edge in builder.edges if edge[0] != START}
    builder.add_node(name, door, input_schema=view)
    for end in ends:
        builder.add_edge(name, end)
    if ends:
        gate = _Gate(name, door, ends, fleeting=wanted[1:])
        builder.add_conditional_edges(START, gate, [name, *ends])
        for label, branch in builder.branches[START].items():
            builder.branches[START][label] = branch._replace(input_schema=view)
    for label, branch in branches.items():
        _guard_branch(builder, name, door, label, branch)


def _fleeting(builder: StateGraph[Any, Any, Any, Any]) -> list[str]:
    """The keys whose values live for one step."""
    return [
        key
        for key, channel in builder.channels.items()
        if isinstance(channel, EphemeralValue | AnyValue)
        or (isinstance(channel, Topic) and not channel.accumulate)
    ]


def _guard_branch(
    builder: StateGraph[Any, Any, Any, Any], name: str, door: FrontDoor, label: str, branch: Any
) -> None:
    schema = branch.input_schema or builder.state_schema
    builder.branches[name][label] = branch._replace(input_schema=schema)
    fleeting = _fleeting(builder)
    # LangGraph hands keys that no channel holds to a router without a schema of its own.
    held = None if branch.input_schema else frozenset(builder.channels)
    view, narrow = _view_of(builder, schema, [door.messages_key, *fleeting])
    gate = _Gate(name, door, branch.path, fleeting=fleeting, held=held, narrow=narrow)
    builder.branches[START][label] = branch._replace(
        path=gate,
        ends={**branch.ends, name: name} if branch.ends is not None else None,
        input_schema=view,
    )


def _view_of(
    builder: StateGraph[Any, Any, Any, Any], schema: Any, wanted: Sequence[str]
) -> tuple[Any, Callable[[Any], Any] | None]:
    """A schema of all of `schema` and what else is wanted, and the way back to `schema`.

    None, twice, if `schema` has it all.
    """
    keys = list(builder.schemas[schema])
    missing = [key for key in wanted if key not in keys]
    if not missing:
        return None, None
    view = TypedDict("RouterView", dict.fromkeys([*keys, *missing], Any))  # type: ignore[misc]  # as above
    channels = {key: builder.channels[key] for key in missing}
    builder.schemas[view] = {**builder.schemas[schema], **channels}

    def narrow(state: dict[str, Any]) -> Any:
        own = {k: v for k, v in state.items() if k in keys}
        return own if issubclass(schema, dict) else schema(**own)

    return view, narrow


class _Gate(Runnable[Any, Any]):
    """The path of a START branch: to the front door if the history is damaged, else on."""

    def __init__(
        self,
        name: str,
        door: FrontDoor,
        onward: Sequence[str] | Runnable[Any, Any],
        *,
        fleeting: Collection[str],
        held: AbstractSet[str] | None = None,
        narrow: Callable[[Any], Any] | None = None,
    ) -> None:
        """Guard what START does.

        Args:
            name: The name of the patch node.
            door: The patch node.
            onward: Where START goes, or the router that says where.
            fleeting: The keys whose values live for one step.
            held: The keys that channels hold, if `onward` may be given others; else None.
            narrow: Makes of the state what `onward` expects, if that is another kind.
        """
        self.name = onward.name if isinstance(onward, Runnable) else name
        self._door_name = name
        self._door = door
        self._onward = onward
        self._fleeting = fleeting
        self._held = held
        self._narrow = narrow

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if self._is_damaged(input):
            return self._door_name
        onward = self._onward
        if not isinstance(onward, Runnable):
            return list(onward)
        return onward.invoke(self._narrow(input) if self._narrow else input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if self._is_damaged(input):
            return self._door_name
        onward = self._onward
        if not isinstance(onward, Runnable):
            return list(onward)
        return await onward.ainvoke(self._narrow(input) if self._narrow else input, config)

    def _is_damaged(self, state: Any) -> bool:
        history = self._door.history(state, {})
        return self._door.is_damaged(history, allow_pending=True) and not self._would_lose(state)

    def _would_lose(self, state: Any) -> bool:
        """Whether the state holds what is gone after one step."""
        if any(value_of(state, key) for key in self._fleeting):
            return True
        return self._held is not None and isinstance(state, dict) and not state.keys() <= self._held
