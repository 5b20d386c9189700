"""An agent in a process that is killed: the child script of `test_kills.py`, and its graphs.

Usage: kill_agent.py FOLDER KIND sync|async DURABILITY batch|four
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import interrupt

from support.agents import one_send_each
from support.strict import StrictModel, ai

CONFIG: Any = {"configurable": {"thread_id": "1"}}
BATCH = [("work", {"number": n}, f"c{n}") for n in range(6)]
FOUR = [("work", {"number": 0}, "c0"), ("wire", {}, "c1"), ("boom", {}, "c2"), ("hang", {}, "c3")]


class Tools:
    """Tools that leave a line on the disk when they are done, as a sent mail would."""

    def __init__(self, folder: Path, pace: float) -> None:
        self.folder = folder
        self.pace = pace

    def note(self, line: str) -> None:
        """Append the line for good."""
        with (self.folder / "log").open("a") as log:
            log.write(f"{line}\n")
            log.flush()
            os.fsync(log.fileno())

    def work(self, number: int) -> str:
        """Take a while."""
        if number == 0:
            self.note("begun")
        time.sleep(self.pace * number)
        self.note(f"c{number}")
        return f"did {number}"

    def wire(self) -> str:
        """Wait for a human."""
        return str(interrupt("wire?"))

    def boom(self) -> str:
        """Raise when the others have ended."""
        time.sleep(0.3)
        self.note("raises")
        raise RuntimeError("kaput")

    def hang(self) -> str:
        """Be at work when the process is killed."""
        time.sleep(20)
        return "never"

    def all(self) -> list[BaseTool]:
        """As the agents take them."""
        functions = (self.work, self.wire, self.boom, self.hang)
        return [StructuredTool.from_function(f, name=f.__name__) for f in functions]


def model_of(calls: Sequence[Any]) -> StrictModel:
    """A model that calls the tools after the message "go", and answers "fine" otherwise."""

    def say(messages: Sequence[BaseMessage]) -> AIMessage:
        goes = isinstance(messages[-1], HumanMessage) and messages[-1].text == "go"
        return ai(*calls, id="a1") if goes else AIMessage("fine")

    return StrictModel(script=[say] * 10)


def hand_built(model: StrictModel, tools: Any, *, checkpointer: Any) -> Any:
    """A hand-built agent with a `Send` for each call."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", one_send_each, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=checkpointer)


def react(model: StrictModel, tools: Any, *, checkpointer: Any) -> Any:
    """`create_react_agent` v2, without its warning that it has moved."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        return create_react_agent(model, tools, checkpointer=checkpointer)


KINDS = {"hand_built": hand_built, "react_v2": react, "create_agent": create_agent}


async def arun(folder: Path, build: Any, calls: Sequence[Any], durability: Any) -> None:
    """Run in an event loop."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "db")) as saver:
        graph = build(model_of(calls), Tools(folder, 0.05).all(), checkpointer=saver)
        await graph.ainvoke({"messages": [HumanMessage("go")]}, CONFIG, durability=durability)


def run(folder: Path, build: Any, calls: Sequence[Any], durability: Any) -> None:
    """Run in threads."""
    with SqliteSaver.from_conn_string(str(folder / "db")) as saver:
        graph = build(model_of(calls), Tools(folder, 0.05).all(), checkpointer=saver)
        graph.invoke({"messages": [HumanMessage("go")]}, CONFIG, durability=durability)


if __name__ == "__main__":
    place, kind, mode, durable, batch = sys.argv[1:]
    asked = Path(place), KINDS[kind], BATCH if batch == "batch" else FOUR, durable
    asyncio.run(arun(*asked)) if mode == "async" else run(*asked)
