"""Which nodes are covered, and how: frontends, judges, nodes that run their own tools, the log."""

from __future__ import annotations

import logging
import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from kit import BARE, Agent, above, calls, lines, model_node, patched
from langgraph_patch import is_placeholder
from langgraph_patch.graph.wrapping import replace_tool_node, tool_node_in
from langgraph_patch.repairing import writing

TWO = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
CHART = calls(("show_chart", {}))
GO = HumanMessage("go", id="h1")


def frontend(model: Any, tools: Any, saver: Any, *, has_tools: bool = True) -> Any:
    """A graph whose frontend runs `show_chart`: the chat node has nothing to say meanwhile."""

    def chat(state: Any) -> Any:
        waits = getattr(state["messages"][-1], "tool_calls", None)
        return None if waits else {"messages": [model.invoke(state["messages"])]}

    def route(state: Any) -> str:
        made = getattr(state["messages"][-1], "tool_calls", [])
        return "tools" if any(call["name"] == "mail" for call in made) else END

    builder = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat")
    if has_tools:
        builder.add_node("tools", ToolNode(tools)).add_edge("tools", "chat")
        builder.add_conditional_edges("chat", route, ["tools", END])
    return builder.compile(checkpointer=saver)


def test_a_call_that_waits_for_the_frontend():
    """A5, A6: the client syncs other state, then sends the result: all is as in the bare graph."""
    found = []
    for wrap in (lambda it: it, patched):
        it = wrap(Agent(frontend, CHART))
        it.say("chart please")
        it.run({"messages": []})
        waiting = [message.type for message in it.history]
        it.run({"messages": [ToolMessage("shown", tool_call_id="c1")]})
        steps = len(list(it.graph.checkpointer.list(it.config)))
        found.append((waiting, lines(it.history), steps))
    assert found[1] == found[0]
    assert found[0][0] == ["human", "ai"]
    assert found[0][1] == ["human: chart please", "ai c1: ", "tool c1: shown", "ai: done"]


@pytest.mark.parametrize(
    ("messages", "options", "is_answered"),
    [
        ([CHART], {}, False),
        ([HumanMessage("please"), CHART], {}, False),
        ([CHART, HumanMessage("never mind")], {}, True),
        ([CHART], {"model_node": "chat"}, True),
        ([calls(("show_chart", {}), ("mail", {"to": "b"}))], {}, True),
        ([TWO], {"has_tools": False}, False),
        ([CHART], {"inside": True}, False),
    ],
)
def test_when_a_call_at_the_end_is_left_open(messages: Any, options: Any, *, is_answered: bool):
    """It is, unless a message follows, the node is named, or its model is asked and refuses."""
    options = {"recover": False, **options}
    has_tools, inside = options.pop("has_tools", True), options.pop("inside", False)

    def build(model: Any, tools: Any, saver: Any) -> Any:
        graph = frontend(model, tools, None if inside else saver, has_tools=has_tools)
        return above(graph).compile(checkpointer=saver) if inside else graph

    it = Agent(build)
    it.graph.update_state(it.config, {"messages": [GO, *messages]}, as_node=START)
    patched(it, **options).run(None)
    assert bool(it.results) is is_answered


class Dicts(TypedDict):
    """Messages in the format of a provider."""

    messages: Annotated[list[Any], operator.add]


def test_a_history_of_dicts_stays_one(caplog: pytest.LogCaptureFixture):
    """It is left alone, in a damaged turn and in later ones; one WARNING says why."""
    writing.warn_of_dicts.cache_clear()
    seen: list[list[str]] = []

    def node(state: Any) -> Any:
        seen.append([message["role"] for message in state["messages"]])
        return {"messages": [{"role": "assistant", "content": "fine"}]}

    it = Agent(lambda _, __, saver: above(node, state=Dicts).compile(saver))
    it = patched(it, model_node="node1")
    call = {"id": "c1", "type": "function", "function": {"name": "wire", "arguments": "{}"}}
    damage = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    for text in ("never mind", "hello"):
        it.run({"messages": [*damage, {"role": "user", "content": text}]})
        damage = []
    assert seen == [["assistant", "user"], ["assistant", "user", "assistant", "user"]]
    assert all(isinstance(message, dict) for message in it.history)
    [warning] = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert "the state key 'messages' holds plain dicts" in warning
    assert "add_messages" in warning


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


def judged(model: Any, _: Any, saver: Any) -> Any:
    """A judge looks at the calls and answers them itself."""
    builder = StateGraph(MessagesState).add_node("agent", model_node(model))
    builder.add_node("judge", lambda _: None).add_edge(START, "agent").add_edge("judge", "agent")
    ends = {"tools": "judge", END: END}
    return builder.add_conditional_edges("agent", tools_condition, ends).compile(saver)


OTHERS = "open calls at the end of the history stay open before them; model_node=... names a model"
ONE_TASK = "one task for all calls of a message; record=True gives each its own"
LISTED = {
    "judged": f"other nodes 'agent', 'judge' ({OTHERS})",
    "hand_built": f"other nodes 'agent' ({OTHERS}); tool nodes 'tools' ({ONE_TASK})",
    "create_agent": "model nodes 'model'; tool nodes 'tools'",
    "react_v2": "model nodes 'agent'; tool nodes 'tools'",
    "react_v1": f"model nodes 'agent'; tool nodes 'tools' ({ONE_TASK})",
    "notes": f"other nodes 'node1' ({OTHERS}); not patched: the histories 'notes', 'drafts', "
    "'summarized' (messages_key=[...] names them)",
}


class Notes(MessagesState):
    """A state with other histories: one has a reducer, the other the types of messages."""

    notes: Annotated[list, add_messages]
    drafts: list[AnyMessage]
    titles: list[str]
    kept: list


class Summarized(TypedDict):
    """The input of a node, beside the state."""

    summarized: list[AnyMessage]


class Kept(TypedDict):
    """The input of a node that reads no patched history."""

    kept: list


def with_notes(model: Any, _: Any, saver: Any) -> Any:
    """A graph with two other histories, and one that only a node reads."""
    graph = above(model_node(model), state=Notes)
    graph.add_node("other", lambda _: None, input_schema=Summarized)
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("kind", LISTED)
def test_the_log_lists_what_is_covered(kind: str, caplog: Any):
    """One INFO line names the model nodes, those that keep calls at the end, and the rest."""
    caplog.set_level(logging.DEBUG, logger="langgraph_patch")
    patched(Agent({**BARE, "judged": judged, "notes": with_notes}[kind]))
    [record] = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == f"with_patching: {LISTED[kind]}"


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


def test_a_tool_node_in_a_wrapper():
    """It is found in what was made of it, and another one takes its place there."""
    node, other = ToolNode([]), ToolNode([])
    wrapped = node.with_retry().with_config(tags=["a"])
    assert tool_node_in(wrapped) is node
    copied = replace_tool_node(wrapped, lambda _: other)
    assert (tool_node_in(copied), type(copied)) == (other, type(wrapped))
    assert tool_node_in(node | RunnableLambda(print)) is None
