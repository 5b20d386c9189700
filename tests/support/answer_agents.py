"""Agents that stream, each with the answers that a client must have in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from langgraph_supervisor import create_supervisor
from pydantic import BaseModel

from kit import StrictModel, above, loop, model_node, streamed
from support.streams import say

INPUT = {"messages": [HumanMessage("How is the weather?", id="h1")]}
SUNNY = ["Sunny today."]


class City(BaseModel):
    """A structured answer."""

    city: str


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


@tool(return_direct=True)
def direct(city: str) -> str:
    """The weather, as the answer of the run."""
    return f"sunny in {city}"


@tool
def ask_agent(city: str) -> str:
    """Ask another agent."""
    inner = create_agent(agent_model(), [weather])
    return inner.invoke({"messages": [("user", city)]})["messages"][-1].text


def answer() -> list[Any]:
    """A turn with an answer."""
    return [say("Sunny"), say(" today.")]


def broken() -> list[Any]:
    """A turn that fails in the middle of its answer."""
    return [say("So"), ConnectionError("reset by peer")]


def agent_model(name: str = "weather") -> StrictModel:
    """A model that writes, calls a tool, and answers."""
    called = streamed((name, '{"city": "Rome"}'))
    return StrictModel(script=[[say("Let me see."), say(" "), *called], answer()])


def by_hand(model: Any) -> Any:
    """Model, tools, model."""
    return loop(model, [weather]).compile()


def supervisor() -> Any:
    """A supervisor that transfers to an agent, which answers; then the supervisor ends."""
    transfer = streamed(("transfer_to_helper", "{}"), first=9)
    boss = StrictModel(script=[[say("I ask."), *transfer], [say("It is done.")]])
    helper = create_agent(agent_model(), [weather], name="helper")
    return create_supervisor([helper], model=boss).compile()


def side_by_side() -> Any:
    """Two models at once: one calls a tool, the other one answers."""
    builder = StateGraph(MessagesState)
    for name, model in (("caller", agent_model()), ("speaker", StrictModel(script=[answer()]))):
        builder.add_node(name, model_node(model))
        builder.add_edge(START, name)
    return builder.compile()


KINDS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a graph by hand": (lambda: by_hand(agent_model()), SUNNY),
    "create_agent": (lambda: create_agent(agent_model(), [weather]), SUNNY),
    "a model without streaming": (
        lambda: create_agent(StrictModel(script=[AIMessage("whole")], disable_streaming=True), []),
        ["whole"],
    ),
    "return_direct": (lambda: create_agent(agent_model("direct"), [direct]), ["sunny in Rome"]),
    "ToolStrategy": (
        lambda: create_agent(agent_model("City"), [], response_format=ToolStrategy(City)),
        ["Returning structured response: city='Rome'"],
    ),
    "an agent in a tool": (lambda: create_agent(agent_model("ask_agent"), [ask_agent]), SUNNY),
    "an agent as a subgraph": (
        lambda: above(create_agent(agent_model(), [weather])).compile(),
        SUNNY,
    ),
    "a supervisor": (supervisor, ["Sunny today.", "It is done."]),
    "two models at once": (side_by_side, SUNNY),
}
"""Kind of agent -> how to make it, and the answers that a client must have in the end."""


def attempts() -> StrictModel:
    """A model that fails once, then answers."""
    return StrictModel(script=[broken(), answer()])


def retrying() -> Any:
    """A node that is run again."""
    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", model_node(attempts()), retry_policy=policy)
    return builder.add_edge(START, "agent").compile()


def with_middleware(middleware: Any, model: Any) -> Any:
    """An agent without tools."""
    return create_agent(model, [], middleware=[middleware])


RETRIES: dict[str, Callable[[], Any]] = {
    "RetryPolicy": retrying,
    "with_retry": lambda: by_hand(attempts().with_retry(wait_exponential_jitter=False)),
    "with_fallbacks": lambda: by_hand(
        StrictModel(script=[broken()]).with_fallbacks([StrictModel(script=[answer()])])
    ),
    "ModelRetryMiddleware": lambda: with_middleware(
        ModelRetryMiddleware(initial_delay=0.001, jitter=False), attempts()
    ),
    "ModelFallbackMiddleware": lambda: with_middleware(
        ModelFallbackMiddleware(StrictModel(script=[answer()])), StrictModel(script=[broken()])
    ),
}
"""Everything that calls a model again -> a graph of which the first attempt fails."""
