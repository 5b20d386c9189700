"""Graphs with recorded tools for the tests of start marks, owners and keys."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import interrupt

from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls

THREAD = {"configurable": {"thread_id": "1"}}
GO = {"messages": [HumanMessage("go", id="h1")]}


class State(MessagesState):
    """Messages, and a key that an update changes."""

    flag: bool


class TwoHistories(State):
    """A second list of messages."""

    other: Annotated[list[AnyMessage], add_messages]


class Model(GenericFakeChatModel):
    """A scripted model that accepts tools."""

    def bind_tools(self, tools, **_kwargs):
        """Ignore the tools: the script decides."""
        return self


class Recorder(AgentMiddleware):
    """The recorder as the wrapper of a `create_agent`."""

    def wrap_tool_call(self, request, handler):
        """Record."""
        return record_tool_calls(request, handler)

    async def awrap_tool_call(self, request, handler):
        """Record."""
        return await arecord_tool_calls(request, handler)


class World:
    """What the tools did."""

    def __init__(self):
        self.did: Counter[str] = Counter()
        self.fails = 0

    def tools(self):
        """Tools that leave a trace here."""

        @tool
        def mail(to: str) -> str:
            """Send a mail."""
            self.did[f"mail {to}"] += 1
            return f"sent to {to}"

        @tool
        def wire(to: str) -> str:
            """Wire money, if a human agrees."""
            answer = interrupt(f"wire {to}?")
            self.did[f"wire {to}"] += 1
            return f"wired to {to}: {answer}"

        @tool
        def boom(to: str) -> str:
            """Raise as often as `fails` says."""
            self.fails -= 1
            if self.fails >= 0:
                msg = f"kaput {to}"
                raise ConnectionError(msg)
            self.did[f"boom {to}"] += 1
            return f"at last {to}"

        return [mail, wire, boom]


def ask(*calls, message_id="ai1"):
    """The model's message with (name, receiver, id) calls."""
    made = [{"name": name, "args": {"to": to}, "id": call_id} for name, to, call_id in calls]
    return AIMessage("", id=message_id, tool_calls=made)


def recorded(tools, **options):
    """A `ToolNode` that records its calls."""
    wrappers = {"wrap_tool_call": record_tool_calls, "awrap_tool_call": arecord_tool_calls}
    return ToolNode(tools, **wrappers, handle_tool_errors=False, **options)


def plain_loop(world: World, saver: Any, message: AIMessage, *, node: Any = None) -> Any:
    """START -> agent -> tools -> END."""
    builder = StateGraph(State)
    builder.add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("tools", node or recorded(world.tools()))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    return builder.compile(checkpointer=saver)


def modern_agent(world: World, saver: Any, message: AIMessage) -> Any:
    """A `create_agent` with the recorder as a middleware."""
    model = Model(messages=iter([message, AIMessage("done")]), disable_streaming=True)
    return create_agent(model, world.tools(), middleware=[Recorder()], checkpointer=saver)


def react_v2(world: World, saver: Any, message: AIMessage) -> Any:
    """A `create_react_agent` of version 2."""
    model = Model(messages=iter([message, AIMessage("done")]), disable_streaming=True)
    with warnings.catch_warnings(action="ignore"):  # deprecated, and still in use
        return create_react_agent(model, recorded(world.tools()), checkpointer=saver, version="v2")


WITH_SEND = {"create_agent": modern_agent, "react_v2": react_v2}


def results(state):
    """{call id: content} of all results in a state."""
    return {m.tool_call_id: m.content for m in state["messages"] if isinstance(m, ToolMessage)}


class Named(dict[str, Any]):
    """Named arguments of a call in a scenario."""


class Runs:
    """Runs a scenario by threads or in an event loop, over a checkpointer of each kind.

    A scenario is a generator function: it gets a checkpointer, yields (graph, method, arguments)
    and receives the result of the call or the exception. Named arguments are the last, as `Named`.
    """

    def __init__(self, mode: str, store: str):
        self.mode, self.store = mode, store

    def __call__(self, scenario):
        """Run a scenario; return what it returns."""
        if self.mode == "sync":
            return self._sync(scenario)
        return asyncio.run(self._async(scenario))

    def _sync(self, scenario):
        with self._saver() as saver:
            steps, result = scenario(saver), None
            while True:
                try:
                    graph, method, *args = steps.send(result)
                except StopIteration as stop:
                    return stop.value
                try:
                    named = args.pop() if args and isinstance(args[-1], Named) else {}
                    result = getattr(graph, method)(*args, **named)
                    result = list(result) if method == "list" else result
                except Exception as error:  # noqa: BLE001 - the scenario judges it
                    result = error

    async def _async(self, scenario):
        async with self._asaver() as saver:
            steps, result = scenario(saver), None
            while True:
                try:
                    graph, method, *args = steps.send(result)
                except StopIteration as stop:
                    return stop.value
                try:
                    if method == "list":
                        result = [saved async for saved in graph.alist(*args)]
                    else:
                        named = args.pop() if args and isinstance(args[-1], Named) else {}
                        result = await getattr(graph, f"a{method}")(*args, **named)
                except Exception as error:  # noqa: BLE001 - the scenario judges it
                    result = error

    @contextmanager
    def _saver(self):
        if self.store == "memory":
            yield InMemorySaver()
        else:
            with SqliteSaver.from_conn_string(":memory:") as saver:
                yield saver

    @asynccontextmanager
    async def _asaver(self):
        if self.store == "memory":
            yield InMemorySaver()
        else:
            async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
                yield saver
