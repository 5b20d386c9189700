"""`idempotency_key`: one key for one call, however often and wherever it runs."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import interrupt

from kit import calls
from langgraph_patch import idempotency_key
from langgraph_patch.errors import GraphError, OptionError

THREAD: Any = {"configurable": {"thread_id": "1"}}
GO: Any = {"messages": [HumanMessage("go", id="h1")]}


class State(MessagesState):
    """Messages, a second list of messages, and a key that an update changes."""

    other: Annotated[list[AnyMessage], add_messages]
    flag: bool


class Tools:
    """A tool with a runtime and one with a config: both note their keys, may fail, and ask."""

    def __init__(self, failures: int = 0) -> None:
        self.keys: list[str] = []
        self.failures = failures

    def note(self, key: str) -> str:
        self.keys.append(key)
        if len(self.keys) <= self.failures:
            raise ConnectionError
        return str(interrupt("?"))

    def all(self) -> list[Any]:
        """As the agents take them."""

        @tool
        def mail(runtime: ToolRuntime) -> str:
            """Send a mail, if a human agrees."""
            return self.note(idempotency_key(runtime, runtime.tool_call_id))

        @tool
        def wire(config: RunnableConfig, call_id: Annotated[str, InjectedToolCallId]) -> str:
            """Wire money, if a human agrees."""
            return self.note(idempotency_key(config, call_id))

        return [mail, wire]


def call(name: str, first: int = 1, **fields: Any) -> AIMessage:
    """A message with one call."""
    return calls((name, {}), first=first, **{"id": "a1", **fields})


def test_two_histories_with_one_call_have_two_keys():
    """The node tells the calls apart."""
    tools, builder = Tools(), StateGraph(State)
    written = {"messages": [call("wire")], "other": [call("wire", id="a2")]}
    builder.add_node("agent", lambda _: written).add_edge(START, "agent")
    for key in written:
        builder.add_node(f"tools of {key}", ToolNode(tools.all(), messages_key=key))
        builder.add_edge("agent", f"tools of {key}")
    builder.compile(checkpointer=InMemorySaver()).invoke(GO, THREAD)
    assert len(set(tools.keys)) == len(tools.keys) == 2


def test_a_call_beside_another_one_of_its_message_has_a_key_of_its_own():
    """Both have one message; a call of another message has another key, whatever its id is."""
    found, builder = [], StateGraph(State)
    note = lambda _, config: found.extend(idempotency_key(config, each) for each in ("c1", "c2"))
    graph = builder.add_node("tools", note).add_edge(START, "tools").compile()
    for made in ("a1", "a2"):
        graph.invoke({"messages": [calls(("mail", {}), ("wire", {}), id=made)]})
    assert len(set(found)) == 4


TWICE = calls(("mail", {}), ("mail", {"to": "eve"}), id="a1")
TWICE.tool_calls[1]["id"] = "c1"


@pytest.mark.parametrize(
    "state",
    [
        None,
        {"messages": [TWICE]},
        {"messages": [call("mail", id=None)]},
        {"messages": [call("mail", id=None)], "other": [call("mail")]},
    ],
    ids=["none", "two calls", "no id", "no id in one of two histories"],
)
def test_where_no_key_identifies_the_call(state):
    """An error, because two calls with one key would be done once."""
    tool_node = ToolNode(Tools().all(), handle_tool_errors=False)

    def work(_: Any) -> Any:
        if state is None:
            return idempotency_key({"configurable": {}}, "c1")
        return tool_node.invoke(state)

    graph = StateGraph(State).add_node("tools", work).add_edge(START, "tools").compile()
    with pytest.raises(
        GraphError, match="Tool call 'c1' has no idempotency key: expected a message"
    ):
        graph.invoke(GO)


def test_what_is_no_runtime_is_a_clear_error():
    """The error names what is expected; a tool often passes its state or its arguments."""
    for wrong in (7, "c1", [], None):
        with pytest.raises(OptionError, match="expected the ToolRuntime or the RunnableConfig"):
            idempotency_key(wrong, "c1")
