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

from langgraph_patch._sansio import run_async, run_sync
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


def recovered(saver, *calls, config=CONFIG, **options):
    """What is recovered of calls, each a message and the id of one of its calls.

    Returns:
        The id of the message and that of the call -> the content of the result, or the finding
        if it is not `unknown`. If several calls of the message have the id: its position too.
    """
    messages, wanted, places = _asked(calls)
    found = run_sync(recover_evidence(saver, config, messages, wanted, **options))
    return _contents(found, places)


async def arecovered(saver, *calls, config=CONFIG, **options):
    """The same with an asynchronous checkpointer."""
    messages, wanted, places = _asked(calls)
    found = await run_async(recover_evidence(saver, config, messages, wanted, **options))
    return _contents(found, places)


def _asked(calls):
    messages = list({id(call[0]): call[0] for call in calls}.values())
    wanted, places = {}, {}
    for message, call_id, *ordinal in calls:
        index = next(i for i, each in enumerate(messages) if each is message)
        made = [call for call in read_calls(message, index) if call.id == call_id]
        for call in [call for call in made if call.ordinal in ordinal] if ordinal else made:
            wanted[call.key] = call
            places[call.key] = (message.id, call_id, *([call.ordinal] if len(made) > 1 else []))
    return messages, list(wanted.values()), places


def _contents(recovery, places):
    return {
        places[key]: _without_time(finding) if finding.result is None else finding.result.content
        for key, finding in recovery.evidence.items()
        if finding.result is not None or finding.cause != "unknown" or finding.inner
    }


def _without_time(finding):
    detail = None if finding.detail == "paused" else finding.detail
    return replace(finding, look_again=False, detail=detail)


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
