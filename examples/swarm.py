"""A swarm: LangGraph drops the whole turn of an agent that waits; it is put back.

It needs `pip install langgraph-swarm`.
"""

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_swarm import create_swarm

from langgraph_patch import with_patching
from scripted import Script, send_email, wire_money

tools = [send_email, wire_money]
banker = create_agent(Script("send_email", "wire_money"), tools, name="banker")
swarm = create_swarm([banker], default_active_agent="banker")
graph = with_patching(swarm.compile(checkpointer=InMemorySaver()))

thread = {"configurable": {"thread_id": "1"}}
graph.invoke({"messages": [("human", "Write to Bob and wire him 100.")]}, thread)
state = graph.invoke({"messages": [("human", "Never mind the money.")]}, thread)
for message in state["messages"]:
    print(f"[{message.type}] {message.text}")
