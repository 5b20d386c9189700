"""Which nodes are covered, and how: frontends, own tools, and faults that use has shown."""

from __future__ import annotations

import logging
import operator
from typing import Annotated, Any

import pytest
from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from kit import Agent, calls
from langgraph_patch import Patch, is_placeholder, validate_messages, with_patching
from langgraph_patch.errors import GraphError
from support.agents import history, human, lines, thread
from support.running import run, sync_and_async
from support.savers import each_saver
from support.strict import StrictModel, ai

TWO = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
CHART = calls(("show_chart", {}))

# --- A5, A6: the calls of a frontend ------------------------------------------------------------


def with_frontend(model: Any, tools: Any, saver: Any, *, wrap: Any, own_tools: bool = True) -> Any:
    """A graph whose frontend runs `show_chart`: the chat node has nothing to say meanwhile."""
    names = {each.name for each in tools}

    def chat(state: Any) -> Any:
        if getattr(state["messages"][-1], "tool_calls", None):
            return None
        return {"messages": [model.invoke(state["messages"])]}

    def route(state: Any) -> str:
        made = getattr(state["messages"][-1], "tool_calls", [])
        return "tools" if any(call["name"] in names for call in made) else END

    builder = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat")
    if own_tools:
        builder.add_node("tools", ToolNode(tools)).add_edge("tools", "chat")
        builder.add_conditional_edges("chat", route, ["tools", END])
    return wrap(builder.compile(checkpointer=saver))


def bare(graph: Any) -> Any:
    """The graph as it is."""
    return graph


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a5_a_call_that_waits_for_the_frontend(*, asynchronous: bool):
    """The client syncs other state, then sends the result: all is as in the bare graph."""
    found = []
    for wrap in (bare, with_patching):
        options = {"wrap": wrap, "asynchronous": asynchronous}
        agent = Agent(with_frontend, CHART, AIMessage("here it is"), **options)
        agent.say("chart please")
        agent.run({"messages": []})
        waiting = [message.type for message in agent.history]
        agent.run({"messages": [ToolMessage("shown", tool_call_id="c1")]})
        steps = len(list(agent.graph.checkpointer.list(agent.config)))
        found.append((waiting, [message.text for message in agent.history], steps))
    assert found[1] == found[0]
    assert found[0][0] == ["human", "ai"]
    assert found[0][1] == ["chart please", "", "shown", "here it is"]


def test_a5_a_newer_message_ends_the_wait():
    """Then the call gets a placeholder."""
    agent = Agent(with_frontend, CHART, AIMessage("fine"), wrap=with_patching)
    agent.say("chart please")
    agent.say("never mind")
    assert [message.type for message in agent.history] == ["human", "ai", "tool", "human", "ai"]


@pytest.mark.parametrize("options", [{"model_node": "chat"}, {}])
def test_a5_where_there_is_no_frontend(options: Any):
    """A named model node answers every call, and a graph without a `ToolNode` runs its own."""
    wrap = lambda graph: with_patching(graph, **options)
    own_tools = bool(options)
    agent = Agent(with_frontend, AIMessage("fine"), wrap=wrap, own_tools=own_tools)
    history = [HumanMessage("chart please"), CHART]
    agent.graph.update_state(agent.config, {"messages": history}, as_node=START)
    agent.run(None)
    # Without a ToolNode nothing shows that the node calls a model: it may run the call itself.
    assert ("c1" in agent.results) is own_tools


# --- A7: the record wins over the text of deepagents ---------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a7_an_input_without_messages(*, asynchronous: bool):
    """Deepagents ends open calls before the model runs: the repair comes before that."""
    build = lambda model, tools, saver: with_patching(
        create_deep_agent(model, tools, checkpointer=saver)
    )
    agent = Agent(build, TWO, AIMessage("fine"), asynchronous=asynchronous)
    agent.say("pay bob")
    agent.run({"files": {}})
    assert agent.results["c1"] == "sent to bob"
    assert "waiting for human input" in agent.results["c2"]
    assert agent.desk.did == {"mail bob": 1}


# --- A8: a repair is reported once, when it is written -------------------------------------------


@pytest.mark.parametrize("kind", ["react_v2", "create_agent", "recorded"])
def test_a8_a_goto_beside_a_pause(kind: str, caplog: pytest.LogCaptureFixture):
    """The superstep of the goto is never committed, so nothing is reported before the next turn."""
    reported: list[Patch] = []

    def note(patch: Patch, config: RunnableConfig) -> None:
        reported.append(patch)

    agent = Agent(kind, TWO, AIMessage("wait"), AIMessage("fine"), on_patch=note)
    agent.say("pay bob")
    with caplog.at_level(logging.INFO, logger="langgraph_patch"):
        agent.run(Command(goto="model" if kind == "create_agent" else "agent"))
        assert (reported, caplog.messages) == ([], [])
        agent.say("never mind")
    assert len(reported) == len(caplog.messages) == 1
    assert validate_messages(agent.history) == []
    assert agent.results["c1"] == "sent to bob"


def no_results(old: list[Any], new: list[Any]) -> Any:
    """A reducer that accepts no tool messages."""
    return add_messages(old, [m for m in new if not isinstance(m, ToolMessage)])


def test_a8_a_repair_that_cannot_be_written():
    """The model reads a valid history. What the reducer refuses is not written or reported."""

    class Stubborn(TypedDict):
        messages: Annotated[list[AnyMessage], no_results]

    reported: list[Any] = []

    def build(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
        builder = StateGraph(Stubborn).add_edge(START, "agent")
        builder.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
        return with_patching(builder.compile(checkpointer=saver), **options)

    options = {"model_node": "agent", "on_patch": lambda *each: reported.append(each)}
    agent = Agent(build, AIMessage("fine"), AIMessage("bye"), **options)
    agent.graph.update_state(agent.config, {"messages": [TWO]}, as_node=START)
    agent.run(None)
    written = isinstance(agent.history[1], ToolMessage)
    assert len(reported) == written
    assert agent.read.keys() == {"c1", "c2"}


# --- A10: a history of plain dicts ---------------------------------------------------------------


class Dicts(TypedDict):
    """Messages in the format of a provider."""

    messages: Annotated[list[Any], operator.add]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a10_a_history_of_dicts_stays_one(*, asynchronous: bool):
    """It is left alone: the node reads `m["role"]`, in a damaged turn and in later ones."""
    seen: list[list[str]] = []

    def build(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
        def node(state: Any) -> Any:
            seen.append([message["role"] for message in state["messages"]])
            return {"messages": [{"role": "assistant", "content": "fine"}]}

        builder = StateGraph(Dicts).add_node("agent", node).add_edge(START, "agent")
        return with_patching(builder.compile(checkpointer=saver), **options)

    agent = Agent(build, model_node="agent", asynchronous=asynchronous)
    call = {"id": "c1", "type": "function", "function": {"name": "wire", "arguments": "{}"}}
    damage = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    for text in ("never mind", "hello"):
        agent.run({"messages": [*damage, {"role": "user", "content": text}]})
        damage = []
    assert seen == [["assistant", "user"], ["assistant", "user", "assistant", "user"]]
    assert all(isinstance(message, dict) for message in agent.history)


# --- A14: nothing to patch, and which node to name -----------------------------------------------


class Topic(TypedDict):
    """A state without a history."""

    topic: str


def test_a14_a_graph_without_a_history(caplog: pytest.LogCaptureFixture):
    """It is returned as it is, and one line says so; a key that is named must exist."""
    graph = StateGraph(Topic).add_node("dig", lambda _: None).add_edge(START, "dig").compile()
    with caplog.at_level(logging.INFO, logger="langgraph_patch"):
        assert with_patching(graph) is graph
    assert caplog.messages == ["with_patching found no node that reads a history: nothing to patch"]
    with pytest.raises(GraphError, match="messages_key='chat' is no key of the state"):
        with_patching(graph, messages_key="chat")


def test_a14_the_log_says_which_node_to_name(caplog: pytest.LogCaptureFixture):
    """A loop with a tool function of its own: calls at the end stay open until it is named."""

    def build(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
        builder = StateGraph(MessagesState).add_edge(START, "llm").add_node("run", lambda _: None)
        builder.add_node("llm", lambda s: {"messages": [model.invoke(s["messages"])]})
        builder.add_conditional_edges("llm", lambda _: END, ["run", END]).add_edge("run", "llm")
        return with_patching(builder.compile(checkpointer=saver), **options)

    with caplog.at_level(logging.INFO, logger="langgraph_patch"):
        Agent(build)
    assert caplog.text.count("\n") == 1
    assert "if one of them calls a model, name it in model_node) 'run', 'llm'" in caplog.text
    agent = Agent(build, AIMessage("fine"), model_node="llm")
    agent.graph.update_state(agent.config, {"messages": [TWO]}, as_node="run")
    agent.run(None)
    assert agent.results.keys() == {"c1", "c2"}


# --- agents that run their tools in the model node ----------------------------------------


class OwnTools:
    """One node: it runs the open calls of the history, or else calls the model; then it repeats."""

    def __init__(self, *script: Any):
        self.model = StrictModel(script=list(script))
        self.ran: list[str] = []

    def agent(self, state: Any) -> Any:
        """One round."""
        last = state["messages"][-1]
        if not getattr(last, "tool_calls", []):
            return {"messages": [self.model.invoke(state["messages"])]}
        answers = []
        for call in last.tool_calls:
            answer = interrupt("sure?")
            self.ran.append(call["id"])
            answers.append(ToolMessage(f"ran: {answer}", tool_call_id=call["id"]))
        return {"messages": answers}

    def builder(self, name: str = "agent") -> Any:
        """The graph."""
        builder = StateGraph(MessagesState)
        builder.add_node(name, self.agent)
        builder.add_edge(START, name)
        return builder.add_conditional_edges(name, self.onward, [name, "__end__"])

    def onward(self, state: Any) -> str:
        """Repeat until the model answers."""
        last = state["messages"][-1]
        return "agent" if isinstance(last, ToolMessage) or last.tool_calls else "__end__"


@each_saver
async def test_it_runs_its_tools(open_saver: Any):
    """The calls at the tail are left to it, through a pause too."""
    own = OwnTools(ai(("wire", {}, "c1"), id="a1"), AIMessage("done", id="a2"))
    with open_saver() as saver:
        graph = with_patching(own.builder().compile(checkpointer=saver))
        await run(graph, "go")
        await run(graph, Command(resume="yes"))
        assert own.ran == ["c1"]
        found = lines(history(graph, thread()))
        assert found == ["human: go", "ai c1: ", "tool c1: ran: yes", "ai: done"]


@sync_and_async
async def test_a_new_message_over_its_pause_is_repaired(*, asynchronous: bool):
    """The call is no longer at the tail, so nobody would run it."""
    own = OwnTools(ai(("wire", {}, "c1"), id="a1"), AIMessage("fine", id="a2"))
    graph = with_patching(own.builder().compile(checkpointer=InMemorySaver()))
    await run(graph, "go", asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert own.ran == []
    assert [is_placeholder(m) for m in history(graph, thread())].count(True) == 1


async def test_a_named_model_node_answers_its_calls():
    """The application says that the node is a model node: then its calls are answered."""
    own = OwnTools(AIMessage("fine", id="a2"))
    bare = own.builder().compile(checkpointer=InMemorySaver())
    bare.update_state(
        thread(), {"messages": [human("go"), ai(("wire", {}, "c1"), id="a1")]}, as_node=START
    )
    await run(with_patching(bare, model_node="agent"), None)
    assert own.ran == []
    assert [m.type for m in history(bare, thread())] == ["human", "ai", "tool", "ai"]


async def test_it_is_left_alone_inside_a_parent():
    """The same for such an agent as a subgraph."""
    own = OwnTools(ai(("wire", {}, "c1"), id="a1"), AIMessage("done", id="a2"))
    builder = StateGraph(MessagesState).add_node("inside", own.builder().compile())
    parent = builder.add_edge(START, "inside").compile(checkpointer=InMemorySaver())
    graph = with_patching(parent)
    await run(graph, "go")
    await run(graph, Command(resume="yes"))
    assert own.ran == ["c1"]
