"""Agents of every kind with the same four tools, and what is recovered of their tool calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from langgraph.types import interrupt

from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.texts import Finding

CONFIG = {"configurable": {"thread_id": "1"}}
AWAITING_INPUT = Finding("awaiting_input")
FAILED_KAPUT = Finding("failed", error="RuntimeError('kaput')")


class Scripted(GenericFakeChatModel):
    """Answers with its script."""

    def bind_tools(self, *_: Any, **__: Any) -> Scripted:
        """Ignore the tools."""
        return self


def ai_with_calls(ident: str, *calls: str) -> AIMessage:
    """An AI message with calls; each is written `name:id`."""
    parts = [call.partition(":") for call in calls]
    made = [{"name": name, "args": {}, "id": call_id} for name, _, call_id in parts]
    return AIMessage("", id=ident, tool_calls=made)


@tool
def send_email() -> str:
    """Send."""
    return "sent to bob"


@tool
def wire_money() -> str:
    """Wait for a human."""
    return f"wired: {interrupt('1000 EUR?')}"


@tool
def boom() -> str:
    """Raise."""
    raise RuntimeError("kaput")


slow_has_begun = asyncio.Event()
"""A test that waits for it puts one of its own here."""


@tool
async def slow() -> str:
    """Take too long."""
    slow_has_begun.set()
    await asyncio.sleep(60)
    return "late"


TOOLS = [send_email, wire_money, boom, slow]


def scripted_model(*script: AIMessage) -> Scripted:
    """A model with a script."""
    return Scripted(messages=iter(script))


def v1(script, saver=None):
    """One task for all calls of a message."""
    return create_react_agent(scripted_model(*script), TOOLS, checkpointer=saver, version="v1")


def v2(script, saver=None):
    """One task for each call."""
    return create_react_agent(scripted_model(*script), TOOLS, checkpointer=saver, version="v2")


def agent(script, saver=None):
    """LangChain's agent: one task for each call."""
    return create_agent(scripted_model(*script), TOOLS, checkpointer=saver)


def deep(script, saver=None):
    """An agent with its history in a DeltaChannel."""
    return create_deep_agent(scripted_model(*script), TOOLS, checkpointer=saver)


KINDS = {f.__name__: f for f in (v1, v2, agent, deep)}
ONE_TASK_PER_CALL = ["v2", "agent", "deep"]


APPROVAL = Finding("not_started", detail="approval")
CANCELLED = Finding("cancelled")


def search(saver, config, asked, **options):
    """Search for calls, each (message, id) or (message, id, position); findings by such keys.

    The key has the position only if several calls of the message have the id.
    """
    messages = list({id(message): message for message, *_ in asked}.values())
    calls = {}
    for message, call_id, *position in asked:
        made = [c for c in read_calls(message, messages.index(message)) if c.id == call_id]
        for call in made:
            if not position or [call.ordinal] == position:
                key = (message.id, call_id, *([call.ordinal] if len(made) > 1 else []))
                calls[call.key] = key, call
    wanted = [call for _, call in calls.values()]
    recovery = yield from recover_evidence(saver, config, messages, wanted, **options)
    return {calls[key][0]: found for key, found in recovery.evidence.items()}


def contents(evidence):
    """Evidence without `unknown`, with results as contents and findings without their mark."""
    return {
        key: found.result.content if found.result else replace(found, look_again=False)
        for key, found in evidence.items()
        if found.result or found.cause != "unknown" or found.inner
    }


def recovered(saver, *calls, config=CONFIG, **options):
    """What is recovered of these calls, with results as their contents."""
    return contents(run_sync(search(saver, config, calls, **options)))


def run_until_stop(graph, value, **options):
    """Run until the end, a pause or an error."""
    try:
        graph.invoke(value, CONFIG, **options)
    except (RuntimeError, ValueError) as error:
        return error


async def arun_until_stop(graph, value, **options):
    """Run asynchronously until the end, a pause or an error."""
    try:
        await graph.ainvoke(value, CONFIG, **options)
    except (RuntimeError, ValueError) as error:
        return error


def human_input(text="never mind"):
    """An input with one human message."""
    return {"messages": [HumanMessage(text)]}


BOTH = ai_with_calls("m1", "send_email:c1", "wire_money:c2")
BOTH_RECOVERED = {("m1", "c1"): "sent to bob", ("m1", "c2"): AWAITING_INPUT}
