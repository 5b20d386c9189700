"""The application of the tests of a LangGraph Server: a clerk for threads, agents for streams.

The clerk keeps nothing, since one process serves all tests: what the human says decides what it
does. An agent for streams is made anew for each run, so each run has the whole script.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, interrupt

from kit import StrictModel, above, model_node, refuses, streamed
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.streams import weather

# --- threads --------------------------------------------------------------------------------


@tool
async def send_email(to: str) -> str:
    """Finish at once."""
    return f"sent to {to}"


@tool
async def wire_money(amount: int) -> str:
    """Wait for a human."""
    return f"wired: {interrupt(f'wire {amount}?')}"


@tool
async def print_report(pages: int) -> str:
    """Run for longer than any test waits."""
    await asyncio.sleep(3600)
    return f"printed {pages}"


@tool
async def ask_later(seconds: float) -> str:
    """Run for a while, then wait for a human."""
    await asyncio.sleep(seconds)
    return f"answered: {interrupt('well?')}"


@tool
async def boom(x: int) -> str:
    """Fail, when the result of the mail is stored."""
    await asyncio.sleep(0.3)
    raise RuntimeError(f"kaput {x}")


PAID: Counter[str] = Counter()
"""How often `pay` paid, by the id of the thread."""


@tool
async def pay(amount: int, config: RunnableConfig) -> str:
    """Wait for a human, then pay, stream that it is at work, and run for a while."""
    answer, thread = interrupt(f"pay {amount}?"), config["configurable"]["thread_id"]
    if answer == "no":
        return f"declined, paid {PAID[thread]}"
    PAID[thread] += 1
    get_stream_writer()("at work")
    await asyncio.sleep(1)
    return f"paid {PAID[thread]}"


BESIDE = {
    "wire": ("wire_money", {"amount": 3}),
    "report": ("print_report", {"pages": 3}),
    "ask": ("ask_later", {"seconds": 1.0}),
    "boom": ("boom", {"x": 1}),
    "pay": ("pay", {"amount": 3}),
}
"""The call beside the mail, by the word that the human says; the word is its id."""


class Clerk(StrictModel):
    """Calls the tools that the last human message names; otherwise repeats it."""

    def _line(self, messages: list[BaseMessage]) -> AIMessage:
        refuses(messages)
        last = messages[-1]
        if last.type != "human" or last.text not in BESIDE:
            return AIMessage(f"re: {last.text}")
        name, args = BESIDE[last.text]
        mail = {"name": "send_email", "args": {"to": "bob"}, "id": f"mail-{last.text}"}
        return AIMessage("", tool_calls=[mail, {"name": name, "args": args, "id": last.text}])


def _clerk(*middleware: Any) -> Any:
    tools = [send_email, wire_money, print_report, ask_later, boom, pay]
    return create_agent(Clerk(), tools, middleware=middleware)


clerk = _clerk()
nested = above(clerk).compile()
patched = with_patching(_clerk())
patched_parent = with_patching(above(_clerk()).compile())
by_middleware = _clerk(PatchToolCallsMiddleware())
once = with_patching(_clerk(), once=["boom", "wire_money", "pay"])
once_by_middleware = _clerk(PatchToolCallsMiddleware(once=["boom", "wire_money", "pay"]))


class Saver(InMemorySaver):
    """A checkpointer that nobody has read; of threads with a 0 in front it keeps the last write."""

    async def aput_writes(self, config, writes, task_id, task_path=""):
        own = config["configurable"]
        if own["thread_id"].startswith("0000"):
            kept = self.writes[own["thread_id"], own.get("checkpoint_ns", ""), own["checkpoint_id"]]
            for each in [each for each in kept if each[0] == task_id]:
                del kept[each]
        await super().aput_writes(config, writes, task_id, task_path)


saver = Saver()


# --- streams --------------------------------------------------------------------------------


def _words(*words: str) -> list[Any]:
    return [AIMessageChunk(word) for word in words]


def _agent() -> Any:
    call = [*_words("Let me", " see."), *streamed(("weather", '{"city": "Rome"}'))]
    return create_agent(StrictModel(script=[call, _words("Sunny", " today.")]), [weather])


def _once(script: Sequence[Any], **node: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("agent", model_node(StrictModel(script=[*script])), **node)
    return builder.add_edge(START, "agent").compile()


BROKEN = [*_words("So"), ConnectionError("reset by peer")]
"""An answer that fails in its middle."""


def weather_agent() -> Any:
    """Text, a call, an answer."""
    return _agent()


def subgraph() -> Any:
    """An agent as the node of a graph."""
    return above(_agent()).compile()


def retry() -> Any:
    """The first attempt of a node fails."""
    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    return _once([BROKEN, _words("Sunny", " today.")], retry_policy=policy)


def failing() -> Any:
    """The model fails in the middle of its answer."""
    return _once([BROKEN])
