"""An agent of `create_agent`: the user writes something else than the answer to its question."""

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import with_patching
from scripted import Script, send_email, wire_money

model = Script("send_email", "wire_money")  # or "openai:gpt-5-mini", or a model of LangChain
agent = create_agent(model, [send_email, wire_money], checkpointer=InMemorySaver())
agent = with_patching(agent)  # invoke, ainvoke, stream, astream as before

thread = {"configurable": {"thread_id": "1"}}
agent.invoke({"messages": [("human", "Write to Bob and wire him 100.")]}, thread)
state = agent.invoke({"messages": [("human", "Never mind the money.")]}, thread)
for message in state["messages"]:
    print(f"[{message.type}] {message.text}")
