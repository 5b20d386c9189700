"""An approval between model and tools reads the last message: nothing is written behind it.

A message may have a whole call beside one that is no JSON, or a note of a node behind it. Who
found a placeholder there would ask nobody, and the whole call would run.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import after_model
from langchain_core.messages import (
    AIMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from kit import BARE, StrictModel, streamed
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware

CONFIG: Any = {"configurable": {"thread_id": "1"}}


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
        tool_calls=[ToolCall(name="pays", args={"amount": 5}, id="c1")],
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
