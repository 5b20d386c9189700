"""Savers that keep one checkpoint, and states of differences: no result of another call."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from langgraph_patch import with_patching
from support.agents import human, thread
from support.strict import StrictModel, ai
from support.versions import newer

DeltaChannel = newer("langgraph.channels", "DeltaChannel")
_messages_delta_reducer = newer("langgraph.graph.message", "_messages_delta_reducer")  # not public
REDUCERS = {"plain": add_messages, "delta": DeltaChannel(_messages_delta_reducer)}


class Shallow(InMemorySaver):
    """Keeps the newest checkpoint of each namespace, as shallow PostgreSQL and MySQL savers do."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Store a checkpoint in the place of the one before."""
        own = config["configurable"]
        self.storage[own["thread_id"]][own.get("checkpoint_ns", "")].clear()
        stored = super().put(config, checkpoint, metadata, new_versions)
        stored["configurable"].pop("parent", None)
        return stored


@tool
def mail(to: str) -> str:
    """Mail."""
    return f"sent to {to}"


@tool
def wire(to: str) -> str:
    """Wire, if a human agrees."""
    return f"wired to {to}: {interrupt('?')}"


def send_each(state: Any) -> Any:
    """A task for each call."""
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or "__end__"


def agent(saver: Any, reducer: Any, *script: AIMessage) -> tuple[Any, StrictModel]:
    """A hand-built agent, and its model."""
    state: Any = TypedDict("State", {"messages": Annotated[list[AnyMessage], reducer]})
    model = StrictModel(script=[*script])
    builder = StateGraph(state)
    builder.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
    builder.add_node("tools", ToolNode([mail, wire]))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", send_each, ["tools", "__end__"])
    return with_patching(builder.compile(checkpointer=saver)), model


def results(messages: Any) -> list[str]:
    """The texts of the results, in order."""
    return [m.text for m in messages if isinstance(m, ToolMessage)]


def test_a_shallow_saver_keeps_the_thread_alive():
    """What the pause recorded is gone: the calls are unknown, and the model answers."""
    made = ai(("mail", {"to": "bob"}, "c1"), ("wire", {"to": "eve"}, "c2"), id="a1")
    graph, model = agent(Shallow(), add_messages, made, AIMessage("fine"), AIMessage("ok"))
    for text in ("go", "never mind", "and now?"):
        graph.invoke({"messages": [human(text)]}, thread())
    assert results(model.seen[-1]) == [
        "No result of tool call mail with id c1 is known; it may or may not have run.",
        "No result of tool call wire with id c2 is known; it may or may not have run.",
    ]


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=list(REDUCERS))
def test_an_id_that_is_used_again(reducer: Any, durability: Any):
    """`call_0` finished in the first turn and waits in the second; then a replay of that turn."""
    script = [
        ai(("mail", {"to": "bob"}, "call_0"), id="a1"),
        AIMessage("done", id="a2"),
        ai(("wire", {"to": "eve"}, "call_0"), ("mail", {"to": "mia"}, "call_1"), id="a3"),
        *[AIMessage("fine") for _ in range(2)],
    ]
    graph, model = agent(InMemorySaver(), reducer, *script)
    for text in ("mail bob", "wire eve"):
        graph.invoke({"messages": [human(text)]}, thread(), durability=durability)
    paused = graph.get_state(thread()).config
    for config in (thread(), paused):
        graph.invoke({"messages": [human("never mind")]}, config, durability=durability)
        first, waits, mia = results(model.seen[-1])
        assert (first, mia) == ("sent to bob", "sent to mia")
        assert "was waiting for human input" in waits


@pytest.mark.parametrize("durability", ["exit", "sync"])
@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
def test_an_id_that_is_used_again_after_a_repair(reducer: Any, durability: Any):
    """A repair gives `call_0` a new id; the next `call_0` of the same run keeps its result.

    With durability "exit" the repair and the new message are in the writes of one checkpoint.
    """
    script = [
        ai(("mail", {"to": "bob"}, "call_0"), id="a1"),
        AIMessage("done", id="a2"),
        ai(("wire", {"to": "eve"}, "call_0"), id="a3"),
        ai(("mail", {"to": "mia"}, "call_0"), ("wire", {"to": "joe"}, "call_1"), id="a4"),
        AIMessage("fine"),
    ]
    graph, model = agent(InMemorySaver(), reducer, *script)
    for text in ("mail bob", "wire eve", "mail mia, wire joe", "never mind"):
        graph.invoke({"messages": [human(text)]}, thread(), durability=durability)
    bob, eve, mia, joe = results(model.seen[-1])
    assert (bob, mia) == ("sent to bob", "sent to mia")
    assert "was waiting for human input" in eve
    assert "was waiting for human input" in joe


@pytest.mark.parametrize("durability", ["exit", "sync"])
@pytest.mark.parametrize("reducer", REDUCERS.values(), ids=REDUCERS)
@pytest.mark.needs("delta-exit", langgraph="1.2.16")  # it adds the result itself
def test_an_id_that_is_used_in_each_message(reducer: Any, durability: Any):
    """All calls of a run have one id: a result beside a pause is that of the last message."""
    script = [
        ai(("mail", {"to": "bob"}, "call_0"), ("wire", {}, "call_0"), id="a1"),
        ai(("mail", {"to": "mia"}, "call_0"), ("wire", {"to": "joe"}, "call_0"), id="a2"),
        AIMessage("fine"),
    ]
    graph, model = agent(InMemorySaver(), reducer, *script)
    for text in ("mail bob and mia", "never mind"):
        graph.invoke({"messages": [human(text)]}, thread(), durability=durability)
    found = results(model.seen[-1])
    assert len(found) == 4
    assert found[2] == "sent to mia"
    assert "was waiting for human input" in found[3]
