"""What models read of calls without a result: what the checkpoints recorded, or nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from kit import Agent, calls, model_node
from langgraph_patch import with_patching
from support.placeholder_texts import BREAKPOINT, UNKNOWN, WAITED
from support.supersteps import made

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TURN = calls(MAIL, WIRE)
FOUND = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}


def agent_with(*tools: Any) -> Any:
    """The builder of an agent with tools of its own."""
    return lambda model, _, saver: with_patching(create_agent(model, tools, checkpointer=saver))


def ago(**duration: float) -> str:
    """A time in the past, as a checkpoint stores it."""
    return (datetime.now(UTC) - timedelta(**duration)).isoformat()


BOTH = made("mail:c1", "wire:c2")


def fail(_: Any) -> Any:
    """Raise what a checkpointer may raise."""
    raise OSError("the disk is gone")


class Slow(InMemorySaver):
    """Stores what a task wrote a moment after it was searched for."""

    current: Any = None
    late: Any = None
    searches = 0

    def get_tuple(self, config: Any) -> Any:
        self.searches += config == self.current
        if self.late and self.searches == 2:
            self.put_writes(*self.late)
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)


@pytest.mark.parametrize("node", ["check", "post_model_hook"])
def test_a_node_before_the_breakpoint(node: str):
    """A hook of a prebuilt agent runs no tools. A node of your own may have run the call itself."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        builder = StateGraph(MessagesState).add_node("agent", model_node(model))
        builder.add_node(node, lambda _: {}).add_node("tools", ToolNode(tools))
        builder.add_edge(START, "agent").add_edge("agent", node).add_edge("tools", "agent")
        builder.add_conditional_edges(node, tools_condition)
        return with_patching(builder.compile(checkpointer=saver, interrupt_before=["tools"]))

    agent = Agent(build, calls(WIRE))
    agent.say("book it")
    agent.say("never mind")
    text = BREAKPOINT if node == "post_model_hook" else UNKNOWN
    assert agent.results == {"c1": text.format("wire", "c1")}
