"""A call that is about to run stays alive, whatever refuses the model of a node before its tools.

Such a node is a judge, a memory, a summary. It asks a model of its own, which is refused because of
something old, or because it does not accept an open call. The bare graph ends there; a patched one
asks again, and then does what the bare graph does where nothing is refused.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from kit import StrictModel, calls, lines
from langgraph_patch import with_patching
from langgraph_patch.history.patch import patch_messages
from langgraph_patch.repairing.writing import NodeOutput
from support.refused import RefusedError, RefusingModel

THREAD: Any = {"configurable": {"thread_id": "1"}}


def pays(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def strict(messages: list[BaseMessage]) -> str | None:
    """Why a strict provider refuses a history whose last call has no result."""
    ids = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    is_open = any(c["id"] not in ids for m in messages for c in getattr(m, "tool_calls", []))
    return "`tool_use` ids were found without `tool_result` blocks" if is_open else None


class State(MessagesState):
    """The history, and what a judge says."""

    verdict: str


def with_gate(gate: Any, model: Any) -> StateGraph[Any]:
    """A graph with the gate between the model and its tools."""
    builder = StateGraph(State).add_node("gate", gate).add_node("tools", ToolNode([pays]))
    builder.add_node("llm", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "llm").add_edge("tools", "llm")
    called = lambda state: "gate" if state["messages"][-1].tool_calls else END
    builder.add_conditional_edges("llm", called, ["gate", END])
    safe = lambda state: END if state["verdict"] == "no" else "tools"
    builder.add_conditional_edges("gate", safe, ["tools", END])
    return builder


def test_a_judge_that_is_not_asked_has_not_judged():
    """A gate that skips its judge where it finds no call must not find a placeholder."""
    judge = RefusingModel(rule=strict, script=[AIMessage("safe")])
    model = StrictModel(script=[calls(("pays", {"amount": 5}))])

    def gate(state: Any) -> Any:
        if not getattr(state["messages"][-1], "tool_calls", None):
            return {"verdict": "nothing to judge"}
        return {"verdict": judge.invoke(state["messages"]).text}

    graph = with_patching(with_gate(gate, model).compile(checkpointer=InMemorySaver()))
    with pytest.raises(RefusedError, match="tool_use") as caught:
        graph.invoke({"messages": [HumanMessage("pay 5")]}, THREAD)
    assert any("asked no model" in each for each in caught.value.__notes__)
    assert lines(graph.get_state(THREAD).values["messages"])[1:] == ["ai c1: "]


def test_an_error_behind_closed_calls_is_the_refusal():
    """A gate that finds a result where it expects none fails: that is not the user's error."""
    judge = RefusingModel(rule=strict, script=[AIMessage("safe")])
    model = StrictModel(script=[calls(("pays", {"amount": 5}))])

    def gate(state: Any) -> Any:
        verdict = judge.invoke([*state["messages"], HumanMessage("safe?")]).text
        assert state["messages"][-1].type == "ai", "a tool has run already"
        return {"verdict": verdict}

    graph = with_patching(with_gate(gate, model).compile(checkpointer=InMemorySaver()))
    with pytest.raises(RefusedError, match="tool_use") as caught:
        graph.invoke({"messages": [HumanMessage("pay 5")]}, THREAD)
    assert any("a tool has run already" in each for each in caught.value.__notes__)
    assert lines(graph.get_state(THREAD).values["messages"])[1:] == ["ai c1: "]


def test_an_error_behind_an_unusable_message_leaves_the_turn_as_it_is():
    """The bare node has answered with that message: a second run must not make an error of it."""
    cut = {
        "name": "pays",
        "args": '{"amount',
        "id": "c1",
        "error": None,
        "type": "invalid_tool_call",
    }
    unusable = AIMessage("", invalid_tool_calls=[cut])  # type: ignore[list-item]
    model = StrictModel(script=[unusable, AIMessage("fine")])

    def llm(state: Any) -> Any:
        if len(state["messages"]) > 1:
            raise IndexError
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState).add_node("llm", llm).add_edge(START, "llm")
    state = with_patching(builder.compile()).invoke({"messages": [HumanMessage("pay")]})
    assert [m.type for m in state["messages"]] == ["human", "ai"]


def test_recording_that_is_switched_on_while_a_call_waits():
    """What an earlier version has led to runs once: not beside the routers of this version."""
    paid: list[int] = []

    def asks(amount: int) -> str:
        """Ask."""
        return f"{interrupt('ok?')} {amount}"

    def looks(amount: int) -> str:
        """Look."""
        paid.append(amount)
        return "looked"

    def graph(model: Any, saver: Any) -> Any:
        sends = lambda state: [Send("tools", [c]) for c in state["messages"][-1].tool_calls] or END
        builder = StateGraph(MessagesState).add_node("tools", ToolNode([asks, looks]))
        builder.add_node("llm", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_edge(START, "llm").add_conditional_edges("llm", sends, ["tools", END])
        builder.add_conditional_edges("tools", lambda _: "llm", ["llm"])
        return builder.compile(checkpointer=saver)

    saver = InMemorySaver()
    model = StrictModel(script=[calls(("looks", {"amount": 1}), ("asks", {"amount": 2}))])
    graph(model, saver).invoke({"messages": [HumanMessage("go")]}, THREAD)
    recorded = with_patching(graph(model, saver), record=True)
    state = recorded.invoke(Command(resume="yes"), THREAD)
    assert (paid, len(model.seen)) == ([1], 2)
    assert [m.text for m in state["messages"][2:]] == ["looked", "yes 2", "done"]


# --- what a node gets, and what it returns ------------------------------------------------------


def repaired() -> tuple[list[BaseMessage], list[BaseMessage]]:
    """A history with a call at its end, and the same with a placeholder."""
    history = [HumanMessage("pay", id="h"), calls(("pays", {"amount": 5}), id="a")]
    return history, patch_messages(history).messages


@pytest.mark.parametrize(
    "form",
    [
        lambda history: {"messages": history},
        lambda history: {"messages": history[-1:]},
        lambda history: Command(update={"messages": history}, goto="next"),
        lambda history: Command(update=[("messages", history)]),
        lambda history: Command(goto=Send("next", {"messages": history})),
        lambda history: Command(goto=[Send("next", {"messages": history}), "other"]),
        lambda history: [Command(update={"messages": history}), Command(goto="next")],
        lambda history: {"messages": [m.model_copy() for m in history]},
        lambda history: {"copy": history},
        lambda history: {"last": history[-1]},
    ],
)
def test_a_placeholder_that_is_not_written_is_not_returned(form: Any):
    """In whatever form a node returns what it has read."""
    history, messages = repaired()
    output = NodeOutput(form(messages)).with_stored({"messages": messages}, {"messages": history})
    assert "may or may not have run" in repr(form(messages))
    assert "may or may not have run" not in repr(output)
    untouched = form(history)
    unchanged = NodeOutput(untouched).with_stored({"messages": messages}, {"messages": history})
    assert unchanged is untouched
