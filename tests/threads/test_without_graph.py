"""A repair without the graph of the application: the same, or a reason that names the graph."""

import operator
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_patch import validate_messages
from langgraph_patch._langgraph_storage import later_checkpoint_id
from langgraph_patch.threads import repair_thread, scan_threads, undo_repair
from support.agents import KINDS, both_calls, human, lines, thread
from support.broken_threads import (
    answer,
    application,
    kind_of,
    say,
    silent,
    stateful_child,
    ways_of,
)
from support.databases import on_both_databases, rows_of
from support.stored_threads import abandoned_thread, stored_messages
from support.strict import ai

WAYS = ["abandoned", "killed", "failed_at_the_tail", "F6-steering-message"]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "way"),
    [(kind.name, way) for kind in KINDS for way, _ in ways_of(kind.name) if way in WAYS],
)
@pytest.mark.needs("create_deep_agent-F6-steering-message", langgraph="1.2.16")
def test_the_repair_is_the_one_that_the_graph_makes(kind, way):
    """Both write the same history and other keys, or the reason names the graph."""
    states = []
    for with_graph in (True, False):
        saver = InMemorySaver()
        dict(ways_of(kind))[way](kind, saver, thread())
        target = silent(kind, saver) if with_graph else saver
        repair = repair_thread(target, thread(), min_age=0)
        if repair.outcome in ("refused", "paused"):
            assert not with_graph
            assert "with the graph of the application (--graph)" in repair.reason
            return
        state = silent(kind, saver).get_state(thread())
        others = {key: value for key, value in state.values.items() if key != "messages"}
        states.append((repair.outcome, lines(state.values["messages"]), others, state.next))
    assert states[0] == states[1]


@on_both_databases
def test_a_repaired_thread_takes_its_next_message_and_the_repair_is_undone(saver, path):
    """Nothing of the application is needed for either."""
    abandoned_thread("react_v2", saver)
    before = rows_of(path)
    repair = repair_thread(saver, thread(), min_age=0)
    assert undo_repair(saver, thread()) == repair.before
    assert rows_of(path) == before
    repair_thread(saver, thread(), min_age=0)
    graph = application("react_v2", saver, AIMessage("fine"))
    graph.invoke({"messages": [human("next")]}, thread())
    assert lines(stored_messages(graph))[-2:] == ["human: next", "ai: fine"]


@on_both_databases
@pytest.mark.parametrize("kind", ["hand_built", "create_agent"])
def test_a_pause_is_left_alone_and_can_be_abandoned(kind, saver, path):
    """The pause takes its answer; the results of finished calls are kept when it is ended."""
    for name in ("1", "2"):
        say(application(kind, saver, both_calls()), thread(name), "go")
    before = rows_of(path)
    assert repair_thread(saver, thread(), min_age=0).outcome == "paused"
    assert rows_of(path) == before
    graph = application(kind, saver, answer())
    graph.invoke(Command(resume=kind_of(kind).yes), thread())
    texts = [m.text for m in stored_messages(graph) if isinstance(m, ToolMessage)]
    assert texts == ["sent to bob", "wired: yes"]
    assert repair_thread(saver, thread("2"), min_age=0, on_pause="abandon").outcome == "repaired"
    texts = [m.text for m in stored_messages(graph, "2") if isinstance(m, ToolMessage)]
    assert (texts[0] == "sent to bob") == (kind_of(kind).results[0] == "sent to bob")
    assert validate_messages(stored_messages(graph, "2")) == []


def test_a_breakpoint_may_be_a_pause(saver, path):
    """Only the graph shows it: nothing is written without it, unless the pause is abandoned."""
    bench = kind_of("hand_built").make(both_calls(), checkpointer=saver, interrupt_before=["tools"])
    say(bench.graph, thread(), "go")
    before = rows_of(path)
    repair = repair_thread(saver, thread(), min_age=0)
    assert (repair.outcome, "it waits at a breakpoint" in repair.reason) == ("paused", True)
    assert rows_of(path) == before
    assert repair_thread(saver, thread(), min_age=0, on_pause="abandon").outcome == "repaired"


class Noted(MessagesState):
    """The state of an application with a reducer of its own beside the history."""

    notes: Annotated[list[str], operator.add]


def noting(saver, *, beside):
    """A graph whose tool waits, perhaps beside a node that writes a note."""

    def tools(_):
        interrupt("sure?")

    builder = StateGraph(Noted)
    builder.add_node("first", lambda _: {"notes": ["one"]}).add_edge(START, "first")
    call = ai(("wire", {}, "c1"), id="a1")
    builder.add_node("model", lambda _: {"messages": [call], "notes": ["two"]})
    builder.add_node("tools", tools).add_edge("first", "model").add_edge("model", "tools")
    if beside:
        builder.add_node("side", lambda _: {"notes": ["three"]}).add_edge("model", "side")
    return builder.compile(checkpointer=saver)


def test_other_state_keys_stay_as_they_are(saver):
    """Their values and types are those of the checkpoint, and their reducers go on."""
    graph = noting(saver, beside=False)
    graph.invoke({"messages": [human("go")]}, thread())
    repair = repair_thread(saver, thread(), min_age=0, on_pause="abandon")
    assert (repair.outcome, graph.get_state(thread()).next) == ("repaired", ())
    graph.update_state(thread(), {"notes": ["four"]}, as_node="first")
    assert graph.get_state(thread()).values["notes"] == ["one", "two", "four"]


def test_what_only_a_reducer_of_the_application_can_apply_needs_the_graph(saver, path):
    """A finished task wrote a note beside the pause: it is neither lost nor written wrongly."""
    graph = noting(saver, beside=True)
    graph.invoke({"messages": [human("go")]}, thread())
    before = rows_of(path)
    repair = repair_thread(saver, thread(), min_age=0, on_pause="abandon")
    assert (repair.outcome, rows_of(path) == before) == ("refused", True)
    assert repair.reason == (
        "finished tasks wrote the state key 'notes': repair it with the graph of the application "
        "(--graph)"
    )
    repair = repair_thread(graph, thread(), min_age=0, on_pause="abandon")
    assert repair.outcome == "repaired"
    assert graph.get_state(thread()).values["notes"] == ["one", "two", "three"]


@on_both_databases
def test_a_subgraph_that_keeps_its_own_history(saver):
    """Its namespace is enough."""
    say(stateful_child(saver, both_calls()), thread(), "go")
    builder = StateGraph(MessagesState)
    builder.add_node("delegate", lambda _: {"messages": [AIMessage("later")]})
    builder.add_edge(START, "delegate")
    say(builder.compile(checkpointer=saver), thread(), "never mind")
    inner = {"configurable": {"thread_id": "1", "checkpoint_ns": "delegate"}}
    assert repair_thread(saver, inner, min_age=0).outcome == "repaired"
    assert repair_thread(saver, thread(), min_age=0).outcome == "repaired"
    assert {report.status for report in scan_threads(saver)} == {"healthy"}


def changed(saver, **values):
    """Store the newest checkpoint once more, with other values."""
    saved = saver.get_tuple(thread())
    saver.delete_thread("1")
    place = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    checkpoint = {**saved.checkpoint, **values}
    stored = saver.put(place, checkpoint, saved.metadata, checkpoint["channel_versions"])
    for task, channel, value in saved.pending_writes:
        saver.put_writes(stored, [(channel, value)], task)


@on_both_databases
@pytest.mark.parametrize("with_graph", [False, True])
def test_an_id_that_sorts_after_every_other_is_noticed_before_the_write(with_graph, saver, path):
    """No repair could become the newest checkpoint: nothing is written, and the reason says so."""
    graph = abandoned_thread("react_v2", saver)
    changed(saver, id="zzz")
    before = rows_of(path)
    repair = repair_thread(graph if with_graph else saver, thread(), min_age=0)
    assert (repair.outcome, rows_of(path) == before) == ("refused", True)
    assert "'zzz', sorts after every id of LangGraph" in repair.reason


@pytest.mark.parametrize("with_graph", [False, True])
def test_a_checkpoint_of_a_clock_that_is_ahead(with_graph, saver):
    """The new checkpoint directly follows it, whatever time it is here."""
    graph = abandoned_thread("react_v2", saver)
    ahead = later_checkpoint_id(saver.get_tuple(thread()).checkpoint["id"], 10**12)
    changed(saver, id=ahead)
    repair = repair_thread(graph if with_graph else saver, thread(), min_age=0)
    assert (repair.outcome, repair.after) == ("repaired", later_checkpoint_id(ahead, 1))
    assert validate_messages(stored_messages(graph)) == []


@pytest.mark.parametrize("node", ["a|b", "__end__", "messages", "", "x" * 10_000])
def test_names_that_no_graph_has_change_nothing(node, saver, path):
    """A row that LangGraph did not write is refused, or repaired; nothing else is raised."""
    abandoned_thread("react_v2", saver)
    versions = saver.get_tuple(thread()).checkpoint["versions_seen"]
    changed(saver, versions_seen={**versions, node: {}})
    before = rows_of(path)
    repair = repair_thread(saver, thread(), min_age=0)
    assert repair.outcome == "repaired" or (
        (repair.outcome, rows_of(path) == before) == ("refused", True)
    )
