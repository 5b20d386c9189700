"""Stored checkpoints, read without the graph that wrote them."""

from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from kit import DeltaChannel
from langgraph_patch.errors import MessagesError, ThreadError
from langgraph_patch.threads import scan_threads
from langgraph_patch.threads.read import StoredHistory, reason_of
from support.stored_threads import lines, stored, thread, write

ONE, TWO, THREE = HumanMessage("1", id="1"), AIMessage("2", id="2"), HumanMessage("3", id="3")


def read(saver, config=None):
    """The history of the newest checkpoint."""
    return StoredHistory(saver, saver.get_tuple(config or thread()), "messages").messages()


@pytest.mark.needs("delta", langgraph="1.2.14")
@pytest.mark.parametrize("kind", ["agent", "delta"])
def test_a_history_is_what_the_graph_reads(kind, saver):
    """Whatever was written, and wherever it is: in one checkpoint, or spread (`DeltaChannel`)."""
    new = HumanMessage("new", id="1")
    for number, (written, expected) in enumerate((
        ([[ONE, TWO], [RemoveMessage(id="1")], [THREE]], [TWO, THREE]),
        ([[ONE, TWO], [new]], [new, TWO]),
        ([[ONE, TWO], Overwrite([THREE, ONE])], [THREE, ONE]),
        ([[ONE], Overwrite([]), [TWO]], [TWO]),
        ([[ONE], {"role": "user", "content": "4", "id": "4"}], [ONE, HumanMessage("4", id="4")]),
    )):  # fmt: skip
        made = stored("new", kind, saver, f"{number}")
        for update in written:
            made.graph.update_state(made.config, {"messages": update}, as_node="tools")
        assert read(saver, made.config) == made.history == expected
    # Two messages without an id are two.
    made = write(
        stored("new", kind, saver, "none"), [HumanMessage("a"), HumanMessage("a")], "tools"
    )
    assert lines(read(saver, made.config)) == ["human: a", "human: a"]


def resetting(state, writes):
    """As the reducer of deepagents, which LangGraph's own is not: all messages can be removed."""
    for added in writes:
        is_reset = added[0].id == REMOVE_ALL_MESSAGES
        state = added[1:] if is_reset else [*(state or []), *added]
    return state


class ResettingState(TypedDict):
    """A state with that reducer."""

    messages: Annotated[list, DeltaChannel(resetting)]


@pytest.mark.needs(langgraph="1.2")
def test_all_messages_may_be_removed(saver):
    """From a history that is spread over checkpoints, too."""
    graph = (
        StateGraph(ResettingState).add_node("n", lambda _: {}).add_edge(START, "n").compile(saver)
    )
    for value in ([ONE, TWO], [RemoveMessage(id=REMOVE_ALL_MESSAGES), THREE]):
        graph.update_state(thread(), {"messages": value}, as_node="n")
    assert read(saver) == graph.get_state(thread()).values["messages"] == [THREE]


def test_what_is_no_history_is_not_guessed(saver):
    """A later format, a class that was not loaded, and another kind of state are named."""
    stored("healthy", saver=saver)
    saved = saver.get_tuple(thread())
    for values, error, expected in (
        ({"v": 99}, ThreadError, "format 99, which is newer than this version of langgraph-patch"),
        ({"channel_values": {"messages": ["x"]}}, ThreadError, "a str where a message was"),
        ({"channel_values": {"messages": "x"}}, MessagesError, "x"),
    ):
        odd = saved._replace(checkpoint={**saved.checkpoint, **values})
        with pytest.raises(error, match=expected):
            StoredHistory(saver, odd, "messages").messages()
    first = {key: value for key, value in saved.checkpoint.items() if key != "v"}
    old = StoredHistory(saver, saved._replace(checkpoint=first), "messages")
    assert len(old.messages()) == 4


@pytest.mark.needs(langgraph="1.2.14")  # whose `get_state` agrees
def test_a_task_that_was_answered_does_not_wait(saver):
    """It has an interrupt and a result among the pending writes, beside another that waits."""
    made = stored("paused", saver=saver)
    saved = saver.get_tuple(thread())
    null = "00000000-0000-0000-0000-000000000000"  # what LangGraph writes for no task is no pause
    saver.put_writes(saved.config, [("__interrupt__", ())], null)
    [task] = {task for task, channel, _ in saved.pending_writes if channel == "__interrupt__"}
    for channel, owner in (("__error__", task), ("__resume__", null)):
        saver.put_writes(saved.config, [(channel, "x")], owner)
        assert [r.status for r in scan_threads(saver)] == ["paused"]
    saver.put_writes(saved.config, [("__resume__", "x")], task)
    saver.put_writes(saved.config, [("messages", [AIMessage("x")])], task)
    assert [r.status for r in scan_threads(saver)] == ["damaged"]
    assert made.graph.get_state(thread()).interrupts == ()


def test_why_a_thread_cannot_be_read():
    """In words, with the way out if there is one."""
    unknown = "Unknown serialization type: msgpack+aes"
    for error, expected in (
        (NotImplementedError(unknown), "it is encrypted or may run any code (NotImplementedErr"),
        (NotImplementedError("x"), "a value of it cannot be loaded (NotImplementedError"),
        (ValueError(unknown), "a value of it cannot be loaded (ValueError: Unknown"),
    ):
        assert expected in reason_of(error)
