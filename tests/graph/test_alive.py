"""What is alive is not touched: odd names and ids of healthy runs stay as the model wrote them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from kit import StrictModel, loop, results_in
from langgraph_patch import with_patching

NAMES = ["pay", "bank.pay", "bank:pay", "bank/pay", "Bank Pay", "p" * 70, "\u4ed8\u6b3e"]
IDS = {
    "again": ("call_0", "call_0"),
    "long": ("chatcmpl-tool-" + "a" * 32, "chatcmpl-tool-" + "b" * 32),
    "odd": ("call 1", "call|2"),
    "empty": ("", ""),
}
CONFIG: Any = {"configurable": {"thread_id": "1"}}


def say(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"messages": [HumanMessage(text)]}


def call(name: str, call_id: str, amount: int) -> AIMessage:
    """A message with one call."""
    listed = {"name": name, "args": {"amount": amount}, "id": call_id, "type": "tool_call"}
    return AIMessage("", tool_calls=[listed])


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_with_any_name_is_approved(name: str):
    """Nodes between model and tools know a tool by its name: a human is asked, as without us."""
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    tool = StructuredTool.from_function(pay, name=name)
    model = StrictModel(script=[call(name, "c1", 5)])
    approval = HumanInTheLoopMiddleware(interrupt_on={name: True})
    agent: Any = create_agent(model, [tool], middleware=[approval], checkpointer=InMemorySaver())
    agent = with_patching(agent)
    state = agent.invoke(say("pay 5"), CONFIG)
    assert "__interrupt__" in state
    assert paid == []
    agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert paid == [5]
    assert model.seen[-1][-1].text == "paid"


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_a_function_that_runs_tools_reads_the_ids_of_the_model(ids: tuple[str, str]):
    """A tool function answers the calls that it read, whatever their ids."""

    def tools(state: Any) -> dict[str, Any]:
        calls = state["messages"][-1].tool_calls
        found = [ToolMessage(f"paid {c['args']['amount']}", tool_call_id=c["id"]) for c in calls]
        return {"messages": found}

    model = StrictModel()
    model.script = [call("pay", ids[0], 5), AIMessage("done"), call("pay", ids[1], 6)]
    builder = loop(model, [])
    builder.nodes.pop("tools")
    builder.add_node("tools", tools)
    agent = with_patching(builder.compile(checkpointer=InMemorySaver()))
    agent.invoke(say("pay"), CONFIG)
    agent.invoke(say("pay again"), CONFIG)
    assert [m.text for m in model.seen[-1] if isinstance(m, ToolMessage)] == ["paid 5", "paid 6"]
    assert set(results_in(model.seen[-1]).values()) <= {"paid 5", "paid 6"}
