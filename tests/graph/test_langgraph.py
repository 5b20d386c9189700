"""The details of LangGraph in `_langgraph.py`: what a node reaches through its config.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from kit import above
from langgraph_patch import _langgraph as lg

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


def read_in_a_node(read: Callable[[RunnableConfig], Any], durability: Any = "sync") -> Any:
    """What `read` returns for the config of a node."""
    found: list[Any] = []
    graph = above(noting(read, found), state=State).compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, THREAD, durability=durability)
    return found[0]


READ: list[tuple[Any, Any, Any]] = [
    (lambda c: type(lg.checkpointer_of(c)), InMemorySaver, type(None)),
    (lambda c: type(lg.channels_of(c).get("messages")), BinaryOperatorAggregate, type(None)),
    (lambda c: lg.values_of(c, ["messages"], fresh=False), QUESTION, {}),
    (lambda c: lg.values_of(c, ["messages"], fresh=True), QUESTION, {}),
    (lambda c: lg.current_config() == c, True, True),
    (lg.node_of, "node1", None),
    (lg.runs_alone, True, True),
    (lg.has_interrupts, False, False),
    (lg.breakpoints_of, frozenset(), frozenset()),
    (lg.pending_sends, (), ()),
    (lg.writes_at_exit, False, False),
    (lambda c: type(lg.checkpoint_before_run(c)), str, type(None)),
    (lg.graph_namespace, "", ""),
    (lambda c: lg.is_called_by_node(c, print), True, False),
]
"""What is read of a config; its value in a node, and outside of a graph."""


def test_what_a_node_reads():
    """The value in the config of a node, and outside of a graph."""
    found = read_in_a_node(lambda config: [read(config) for read, *_ in READ])
    assert found == [expected for _, expected, _ in READ]
    assert [read({}) for read, *_ in READ] == [outside for *_, outside in READ]


def test_runs_alone():
    """A node sees whether other tasks run in its superstep: those of edges, joins and `Send`s."""
    alone: dict[str, list[bool]] = {}

    def node(state: Any, config: RunnableConfig) -> None:
        alone.setdefault(config["metadata"]["langgraph_node"], []).append(lg.runs_alone(config))

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


def test_thread_config_names_the_current_checkpoint():
    """The config of a node has the thread and the checkpoint that the run is at."""
    saver, found = InMemorySaver(), []
    node = noting(lambda config: (lg.thread_config(config), saver.get_tuple(THREAD)), found)
    graph = above(node).compile(checkpointer=saver)
    graph.invoke(QUESTION, THREAD, durability="sync")
    [(config, saved)] = found
    assert config == saved.config
    assert lg.thread_config({}) is None


def test_thread_config_with_durability_exit():
    """The current checkpoint is not stored, so it is not named."""
    config = read_in_a_node(lg.thread_config, durability="exit")
    assert config == {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    assert read_in_a_node(lg.writes_at_exit, durability="exit") is True


def test_graph_namespace():
    """A `@task`, also one inside another, has the namespace and the checkpoint of its graph."""
    saver, found = InMemorySaver(), []

    def note() -> None:
        config = get_config()
        found.append((lg.graph_namespace(config), lg.thread_config(config)))

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
    assert all(config == saver.get_tuple(place).config for _, config in found)


# --- what clients see, and the loop ------------------------------------------------------------


async def test_show_in_updates():
    """The value is the chunk of the node; the state has what the node returned."""

    def node(state: State, config: RunnableConfig) -> Command[Any]:
        lg.show_in_updates(config, {"note": "shown"})
        return Command(update=[("note", "a"), ("messages", HumanMessage("x", id="h2"))])

    graph = above(node, state=State).compile(checkpointer=InMemorySaver())
    chunks = [c async for c in graph.astream(QUESTION, THREAD, stream_mode="updates")]
    assert chunks == [{"node1": {"note": "shown"}}]
    values = graph.get_state(THREAD).values
    assert (values["note"], len(values["messages"])) == ("a", 2)
    lg.show_in_updates({}, {})  # outside of a graph it does nothing


def test_input_ended_tasks_of_any_kind():
    """Tasks of edges, joins and `Send`s count, whether they asked, failed, or never began."""
    seen = []

    def router(state: Any, config: RunnableConfig) -> Any:
        seen.append(lg.input_ended_tasks(config))
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
