"""The agents: each is a function that takes a `Kit` and builds a graph out of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import create_react_agent, tools_condition
from langgraph.types import RetryPolicy, Send
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from ledger.kit import STATES, AgentPlain, Kit, ReactPlain
from ledger.model import LEDGER_TOOLS, RandomModel


def _model_node(kit: Kit, model: RandomModel) -> Any:
    """The node that calls the model, in the form that LangGraph's tutorial has."""

    def agent(state: Any) -> Any:
        kit.world.observe(model.agent, state, state["messages"])
        return {"messages": [model.invoke(state["messages"])]}

    return agent


def _loop(kit: Kit, agent: str, *, recorded: bool, send: bool, **options: Any) -> Any:
    builder = StateGraph(STATES[kit.state])
    builder.add_node("agent", _model_node(kit, kit.model(agent, **LEDGER_TOOLS)))
    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, retry_on=RuntimeError)
    node = kit.node(kit.tools(agent), recorded=recorded)
    builder.add_node("tools", node, retry_policy=retry if kit.retry else None)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", _send_each if send else tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(**options)


def _send_each(state: Any) -> Any:
    """A task for each tool call of the last message."""
    last = state["messages"][-1]
    calls = last.tool_calls if isinstance(last, AIMessage) else []
    return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or END


def hand_built(kit: Kit) -> Any:
    """A hand-built loop with a `ToolNode`."""
    return kit.patch(_loop(kit, "main", recorded=False, send=False, checkpointer=kit.saver))


def hand_built_recorded(kit: Kit) -> Any:
    """The same, with `record_tool_calls`."""
    return kit.patch(_loop(kit, "main", recorded=True, send=False, checkpointer=kit.saver))


def send(kit: Kit) -> Any:
    """A hand-built loop with a task for each call."""
    return kit.patch(_loop(kit, "main", recorded=False, send=True, checkpointer=kit.saver))


def send_recorded(kit: Kit) -> Any:
    """The same, with `record_tool_calls`."""
    return kit.patch(_loop(kit, "main", recorded=True, send=True, checkpointer=kit.saver))


def _react(kit: Kit, agent: str, tools: list[BaseTool], model: Any, **options: Any) -> Any:
    def prompt(state: Any) -> Any:
        kit.world.observe(agent, state, state["messages"])
        return state["messages"]

    recorded = options.pop("recorded", False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        return create_react_agent(
            model, kit.node(tools, recorded=recorded), prompt=prompt, **options
        )


def _whole_react(kit: Kit, version: str, *, recorded: bool) -> Any:
    model = kit.model("main", **LEDGER_TOOLS)
    options = {"version": version, "checkpointer": kit.saver, "state_schema": ReactPlain}
    return kit.patch(_react(kit, "main", kit.tools("main"), model, recorded=recorded, **options))


def react_v1(kit: Kit) -> Any:
    """`create_react_agent` with one task for all calls."""
    return _whole_react(kit, "v1", recorded=False)


def react_v1_recorded(kit: Kit) -> Any:
    """The same, with `record_tool_calls`."""
    return _whole_react(kit, "v1", recorded=True)


def react_v2(kit: Kit) -> Any:
    """`create_react_agent` with a task for each call."""
    return _whole_react(kit, "v2", recorded=False)


def react_v2_recorded(kit: Kit) -> Any:
    """The same, with `record_tool_calls`."""
    return _whole_react(kit, "v2", recorded=True)


def _create_agent(kit: Kit, *middleware: Any, asks: bool = True, **tools: int) -> Any:
    return create_agent(
        kit.model("main", **LEDGER_TOOLS, **tools),
        kit.tools("main", asks=asks),
        middleware=[kit.watch("main"), *middleware],
        state_schema=AgentPlain,
        checkpointer=kit.saver,
    )


def create_agent_plain(kit: Kit) -> Any:
    """`create_agent`."""
    return kit.patch(_create_agent(kit))


def create_agent_middleware(kit: Kit) -> Any:
    """`create_agent` with todos, and the library's middleware in place of `with_patching`."""
    return _create_agent(kit, TodoListMiddleware(), *kit.middleware(), write_todos=3)


def _approval() -> HumanInTheLoopMiddleware[Any, Any, Any]:
    return HumanInTheLoopMiddleware(interrupt_on={"wire_money": True, "asks_twice": True})


def create_agent_approval(kit: Kit) -> Any:
    """`create_agent` where a middleware asks before the tools run."""
    return kit.patch(_create_agent(kit, _approval(), asks=False))


def create_agent_retry(kit: Kit) -> Any:
    """`create_agent` where a middleware retries failed tools."""
    retry = ToolRetryMiddleware(max_retries=1, initial_delay=0.001, retry_on=(RuntimeError,))
    return kit.patch(_create_agent(kit, retry))


def _deep_agent(kit: Kit, *middleware: Any) -> Any:
    """A deep agent; the library's middleware is in its subagent, which `with_patching` lacks."""
    tools = ("send_email", "wire_money", "slow")
    helper = {
        "name": "helper",
        "description": "helps",
        "system_prompt": "help",
        "model": kit.model("sub", send_email=3, wire_money=2, slow=1),
        "tools": kit.tools("sub", *tools),
        "middleware": kit.middleware(),
    }
    weights = {"send_email": 2, "wire_money": 3, "write_file": 3, "write_todos": 2, "task": 3}
    return create_deep_agent(
        kit.model("main", slow=1, note=1, **weights),
        kit.tools("main", *tools, "note"),
        subagents=[helper],
        middleware=[NotesMiddleware(), TodoListMiddleware(), *middleware, kit.watch("main")],
        checkpointer=kit.saver,
    )


class NotesMiddleware(AgentMiddleware[Any, Any, Any]):
    """Adds the keys `notes` and `flag` to the state."""

    state_schema = AgentPlain


def deep_agent(kit: Kit) -> Any:
    """`create_deep_agent` with files, todos and a subagent."""
    return kit.patch(_deep_agent(kit))


def deep_agent_middleware(kit: Kit) -> Any:
    """The same with the library's middleware, in the subagent too."""
    return _deep_agent(kit, *kit.middleware())


def _member(kit: Kit, agent: str, other: str) -> Any:
    """An agent of a swarm."""
    weights = {"send_email": 3, "wire_money": 2, "slow": 1, "boom": 1, f"transfer_to_{other}": 3}
    model = kit.model(agent, **weights)
    tools = kit.tools(agent, "send_email", "wire_money", "slow", "boom")
    handoff = create_handoff_tool(agent_name=other)
    return _react(kit, agent, [*tools, handoff], model, name=agent)


def swarm(kit: Kit) -> Any:
    """A swarm of two."""
    members = [_member(kit, "alice", "bob"), _member(kit, "bob", "alice")]
    return kit.patch(
        create_swarm(members, default_active_agent="alice").compile(checkpointer=kit.saver)
    )


def supervisor(kit: Kit) -> Any:
    """A supervisor of two. It calls its workers in functions of its own: each is patched."""
    weights = {"send_email": 3, "wire_money": 2, "slow": 1}
    workers = [
        kit.patch(_react(kit, n, kit.tools(n, *weights), kit.model(n, **weights), name=n))
        for n in ("alice", "bob")
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = create_supervisor(
            workers,
            model=kit.model(
                "main", send_email=2, wire_money=2, transfer_to_alice=3, transfer_to_bob=2
            ),
            tools=kit.tools("main", "send_email", "wire_money"),
        )
    return kit.patch(builder.compile(checkpointer=kit.saver))


def nested(kit: Kit) -> Any:
    """An agent that is a node of another graph."""
    builder = StateGraph(STATES[kit.state])
    builder.add_node("child", _loop(kit, "main", recorded=False, send=False))
    builder.add_edge(START, "child")
    return kit.patch(builder.compile(checkpointer=kit.saver))


def nested_lasting(kit: Kit) -> Any:
    """An agent with `checkpointer=True`, called in a node of another graph."""
    child = kit.patch(_loop(kit, "main", recorded=False, send=True, checkpointer=True))
    builder = StateGraph(STATES[kit.state])

    def call_child(state: Any) -> Any:
        result = child.invoke({"messages": state["messages"][-1:]})
        return {"messages": result["messages"][-1:]}

    async def acall_child(state: Any) -> Any:
        result = await child.ainvoke({"messages": state["messages"][-1:]})
        return {"messages": result["messages"][-1:]}

    builder.add_node("child", acall_child if kit.asynchronous else call_child)
    builder.add_edge(START, "child")
    return builder.compile(checkpointer=kit.saver)


@dataclass(frozen=True)
class Kind:
    """A kind of agent.

    Attributes:
        build: Makes the graph.
        entry: The node that `Command(goto=...)` names.
        recorded: Whether its calls are recorded by this library, in tasks of their own.
        own_tasks: Whether each call has a task of its own.
        approval: Whether a middleware asks before tools run.
        states: The states that it can have.
        flag: Whether its state has the key `flag`.
        adds_node: Whether the patched graph has one node more than the bare one.
    """

    build: Callable[[Kit], Any]
    entry: str = "agent"
    recorded: bool = False
    own_tasks: bool = True
    approval: bool = False
    states: tuple[str, ...] = ("plain",)
    flag: bool = True
    adds_node: bool = False

    @property
    def name(self) -> str:
        """Its name in the table."""
        return self.build.__name__


ALL_STATES = tuple(STATES)

KINDS = {
    kind.name: kind
    for kind in (
        Kind(hand_built, states=ALL_STATES, own_tasks=False),
        Kind(hand_built_recorded, states=ALL_STATES, recorded=True),
        Kind(send, states=ALL_STATES),
        Kind(send_recorded, states=ALL_STATES, recorded=True),
        Kind(react_v1, own_tasks=False),
        Kind(react_v1_recorded, recorded=True),
        Kind(react_v2),
        Kind(react_v2_recorded, recorded=True),
        Kind(create_agent_plain, entry="model"),
        Kind(create_agent_middleware, entry="model", adds_node=True),
        Kind(create_agent_approval, entry="model", approval=True),
        Kind(create_agent_retry, entry="model"),
        Kind(deep_agent, entry="model"),
        Kind(deep_agent_middleware, entry="model"),
        Kind(swarm, entry="alice", flag=False),
        Kind(supervisor, entry="supervisor", flag=False),
        Kind(nested, entry="child", states=ALL_STATES, own_tasks=False),
        Kind(nested_lasting, entry="child"),
    )
}
