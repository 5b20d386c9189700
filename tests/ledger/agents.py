"""The agents. Each kind has a function that builds its graph out of the parts of a session."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Annotated, Any, TypedDict

from deepagents import create_deep_agent
from langchain.agents import AgentState, create_agent, middleware
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableLambda
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from langgraph.managed import RemainingSteps
from langgraph.prebuilt import create_react_agent, tools_condition
from langgraph.types import RetryPolicy, Send
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm
from pydantic import create_model

from ledger.actors import TOOLS

Messages = Annotated[list[AnyMessage], add_messages]
Notes = Annotated[dict[str, int], operator.or_]
FIELDS = {"messages": Messages, "notes": Notes, "flag": bool}
"""The state: the history, a key that a tool writes, and one that only users write."""

DELTA = Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
DEFAULTS = {"messages": (Messages, []), "notes": (Notes, {}), "flag": (bool, False)}
STATES = {
    "plain": TypedDict("Plain", FIELDS, total=False),
    "delta": TypedDict("Delta", {**FIELDS, "messages": DELTA}, total=False),
    "pydantic": create_model("Pydantic", **DEFAULTS),
    "dataclass": make_dataclass("Dataclass", [(n, t, None) for n, t in FIELDS.items()]),
}


class AgentPlain(AgentState[Any]):
    """The same for prebuilt agents."""

    notes: Notes
    flag: bool


class ReactPlain(AgentPlain):
    """The same for `create_react_agent`."""

    remaining_steps: RemainingSteps


def _loop(kit, *, send=False, **options):
    """An agent as LangGraph's tutorial builds it; with `send`, a task for each call."""
    model = kit.model("main", TOOLS)
    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, retry_on=RuntimeError)

    def history(state):
        return state["messages"] if isinstance(state, dict) else state.messages

    def send_each(state):
        calls = getattr(history(state)[-1], "tool_calls", ())
        return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or END

    builder = StateGraph(STATES[kit.settings.state])
    builder.add_node("agent", lambda state: {"messages": [model.invoke(history(state))]})
    node = kit.node(kit.tools(TOOLS))
    builder.add_node("tools", node, retry_policy=retry if kit.settings.retry else None)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", send_each if send else tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(**options)


def _tool_node(kit, *, record=False, send=False):
    return kit.patch(_loop(kit, send=send, checkpointer=kit.saver), record=record)


def _react_agent(kit, agent, weights, *handoffs, **options):
    node = kit.node([*kit.tools([n for n in weights if n in TOOLS]), *handoffs])
    return create_react_agent(kit.model(agent, weights), node, **options)


def _react(kit, version, *, record=False):
    options = {"version": version, "checkpointer": kit.saver, "state_schema": ReactPlain}
    return kit.patch(_react_agent(kit, "main", TOOLS, **options), record=record)


def _create_agent(kit, *more, asks=True, **weights):
    return create_agent(
        kit.model("main", {**TOOLS, **weights}),
        kit.tools(TOOLS, asks=asks),
        middleware=more,
        state_schema=AgentPlain,
        checkpointer=kit.saver,
    )


ASK = middleware.HumanInTheLoopMiddleware(interrupt_on={"wire_money": True, "asks_twice": True})
RETRY = middleware.ToolRetryMiddleware(max_retries=1, initial_delay=0.001, retry_on=(RuntimeError,))


def _with_middleware(kit):
    return _create_agent(kit, middleware.TodoListMiddleware(), *kit.middleware(), write_todos=3)


class NotesMiddleware(middleware.AgentMiddleware[Any, Any, Any]):
    """Adds the keys to a deep agent. Its `state_schema` would replace the `DeltaChannel`."""

    state_schema = AgentPlain


def _deep_agent(kit, *more):
    """The library's middleware is in the subagent always: `with_patching` does not reach it."""
    weights = {"send_email": 3, "wire_money": 2, "slow": 1}
    own = {"note": 1, "write_file": 3, "write_todos": 2, "task": 4}
    helper = {
        "name": "helper",
        "description": "helps",
        "system_prompt": "help",
        "model": kit.model("sub", weights),
        "tools": kit.tools(weights),
        "middleware": kit.middleware(),
    }
    return create_deep_agent(
        kit.model("main", {**weights, **own}),
        kit.tools([*weights, "note"]),
        subagents=[helper],
        middleware=[NotesMiddleware(), middleware.TodoListMiddleware(), *more],
        checkpointer=kit.saver,
    )


def _swarm(kit):
    weights = {"send_email": 3, "wire_money": 2, "slow": 1, "boom": 1}

    def member(name, other):
        own = {**weights, f"transfer_to_{other}": 3}
        return _react_agent(kit, name, own, create_handoff_tool(agent_name=other), name=name)

    members = [member("alice", "bob"), member("bob", "alice")]
    builder = create_swarm(members, default_active_agent="alice")
    return kit.patch(builder.compile(checkpointer=kit.saver))


def _supervisor(kit):
    """It calls its workers in functions of its own: each is patched."""
    weights = {"send_email": 3, "wire_money": 2, "slow": 1}
    workers = [kit.patch(_react_agent(kit, n, weights, name=n)) for n in ("alice", "bob")]
    own = {"send_email": 2, "wire_money": 2, "transfer_to_alice": 3, "transfer_to_bob": 2}
    tools = kit.tools(("send_email", "wire_money"))
    builder = create_supervisor(workers, model=kit.model("main", own), tools=tools)
    return kit.patch(builder.compile(checkpointer=kit.saver))


def _nested(kit):
    """An agent that is a node of another graph."""
    builder = StateGraph(STATES[kit.settings.state])
    builder.add_node("child", _loop(kit))
    builder.add_edge(START, "child")
    return kit.patch(builder.compile(checkpointer=kit.saver))


def _nested_lasting(kit):
    """An agent with `checkpointer=True`, called in a node of another graph."""
    child = kit.patch(_loop(kit, send=True, checkpointer=True))

    last = RunnableLambda(lambda state: {"messages": state["messages"][-1:]})
    builder = StateGraph(STATES["plain"])
    builder.add_node("child", last | child | last)
    builder.add_edge(START, "child")
    return builder.compile(checkpointer=kit.saver)


@dataclass(frozen=True)
class Kind:
    """A kind of agent."""

    build: Callable
    entry: str = "agent"  # the node that Command(goto=...) names
    own_tasks: bool = True  # whether each call has a task, so that its result is recorded alone
    record: bool = False  # whether that is so because of record=True; bare, its tasks are others
    approval: bool = False  # whether a middleware asks before tools run
    states: tuple = ("plain",)
    keys: bool = True  # whether its state has the keys notes and flag
    adds_node: bool = False  # whether the patched graph has one node more than the bare one


_ALL = tuple(STATES)
KINDS = {
    "tool_node": Kind(_tool_node, own_tasks=False, states=_ALL),
    "tool_node_record": Kind(partial(_tool_node, record=True), record=True, states=_ALL),
    "send": Kind(partial(_tool_node, send=True), states=_ALL),
    "react_v1": Kind(partial(_react, version="v1"), own_tasks=False),
    "react_v1_record": Kind(partial(_react, version="v1", record=True), record=True),
    "react_v2": Kind(partial(_react, version="v2")),
    "create_agent": Kind(lambda kit: kit.patch(_create_agent(kit)), "model"),
    "create_agent_middleware": Kind(_with_middleware, "model", adds_node=True),
    "create_agent_approval": Kind(
        lambda kit: kit.patch(_create_agent(kit, ASK, asks=False)), "model", approval=True
    ),
    "create_agent_retry": Kind(lambda kit: kit.patch(_create_agent(kit, RETRY)), "model"),
    "deep_agent": Kind(lambda kit: kit.patch(_deep_agent(kit)), "model"),
    "deep_agent_middleware": Kind(lambda kit: _deep_agent(kit, *kit.middleware()), "model"),
    "swarm": Kind(_swarm, "alice", keys=False),
    "supervisor": Kind(_supervisor, "supervisor", keys=False),
    "nested": Kind(_nested, "child", own_tasks=False, states=_ALL),
    "nested_lasting": Kind(_nested_lasting, "child", keys=False),
}
