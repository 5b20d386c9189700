"""The details of LangGraph in `_langgraph.py`: what a node reaches through its config.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.func import task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.managed import RemainingSteps
from langgraph.types import Command, Send, interrupt

from langgraph_patch import _langgraph
from langgraph_patch._langgraph import (
    allow_one_more_superstep,
    channels_of,
    checkpoint_before_run,
    checkpointer_of,
    current_config,
    graph_namespace,
    has_interrupts,
    input_ended_tasks,
    is_node_of_task,
    node_of,
    pending_sends,
    runs_alone,
    sent_payload,
    show_in_updates,
    state_of,
    stored_value,
    thread_config,
    values_of,
    writes_at_exit,
)
from support.agents import thread
from support.bare_graphs import QUESTION, State, build, nothing, run_with
from support.running import sync_and_async


def public_names() -> list[tuple[str, str]]:
    """The functions and constants that the modules define, each with its module."""
    folder = Path(_langgraph.__file__ or "").parent
    return [
        (path.stem, name)
        for path in sorted(folder.glob("_langgraph*.py"))
        for name in re.findall(
            r"^(?:def )?([A-Za-z]\w*)(?:\(|: Final)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    ]


@pytest.mark.parametrize(("module", "name"), public_names())
def test_there_is_a_test_for_each_name(module: str, name: str):
    """Each function and constant occurs below the imports of the test module of its module."""
    tests = (Path(__file__).parent / f"test{module}.py").read_text(encoding="utf-8")
    assert re.search(rf"\b{name}\b", tests.partition("\n\n\n")[2])


def test_checkpointer_of():
    """The config of a node has the checkpointer of the run."""
    assert isinstance(run_with(checkpointer_of), InMemorySaver)
    assert checkpointer_of({}) is None


def test_channels_of():
    """The config of a node has the live channels, with their reducers."""
    channels = run_with(channels_of)
    assert isinstance(channels["messages"], BinaryOperatorAggregate)
    assert channels["messages"].operator is not None
    assert channels_of({}) == {}


def test_stored_value():
    """A node reads the state as it was at the start of the superstep."""
    assert run_with(lambda config: stored_value(config, "messages")) == QUESTION["messages"]
    assert run_with(lambda config: stored_value(config, "note")) is None
    assert stored_value({}, "messages") is None


def test_state_of():
    """The values of the state keys, among those of other channels."""
    values = run_with(state_of)
    assert [m.content for m in values["messages"]] == ["hi"]
    assert state_of({}) == {}


def test_the_input_of_the_run():
    """The input of the run is available while START runs, and not later."""
    inputs = []

    def router(state: State, config: RunnableConfig) -> str:
        inputs.append(stored_value(config, START))
        return "n1"

    def node(state: State, config: RunnableConfig) -> None:
        inputs.append(stored_value(config, START))

    builder = StateGraph(State).add_node("n1", node).add_conditional_edges(START, router)
    builder.compile().invoke(QUESTION)
    assert inputs == [QUESTION, None]


def test_runs_alone():
    """The node sees whether other tasks run in its superstep."""
    alone = {}

    def node(state: Any, config: RunnableConfig) -> None:
        alone.setdefault(config["metadata"]["langgraph_node"], []).append(runs_alone(config))

    builder = build(node, node)
    builder.add_node("b1", node).add_node("b2", node).add_node("sent", node)
    builder.add_edge("n2", "b1").add_edge("n2", "b2")
    builder.add_conditional_edges("b1", lambda _: [Send("sent", {})], ["sent"])
    builder.compile().invoke(QUESTION)
    assert alone == {"n1": [True], "n2": [True], "b1": [False], "b2": [False], "sent": [True]}
    assert runs_alone({}) is True


def test_runs_alone_beside_tasks_of_a_send():
    """Two tasks of a `Send`, and a task of a `Send` beside a node, are not alone."""
    alone = []

    def node(state: Any, config: RunnableConfig) -> None:
        alone.append(runs_alone(config))

    two = StateGraph(State).add_node("n", node)
    two.add_conditional_edges(START, lambda _: [Send("n", {}), Send("n", {})], ["n"])
    two.compile().invoke(QUESTION)
    mixed = StateGraph(State).add_node("n", node).add_node("m", node)
    mixed.add_conditional_edges(START, lambda _: [Send("n", {}), "m"], ["n", "m"])
    mixed.compile().invoke(QUESTION)
    assert alone == [False] * 4


def test_current_config():
    """It is the config of the node that runs; outside of a graph it is empty."""
    assert current_config() == {}
    names = run_with(lambda _: current_config()["metadata"]["langgraph_node"])
    assert names == "n1"


def test_has_interrupts():
    """It is true once an interrupt of the task was answered."""
    found = []

    def node(state: State, config: RunnableConfig) -> None:
        before = has_interrupts(config)
        interrupt("?")
        found.append((before, has_interrupts(config)))

    graph = build(node).compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, thread())
    graph.invoke(Command(resume="yes"), thread())
    assert found == [(False, True)]  # the answer is taken when `interrupt` asks for it
    assert not run_with(has_interrupts)
    assert not has_interrupts({})


def test_values_of_has_managed_values():
    """A node reads the values of its schema, with those that LangGraph computes."""

    class Managed(MessagesState):
        remaining_steps: RemainingSteps
        unset: str

    found = []

    def node(_: Any, config: RunnableConfig) -> None:
        found.append(values_of(config, ["messages", "remaining_steps", "unset"], fresh=False))

    StateGraph(Managed).add_node("n", node).add_edge(START, "n").compile().invoke(QUESTION)
    assert [sorted(values) for values in found] == [["messages", "remaining_steps"]]
    assert values_of({}, ["messages"], fresh=True) == {}


def test_values_of_are_fresh_in_a_router():
    """A router reads what its source node has just written, also a key that its schema lacks."""
    values = []

    def router(state: MessagesState, config: RunnableConfig) -> str:
        values.append((values_of(config, ["note"], fresh=True), stored_value(config, "note")))
        return "n2"

    builder = StateGraph(State).add_node("n1", lambda _: {"note": "new"}).add_node("n2", nothing)
    builder.add_edge(START, "n1").add_conditional_edges("n1", router).compile().invoke(QUESTION)
    assert values == [({"note": "new"}, None)]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_is_node_of_task(*, asynchronous: bool):
    """True for the runnable that LangGraph runs as the node, not for one that a function calls."""
    found: list[tuple[str, bool]] = []

    class Own(Runnable[Any, Any]):
        def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> None:
            found.append((node_of(config or {}) or "", is_node_of_task(config or {}, self)))

    own = Own()

    def calls(state: State, config: RunnableConfig) -> None:
        own.invoke(state, config)

    builder = StateGraph(State).add_node("own", own).add_node("calls", calls)
    graph = builder.add_edge(START, "own").add_edge("own", "calls").compile()
    await (graph.ainvoke(QUESTION) if asynchronous else asyncio.to_thread(graph.invoke, QUESTION))
    assert found == [("own", True), ("calls", False)]
    assert not is_node_of_task({}, own)


def test_sent_payload():
    """A task that a `Send` made finds it, also in its router; an edge's task finds none."""
    found: list[Any] = []

    def node(_: Any, config: RunnableConfig) -> None:
        found.append(sent_payload(config))

    def router(_: Any, config: RunnableConfig) -> str:
        found.append(sent_payload(config))
        return END

    builder = StateGraph(State).add_node("n1", node).add_node("n2", node)
    builder.add_edge(START, "n1")
    builder.add_conditional_edges("n1", lambda _: [Send("n2", ["a"]), Send("n2", ["b"])])
    builder.add_conditional_edges("n2", router)
    builder.compile().invoke(QUESTION)
    assert found[0] is None
    assert sorted(found[1:]) == [["a"], ["a"], ["b"], ["b"]]
    assert pending_sends({}) == ()


def test_thread_config_names_the_current_checkpoint():
    """The config of a node has the thread and the checkpoint that the run is at."""
    saver, found = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        found.append((thread_config(config), saver.get_tuple(thread())))

    build(node).compile(checkpointer=saver).invoke(QUESTION, thread(), durability="sync")
    ((config, saved),) = found
    assert config == saved.config
    assert thread_config({}) is None


def test_thread_config_with_durability_exit():
    """With `durability="exit"` the current checkpoint is not stored, so it is not named."""
    config = run_with(thread_config, durability="exit")
    assert config == {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


def test_graph_namespace():
    """A `@task`, also one inside another, has the namespace and the checkpoint of its graph."""
    saver, found = InMemorySaver(), []

    def note() -> None:
        config = get_config()
        found.append((graph_namespace(config), thread_config(config)))

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

    build(build(leaf).compile()).compile(checkpointer=saver).invoke(QUESTION, thread())
    [leaf_namespace] = {namespace for namespace, _ in found}
    newest = saver.get_tuple({"configurable": {"checkpoint_ns": leaf_namespace, "thread_id": "1"}})
    assert leaf_namespace.startswith("n1:")
    assert all(config == newest.config for _, config in found)


def test_thread_config_with_durability_exit_on_a_fork():
    """A run that the caller lets begin at a checkpoint: LangGraph has its id in the metadata."""
    saver, found = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        found.append(thread_config(config))

    graph = build(node).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    older = next(iter(graph.get_state_history(thread(), limit=1, before=None))).config
    graph.invoke(QUESTION, thread())
    graph.invoke(QUESTION, older, durability="exit")
    assert found[-1] == older


def test_writes_at_exit():
    """The config of a node names the durability of the run."""
    assert run_with(writes_at_exit, durability="exit") is True
    assert run_with(writes_at_exit, durability="sync") is False


def test_node_of():
    """The metadata of a node's config has its name."""
    assert run_with(node_of) == "n1"
    assert node_of({}) is None


@sync_and_async
async def test_show_in_updates(*, asynchronous: bool):
    """The value is the chunk of the node; the state has what the node returned."""

    def node(state: State, config: RunnableConfig) -> Command[Any]:
        show_in_updates(config, {"note": "shown"})
        return Command(update=[("note", "a"), ("messages", HumanMessage("x", id="h2"))])

    graph = build(node).compile(checkpointer=InMemorySaver())
    if asynchronous:
        chunks = [c async for c in graph.astream(QUESTION, thread(), stream_mode="updates")]
    else:
        chunks = list(graph.stream(QUESTION, thread(), stream_mode="updates"))
    assert chunks == [{"n1": {"note": "shown"}}]
    values = graph.get_state(thread()).values
    assert (values["note"], len(values["messages"])) == ("a", 2)
    show_in_updates({}, {})  # outside of a graph it does nothing


def test_a_task_that_showed_something_is_finished():
    """That is why nothing is shown before the node has returned: it would not run again."""
    saver, runs = InMemorySaver(), []

    def node(state: State, config: RunnableConfig) -> None:
        runs.append("run")
        show_in_updates(config, {})
        raise ConnectionError

    graph = build(node).compile(checkpointer=saver)
    with pytest.raises(ConnectionError):
        graph.invoke(QUESTION, thread())
    graph.invoke(None, thread())
    assert runs == ["run"]


@sync_and_async
async def test_allow_one_more_superstep(*, asynchronous: bool):
    """The limit of the run is one higher, and so is what a managed value says of it."""

    class Counted(State):
        remaining: RemainingSteps

    remaining: list[int] = []

    def node(state: Any, config: RunnableConfig) -> None:
        remaining.append(state["remaining"])
        allow_one_more_superstep(config)

    def last(state: Any) -> None:
        remaining.append(state["remaining"])

    graph = build(node, last, schema=Counted).compile()
    value: Any = QUESTION
    if asynchronous:
        await graph.ainvoke(value, {"recursion_limit": 2})
    else:
        graph.invoke(value, {"recursion_limit": 2})
    assert remaining[0] == remaining[1]
    allow_one_more_superstep({})  # outside of a graph it does nothing


def test_checkpoint_before_run_and_input_ended_tasks():
    """START sees which checkpoint the run loaded, and whether the input ended tasks of it."""
    seen: list[tuple[str | None, bool]] = []

    def router(state: State, config: RunnableConfig) -> str:
        seen.append((checkpoint_before_run(config), input_ended_tasks(config)))
        return "asks" if len(seen) < 3 else "ends"

    builder = StateGraph(State).add_node("asks", lambda _: interrupt("?") and {})
    builder.add_node("ends", nothing)
    builder.add_conditional_edges(START, router, ["asks", "ends"])
    graph = builder.compile(checkpointer=InMemorySaver())
    before = []
    for _ in range(4):
        before.append(graph.get_state(thread()).config["configurable"].get("checkpoint_id"))
        graph.invoke(QUESTION, thread())
    assert [each[0] for each in seen][1:] == before[1:]
    assert [each[1] for each in seen] == [False, True, True, False]
    assert (checkpoint_before_run({}), input_ended_tasks({})) == (None, False)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_input_ended_tasks_of_any_kind(durability: str):
    """Tasks of edges, joins and `Send`s count, whether they asked, failed, or never began."""
    seen = []

    def router(state: Any, config: RunnableConfig) -> Any:
        seen.append(input_ended_tasks(config))
        kind = state["messages"][-1].text
        return [Send("sent", {})] if kind == "send" else ["a", "b"]

    def joined(state: Any) -> None:
        interrupt("?")

    builder = StateGraph(State).add_node("a", nothing).add_node("b", nothing)
    builder.add_node("sent", joined).add_node("joined", joined)
    builder.add_edge(["a", "b"], "joined")
    builder.add_conditional_edges(START, router, ["a", "b", "sent"])
    graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["a"])
    for text in ("send", "join", "join", "send"):
        graph.invoke({"messages": [HumanMessage(text)]}, thread(), durability=durability)
        if text == "join" and len(seen) > 2:
            graph.invoke(None, thread(), durability=durability)
    assert seen == [False, True, True, True]
