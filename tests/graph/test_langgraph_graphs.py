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
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, create_react_agent
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


def test_keys():
    """A builder lists the keys of its schemas; a node reads its own schema, or that of the state.

    The state may be a single value.
    """
    builder = build(nothing).add_node("own", nothing, input_schema=Note)
    assert set(lg.schema_keys(builder)) == set(lg.output_keys(builder)) == {"messages", "note"}
    assert lg.output_keys(StateGraph(State, output_schema=Note)) == ("note",)
    assert {"messages", "note"} <= set(lg.channel_names(builder))
    assert (set(lg.keys_read_by(builder, "node1")), set(lg.keys_read_by(builder, "own"))) == (
        {"messages", "note"},
        {"note"},
    )
    assert lg.input_of_node(builder, "own")[0] is Note
    assert lg.input_of_node(builder, "node1")[0] is State
    assert set(lg.input_of_node(builder, "own")[1]) == {"note"}
    root = StateGraph(Annotated[list[Any], operator.add]).add_node("node1", nothing)
    assert list(lg.keys_read_by(root, "node1")) == [ROOT_CHANNEL]


def test_graph_that_returns():
    """A compiled graph that is a node is found, also in a wrapper, if it returns the key."""
    subgraph = build(nothing).compile()
    silent = StateGraph(State, output_schema=Note).add_node("n", nothing).add_edge(START, "n")
    builder = build(subgraph, nothing, silent.compile(), PatchedNode(subgraph, {}, (), ()))
    assert lg.node_runnables(builder)["node1"] is subgraph
    found = [lg.graph_that_returns(builder, f"node{i}", "messages") for i in range(1, 6)]
    assert found == [subgraph.builder, None, None, subgraph.builder, None]
    assert lg.graph_that_returns(builder, "node1", "other") is None


def test_edges_that_lead_to_a_node():
    """Plain edges, routers with and without a list of ends, joins, commands and deferred nodes."""

    def goes(_: Any) -> Command[Literal["commanded"]]:
        return Command(goto="commanded")

    nodes = ("plain", "routed", "joined", "commanded", "later", "alone")
    builder = build(goes)
    for node in nodes:
        builder.add_node(node, nothing, defer=node == "later")
    builder.add_edge("node1", "plain").add_edge(["node1", "plain"], "joined").add_edge(
        "node1", "later"
    )
    builder.add_conditional_edges("node1", lambda _: "routed", ["routed"])
    assert [name for name, *_ in lg.branches_into(builder, ["routed"])] == ["node1"]
    assert lg.branches_into(builder, ["plain"]) == []
    assert [n for n in nodes if lg.is_started_by_edges(builder, n)] == ["plain", "routed"]


def test_has_cache():
    """A cache policy of a node, or of all nodes, is found."""
    policy = CachePolicy()
    builder = build(nothing).add_node("own", nothing, cache_policy=policy)
    assert [lg.has_cache(builder, node) for node in ("node1", "own")] == [False, True]
    if hasattr(builder, "set_node_defaults"):  # since langgraph 1.2
        assert lg.has_cache(builder.set_node_defaults(cache_policy=policy), "node1")


def test_route_edge():
    """A plain edge becomes a conditional one that leads to the same node."""
    routed = []
    router = RunnableLambda(lambda _: routed.append(1) or "node2", name="routed")
    builder = build(nothing, nothing)
    builder.edges.discard(("node1", "node2"))
    builder.add_edge("node1", "node2")
    lg.route_edge(builder, "node1", "node2", router)
    assert ("node1", "node2") not in builder.edges
    builder.compile().invoke(QUESTION)
    assert routed == [1]


def test_sends_each_call():
    """`create_agent` sends each call; a plain edge or router of another module does not."""

    def look() -> str:
        """Look."""
        return "seen"

    agent = create_agent(FakeListChatModel(responses=["x"]), [look])
    assert lg.sends_each_call(agent.builder, "tools")
    builder = build(nothing).add_node("alone", nothing)
    assert not any(lg.sends_each_call(builder, node) for node in builder.nodes)


def test_nodes_after():
    """The targets of edges, routers, waiting edges and annotated commands; None if unknown.

    Another node may follow a node if there is such a target, or if it is unknown.
    """

    def to_node2(state: State) -> Command[Literal["node2"]]:
        return Command(goto="node2")

    builder = build(to_node2)
    for name in ("node2", "node3", "node4", "loops", "anywhere"):
        builder.add_node(name, nothing)
    builder.add_conditional_edges("node1", lambda _: "node3", {"go": "node3"})
    builder.add_edge(["node1", "node2"], "node4").add_edge("node3", "node4")
    builder.add_conditional_edges("loops", lambda _: "loops", ["loops", END])
    builder.add_conditional_edges("anywhere", lambda _: END)
    after = {node: lg.nodes_after(builder, node) for node in builder.nodes}
    assert after == {
        "node1": {"node2", "node3", "node4"},
        "node2": {"node4"},
        "node3": {"node4"},
        "node4": set(),
        "loops": {"loops", END},
        "anywhere": None,
    }
    followed = [node for node in builder.nodes if lg.can_be_followed(builder, node)]
    assert followed == ["node1", "node2", "node3", "anywhere"]


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


def test_replace_runnable():
    """A node runs another runnable with the same policies."""
    builder = StateGraph(State).add_edge(START, "node1")
    builder.add_node("node1", nothing, retry_policy=RetryPolicy(max_attempts=7), defer=True)
    lg.replace_runnable(builder, "node1", RunnableLambda(lambda _: {"note": "replaced"}))
    spec = builder.nodes["node1"]
    assert (spec.retry_policy, spec.defer) == (RetryPolicy(max_attempts=7), True)
    assert builder.compile().invoke(QUESTION)["note"] == "replaced"


def test_take_edges_and_put_branches():
    """Edges are removed from a node, and conditional edges are added again with other fields."""

    def router(state: State) -> str:
        return "node2"

    builder = (
        StateGraph(State).add_node("node1", nothing).add_node("node2", lambda _: {"note": "node2"})
    )
    builder.add_edge(START, "node1").add_conditional_edges("node1", router, ["node1", "node2"])
    assert (lg.take_edges(builder, START), lg.take_routers(builder, START)) == (["node1"], {})
    branches = lg.take_routers(builder, "node1")
    assert (lg.take_edges(builder, "node1"), list(branches)) == ([], ["router"])
    assert (builder.edges, dict(builder.branches)) == (set(), {})
    (branch,) = branches.values()
    assert (branch.ends, branch.input_schema) == ({"node1": "node1", "node2": "node2"}, State)
    path, ends, schema = lg.parts_of_branch(branch)
    assert (path, ends, schema) == (branch.path, branch.ends, branch.input_schema)
    lg.put_branch(builder, START, "router", branch, ends={"node2": "node2"})
    assert builder.branches[START]["router"].ends == {"node2": "node2"}
    assert builder.compile().invoke(QUESTION)["note"] == "node2"


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
        saved = agent.graph.checkpointer.get_tuple(THREAD)
        sends = saved.checkpoint["channel_values"]["__pregel_tasks"]
        assert [(lg.sent_call(send) or {}).get("id") for send in sends] == ["c1", "c2"]
    call = {"id": "c1", "name": "wire", "args": {}}
    assert lg.sent_call(Send("tools", [call])) == call
    for payload in ({**call, "id": ""}, {"id": "c1", "name": "wire"}, [call] * 2, None):
        assert lg.sent_call(Send("tools", payload)) is None


def test_a_copy_runs_other_functions():
    """A copy of a `ToolNode` has its tools and its key; LangGraph passes config and runtime."""
    received: list[Any] = []

    def func(value: Any, **kwargs: Any) -> Any:
        received.append(sorted(kwargs))

    node = ToolNode([], messages_key="chat")
    copied = lg.with_functions(node, func, None)
    above(copied).compile().invoke(QUESTION)
    assert isinstance(copied, ToolNode)
    assert copied.tools_by_name is node.tools_by_name
    assert node.func is not func
    assert received == [["config", "runtime"]]
    keys = [lg.tool_messages_key(each) for each in (copied, ToolNode([]), object())]
    assert keys == ["chat", "messages", "messages"]


def test_a_call_with_its_state():
    """A `ToolNode` runs one call with the state that comes with it."""
    read: list[Any] = []

    def look(whole: Annotated[Any, InjectedState]) -> str:
        """Look."""
        read.append(whole)
        return "seen"

    node = ToolNode([look])
    call = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    sent = lg.call_with_state(call, {"a": 1})

    def tools(_: Any, config: RunnableConfig) -> Any:
        return node.invoke(sent, config)

    result = above(tools).compile().invoke({"messages": []})
    assert read == [{"a": 1}]
    assert result["messages"][0].text == "seen"


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


def test_handles_errors():
    """An error handler of a node, or one of all nodes, is known before the graph is compiled."""
    builder = build(nothing).add_node("other", nothing, error_handler=lambda _: None)
    assert [lg.handles_errors(builder, node) for node in ("node1", "other")] == [False, True]
    builder.set_node_defaults(error_handler=lambda _: None)
    assert lg.handles_errors(builder, "node1")
