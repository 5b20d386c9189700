"""A thread that is dead already: find it in its database, and repair it without its graph."""

from langchain.agents import create_agent
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.threads import repair_thread, scan_threads
from scripted import Script, send_email, wire_money

thread = {"configurable": {"thread_id": "1"}}
with SqliteSaver.from_conn_string("threads.sqlite") as saver:
    model = Script("send_email", "wire_money")
    bare = create_agent(model, [send_email, wire_money], checkpointer=saver)
    bare.invoke({"messages": [("human", "Write to Bob and wire him 100.")]}, thread)
    try:
        bare.invoke({"messages": [("human", "Never mind the money.")]}, thread)
    except ValueError as error:
        print(error)

    for report in scan_threads(saver):
        print(report)
    print(repair_thread(saver, thread, min_age=0))  # it died just now; dry_run=True only shows
    print(bare.invoke({"messages": [("human", "Are you there?")]}, thread)["messages"][-1].text)
