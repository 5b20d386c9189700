"""The details of LangGraph in `_langgraph_storage.py`: stored checkpoints.

Each test compares details with the LangGraph that is installed, and fails if one has changed.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer  # no public name in LangGraph
from typing_extensions import TypedDict

from langgraph_patch._langgraph_storage import (
    NEWEST_FORMAT,
    RUN_KEYS,
    accepted_input,
    delete_from_memory,
    is_delta_channel,
    is_delta_snapshot,
    is_node_timeout,
    is_reserved,
    keys_in_memory,
    last_nodes,
    later_checkpoint_id,
    whole_value,
    wrote_in_older_superstep,
)
from support.agents import thread
from support.bare_graphs import (
    QUESTION,
    State,
    build,
    checkpoints,
    nothing,
    pause,
    pending,
    run_with,
)


def test_format_of_a_checkpoint():
    """LangGraph writes the newest format that is supported."""
    saver = InMemorySaver()
    build(nothing).compile(checkpointer=saver).invoke(QUESTION, thread())
    assert {saved.checkpoint["v"] for saved in checkpoints(saver)} == {NEWEST_FORMAT}


def test_keys_of_a_run():
    """Beside the thread and its namespace, the config of a run has RUN_KEYS and reserved keys."""
    keys = run_with(lambda config: set(config["configurable"]))
    public = {key for key in keys if not is_reserved(key)}
    assert public == {"thread_id", "checkpoint_ns", *RUN_KEYS}


def test_accepted_input():
    """The first checkpoint of a run has the input that START has not applied yet."""
    saver = InMemorySaver()
    build(nothing).compile(checkpointer=saver).invoke(QUESTION, thread())
    inputs = [accepted_input(saved) for saved in reversed(checkpoints(saver))]
    assert inputs == [QUESTION, None, None]


@pytest.mark.parametrize("frequency", [1, 1000])
def test_delta_channels(frequency: int):
    """A delta channel stores its writes, and its value in a snapshot now and then."""
    channel = DeltaChannel(_messages_delta_reducer, snapshot_frequency=frequency)
    state = TypedDict("state", {"messages": Annotated[list[Any], channel]})  # noqa: UP013 - a class could not refer to the channel
    saver = InMemorySaver()
    graph = build(nothing, schema=state).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    assert is_delta_channel(graph.channels["messages"])
    assert not is_delta_channel(build(nothing).compile().channels["messages"])
    values = [saved.checkpoint["channel_values"].get("messages") for saved in checkpoints(saver)]
    snapshots = [value for value in values if value is not None]
    assert bool(snapshots) == (frequency == 1)
    assert all(is_delta_snapshot(value) for value in snapshots)
    assert not any(map(is_delta_snapshot, ({"value": 1}, [1], (1,), None)))
    assert all(whole_value(value) == QUESTION["messages"] for value in snapshots)
    assert whole_value(QUESTION["messages"]) is QUESTION["messages"]


def test_wrote_in_older_superstep():
    """With durability "exit", the ids of tasks begin with the number of their superstep."""
    channel = DeltaChannel(_messages_delta_reducer)
    state = TypedDict("state", {"messages": Annotated[list[Any], channel]})  # noqa: UP013 - a class could not refer to the channel
    saver = InMemorySaver()
    nodes = [lambda _, text=text: {"messages": [AIMessage(text)]} for text in ("one", "two")]
    graph = build(*nodes, schema=state).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread(), durability="exit")
    writes = [w for saved in checkpoints(saver) for w in saved.pending_writes or ()]
    tasks = {m.content: t for t, c, value in writes if c == "messages" for m in value}
    asked, one, two = (tasks[text] for text in (QUESTION["messages"][0].content, "one", "two"))
    assert wrote_in_older_superstep(asked, one)
    assert wrote_in_older_superstep(one, two)
    assert not wrote_in_older_superstep(two, one)
    assert not wrote_in_older_superstep(one, one)
    assert not wrote_in_older_superstep(one, asked)


def test_later_checkpoint_id():
    """The order of checkpoint ids is the order of time, also for an id that was moved on."""
    saver = InMemorySaver()
    build(nothing).compile(checkpointer=saver).invoke(QUESTION, thread())
    ids = [saved.checkpoint["id"] for saved in reversed(checkpoints(saver))]
    assert ids == sorted(ids)
    one, two = later_checkpoint_id(ids[-1], 1), later_checkpoint_id(ids[-1], 2)
    assert one is not None
    assert two is not None
    assert ids[-1] < one < two
    assert later_checkpoint_id("1", 1) is None


def test_keys_in_memory():
    """Each history that has a checkpoint; unknown if the saver stores them in another way."""
    saver = InMemorySaver()
    graph = build(nothing, nothing).compile(checkpointer=saver)
    for thread_id in "21":
        graph.invoke(QUESTION, thread(thread_id))
    assert sorted(keys_in_memory(saver)) == [("1", ""), ("2", "")]
    saver.delete_thread("1")
    assert keys_in_memory(saver) == [("2", "")]
    assert keys_in_memory(object()) is None


def test_delete_from_memory():
    """The newest checkpoint of an `InMemorySaver` is deleted, unless it has pending writes."""
    saver = InMemorySaver()
    graph = build(nothing).compile(checkpointer=saver)
    graph.invoke(QUESTION, thread())
    newest, older, *_ = checkpoints(saver)
    assert delete_from_memory(saver, "1", "", older.checkpoint["id"]) is False
    assert delete_from_memory(saver, "1", "", newest.checkpoint["id"]) is True
    assert checkpoints(saver)[0].config == older.config
    paused = InMemorySaver()
    build(pause).compile(checkpointer=paused).invoke(QUESTION, thread())
    (saved, *_) = checkpoints(paused)
    assert delete_from_memory(paused, "1", "", saved.checkpoint["id"]) is False
    assert delete_from_memory(object(), "1", "", "any") is None


def test_last_nodes():
    """A checkpoint notes which version of its trigger each node has seen."""
    saver = InMemorySaver()
    builder = StateGraph(State).add_node("first", nothing).add_node("second", nothing)
    builder.add_edge(START, "first").add_edge("first", "second")
    builder.compile(checkpointer=saver).invoke({"messages": []}, thread())
    after_second, after_first, *_ = checkpoints(saver)
    assert last_nodes(after_second) == {"second"}
    assert last_nodes(after_first) == {"first"}


async def test_is_node_timeout():
    """A node that takes too long records LangGraph's own error."""

    async def slow(state: Any) -> None:
        await asyncio.sleep(5)

    saver = InMemorySaver()
    builder = StateGraph(State).add_node("slow", slow, timeout=0.05).add_edge(START, "slow")
    with pytest.raises(Exception, match=r"(?i)time") as raised:
        await builder.compile(checkpointer=saver).ainvoke({"messages": []}, thread())
    assert is_node_timeout(raised.value)
    [error] = [value for _, channel, value in pending(saver) if channel == "__error__"]
    assert is_node_timeout(error)
    assert not is_node_timeout(TimeoutError("the tool's own"))
