"""`record=True`: each call of a ToolNode is a task of its own; otherwise the graph is the same."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Annotated, Any, Literal

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import (
    InjectedState,
    ToolNode,
    ToolRuntime,
    create_react_agent,
    tools_condition,
)
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

import kit
from kit import STATES, Agent, Desk, StrictModel, calls, history_of, loop, results_in
from langgraph_patch import with_patching
from support.running import in_turn

MAIL_AND_WIRE = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
WAITED = "was waiting for human input when another message came in"
BOTH_WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def agent_of(builder: Any, *script: Any, desk: Desk | None = None, **options: Any) -> Agent:
    """An agent over a builder that takes the model and the tools."""

    def build(model: Any, tools: Any, saver: Any, **settings: Any) -> Any:
        graph = builder(model, tools).compile(checkpointer=saver, **options.pop("compiled", {}))
        return with_patching(graph, record=True, **settings)

    asynchronous = options.pop("asynchronous", False)
    settings = {k: v for k, v in options.items() if k != "compiled"}
    return Agent(build, *script, asynchronous=asynchronous, desk=desk, **settings)


# --- what it is for -------------------------------------------------------------------------


def test_a_result_beside_a_failed_call_is_recovered():
    """An error that the ToolNode raises ends the run; the next turn reads what was recorded."""
    tools = Desk()

    def builder(model, used):
        return loop(model, ToolNode(used, handle_tool_errors=False))

    script = calls(("mail", {"to": "bob"}), ("boom", {"text": "x"}))
    agent = agent_of(builder, script, desk=tools)
    with pytest.raises(RuntimeError, match="kaput"):
        agent.say("go")
    agent.say("and now?")
    assert agent.read["c1"] == "sent to bob"
    assert "failed in its last recorded attempt: RuntimeError('kaput x')" in agent.read["c2"]


@pytest.mark.slow
def test_a_result_of_a_killed_process_is_recovered(tmp_path):
    """The process dies in one call; the result of the other one is in the database."""
    did = kit.kill("recorded", tmp_path / "t.sqlite")
    agent = Agent("recorded", saver=tmp_path / "t.sqlite")
    agent.say("and now?")
    assert did == {"mail bob": 1}
    assert agent.read["c1"] == "sent to bob"
    assert "may or may not have run" in agent.read["c2"]


@BOTH_WAYS
def test_two_calls_that_ask_get_their_own_answers(asynchronous):
    """Each answer by interrupt id reaches its call; an answer without an id is refused."""
    script = calls(("wire", {"amount": 1}), ("wire", {"amount": 2}))
    agent = Agent("recorded", script, asynchronous=asynchronous)
    agent.say("pay")
    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        agent.run(Command(resume="yes"))
    answers = {each.id: f"answer to {each.value}" for each in agent.interrupts}
    agent.run(Command(resume=answers))
    assert agent.results == {"c1": "wired 1: answer to wire 1?", "c2": "wired 2: answer to wire 2?"}


# --- the same graph otherwise ---------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("state", "asynchronous"), in_turn(STATES, [False, True]))
def test_a_tool_reads_the_state_of_its_node(state, asynchronous):
    """`InjectedState` and `ToolRuntime.state` have the type and the values of the bare graph."""
    read = []

    @tool
    def look(
        whole: Annotated[Any, InjectedState],
        messages: Annotated[list, InjectedState("messages")],
        runtime: ToolRuntime,
    ) -> str:
        """Look."""
        read.append((whole, messages, runtime.state, runtime.tool_call_id))
        return "seen"

    def play(**options):
        read.clear()
        model = StrictModel(script=[calls(("look", {}))])
        bare = loop(model, [look], state=STATES[state])
        agent = Agent(
            lambda _, __, saver: with_patching(bare.compile(checkpointer=saver), **options),
            asynchronous=asynchronous,
        )
        agent.say("go")
        assert agent.results == {"c1": "seen"}
        (whole, messages, of_runtime, call_id) = read[0]
        types = [type(whole), type(of_runtime), [m.type for m in messages], call_id]
        return types, len(history_of(whole))

    assert play(record=True) == play()


def test_a_state_that_a_parallel_node_wrote_is_fresh():
    """The tool reads what a node beside the model wrote in the superstep before."""
    read = []

    class State(MessagesState):
        mood: str

    @tool
    def look(mood: Annotated[str, InjectedState("mood")]) -> str:
        """Look."""
        read.append(mood)
        return "seen"

    builder = loop(StrictModel(script=[calls(("look", {}))]), [look], state=State)
    builder.add_node("beside", lambda _: {"mood": "new"})
    builder.add_edge(START, "beside")
    graph = with_patching(builder.compile(), record=True)
    graph.invoke({"messages": [HumanMessage("go")], "mood": "old"})
    assert read == ["new"]


def test_a_history_under_another_key():
    """`messages_key` of the ToolNode is respected."""

    class State(TypedDict):
        talk: Annotated[list[AnyMessage], add_messages]

    def condition(state):
        return tools_condition(state, messages_key="talk")

    desk = Desk()
    model = StrictModel(script=[MAIL_AND_WIRE])
    builder = loop(model, desk.tools(), state=State, router=condition, key="talk")
    graph = with_patching(
        builder.compile(checkpointer=InMemorySaver()), record=True, messages_key="talk"
    )
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({"talk": [HumanMessage("go")]}, config)
    graph.invoke({"talk": [HumanMessage("never mind")]}, config)
    read = results_in(model.seen[-1])
    assert read["c1"] == "sent to bob"
    assert WAITED in read["c2"]


def two_tool_nodes(model, tools):
    """A graph whose router chooses between two tool nodes."""
    mail, wire, _ = tools

    def route(state) -> Literal["mails", "wires", "__end__"]:
        names = [call["name"] for call in state["messages"][-1].tool_calls]
        return END if not names else "wires" if "wire" in names else "mails"

    builder = StateGraph(MessagesState)
    builder.add_node("agent", kit.model_node(model))
    builder.add_node("mails", ToolNode([mail]))
    builder.add_node("wires", ToolNode([mail, wire]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route)
    builder.add_edge(["mails"], "agent")
    builder.add_edge("wires", "agent")
    return builder


@BOTH_WAYS
def test_two_tool_nodes(asynchronous):
    """Each call goes to the node that the router names."""
    first = calls(("mail", {"to": "al"}))
    second = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), first=2)
    agent = agent_of(two_tool_nodes, first, second, asynchronous=asynchronous)
    agent.say("go")
    assert [task.name for task in agent.graph.get_state(agent.config).tasks] == ["wires", "wires"]
    agent.say("never mind")
    assert agent.read["c1"] == "sent to al"
    assert agent.read["c2"] == "sent to bob"


def test_an_edit_at_a_breakpoint():
    """The edited calls run, and not the ones before the edit."""
    script = calls(("mail", {"to": "bob"}), id="a1")
    agent = agent_of(loop, script, compiled={"interrupt_before": ["tools"]})
    agent.say("go")
    assert agent.graph.get_state(agent.config).next == ("tools",)
    edited = calls(("mail", {"to": "al"}), ("mail", {"to": "eve"}), id="a1")
    agent.graph.update_state(agent.config, {"messages": [edited]})
    agent.run(None)
    assert agent.desk.did == {"mail al": 1, "mail eve": 1}
    assert agent.history[-1].text == "done"


def test_a_call_that_is_answered_already_does_not_run():
    """Only the open calls of the last message are sent."""
    agent = agent_of(loop, MAIL_AND_WIRE, compiled={"interrupt_before": ["tools"]})
    agent.say("go")
    answer = ToolMessage("by hand", tool_call_id="c1")
    agent.graph.update_state(agent.config, {"messages": [answer]}, as_node="agent")
    # `tools_condition` looks at the last message only, so the run would end here.
    assert agent.graph.get_state(agent.config).next == ()
    fixed = agent_of(
        lambda model, tools: loop(model, tools, router=lambda _: "tools"), MAIL_AND_WIRE
    )
    fixed.graph.update_state(
        fixed.config, {"messages": [HumanMessage("go"), MAIL_AND_WIRE, answer]}, as_node="agent"
    )
    fixed.run(None)
    assert not fixed.desk.did
    assert [each.value for each in fixed.interrupts] == ["wire 5?"]


def test_no_open_call_goes_where_the_tools_lead():
    """The fan-out is never empty: the run goes on as in the bare graph."""
    answered = [
        HumanMessage("go"),
        calls(("mail", {"to": "bob"})),
        ToolMessage("by hand", tool_call_id="c1"),
    ]

    def to_tools(model, tools):
        builder = StateGraph(MessagesState)
        builder.add_node("start", lambda _: {"messages": answered})
        builder.add_node("tools", ToolNode(tools))
        builder.add_node("agent", kit.model_node(model))
        builder.add_edge(START, "start")
        builder.add_edge("start", "tools")
        builder.add_edge("tools", "agent")
        return builder

    agent = agent_of(to_tools)
    agent.run({"messages": []})
    assert agent.history[-1].text == "done"
    assert not agent.desk.did


def with_router_behind(model, tools):
    """A loop whose tool node has a router: a mail ends the run."""
    seen = []

    def after(state) -> Literal["agent", "__end__"]:
        seen.append(len(state["messages"]))
        last = [m for m in state["messages"] if isinstance(m, ToolMessage)]
        return END if any(m.name == "mail" for m in last) else "agent"

    builder = loop(model, tools)
    builder.edges.discard(("tools", "agent"))
    builder.add_conditional_edges("tools", after)
    builder.seen = seen
    return builder


@BOTH_WAYS
def test_a_router_behind_the_tools_runs_once_and_sees_all_results(asynchronous):
    """It decides by all results, in a node of its own."""
    builders = []

    def build(model, tools):
        builders.append(with_router_behind(model, tools))
        return builders[0]

    script = calls(("mail", {"to": "al"}), ("mail", {"to": "bob"}))
    agent = agent_of(build, script, asynchronous=asynchronous)
    agent.say("go")
    assert builders[0].seen == [4]
    assert agent.history[-1].type == "tool"
    assert len(agent.model.seen) == 1


def test_the_superstep_of_the_router_does_not_count():
    """The recursion limit ends a run where it ends the bare run."""

    def play(limit, **options):
        script = [calls(("boom", {"text": "x"}), ("boom", {"text": "y"}))] * 2
        model = StrictModel(script=script)
        builder = with_router_behind(model, Desk().tools())
        builder.nodes["tools"].runnable._handle_tool_errors = True  # noqa: SLF001 - as its option
        graph = with_patching(builder.compile(), **options)
        try:
            graph.invoke({"messages": [HumanMessage("go")]}, {"recursion_limit": limit})
        except GraphRecursionError:
            return "limit", len(model.seen)
        return "end", len(model.seen)

    limits = range(2, 8)
    assert [play(n, record=True) for n in limits] == [play(n) for n in limits]


@BOTH_WAYS
def test_a_join_behind_the_tools(asynchronous):
    """An edge from several nodes waits for all calls."""
    order = []

    def build(model, tools):
        builder = StateGraph(MessagesState)
        builder.add_node("agent", kit.model_node(model))
        builder.add_node("tools", ToolNode(tools))
        builder.add_node("beside", lambda _: order.append("beside"))
        builder.add_node("joined", lambda state: order.append(len(state["messages"])))
        builder.add_edge(START, "agent")
        builder.add_edge("agent", "tools")
        builder.add_edge("agent", "beside")
        builder.add_edge(["tools", "beside"], "joined")
        return builder

    script = calls(("mail", {"to": "al"}), ("mail", {"to": "bob"}))
    agent_of(build, script, asynchronous=asynchronous).say("go")
    assert order == ["beside", 4]


def test_two_nodes_that_lead_to_the_tools_at_once_run_each_call_once():
    """The bare graph runs the tool node once."""

    def build(model, tools):
        builder = StateGraph(MessagesState)
        builder.add_node("agent", kit.model_node(model))
        builder.add_node("one", lambda _: None)
        builder.add_node("two", lambda _: None)
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "agent")
        for node in ("one", "two"):
            builder.add_edge("agent", node)
            builder.add_edge(node, "tools")
        return builder

    twins = calls(("mail", {"to": "bob"}), ("mail", {"to": "bob"}))
    twins.tool_calls[1]["id"] = "c1"
    for message in (calls(("mail", {"to": "al"}), ("mail", {"to": "bob"})), twins):
        agent = agent_of(build, message)
        agent.say("go")
        assert agent.desk.did.total() == 2


def test_a_healthy_run_has_the_messages_of_the_bare_run():
    """The history, the order of results and the chunks of the nodes are the same."""

    def play(**options):
        script = calls(*(("mail", {"to": str(number)}) for number in range(5)))
        agent = Agent("hand_built", script, **options)
        chunks = agent.stream({"messages": [HumanMessage("go")]}, ["updates"])
        shown = Counter(
            (node, message.type, message.text)
            for _, chunk in chunks
            for node, update in chunk.items()
            for message in update["messages"]
        )
        return [(m.type, m.text) for m in agent.history], shown

    assert play(record=True) == play()


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("also", [(), (("mail", {"to": "bob"}),)])
def test_return_direct(also):
    """A tool with `return_direct` ends the turn, also beside another call."""

    @tool(return_direct=True)
    def answer() -> str:
        """Answer the user."""
        return "42"

    def play(**options):
        model = StrictModel(script=[calls(("answer", {}), *also)])
        graph = create_react_agent(model, [answer, *Desk().tools()], version="v1")
        values = with_patching(graph, **options).invoke({"messages": [HumanMessage("go")]})
        return [(m.type, m.text) for m in values["messages"]]

    assert play(record=True) == play()
    assert "42" in [text for _, text in play(record=True)]
    assert play(record=True)[-1][0] == "tool"


# --- what cannot be recorded ----------------------------------------------------------------


class Slow(ToolNode):
    """A subclass that decides how it runs."""

    def _func(self, input, config: RunnableConfig, runtime: Runtime):
        return super()._func(input, config, runtime)


def _waiting(model, tools):
    builder = loop(model, tools)
    builder.branches.pop("agent")
    builder.add_node("beside", lambda _: None)
    builder.add_edge(START, "beside")
    builder.add_edge(["agent", "beside"], "tools")
    return builder


def _commanded(model, tools):
    def goto(state) -> Command[Literal["tools"]]:
        return Command(goto="tools" if state["messages"][-1].tool_calls else END)

    builder = loop(model, tools)
    builder.branches.pop("agent")
    builder.add_node("gate", goto)
    builder.add_edge("agent", "gate")
    return builder


def _sequence(model, tools):
    builder = loop(model, tools)
    builder.nodes["tools"].runnable |= lambda output: output
    return builder


UNRECORDED = {
    "an edge from several nodes": _waiting,
    "a Command of 'gate'": _commanded,
    "one step of a sequence": _sequence,
    "Slow, a subclass": lambda model, tools: loop(model, Slow(tools)),
}


@pytest.mark.parametrize("reason", UNRECORDED)
def test_a_warning_names_what_cannot_be_recorded(reason, caplog):
    """It names the node and the reason, and the calls run as one task."""
    caplog.set_level(logging.WARNING, logger="langgraph_patch")
    script = calls(("mail", {"to": "al"}), ("mail", {"to": "bob"}))
    agent = agent_of(UNRECORDED[reason], script)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "the node 'tools'" in record.getMessage()
    assert reason in record.getMessage()
    agent.say("go")
    assert agent.desk.did == {"mail al": 1, "mail bob": 1}


def test_the_tool_node_stays_a_tool_node():
    """Others look for it: `langgraph-swarm` for handoffs, LangGraph when it draws the graph."""
    graph = with_patching(loop(StrictModel(), Desk().tools()).compile(), record=True)
    assert isinstance(graph.nodes["tools"].bound, ToolNode)
    assert list(graph.nodes["tools"].bound.tools_by_name) == ["mail", "wire", "boom"]


def test_an_interrupt_in_a_wrapper_of_the_tool_node_is_that_of_its_call():
    """An approval that a `wrap_tool_call` asks for is answered by id, each call for itself."""

    def approve(request, execute):
        answer = interrupt(f"run {request.tool_call['args']['to']}?")
        assert "langgraph_patch" not in request.tool_call
        if answer == "no":
            return ToolMessage("rejected", tool_call_id=request.tool_call["id"])
        return execute(request)

    script = calls(("mail", {"to": "al"}), ("mail", {"to": "bob"}))

    def build(model, tools):
        return loop(model, ToolNode(tools, wrap_tool_call=approve))

    agent = agent_of(build, script)
    agent.say("go")
    answers = {e.id: "no" if "al" in e.value else "yes" for e in agent.interrupts}
    agent.run(Command(resume=answers))
    assert agent.results == {"c1": "rejected", "c2": "sent to bob"}


def test_a_message_without_a_call_raises_as_in_the_bare_graph():
    """What a ToolNode refuses, it refuses still."""
    builder = loop(StrictModel(), Desk().tools())
    builder.edges.discard((START, "agent"))
    builder.add_edge(START, "tools")
    graph = with_patching(builder.compile(), record=True)
    with pytest.raises(ValueError, match="No AIMessage"):
        graph.invoke({"messages": [HumanMessage("go")]})


def test_what_can_be_recorded_warns_nothing(caplog):
    """A `ToolNode` with a config and retries is recorded."""
    caplog.set_level(logging.WARNING, logger="langgraph_patch")

    def build(model, tools):
        builder = loop(model, tools)
        node = builder.nodes["tools"]
        node.runnable = node.runnable.with_config(tags=["t"]).with_retry(stop_after_attempt=1)
        return builder

    agent = agent_of(build, MAIL_AND_WIRE)
    agent.say("pay")
    agent.resume()
    assert not caplog.records
    assert agent.desk.did == {"mail bob": 1, "wire 5": 1}
