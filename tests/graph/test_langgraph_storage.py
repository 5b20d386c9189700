"""The details of LangGraph in `_langgraph_storage.py`: the names of channels, tasks and namespaces.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

import operator
import re
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_patch._langgraph import thread_config
from langgraph_patch._langgraph_storage import (
    ERROR_SOURCE,
    NO_TASK,
    PUSH,
    RETURN,
    ROOT_CHANNEL,
    is_reserved,
    keeps_state_between_runs,
    may_run_in_task,
    nodes_of_namespace,
    own_interrupt_id,
    parent_namespace,
    send_index,
    state_keys,
    subgraph_path,
    task_of_namespace,
    trigger_channel,
    triggered_node,
)
from support.agents import thread
from support.bare_graphs import (
    QUESTION,
    State,
    build,
    checkpoints,
    namespaces,
    nothing,
    pause,
    pending,
)


def test_namespaces_of_subgraphs():
    """The namespace of a subgraph is `node:task_id`, below that of its parent."""
    saver = InMemorySaver()
    configs: list[Any] = []

    def leaf(state: State, config: RunnableConfig) -> None:
        configs.append(thread_config(config))
        interrupt("?")

    middle = build(build(leaf).compile()).compile()
    graph = build(middle).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    (outer,) = graph.get_state(thread()).tasks
    child = f"n1:{outer.id}"
    (below,) = namespaces(saver) - {"", child}
    assert re.fullmatch(rf"{child}\|n1:[0-9a-f-]{{36}}", below)
    assert configs[0]["configurable"]["checkpoint_ns"] == below
    assert (parent_namespace(below), parent_namespace(child)) == (child, "")
    assert nodes_of_namespace(below) == ["n1", "n1"]
    assert task_of_namespace(child) == outer.id
    assert may_run_in_task(below, "", outer.id)
    assert not may_run_in_task(below, "", "another")
    assert not keeps_state_between_runs(below)


def test_namespaces_that_last_longer_than_a_task():
    """A subgraph with `checkpointer=True` has the namespace `node`, a second one `node|1`."""
    saver = InMemorySaver()
    child = build(nothing).compile(checkpointer=True)

    def caller(state: State) -> None:
        child.invoke(state)
        child.invoke(state)

    graph = build(caller).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    lasting = namespaces(saver) - {""}
    assert lasting == {"n1", "n1|1"}
    assert all(map(keeps_state_between_runs, lasting))
    assert {task_of_namespace(namespace) for namespace in lasting} == {None}
    assert all(may_run_in_task(namespace, "", "any") for namespace in lasting)
    assert {subgraph_path(n) for n in lasting} == {name for name, _ in graph.get_subgraphs()}


def test_own_interrupt_id():
    """The id of an interrupt follows from the namespace of the task that raised it."""
    saver = InMemorySaver()
    build(build(pause).compile()).compile(checkpointer=saver).invoke(QUESTION, thread())
    (child,) = namespaces(saver) - {""}
    saved = saver.get_tuple({"configurable": {"thread_id": "1", "checkpoint_ns": child}})
    assert saved is not None
    ((task_id, _, (paused,)),) = saved.pending_writes or ()
    assert own_interrupt_id(child, "n1", task_id) == paused.id
    build(pause).compile(checkpointer=saver).invoke(QUESTION, thread("2"))
    saved = saver.get_tuple(thread("2"))
    assert saved is not None
    ((task_id, _, (paused,)),) = saved.pending_writes or ()
    assert own_interrupt_id("", "n1", task_id) == paused.id


def test_return_channel_and_answers_without_a_task():
    """A `@task` writes its result to RETURN; an answer without an id has the task id NO_TASK."""
    saver = InMemorySaver()

    @task
    def child() -> str:
        return "done"

    def node(state: State) -> None:
        child().result()
        interrupt("first")
        interrupt("second")

    graph = build(node).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    assert (RETURN, "done") in {(channel, str(value)) for _, channel, value in pending(saver)}
    graph.invoke(Command(resume="yes"), thread())
    assert (NO_TASK, "__resume__", "yes") in pending(saver)


def test_error_source_channel():
    """The task that failed writes its node to ERROR_SOURCE if the node has an error handler."""
    saver = InMemorySaver()

    def fail(state: State) -> None:
        raise ConnectionError

    builder = StateGraph(State).add_node("n1", fail, error_handler=pause).add_edge(START, "n1")
    builder.compile(checkpointer=saver).invoke(QUESTION, thread())
    assert (ERROR_SOURCE, "n1") in {(channel, str(value)) for _, channel, value in pending(saver)}


def test_path_of_a_send():
    """The path of a task that a `Send` started has PUSH and the index of the `Send`."""
    builder = build(nothing).add_node("sent", pause)
    builder.add_conditional_edges("n1", lambda _: [Send("sent", {}), Send("sent", {})])
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(QUESTION, thread())
    paths = [task.path for task in graph.get_state(thread()).tasks]
    assert [path[0] for path in paths] == [PUSH, PUSH]
    assert [send_index(path) for path in paths] == [0, 1]
    assert send_index(("__pregel_pull", "n1")) is None


def test_reserved_and_triggering_channels():
    """The names of the channels that are not keys of the state."""
    saver = InMemorySaver()
    builder = build(nothing, nothing).add_node("other", nothing).add_edge(START, "other")
    builder.add_node("last", pause).add_edge(["n2", "other"], "last")
    graph = builder.compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    keys = {"messages", "note"}
    channels = set(graph.channels) - keys
    triggers = {channel: triggered_node(channel) for channel in channels}
    assert {"n1", "n2", "other", "last"} <= set(triggers.values())
    assert triggers["branch:to:n1"] == "n1"
    assert trigger_channel("n1") == "branch:to:n1"
    assert triggers["join:n2+other:last"] == "last"
    assert all(is_reserved(channel) for channel in channels if triggers[channel] is None)
    assert {triggered_node(key) for key in keys} == {None}
    assert state_keys(graph.channels) == sorted(keys)
    versions = {
        name for saved in checkpoints(saver) for name in saved.checkpoint["channel_versions"]
    }
    assert "branch:to:n1" in versions
    assert {channel for _, channel, _ in pending(saver)} == {"__interrupt__"}
    assert is_reserved("__interrupt__")


def test_root_channel():
    """A state that is a single value has one channel."""
    builder = StateGraph(Annotated[list[Any], operator.add])
    builder.add_node("n1", lambda _: [1]).add_edge(START, "n1")
    assert ROOT_CHANNEL in builder.compile().channels
