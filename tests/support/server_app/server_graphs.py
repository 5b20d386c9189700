"""The application of the LangGraph server's test: one agent, bare and patched.

The server gives each its checkpointer. What a human says decides what the model does, so
that one process can serve all tests: a booking calls two tools at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.strict import StrictModel, ai, refuse


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
async def wire_slowly(amount: int) -> str:
    """Wait for a human, then run for longer than any test waits."""
    answer = interrupt(f"wire {amount}?")
    await asyncio.sleep(3600)
    return f"wired: {answer}"


@tool
async def boom(x: int) -> str:
    """Fail."""
    raise RuntimeError(f"kaput {x}")


BESIDE = {
    "slow": ("wire_slowly", {"amount": 3}, "slow"),
    "boom": ("boom", {"x": 1}, "boom"),
    "wire": ("wire_money", {"amount": 3}, "wire"),
    "report": ("print_report", {"pages": 3}, "report"),
    "ask": ("ask_later", {"seconds": 1.0}, "ask"),
}
"""The call beside the mail, by the word that the human says."""


class Clerk(StrictModel):
    """Does what the last human message says; keeps nothing, since the process is shared."""

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        refuse(messages)
        last = messages[-1]
        if last.type == "human" and last.text in BESIDE:
            return ai(("send_email", {"to": "bob"}, f"mail-{last.text}"), BESIDE[last.text])
        return AIMessage(f"re: {last.text}")


def agent(*middleware: PatchToolCallsMiddleware) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The agent, without a checkpointer of its own."""
    tools = [send_email, wire_money, print_report, ask_later, wire_slowly, boom]
    return create_agent(Clerk(script=[]), tools, middleware=middleware)


def parent() -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph with the agent as a node."""
    builder = StateGraph(MessagesState)
    builder.add_node("clerk", agent())
    return builder.add_edge(START, "clerk").compile()


bare = agent()
nested = parent()
patched = with_patching(agent())
patched_parent = with_patching(parent())
by_middleware = agent(PatchToolCallsMiddleware())
