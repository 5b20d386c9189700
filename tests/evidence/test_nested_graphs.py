"""Whose results are listed as those inside a call."""

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

from langgraph_patch._sansio import run_sync
from support.evidence_agents import search
from support.strict import ai


@pytest.mark.parametrize(("city", "listed"), [("Rome", 1), ("Oslo", 0)])
def test_results_inside_a_call_come_from_its_own_send(city: str, listed: int):
    """A `Send` with other arguments is that of another call with the id, of a run at once."""

    def inner(_: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [ai(("look_up", {}, "i1"), id="inner")]}

    def look_up(_: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [{"role": "tool", "content": "sunny", "tool_call_id": "i1"}]}

    def wait(_: MessagesState) -> None:
        interrupt("sure?")

    below = StateGraph(MessagesState).add_sequence([inner, look_up, wait]).add_edge(START, "inner")
    subagent = below.compile()

    def tools(_: object) -> dict[str, list[AnyMessage]]:
        return {"messages": subagent.invoke({"messages": [HumanMessage("go")]})["messages"][:0]}

    asked = ai(("task", {"city": "Rome"}, "c1"), id="a1")
    sent = {"name": "task", "args": {"city": city}, "id": "c1", "type": "tool_call"}
    builder = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [asked]})
    builder.add_node("tools", tools).add_edge(START, "model")
    builder.add_conditional_edges("model", lambda _: [Send("tools", [sent])], ["tools"])
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [HumanMessage("go")]}, config)
    place = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    found = run_sync(search(graph.checkpointer, place, [(asked, "c1")]))
    (finding,) = found.values()
    assert [text.endswith(": sunny") for text in finding.inner] == [True] * listed
