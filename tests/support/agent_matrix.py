"""The agent x break matrix: every kind of agent, and every way in which a thread of it breaks.

All agents have the same two tools: `send_email` finishes, `wire_money` waits, fails or hangs.

Some breaks leave no trace in the history (`Agent.is_inside`). When a run is abandoned inside a
subgraph that shares its parent's history (a node that is an agent, the agents of a swarm, a
supervisor and its agents), the calls have never reached the parent's history. Only the checkpointer
has them: a patched graph adds them before the next message, as one text (`Agent.is_told`) if a
function called the subgraph. A subgraph with a memory of its own (`checkpointer=True`) keeps its
calls, and they are repaired there if that graph was patched.

A plain `ToolNode` is one task for all its calls (`Agent.records` is false): results that finished
are lost with the task.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from langgraph_patch import with_patching
from support.agents import (
    Graph,
    both_calls,
    hand_built,
    human,
    react_v1,
    react_v2,
    thread,
    with_approval,
)
from support.placeholder_texts import CANCELLED, FAILED, NOT_APPROVED, UNKNOWN, WAITED
from support.strict import StrictModel, ai

Wrap = Callable[[Any], Any]

BOOKED = human("book it")
NEVER_MIND = human("never mind")
SECONDS = 20


@dataclass(slots=True)
class Desk:
    """The tools of all agents: the mail is sent, the money waits, fails or takes for ever.

    Attributes:
        wire: What `wire_money` does: "asks", "raises" or "hangs".
        done: What was really done.
        ready: What `wire_money` waits for before it raises.
    """

    wire: str
    done: list[str] = field(default_factory=list)
    ready: Callable[[], bool] = lambda: True

    def send_email(self, to: str) -> str:
        """Send an email."""
        self.done.append("mail")
        return f"sent to {to}"

    async def asend_email(self, to: str) -> str:
        """Send an email."""
        return self.send_email(to)

    def wire_money(self, amount: int) -> str:
        """Wire money."""
        if self.wire == "raises":
            while not self.ready():
                time.sleep(0.005)
            raise ConnectionError("the bank is down")
        return f"wired: {interrupt(f'wire {amount}?')}"

    async def awire_money(self, amount: int) -> str:
        """Wire money."""
        if self.wire == "hangs":
            await asyncio.sleep(3600)
        while self.wire == "raises" and not self.ready():  # noqa: ASYNC110 - the saver has no event
            await asyncio.sleep(0.005)
        return self.wire_money(amount)

    def tools(self) -> list[BaseTool]:
        """As the agents take them, for sync and async runs."""
        return [
            StructuredTool.from_function(
                getattr(self, name), coroutine=getattr(self, f"a{name}"), name=name
            )
            for name in ("send_email", "wire_money")
        ]


def script(*start: Any) -> StrictModel:
    """A model that says `start` and then always that it is fine."""
    fine = lambda seen: AIMessage(f"re: {seen[-1].text}")
    return StrictModel(script=[*start, *[fine] * 9])


# --- the kinds -----------------------------------------------------------------------------
# Each builds its graph out of models that it takes from `models`, patched by `wrap`.

Build = Callable[[Desk, StrictModel, Wrap, InMemorySaver], Graph]


def simple(build: Callable[..., Graph]) -> Build:
    """A graph that is an agent."""
    return lambda desk, model, wrap, saver: wrap(build(model, desk.tools(), checkpointer=saver))


def with_all(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent` with approval, summarising and a limit of tool calls."""
    summariser = StrictModel(script=[AIMessage("a summary")] * 9)
    middleware = [
        HumanInTheLoopMiddleware(interrupt_on={"wire_money": True}),
        SummarizationMiddleware(summariser, trigger=("messages", 9), keep=("messages", 2)),
        ToolCallLimitMiddleware(run_limit=4),
    ]
    return create_agent(model, tools, middleware=middleware, **options)


def swarm(desk: Desk, model: StrictModel, wrap: Wrap, saver: InMemorySaver) -> Graph:
    """Two agents of which the first is active."""
    alice = create_agent(
        model, [*desk.tools(), create_handoff_tool(agent_name="bob")], name="alice"
    )
    bob = create_agent(script(), [create_handoff_tool(agent_name="alice")], name="bob")
    builder = create_swarm([alice, bob], default_active_agent="alice")
    return wrap(builder).compile(checkpointer=saver)


def supervisor(desk: Desk, model: StrictModel, wrap: Wrap, saver: InMemorySaver) -> Graph:
    """The agent is called by a supervisor: patched before it is composed, and after."""
    clerk = wrap(react_v2(model, desk.tools(), name="clerk"))

    def first(seen: list[BaseMessage]) -> AIMessage:
        if len(seen) == 1:
            return ai(("transfer_to_clerk", {}, "h1"), id="s1")
        return AIMessage(f"re: {seen[-1].text}")

    chief = script(first)
    return compose(chief, [clerk], wrap, saver)


def compose(chief: StrictModel, agents: list[Graph], wrap: Wrap, saver: InMemorySaver) -> Graph:
    """`create_supervisor`, with a `create_react_agent` of its own."""
    with warnings.catch_warnings():
        # The supervisor package still calls it, and its users see that.
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        builder = create_supervisor(agents, model=chief)
    return wrap(builder).compile(checkpointer=saver)


def nested(desk: Desk, model: StrictModel, wrap: Wrap, saver: InMemorySaver) -> Graph:
    """An agent that is a node of another graph."""
    builder = StateGraph(MessagesState)
    builder.add_node("clerk", create_agent(model, desk.tools(), name="clerk"))
    builder.add_edge(START, "clerk")
    return wrap(builder.compile(checkpointer=saver))


def stateful(desk: Desk, model: StrictModel, wrap: Wrap, saver: InMemorySaver) -> Graph:
    """An agent with a memory of its own, called by a node; it is the agent that is patched."""
    clerk = wrap(create_agent(model, desk.tools(), name="clerk", checkpointer=True))

    def call(state: MessagesState) -> dict[str, Any]:
        answer = clerk.invoke({"messages": state["messages"][-1:]})
        return {"messages": answer["messages"][-1:]}

    async def acall(state: MessagesState) -> dict[str, Any]:
        answer = await clerk.ainvoke({"messages": state["messages"][-1:]})
        return {"messages": answer["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("clerk", RunnableLambda(call, acall))
    builder.add_edge(START, "clerk")
    return builder.compile(checkpointer=saver)


@dataclass(frozen=True, slots=True)
class Agent:
    """A kind of agent.

    Attributes:
        name: How the test calls it.
        build: Makes one.
        model_node: The node that `goto` names.
        asks_first: Whether a middleware asks the human before any tool runs.
        records: Whether each call is a task of its own.
        is_inside: Whether a run that is abandoned leaves no trace in the history.
        is_told: Whether a patched graph then adds one text, and no calls.
        heals: Whether the bare agent has a repair of its own for a new message.
        namespace: Where the agent's history is.
    """

    name: str
    build: Build
    model_node: str = "model"
    asks_first: bool = False
    records: bool = True
    is_inside: bool = False
    is_told: bool = False
    heals: bool = False
    namespace: str = ""


AGENTS = (
    Agent("hand_built", simple(hand_built), "agent", records=False),
    Agent("react_v1", simple(react_v1), "agent", records=False),
    Agent("react_v2", simple(react_v2), "agent"),
    Agent("create_agent", simple(create_agent)),
    Agent("create_agent_with_approval", simple(with_approval), asks_first=True),
    Agent("create_agent_with_all", simple(with_all), asks_first=True),
    Agent("create_deep_agent", simple(create_deep_agent), heals=True),
    Agent("swarm", swarm, "alice", is_inside=True),
    Agent("supervisor", supervisor, "supervisor", is_inside=True, is_told=True),
    Agent("nested", nested, "clerk", is_inside=True),
    Agent("stateful", stateful, "clerk", namespace="clerk"),
)


# --- the breaks ----------------------------------------------------------------------------


@dataclass(slots=True)
class MatrixThread:
    """One thread: the bare graph that is broken, and the patched one that goes on."""

    agent: Agent
    wire: str
    asynchronous: bool
    saver: InMemorySaver = field(default_factory=InMemorySaver)
    model: StrictModel = field(default_factory=lambda: script(both_calls()))
    desk: Desk = field(init=False)
    bare: Graph = field(init=False)
    patched: Graph = field(init=False)

    def __post_init__(self) -> None:
        self.desk = Desk(self.wire)
        self.bare = self.agent.build(self.desk, self.model, lambda graph: graph, self.saver)
        self.patched = self.agent.build(self.desk, self.model, with_patching, self.saver)

    async def run(self, graph: Graph, value: Any) -> Any:
        """Run the graph the way that the test asks for."""
        if self.asynchronous:
            return await graph.ainvoke(value, thread())
        return graph.invoke(value, thread())

    async def until_tools(self, graph: Graph) -> Any:
        """What starts the tools: the booking, or the approval of it."""
        if not self.agent.asks_first:
            return {"messages": [BOOKED]}
        await self.run(graph, {"messages": [BOOKED]})
        return Command(resume={"decisions": [{"type": "approve"}]})

    def history(self) -> list[BaseMessage]:
        """The history of the agent, wherever it is."""
        place = {"thread_id": "1", "checkpoint_ns": self.agent.namespace}
        if self.agent.namespace:
            saved = self.saver.get_tuple({"configurable": place})
            assert saved is not None
            return saved.checkpoint["channel_values"]["messages"]
        return self.patched.get_state(thread()).values["messages"]

    def recorded(self) -> bool:
        """Whether the result of the mail is anywhere in the checkpointer."""
        return any(
            "sent to bob" in repr(value)
            for saved in self.saver.list(thread())
            for _, _, value in saved.pending_writes or ()
        )


async def interrupted(it: MatrixThread) -> Any:
    """A human is asked and says something else."""
    await it.run(it.patched, {"messages": [BOOKED]})
    assert it.patched.get_state(thread()).interrupts
    return {"messages": [NEVER_MIND]}


async def cancelled(it: MatrixThread) -> Any:
    """The run is cancelled while a tool hangs; it must be async, the next may be sync."""
    asynchronous, it.asynchronous = it.asynchronous, True
    value = await it.until_tools(it.patched)
    running = asyncio.create_task(it.run(it.patched, value))
    async with asyncio.timeout(SECONDS):
        while "mail" not in it.desk.done or (it.agent.records and not it.recorded()):  # noqa: ASYNC110 - the saver has no event
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    it.asynchronous = asynchronous
    return {"messages": [NEVER_MIND]}


async def raised(it: MatrixThread) -> Any:
    """A tool raises and nothing handles it; its sibling's result is recorded by then."""
    it.desk.ready = it.recorded if it.agent.records else lambda: True
    value = await it.until_tools(it.patched)
    with pytest.raises(ConnectionError, match="the bank is down"):
        await it.run(it.patched, value)
    return {"messages": [NEVER_MIND]}


async def break_the_bare_graph(it: MatrixThread) -> None:
    """The bare graph is broken for good: by a new message, or where that heals by an edit."""
    await it.run(it.bare, {"messages": [BOOKED]})
    if it.agent.is_inside or it.agent.heals:
        edit = [] if it.agent.heals else [both_calls()]
        entry = "PatchToolCallsMiddleware.before_agent" if it.agent.heals else START
        it.bare.update_state(thread(), {"messages": [*edit, NEVER_MIND]}, as_node=entry)
    value = None if it.agent.is_inside or it.agent.heals else {"messages": [NEVER_MIND]}
    with pytest.raises(ValueError, match="c1"):
        await it.run(it.bare, value)
    it.model.script[:] = script().script
    it.model.seen.clear()


async def died_and_written_to(it: MatrixThread) -> Any:
    """A thread that died gets one more message."""
    await break_the_bare_graph(it)
    return {"messages": [human("hello?")]}


async def died_and_invoked(it: MatrixThread) -> Any:
    """A thread that died is continued without an input."""
    await break_the_bare_graph(it)
    return None


async def died_and_sent(it: MatrixThread) -> Any:
    """A thread that died is sent to its model."""
    await break_the_bare_graph(it)
    return Command(goto=it.agent.model_node)


async def died_and_sent_its_state(it: MatrixThread) -> Any:
    """The model of a thread that died gets a state of its own, with equal messages."""
    await break_the_bare_graph(it)
    it.patched.update_state(thread(), None, as_node=END)
    state = it.patched.get_state(thread()).values
    return Command(goto=Send(it.agent.model_node, state))


async def edited(it: MatrixThread) -> Any:
    """`update_state` adds a call that no tool ran, and a human writes."""
    it.model.script[:] = script().script
    await it.run(it.patched, {"messages": [BOOKED]})
    edit = {"messages": [ai(("send_email", {"to": "bob"}, "c1"), id="a1")]}
    it.patched.update_state(thread(), edit, as_node=it.agent.model_node)
    return {"messages": [NEVER_MIND]}


@dataclass(frozen=True, slots=True)
class Break:
    """A way in which a thread breaks.

    Attributes:
        make: Breaks the thread, and returns the input with which it goes on.
        wire: What `wire_money` does: "asks", "raises" or "hangs".
        live: Whether the patched graph itself was interrupted, not a bare one long ago.
        agents: The agents that can break so. Default: all.
    """

    make: Callable[[MatrixThread], Awaitable[Any]]
    wire: str = "asks"
    live: bool = False
    agents: tuple[str, ...] = tuple(agent.name for agent in AGENTS)


ONE_HISTORY = tuple(a.name for a in AGENTS if not a.is_inside and not a.namespace)
"""The agents with one history, that of the whole graph."""

BREAKS = {
    "interrupted": Break(interrupted, live=True),
    "cancelled": Break(cancelled, "hangs", live=True),
    "raised": Break(raised, "raises", live=True),
    "new_message": Break(died_and_written_to, agents=ONE_HISTORY),
    "invoke_none": Break(died_and_invoked),
    "goto": Break(died_and_sent),
    "send": Break(died_and_sent_its_state, agents=ONE_HISTORY),
    "edited": Break(edited, agents=ONE_HISTORY),
}
CASES = [
    pytest.param(agent, name, bool((n + k) % 2), id=f"{agent.name}-{name}")
    for n, agent in enumerate(AGENTS)
    for k, (name, way) in enumerate(BREAKS.items())
    if agent.name in way.agents
]
"""Each agent with each break, synchronously and asynchronously in turn."""


def expected_results(agent: Agent, way: str) -> list[str]:
    """The lines of the tool messages that the repair of this break leaves in the history."""
    unknown = [
        f"tool c1: {UNKNOWN.format('send_email', 'c1')}",
        f"tool c2: {UNKNOWN.format('wire_money', 'c2')}",
    ]
    if way == "edited":
        return unknown[:1]
    tools_ran = way in ("cancelled", "raised") or not agent.asks_first
    is_lost = agent.is_inside and not BREAKS[way].live
    if agent.asks_first and not tools_ran and not is_lost:
        return [
            f"tool c1: {NOT_APPROVED.format('send_email', 'c1')}",
            f"tool c2: {NOT_APPROVED.format('wire_money', 'c2')}",
        ]
    if is_lost or not (agent.records and tools_ran):
        return unknown
    second = {
        "cancelled": CANCELLED.format("wire_money", "c2"),
        "raised": FAILED.format("wire_money", "c2", repr(ConnectionError("the bank is down"))),
    }.get(way, WAITED.format("wire_money", "c2"))
    return ["tool c1: sent to bob", f"tool c2: {second}"]


def expected_history(agent: Agent, way: str) -> list[str]:
    """The history, on lines, after the first run that follows the break."""
    results = expected_results(agent, way)
    if way == "edited":
        start = ["human: book it", "ai: re: book it", "ai c1: ", *results]
    else:
        start = ["human: book it", "ai c1 c2: ", *results]
    if way == "new_message":
        return [*start, "human: never mind", "human: hello?", "ai: re: hello?"]
    return [*start, "human: never mind", "ai: re: never mind"]
