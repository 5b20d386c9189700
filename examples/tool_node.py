"""A graph built by hand: `record=True` keeps the result of the mail while the other call waits."""

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_patch import with_patching
from scripted import Script, send_email, wire_money

model = Script("send_email", "wire_money")
builder = StateGraph(MessagesState)
builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
builder.add_node("tools", ToolNode([send_email, wire_money]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = with_patching(builder.compile(checkpointer=InMemorySaver()), record=True)

thread = {"configurable": {"thread_id": "1"}}
graph.invoke({"messages": [("human", "Write to Bob and wire him 100.")]}, thread)
state = graph.invoke({"messages": [("human", "Never mind the money.")]}, thread)
for message in state["messages"]:
    print(f"[{message.type}] {message.text}")
