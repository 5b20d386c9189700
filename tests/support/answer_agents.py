"""Agents of every kind that stream, and every shape in which LangGraph streams them."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, RetryPolicy
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm
from pydantic import BaseModel

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.streaming import Checker, afinal_answers, final_answers
from support.chunk_model import ChunkModel, begin, piece

Pair = tuple[BaseMessage, dict[str, Any]]
INPUT = {"messages": [HumanMessage("How is the weather?", id="h1")]}


def text(*tokens: str) -> list[AIMessageChunk]:
    """Tokens."""
    return [AIMessageChunk(token) for token in tokens]


def left(pairs: list[Pair]) -> list[str]:
    """What a client has on its screen in the end: the texts, without the retracted ones."""
    texts: dict[Any, str] = {}
    for token, _ in pairs:
        if isinstance(token, RemoveMessage):
            del texts[token.id]
        else:
            texts[token.id] = texts.get(token.id, "") + token.text
    return [shown for shown in texts.values() if shown]


# --- agents ------------------------------------------------------------------------------------


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
def ask_model(city: str) -> str:
    """Ask another model."""
    return ChunkModel(turns=[text("inner ", city)]).invoke("hi").text


@tool
def ask_agent(city: str) -> str:
    """Ask another agent."""
    inner = create_agent(agent_model(), [weather])
    return inner.invoke({"messages": [("user", city)]})["messages"][-1].text


def model_graph(model: Any) -> Any:
    """A graph that asks a model once."""
    builder = StateGraph(MessagesState)

    def think(state):
        return {"messages": [model.invoke(state["messages"])]}

    async def athink(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder.add_node("agent", RunnableLambda(think, athink))
    builder.add_edge(START, "agent")
    return builder.compile()


class ToolModel(ChunkModel):
    """A model whose tools are bound as LangGraph's own agent checks them."""

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **kwargs)


def agent_model(name: str = "weather", args: str = '{"city": "Rome"}') -> ChunkModel:
    """A model that writes, calls a tool, and answers."""
    turn = [*text("Let me", " see."), begin(name, "c1"), piece(args[:5]), piece(args[5:])]
    return ToolModel(turns=[turn, text("Sunny", " today.")])


def by_hand(model: Any, *, checkpointer: Any = None, **node_options: Any) -> Any:
    """Model, tools, model."""
    builder = StateGraph(MessagesState)

    def think(state):
        return {"messages": [model.invoke(state["messages"])]}

    builder.add_node("agent", think, **node_options)
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=checkpointer)


def react() -> Any:
    """LangGraph's own agent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(agent_model(), [weather])


def two_direct() -> Any:
    """One tool node runs two tools, and their results are the answer."""
    builder = StateGraph(MessagesState)
    calls = [begin("direct", f"c{n}", args, n) for n, args in enumerate(CITIES)]
    model = ChunkModel(turns=[[*text("Let me see."), *calls]])
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([direct]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    return builder.compile()


def as_subgraph(agent: Any) -> Any:
    """An agent as the node of a graph."""
    builder = StateGraph(MessagesState)
    builder.add_node("helper", agent)
    builder.add_edge(START, "helper")
    return builder.compile()


def supervisor() -> Any:
    """A supervisor that transfers to an agent, which answers; then the supervisor ends."""
    boss = ToolModel(
        turns=[[*text("I ask."), begin("transfer_to_helper", "t1", "{}")], text("It is done.")]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        helper = create_agent(agent_model(), [weather], name="helper")
        return create_supervisor([helper], model=boss).compile()


def swarm() -> Any:
    """An agent that hands over to another one."""
    first = ChunkModel(turns=[[*text("I hand over."), begin("transfer_to_two", "t1", "{}")]])
    one = create_agent(first, [create_handoff_tool(agent_name="two")], name="one")
    two = create_agent(agent_model(), [weather], name="two")
    return create_swarm([one, two], default_active_agent="one").compile()


def summarising() -> Any:
    """An agent that summarises its history before it thinks."""
    summary = SummarizationMiddleware(
        model=ChunkModel(turns=[text("sum", "mary")]), trigger=("messages", 1), keep=("messages", 1)
    )
    return create_agent(agent_model(), [weather], middleware=[summary])


@dataclass
class Notes:
    """A state that is no dict."""

    messages: Annotated[list[BaseMessage], add_messages] = field(default_factory=list)


def without_model(output: Callable[[AIMessage], Any], schema: Any = MessagesState) -> Any:
    """A node that writes an answer itself, in some form of output."""
    builder = StateGraph(schema)
    builder.add_node("agent", lambda _: output(AIMessage("Fixed.", id="fixed")))
    builder.add_edge(START, "agent")
    return builder.compile()


SUNNY = ["Sunny today."]
CITIES = ('{"city": "Rome"}', '{"city": "Oslo"}')
BOTH = ["sunny in Rome", "sunny in Oslo"]
FIXED = ["Fixed."]
KINDS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a graph by hand": (lambda: by_hand(agent_model()), SUNNY),
    "create_react_agent": (react, SUNNY),
    "create_agent": (lambda: create_agent(agent_model(), [weather]), SUNNY),
    "with_patching": (lambda: with_patching(create_agent(agent_model(), [weather])), SUNNY),
    "the middleware": (
        lambda: create_agent(agent_model(), [weather], middleware=[PatchToolCallsMiddleware()]),
        SUNNY,
    ),
    "a model without streaming": (
        lambda: create_agent(agent_model().model_copy(update={"disable_streaming": True}), []),
        ["whole"],
    ),
    "return_direct": (
        lambda: create_agent(agent_model("direct"), [direct]),
        ["sunny in Rome"],
    ),
    "ToolStrategy": (
        lambda: create_agent(agent_model("City"), [], response_format=ToolStrategy(City)),
        ["Returning structured response: city='Rome'"],
    ),
    "a model in a tool": (lambda: create_agent(agent_model("ask_model"), [ask_model]), SUNNY),
    "an agent in a tool": (lambda: create_agent(agent_model("ask_agent"), [ask_agent]), SUNNY),
    "a summary": (summarising, SUNNY),
    "an agent as a subgraph": (lambda: as_subgraph(create_agent(agent_model(), [weather])), SUNNY),
    "two return_direct tools in one task": (two_direct, BOTH),
    "the same in a subgraph": (lambda: as_subgraph(two_direct()), BOTH),
    "a node that writes a dict": (lambda: without_model(lambda m: {"messages": m}), FIXED),
    "a node that writes commands": (
        lambda: without_model(lambda m: [Command(update={"messages": [m]})]),
        FIXED,
    ),
    "a node that writes a dataclass": (
        lambda: without_model(lambda m: Notes([m]), Notes),
        FIXED,
    ),
    "a supervisor": (supervisor, ["Sunny today.", "It is done."]),
    "a swarm": (swarm, SUNNY),
}
"""Kind of agent -> how to make it, and the answers that a client must have in the end."""


# --- failed attempts ---------------------------------------------------------------------------


def broken() -> list[Any]:
    """A turn that fails in the middle of its answer."""
    return [*text("So"), ConnectionError("reset by peer")]


def attempts() -> ChunkModel:
    """A model that fails once, then answers."""
    return ChunkModel(turns=[broken(), text("Sunny", " today.")])


RETRY = {"initial_interval": 0.001, "jitter": False}
RETRIES: dict[str, Callable[[], Any]] = {
    "RetryPolicy": lambda: by_hand(attempts(), retry_policy=RetryPolicy(**RETRY)),
    "with_retry": lambda: by_hand(attempts().with_retry(wait_exponential_jitter=False)),
    "with_fallbacks": lambda: by_hand(
        ChunkModel(turns=[broken()]).with_fallbacks([ChunkModel(turns=[text("Sunny", " today.")])])
    ),
    "ModelRetryMiddleware": lambda: create_agent(
        attempts(), [], middleware=[ModelRetryMiddleware(initial_delay=0.001, jitter=False)]
    ),
    "ModelFallbackMiddleware": lambda: create_agent(
        ChunkModel(turns=[broken()]),
        [],
        middleware=[ModelFallbackMiddleware(ChunkModel(turns=[text("Sunny", " today.")]))],
    ),
}
"""Everything that calls a model again -> a graph of which the first attempt fails."""


# --- shapes ------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "messages": {"stream_mode": "messages"},
    "a list of modes": {"stream_mode": ["updates", "messages", "values"]},
    "subgraphs": {"stream_mode": "messages", "subgraphs": True},
    "a list, subgraphs": {"stream_mode": ["messages", "updates"], "subgraphs": True},
    "v2": {"stream_mode": ["messages", "values"], "version": "v2"},
    "v2, subgraphs": {"stream_mode": "messages", "subgraphs": True, "version": "v2"},
}


def stream(graph: Any, shape: str, checker: Checker, **options: Any) -> Iterator[Pair]:
    """The answers of a run, streamed in that shape."""
    return final_answers(graph.stream(INPUT, **OPTIONS[shape]), checker=checker, **options)


def astream(graph: Any, shape: str, checker: Checker, **options: Any) -> AsyncIterator[Pair]:
    """The same, async."""
    return afinal_answers(graph.astream(INPUT, **OPTIONS[shape]), checker=checker, **options)
