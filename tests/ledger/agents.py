"""The agents. Each kind has a function that builds its graph out of the parts of a session."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain.agents import AgentState, create_agent, middleware
from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableLambda
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from kit import loop, send_each
from ledger.actors import TOOLS

Notes = Annotated[dict[str, int], operator.or_]
FEW = {"send_email": 3, "wire_money": 2, "slow": 1}


class Plain(AgentState[Any]):
    """The history, and a key that a tool writes."""

    notes: Notes


class Delta(TypedDict):
    """The same with a `DeltaChannel`."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    notes: Notes


def _loop(session, router=tools_condition, **options):
    """An agent as LangGraph's tutorial builds it."""
    state, node = Delta if session.settings.delta else Plain, ToolNode(session.tools(TOOLS))
    builder = loop(session.model("main", TOOLS), node, state=state, router=router)
    return builder.compile(**options)


def _tool_node(session, router=tools_condition):
    return session.patch(_loop(session, router, checkpointer=session.saver))


def _react_agent(session, agent, weights, *handoffs, **options):
    node = ToolNode([*session.tools([n for n in weights if n in TOOLS]), *handoffs])
    return create_react_agent(session.model(agent, weights), node, **options)


def _react(session, version):
    options, own = {"checkpointer": session.saver}, {**FEW, "boom": 2, "asks_twice": 1}
    return session.patch(_react_agent(session, "main", own, version=version, **options))


ASK = middleware.HumanInTheLoopMiddleware(interrupt_on={"wire_money": True, "asks_twice": True})


def _create_agent(session):
    approval = session.settings.approval
    graph = create_agent(
        session.model("main", TOOLS),
        session.tools(TOOLS, asks=not approval),
        middleware=[*[ASK] * approval, *session.middleware()],
        state_schema=Plain,
        checkpointer=session.saver,
    )
    return session.patch(graph)


def _deep_agent(session):
    """The library's middleware is in the subagent always: `with_patching` does not reach it."""
    from deepagents import create_deep_agent  # noqa: PLC0415 - plain `pytest` goes without it

    helper = {"name": "helper", "description": "helps", "system_prompt": "help"}
    parts = {"model": session.model("sub", FEW), "tools": session.tools(FEW)}
    graph = create_deep_agent(
        session.model("main", {**FEW, "write_file": 3, "task": 4}),
        session.tools(FEW),
        subagents=[{**helper, **parts, "middleware": session.middleware(always=True)}],
        middleware=session.middleware(),
        checkpointer=session.saver,
    )
    return session.patch(graph)


def _swarm(session):
    def member(name, other):
        own = {**FEW, "boom": 1, f"transfer_to_{other}": 3}
        return _react_agent(session, name, own, create_handoff_tool(agent_name=other), name=name)

    members = [member("alice", "bob"), member("bob", "alice")]
    builder = create_swarm(members, default_active_agent="alice")
    return session.patch(builder.compile(checkpointer=session.saver))


def _supervisor(session):
    """It calls its workers in functions of its own: each is patched."""
    workers = [session.patch(_react_agent(session, n, FEW, name=n)) for n in ("alice", "bob")]
    own = {"send_email": 2, "wire_money": 2, "transfer_to_alice": 3, "transfer_to_bob": 2}
    tools = session.tools(("send_email", "wire_money"))
    builder = create_supervisor(workers, model=session.model("main", own), tools=tools)
    return session.patch(builder.compile(checkpointer=session.saver))


def _nested(session, *, lasting=False):
    """An agent that is a node of another graph; or is called in one, with `checkpointer=True`."""
    last = RunnableLambda(lambda state: {**state, "messages": state["messages"][-1:]})
    builder = StateGraph(Delta if session.settings.delta else Plain)
    if lasting:
        child = last | session.patch(_loop(session, send_each, checkpointer=True)) | last
    else:
        child = _loop(session)
    builder.add_node("child", child)
    builder.add_edge(START, "child")
    graph = builder.compile(checkpointer=session.saver)
    return graph if lasting else session.patch(graph)


class Kind(NamedTuple):
    """A kind of agent. `may`: the settings that it knows."""

    build: Callable
    may: str = ""
    entry: str = "agent"  # the node that Command(goto=...) names
    own_tasks: bool = True  # whether each call has a task, so that its result is recorded alone


SETTINGS = ("record", "delta", "approval", "middleware")
KINDS = {
    "tool_node": Kind(_tool_node, "record delta", own_tasks=False),
    "send": Kind(partial(_tool_node, router=send_each), "delta"),
    "react_v1": Kind(partial(_react, version="v1"), "record", own_tasks=False),
    "react_v2": Kind(partial(_react, version="v2")),
    "create_agent": Kind(_create_agent, "approval middleware", "model"),
    "deep_agent": Kind(_deep_agent, "middleware", "model"),
    "swarm": Kind(_swarm, entry="alice"),
    "supervisor": Kind(_supervisor, entry="supervisor"),
    "nested": Kind(_nested, "record delta", "child", own_tasks=False),
    "nested_lasting": Kind(partial(_nested, lasting=True), entry="child"),
}
