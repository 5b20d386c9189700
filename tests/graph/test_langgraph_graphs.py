"""The details of LangGraph in `_langgraph_graphs.py`: graphs that are built.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

import inspect
import operator
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send
from typing_extensions import TypedDict

from kit import BARE, Agent, RunNames, above, calls
from langgraph_patch import _langgraph_graphs as lg
from langgraph_patch._langgraph_storage import ROOT_CHANNEL
from langgraph_patch.graph.node import PatchedNode

THREAD: Any = {"configurable": {"thread_id": "1"}}
QUESTION: Any = {"messages": [HumanMessage("hi", id="h1")]}


class State(MessagesState):
    """A state with a second key."""

    note: str


def nothing(state: Any) -> None:
    """A node that writes nothing."""


def build(*nodes: Any) -> Any:
    """A builder with these nodes, one after the other: `node1`, `node2`, and so on."""
    return above(*nodes, state=State)


class Note(TypedDict):
    """A schema with one key of the state."""

    note: str


def goes(_: Any) -> Command[Literal["commanded"]]:
    """A node that says where it goes."""
    return Command(goto="commanded")


def test_what_is_read_of_a_builder():
    """Plain edges, routers with and without a list of ends, joins, commands and deferred nodes.

    A node reads its own schema, or that of the state, which may be a single value.
    """
    builder = build(goes).add_node("own", nothing, input_schema=Note)
    for name in ("plain", "routed", "joined", "commanded", "later", "loops"):
        builder.add_node(name, nothing, defer=name == "later")
    builder.add_edge("node1", "plain").add_edge(["node1", "plain"], "joined")
    builder.add_edge("node1", "later")
    builder.add_conditional_edges("node1", lambda _: "routed", {"go": "routed"})
    builder.add_conditional_edges("loops", lambda _: "loops", ["loops", END])
    after = {node: lg.nodes_after(builder, node) for node in builder.nodes}
    assert {node: ends for node, ends in after.items() if ends} == {
        "node1": {"plain", "joined", "later", "routed", "commanded"},
        "plain": {"joined"},
        "loops": {"loops", END},
    }
    assert [n for n in builder.nodes if lg.can_be_followed(builder, n)] == ["node1", "plain"]
    started = [node for node in builder.nodes if lg.is_started_by_edges(builder, node)]
    assert started == ["node1", "plain", "routed", "loops"]
    assert [source for source, *_ in lg.branches_into(builder, ["routed"])] == ["node1"]
    assert not any(lg.sends_each_call(builder, node) for node in builder.nodes)
    builder.add_conditional_edges("own", lambda _: END)
    assert (lg.nodes_after(builder, "own"), lg.can_be_followed(builder, "own")) == (None, True)
    keys = {"messages", "note"}
    assert set(lg.schema_keys(builder)) == set(lg.output_keys(builder)) == keys
    assert keys <= set(lg.channel_names(builder))
    read = [lg.input_of_node(builder, node) for node in ("node1", "own")]
    assert [(schema, set(names)) for schema, names in read] == [(State, keys), (Note, {"note"})]
    root = StateGraph(Annotated[list[Any], operator.add]).add_node("node1", nothing)
    assert list(lg.keys_read_by(root, "node1")) == [ROOT_CHANNEL]


def test_options_of_nodes():
    """A cache policy and an error handler are those of a node, or of all nodes."""
    options = {"cache_policy": CachePolicy(), "error_handler": lambda _: None}
    builder = build(nothing).add_node("own", nothing, **options)
    asked = (lg.has_cache, lg.handles_errors)
    found = [[ask(builder, node) for ask in asked] for node in ("node1", "own")]
    assert found == [[False, False], [True, True]]
    builder.set_node_defaults(**options)
    assert [ask(builder, "node1") for ask in asked] == [True, True]


def test_graph_that_returns():
    """A compiled graph that is a node is found, also in a wrapper, if it returns the key."""
    subgraph = build(nothing).compile()
    silent = StateGraph(State, output_schema=Note).add_node("n", nothing).add_edge(START, "n")
    builder = build(subgraph, nothing, silent.compile(), PatchedNode(subgraph, {}, (), ()))
    assert lg.node_runnables(builder)["node1"] is subgraph
    found = [lg.graph_that_returns(builder, f"node{i}", "messages") for i in range(1, 6)]
    assert found == [subgraph.builder, None, None, subgraph.builder, None]
    assert lg.graph_that_returns(builder, "node1", "other") is None


def test_copy_builder():
    """The copy of a builder shares no container with it, and compiling it leaves it alone."""
    builder = build(nothing, nothing).add_conditional_edges("node2", lambda _: "node1")
    builder.set_node_defaults(retry_policy=RetryPolicy(), error_handler=nothing)
    builder.compile()
    copied = lg.copy_builder(builder)
    assert (builder.compiled, copied.compiled) == (True, False)
    before = str(sorted(vars(builder).items()))
    copied.add_node("node3", nothing).add_edge("node1", "node3").add_conditional_edges(
        "node1", lambda _: "node3"
    )
    copied.compile()
    assert str(sorted(vars(builder).items())) == before
    containers = {
        name: value for name, value in vars(builder).items() if not isinstance(value, type)
    }
    shared = [value for name, value in containers.items() if vars(copied)[name] is value]
    assert all(value is True or value is None for value in shared)
    assert {"nodes", "edges", "branches", "channels", "schemas", "waiting_edges"} <= set(containers)


def test_read_by_branches():
    """A router reads the keys of its input schema."""
    inputs: list[Any] = []
    builder = StateGraph(State).add_node("node1", nothing, input_schema=Note)
    builder.add_conditional_edges(START, lambda state: inputs.append(state) or "node1")
    lg.read_by_branches(builder, START, Note)
    builder.compile().invoke({**QUESTION, "note": "x"})
    assert inputs == [{"note": "x"}]


def test_compile_like():
    """A graph keeps what it was compiled with and what was set on it since."""
    options = {
        "checkpointer": InMemorySaver(),
        "cache": InMemoryCache(),
        "store": InMemoryStore(),
        "interrupt_before": ["node1"],
        "interrupt_after": ["node2"],
        "debug": True,
        "name": "graph",
        "transformers": [lambda _: None],
    }
    assert set(inspect.signature(StateGraph.compile).parameters) == {"self", *options}
    builder = build(nothing, nothing)
    graph = builder.compile(**options).with_config(tags=["a"])
    graph.step_timeout, graph.stream_mode, graph.stream_eager = 7.0, "values", True
    graph.retry_policy, graph.cache_policy = (RetryPolicy(),), None
    new = lg.compile_like(graph, builder)
    made_again = {"nodes", "channels", "builder", "managed", "stream_channels", "output_channels"}
    names = [name for name in vars(graph) if not name.startswith("_") and name not in made_again]
    assert {name: getattr(new, name) for name in names} == {
        name: getattr(graph, name) for name in names
    }


def test_run_start_untraced():
    """Conditional edges from START run without events, and everything else is as before."""
    seen, drawn, routed = [], [], []
    for change in (None, lg.run_start_untraced):
        builder = StateGraph(State).add_node("node1", nothing).add_node("node2", nothing)
        builder.add_conditional_edges(
            START, lambda _: routed.append(1) or "node2", ["node1", "node2"]
        )
        graph = builder.compile(checkpointer=InMemorySaver())
        if change is not None:
            change(graph)
        drawn.append(graph.get_graph().draw_mermaid())
        handler = RunNames()
        graph.invoke(QUESTION, {**THREAD, "callbacks": [handler]})
        seen.append(handler.names)
    assert START in seen[0]
    assert [name for name in seen[0] if name != START] == seen[1]
    assert drawn[0] == drawn[1]
    assert len(routed) == 2


# --- prebuilt agents and tool nodes ------------------------------------------------------------


class Around(AgentMiddleware[Any, Any, Any]):
    """A middleware with a node before and one after the model."""

    def before_model(self, state: Any, runtime: Any) -> None:
        """Do nothing."""

    def after_model(self, state: Any, runtime: Any) -> None:
        """Do nothing."""


def test_sent_call():
    """Both prebuilt agents send one call to each task of the tools node, with an id and a name."""
    for kind in ("create_agent", "react_v2"):
        agent = Agent(BARE[kind], calls(("wire", {"amount": 1}), ("wire", {"amount": 2})))
        agent.say("go")
        assert lg.sends_each_call(agent.graph.builder, "tools")
        saved = agent.graph.checkpointer.get_tuple(THREAD)
        sends = saved.checkpoint["channel_values"]["__pregel_tasks"]
        assert [(lg.sent_call(send) or {}).get("id") for send in sends] == ["c1", "c2"]
    call = {"id": "c1", "name": "wire", "args": {}}
    assert lg.sent_call(Send("tools", [call])) == call
    for payload in ({**call, "id": ""}, {"id": "c1", "name": "wire"}, [call] * 2, None):
        assert lg.sent_call(Send("tools", payload)) is None


def test_a_tool_node_with_other_functions():
    """It is a copy with the same tools, and the node keeps its own."""
    node = ToolNode([])
    copied = lg.with_functions(node, nothing, None)
    assert copied.tools_by_name is node.tools_by_name
    assert (copied.func, node.func is nothing) == (nothing, False)


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_nodes_around_the_model_of_the_prebuilt_agents():
    """`create_react_agent` and `create_agent` name the nodes around the model and tools so."""
    model = GenericFakeChatModel(messages=iter([AIMessage("hello")]))
    react = create_react_agent(
        model, [], pre_model_hook=RunnableLambda(nothing), post_model_hook=RunnableLambda(nothing)
    )
    agent = create_agent(model, middleware=[Around()])
    names = {*react.nodes, *agent.nodes} - {START}
    assert {name for name in names if lg.runs_after_model(name)} == {
        lg.AFTER_MODEL[0],
        f"Around{lg.AFTER_MODEL[1]}",
    }
    assert {name for name in names if lg.leads_to_model(name)} == {
        "agent",
        "model",
        "pre_model_hook",
        "Around.before_model",
    }
