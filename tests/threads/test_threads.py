"""Threads in a database: found, repaired, undone, and never harmed by other writers."""

import threading
from collections import Counter
from functools import partial

import numpy as np
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from langgraph_patch import is_placeholder, validate_messages, with_patching
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import GraphError, OptionError, ThreadError
from langgraph_patch.threads import (
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from langgraph_patch.threads.keys import Key, delete_checkpoint
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
from support.databases import (
    copy_thread,
    incident_on_both_databases,
    on_both_databases,
    open_async_saver,
    open_interrupted_saver,
    open_saver,
    rows_of,
)
from support.placeholder_texts import NOT_APPROVED_YET, UNKNOWN, WAITED, WAITED_UNTIL_ENDED
from support.stored_threads import abandoned_thread, stored_messages
from support.strict import ai

NAMES = [kind.name for kind in KINDS]
BREAKABLE = [kind.name for kind in KINDS if not kind.heals]


# --- an incident -------------------------------------------------------------------------


@incident_on_both_databases
def test_an_incident_is_large_and_has_every_status(incident):
    """At least 200 threads, most of them broken, some healthy, some paused."""
    counts = Counter(made.status for made in incident.made)
    assert len(incident.made) >= 200
    assert counts["damaged"] > 100
    assert counts["healthy"] >= 10
    assert counts["paused"] >= 5


@incident_on_both_databases
def test_a_scan_finds_exactly_the_broken_threads(incident):
    """Each thread is reported as what it is, and reporting writes nothing."""
    assert {made.thread_id: made.status for made in incident.made} == {
        thread_id: report.status for thread_id, report in incident.found.items()
    }
    assert incident.scanned == incident.before


@incident_on_both_databases
def test_a_repair_changes_the_damaged_threads_and_no_others(incident):
    """Every damaged thread is repaired; healthy and paused ones are reported as such."""
    outcome = {"damaged": "repaired", "healthy": "healthy", "paused": "paused"}
    assert {made.thread_id: outcome[made.status] for made in incident.made} == {
        thread_id: repair.outcome for thread_id, repair in incident.repairs.items()
    }


@incident_on_both_databases
def test_a_second_scan_is_clean(incident):
    """After the repair nothing is damaged, and what was paused is still paused."""
    assert Counter(incident.second.values()) == Counter(
        "paused" if made.status == "paused" else "healthy" for made in incident.made
    )


@incident_on_both_databases
def test_no_row_is_changed_and_untouched_threads_are_byte_identical(incident):
    """A repair adds rows and changes none; a thread that needs none gets none."""
    for made in incident.made:
        old, new = incident.before[made.thread_id], incident.after[made.thread_id]
        assert old <= new
        assert (old != new) == (made.status == "damaged")


@incident_on_both_databases
def test_the_checkpoint_before_a_repair_stays_and_is_named(incident):
    """The repair says which checkpoint it began from; that row is still there."""
    for made in incident.damaged():
        repair = incident.repairs[made.thread_id]
        ids = {row[3] for row in incident.after[made.thread_id] if row[0] == "checkpoints"}
        assert {repair.before, repair.after} <= ids
        assert repair.after == max(ids)


@on_both_databases
def test_a_repair_is_one_checkpoint_whose_parent_is_the_one_before(saver):
    """Nobody ever sees a thread half repaired, also if its state is spread (`DeltaChannel`)."""
    for kind in ("react_v2", "create_deep_agent"):
        say(application(kind, saver, both_calls()), thread(kind), "go")
        how = {"min_age": 0, "on_pause": "abandon"}
        repair = repair_thread(silent(kind, saver), thread(kind), **how)
        newest = saver.get_tuple(thread(kind))
        assert newest.checkpoint["id"] == repair.after
        assert newest.parent_config["configurable"]["checkpoint_id"] == repair.before


@incident_on_both_databases
def test_a_repair_loses_no_message_and_no_result(incident):
    """Every message that is no result is there, in order; recorded results are recovered."""
    for made in incident.damaged():
        spoken = [m.id for m in incident.histories[made.thread_id] if _is_spoken(m)]
        left = [m.id for m in incident.repaired[made.thread_id] if m.id in spoken]
        assert left == spoken, made
        texts = {m.text for m in incident.repaired[made.thread_id] if isinstance(m, ToolMessage)}
        assert made.real_results <= texts, made


def _is_spoken(message):
    is_result = isinstance(message.content, list) and "tool_result" in str(message.content)
    by_id = "tool_call_id" in message.additional_kwargs
    return message.type in ("human", "ai", "system") and not is_result and not by_id


@incident_on_both_databases
def test_a_repair_leaves_the_history_valid_and_says_what_it_holds(incident):
    """The patch that the repair returns is the history that the thread holds, and it is valid."""
    for made in incident.damaged():
        repair = incident.repairs[made.thread_id]
        assert repair.patch.messages == incident.repaired[made.thread_id]
        assert validate_messages(repair.patch.messages) == []
        assert repair.patch.changes


WAYS = ["abandoned", "killed", "failed_at_the_tail", "F6-steering-message"]


@pytest.mark.sample(5)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.needs("create_deep_agent-F6-steering-message", langgraph="1.2.16")
def test_every_kind_of_agent_takes_a_new_message_after_the_repair(kind, way, saver):
    """Through a model that refuses what providers refuse, the next message is answered."""
    if (kind, way) == ("create_deep_agent", "abandoned"):
        way = "cancelled"  # it repairs the other by itself
    dict(ways_of(kind))[way](kind, saver, thread())
    assert repair_thread(silent(kind, saver), thread(), min_age=0).outcome == "repaired"
    graph = application(kind, saver, AIMessage("fine"))
    graph.invoke({"messages": [human("next")]}, thread())
    assert lines(stored_messages(graph))[-2:] == ["human: next", "ai: fine"]


@incident_on_both_databases
def test_every_repaired_thread_takes_a_new_message(incident):
    """A strict model accepts every repaired thread of an incident."""
    damaged = incident.damaged()
    graph = application("hand_built", None, *[AIMessage("fine") for _ in damaged])
    for made in damaged:
        texts = [*incident.repaired[made.thread_id], human("next")]
        assert graph.invoke({"messages": texts})["messages"][-1].text == "fine"


# --- what a scan says --------------------------------------------------------------------


def test_a_report_tells_causes_and_recovered_results(saver):
    """What would be done is in the report, with what the checkpoints know."""
    abandoned_thread("create_agent", saver)
    (report,) = scan_threads(saver)
    assert str(report) == (
        "'1': damaged - recovered 'send_email' 'c1'; inserted 'wire_money' 'c2' (awaiting_input)"
    )
    assert [(d.defect, d.index) for d in report.defects] == [("dangling", 1), ("dangling", 1)]
    assert report.messages == 3
    assert report.to_dict()["patch"]["changes"][0]["kind"] == "recovered"


def test_a_paused_thread_that_is_damaged_too_says_so(saver):
    """Old damage under a pause is named; the pause itself is no damage."""
    graph = application("react_v2", saver, both_calls())
    old = [human("h0"), ai(("send_email", {"to": "x"}, "c0"), id="a0"), human("h1")]
    graph.update_state(thread(), {"messages": old}, as_node="__start__")
    graph.update_state(thread(), {"messages": [both_calls()]}, as_node="agent")
    graph.invoke(None, thread())
    (report,) = scan_threads(saver)
    assert (report.status, [d.tool_call_id for d in report.defects]) == ("paused", ["c0"])


@on_both_databases
def test_threads_can_be_named(saver):
    """Without names all are reported; named ones once each, in the order of a scan."""
    for number in range(20):
        abandoned_thread("react_v2", saver, f"t{number:02}")
    every = [f"t{number:02}" for number in range(20)]
    assert [r.thread_id for r in scan_threads(saver)] == every
    some = ["t19", "t03", "t07", "t03"]
    assert [r.thread_id for r in scan_threads(saver, thread_ids=some)] == ["t03", "t07", "t19"]
    with pytest.raises(ThreadError, match="There is no thread 't77'"):
        list(scan_threads(saver, thread_ids=["t07", "t77"]))


def test_one_broken_row_never_stops_a_scan(saver):
    """A row that cannot be read is a report with the reason; the others are looked at."""
    for number in range(3):
        abandoned_thread("react_v2", saver, f"t{number}")
    with saver.cursor() as cursor:
        cursor.execute("UPDATE checkpoints SET checkpoint = x'c1c1' WHERE thread_id = 't1'")
    reports = {r.thread_id: r for r in scan_threads(saver)}
    assert [r.status for r in reports.values()] == ["damaged", "unreadable", "damaged"]
    assert reports["t1"].reason


@on_both_databases
def test_a_later_format_is_unreadable_and_not_misread(saver):
    """A checkpoint of a future LangGraph is unreadable: its content is not guessed."""
    abandoned_thread("react_v2", saver)
    saved = saver.get_tuple(thread())
    checkpoint = {**saved.checkpoint, "v": 99, "id": "f" + saved.checkpoint["id"][1:]}
    saver.put(saved.config, checkpoint, {}, {})
    (report,) = scan_threads(saver)
    assert report.status == "unreadable"
    assert "format 99" in report.reason


def test_evidence_that_cannot_be_read_is_reported(saver):
    """If only an older row is broken, the damage is reported, and that causes are unknown."""
    abandoned_thread("create_agent", saver)
    newest = saver.get_tuple(thread()).checkpoint["id"]
    with saver.cursor() as cursor:
        cursor.execute(
            "UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id < ?", (newest,)
        )
    (report,) = scan_threads(saver)
    assert report.status == "damaged"
    assert "older checkpoints cannot be read" in report.reason
    assert str(report).endswith(f"(unknown); {report.reason}")
    assert {change.cause for change in report.patch.changes} == {"unknown"}


@pytest.mark.parametrize("kind", NAMES)
def test_memory_and_sqlite_are_scanned_alike(kind, saver):
    """Any checkpointer is scanned, also one that lists its keys in no other way than `list`."""
    found = []
    for each in (saver, InMemorySaver()):
        for way in ("healthy", "paused", "killed"):
            dict(ways_of(kind))[way](kind, each, thread(way))
        found.append([(r.thread_id, r.status) for r in scan_threads(each) if not r.namespace])
    assert found[0] == found[1]
    assert found[0] == [("healthy", "healthy"), ("killed", "damaged"), ("paused", "paused")]


# --- pauses ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NAMES)
def test_a_paused_thread_is_left_alone_and_takes_its_resume(kind, saver, path):
    """A live pause is untouched by a scan and a repair, and the human's answer arrives."""
    say(application(kind, saver, both_calls()), thread(), "go")
    before = rows_of(path)
    assert repair_thread(application(kind, saver), thread(), min_age=0).outcome == "paused"
    assert rows_of(path) == before
    graph = application(kind, saver, answer())
    graph.invoke(Command(resume=kind_of(kind).yes), thread())
    texts = [m.text for m in stored_messages(graph) if isinstance(m, ToolMessage)]
    assert texts == ["sent to bob", "wired: yes"]


@on_both_databases
@pytest.mark.parametrize("kind", NAMES)
def test_an_abandoned_pause_goes_on_with_the_recorded_results(kind, saver):
    """Finished results are kept, the waiting call was awaiting input, and the thread goes on."""
    say(application(kind, saver, both_calls()), thread(), "go")
    repair = repair_thread(application(kind, saver), thread(), min_age=0, on_pause="abandon")
    assert repair.outcome == "repaired"
    graph = application(kind, saver, AIMessage("fine"))
    graph.invoke({"messages": [human("next")]}, thread())
    texts = [m.text for m in stored_messages(graph) if isinstance(m, ToolMessage)]
    if kind_of(kind).results[0] == "sent to bob":
        assert texts == ["sent to bob", WAITED_UNTIL_ENDED.format("wire_money", "c2")]
    else:
        text = NOT_APPROVED_YET if kind == "create_agent_with_approval" else UNKNOWN
        assert texts == [text.format("send_email", "c1"), text.format("wire_money", "c2")]
    assert stored_messages(graph)[-1].text == "fine"


def test_a_pause_with_nothing_to_repair_is_not_abandoned(saver):
    """The next message ends it anyway, and that is what the repair says."""

    def ask(_):
        interrupt("sure?")

    builder = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [human("go")]}, thread())
    kept = repair_thread(graph, thread(), min_age=0)
    repair = repair_thread(graph, thread(), min_age=0, on_pause="abandon")
    assert (kept.outcome, repair.outcome) == ("paused", "paused")
    assert "abandon the pause" in kept.reason
    assert "nothing in it is damaged: the next message ends the pause" in repair.reason


def test_a_breakpoint_before_the_tools_is_a_pause(saver):
    """`interrupt_before` asks a human too, though no interrupt is recorded."""
    bench = kind_of("hand_built").make(both_calls(), checkpointer=saver, interrupt_before=["tools"])
    say(bench.graph, thread(), "go")
    assert repair_thread(bench.graph, thread(), min_age=0).outcome == "paused"
    repair = repair_thread(bench.graph, thread(), min_age=0, on_pause="abandon")
    assert repair.outcome == "repaired"


# --- age, options, refusals --------------------------------------------------------------


def test_a_young_thread_may_have_a_tool_running(saver, path):
    """Within `min_age` nothing is written, unless it is forced."""
    graph = abandoned_thread("react_v2", saver)
    before = rows_of(path)
    repair = repair_thread(graph, thread())
    assert (repair.outcome, repair.skipped) == ("young", True)
    assert rows_of(path) == before
    assert repair_thread(graph, thread(), force=True).outcome == "repaired"


def test_a_dry_run_writes_nothing_and_shows_the_patch(saver, path):
    """The whole repair is rehearsed; the database does not change."""
    graph = abandoned_thread("create_agent", saver)
    before = rows_of(path)
    repair = repair_thread(graph, thread(), min_age=0, dry_run=True)
    assert (repair.outcome, repair.after) == ("planned", None)
    assert [m.type for m in repair.patch.messages] == ["human", "ai", "tool", "tool", "human"]
    assert rows_of(path) == before
    assert repair_thread(graph, thread(), min_age=0).patch == repair.patch


def test_the_options_of_the_patch_reach_it(saver):
    """The placeholder is the one that was asked for."""
    graph = abandoned_thread("react_v1", saver)
    texts = repair_thread(graph, thread(), min_age=0, dry_run=True, placeholder="gone")
    assert [m.text for m in texts.patch.messages if is_placeholder(m)] == ["gone", "gone"]


def test_a_placeholder_that_raises_reaches_the_caller_and_nothing_is_written(saver, path):
    """An application's error is its own."""
    graph = abandoned_thread("react_v1", saver)
    before = rows_of(path)

    def fail(call):
        raise KeyError(call.name)

    with pytest.raises(KeyError, match="send_email"):
        repair_thread(graph, thread(), min_age=0, placeholder=fail)
    assert rows_of(path) == before


def test_a_patched_graph_repairs_as_a_bare_one(saver):
    """With `with_patching` or without, the stored history is the same."""
    graph = abandoned_thread("react_v2", saver)
    bare = repair_thread(graph, thread(), min_age=0, dry_run=True)
    repair = repair_thread(with_patching(graph), thread(), min_age=0)
    assert repair.patch == bare.patch
    assert stored_messages(graph) == bare.patch.messages


def test_another_graph_is_refused_where_work_would_be_lost(saver, path):
    """A graph that has no node for what finished in the thread would drop it."""
    say(application("create_agent", saver, both_calls()), thread(), "go")
    before = rows_of(path)
    other = stateful_child(saver)
    repair = repair_thread(other, thread(), min_age=0, on_pause="abandon")
    assert (repair.outcome, rows_of(path) == before) == ("refused", True)
    assert "the graph has no node 'tools', which comes next in this thread" in repair.reason
    repair = repair_thread(other, thread(), on_pause="abandon", force=True)
    assert (repair.outcome, rows_of(path) == before) == ("refused", True)
    assert "no node" in repair.reason


@on_both_databases
def test_a_pause_of_another_graph_is_never_taken_for_damage(saver, path):
    """The graph has no node that waits: what waits is read from the checkpoint."""
    say(application("react_v2", saver, both_calls().model_copy(
        update={"tool_calls": both_calls().tool_calls[1:]})), thread(), "go")  # fmt: skip
    before = rows_of(path)
    repair = repair_thread(stateful_child(saver), thread(), force=True)
    assert (repair.outcome, rows_of(path) == before) == ("paused", True)


class Noted(MessagesState):
    """The state of an application that keeps more than the history."""

    notes: list[str]
    count: int


@on_both_databases
@pytest.mark.parametrize("kind", ["react_v2", "create_deep_agent"])
def test_what_another_application_keeps_in_the_same_thread_stays(kind, saver):
    """Two applications share a thread: a forced repair through one keeps the other's state."""
    dict(ways_of(kind))["killed"](kind, saver, thread())
    saved, kept = saver.get_tuple(thread()), {"notes": ["a", "b"], "count": 7}
    versions = dict.fromkeys(kept, "1")
    checkpoint = {
        **saved.checkpoint,
        "channel_values": {**saved.checkpoint["channel_values"], **kept, "branch:to:gone": None},
        "channel_versions": {**saved.checkpoint["channel_versions"], **versions},
    }
    saver.put(saved.parent_config, checkpoint, saved.metadata, versions)
    assert repair_thread(silent(kind, saver), thread(), force=True).outcome == "repaired"
    after = saver.get_tuple(thread()).checkpoint["channel_values"]
    assert {key: after.get(key) for key in kept} == kept
    assert "branch:to:gone" not in after


def test_a_thread_that_the_graph_cannot_read_is_refused_and_named(saver, path):
    """Two tasks wrote one value: LangGraph cannot apply that, and the repair says so."""
    builder = StateGraph(Noted)
    builder.add_node("model", lambda _: {"messages": [both_calls()]}).add_edge(START, "model")
    for name in ("one", "two"):
        builder.add_node(name, lambda _: {"count": 1}).add_edge("model", name)
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(InvalidUpdateError):
        graph.invoke({"messages": [human("go")]}, thread())
    before = rows_of(path)
    repair = repair_thread(graph, thread(), min_age=0)
    assert (repair.outcome, rows_of(path) == before) == ("refused", True)
    assert (
        "InvalidUpdateError: At key 'count': Can receive only one value per step." in repair.reason
    )
    assert repair.reason.endswith("With with_patching, the next message repairs it")
    repair = repair_thread(saver, thread(), min_age=0)
    assert (repair.outcome, "finished tasks wrote the state key 'count'" in repair.reason) == (
        "refused",
        True,
    )


def test_a_failing_checkpointer_is_no_refusal(saver):
    """What the database raises while the graph reads through it comes out as it is."""
    graph = abandoned_thread("react_v2", saver)
    fail = {"at": 2}

    def failing(config, real=saver.get_tuple):
        fail["at"] -= 1
        if fail["at"] < 0:
            raise ConnectionError("lost")
        return real(config)

    saver.get_tuple = failing
    for fail["at"] in range(1, 3):
        with pytest.raises(ConnectionError, match="lost"):
            repair_thread(graph, thread(), min_age=0, recover=False)


@on_both_databases
@pytest.mark.parametrize("kind", ["react_v2", "create_deep_agent"])
@pytest.mark.needs("create_deep_agent", langgraph="1.2.16")
def test_what_cannot_be_compared_is_repaired_too(kind, saver):
    """Arrays refuse `==` and NaN is not equal to itself: neither hinders a repair."""
    odd = [
        human("h0"),
        ai(("t", {"x": float("nan")}, "c0"), id="a0"),
        ToolMessage("r", tool_call_id="c0", id="t0", artifact={"x": np.arange(3.0)}),
        ToolMessage("s", tool_call_id="c9", id="t9", artifact=np.arange(2)),
        ai(("t", {}, "c1"), id="a1"),
        ToolMessage("r", tool_call_id="c1", id="t1", artifact=float("nan")),
        ai(("t", {}, "c2"), id="a2"),
        human("h1"),
    ]
    graph = silent(kind, saver)
    graph.update_state(thread(), {"messages": odd}, as_node=START)
    repair = repair_thread(graph, thread(), min_age=0)
    assert (repair.outcome, repair.reason) == ("repaired", None)
    assert validate_messages(stored_messages(graph)) == []
    assert np.array_equal(stored_messages(graph)[2].artifact["x"], np.arange(3.0))


@on_both_databases
@pytest.mark.parametrize("kind", ["react_v2", "create_deep_agent"])
@pytest.mark.needs("create_deep_agent", langgraph="1.2.16")
def test_a_message_that_waits_to_be_taken_in_is_not_lost(kind, saver, path):
    """Killed between the input and the first step: nothing is written, and how to go on."""
    graph = silent(kind, saver)
    damage = [human("h0"), ai(("send_email", {"to": "x"}, "c0"), id="a0"), human("h1")]
    graph.update_state(thread(), {"messages": damage}, as_node=START)
    graph.update_state(thread(), {"messages": [human("late")]}, as_node="__input__")
    assert START in graph.get_state(thread()).next
    before = rows_of(path)
    for target in (graph, saver):
        repair = repair_thread(target, thread(), min_age=0)
        assert (repair.outcome, "invoke(None)" in repair.reason) == ("refused", True)
    assert rows_of(path) == before


@pytest.mark.needs(langgraph="1.2.16")
def test_placeholders_of_others_give_way_if_asked(saver):
    """Deepagents writes "was cancelled" for a mail that was sent; the result can replace it."""
    graph = application("create_deep_agent", saver, both_calls(), answer())
    say(graph, thread(), "go")
    say(graph, thread(), "never mind")
    assert repair_thread(graph, thread(), min_age=0).outcome == "healthy"
    repair = repair_thread(graph, thread(), min_age=0, replace_foreign=True)
    assert repair.outcome == "repaired"
    texts = [m.text for m in stored_messages(graph) if isinstance(m, ToolMessage)]
    assert texts == ["sent to bob", WAITED.format("wire_money", "c2")]


def test_checkpoint_ids_of_another_make_are_repaired_too(saver):
    """Ids that are no uuid6 cannot be counted on from; the graph's own are used."""
    graph = abandoned_thread("react_v2", saver)
    saved = saver.get_tuple(thread())
    saver.delete_thread("1")
    place = {"thread_id": "1", "checkpoint_ns": ""}
    saver.put({"configurable": place}, {**saved.checkpoint, "id": "0007"}, {"step": 7}, {})
    repair = repair_thread(graph, thread(), min_age=0)
    assert (repair.outcome, repair.before) == ("repaired", "0007")
    assert validate_messages(stored_messages(graph)) == []


def test_a_checkpoint_id_says_what_is_expected(saver):
    """With a `checkpoint_id` that is not the newest, nothing is done."""
    graph = abandoned_thread("react_v2", saver)
    old = list(saver.list(thread()))[-1].config
    assert repair_thread(graph, old, min_age=0).outcome == "moved"
    newest = saver.get_tuple(thread()).config
    assert repair_thread(graph, newest, min_age=0).outcome == "repaired"


def test_a_graph_takes_the_checkpointer_that_is_put_into_it(saver):
    """A graph compiled without one, as on a server, is copied with the one that has the thread."""
    say(application("create_deep_agent", saver, both_calls()), thread("2"), "go")
    graph = application("create_deep_agent", None).copy({"checkpointer": saver})
    repair = repair_thread(graph, thread("2"), min_age=0, on_pause="abandon")
    assert [m.type for m in repair.patch.messages] == ["human", "ai", "tool", "tool"]
    assert stored_messages(application("create_deep_agent", saver), "2") == repair.patch.messages


@pytest.mark.parametrize(
    ("graph", "config", "options", "error", "expected"),
    [
        (lambda s: application("react_v2", s), thread("no"), {}, ThreadError, "no thread 'no'"),
        (lambda s: application("react_v2", s), {}, {}, ThreadError, "names no thread"),
        (lambda _: application("react_v2", None), thread(), {}, GraphError, "no checkpointer"),
        (lambda _: StateGraph(MessagesState), thread(), {}, GraphError, "compiled graph"),
        (
            lambda s: application("react_v2", s),
            thread(),
            {"messages_key": "chat"},
            GraphError,
            "'chat'",
        ),
        (
            lambda s: application("react_v2", s),
            thread(),
            {"on_pause": "drop"},
            OptionError,
            "on_pause='drop'",
        ),
        *(
            (lambda s: application("react_v2", s), config, {}, ThreadError, "names no thread")
            for config in ("1", None, {"configurable": None}, {"configurable": "1"})
        ),
        *(
            (lambda s: application("react_v2", s), thread(), {"min_age": age}, OptionError, "min_a")
            for age in (float("nan"), float("inf"), -1, "60", None)
        ),
        (
            lambda s: application("react_v2", s),
            thread(),
            {"messages_key": 7},
            OptionError,
            "messages_key=7: expected the name of a state key",
        ),
        *(
            (lambda s: application("react_v2", s), thread(), option, OptionError, expected)
            for option, expected in (({"placeholder": 7}, "placeholder=7"),)
        ),
        (
            lambda s: application("react_v2", s),
            {"configurable": {"thread_id": "1", "checkpoint_ns": "tools:1"}},
            {},
            ThreadError,
            "no later run reads it",
        ),
        (
            lambda s: application("react_v2", s),
            {"configurable": {"thread_id": "1", "checkpoint_ns": "child"}},
            {},
            ThreadError,
            "no thread '1' in namespace 'child'",
        ),
    ],
)
def test_an_invalid_option_is_an_error_that_names_the_value(  # noqa: PLR0917 - a table's columns
    graph, config, options, error, expected, saver
):
    """No thread, no checkpointer, no graph, no such key, option or namespace."""
    abandoned_thread("react_v2", saver)
    with pytest.raises(error, match=expected):
        repair_thread(graph(saver), config, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"thread_ids": "t07"}, "thread_ids='t07': expected the ids of threads, for one"),
        ({"thread_ids": [7]}, "thread_ids=.7.: expected the ids"),
        ({"thread_ids": 7}, "thread_ids=7: expected the ids"),
        ({"messages_key": None}, "messages_key=None: expected the name of a state key"),
    ],
)
def test_a_scan_with_invalid_options_is_refused_at_once(options, expected, saver):
    """Before anything is read, also by the async function."""
    for scan in (scan_threads, ascan_threads):
        with pytest.raises(OptionError, match=expected):
            scan(saver, **options)


@pytest.mark.parametrize("wrong", ["a.sqlite", None, application("react_v2", None)])
def test_what_is_no_checkpointer_is_named(wrong):
    """A path, a graph or nothing is not scanned as if it were empty."""
    for scan in (scan_threads, ascan_threads):
        with pytest.raises(OptionError, match=f"is a {type(wrong).__name__}: expected a checkpoin"):
            scan(wrong)


async def test_the_wrong_form_of_a_function_names_the_right_one(path):
    """A checkpointer that is used in an event loop has no other half, and the other way round."""
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        with pytest.raises(
            OptionError, match=r"AsyncSqliteSaver .* with ascan_threads, and await arepair"
        ):
            list(scan_threads(saver))
        for function in (repair_thread, undo_repair):
            with pytest.raises(OptionError, match=r"AsyncSqliteSaver .* await arepair_thread"):
                function(saver, thread())
    with SqliteSaver.from_conn_string(path) as saver:
        with pytest.raises(OptionError, match=r"SqliteSaver .* call scan_threads, repair_thread"):
            [report async for report in ascan_threads(saver)]
        for function in (arepair_thread, aundo_repair):
            with pytest.raises(OptionError, match=r"SqliteSaver .* call repair_thread and undo"):
                await function(saver, thread())


# --- others write at the same time -------------------------------------------------------


def crowd(kind, path, act):
    """Repair once for each call of the checkpointer, and let `act` happen before that call."""
    with open_interrupted_saver(path) as saver, open_saver(path) as other:
        dict(ways_of(kind))["killed"](kind, other, thread("t"))
        at = 0
        graph = silent(kind, saver)
        while saver.calls >= at:
            at += 1
            thread_id = f"t{at}"
            copy_thread(other, "t", thread_id)
            saver.calls, saver.at = 0, at
            saver.act = partial(act, silent(kind, other), thread_id)
            repair = repair_thread(graph, thread(thread_id), min_age=0)
            saver.at = -1
            yield repair, graph, thread_id


@on_both_databases
@pytest.mark.parametrize("kind", ["react_v2", "create_deep_agent"])
def test_what_an_application_writes_at_any_moment_is_kept(kind, path):
    """Before whichever call of a repair it comes, a human's message is never lost."""
    outcomes, wrote = Counter(), set()

    def write(other, thread_id):
        other.update_state(thread(thread_id), {"messages": [human("late")]}, as_node=START)
        wrote.add(thread_id)

    for repair, graph, thread_id in crowd(kind, path, write):
        outcomes[repair.outcome] += 1
        for _ in range(2):
            output = [m.id for m in stored_messages(graph, thread_id) if m.id == "late"]
            assert output == ["late"] * (thread_id in wrote)
            repair_thread(graph, thread(thread_id), min_age=0)
        texts = [m.text for m in stored_messages(graph, thread_id) if isinstance(m, ToolMessage)]
        assert texts == ["sent to bob", "sent to eve"]
        assert validate_messages(stored_messages(graph, thread_id)) == []
    assert outcomes["moved"]
    assert outcomes["repaired"]


@on_both_databases
@pytest.mark.parametrize("kind", ["react_v2", "create_deep_agent"])
def test_two_repairs_at_any_moment_are_one(kind, path):
    """One wins or both are one: the results came back once, and the history is valid."""
    outcomes = Counter()

    def repair_too(other, thread_id):
        outcomes[repair_thread(other, thread(thread_id), min_age=0).outcome] += 1

    for repair, graph, thread_id in crowd(kind, path, repair_too):
        outcomes[repair.outcome] += 1
        texts = [m.text for m in stored_messages(graph, thread_id) if isinstance(m, ToolMessage)]
        assert texts == ["sent to bob", "sent to eve"]
        assert validate_messages(stored_messages(graph, thread_id)) == []
    assert set(outcomes) <= {"repaired", "moved", "healthy"}
    assert outcomes["repaired"]


@on_both_databases
def test_repairs_from_many_threads_at_once_leave_one_history(saver):
    """Eight repairs race for real; the history is what one of them alone would have made."""
    graph = abandoned_thread("react_v2", saver)
    wanted = repair_thread(graph, thread(), min_age=0, dry_run=True).patch.messages
    start, outcomes = threading.Barrier(8), []

    def race():
        start.wait()
        outcomes.append(repair_thread(graph, thread(), min_age=0).outcome)

    racers = [threading.Thread(target=race) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert set(outcomes) <= {"repaired", "moved", "healthy"}
    assert outcomes.count("repaired") >= 1
    assert stored_messages(graph) == wanted


# --- undo --------------------------------------------------------------------------------


@on_both_databases
@pytest.mark.parametrize("kind", NAMES)
def test_an_undone_repair_leaves_no_trace(kind, saver, path):
    """The rows are those of before; the abandoned pause is back and takes its resume."""
    say(application(kind, saver, both_calls()), thread(), "go")
    before = rows_of(path)
    graph = application(kind, saver, answer())
    repair_thread(graph, thread(), min_age=0, on_pause="abandon")
    assert rows_of(path) != before
    undo_repair(graph, thread())
    assert rows_of(path) == before
    graph.invoke(Command(resume=kind_of(kind).yes), thread())
    assert [m.text for m in stored_messages(graph) if isinstance(m, ToolMessage)][
        -1
    ] == "wired: yes"


@on_both_databases
def test_undo_is_refused_once_the_thread_has_moved_on(saver):
    """A message after the repair is worth more than the undo."""
    graph = abandoned_thread("react_v2", saver)
    repair_thread(graph, thread(), min_age=0)
    on = application("react_v2", saver, AIMessage("fine"))
    on.invoke({"messages": [human("next")]}, thread())
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
        undo_repair(graph, thread())
    assert lines(stored_messages(graph))[-2:] == ["human: next", "ai: fine"]


@on_both_databases
def test_there_is_nothing_to_undo_if_nothing_was_written(saver, path):
    """Whatever the newest checkpoint is, only one with the mark of a repair is deleted."""
    graph = abandoned_thread("react_v2", saver)
    before = rows_of(path)
    assert repair_thread(graph, thread()).outcome == "young"
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
        undo_repair(graph, thread())
    assert rows_of(path) == before
    repair = repair_thread(graph, thread(), min_age=0)
    other = {"configurable": {**thread()["configurable"], "checkpoint_id": repair.before}}
    with pytest.raises(ThreadError, match=f"is {repair.after}, not {repair.before}"):
        undo_repair(graph, other)
    assert undo_repair(graph, thread()) == repair.before
    assert rows_of(path) == before
    with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
        undo_repair(graph, thread())
    assert rows_of(path) == before
    saver.delete_thread("1")
    with pytest.raises(ThreadError, match="There is no thread '1'"):
        undo_repair(graph, thread())


@on_both_databases
def test_what_was_repaired_is_listed(saver):
    """By LangGraph's own filter for all times, and by a scan as long as nothing follows."""
    for name in ("1", "2", "3"):
        abandoned_thread("react_v2", saver, name)
    done = {name: repair_thread(saver, thread(name), min_age=0).after for name in ("1", "3")}
    assert [r.thread_id for r in scan_threads(saver) if r.repaired] == ["1", "3"]
    application("react_v2", saver, AIMessage("fine")).invoke({"messages": [human("x")]}, thread())
    assert [r.thread_id for r in scan_threads(saver) if r.repaired] == ["3"]
    marked = list(saver.list(None, filter={"langgraph_patch": "repair"}))
    assert {
        saved.config["configurable"]["thread_id"]: saved.checkpoint["id"] for saved in marked
    } == done


def test_undo_in_memory(path):
    """The in-memory checkpointer forgets as SQLite does."""
    saver = InMemorySaver()
    graph = abandoned_thread("react_v2", saver)
    before = [saved.config for saved in saver.list(thread())]
    repair_thread(graph, thread(), min_age=0)
    undo_repair(graph, thread())
    assert [saved.config for saved in saver.list(thread())] == before
    again = repair_thread(graph, thread(), min_age=0)
    saver.delete_thread("1")
    assert not run_sync(delete_checkpoint(saver, Key("1", ""), again.after))
    assert "1" not in saver.storage


# --- async -------------------------------------------------------------------------------


@on_both_databases
@pytest.mark.parametrize("kind", ["create_agent", "create_deep_agent"])
async def test_the_async_functions_do_the_same(kind, path):
    """Scan, repair, undo over an async checkpointer give what the sync ones give."""
    with open_saver(path) as saver:
        dict(ways_of(kind))["killed"](kind, saver, thread())
        scanned = [r.to_dict() | {"age": 0} for r in scan_threads(saver)]
        wanted = repair_thread(silent(kind, saver), thread(), min_age=0, dry_run=True)
    before = rows_of(path)
    async with open_async_saver(path) as saver:
        graph = application(kind, saver, AIMessage("fine"))
        assert [r.to_dict() | {"age": 0} async for r in ascan_threads(saver)] == scanned
        named = [r.thread_id async for r in ascan_threads(saver, thread_ids=["1"])]
        assert named == ["1"]
        repair = await arepair_thread(graph, thread(), min_age=0)
        assert (repair.outcome, repair.patch) == ("repaired", wanted.patch)
        await aundo_repair(graph, thread())
        assert rows_of(path) == before
        assert await arepair_thread(graph, thread(), min_age=0) == repair
        await graph.ainvoke({"messages": [human("next")]}, thread())
        with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
            await aundo_repair(graph, thread())


async def test_the_async_functions_over_delta_state_and_memory():
    """`DeltaChannel` state and the in-memory checkpointer, asynchronously."""
    saver = InMemorySaver()
    say(application("create_deep_agent", saver, both_calls()), thread(), "go")
    graph = application("create_deep_agent", saver)
    await arepair_thread(graph, thread(), min_age=0, on_pause="abandon")
    texts = [m.text for m in stored_messages(graph) if isinstance(m, ToolMessage)]
    assert texts == ["sent to bob", WAITED_UNTIL_ENDED.format("wire_money", "c2")]
    assert [r.status async for r in ascan_threads(saver)] == ["healthy"]
    await aundo_repair(graph, thread())
    assert [r.status async for r in ascan_threads(saver)] == ["paused"]


# --- subgraphs ---------------------------------------------------------------------------


def stale_child(saver):
    """A stateful subgraph that asked a human; its parent has moved on."""
    say(stateful_child(saver, both_calls()), thread(), "go")
    builder = StateGraph(MessagesState)
    builder.add_node("delegate", lambda _: {"messages": [AIMessage("later")]})
    builder.add_edge(START, "delegate")
    say(builder.compile(checkpointer=saver), thread(), "never mind")


def test_a_pause_inside_a_subgraph_is_live_as_long_as_the_root_waits(saver):
    """Root and child both report the one pause, and neither is repaired."""
    say(stateful_child(saver, both_calls()), thread(), "go")
    assert [(r.namespace, r.status) for r in scan_threads(saver)] == [
        ("", "paused"),
        ("delegate", "paused"),
    ]
    inner = {"configurable": {"thread_id": "1", "checkpoint_ns": "delegate"}}
    assert repair_thread(stateful_child(saver), inner, min_age=0).outcome == "paused"


@on_both_databases
def test_a_lasting_namespace_is_found_and_repaired(saver):
    """A stateful subgraph with a pause that nobody can answer is damaged, then repaired."""
    stale_child(saver)
    assert [(r.namespace, r.status) for r in scan_threads(saver)] == [
        ("", "damaged"),  # it lacks what the subgraph did
        ("delegate", "damaged"),
    ]
    graph = stateful_child(saver, AIMessage("fine"))
    inner = {"configurable": {"thread_id": "1", "checkpoint_ns": "delegate"}}
    repair = repair_thread(graph, inner, min_age=0)
    assert (repair.outcome, repair.namespace) == ("repaired", "delegate")
    assert repair_thread(graph, thread(), min_age=0).outcome == "repaired"
    assert {r.status for r in scan_threads(saver)} == {"healthy"}
    graph.invoke({"messages": [human("next")]}, thread())
    assert stored_messages(graph)[-1].text == "fine"
    child = stored_messages(graph, namespace="delegate")
    assert [m.type for m in child] == ["human", "ai", "tool", "tool", "human", "ai"]


@on_both_databases
def test_undo_in_a_namespace(saver, path):
    """A repair of a subgraph's history is undone like any other."""
    stale_child(saver)
    before = rows_of(path)
    graph = stateful_child(saver)
    inner = {"configurable": {"thread_id": "1", "checkpoint_ns": "delegate"}}
    repair_thread(graph, inner, min_age=0)
    undo_repair(graph, inner)
    assert rows_of(path) == before


def test_a_namespace_of_one_run_is_no_damage(saver):
    """It is never read again. What its run did is missing in the graph above, which is damaged."""
    inner = kind_of("react_v2").make(both_calls(), answer())
    builder = StateGraph(MessagesState)
    builder.add_node("agent", inner.graph)
    builder.add_edge(START, "agent")
    graph = builder.compile(checkpointer=saver)
    say(graph, thread(), "go")
    assert [r.status for r in scan_threads(saver)] == ["paused", "paused"]
    say(graph, thread(), "never mind")
    assert [(r.namespace, r.status) for r in scan_threads(saver)] == [("", "damaged")]


@pytest.mark.parametrize(
    "note", [AIMessage("note"), ("ai", "note"), {"role": "ai", "content": "note"}]
)
def test_a_message_of_any_form_that_a_finished_node_wrote(note):
    """It gets its id only when it is put into the state, and is not lost by a repair."""
    call = ai(("wire_money", {"amount": 1}, "c1"), id="a1")
    builder = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [call]})
    builder.add_node(
        "tools", lambda _: {"messages": [ToolMessage(interrupt("?"), tool_call_id="c1")]}
    )
    builder.add_node("side", lambda _: {"messages": [note]})
    builder.add_edge(START, "model").add_edge("model", "tools").add_edge("model", "side")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": [human("pay")]}, thread())
    repair = repair_thread(graph, thread(), min_age=0, on_pause="abandon")
    assert repair.outcome == "repaired"
    assert sorted(lines(stored_messages(graph))) == [
        "ai c1: ",
        "ai: note",
        "human: pay",
        f"tool c1: {UNKNOWN.format('wire_money', 'c1')}",  # another node ran beside it
    ]
