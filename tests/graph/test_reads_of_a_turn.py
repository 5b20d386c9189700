"""How often a turn reads the history."""

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt

from langgraph_patch import with_patching
from support.agents import human, thread
from support.strict import StrictModel, ai


@tool
def wire() -> str:
    """Wire, if a human agrees."""
    return f"wired: {interrupt('?')}"


def _send_each(state):
    calls = state["messages"][-1].tool_calls
    return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or "__end__"


def test_a_turn_that_repairs_reads_the_history_twice(reads):
    """At START and in the repair node. Its placeholder asks for a search in the next turn only."""
    model = StrictModel(script=[ai(("wire", {}, "c1")), AIMessage("fine")])
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([wire]))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", _send_each, ["tools", "__end__"])
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()))
    graph.invoke({"messages": [human("go")]}, thread(), durability="sync")
    assert reads == {"is_valid": 2}
    reads.clear()
    graph.invoke({"messages": [human("never mind")]}, thread(), durability="sync")
    assert reads == {"is_valid": 3, "read_history": 2}
