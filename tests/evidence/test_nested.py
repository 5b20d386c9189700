"""What graphs above and below a call recorded: of subagents, subgraphs and handoffs."""

import operator
from contextlib import nullcontext
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from kit import Agent, Desk, StrictModel, above, calls, loop, results_in, send_each
from langgraph_patch import with_patching
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.storage import NO_TASK
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls
from support.placeholder_texts import UNKNOWN, WAITED
from support.supersteps import GO, made, shortly

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
ROOT: Any = {"configurable": {"thread_id": "1"}}


def found(saver: Any, message: AIMessage, namespace: str = "") -> str:
    """What is found of the calls of a message, without marks of time."""
    place = Address("1", namespace)
    text = shortly(run_sync(recover_evidence(saver, place, [GO, message], read_calls(message, 1))))
    return text.replace(" | paused", "")


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_graph_that_is_not_stored_before_the_one_that_waits(durability: Any):
    """Its number is missing among the namespaces; the cause and the results are found."""
    unstored = above(lambda _: None).compile(checkpointer=False)

    def build(model: Any, tools: Any, saver: Any) -> Any:
        own = StrictModel(script=[calls(("mail", {"to": "mia"}), WIRE, first=7)])
        clerk = loop(own, tools, router=send_each).compile()

        @tool
        def task() -> str:
            """Let a clerk do it, who sends a mail and waits."""
            unstored.invoke({"messages": [GO]})
            return str(clerk.invoke({"messages": [HumanMessage("do it")]}))

        return with_patching(create_agent(model, [task], checkpointer=saver))

    agent = Agent(build, made("task:t1"))
    agent.say("go", durability=durability)
    agent.say("never mind")
    args = "" if durability == "exit" else '{"to": "mia"}'  # the call is not stored
    inside = f"mail({args}): sent to mia"
    assert agent.read["t1"] == f"{WAITED.format('task', 't1')} Recorded inside it: {inside}"


class Work(TypedDict, total=False):
    """The input and the output of a worker."""

    tool_call: dict[str, Any]
    messages: Annotated[list[Any], operator.add]


@pytest.mark.parametrize(
    ("fails", "each", "keep", "expected"),
    [
        (True, True, None, "sent"),
        (False, False, None, "sent"),
        (True, True, False, "failed | RuntimeError('no reviewer')"),
        (True, False, False, "unknown"),
        (False, True, False, "unknown"),
    ],
)
def test_a_subgraph_that_goes_on_after_the_tool(
    *, fails: bool, each: bool, keep: bool | None, expected: str
):
    """The tool has run: its result is found where the subgraph keeps it, and nothing else."""

    def review(_: Any) -> Any:
        if fails:
            raise RuntimeError("no reviewer")
        return {"messages": [interrupt("publish?")]}

    message, saver = made("mail:c1"), InMemorySaver()
    child = StateGraph(Work if each else MessagesState).add_node("review", review)
    child.add_node("run", lambda _: {"messages": [ToolMessage("sent", tool_call_id="c1")]})
    child.add_edge(START, "run").add_edge("run", "review")
    builder = StateGraph(MessagesState).add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("team", child.compile(checkpointer=keep)).add_edge(START, "agent")
    sends = [Send("team", {"tool_call": call}) for call in message.tool_calls]
    builder.add_conditional_edges("agent", lambda _: sends if each else "team", ["team"])
    with pytest.raises(RuntimeError, match="no reviewer") if fails else nullcontext():
        builder.compile(checkpointer=saver).invoke({"messages": [GO]}, ROOT)
    assert found(saver, message) == expected


@pytest.mark.parametrize("gate", ["approval", "tool", "only call"])
def test_an_answer_that_a_graph_above_recorded(gate: str):
    """LangGraph records it there, to all graphs below: no call below waits for certain."""
    message = calls(WIRE, id="m1")
    model, tools = StrictModel(script=[message]), Desk().tools()
    asks = [HumanInTheLoopMiddleware(interrupt_on={"wire": True})] if gate == "approval" else []
    agent = create_agent(model, tools, middleware=asks)
    saver = InMemorySaver()
    node = loop(model, tools).compile() if gate == "only call" else agent
    graph = above(node).compile(checkpointer=saver)
    graph.invoke({"messages": [GO]}, ROOT)
    (space,) = {row.config["configurable"]["checkpoint_ns"] for row in saver.list(ROOT)} - {""}
    assert found(saver, message, space) == "awaiting_input"
    saver.put_writes(graph.get_state(ROOT).config, [("__resume__", "yes")], NO_TASK)
    assert found(saver, message, space) == "unknown"
    graph.update_state(ROOT, {"messages": [HumanMessage("and?")]}, as_node=START)
    assert found(saver, message, space) == "unknown"  # the answer is not at its newest checkpoint


@pytest.mark.parametrize("asks_itself", [False, True])
def test_a_call_that_runs_the_asking_graph(*, asks_itself: bool):
    """It is not awaiting input: it runs the graph that reads it, and was answered by id."""
    asks = lambda _: {"messages": [HumanMessage("so" if asks_itself else interrupt("which?"))]}
    below = above(asks, lambda _: {"messages": [AIMessage("ok")]}).compile()
    inner: Any = with_patching(below, model_node="node2")
    reported: dict[str, str] = {}

    @tool
    def delegate(messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Let another graph do it, which sees it all."""
        if asks_itself:
            interrupt("which?")
        reported.update(results_in(inner.invoke({"messages": messages})["messages"]))
        return "delegated"

    saver, model = InMemorySaver(), StrictModel(script=[calls(("delegate", {}), MAIL)])
    graph = create_agent(model, [delegate, Desk().tools()[0]], checkpointer=saver)
    (asked,) = graph.invoke({"messages": [GO]}, ROOT)["__interrupt__"]
    graph.invoke(Command(resume={asked.id: "blue"}), ROOT)
    assert reported == {"c1": UNKNOWN.format("delegate", "c1"), "c2": "sent to bob"}
