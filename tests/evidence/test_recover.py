"""What models read of calls without a result: what the checkpoints recorded, or nothing."""

from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from kit import Agent, calls, model_node
from langgraph_patch import with_patching
from support.placeholder_texts import BREAKPOINT, UNKNOWN, WAITED

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TURN = calls(MAIL, WIRE)
FOUND = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}


def from_client(content: str, prefix: str) -> list[Any]:
    """What a frontend sends before the next message: a result for each open call."""
    return [ToolMessage(content, tool_call_id=c, id=f"{prefix}{c}") for c in ("c1", "c2")]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (from_client("Successfully handled tool call.", "do-not-render-"), FOUND),
        (from_client('{"cancelled":true}', "aui-"), FOUND),
        (from_client("by hand", "r"), {"c1": "by hand", "c2": "by hand"}),
    ],
)
def test_what_clients_send(results: list[Any], expected: dict[str, str]):
    """What was recorded replaces the inventions of known clients; other results stay."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    agent.run({"messages": [*results, HumanMessage("never mind")]})
    assert agent.read == expected


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
