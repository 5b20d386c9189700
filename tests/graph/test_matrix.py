"""Every kind of agent, broken in every way, goes on: by `ainvoke` and by `invoke`.

Whatever the kind and the break: the model, which refuses what providers refuse, never refuses
again; the state is valid; a result that was recorded of a call that the history holds is in
the history.

What cannot be, and is therefore not asked here (`Kind.forgets`): when a run is abandoned
*inside a subgraph that shares its parent's history* (a node that is an agent, the agents of a
swarm, a supervisor and its agents), the calls have never reached the parent's history. The
next message starts the subgraph anew; nothing dangles, and nothing can be repaired. That the
mail was sent is known to the checkpointer only. A subgraph with a memory of its own
(`checkpointer=True`) keeps its calls, and they are repaired there, if that graph was patched.

A plain `ToolNode` is one task for all its calls (`Kind.records`): what finished is lost with
the rest, unless the node was given `record_tool_calls`.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from agents import Graph, both_calls, hand_built, human, lines, react_v1, react_v2, thread
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm
from strict import StrictModel, ai, refuse

from langgraph_patch import validate_messages, with_patching
from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls

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


def recorded(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_react_agent` v1 whose tool node records each call."""
    node = ToolNode(tools, wrap_tool_call=record_tool_calls, awrap_tool_call=arecord_tool_calls)
    return react_v1(model, node, **options)


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
    """`create_supervisor`, whose own agent is a `create_react_agent`."""
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
class Kind:
    """A kind of agent.

    Attributes:
        name: How the test calls it.
        build: Makes one.
        model_node: The node that `goto` names.
        asks_first: Whether a middleware asks the human before any tool runs.
        records: Whether each call is a task of its own.
        forgets: Whether a run that is abandoned leaves no trace in the history.
        heals: Whether the bare agent has a repair of its own for a new message.
        namespace: Where the agent's history is.
    """

    name: str
    build: Build
    model_node: str = "model"
    asks_first: bool = False
    records: bool = True
    forgets: bool = False
    heals: bool = False
    namespace: str = ""


KINDS = (
    Kind("hand_built", simple(hand_built), "agent", records=False),
    Kind("react_v1", simple(react_v1), "agent", records=False),
    Kind("react_v1_recorded", simple(recorded), "agent"),
    Kind("react_v2", simple(react_v2), "agent"),
    Kind("create_agent", simple(create_agent)),
    Kind("create_agent_with_all", simple(with_all), asks_first=True),
    Kind("create_deep_agent", simple(create_deep_agent), heals=True),
    Kind("swarm", swarm, "alice", forgets=True),
    Kind("supervisor", supervisor, "supervisor", forgets=True),
    Kind("nested", nested, "clerk", forgets=True),
    Kind("stateful", stateful, "clerk", namespace="clerk"),
)


# --- the breaks ----------------------------------------------------------------------------


@dataclass(slots=True)
class Play:
    """One thread: the bare graph that is broken, and the patched one that goes on."""

    kind: Kind
    wire: str
    asynchronous: bool
    saver: InMemorySaver = field(default_factory=InMemorySaver)
    model: StrictModel = field(default_factory=lambda: script(both_calls()))
    desk: Desk = field(init=False)
    bare: Graph = field(init=False)
    patched: Graph = field(init=False)

    def __post_init__(self) -> None:
        self.desk = Desk(self.wire)
        self.bare = self.kind.build(self.desk, self.model, lambda graph: graph, self.saver)
        self.patched = self.kind.build(self.desk, self.model, with_patching, self.saver)

    async def run(self, graph: Graph, value: Any) -> Any:
        """Run the graph the way that the test asks for."""
        if self.asynchronous:
            return await graph.ainvoke(value, thread())
        return graph.invoke(value, thread())

    async def until_tools(self, graph: Graph) -> Any:
        """What starts the tools: the booking, or the approval of it."""
        if not self.kind.asks_first:
            return {"messages": [BOOKED]}
        await self.run(graph, {"messages": [BOOKED]})
        return Command(resume={"decisions": [{"type": "approve"}]})

    def history(self) -> list[BaseMessage]:
        """The history of the agent, wherever it is."""
        place = {"thread_id": "1", "checkpoint_ns": self.kind.namespace}
        if self.kind.namespace:
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


async def interrupted(play: Play) -> Any:
    """A human is asked and says something else."""
    await play.run(play.patched, {"messages": [BOOKED]})
    assert play.patched.get_state(thread()).interrupts
    return {"messages": [NEVER_MIND]}


async def cancelled(play: Play) -> Any:
    """The run is cancelled while a tool hangs; it must be async, the next may be sync."""
    asynchronous, play.asynchronous = play.asynchronous, True
    value = await play.until_tools(play.patched)
    running = asyncio.create_task(play.run(play.patched, value))
    async with asyncio.timeout(SECONDS):
        while "mail" not in play.desk.done or (play.kind.records and not play.recorded()):  # noqa: ASYNC110 - the saver has no event
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    play.asynchronous = asynchronous
    return {"messages": [NEVER_MIND]}


async def raised(play: Play) -> Any:
    """A tool raises and nobody handles it; what its sibling did is on record by then."""
    play.desk.ready = play.recorded if play.kind.records else lambda: True
    value = await play.until_tools(play.patched)
    with pytest.raises(ConnectionError, match="the bank is down"):
        await play.run(play.patched, value)
    return {"messages": [NEVER_MIND]}


async def died(play: Play) -> None:
    """The bare graph is broken for good: by a new message, or where that heals by an edit."""
    await play.run(play.bare, {"messages": [BOOKED]})
    if play.kind.forgets or play.kind.heals:
        edit = [] if play.kind.heals else [both_calls()]
        entry = "PatchToolCallsMiddleware.before_agent" if play.kind.heals else START
        play.bare.update_state(thread(), {"messages": [*edit, NEVER_MIND]}, as_node=entry)
    value = None if play.kind.forgets or play.kind.heals else {"messages": [NEVER_MIND]}
    with pytest.raises(ValueError, match="c1"):
        await play.run(play.bare, value)
    play.model.script[:] = script().script
    play.model.seen.clear()


async def died_and_invoked(play: Play) -> Any:
    """A thread that died is continued without an input."""
    await died(play)
    return None


async def died_and_sent(play: Play) -> Any:
    """A thread that died is sent to its model."""
    await died(play)
    return Command(goto=play.kind.model_node)


BREAKS = {
    "interrupted": (interrupted, "asks"),
    "cancelled": (cancelled, "hangs"),
    "raised": (raised, "raises"),
    "invoke_none": (died_and_invoked, "asks"),
    "goto": (died_and_sent, "asks"),
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", BREAKS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_it_goes_on(kind: Kind, way: str, *, asynchronous: bool):
    """The model is never given what it refuses, the state is valid, nothing recorded is lost."""
    break_it, wire = BREAKS[way]
    play = Play(kind, wire, asynchronous)
    value = await break_it(play)
    recorded = play.recorded()
    mails = play.desk.done.count("mail")

    await play.run(play.patched, value)

    messages = play.history()
    said = lines(messages)
    assert said[-1] == "ai: re: never mind"
    assert validate_messages(messages) == []
    refuse(messages)
    assert play.patched.get_state(thread()).next == ()
    abandoned = kind.forgets and way in ("interrupted", "cancelled", "raised")
    results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    assert ("c1" in results and "c2" in results) is not abandoned
    if not abandoned and recorded and not kind.forgets:
        assert results["c1"].text == "sent to bob"
        assert "was recorded" not in results["c2"].text or way == "cancelled"
    assert play.desk.done.count("mail") == mails

    for text in ("hello", "and now?", "really?"):
        await play.run(play.patched, {"messages": [human(text)]})
        assert validate_messages(play.history()) == []
        assert lines(play.history())[-1] == f"ai: re: {text}"
    summarised = "a summary" in "".join(lines(play.history()))
    assert summarised is (kind.name == "create_agent_with_all")


@pytest.mark.parametrize("way", BREAKS)
def test_what_is_recorded_is_known(way: str):
    """The judge of the matrix: which kinds have a recorded result to lose, break by break."""
    break_it, wire = BREAKS[way]
    told = {}
    for kind in KINDS:
        play = Play(kind, wire, asynchronous=True)
        asyncio.run(break_it(play))
        told[kind.name] = play.recorded()
    asked = way in ("cancelled", "raised")
    assert told == {kind.name: kind.records and (asked or not kind.asks_first) for kind in KINDS}
