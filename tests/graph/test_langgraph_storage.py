"""The details of LangGraph in `_langgraph_storage.py`: channels, tasks, namespaces, checkpoints.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer  # no public name in LangGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from kit import above
from langgraph_patch import _langgraph_storage as lg
from langgraph_patch._langgraph import thread_config

THREAD: Any = {"configurable": {"thread_id": "1"}}
QUESTION: Any = {"messages": [HumanMessage("hi", id="h1")]}


class State(MessagesState):
    """A state with a second key."""

    note: str


def build(*nodes: Any, schema: Any = State) -> Any:
    """A builder with these nodes, one after the other: `node1`, `node2`, and so on."""
    return above(*nodes, state=schema)


def ran(builder: Any, saver: Any = None, **options: Any) -> InMemorySaver:
    """The checkpointer of a graph that has run once."""
    saver = saver or InMemorySaver()
    builder.compile(checkpointer=saver).invoke(QUESTION, THREAD, **options)
    return saver


def nothing(state: Any) -> None:
    """A node that writes nothing."""


def pause(state: Any) -> None:
    """A node that waits for an answer."""
    interrupt("?")


def checkpoints(saver: InMemorySaver) -> list[Any]:
    """The checkpoints of the thread in all namespaces, newest first."""
    return list(saver.list(THREAD))


def namespaces(saver: InMemorySaver) -> set[str]:
    """The namespaces of the thread."""
    return {saved.config["configurable"]["checkpoint_ns"] for saved in checkpoints(saver)}


def pending(saver: InMemorySaver, namespace: str = "") -> list[Any]:
    """The pending writes of the newest checkpoint of a graph."""
    place: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": namespace}}
    return list(saver.get_tuple(place).pending_writes or ())


def test_namespaces_of_subgraphs():
    """The namespace of a subgraph is `node:task_id`, below that of its parent."""
    saver, configs = InMemorySaver(), []

    def leaf(state: State, config: RunnableConfig) -> None:
        configs.append(thread_config(config))
        interrupt("?")

    middle = build(build(leaf).compile()).compile()
    graph = build(middle).compile(checkpointer=saver)
    graph.invoke(QUESTION, THREAD)
    (outer,) = graph.get_state(THREAD).tasks
    child = f"node1:{outer.id}"
    (below,) = namespaces(saver) - {"", child}
    assert re.fullmatch(rf"{child}\|node1:[0-9a-f-]{{36}}", below)
    assert configs[0]["configurable"]["checkpoint_ns"] == below
    assert (lg.parent_namespace(below), lg.parent_namespace(child)) == (child, "")
    assert lg.nodes_of_namespace(below) == ["node1", "node1"]
    assert lg.task_of_namespace(child) == outer.id
    assert not lg.keeps_state_between_runs(below)


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
    assert all(map(lg.keeps_state_between_runs, lasting))
    assert {lg.task_of_namespace(namespace) for namespace in lasting} == {None}
    assert {tuple(lg.nodes_of_namespace(n)) for n in lasting} == {("node1",)}


def test_reserved_and_triggering_channels():
    """The names of the channels that are not keys of the state."""
    saver = InMemorySaver()
    builder = build(nothing, nothing).add_node("other", nothing).add_edge(START, "other")
    builder.add_node("last", pause).add_edge(["node2", "other"], "last")
    graph = builder.compile(checkpointer=saver)
    graph.invoke(QUESTION, THREAD)
    keys = {"messages", "note"}
    channels = set(graph.channels) - keys
    triggers = {channel: lg.triggered_node(channel) for channel in channels}
    assert {"node1", "node2", "other", "last"} <= set(triggers.values())
    assert triggers["branch:to:node1"] == "node1"
    assert lg.trigger_channel("node1") == "branch:to:node1"
    assert triggers["join:node2+other:last"] == "last"
    assert lg.joined_nodes("join:node2+other:last") == ["node2", "other"]
    assert lg.joined_nodes("branch:to:node1") == []
    assert all(lg.is_reserved(channel) for channel in channels if triggers[channel] is None)
    assert {lg.triggered_node(key) for key in keys} == {None}
    assert lg.state_keys(graph.channels) == sorted(keys)
    assert {channel for _, channel, _ in pending(saver)} == {"__interrupt__"}
    assert lg.is_reserved("__interrupt__")


def test_a15_what_a_deferred_node_waits_for():
    """Until the graph comes to its end, the channel of the node starts nothing."""
    saver = InMemorySaver()
    builder = build(nothing, nothing).add_node("late", nothing, defer=True)
    builder.add_edge(START, "late").compile(checkpointer=saver).invoke(QUESTION, THREAD)
    stored = [each.checkpoint["channel_values"] for each in reversed(checkpoints(saver))]
    assert [*stored[2]["branch:to:late"]] == [None, False]
    assert [sorted(lg.due_channels(each)) for each in stored[1:]] == [
        *(["branch:to:node1"], ["branch:to:node2"], ["branch:to:late"], []),
    ]
    assert lg.trigger_values(stored[3]) == {"branch:to:late": None}


# --- checkpoints -------------------------------------------------------------------------------


def test_what_a_run_stores():
    """The newest format that is supported, and the input that START has not applied yet.

    Beside the thread and its namespace, the config has RUN_KEYS and reserved keys.
    """
    found: list[str] = []

    def node(state: Any, config: RunnableConfig) -> None:
        found.extend(key for key in config["configurable"] if not lg.is_reserved(key))

    saver = ran(build(node))
    assert set(found) == {"thread_id", "checkpoint_ns", *lg.RUN_KEYS}
    assert {saved.checkpoint["v"] for saved in checkpoints(saver)} == {lg.NEWEST_FORMAT}
    inputs = [lg.accepted_input(saved) for saved in reversed(checkpoints(saver))]
    assert inputs == [QUESTION, None, None]


def delta_state(**options: Any) -> Any:
    """A state whose history is in a `DeltaChannel`."""
    channel = DeltaChannel(_messages_delta_reducer, **options)
    return TypedDict("state", {"messages": Annotated[list[Any], channel]})  # type: ignore[misc]


def test_delta_channels():
    """A delta channel stores its writes, and its value in a snapshot now and then."""
    builder = build(nothing, schema=delta_state(snapshot_frequency=1))
    assert lg.is_delta_channel(builder.compile().channels["messages"])
    assert not lg.is_delta_channel(build(nothing).compile().channels["messages"])
    saved = checkpoints(ran(builder))
    values = [each.checkpoint["channel_values"].get("messages") for each in saved]
    snapshots = [value for value in values if value is not None]
    assert snapshots
    assert all(lg.whole_value(value) == QUESTION["messages"] for value in snapshots)
    assert lg.whole_value(QUESTION["messages"]) is QUESTION["messages"]


def test_what_counts_the_writes_of_a_delta_channel():
    """A value that is spread over checkpoints is counted in each one that does not have it."""
    saved = checkpoints(ran(build(nothing, nothing, schema=delta_state(snapshot_frequency=2))))
    with_key = [each for each in saved if "messages" in each.checkpoint["channel_versions"]]
    spread = [s for s in with_key if "messages" not in s.checkpoint["channel_values"]]
    assert spread
    assert all(lg.is_spread(each, "messages") for each in spread)
    assert lg.counters_of(spread[0], "messages") == {}
    assert lg.counters_of(spread[0], "other").keys() <= {"counters_since_delta_snapshot"}
    assert not lg.is_spread(checkpoints(ran(build(nothing)))[0], "messages")


def test_last_nodes():
    """A checkpoint notes which version of its trigger each node has seen."""
    after_second, after_first, *_ = checkpoints(ran(build(nothing, nothing)))
    assert (lg.last_nodes(after_second), lg.last_nodes(after_first)) == ({"node2"}, {"node1"})


async def test_is_node_timeout():
    """A node that takes too long records LangGraph's own error."""

    async def slow(state: Any) -> None:
        await asyncio.sleep(5)

    saver = InMemorySaver()
    builder = StateGraph(State).add_node("slow", slow, timeout=0.05).add_edge(START, "slow")
    with pytest.raises(Exception, match=r"(?i)time") as raised:
        await builder.compile(checkpointer=saver).ainvoke({"messages": []}, THREAD)
    assert lg.is_node_timeout(raised.value)
    [error] = [value for _, channel, value in pending(saver) if channel == "__error__"]
    assert lg.is_node_timeout(error)
    assert not lg.is_node_timeout(TimeoutError("the tool's own"))
