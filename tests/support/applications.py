"""Graphs shaped like real applications: nodes of any name, and no hint which of them call models.

Each is an agent of the matrix (`support.agent_matrix`), with the same two tools. None is patched
with an option.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from langchain_core.messages import AnyMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from support.agent_matrix import Agent, Build, Desk, Wrap, script
from support.agents import Graph
from support.open_calls import messages_in
from support.strict import StrictModel


def calling(model: StrictModel, key: str = "messages") -> Callable[[Any], Any]:
    """A node that calls the model with its history."""
    return lambda state: {key: [model.invoke(messages_in(state, key))]}


def calls_tools(state: Any) -> str:
    """The router of LangGraph's tutorials."""
    return "tools" if getattr(messages_in(state)[-1], "tool_calls", None) else END


def running(desk: Desk) -> RunnableLambda[Any, Any]:
    """A node that runs the calls of the last message itself, as LangGraph's quickstart does."""
    tools = {tool.name: tool for tool in desk.tools()}

    def result(call: Any, text: str) -> ToolMessage:
        return ToolMessage(text, tool_call_id=call["id"], name=call["name"])

    def run(state: Any) -> Any:
        calls = messages_in(state)[-1].tool_calls
        return {"messages": [result(c, tools[c["name"]].invoke(c["args"])) for c in calls]}

    async def arun(state: Any) -> Any:
        calls = messages_in(state)[-1].tool_calls
        return {"messages": [result(c, await tools[c["name"]].ainvoke(c["args"])) for c in calls]}

    return RunnableLambda(run, arun)


def loop(schema: Any, model_node: str, model: StrictModel, tools: Any) -> StateGraph[Any]:
    """START -> model <-> tools."""
    builder = StateGraph(schema)
    builder.add_node(model_node, calling(model))
    builder.add_node("tools", tools)
    builder.add_edge(START, model_node)
    builder.add_conditional_edges(model_node, calls_tools, ["tools", END])
    builder.add_edge("tools", model_node)
    return builder


def application(build: Callable[[Desk, StrictModel], StateGraph[Any]]) -> Build:
    """A graph that is compiled with a checkpointer and then patched."""
    return lambda desk, model, wrap, saver: wrap(build(desk, model).compile(checkpointer=saver))


# --- the shapes ----------------------------------------------------------------------------


class Chat(BaseModel):
    """A state as a pydantic model."""

    messages: Annotated[list[AnyMessage], add_messages] = Field(default_factory=list)
    turns: int = 0


class Debate(MessagesState):
    """A history, and what the researchers say about it."""

    debate: str


def call_model(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """LangGraph's templates: `call_model` and a `ToolNode`."""
    return loop(MessagesState, "call_model", model, ToolNode(desk.tools()))


def chatbot(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """LangGraph's tutorial, with a pydantic state."""
    return loop(Chat, "chatbot", model, ToolNode(desk.tools()))


def llm_call(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """LangGraph's quickstart: a node of one's own runs the tools."""
    return loop(MessagesState, "llm_call", model, running(desk))


def judge(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """A judge looks at the calls and answers them itself."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", calling(model))
    builder.add_node("judge", running(desk))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "judge", END: END})
    builder.add_edge("judge", "agent")
    return builder


def researchers(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """An analyst with tools, then two researchers who read the same history."""
    builder = loop(Debate, "Market Analyst", model, ToolNode(desk.tools()))
    builder.branches.clear()
    builder.add_conditional_edges(
        "Market Analyst", calls_tools, {"tools": "tools", END: "Bull Researcher"}
    )
    for name, after in (("Bull Researcher", "Bear Researcher"), ("Bear Researcher", END)):
        own = script()

        def research(state: Any, own: StrictModel = own) -> Any:
            return {"debate": own.invoke(state["messages"]).text}

        builder.add_node(name, research)
        builder.add_edge(name, after)
    return builder


def trimming(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """A node that removes all but the last three turns comes before the model."""

    def trim(state: Any) -> Any:
        turns = [i for i, m in enumerate(state["messages"]) if m.type == "human"]
        start = turns[-3] if len(turns) > 3 else 0
        return {"messages": [RemoveMessage(id=m.id) for m in state["messages"][:start]]}

    builder = loop(MessagesState, "call_model", model, ToolNode(desk.tools()))
    builder.edges.clear()
    builder.add_node("trim", trim)
    builder.add_edge(START, "trim")
    builder.add_edge("tools", "trim")
    builder.add_edge("trim", "call_model")
    return builder


def team(desk: Desk, model: StrictModel) -> StateGraph[Any]:
    """A graph with its own model and tools is a node, and a writer comes after it."""
    own = script()

    def write(state: Any) -> Any:
        return {"debate": own.invoke(state["messages"]).text}

    builder = StateGraph(Debate)
    builder.add_node("team", call_model(desk, model).compile())
    builder.add_node("writer", write)
    builder.add_edge(START, "team")
    builder.add_edge("team", "writer")
    return builder


@dataclass(frozen=True, slots=True)
class Application:
    """A graph, and how `with_patching` covers it.

    Attributes:
        agent: The graph, as the matrix takes it.
        covered: The line that the log has.
        writes: Whether a node that calls the model writes repairs. If not, the state is repaired
            when the next message arrives.
        shortens: Whether a node removes messages.
    """

    agent: Agent
    covered: str
    writes: bool = True
    shortens: bool = False


LEFT = (
    "leaves calls at the end of the history alone in (if one of them calls a model, name it in "
    "model_node) "
)


def _with_tools(model_node: str, *others: str) -> str:
    alone = f"{LEFT}{', '.join(others)}; "
    return (
        f"with_patching repairs the whole history of '{model_node}'; {alone if others else ''}"
        f"does not touch the tool nodes 'tools'"
    )


def _agent(build: Any, model_node: str, **options: Any) -> Agent:
    return Agent(build.__name__, application(build), model_node, records=False, **options)


APPLICATIONS = (
    Application(_agent(call_model, "call_model"), _with_tools("call_model")),
    Application(_agent(chatbot, "chatbot"), _with_tools("chatbot")),
    Application(
        _agent(llm_call, "llm_call"), f"with_patching {LEFT}'llm_call', 'tools'", writes=False
    ),
    Application(
        _agent(judge, "agent"), f"with_patching repairs the whole history of 'agent'; {LEFT}'judge'"
    ),
    Application(
        _agent(researchers, "Market Analyst"),
        _with_tools("Market Analyst", "'Bull Researcher'", "'Bear Researcher'"),
    ),
    Application(
        _agent(trimming, "call_model"),
        _with_tools("trim", "'call_model'"),
        writes=False,
        shortens=True,
    ),
    Application(
        _agent(team, "team", is_inside=True),
        f"with_patching repairs the whole history of 'team.call_model'; {LEFT}'writer'; does not "
        f"touch the tool nodes 'team.tools'",
        writes=False,
    ),
)


# --- what a frontend answers, two histories, two models at once ----------------------------


def frontend(model: StrictModel, wrap: Wrap, saver: InMemorySaver) -> Graph:
    """Calls are answered by the frontend, for which a node waits."""

    def wait_for_frontend(state: Any) -> Any:
        calls = state["messages"][-1].tool_calls
        answer = interrupt([call["name"] for call in calls])
        return {
            "messages": [
                ToolMessage(answer, tool_call_id=call["id"], name=call["name"]) for call in calls
            ]
        }

    builder = StateGraph(MessagesState)
    builder.add_node("copilot", calling(model))
    builder.add_node("wait_for_frontend", wait_for_frontend)
    builder.add_edge(START, "copilot")
    ends = {"tools": "wait_for_frontend", END: END}
    builder.add_conditional_edges("copilot", tools_condition, ends)
    builder.add_edge("wait_for_frontend", "copilot")
    return wrap(builder.compile(checkpointer=saver))


class TwoHistories(TypedDict):
    """The history of the researcher, and that of the supervisor."""

    messages: Annotated[list[AnyMessage], add_messages]
    supervisor_messages: Annotated[list[AnyMessage], add_messages]


def two_histories(
    desk: Desk, researcher: StrictModel, chief: StrictModel, wrap: Wrap, saver: InMemorySaver
) -> Graph:
    """A supervisor with a history of its own, then a researcher with tools."""
    builder = loop(TwoHistories, "researcher", researcher, ToolNode(desk.tools()))
    builder.edges.discard((START, "researcher"))
    builder.add_node("supervisor", calling(chief, "supervisor_messages"))
    builder.add_node("supervisor_tools", ToolNode(desk.tools(), messages_key="supervisor_messages"))
    builder.add_edge(START, "supervisor")
    builder.add_edge("supervisor_tools", "supervisor")
    builder.add_conditional_edges(
        "supervisor",
        lambda state: tools_condition(state, "supervisor_messages"),
        {"tools": "supervisor_tools", END: "researcher"},
    )
    return wrap(builder.compile(checkpointer=saver))


def parallel_models(
    desk: Desk, models: dict[str, StrictModel], wrap: Wrap, saver: InMemorySaver
) -> Graph:
    """Two models read the same history in the same superstep, and both answer."""
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(desk.tools()))
    for name, model in models.items():
        builder.add_node(name, calling(model))
        builder.add_edge(START, name)
        builder.add_edge("tools", name)
    return wrap(builder.compile(checkpointer=saver))
