"""An `@entrypoint` with a loop of recorded tools, for a child process that is killed.

Usage: kill_loop.py FOLDER sync|async
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task

from langgraph_patch import arecover_messages, recorded_tool, recover_messages

CONFIG = {"configurable": {"thread_id": "1"}}
CALLS = [
    {"name": "work", "args": {"number": n}, "id": f"c{n}", "type": "tool_call"} for n in range(4)
]


def build(saver: Any, folder: Path, *, mode: str, hangs: bool) -> Any:
    """The agent. Its tool leaves a line on the disk; the call `c2` hangs after that."""

    @recorded_tool
    @tool
    def work(number: int) -> str:
        """Leave a line on the disk, as a sent mail would."""
        with (folder / "log").open("a") as log:
            log.write(f"c{number}\n")
            log.flush()
            os.fsync(log.fileno())
        if hangs and number == 2:
            time.sleep(60)
        return f"did {number}"

    def answer(history: list[Any]) -> AIMessage:
        is_asked = any(message.type == "ai" for message in history)
        return AIMessage("done", id="a2") if is_asked else AIMessage("", id="a1", tool_calls=CALLS)

    @task
    def model(history: list[Any]) -> AIMessage:
        return answer(history)

    @task
    async def amodel(history: list[Any]) -> AIMessage:
        return answer(history)

    @entrypoint(checkpointer=saver)
    def agent(text: str, *, config: RunnableConfig) -> list[Any]:
        history = [*recover_messages(saver, config, read_input=read), HumanMessage(text)]
        history.append(model(history).result())
        return history + [work.invoke(call) for call in history[-1].tool_calls]

    @entrypoint(checkpointer=saver)
    async def aagent(text: str, *, config: RunnableConfig) -> list[Any]:
        recovered = await arecover_messages(saver, config, read_input=read)
        history = [*recovered, HumanMessage(text)]
        history.append(await amodel(history))
        return history + [await work.ainvoke(call) for call in history[-1].tool_calls]

    return agent if mode == "sync" else aagent


def read(text: str) -> list[Any]:
    """The input of a run as messages."""
    return [HumanMessage(text)]


def run(folder: Path, mode: str, value: Any, *, hangs: bool) -> Any:
    """Run the agent over the SQLite file in the folder."""
    path = str(folder / "db")
    if mode == "sync":
        with SqliteSaver.from_conn_string(path) as saver:
            return build(saver, folder, mode=mode, hangs=hangs).invoke(value, CONFIG)

    async def in_loop() -> Any:
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            return await build(saver, folder, mode=mode, hangs=hangs).ainvoke(value, CONFIG)

    return asyncio.run(in_loop())


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], "go", hangs=True)
