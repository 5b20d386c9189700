"""`idempotency_key`: one key for one call, however often and wherever it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, ToolRuntime, create_react_agent
from langgraph.types import Command, RetryPolicy, Send, interrupt

from langgraph_patch import idempotency_key
from langgraph_patch.errors import GraphError
from support.agents import human, thread
from support.running import pairs, run
from support.strict import StrictModel, ai

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")

GO = {"messages": [human("go")]}


class State(MessagesState):
    """Messages, a second list of messages, and a key that an update changes."""

    other: Annotated[list[AnyMessage], add_messages]
    flag: bool


class Tools:
    """One tool with a runtime and one with a config: both note their keys, and ask."""

    def __init__(self, failures: int = 0) -> None:
        self.keys: list[str] = []
        self.failures = failures

    def note(self, key: str) -> str:
        """Note a key, fail as often as asked for, then ask."""
        self.keys.append(key)
        if len(self.keys) <= self.failures:
            raise ConnectionError
        return str(interrupt("?"))

    def mail(self, to: str, runtime: ToolRuntime) -> str:
        """Send a mail, if a human agrees."""
        return self.note(idempotency_key(runtime, runtime.tool_call_id))

    def wire(
        self, to: str, config: RunnableConfig, call_id: Annotated[str, InjectedToolCallId]
    ) -> str:
        """Wire money, if a human agrees."""
        return self.note(idempotency_key(config, call_id))

    def all(self) -> list[StructuredTool]:
        """As the agents take them."""
        return [StructuredTool.from_function(tool) for tool in (self.mail, self.wire)]


def call(name: str, call_id: str = "c1", **fields: Any) -> AIMessage:
    """A message with one call."""
    return ai((name, {"to": "bob"}, call_id), **{"id": "a1", **fields})


def loop(tools: Tools, message: AIMessage, *, sends: bool = False, **options: Any) -> Any:
    """START -> agent -> tools -> END, with one task for all calls or one for each."""
    builder = StateGraph(State)
    builder.add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("tools", ToolNode(tools.all(), handle_tool_errors=False), **options)
    builder.add_edge(START, "agent")
    if sends:
        to = [Send("tools", [made]) for made in message.tool_calls]
        builder.add_conditional_edges("agent", lambda _: to, ["tools"])
    else:
        builder.add_edge("agent", "tools")
    return builder.compile(checkpointer=InMemorySaver())


def send_loop(tools: Tools, message: AIMessage) -> Any:
    """A task for each call."""
    return loop(tools, message, sends=True)


def prebuilt(make: Any) -> Any:
    """An agent of LangChain or LangGraph."""
    return lambda tools, message: make(
        StrictModel(script=[message, AIMessage("done")]), tools.all(), checkpointer=InMemorySaver()
    )


KINDS = {
    "node": loop,
    "send": send_loop,
    "create_agent": prebuilt(create_agent),
    "react_v2": prebuilt(create_react_agent),
}


@pytest.mark.parametrize(
    ("kind", "name", "asynchronous"), pairs(KINDS, ["mail", "wire"], [False, True])
)
async def test_the_key_is_the_same_after_a_resume(kind: str, name: str, *, asynchronous: bool):
    """Each start of the tool has the key of the first one."""
    tools = Tools()
    graph = KINDS[kind](tools, call(name))
    for value in ("go", None, Command(resume="yes")):
        await run(graph, value, asynchronous=asynchronous)
    assert len(tools.keys) == 3
    assert len(set(tools.keys)) == 1


def keys_of(graph: Any, tools: Tools, *values: Any, config: Any = None) -> Sequence[str]:
    """The keys that the tools note while the graph runs."""
    for value in (GO, *values):
        graph.invoke(value, config or thread())
    return tools.keys


@pytest.mark.parametrize("name", ["mail", "wire"])
def test_the_key_does_not_depend_on_the_task(name: str):
    """After a retry, an update or a restart, and with a task for each call, it is the same."""
    tools = Tools(failures=1)
    again = RetryPolicy(initial_interval=0, jitter=False)
    graph = loop(tools, call(name), retry_policy=again)
    graph.invoke(GO, thread())
    graph.update_state(thread(), {"flag": True})
    graph.invoke(Command(resume="yes"), thread())
    keys_of(send_loop(tools, call(name)), tools)
    assert len(tools.keys) == 4
    assert len(set(tools.keys)) == 1


def test_each_call_has_its_key():
    """Two tools with the same call have one key; another call has another."""
    tools = Tools()
    for message in (call("mail"), call("wire"), call("wire", "c2"), call("wire", id="a2")):
        keys_of(loop(tools, message), tools)
    keys_of(loop(tools, call("wire")), tools, config={"configurable": {"thread_id": "2"}})
    assert tools.keys[0] == tools.keys[1]
    assert len(set(tools.keys)) == 4


def test_two_histories_with_one_call_have_two_keys():
    """The node tells the calls apart."""
    tools, builder = Tools(), StateGraph(State)
    written = {"messages": [call("wire")], "other": [call("wire", id="a2")]}
    builder.add_node("agent", lambda _: written).add_edge(START, "agent")
    for key in written:
        builder.add_node(f"tools of {key}", ToolNode(tools.all(), messages_key=key))
        builder.add_edge("agent", f"tools of {key}")
    keys_of(builder.compile(checkpointer=InMemorySaver()), tools)
    assert len(set(tools.keys)) == len(tools.keys) == 2


def test_inside_a_task_and_a_wrapper():
    """A wrapper of a `ToolNode` and a tool in a `@task` have the same key after a resume."""
    tools, seen = Tools(), []

    def wrap(request: Any, execute: Any) -> Any:
        seen.append(idempotency_key(request.runtime, request.tool_call["id"]))
        return execute(request)

    node = ToolNode(tools.all(), wrap_tool_call=wrap)

    @task
    def work(messages: Any) -> Any:
        return node.invoke({"messages": messages})

    builder = StateGraph(State).add_node("loop", lambda _: work([call("mail")]).result())
    graph = builder.add_edge(START, "loop").compile(checkpointer=InMemorySaver())
    keys_of(graph, tools, Command(resume="yes"))
    assert len(tools.keys) == 2
    assert len({*tools.keys, *seen}) == 1


def test_where_no_key_identifies_the_call():
    """An error, because two calls with one key would be done once."""
    with pytest.raises(GraphError, match="no message of the state makes it"):
        idempotency_key({"configurable": {}}, "c1")
    twice = ai(("mail", {"to": "bob"}, "c1"), ("mail", {"to": "eve"}, "c1"), id="a1")
    node = ToolNode(Tools().all(), handle_tool_errors=False)
    for message, reason in (
        (twice, "two calls with this id"),
        (call("mail", id=None), "has no id"),
    ):
        builder = StateGraph(State)
        builder.add_node("tools", lambda _, m=message: node.invoke({"messages": [m]}))
        app = builder.add_edge(START, "tools").compile()
        with pytest.raises(GraphError, match=reason):
            app.invoke(GO)
