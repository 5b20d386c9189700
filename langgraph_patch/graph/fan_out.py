"""`with_patching(record=True)`: a task of its own for each call of a `ToolNode`.

LangGraph stores what each task of a superstep writes, its error and its interrupts. A `ToolNode`
that an edge leads to is one task, so of two calls the result of the first is lost if the second one
waits for a human, fails or is killed. `create_agent` therefore sends each call to its `ToolNode` as
`Send(node, [call])`, and so does this module: every edge and router that leads to the `ToolNode`
leads to one `Send` for each open call instead. LangGraph then keeps each result, does not run a
finished call again, and gives each answer to its own call.

- The state is not part of the `Send`. The `ToolNode` reads it when the call runs, in the schema of
  the node.
- If no call is open, the edge leads to the `ToolNode` itself, which does nothing then, so that the
  run goes where the `ToolNode` leads.
- A router behind the `ToolNode` would run once for each call. It runs once, in a node of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import StateGraph
from langgraph.types import Send

from langgraph_patch._langgraph import (
    allow_one_more_superstep,
    node_of,
    pending_sends,
    sent_payload,
    values_of,
)
from langgraph_patch._langgraph_graphs import (
    branches_into,
    call_with_state,
    node_runnables,
    overridden_method,
    put_branch,
    route_edge,
    starts_it_whole,
    tool_messages_key,
    with_functions,
)
from langgraph_patch.evidence.effects import ROUTERS
from langgraph_patch.graph.coverage import tool_node_in
from langgraph_patch.graph.router import After, Before, Router
from langgraph_patch.graph.state import get_value, messages_in, open_calls
from langgraph_patch.graph.truncation import TruncationGuard

if TYPE_CHECKING:  # the import costs as much time as all other imports together
    from langgraph.prebuilt import ToolNode

logger: logging.Logger = logging.getLogger("langgraph_patch")

SENDER: Final = "langgraph_patch"
"""The key of a call that a `Send` of this module carries: the node whose edge sent it."""


def recordable(builder: StateGraph[Any, Any, Any, Any], nodes: Iterable[str]) -> dict[str, str]:
    """Those of these nodes with a `ToolNode` whose calls can be sent one by one.

    A WARNING names each other one, with the reason.

    Args:
        builder: The graph.
        nodes: The names of nodes that are a `ToolNode`, or have one as a step.

    Returns:
        The state key of the history that each of them reads, by its name.
    """
    keys: dict[str, str] = {}
    for node in nodes:
        tool_node = tool_node_in(node_runnables(builder)[node])
        if reason := _reason_against(builder, node, tool_node):
            logger.warning(
                "record=True does not record the calls of the node %r one by one, because %s: they "
                "run as one task, whose results are lost if one of them pauses or fails",
                node,
                reason,
            )
        else:
            keys[node] = tool_messages_key(tool_node)
    return keys


def fan_out(builder: StateGraph[Any, Any, Any, Any], keys: Mapping[str, str]) -> None:
    """Let every edge and router that leads to these nodes lead to a `Send` for each call.

    Args:
        builder: The graph; it is changed.
        keys: What `recordable` returned. Their runnables must have a `recorded_tool_node`.
    """
    for node in keys:
        _move_routers_behind(builder, node)
    for source, name, branch in branches_into(builder, keys):
        router = Router(branch.path, name, after=_send_each(keys, source, branch.ends))
        put_branch(builder, source, name, branch, path=router)
    for source, target in sorted(builder.edges):
        if target in keys:
            name = f"each call of {target}"
            router = Router(target, name, after=_send_each(keys, source, None))
            route_edge(builder, source, target, router)


def _reason_against(
    builder: StateGraph[Any, Any, Any, Any], node: str, tool_node: ToolNode | None
) -> str:
    """Why the calls of a `ToolNode` cannot be sent one by one; `""` if they can."""
    if tool_node is None:
        return "its ToolNode is one step of a sequence"
    if method := overridden_method(tool_node):
        return f"{type(tool_node).__name__}.{method} overrides the method of ToolNode"
    return starts_it_whole(builder, node)


# --- before the tool node ------------------------------------------------------------------


def _send_each(keys: Mapping[str, str], source: str, ends: Mapping[Any, str] | None) -> After:
    """What makes a `Send` for each open call of every `ToolNode` to which a router leads.

    Args:
        keys: The `ToolNode`s, and the state key of the history that each of them reads.
        source: The node that the router leaves.
        ends: The node for each label that the router returns, or None.
    """

    def sends(target: Any, state: Any, config: RunnableConfig) -> list[Any]:
        node = target if isinstance(target, Send) else (ends or {}).get(target, target)
        if isinstance(node, Send) or node not in keys:
            return [target]
        key = keys[node]
        if get_value(state, key) is None:  # the router may read a part of the state
            state = values_of(config, [key], fresh=True)
        calls = open_calls(messages_in(state, key) or [])
        return [Send(node, [{**call, SENDER: source}]) for call in calls] or [target]

    def send_each(result: Any, state: Any, config: RunnableConfig) -> list[Any]:
        targets = result if isinstance(result, list | tuple) else [result]
        return [each for target in targets for each in sends(target, state, config)]

    return send_each


# --- the tool node -------------------------------------------------------------------------


def guarded_tool_node(node: ToolNode) -> ToolNode:
    """A copy of a `ToolNode` whose tools run with a `TruncationGuard`.

    So no agent that a tool calls runs a tool call that its model did not finish writing.
    """
    return _tool_node_with(node, lambda value, _: value)


def recorded_tool_node(schema: type[Any], keys: Collection[str], node: ToolNode) -> ToolNode:
    """The same, for a `ToolNode` whose calls come one by one.

    Args:
        schema: The input schema of its node.
        keys: The keys of that schema.
        node: The `ToolNode`.
    """
    messages_key = tool_messages_key(node)

    def with_state(value: Any, config: RunnableConfig) -> Any:
        """The input of the node for a call that `_send_each` sent; None to run nothing."""
        call = _own_call(value)
        if call is None:
            return value if _has_open_calls(value, messages_key) else None
        if _was_sent_before(call, config):
            return None
        values = values_of(config, keys, fresh=False)
        state = values if issubclass(schema, dict) else schema(**values)
        return call_with_state({k: v for k, v in call.items() if k != SENDER}, state)

    return _tool_node_with(node, with_state)


def _tool_node_with(node: ToolNode, prepare: Callable[[Any, RunnableConfig], Any]) -> ToolNode:
    nothing: dict[str, list[Any]] = {tool_messages_key(node): []}
    inner, ainner = cast("Any", node.func), cast("Any", node.afunc)

    def func(value: Any, **kwargs: Any) -> Any:
        config = cast("RunnableConfig", kwargs.get("config") or {})
        if (value := prepare(value, config)) is None:
            return nothing
        with TruncationGuard(config, drops=True):
            return inner(value, **kwargs)

    async def afunc(value: Any, **kwargs: Any) -> Any:
        config = cast("RunnableConfig", kwargs.get("config") or {})
        if (value := prepare(value, config)) is None:
            return nothing
        with TruncationGuard(config, drops=True):
            return await ainner(value, **kwargs)

    patched: ToolNode = with_functions(node, func, afunc)
    return patched


def _own_call(value: Any) -> Mapping[str, Any] | None:
    """The call in the input of a `ToolNode`, if `_send_each` sent it."""
    call = value[0] if isinstance(value, list) and len(value) == 1 else None
    return call if isinstance(call, dict) and SENDER in call else None


def _has_open_calls(value: Any, messages_key: str) -> bool:
    """Whether a `ToolNode` that got a whole state has something to do, or an error to raise."""
    history = messages_in(value, messages_key) or []
    last = next((m for m in reversed(history) if isinstance(m, AIMessage)), None)
    return last is None or not last.tool_calls or bool(open_calls(history))


def _was_sent_before(call: Mapping[str, Any], config: RunnableConfig) -> bool:
    """Whether another node of the last superstep sent the same call.

    Two nodes that run side by side may both lead to a `ToolNode`. The bare graph runs it once.
    """
    senders = [
        other[SENDER]
        for send in pending_sends(config)
        if send.node == node_of(config) and (other := _own_call(send.arg)) is not None
        if {**other, SENDER: ""} == {**call, SENDER: ""}
    ]
    return bool(senders) and senders[0] != call[SENDER]


# --- behind the tool node ------------------------------------------------------------------


def _move_routers_behind(builder: StateGraph[Any, Any, Any, Any], node: str) -> None:
    """Let the routers of a `ToolNode` run once after all its calls, in a node of their own."""
    branches = dict(builder.branches.get(node, {}))
    if not branches:
        return
    behind = f"{node}{ROUTERS}"
    while behind in builder.nodes:
        behind += "_"
    schema = builder.nodes[node].input_schema
    builder.add_node(behind, _Gate(), input_schema=schema)
    for index, (name, branch) in enumerate(branches.items()):
        put_branch(builder, behind, name, branch, input_schema=branch.input_schema or schema)
        ends = {**branch.ends, behind: behind} if branch.ends is not None else None
        router = Router(branch.path, name, before=_to(behind, is_first=index == 0))
        put_branch(builder, node, name, branch, path=router, ends=ends)


class _Gate(Runnable[Any, Any]):
    """The node with the routers of a `ToolNode`. It writes nothing."""

    name = "gate"

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> None:
        """Do nothing."""


def _to(behind: str, *, is_first: bool) -> Before:
    """What leads a call that `_send_each` sent to the node behind its `ToolNode`.

    The superstep of that node does not count against the `recursion_limit` of the run.
    """

    def to_behind(_: Any, config: RunnableConfig) -> Any:
        payload, node = sent_payload(config), node_of(config)
        if _own_call(payload) is None:
            return None
        own = (send.arg for send in pending_sends(config) if send.node == node)
        if is_first and next(own) is payload:  # once for all calls
            allow_one_more_superstep(config)
        return behind if is_first else []

    return to_behind
