"""A child process for the kill -9 tests: a batch of recorded tools over a SQLite file.

Usage: kill_recording.py PATH sync|async DURABILITY [resume]
"""

import asyncio
import os
import sys
import time

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls

CONFIG = {"configurable": {"thread_id": "1"}}


@tool
def work(number: int) -> str:
    """Leave a line on the disk when the work is done, as a sent mail would."""
    path, *_, last = sys.argv[1:]
    if last != "resume":
        time.sleep(0.04 * number)
    with open(f"{path}.log", "a") as log:  # noqa: PTH123 append and sync
        log.write(f"c{number}\n")
        log.flush()
        os.fsync(log.fileno())
    return f"did {number}"


def build(saver):
    """Build a graph with a tools node that runs eight calls."""
    calls = [{"name": "work", "args": {"number": i}, "id": f"c{i}"} for i in range(8)]
    node = ToolNode([work], wrap_tool_call=record_tool_calls, awrap_tool_call=arecord_tool_calls)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda _: {"messages": [AIMessage("", id="a", tool_calls=calls)]})
    builder.add_node("begin", begin)
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "begin")
    builder.add_edge("begin", "tools")
    return builder.compile(checkpointer=saver)


def begin(_state):
    """Tell the parent that the tools come next."""
    os.write(1, b"begins\n")
    return {}


async def run_in_loop(path, value, durability):
    """Run in an event loop."""
    async with AsyncSqliteSaver.from_conn_string(f"{path}.db") as saver:
        await build(saver).ainvoke(value, CONFIG, durability=durability)


def run_in_threads(path, value, durability):
    """Run in threads."""
    with SqliteSaver.from_conn_string(f"{path}.db") as saver:
        build(saver).invoke(value, CONFIG, durability=durability)


if __name__ == "__main__":
    path, mode, durability, *rest = sys.argv[1:]
    value = None if rest else {"messages": [("user", "go")]}
    if mode == "async":
        asyncio.run(run_in_loop(path, value, durability))
    else:
        run_in_threads(path, value, durability)
