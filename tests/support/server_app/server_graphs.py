"""The application of the tests of LangGraph Server: one agent, bare and patched.

The server gives each its checkpointer. What a human says decides what the model does, so that one
process can serve all tests: some words call two tools at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.types import interrupt

from kit import StrictModel, above
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.strict import refuse


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


TOOLS = {
    each.name: each for each in (send_email, wire_money, print_report, ask_later, wire_slowly, boom)
}
BESIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "slow": ("wire_slowly", {"amount": 3}),
    "boom": ("boom", {"x": 1}),
    "wire": ("wire_money", {"amount": 3}),
    "report": ("print_report", {"pages": 3}),
    "ask": ("ask_later", {"seconds": 1.0}),
}
"""The call beside the mail, by the word that the human says, which is its id."""


class Clerk(StrictModel):
    """Does what the last human message says; keeps nothing, since the process is shared."""

    def _line(self, messages: list[BaseMessage]) -> AIMessage:
        refuse(messages)
        word = messages[-1].text
        if messages[-1].type != "human" or word not in BESIDE:
            return AIMessage(f"re: {word}")
        name, args = BESIDE[word]
        mail = {"name": "send_email", "args": {"to": "bob"}, "id": f"mail-{word}"}
        return AIMessage("", tool_calls=[mail, {"name": name, "args": args, "id": word}])


def agent(*middleware: PatchToolCallsMiddleware) -> Any:
    """The agent, without a checkpointer of its own."""
    return create_agent(Clerk(), list(TOOLS.values()), middleware=middleware)


bare = agent()
nested = above(agent()).compile()
patched = with_patching(agent())
patched_parent = with_patching(above(agent()).compile())
by_middleware = agent(PatchToolCallsMiddleware())
