"""`record=True`: each call of a ToolNode is a task of its own; otherwise the graph is the same."""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnablePassthrough
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from langgraph.types import CachePolicy, Command, Send

from kit import BARE, Agent, Desk, StrictModel, above, calls, loop, model_node
from langgraph_patch import with_patching
from langgraph_patch.errors import GraphError

MAIL = ("mail", {"to": "bob"})
MAIL_AND_WIRE = calls(MAIL, ("wire", {"amount": 5}))
TWO_MAILS = calls(("mail", {"to": "al"}), MAIL)


def recorded(builder: Any, **compiled: Any) -> Any:
    """A kind of agent: what `builder` makes of a model and tools, with `record=True`."""

    def build(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
        graph = builder(model, tools).compile(checkpointer=saver, **compiled)
        return with_patching(graph, **{"record": True, **options})

    return build


def chain(*edges: tuple[Any, str], **nodes: Any) -> Any:
    """A builder of a graph without a router: these edges and nodes, a model and a ToolNode."""

    def build(model: Any, tools: Any) -> StateGraph[Any]:
        builder = StateGraph(MessagesState)
        builder.add_node("agent", model_node(model))
        builder.add_node("tools", ToolNode(tools))
        for name, node in nodes.items():
            builder.add_node(name, node)
        for source, target in edges:
            builder.add_edge(source, target)
        return builder

    return build


def retrying(model: Any, tools: Any) -> Any:
    """A loop whose ToolNode has a config and retries."""
    builder = loop(model, tools)
    node = builder.nodes["tools"]
    node.runnable = node.runnable.with_config(tags=["t"]).with_retry(stop_after_attempt=1)
    return builder


@pytest.mark.parametrize("build", [loop, retrying, chain((START, "agent"), ("agent", "tools"))])
def test_each_call_is_a_task_of_its_own(build, caplog):
    """Whatever leads to the tool node. A result beside a pause is stored, and not made twice."""
    agent = Agent(recorded(build), MAIL_AND_WIRE)
    assert not caplog.records
    agent.say("go")
    assert [task.name for task in agent.graph.get_state(agent.config).tasks] == ["tools", "tools"]
    agent.resume()
    assert agent.desk.did == {"mail bob": 1, "wire 5": 1}
    assert agent.results == {"c1": "sent to bob", "c2": "wired 5: yes"}


def test_two_tool_nodes():
    """Each call goes to the node that the router names."""

    def route(state) -> Literal["mails", "tools", "__end__"]:
        names = [call["name"] for call in state["messages"][-1].tool_calls]
        return END if not names else "tools" if "wire" in names else "mails"

    def build(model, tools):
        builder = loop(model, tools)
        builder.branches.clear()
        builder.add_node("mails", ToolNode(tools[:1])).add_edge(["mails"], "agent")
        return builder.add_conditional_edges("agent", route)

    second = calls(MAIL, ("wire", {"amount": 5}), first=2)
    agent = Agent(recorded(build), calls(("mail", {"to": "al"})), second, asynchronous=True)
    agent.say("go")
    assert [task.name for task in agent.graph.get_state(agent.config).tasks] == ["tools", "tools"]
    agent.say("never mind")
    assert (agent.read["c1"], agent.read["c2"]) == ("sent to al", "sent to bob")


@pytest.mark.parametrize(
    ("message", "asked"), [(calls(MAIL), []), (calls(MAIL, ("wire", {"amount": 5})), ["wire 5?"])]
)
def test_only_open_calls_are_sent(message, asked):
    """A call that is answered already does not run. If none is open, the run goes on."""
    answered = [HumanMessage("go"), message, ToolMessage("by hand", tool_call_id="c1")]
    edges = [(START, "first"), ("first", "tools"), ("tools", "agent")]
    agent = Agent(recorded(chain(*edges, first=lambda _: {"messages": answered})))
    agent.run({"messages": []})
    assert [each.value for each in agent.interrupts] == asked
    assert (agent.history[-1].text == "done") is not bool(asked)
    assert not agent.desk.did


def with_router_behind(seen: list[int]) -> Any:
    """A loop whose tool node has a router: a mail ends the run."""

    def after(state) -> Literal["agent", "__end__"]:
        seen.append(len(state["messages"]))
        return END if "mail" in {getattr(m, "name", None) for m in state["messages"]} else "agent"

    def build(model, tools):
        builder = loop(model, ToolNode(tools, handle_tool_errors=True))
        builder.edges.discard(("tools", "agent"))
        return builder.add_conditional_edges("tools", after)

    return build


def test_a_router_behind_the_tools_runs_once_and_sees_all_results():
    """It decides by all results, in a node of its own."""
    seen: list[int] = []
    agent = Agent(recorded(with_router_behind(seen)), TWO_MAILS, asynchronous=True)
    agent.say("go")
    assert seen == [4]
    assert agent.history[-1].type == "tool"
    assert len(agent.model.seen) == 1


def test_two_nodes_that_lead_to_the_tools_at_once():
    """No call runs twice: the run fails before it, with an error that says what to do."""
    edges = [(START, "agent"), ("agent", "one"), ("agent", "two"), ("one", "tools")]
    nodes = dict.fromkeys(["one", "two"], lambda _: None)
    agent = Agent(recorded(chain(*edges, ("two", "tools"), **nodes)), TWO_MAILS)
    with pytest.raises(GraphError, match="Two nodes of one superstep lead to 'tools'"):
        agent.say("go")
    assert agent.desk.did.total() == 0


class Slow(ToolNode):
    """A subclass that decides how it runs."""

    def _func(self, input, config: RunnableConfig, runtime: Runtime):
        return super()._func(input, config, runtime)


def goto(state) -> Command[Literal["tools"]]:
    """A node that names the tool node itself."""
    return Command(goto="tools" if state["messages"][-1].tool_calls else END)


def in_a_sequence(model: Any, tools: Any) -> Any:
    """A loop whose tool node is behind another step, and a tool node that is recorded."""
    builder = loop(model, tools)
    builder.nodes.pop("tools")
    builder.add_node("tools", RunnablePassthrough() | ToolNode(tools))
    builder.add_node("other", ToolNode(tools))
    return builder.add_conditional_edges("agent", lambda _: END, ["other", END])


def with_options(**options: Any) -> Any:
    """A loop whose tool node was added with options."""

    def build(model: Any, tools: Any) -> Any:
        builder = loop(model, tools)
        builder.nodes.pop("tools")
        return builder.add_node("tools", ToolNode(tools), **options)

    return build


UNRECORDED = {
    "has a cache": with_options(cache_policy=CachePolicy(key_func=lambda s: s["messages"][-1].id)),
    "has an error handler": with_options(error_handler=print),
    "an edge from several nodes": chain(
        (START, "agent"), (START, "beside"), (["agent", "beside"], "tools"), beside=lambda _: None
    ),
    "a Command": chain((START, "agent"), ("agent", "gate"), ("tools", "agent"), gate=goto),
    "is a step of a sequence": in_a_sequence,
    "a subclass of ToolNode": lambda model, tools: loop(model, Slow(tools)),
}


@pytest.mark.needs("error handler", langgraph="1.2")
@pytest.mark.parametrize("reason", UNRECORDED)
def test_a_warning_names_what_cannot_be_recorded(reason, caplog):
    """A3, B6: it names the node and the reason, and the calls run as one task."""
    caplog.set_level(logging.WARNING, logger="langgraph_patch")
    agent = Agent(recorded(UNRECORDED[reason]), TWO_MAILS)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    start = "record=True does not record the calls of the node 'tools' one by one: "
    assert record.getMessage().startswith(start)
    assert reason in record.getMessage()
    agent.say("go")
    assert agent.desk.did == {"mail al": 1, "mail bob": 1}


def whole_state(state: Any) -> Any:
    """A router that sends the state."""
    return [Send("tools", state)] if state["messages"][-1].tool_calls else END


def all_calls(state: Any) -> Any:
    """A router that sends all calls in one list."""
    made = state["messages"][-1].tool_calls
    return [Send("tools", made)] if made else END


def unannotated(state: Any) -> Any:
    """A node that names the tool node, as nothing shows before it runs."""
    return Command(goto="tools" if state["messages"][-1].tool_calls else END)


def goto_beside(edge: str) -> Any:
    """Such a node; an edge or a router of another node leads to the tools."""

    def build(model: Any, tools: Any) -> Any:
        builder = loop(model, tools)
        builder.branches.clear()
        builder.add_node("gate", unannotated).add_edge("agent", "gate").add_node("beside", print)
        if edge == "edge":
            return builder.add_edge("beside", "tools")
        return builder.add_conditional_edges("beside", tools_condition, ["tools", END])

    return build


TOGETHER = {
    "the router 'whole_state' of 'agent'": lambda *parts: loop(*parts, router=whole_state),
    "the router 'all_calls' of 'agent'": lambda *parts: loop(*parts, router=all_calls),
    "the router 'tools_condition' of 'beside'": goto_beside("router"),
    "the node before it": goto_beside("edge"),
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("sender", TOGETHER)
def test_a_warning_says_that_calls_came_together(sender, caplog, *, asynchronous: bool):
    """Once, when it happens: it names the node and its routers, and what to return instead."""
    second = calls(MAIL, ("wire", {"amount": 5}), first=3)
    agent = Agent(recorded(TOGETHER[sender]), TWO_MAILS, second, asynchronous=asynchronous)
    agent.say("go")
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "does not record the calls of the node 'tools' one by one" in record.getMessage()
    assert record.getMessage().endswith(
        f"Let {sender} return the name of the node, or a Send for each call"
    )
    assert (agent.desk.did["mail bob"], len(agent.interrupts)) == (2, 1)


def test_a_graph_that_sends_each_call_is_left_as_it_is(caplog):
    """No node, no superstep, no checkpoint more; and without any `ToolNode` a WARNING says so."""
    model = StrictModel(script=[TWO_MAILS])
    for kind in ("create_agent", "react_v2"):
        bare = BARE[kind](model, Desk().tools(), None)
        added = with_patching(bare, record=True).nodes.keys() - bare.nodes.keys()
        assert added == {"patch_tool_calls"}
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    with_patching(above(model_node(model)), record=True)
    assert caplog.messages == ["record=True records nothing: no node of the graph is a ToolNode"]


def test_twins_are_two_calls():
    """Two equal calls of one message, with one id, run once each."""
    message = calls(MAIL, MAIL)
    message.tool_calls[1]["id"] = "c1"
    agent = Agent("recorded", message, recover=False)
    agent.say("go")
    assert agent.desk.did.total() == 2
