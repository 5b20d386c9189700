"""Graphs in graphs, with schemas of their own: abandoned, failed or resumed, they go on.

The model refuses what providers refuse. `test_agents_and_breaks.py` has single agents and agents
that are nodes, `tests/evidence/test_turns.py` the turns that such an agent abandons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from kit import Agent, calls, model_node, results_in, send_each
from langgraph_patch import validate_messages, with_patching
from support.placeholder_texts import FAILED, WAITED
from support.running import in_turn, pairs
from support.strict import RefusedError, refuse

MAIL = ("mail", {"to": "bob"})
PAUSES = calls(MAIL, ("wire", {"amount": 5}))
FAILS = calls(MAIL, ("boom", {"text": "x"}))


def looped(builder: Any, call: Any, tools: Any) -> Any:
    """Put a model node and its tools, with a task for each call, into a builder of any schema."""
    builder.add_node("agent", call)
    builder.add_node("tools", ToolNode(tools, handle_tool_errors=False))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    return builder.add_conditional_edges("agent", send_each, ["tools", END])


# --- the families --------------------------------------------------------------------------


class Private(TypedDict):
    """What a node may ask for that is in no other schema."""

    messages: Annotated[list[AnyMessage], add_messages]
    notes: str


class Whole(MessagesState):
    """All that a graph knows."""

    steps: int


class Question(MessagesState):
    """What it takes."""


class Answer(TypedDict):
    """What it gives: no history."""

    steps: int


def schemas(model: Any, tools: Any, saver: Any, wrap: Any) -> Any:
    """Another schema for what goes in and for what comes out."""
    builder = StateGraph(Whole, input_schema=Question, output_schema=Answer)
    return wrap(looped(builder, model_node(model), tools).compile(checkpointer=saver))


def private(model: Any, tools: Any, saver: Any, wrap: Any) -> Any:
    """A node that passes on a private value, in a graph that is a node of another one."""

    def plan(state: MessagesState) -> Private:
        return {"messages": [], "notes": "quietly"}

    def call(state: Private) -> dict[str, Any]:
        assert state["notes"] == "quietly"
        return {"messages": [model.invoke(state["messages"])]}

    child = looped(StateGraph(MessagesState), call, tools).add_node("plan", plan)
    child.edges.discard((START, "agent"))
    child.add_edge(START, "plan").add_edge("plan", "agent")
    builder = StateGraph(Whole).add_node("clerk", child.compile()).add_edge(START, "clerk")
    return wrap(builder.compile(checkpointer=saver))


@dataclass
class Ann:
    """The context of a run."""

    user: str


def context(model: Any, tools: Any, saver: Any, wrap: Any) -> Any:
    """Parent and child with a context that names the user."""

    def call(state: MessagesState, runtime: Runtime[Ann]) -> dict[str, Any]:
        assert runtime.context.user == "ann"
        return {"messages": [model.invoke(state["messages"])]}

    child = looped(StateGraph(MessagesState, context_schema=Ann), call, tools)
    builder = StateGraph(MessagesState, context_schema=Ann)
    builder.add_node("clerk", child.compile()).add_edge(START, "clerk")
    return wrap(builder.compile(checkpointer=saver))


class Case(TypedDict):
    """The state of a child that does not share its parent's."""

    messages: Annotated[list[AnyMessage], add_messages]
    number: int


def called(model: Any, tools: Any, saver: Any, wrap: Any) -> Any:
    """A graph with a state and a memory of its own that a node calls: the child is patched."""
    child = wrap(looped(StateGraph(Case), model_node(model), tools).compile(checkpointer=True))

    def call(state: MessagesState) -> dict[str, Any]:
        out = child.invoke({"messages": state["messages"][-1:], "number": 7})
        return {"messages": out["messages"][-1:]}

    async def acall(state: MessagesState) -> dict[str, Any]:
        out = await child.ainvoke({"messages": state["messages"][-1:], "number": 7})
        return {"messages": out["messages"][-1:]}

    builder = StateGraph(MessagesState)
    builder.add_node("clerk", RunnableLambda(call, acall)).add_edge(START, "clerk")
    return builder.compile(checkpointer=saver)


def in_a_tool(model: Any, tools: Any, saver: Any, wrap: Any) -> Any:
    """An agent with a tool that runs a graph, which asks the human."""
    mail, _, boom = tools

    class Outcome(TypedDict):
        outcome: str

    inner = StateGraph(Outcome).add_edge(START, "ask")
    inner.add_node("ask", lambda _: {"outcome": f"wired 5: {interrupt('wire 5?')}"})
    asking = inner.compile()

    @tool
    def wire(amount: int) -> str:
        """Let a graph wire the money."""
        return asking.invoke({"outcome": ""})["outcome"]

    return wrap(create_agent(model, [mail, wire, boom], checkpointer=saver))


FAMILIES: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (schemas, private, context, called, in_a_tool)
}


class Play:
    """One thread of a family: the patched graph, or the bare one."""

    def __init__(self, name: str, *script: Any, wrap: Any = with_patching, **options: Any) -> None:
        def build(model: Any, tools: Any, saver: Any) -> Any:
            return FAMILIES[name](model, tools, saver, wrap)

        self.agent = Agent(build, *script, **options)
        self.options = {"context": Ann("ann")} if name == "context" else {}
        self.namespace = "clerk" if name == "called" else ""

    def run(self, value: Any) -> Any:
        """Run the graph with a text, or with any other input."""
        value = {"messages": [HumanMessage(value)]} if isinstance(value, str) else value
        return self.agent.run(value, **self.options)

    def results(self) -> dict[str, str]:
        """The results in the history that has the calls; it must be valid."""
        place = {"thread_id": "1", "checkpoint_ns": self.namespace}
        saved = self.agent.graph.checkpointer.get_tuple({"configurable": place})
        messages = saved.checkpoint["channel_values"]["messages"]
        assert validate_messages(messages) == []
        refuse(messages)
        return results_in(messages)


@pytest.mark.parametrize(
    ("name", "script", "asynchronous"),
    [
        pytest.param(
            row.values[0], PAUSES if row.values[1] == "pauses" else FAILS, row.values[2], id=row.id
        )
        for row in pairs(FAMILIES, ["pauses", "fails"], [False, True])
    ],
)
def test_a_new_message(name: str, script: AIMessage, *, asynchronous: bool):
    """The model never refuses, the stored history is valid, the mail's result is recovered."""
    play = Play(name, script, asynchronous=asynchronous)
    if script is FAILS:
        with pytest.raises(RuntimeError, match="kaput"):
            play.run("pay bob")
    else:
        play.run("pay bob")
        assert play.agent.interrupts
    play.run("never mind")
    failed = FAILED.format("boom", "c2", "RuntimeError('kaput x')")
    second = failed if script is FAILS else WAITED.format("wire", "c2")
    assert play.results() == {"c1": "sent to bob", "c2": second}
    play.run("hello")
    assert play.results() == {"c1": "sent to bob", "c2": second}
    assert play.agent.desk.did == {"mail bob": 1}


@pytest.mark.parametrize(("name", "asynchronous"), in_turn(FAMILIES, [False, True]))
def test_a_goto_beside_a_live_pause(name: str, *, asynchronous: bool):
    """LangGraph runs it beside what waits: the pause lives on, and its answer arrives."""
    play = Play(name, PAUSES, asynchronous=asynchronous)
    play.run("pay bob")
    entry = {"schemas": "agent", "in_a_tool": "model"}.get(name, "clerk")
    play.run(Command(goto=entry))
    assert play.agent.interrupts
    play.run(Command(resume="yes"))
    assert play.results() == {"c1": "sent to bob", "c2": "wired 5: yes"}
    play.run("hello")
    assert play.results() == {"c1": "sent to bob", "c2": "wired 5: yes"}
    assert play.agent.desk.did["mail bob"] == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_what_comes_out_is_as_before(name: str):
    """A healthy run of the patched graph gives what the bare one gives, under the same keys."""
    plays = [
        Play(name, AIMessage("hi", id="hi"), wrap=wrap) for wrap in (with_patching, lambda g: g)
    ]
    hello = {"messages": [HumanMessage("hello", id="h1")]}
    assert plays[0].run(hello) == plays[1].run(hello)
    patched, bare = (play.agent.graph for play in plays)
    assert bare.get_output_jsonschema() == patched.get_output_jsonschema()
    assert bare.get_input_jsonschema() == patched.get_input_jsonschema()


def test_a_child_that_a_node_calls_must_be_patched_itself():
    """The parent cannot see it, and patching the node that calls it is not enough."""
    play = Play("called", PAUSES, wrap=lambda graph: graph)
    play.agent.graph = with_patching(play.agent.graph, model_node="clerk")
    play.run("pay bob")
    with pytest.raises(RefusedError, match="c1"):
        play.run("never mind")
