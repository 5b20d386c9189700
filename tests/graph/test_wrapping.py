"""Which nodes are covered, and how: frontends, judges, nodes that run their own tools, the log."""

from __future__ import annotations

from functools import wraps
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from kit import BARE, Agent, StrictModel, above, calls, lines, patched
from langgraph_patch import is_placeholder
from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch._langgraph.nodes import ends_calls


@pytest.mark.parametrize(("inside", "asynchronous"), [(False, True), (True, False)])
def test_a_node_that_runs_its_own_tools(*, inside: bool, asynchronous: bool):
    """The calls at the end are left to it, through a pause too; behind a message they are not."""
    ran: list[str] = []

    def build(model: Any, _: Any, saver: Any) -> Any:
        def agent(state: Any) -> Any:
            made = getattr(state["messages"][-1], "tool_calls", [])
            results = [ToolMessage(interrupt("sure?"), tool_call_id=call["id"]) for call in made]
            ran.extend(call["id"] for call in made)
            return {"messages": results or [model.invoke(state["messages"])]}

        def onward(state: Any) -> str:
            last = state["messages"][-1]
            return "agent" if isinstance(last, ToolMessage) or last.tool_calls else END

        builder = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
        builder.add_conditional_edges("agent", onward, ["agent", END])
        builder = above(builder.compile()) if inside else builder
        return builder.compile(checkpointer=saver)

    made = calls(("wire", {})), AIMessage("ok"), calls(("wire", {}), first=2)
    it = patched(Agent(build, *made, asynchronous=asynchronous))
    it.say("go")
    it.run(Command(resume="yes"))
    assert lines(it.history) == ["human: go", "ai c1: ", "tool c1: yes", "ai: ok"]
    it.say("again")
    it.say("never mind")
    assert ran == ["c1"]
    assert [is_placeholder(m) for m in it.history].count(True) == 1


def test_a_node_that_ends_calls_itself():
    """It is known as the function that its library has, not by a name that others may have."""
    graph = BARE["react_v2"](StrictModel("hi"), [], None)
    model = Graph(graph.builder).runnables["agent"]

    @wraps(model.func)
    def call_model(state: Any) -> Any:
        return state

    others = Graph(BARE["create_agent"](StrictModel("hi"), [], None).builder).runnables["model"]
    assert ends_calls(model)
    assert not any(map(ends_calls, (RunnableLambda(call_model), others, model.func)))


class Notes(MessagesState):
    """A state with other histories: one has a reducer, the other the types of messages."""

    notes: Annotated[list, add_messages]
    drafts: list[AnyMessage]
    titles: list[str]
    kept: list


class Kept(TypedDict):
    """The input of a node that reads no patched history."""

    kept: list


def asks_with(key: str, model: Any, saver: Any, *, inside: bool = False) -> Any:
    """A graph whose model is asked with the history, or with a copy under another key."""

    def copied(state: Any) -> Any:
        return {key: state["messages"]} if key != "messages" else None

    def asked(state: Any) -> Any:
        return {key: [model.invoke([SystemMessage("Be brief."), *state[key]])]}

    graph = StateGraph(Notes).add_node("copy", copied).add_edge(START, "copy")
    graph.add_node("ask", asked, input_schema=Kept if key == "kept" else Notes)
    graph.add_edge("copy", "ask")
    return (above(graph.compile(), state=Notes) if inside else graph).compile(checkpointer=saver)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("key", "options", "warned"),
    [
        ("notes", {}, 1),
        ("kept", {}, 1),
        ("messages", {}, 0),
        ("notes", {"messages_key": ["messages", "notes"]}, 0),
    ],
)
def test_a_model_that_is_asked_with_a_history_that_nobody_patches(
    key: str, options: Any, warned: int, *, asynchronous: bool, inside: bool, caplog: Any
):
    """G4: one WARNING names the node and the key; none if the node asks with the patched one."""
    it = Agent(
        lambda model, _, saver: asks_with(key, model, saver, inside=inside),
        asynchronous=asynchronous,
    )
    it = patched(it, **options)
    it.say("hello")
    it.say("again")
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == warned
    assert all(f"'ask' calls a model with the history {key!r}, which" in w for w in warnings)
