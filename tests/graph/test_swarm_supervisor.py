"""Agents that hand over to each other: `langgraph-swarm` and `langgraph-supervisor`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from langgraph_patch import validate_messages, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import Graph, Tools, history, human, lines, react_v1, react_v2, thread
from support.placeholder_texts import UNKNOWN
from support.running import in_turn, run, sync_and_async
from support.strict import StrictModel, ai

BOOKED = human("book it")
HANDOVER = "tool c2: Successfully transferred to bob"
LOST = f"tool c1: {UNKNOWN.format('send_email', 'c1')}"


def by_middleware(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent` with the middleware: the agent is patched, whatever it is part of."""
    return create_agent(model, tools, middleware=[PatchToolCallsMiddleware()], **options)


# --- swarms --------------------------------------------------------------------------------


def of_builder(builder: Any, saver: Any) -> Graph:
    """The builder is patched, then compiled."""
    return with_patching(builder).compile(checkpointer=saver)


def of_compiled(builder: Any, saver: Any) -> Graph:
    """The compiled swarm is patched."""
    return with_patching(builder.compile(checkpointer=saver))


def bare(builder: Any, saver: Any) -> Graph:
    """Nothing is patched."""
    return builder.compile(checkpointer=saver)


@dataclass(frozen=True, slots=True)
class Swarm:
    """Alice, who is active first, Bob, and what they see and did."""

    graph: Graph
    alice: StrictModel
    bob: StrictModel
    tools: Tools


def swarm(
    build: Callable[..., Graph],
    compiled: Callable[..., Graph],
    *,
    alice: list[Any],
    bob: list[Any],
    asynchronous: bool = False,
    saver: InMemorySaver | None = None,
) -> Swarm:
    """Two agents with both tools and a handoff to the other, over the same script lines."""
    tools = Tools(asynchronous=asynchronous)
    models = StrictModel(script=alice), StrictModel(script=bob)
    agents = [
        build(model, [*tools.tools(), create_handoff_tool(agent_name=other)], name=name)
        for model, name, other in zip(models, ("alice", "bob"), ("bob", "alice"), strict=True)
    ]
    builder = create_swarm(agents, default_active_agent="alice")
    return Swarm(compiled(builder, saver or InMemorySaver()), *models, tools)


def handover(*, first: bool = False) -> AIMessage:
    """A mail and a handoff in one turn."""
    calls = [("send_email", {"to": "bob"}, "c1"), ("transfer_to_bob", {}, "c2")]
    return ai(*(reversed(calls) if first else calls), id="a1")


@pytest.mark.parametrize(
    ("build", "expected", "compiled", "first", "asynchronous"),
    [
        (create_agent, "tool c1: sent to bob", of_builder, False, True),
        (create_agent, "tool c1: sent to bob", of_compiled, True, False),
        (react_v2, "tool c1: sent to bob", of_compiled, False, True),
        (react_v1, LOST, of_builder, True, False),
    ],
)
async def test_a_handoff_with_a_sibling_call(
    build: Any, expected: str, compiled: Any, *, first: bool, asynchronous: bool
):
    """The sibling's result, which LangGraph drops, is in Bob's input and stays in the state.

    A plain v1 tool node records nothing, so there nothing is claimed.
    """
    it = swarm(
        build,
        compiled,
        alice=[handover(first=first)],
        bob=[AIMessage("bob here"), AIMessage("yes?")],
        asynchronous=asynchronous,
    )
    await run(it.graph, BOOKED, asynchronous=asynchronous)
    messages = history(it.graph, thread())
    assert lines(messages)[0] == "human: book it"
    assert sorted(lines(messages)[2:4]) == sorted([expected, HANDOVER])
    assert lines(messages)[4:] == ["ai: bob here"]
    assert validate_messages(messages) == []
    assert it.tools.done == ["mail to bob"]
    await run(it.graph, "hello", asynchronous=asynchronous)
    assert lines(history(it.graph, thread()))[5:] == ["human: hello", "ai: yes?"]
    assert it.graph.get_state(thread()).values["active_agent"] == "bob"


@pytest.mark.parametrize(
    ("build", "asynchronous"), in_turn([create_agent, react_v2], [False, True])
)
async def test_handoffs_with_the_same_ids(build: Any, *, asynchronous: bool):
    """Each result stays below its own call, when Bob uses Alice's ids for what he hands over."""
    back = ai(("send_email", {"to": "eve"}, "c1"), ("transfer_to_alice", {}, "c2"), id="b1")
    it = swarm(
        build,
        of_builder,
        alice=[handover(), AIMessage("alice here")],
        bob=[back],
        asynchronous=asynchronous,
    )
    await run(it.graph, BOOKED, asynchronous=asynchronous)
    messages = history(it.graph, thread())
    assert validate_messages(messages) == []
    told = [line.partition(": ")[2] for line in lines(messages)]
    first, second = told.index("sent to bob"), told.index("sent to eve")
    assert [m.id for m in messages if isinstance(m, AIMessage) and m.tool_calls] == ["a1", "b1"]
    assert first < [m.id for m in messages].index("b1") < second
    assert it.tools.done == ["mail to bob", "mail to eve"]


@sync_and_async
async def test_the_updates_of_a_nested_agent_that_is_repaired(*, asynchronous: bool):
    """A damaged history, and an agent that is a node is next: its chunk has nothing twice."""
    it = swarm(create_agent, bare, alice=[], bob=[AIMessage("yes?")])
    damaged = [human("book it"), handover(), human("hello?")]
    it.graph.update_state(thread(), {"messages": damaged, "active_agent": "bob"}, as_node=START)
    graph = with_patching(it.graph)
    if asynchronous:
        chunks = [c async for c in graph.astream(None, thread(), stream_mode="updates")]
    else:
        chunks = list(graph.stream(None, thread(), stream_mode="updates"))
    shown = [message.id for chunk in chunks for message in chunk["bob"]["messages"]]
    stored = history(graph, thread())
    assert sorted(shown) == sorted(message.id for message in stored)
    assert validate_messages(stored) == []
    assert validate_messages(it.bob.seen[-1]) == []


@pytest.mark.parametrize(
    ("value", "asynchronous"),
    in_turn([{"messages": [human("hello?")]}, None, Command(goto="bob")], [False, True]),
)
async def test_a_swarm_that_died_goes_on(value: Any, *, asynchronous: bool):
    """A thread that the bare swarm broke: the patched one tells what was recorded weeks ago."""
    saver = InMemorySaver()
    it = swarm(create_agent, bare, alice=[handover()], bob=[], saver=saver)
    with pytest.raises(ValueError, match="c1"):
        it.graph.invoke({"messages": [BOOKED]}, thread())
    it = swarm(
        create_agent,
        of_builder,
        alice=[],
        bob=[AIMessage("bob here")],
        saver=saver,
        asynchronous=asynchronous,
    )
    await run(it.graph, value, asynchronous=asynchronous)
    messages = history(it.graph, thread())
    assert "tool c1: sent to bob" in lines(messages)
    assert lines(messages)[-1] == "ai: bob here"
    assert validate_messages(messages) == []


def test_the_router_of_a_swarm_still_decides():
    """START has no edge in a swarm, only a router: who was active goes on, damaged or not."""
    it = swarm(create_agent, of_builder, alice=[], bob=[AIMessage("hi"), AIMessage("bob here")])
    start = {"messages": [BOOKED], "active_agent": "bob"}
    it.graph.invoke(start, thread())
    open_call = {"messages": [ai(("send_email", {"to": "bob"}, "c9"))]}
    it.graph.update_state(thread(), open_call, as_node="bob")
    it.graph.invoke({"messages": [human("hello")]}, thread())
    messages = history(it.graph, thread())
    assert validate_messages(messages) == []
    assert lines(messages)[-1] == "ai: bob here"
    assert it.alice.seen == []
    nodes = [task.name for state in it.graph.get_state_history(thread()) for task in state.tasks]
    assert nodes.count("patch_tool_calls") == 1
    assert nodes.count("bob") == 2


def test_agents_that_patch_themselves():
    """Agents with the middleware in a bare swarm: Bob finds what Alice's tools did."""
    it = swarm(by_middleware, bare, alice=[handover()], bob=[AIMessage("bob here")])
    it.graph.invoke({"messages": [BOOKED]}, thread())
    messages = history(it.graph, thread())
    assert sorted(lines(messages)[2:4]) == sorted(["tool c1: sent to bob", HANDOVER])
    assert lines(messages)[4:] == ["ai: bob here"]
    assert validate_messages(messages) == []


# --- supervisors ---------------------------------------------------------------------------


def supervised(
    chief: StrictModel, agents: list[Graph], saver: InMemorySaver, *, patched: bool, **options: Any
) -> Graph:
    """Each agent is patched before it is composed, and the supervisor's own graph after."""
    with warnings.catch_warnings():
        # The supervisor package still calls it, and its users see that.
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        builder = create_supervisor(
            [with_patching(agent) for agent in agents] if patched else agents,
            model=chief,
            **options,
        )
    return (with_patching(builder) if patched else builder).compile(checkpointer=saver)


def clerk(*script: Any, asks: bool = True) -> tuple[Graph, StrictModel, Tools]:
    """An agent with the two tools."""
    model, tools = StrictModel(script=list(script)), Tools(asks=asks)
    return create_agent(model, tools.tools(), name="clerk"), model, tools


TO_CLERK = ai(("transfer_to_clerk", {}, "h1"), id="s1")
MAIL = ("send_email", {"to": "bob"}, "c1")


@sync_and_async
@pytest.mark.parametrize("patched", [False, True])
async def test_a_full_history_that_broke_off(*, patched: bool, asynchronous: bool):
    """A supervised agent that ends with an open call hands it to the supervisor's history."""

    def stops(state: Any) -> dict[str, Any]:
        return {"messages": [ai(MAIL, id="a1")]}

    builder = StateGraph(MessagesState).add_node("model", stops).add_edge(START, "model")
    builder.add_node("tools", ToolNode(Tools().tools()[:1]))
    agent = builder.compile(name="clerk")
    chief = StrictModel(script=[TO_CLERK, AIMessage("all done"), AIMessage("yes?")])
    options = {"output_mode": "full_history", "add_handoff_back_messages": False}
    graph = supervised(chief, [agent], InMemorySaver(), patched=patched, **options)
    if not patched:
        with pytest.raises(ValueError, match="c1"):
            await run(graph, BOOKED, asynchronous=asynchronous)
        return
    await run(graph, BOOKED, asynchronous=asynchronous)
    messages = history(graph, thread())
    assert validate_messages(messages) == []
    assert LOST in lines(messages)
    assert lines(messages)[-1] == "ai: all done"
    await run(graph, "hello", asynchronous=asynchronous)
    assert lines(history(graph, thread()))[-1] == "ai: yes?"
