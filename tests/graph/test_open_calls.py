"""What stands between a model and its tools finds the calls open, as in the bare graph.

An approval reads the last message, so nothing is written behind it.

A message may have a whole call beside one that is no JSON, or a note of a node behind it. Who
found a placeholder there would ask nobody, and the whole call would run.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, after_model, hook_config
from langchain_core.messages import (
    AIMessage,
    InvalidToolCall,
    RemoveMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from kit import BARE, KINDS, StrictModel, calls, streamed, tool_of
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.refused import RefusedError, RefusingModel

CONFIG: Any = {"configurable": {"thread_id": "1"}}
PAY = ToolCall(name="pays", args={"amount": 5}, id="c1", type="tool_call")


def pays(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def asks(state: Any, _: Any = None) -> dict[str, Any]:
    """Ask a human about the calls of the last message."""
    if getattr(state["messages"][-1], "tool_calls", None) and interrupt("pay?") != "yes":
        raise PermissionError
    return {}


def asks_of_open_calls(state: Any) -> dict[str, Any]:
    """Ask a human about the calls that have no result."""
    answered = {m.tool_call_id for m in state["messages"] if isinstance(m, ToolMessage)}
    speaker = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage))
    if (
        any(call["id"] not in answered for call in speaker.tool_calls)
        and interrupt("pay?") != "yes"
    ):
        raise PermissionError
    return {}


def with_nodes(model: Any, **nodes: Any) -> Any:
    """A loop with nodes between the model and the tools."""
    builder = StateGraph(MessagesState)
    builder.add_node("llm", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([pays]))
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in pairwise([*nodes, "tools", "llm"]):
        builder.add_edge(before, after)
    first = next(iter(nodes))
    ends = lambda state: first if state["messages"][-1].tool_calls else END
    builder.add_edge(START, "llm").add_conditional_edges("llm", ends, [first, END])
    return builder.compile(checkpointer=InMemorySaver())


APPROVALS: dict[str, Any] = {
    "post_model_hook": lambda model: BARE["react_v2"](
        model, [pays], InMemorySaver(), post_model_hook=asks
    ),
    "after_model": lambda model: create_agent(
        model, [pays], middleware=[after_model(asks)], checkpointer=InMemorySaver()
    ),
    "middleware": lambda model: create_agent(
        model,
        [pays],
        middleware=[after_model(asks), PatchToolCallsMiddleware()],
        checkpointer=InMemorySaver(),
    ),
    "node": lambda model: with_nodes(model, approval=asks),
    "behind a note": lambda model: with_nodes(
        model,
        note=lambda _: {"messages": [SystemMessage("10 are left")]},
        approval=asks_of_open_calls,
    ),
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("place", APPROVALS)
def test_a_human_is_asked_about_the_call_beside_a_broken_one(place: str, *, is_streamed: bool):
    """Nothing stands behind the message of the model before the human has answered."""
    broken = {"name": "pays", "args": '{"amount": ', "id": "c2", "error": None}
    said: Any = AIMessage(
        "",
        tool_calls=[PAY],
        invalid_tool_calls=[InvalidToolCall(**broken, type="invalid_tool_call")],
    )
    if is_streamed:
        said = streamed(("pays", '{"amount": 5}'), ("pays", '{"amount": '))
    graph = APPROVALS[place](StrictModel(script=[said]))
    graph = graph if place == "middleware" else with_patching(graph)
    mode = ["messages", "values"] if is_streamed else ["values"]
    list(graph.stream({"messages": [("user", "pay")]}, CONFIG, stream_mode=mode))
    assert [each.value for each in graph.get_state(CONFIG).interrupts] == ["pay?"]
    state = graph.invoke(Command(resume="yes"), CONFIG)
    found = {m.tool_call_id: m.text for m in state["messages"] if isinstance(m, ToolMessage)}
    assert found.pop("c1") == "paid 5"
    assert set(found) == {"c2"}
    words = ("malformed", "incomplete", "not a complete")
    assert all(any(word in text for word in words) for text in found.values())
    assert state["messages"][-1].text == "done"


def test_the_model_of_a_prebuilt_agent_reads_placeholders_after_a_refusal():
    """Nothing else is known of an open call at the end: with a response format, too."""
    schema = {"title": "Said", "type": "object", "properties": {"text": {"type": "string"}}}
    agent = create_agent(
        StrictModel(script=[]), [pays], response_format=schema, checkpointer=InMemorySaver()
    )
    graph = with_patching(agent)
    calling = AIMessage("", tool_calls=[PAY])
    graph.update_state(CONFIG, {"messages": [("user", "pay"), calling]}, as_node="tools")
    state = graph.invoke(None, CONFIG)
    assert [m.type for m in state["messages"][:4]] == ["human", "ai", "tool", "ai"]


class Opinion(AgentMiddleware[Any, Any, Any]):
    """Lets the model confirm its own call before the tools run it."""

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Ask once more, then take the opinion out of the history."""
        last, before = state["messages"][-1], state["messages"][-2]
        if last.tool_calls and not isinstance(before, AIMessage):
            return {"jump_to": "model"}
        return {"messages": [RemoveMessage(id=last.id)]} if last.text == "confirm" else None


class Doubt(AgentMiddleware[Any, Any, Any]):
    """A hook of the application with the name of one that ends open calls."""

    name = "PatchToolCallsMiddleware"

    def before_agent(self, state: Any, runtime: Any) -> None:
        """Look at the history."""
        SEEN.append([m.type for m in state["messages"]])


SEEN: list[list[str]] = []


@pytest.mark.parametrize("place", ["with_patching", "middleware"])
def test_a_call_of_a_healthy_run_is_not_ended_by_the_name_of_a_node(place: str):
    """A hook asks the model about its own call, and a hook has the name of deepagents' own."""
    SEEN.clear()
    script = AIMessage("", id="a1", tool_calls=[PAY]), AIMessage("confirm", id="a2"), "done"
    own = [PatchToolCallsMiddleware()] if place == "middleware" else [Doubt()]
    agent = create_agent(
        StrictModel(*script, refuses=lambda _: None),
        [pays],
        middleware=[Opinion(), *own],
        checkpointer=InMemorySaver(),
    )
    graph = agent if place == "middleware" else with_patching(agent)
    state = graph.invoke({"messages": [("user", "pay")]}, CONFIG)
    assert [m.text for m in state["messages"][2:]] == ["paid 5", "done"]
    calling = AIMessage("", tool_calls=[{**PAY, "id": "c2"}])
    graph.update_state(CONFIG, {"messages": [("user", "pay"), calling]}, as_node="model")
    graph.invoke({"messages": []}, CONFIG)
    assert place == "middleware" or SEEN[-1][-2:] == ["human", "ai"]


def mails(to: str) -> str:
    """Send a mail."""
    MAILED.append(to)
    return f"sent to {to}"


MAILED: list[str] = []
WAYS: dict[str, Any] = {
    "goto": (Command(goto="model"), False),
    "after an update": (None, True),
    "an input without a message": ({"messages": []}, False),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["create_agent", "middleware", "recorded"])
def test_a_lenient_model_reads_what_is_recorded_before_it_does_it_again(kind: str, way: str):
    """A model that accepts open calls does again what has no result."""
    MAILED.clear()

    def asks_first(to: str) -> str:
        """Wire, if a human agrees."""
        return f"wired to {to}" if interrupt("wire?") else "no"

    def again(messages: list[Any]) -> Any:
        has_mailed = any("sent to" in m.text for m in messages)
        return "done" if has_mailed else calls(("mails", {"to": "x"}), ("asks_first", {"to": "y"}))

    tools = [tool_of(mails), tool_of(asks_first)]
    graph = KINDS[kind](StrictModel(*[again] * 4, refuses=lambda _: None), tools, InMemorySaver())
    graph.invoke({"messages": [("user", "mail and wire")]}, CONFIG)
    assert (len(graph.get_state(CONFIG).interrupts), MAILED) == (1, ["x"])
    value, is_updated = WAYS[way]
    if is_updated:
        graph.update_state(CONFIG, {"messages": []}, as_node="tools")
    graph.invoke(value, CONFIG)
    assert MAILED == ["x"]


def test_a_refusal_of_another_request_closes_no_calls():
    """The calls were not in it: they are about to run."""
    refusals = iter(["max_tokens is too large"] * 2)  # the request, and the same with other ids
    judge = RefusingModel(rule=lambda _: next(refusals, None))
    model = StrictModel(AIMessage("", tool_calls=[PAY]), "done")
    asks_without_history = lambda _: judge.invoke("Is it safe?") and {}
    graph = with_patching(with_nodes(model, judge=asks_without_history))
    with pytest.raises(RefusedError, match="max_tokens"):
        graph.invoke({"messages": [("user", "pay")]}, CONFIG)
    state = graph.invoke(None, CONFIG)
    assert [m.text for m in state["messages"][2:]] == ["paid 5", "done"]
