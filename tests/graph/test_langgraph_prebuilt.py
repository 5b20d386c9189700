"""The details of LangGraph in `_langgraph_graphs.py`: prebuilt agents and tool nodes.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, create_react_agent
from langgraph.types import interrupt

from langgraph_patch._langgraph_graphs import (
    AFTER_MODEL,
    call_with_state,
    leads_to_model,
    overridden_method,
    runs_after_model,
    sent_call,
    tool_messages_key,
    with_functions,
)
from support.agents import thread
from support.bare_graphs import QUESTION, nothing


@pytest.mark.parametrize("maker", ["create_agent", "create_react_agent"])
@pytest.mark.filterwarnings("ignore:create_react_agent")
def test_sent_call(maker: str):
    """Both prebuilt agents send one call to each task of the tools node."""
    from langchain.agents import create_agent  # noqa: PLC0415 - slow to import

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    def wire(amount: int) -> None:
        """Wire money."""
        interrupt(amount)

    calls = [{"name": "wire", "args": {"amount": n}, "id": f"c{n}"} for n in (1, 2)]
    model = Model(messages=iter([AIMessage("", tool_calls=calls)]))
    saver = InMemorySaver()
    make = create_agent if maker == "create_agent" else create_react_agent
    make(model, [wire], checkpointer=saver).invoke(QUESTION, thread())
    saved = saver.get_tuple(thread())
    assert saved is not None
    sends = saved.checkpoint["channel_values"]["__pregel_tasks"]
    assert [(sent_call(send) or {}).get("id") for send in sends] == ["c1", "c2"]


def test_a_copy_runs_other_functions():
    """A copy of a `ToolNode` is one, has its tools, and calls them with config and runtime."""
    received: list[Any] = []

    def func(value: Any, **kwargs: Any) -> Any:
        received.append((value, sorted(kwargs)))

    node = ToolNode([])
    copied = with_functions(node, func, None)
    builder = StateGraph(MessagesState).add_node("tools", copied).add_edge(START, "tools")
    builder.compile().invoke(QUESTION)
    assert isinstance(copied, ToolNode)
    assert copied.tools_by_name is node.tools_by_name
    assert node.func is not func
    assert received[0][1] == ["config", "runtime"]


def test_a_call_with_its_state():
    """A `ToolNode` runs one call with the state that comes with it."""
    read: list[Any] = []

    def look(whole: Annotated[Any, InjectedState]) -> str:
        """Look."""
        read.append(whole)
        return "seen"

    node = ToolNode([look])
    call = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    builder = StateGraph(MessagesState)
    sent = call_with_state(call, {"a": 1})
    builder.add_node("tools", lambda _, config: node.invoke(sent, config))
    result = builder.add_edge(START, "tools").compile().invoke({"messages": []})
    assert read == [{"a": 1}]
    assert result["messages"][0].text == "seen"


def test_overridden_method():
    """A class that overrides how it runs is found; one that only adds something is not."""

    class Own(ToolNode):
        def _func(self, *args: Any, **kwargs: Any) -> Any:
            return super()._func(*args, **kwargs)

    class More(ToolNode):
        name = "more"

        def __init__(self, tools: Any) -> None:
            super().__init__(tools)

        def count(self) -> int:
            return len(self.tools_by_name)

    assert overridden_method(ToolNode([])) is None
    assert overridden_method(More([])) is None
    assert overridden_method(Own([])) == "_func"


def test_tool_messages_key():
    """A `ToolNode` has the key of its history."""
    assert tool_messages_key(ToolNode([])) == "messages"
    assert tool_messages_key(ToolNode([], messages_key="chat")) == "chat"
    assert tool_messages_key(object()) == "messages"


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_nodes_around_the_model_of_the_prebuilt_agents():
    """`create_react_agent` and `create_agent` name the nodes around the model and tools so."""
    model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
    react = create_react_agent(
        model, [], pre_model_hook=RunnableLambda(nothing), post_model_hook=RunnableLambda(nothing)
    )
    agent = create_agent(model, middleware=[Around()])
    names = {*react.nodes, *agent.nodes} - {START}
    assert {name for name in names if runs_after_model(name)} == {
        AFTER_MODEL[0],
        f"Around{AFTER_MODEL[1]}",
    }
    assert {name for name in names if leads_to_model(name)} == {
        "agent",
        "model",
        "pre_model_hook",
        "Around.before_model",
    }


class Around(AgentMiddleware[Any, Any, Any]):
    """A middleware with a node before and one after the model."""

    def before_model(self, state: Any, runtime: Any) -> None:
        """Do nothing."""

    def after_model(self, state: Any, runtime: Any) -> None:
        """Do nothing."""
