"""The private details of LangGraph: what a node reaches, what is stored, graphs that are built.

Each test compares details with the LangGraph that is installed, and fails if one has changed. What
is not tested here, the tests of graphs that are run notice.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import operator
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from threading import Barrier, BrokenBarrierError
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    PIIMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache
from langgraph.channels import DeltaChannel
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.func import task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer, push_message
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt
from packaging.version import Version
from typing_extensions import TypedDict

from kit import BARE, Agent, above, calls
from langgraph_patch import with_patching
from langgraph_patch._langgraph import graphs, storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.nodes import Nodes
from langgraph_patch._langgraph.run import Run, _kept_with
from langgraph_patch._langgraph.storage import ROOT_CHANNEL
from langgraph_patch._sansio import IORequest
from langgraph_patch.errors import GraphError
from langgraph_patch.graph.node import PatchedNode
from langgraph_patch.graph.subgraph import as_graph

THREAD: Any = {"configurable": {"thread_id": "1"}}
QUESTION: Any = {"messages": [HumanMessage("hi", id="h1")]}


class State(MessagesState):
    """A state with a second key."""

    note: str


def noting(read: Callable[[RunnableConfig], Any], found: list[Any]) -> Callable[..., None]:
    """A node or router that notes what `read` finds in its config."""

    def node(state: Any, config: RunnableConfig) -> None:
        found.append(read(config))

    return node


def read_in_a_node(read: Callable[[RunnableConfig], Any]) -> Any:
    """What `read` returns for the config of a node."""
    found: list[Any] = []
    graph = above(noting(read, found), state=State).compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, THREAD, durability="sync")
    return found[0]


READ: list[tuple[Any, Any, Any]] = [
    (lambda c: type(Run(c).saver), InMemorySaver, type(None)),
    (lambda c: type(Run(c).channels.get("messages")), BinaryOperatorAggregate, type(None)),
    (lambda c: Run(c).values(["messages"]), QUESTION, {}),
    (lambda c: Run(c).value_after("messages"), QUESTION["messages"], None),
    (lambda c: Run.current().config == c, True, True),
    (lambda c: Run(c).node, "node1", None),
    (lambda c: Run(c).is_alone, True, True),
    (lambda c: Run(c).has_asked, False, False),
    (lambda c: Run(c).has_begun_tasks, False, False),
    (lambda c: Run(c).can_write_first, True, False),
    (lambda c: Run(c).written, [], []),
    (lambda c: Run(c).kept, {}, {}),
    (lambda c: (Run(c).answers, Run(c).new_answers), ([], []), ([], [])),
    (lambda c: [*Run(c).place], [""], []),
    (lambda c: Run(c).may_be_begun, False, True),
    (lambda c: Run(c).loaded_writes, [], []),
    (lambda c: Run(c).send_index, None, None),
    (lambda c: type(next(Run(c).stored(), None)), IORequest, type(None)),
    (lambda c: Run(c).sends, (), ()),
    (lambda c: Run(c).writes_at_exit, False, False),
    (lambda c: type(Run(c).loaded_checkpoint), str, type(None)),
    (lambda c: Run(c).namespace, "", ""),
    (lambda c: type(Run(c).thread), Address, type(None)),
    (lambda c: Run(c).is_node(print), False, False),
]
"""What is read of a config; its value in a node, and outside of a graph."""


def test_what_a_node_reads():
    """The value in the config of a node, and outside of a graph."""
    found = read_in_a_node(lambda config: [read(config) for read, *_ in READ])
    assert found == [expected for _, expected, _ in READ]
    assert [read({}) for read, *_ in READ] == [outside for *_, outside in READ]


def test_what_a_node_has_done():
    """An answered question, a `@task`, a pushed message: not before the node has come to it."""
    found: list[Any] = []

    @task
    def nothing() -> None:
        pass

    def node(state: Any, config: RunnableConfig) -> None:
        run = Run(config)
        read = lambda: [run.has_asked, run.has_begun_tasks, [m.id for _, m in run.written]]
        before = read()
        push_message(AIMessage("a", id="pushed"))
        interrupt("may I?")
        nothing().result()
        found.append((before, read()))

    graph = above(node).compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, THREAD)
    [question] = graph.get_state(THREAD).interrupts
    graph.invoke(Command(resume={question.id: "yes"}), THREAD)
    assert found == [([False, False, []], [True, True, ["pushed"]])]


def test_what_is_kept_is_kept_once(monkeypatch):
    """Tasks of one run keep something at the same moment: nothing is lost, and all is freed."""

    class Switching(dict):
        """Each look into it lets the other thread go on first."""

        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            with suppress(BrokenBarrierError):
                both.wait(0.2)
            return found

    class Owner:
        """What they are kept with."""

    both, owner = Barrier(2), Owner()
    monkeypatch.setattr("langgraph_patch._langgraph.run._KEPT", kept := Switching())
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(_kept_with, owner) for _ in range(2)]
    for number, each in enumerate(tasks, 1):
        each.result()[number] = number
    assert [*kept.values()] == [{1: 1, 2: 2}]
    del owner, tasks, each
    gc.collect()
    assert kept == {}


def test_what_a_task_writes_first():
    """It comes before what was pushed, in the place of what was written so before."""

    def node(state: Any, config: RunnableConfig) -> None:
        run = Run(config)
        push_message(AIMessage("b", id="b"))
        for text in ("old", "new"):
            run.write_first("messages", [[AIMessage(text, id=text)], [AIMessage("c", id="c")]])
        assert [m.id for _, m in run.written] == ["b"]
        run.show_in_updates("first")
        run.show_in_updates("second")

    graph = above(node, lambda _: Run.current().drop_writes()).compile()
    assert next(graph.stream(QUESTION, stream_mode="updates")) == {"node1": "second"}
    messages = graph.invoke(QUESTION)["messages"]
    assert [m.id for m in messages] == ["h1", "new", "c", "b"]


def test_runs_alone():
    """A node sees whether other tasks run in its superstep: those of edges, joins and `Send`s."""
    alone: dict[str, list[bool]] = {}

    def node(state: Any, config: RunnableConfig) -> None:
        alone.setdefault(config["metadata"]["langgraph_node"], []).append(Run(config).is_alone)

    builder = above(node, node, state=State)
    for name in ("b1", "b2", "one", "two", "mixed", "joined"):
        builder.add_node(name, node)
    builder.add_edge("node2", "b1").add_edge("node2", "b2").add_edge(["b1", "b2"], "joined")
    builder.add_conditional_edges("joined", lambda _: [Send("one", {})], ["one"])
    builder.add_conditional_edges("one", lambda _: [Send("two", {}), Send("two", {})], ["two"])
    first = StateGraph(State).add_node("sent", node).add_node("mixed", node)
    first.add_conditional_edges(START, lambda _: [Send("sent", {}), "mixed"], ["sent", "mixed"])
    builder.compile().invoke(QUESTION)
    first.compile().invoke(QUESTION)
    together = {"b1": [False], "b2": [False], "two": [False] * 2, "sent": [False], "mixed": [False]}
    apart = {"node1": [True], "node2": [True], "joined": [True], "one": [True]}
    assert alone == {**apart, **together}


# --- the thread ------------------------------------------------------------------------------


def test_graph_namespace():
    """A `@task`, also one inside another, has the namespace and the checkpoint of its graph.

    The namespace of a subgraph is `node:task_id`.
    """
    saver, found = InMemorySaver(), []

    def note() -> None:
        config = get_config()
        found.append((Run(config).namespace, Run(config).thread))

    @task
    def inner() -> None:
        note()

    @task
    def outer() -> None:
        note()
        inner().result()

    def leaf(state: State) -> None:
        note()
        outer().result()
        interrupt("?")

    above(above(leaf).compile()).compile(checkpointer=saver).invoke(QUESTION, THREAD)
    [leaf_namespace] = {namespace for namespace, _ in found}
    place: Any = {"configurable": {"checkpoint_ns": leaf_namespace, "thread_id": "1"}}
    assert leaf_namespace.startswith("node1:")
    assert len(found) == 3
    assert all(address.config == saver.get_tuple(place).config for _, address in found)
    assert storage.nodes_of_namespace(leaf_namespace) == ["node1"]


# --- what clients see, and the loop ------------------------------------------------------------


def test_input_ended_tasks_of_any_kind():
    """Tasks of edges, joins and `Send`s count, whether they asked, failed, or never began."""
    seen = []

    def router(state: Any, config: RunnableConfig) -> Any:
        seen.append(Run(config).input_ended_tasks)
        return [Send("sent", {})] if state["messages"][-1].text == "send" else ["a", "b"]

    asks = lambda _: interrupt("?") and {}
    builder = StateGraph(State).add_node("a", lambda _: None).add_node("b", lambda _: None)
    builder.add_node("sent", asks).add_node("joined", asks).add_edge(["a", "b"], "joined")
    builder.add_conditional_edges(START, router, ["a", "b", "sent"])
    graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["a"])
    for text in ("send", "join", "join", "send"):
        graph.invoke({"messages": [HumanMessage(text)]}, THREAD, durability="exit")
        if text == "join" and len(seen) > 2:
            graph.invoke(None, THREAD, durability="exit")
    assert seen == [False, True, True, True]


# --- what is stored ----------------------------------------------------------------------------


def build(*nodes: Any, schema: Any = State) -> Any:
    """A builder with these nodes, one after the other: `node1`, `node2`, and so on."""
    return above(*nodes, state=schema)


def ran(builder: Any) -> InMemorySaver:
    """The checkpointer of a graph that has run once."""
    saver = InMemorySaver()
    builder.compile(checkpointer=saver).invoke(QUESTION, THREAD)
    return saver


def nothing(state: Any) -> None:
    """A node that writes nothing."""


def checkpoints(saver: InMemorySaver) -> list[Any]:
    """The checkpoints of the thread in all namespaces, newest first."""
    return list(saver.list(THREAD))


def namespaces(saver: InMemorySaver) -> set[str]:
    """The namespaces of the thread."""
    return {saved.config["configurable"]["checkpoint_ns"] for saved in checkpoints(saver)}


def test_namespaces_that_last_longer_than_a_task():
    """A subgraph with `checkpointer=True` has the namespace `node`, a second one `node|1`."""
    saver = InMemorySaver()
    child = build(nothing).compile(checkpointer=True)

    def caller(state: State) -> None:
        child.invoke(state)
        child.invoke(state)

    graph = build(caller).compile(checkpointer=saver)
    graph.invoke(QUESTION, THREAD)
    lasting = namespaces(saver) - {""}
    assert lasting == {"node1", "node1|1"}
    assert {storage.task_of_namespace(namespace) for namespace in lasting} == {None}
    assert {tuple(storage.nodes_of_namespace(n)) for n in lasting} == {("node1",)}


def test_each_question_of_a_task_has_an_id_of_its_own():
    """The one that counts the answers before it; in old versions all have that of the first."""

    def asks(_: State) -> None:
        interrupt("first?")
        interrupt("second?")

    graph = StateGraph(State).add_node(asks).set_entry_point("asks").compile(InMemorySaver())
    graph.invoke(QUESTION, THREAD)
    for count in (0, 1):
        [task] = graph.get_state(THREAD).tasks
        number = count if storage.NUMBERS_QUESTIONS else 0
        assert task.interrupts[0].id == storage.own_interrupt_id(f"asks:{task.id}", number)
        graph.invoke(Command(resume="yes"), THREAD)
    assert storage.NUMBERS_QUESTIONS is (Version(version("langgraph")) >= Version("1.2.20"))


def test_what_a_deferred_node_waits_for():
    """Until the graph comes to its end, the channel of the node starts nothing."""
    saver = InMemorySaver()
    builder = build(nothing, nothing).add_node("late", nothing, defer=True)
    builder.add_edge(START, "late").compile(checkpointer=saver).invoke(QUESTION, THREAD)
    stored = [each.checkpoint["channel_values"] for each in reversed(checkpoints(saver))]
    assert [*stored[2]["branch:to:late"]] == [None, False]
    assert [sorted(storage.due_channels(each)) for each in stored[1:]] == [
        *(["branch:to:node1"], ["branch:to:node2"], ["branch:to:late"], []),
    ]
    assert storage.trigger_values(stored[3]) == {"branch:to:late": None}


# --- checkpoints -------------------------------------------------------------------------------


def test_what_a_run_stores():
    """The newest format that is supported, and the input that START has not applied yet."""
    saver = ran(build(nothing))
    assert {saved.checkpoint["v"] for saved in checkpoints(saver)} == {storage.NEWEST_FORMAT}
    assert storage.state_keys(build(nothing).compile().channels) == ["messages", "note"]
    inputs = [storage.accepted_input(saved) for saved in reversed(checkpoints(saver))]
    assert inputs == [QUESTION, None, None]


def delta_state(**options: Any) -> Any:
    """A state whose history is in a `DeltaChannel`."""
    channel = DeltaChannel(_messages_delta_reducer, **options)
    return TypedDict("state", {"messages": Annotated[list[Any], channel]})  # type: ignore[misc]


def test_what_counts_the_writes_of_a_delta_channel():
    """A value that is spread over checkpoints is counted in each one that does not have it."""
    saved = checkpoints(ran(build(nothing, nothing, schema=delta_state(snapshot_frequency=2))))
    with_key = [each for each in saved if "messages" in each.checkpoint["channel_versions"]]
    spread = [s for s in with_key if "messages" not in s.checkpoint["channel_values"]]
    assert spread
    assert storage.is_delta_channel(DeltaChannel(_messages_delta_reducer))
    assert all(storage.is_spread(each, "messages") for each in spread)
    assert storage.counters_of(spread[0], "messages") == {}
    assert storage.counters_of(spread[0], "other").keys() <= {"counters_since_delta_snapshot"}
    assert not storage.is_spread(checkpoints(ran(build(nothing)))[0], "messages")


def test_nodes_of_a_turn():
    """A checkpoint notes which version of its trigger each node has seen."""
    after_second, after_first, *_ = checkpoints(ran(build(nothing, nothing)))
    assert storage.nodes_of_turn(after_second) == {"node1", "node2"}
    assert storage.nodes_of_turn(after_first) == {"node1"}


async def test_is_node_timeout():
    """A node that takes too long records LangGraph's own error."""

    async def slow(state: Any) -> None:
        await asyncio.sleep(5)

    saver = InMemorySaver()
    builder = StateGraph(State).add_node("slow", slow, timeout=0.05).add_edge(START, "slow")
    with pytest.raises(Exception, match=r"(?i)time") as raised:
        await builder.compile(checkpointer=saver).ainvoke({"messages": []}, THREAD)
    assert storage.is_node_timeout(repr(raised.value))
    [error] = [
        value
        for _, channel, value in checkpoints(saver)[0].pending_writes
        if channel == "__error__"
    ]
    assert storage.is_node_timeout(error)
    assert not storage.is_node_timeout(repr(TimeoutError("the tool's own")))


# --- graphs that are built ---------------------------------------------------------------------


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
    started = [node for node in builder.nodes if graphs.Graph(builder).is_started_by_edges(node)]
    assert started == ["node1", "plain", "routed", "loops"]
    assert [source for source, *_ in graphs.Graph(builder).branches_into(["routed"])] == ["node1"]
    assert not any(graphs.Graph(builder).sends_each_call(node) for node in builder.nodes)
    keys = {"messages", "note"}
    assert set(graphs.Graph(builder).keys) == set(graphs.Graph(builder).output_keys) == keys
    assert keys <= set(graphs.Graph(builder).channels)
    read = [graphs.Graph(builder).input_of(node) for node in ("node1", "own")]
    assert [(schema, set(names)) for schema, names in read] == [(State, keys), (Note, {"note"})]
    root = StateGraph(Annotated[list[Any], operator.add]).add_node("node1", nothing)
    assert list(graphs.Graph(root).input_of("node1")[1]) == [ROOT_CHANNEL]


def test_options_of_nodes():
    """A cache policy and an error handler are those of a node, or of all nodes."""
    options = {"cache_policy": CachePolicy(), "error_handler": lambda _: None}
    builder = build(nothing).add_node("own", nothing, **options)
    asked = (graphs.Graph.has_cache, graphs.Graph.handles_errors)
    found = [[ask(graphs.Graph(builder), node) for ask in asked] for node in ("node1", "own")]
    assert found == [[False, False], [True, True]]
    builder.set_node_defaults(**options)
    assert [ask(graphs.Graph(builder), "node1") for ask in asked] == [True, True]


def test_graph_that_returns():
    """A compiled graph that is a node is found, also with a wrapper, if it returns the key."""
    subgraph = build(nothing).compile()
    silent = StateGraph(State, output_schema=Note).add_node("n", nothing).add_edge(START, "n")
    builder = build(subgraph, nothing, silent.compile(), as_graph(PatchedNode(subgraph, {}, ())))
    graph = graphs.Graph(builder)
    assert graph.runnables["node1"] is subgraph
    found = [graph.graph_that_returns(f"node{i}", "messages") for i in range(1, 6)]
    own = subgraph.builder
    assert [each and each.builder for each in found] == [own, None, None, own, None]
    assert graph.graph_that_returns("node1", "other") is None


def test_copy_builder():
    """The copy of a builder shares no container with it, and compiling it leaves it alone."""
    builder = build(nothing, nothing).add_conditional_edges("node2", lambda _: "node1")
    builder.set_node_defaults(retry_policy=RetryPolicy(), error_handler=nothing)
    builder.compile()
    copied = graphs.Graph(builder).copied().builder
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


def test_compiled_like():
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
    new = graphs.Graph(builder).compiled_like(graph)
    made_again = {"nodes", "channels", "builder", "managed", "stream_channels", "output_channels"}
    names = [name for name in vars(graph) if not name.startswith("_") and name not in made_again]
    assert {name: getattr(new, name) for name in names} == {
        name: getattr(graph, name) for name in names
    }


# --- prebuilt agents and tool nodes ------------------------------------------------------------


def test_sent_call():
    """Both prebuilt agents send one call to each task of the tools node, with an id and a name."""
    for kind in ("create_agent", "react_v2"):
        agent = Agent(BARE[kind], calls(("wire", {"amount": 1}), ("wire", {"amount": 2})))
        agent.say("go")
        assert graphs.Graph(agent.graph.builder).sends_each_call("tools")
        saved = agent.graph.checkpointer.get_tuple(THREAD)
        sends = saved.checkpoint["channel_values"]["__pregel_tasks"]
        assert [(graphs.sent_call(send) or {}).get("id") for send in sends] == ["c1", "c2"]
    call = {"id": "c1", "name": "wire", "args": {}}
    assert graphs.sent_call(Send("tools", [call])) == call
    for payload in ({**call, "id": None}, {"id": "c1", "name": "wire"}, [call] * 2, None):
        assert graphs.sent_call(Send("tools", payload)) is None


class Subclass(ToolNode):
    """A `ToolNode` whose functions are others."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.func = lambda *_, **__: None


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_calls_of_a_tool_node_are_wrapped(asynchronous: Any):
    """Outside of the wrappers of the application, and inside of them; other calls are not."""
    seen = []

    class Wrapper:
        def around(self, request: Any) -> Any:
            seen.append("around")
            return (yield from request)

        def start(self, call: Any, request: Any) -> Any:
            seen.append(f"start {call['args']}")
            return (yield from request)

    def wrap(request: Any, execute: Any) -> Any:
        seen.append("wrapper")
        call = {**request.tool_call, "args": {"x": 2}}
        return execute(request.override(tool_call=call))

    async def awrap(request: Any, execute: Any) -> Any:
        return await wrap(request, execute)

    def double(x: int) -> str:
        """Double."""
        return str(2 * x)

    node = ToolNode([double], wrap_tool_call=wrap, awrap_tool_call=awrap)
    wrapped = graphs.Tools(node).with_call_wrappers(
        lambda call, *_: Wrapper() if call["id"] == "c1" else None
    )
    graph = StateGraph(State).add_node("tools", wrapped).set_entry_point("tools").compile()
    state: Any = {"messages": [calls(("double", {"x": 1}), ("double", {"x": 1}))]}
    ended = asyncio.run(graph.ainvoke(state)) if asynchronous else graph.invoke(state)
    assert [m.content for m in ended["messages"][1:]] == ["4", "4"]
    assert sorted(seen) == ["around", "start {'x': 2}", "wrapper", "wrapper"]
    with pytest.raises(GraphError, match="The calls of a Subclass like this one"):
        graphs.Tools(Subclass([double])).with_call_wrappers(lambda *_: None)


@pytest.mark.parametrize("by_id", [False, True])
def test_what_a_task_has_before_its_first_question(*, by_id: bool):
    """An answer without an id waits for the next `interrupt()`; each `Send` has an index.

    One by id is the task's own already.
    """
    found = []

    def node(state: Any, config: RunnableConfig) -> None:
        run = Run(config)
        found.append((run.send_index, bool(run.answers), run.new_answers))
        interrupt("?")
        found.append(bool(run.answers))

    builder = StateGraph(State).add_node("one", node)
    builder.add_conditional_edges(START, lambda _: [Send("one", {})], ["one"])
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, THREAD)
    [question] = graph.get_state(THREAD).interrupts
    graph.invoke(Command(resume={question.id: "yes"} if by_id else "yes"), THREAD)
    assert found == [(0, False, []), (0, by_id, [] if by_id else ["yes"]), True]


def test_the_hooks_of_langchain_behind_a_model():
    """Each has a node, which starts no tool; one of an application may, whatever its name."""

    class Own(HumanInTheLoopMiddleware):
        name = "PIIMiddleware"

        def after_model(self, state: Any, runtime: Any) -> None:
            """Do anything."""

    hooks = [
        HumanInTheLoopMiddleware({}),
        ModelCallLimitMiddleware(run_limit=9),
        ToolCallLimitMiddleware(run_limit=9),
        PIIMiddleware("email"),
        TodoListMiddleware(),
    ]
    made = create_agent(GenericFakeChatModel(messages=iter([])), middleware=[*hooks, Own({})]).nodes
    found = [name for name in made if Nodes(made).starts_no_tool("", name)]
    assert sum(name.endswith(".after_model") for name in found) == len(hooks)
    assert "PIIMiddleware.after_model" in set(made) - set(found)


def test_the_nodes_of_a_run():
    """Those of the graph, and of a graph that is a node, by the namespaces of their checkpoints."""
    seen = []

    def look(_: Any, config: RunnableConfig) -> None:
        nodes = Run(config).nodes
        space = config["configurable"]["checkpoint_ns"].rpartition("|")[0]
        seen.append([nodes.runs_calls(space, name) for name in ("tools", "look", "gone")])
        team = f"{space}|team:1".removeprefix("|")
        seen.append([nodes.runs_calls(team, "tools"), nodes.runs_calls("x:1", "tools")])

    team = StateGraph(State).add_node("tools", ToolNode([])).add_edge(START, "tools").compile()
    builder = StateGraph(State).add_node("look", look).add_node("tools", ToolNode([]))
    builder.add_node("team", team).add_edge(START, "look").add_edge("look", END)
    for graph in (builder.compile(), with_patching(builder.compile())):
        graph.invoke(QUESTION)
        above = StateGraph(State).add_node("above", graph).add_edge(START, "above").compile()
        above.invoke(QUESTION)
    assert seen[::2] == [[True, False, False]] * 4
    assert seen[1::2] == [[True, False]] * 4


def test_what_a_run_knows_of_its_checkpoint():
    """Its durability, what tasks have written, and the answers to others."""
    found: list[Any] = []

    def one(state: Any, config: RunnableConfig) -> None:
        run = Run(config)
        written = {channel for _, channel, _ in run.loaded_writes}
        found.append((run.writes_at_exit, written, run.new_answers, run.thread))
        interrupt("one?")

    def two(_: Any) -> None:
        if interrupt("two?"):
            time.sleep(0.1)  # its question is a write until it ends

    builder = StateGraph(State).add_node("one", one).add_node("two", two)
    builder.add_node("later", nothing).add_edge(["one", "two"], "later")
    builder.add_edge(START, "one").add_edge(START, "two")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, THREAD)
    saved = graph.get_state(THREAD)
    [two] = [each for each in saved.interrupts if each.value == "two?"]
    graph.invoke(Command(resume={two.id: "yes"}), saved.config, durability="exit")
    assert found[-1] == (True, {"__interrupt__"}, ["yes"], Address.of(saved.config))
