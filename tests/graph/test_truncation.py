"""A call that the model did not finish writing never runs; a complete one always does."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from typing import Annotated, Any, NamedTuple

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from kit import Desk, StrictModel, calls, loop, streamed
from langgraph_patch import with_patching
from support.running import in_turn

CUT = streamed(("mail", '{"to": "bob", "cc": "al'), reason="length")
"""LangChain completes it to `mail(to="bob", cc="al")`, and a bare graph sends the mail."""
WHOLE = streamed(("mail", '{"to": "bob"}'), reason="tool_calls")
BESIDE = streamed(("mail", '{"to": "al"}'), ("mail", '{"to": "bob", "cc": "a'), reason="length")
"""A whole call, and a cut one after it."""

WAYS = ("sync", "async", "events")


class Kind(NamedTuple):
    """A kind of node that leads to a model.

    Attributes:
        build: Makes the graph of a model, tools, and a counter of the runs of the node.
        asked: How often the model is called after a cut answer: 1 if the turn ends.
        key: The state key of its history.
    """

    build: Any
    asked: int = 2
    key: str = "messages"


class Handler(BaseCallbackHandler):
    """A handler of the application's own."""


def _loop(call: Any, tools: Any, *, state: Any = MessagesState, key: str = "messages") -> Any:
    """A loop around a function that is called with the state, in both ways."""
    builder = StateGraph(state)
    builder.add_node("agent", call)
    builder.add_node("tools", ToolNode(tools, messages_key=key))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda s: tools_condition(s, messages_key=key))
    builder.add_edge("tools", "agent")
    return builder


def patched(builder: Any, **options: Any) -> Any:
    """The graph, patched, with a checkpointer."""
    return with_patching(builder.compile(checkpointer=InMemorySaver()), **options)


def plain(model, tools, runs):
    """A model node."""

    def call(state):
        runs["agent"] += 1
        return {"messages": [model.invoke(state["messages"])]}

    return patched(_loop(call, tools))


def explicit_callbacks(model, tools, runs):
    """Explicit callbacks replace those that LangGraph passes on."""

    def call(state):
        runs["agent"] += 1
        config = {"callbacks": [Handler()]}
        return {"messages": [model.invoke(state["messages"], config=config)]}

    return patched(_loop(call, tools))


def retries(model, tools, runs):
    """A model that is asked again after an error."""
    return plain(model.with_retry(stop_after_attempt=2), tools, runs)


def fallbacks(model, tools, runs):
    """A model with another one behind it."""
    return plain(model.with_fallbacks([StrictModel()]), tools, runs)


def agent_in_a_node(model, tools, runs):
    """A function that calls an agent that is not patched, and returns its last message."""
    agent = create_agent(model, tools)

    def call(state):
        runs["agent"] += 1
        return {"messages": [agent.invoke({"messages": state["messages"]})["messages"][-1]]}

    return patched(_loop(call, tools))


def agent_in_a_tool(model, tools, runs):
    """A tool that calls an agent that is not patched."""
    agent = create_agent(model, tools)

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        runs["agent"] += 1
        return agent.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    boss = StrictModel(script=[calls(("delegate", {"task": "go"}), first=7)])
    return patched(loop(boss, [delegate]))


def subagent(model, tools, runs):
    """A subagent of deepagents."""
    task = {"description": "go", "subagent_type": "helper"}
    boss = StrictModel(script=[calls(("task", task), first=7)])
    helper = {
        "name": "helper",
        "description": "helps",
        "system_prompt": "help",
        "model": model,
        "tools": tools,
    }
    runs["agent"] += 1
    agent = create_deep_agent(boss, [], subagents=[helper], checkpointer=InMemorySaver())
    return with_patching(agent)


class Talk(TypedDict):
    """A history under another key."""

    talk: Annotated[list[AnyMessage], add_messages]
    messages: Annotated[list[AnyMessage], add_messages]


def another_key(model, tools, runs):
    """A node whose history is under a key that is not patched."""

    def call(state):
        runs["agent"] += 1
        return {"talk": [model.invoke(state["talk"])]}

    builder = _loop(call, tools, state=Talk, key="talk")
    builder.add_node("other", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]})
    builder.add_edge(START, "other")
    return patched(builder)


def nested_with_another_key(model, tools, runs):
    """A graph that is a node, with a history under a key that is not patched."""

    class Private(TypedDict):
        talk: Annotated[list[AnyMessage], add_messages]

    def call(state):
        runs["agent"] += 1
        return {"talk": [model.invoke(state["talk"])]}

    builder = StateGraph(Talk)
    builder.add_node("team", _loop(call, tools, state=Private, key="talk").compile())
    builder.add_node("other", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]})
    builder.add_edge(START, "team")
    builder.add_edge(START, "other")
    return patched(builder)


def nested(model, tools, runs):
    """A patched graph that is a node of a patched graph."""
    builder = StateGraph(MessagesState)
    builder.add_node("team", plain(model, tools, runs))
    builder.add_edge(START, "team")
    return patched(builder)


def asking(model, tools, runs):
    """A node that asks a human before its model; the human has answered."""

    def call(state):
        runs["agent"] += 1
        if len(state["messages"]) == 1:
            interrupt("may I?")
        return {"messages": [model.invoke(state["messages"])]}

    return patched(_loop(call, tools))


def sending(model, tools, runs):
    """The same, and it sends each call to the tools itself."""

    def call(state):
        runs["agent"] += 1
        merged = None
        for chunk in model.stream(state["messages"]):
            merged = chunk if merged is None else merged + chunk
        sends = [Send("tools", [made]) for made in merged.tool_calls]
        return Command(update={"messages": [merged]}, goto=sends)

    builder = StateGraph(MessagesState)
    builder.add_node("agent", call)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    return patched(builder)


REACHED = {
    "plain": Kind(plain),
    "explicit callbacks": Kind(explicit_callbacks),
    "retries": Kind(retries),
    "fallbacks": Kind(fallbacks),
    "an agent in a node": Kind(agent_in_a_node, asked=1),
    "an agent in a tool": Kind(agent_in_a_tool, asked=1),
    "a subagent of deepagents": Kind(subagent, asked=1),
    "a history under another key": Kind(another_key, asked=1, key="talk"),
    "a nested patched graph": Kind(nested),
    "a nested graph with another key": Kind(nested_with_another_key, asked=1, key="talk"),
    "a node that interrupts": Kind(asking, asked=1),
    "sends its calls": Kind(sending),
}
"""The kinds of node whose model the guard reaches."""


class Turn(NamedTuple):
    """What happened in a turn."""

    did: Counter[str]
    runs: Counter[str]
    asked: int
    history: list[Any]
    graph: Any
    model: StrictModel
    desk: Desk


CONFIG: Any = {"configurable": {"thread_id": "1"}}


def run(graph: Any, value: Any, way: str) -> None:
    """Run a graph, so that its models stream."""

    async def consume() -> None:
        if way == "async":
            async for _ in graph.astream(value, CONFIG, stream_mode="messages"):
                pass
        else:
            async for _ in graph.astream_events(value, CONFIG, version="v2"):
                pass

    if way == "sync":
        list(graph.stream(value, CONFIG, stream_mode="messages"))
    else:
        asyncio.run(consume())


def play(kind: Kind, script: list[Any], way: str) -> Turn:
    """One turn of an agent of a kind, and the answer to its question."""
    desk, runs = Desk(), Counter()

    @tool
    def mail(to: str, cc: str = "") -> str:
        """Send a mail."""
        desk.note(f"mail {to}")
        return f"sent to {to}"

    model = StrictModel(script=list(script), streaming=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = kind.build(model, [mail], runs)
        run(graph, {kind.key: [HumanMessage("go")]}, way)
        if graph.get_state(CONFIG).interrupts:
            run(graph, Command(resume="yes"), way)
    history = graph.get_state(CONFIG).values[kind.key]
    return Turn(desk.did, runs, len(model.seen), history, graph, model, desk)


@pytest.mark.parametrize(("name", "way"), in_turn(REACHED, WAYS))
def test_a_cut_call_never_runs(name, way):
    """Whatever stands between the node and its model. The thread answers the next message."""
    kind = REACHED[name]
    turn = play(kind, [CUT], way)
    assert turn.did == {}
    assert turn.asked == kind.asked
    run(turn.graph, {kind.key: [HumanMessage("hello")]}, way)
    assert turn.did == {}
    assert turn.graph.get_state(CONFIG).values[kind.key][-1].text == "done"


@pytest.mark.parametrize(("name", "way"), in_turn(REACHED, WAYS))
def test_a_whole_call_runs_as_in_the_bare_graph(name, way):
    """It runs once, and the answer follows."""
    turn = play(REACHED[name], [WHOLE], way)
    assert turn.did == {"mail bob": 1}
    assert turn.history[-1].text == "done"


@pytest.mark.parametrize(("name", "way"), in_turn(REACHED, WAYS))
def test_a_whole_call_beside_a_cut_one_runs(name, way):
    """The model is not asked again; the next one reads what was not run."""
    turn = play(REACHED[name], [BESIDE], way)
    assert turn.did == {"mail al": 1}
    assert turn.history[-1].text == "done"
    read = {m.tool_call_id: m.text for m in turn.model.seen[-1] if m.type == "tool"}
    assert read["c1"] == "sent to al"
    # In a history that is not patched the cut call is dropped, so nothing has to answer it.
    assert "sent to bob" not in read.get("c2", "")
