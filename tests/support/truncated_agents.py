"""Agents over a provider whose streams are cut, and what happens to their tool calls."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.warnings import LangGraphDeprecatedSinceV10

from langgraph_patch import patch_model, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.language_models import BaseChatModel
    from truncating_servers import Wire

MODES = ("messages", "values", "updates")


@dataclass
class Seen:
    """What happened in a thread.

    Attributes:
        ran: How often each tool ran, with which arguments.
        error: The error that the first turn raised, or None.
        answered: Whether the first turn ended with an answer.
        goes_on: Whether the next message got its answer.
        messages: The history after both turns.
        chunks: What the stream of the first turn gave.
    """

    ran: Counter[str] = field(default_factory=Counter)
    error: Exception | None = None
    answered: bool = False
    goes_on: bool = False
    messages: list[Any] = field(default_factory=list)
    chunks: list[Any] = field(default_factory=list)


def tools(seen: Seen) -> list[Any]:
    """The tools of the calls; each run is counted."""

    @tool
    def send_email(to: str) -> str:
        """Send an e-mail."""
        seen.ran["send_email"] += 1
        return f"sent to {to}"

    @tool
    def wire_money(amount: int = 0) -> str:
        """Wire money."""
        seen.ran["wire_money"] += 1
        return f"wired {amount}"

    return [send_email, wire_money]


def hand_built(model: BaseChatModel, used: Sequence[Any]) -> Any:
    """A model node and a ToolNode."""
    bound = model.bind_tools(used)

    def call(state):
        return {"messages": [bound.invoke(state["messages"])]}

    async def acall(state):
        return {"messages": [await bound.ainvoke(state["messages"])]}

    return _loop(call, acall, used)


def merging(model: BaseChatModel, used: Sequence[Any]) -> Any:
    """A model node that merges the chunks of its model itself."""
    bound = model.bind_tools(used)

    def call(state):
        merged = None
        for chunk in bound.stream(state["messages"]):
            merged = chunk if merged is None else merged + chunk
        return {"messages": merged}

    async def acall(state):
        merged = None
        async for chunk in bound.astream(state["messages"]):
            merged = chunk if merged is None else merged + chunk
        return {"messages": merged}

    return _loop(call, acall, used)


def _loop(call: Any, acall: Any, used: Sequence[Any]) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", RunnableLambda(call, acall))
    builder.add_node("tools", ToolNode(used))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=InMemorySaver())


def react(model: BaseChatModel, used: Sequence[Any]) -> Any:
    """LangGraph's prebuilt agent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangGraphDeprecatedSinceV10)
        return create_react_agent(model, used, checkpointer=InMemorySaver())


def agent(model: BaseChatModel, used: Sequence[Any], middleware: Sequence[Any] = ()) -> Any:
    """LangChain's agent."""
    return create_agent(model, used, middleware=middleware, checkpointer=InMemorySaver())


AGENTS = {
    "hand-built": lambda model, used: with_patching(hand_built(model, used)),
    "hand-built, merges stream()": lambda model, used: with_patching(merging(model, used)),
    "create_react_agent": lambda model, used: with_patching(react(model, used)),
    "create_agent": lambda model, used: with_patching(agent(model, used)),
    "middleware": lambda model, used: agent(model, used, [PatchToolCallsMiddleware()]),
    "patch_model": lambda model, used: hand_built(patch_model(model), used),
}

BARE = {
    "hand-built": hand_built,
    "hand-built, merges stream()": merging,
    "create_react_agent": react,
    "create_agent": agent,
    "middleware": agent,
    "patch_model": hand_built,
}


def run(build: Any, server: Wire, *, mode: str = "values", asynchronous: bool = False) -> Seen:
    """`book it`, then `hello`, in one thread; the mode `v3` reads the events of that version."""
    seen = Seen()
    graph = build(server.model, tools(seen))
    config = {"configurable": {"thread_id": "1"}}

    def send(text):
        return {"messages": [("user", text)]}

    async def aturn(text):
        if mode == "v3":
            stream = await graph.astream_events(send(text), config, version="v3")
            return [event async for event in stream]
        return [chunk async for chunk in graph.astream(send(text), config, stream_mode=mode)]

    def turn(text):
        if asynchronous:
            return asyncio.run(aturn(text))
        if mode == "v3":
            return list(graph.stream_events(send(text), config, version="v3"))
        return list(graph.stream(send(text), config, stream_mode=mode))

    try:
        seen.chunks = turn("book it")
        seen.answered = graph.get_state(config).values["messages"][-1].text == "done"
    except Exception as error:  # noqa: BLE001 - it is reported
        seen.error = error
    try:
        turn("hello")
    except Exception as error:  # noqa: BLE001 - it is reported
        seen.error = seen.error or error
    seen.messages = graph.get_state(config).values["messages"]
    last = seen.messages[-1]
    seen.goes_on = isinstance(last, AIMessage) and last.text.endswith("hello")
    return seen


def results(seen: Seen, call_id: str) -> list[str]:
    """The results of a call in the history."""
    return [
        m.text for m in seen.messages if isinstance(m, ToolMessage) and m.tool_call_id == call_id
    ]
