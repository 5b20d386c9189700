"""Threads in a checkpointer: repaired, left as they are, and never harmed by other writers."""

import asyncio
import operator
import sqlite3
from contextlib import closing
from threading import Thread
from typing import Annotated

import pytest
from langchain.messages import AIMessage, HumanMessage
from langchain_core.messages import RemoveMessage
from langgraph.checkpoint.serde.event_hooks import emit_serde_event
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import interrupt

from kit import calls
from langgraph_patch import validate_messages
from langgraph_patch._langgraph.storage import later_checkpoint_id
from langgraph_patch.errors import GraphError, OptionError, ThreadError
from langgraph_patch.threads import ThreadReport, repair_thread, scan_threads, undo_repair
from langgraph_patch.threads.read import classes_not_loaded
from support.databases import rows_of
from support.stored_threads import (
    WIRE,
    Faults,
    each_fault,
    result_of,
    results,
    stored,
    thread,
    write,
)
from support.thread_laws import (
    CASES,
    check_late_result,
    check_other_writer,
    check_pause,
    check_repair,
    check_two_repairs,
)

ABANDON = {"min_age": 0, "on_pause": "abandon"}


def repaired(target, config=None, **options):
    """Repair a thread of any age; the outcome and the reason."""
    repair = repair_thread(target, config or thread(), **{"min_age": 0, **options})
    return repair.outcome, repair.reason or ""


def check_unchanged(path, act):
    """`act` returns an outcome and a reason, and writes nothing. Returns them."""
    before = rows_of(path)
    found = act()
    assert rows_of(path) == before
    return found


# --- a repair ------------------------------------------------------------------------------


@pytest.mark.needs("delta", langgraph="1.2.14")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:2]))
def test_a_repair_is_one_checkpoint_and_the_thread_goes_on(case, path, saver):
    """Scan, dry run, repair, undo, next message: nothing is lost, and nothing runs again."""
    check_repair(path, saver, case)


def changed(saver, *, metadata=None, **values):
    """Store the newest checkpoint once more, alone, with other values; mappings are added to."""
    saved = saver.get_tuple(thread())
    checkpoint = {**saved.checkpoint}
    for key, value in values.items():
        is_added = isinstance(value, dict) and key in checkpoint
        checkpoint[key] = {**checkpoint[key], **value} if is_added else value
    saver.delete_thread("1")
    versions = dict.fromkeys(checkpoint["channel_versions"], "1")
    checkpoint["channel_versions"] = {**versions, **saved.checkpoint["channel_versions"]}
    config = saver.put(thread(checkpoint_ns=""), checkpoint, metadata or saved.metadata, versions)
    for task, channel, value in saved.pending_writes:
        saver.put_writes(config, [(channel, value)], task)


# --- pauses --------------------------------------------------------------------------------


@pytest.mark.needs("delta", langgraph="1.2.14")
@pytest.mark.parametrize("kind", ["agent", "delta"])
def test_a_live_pause_is_left_alone_and_takes_its_answer(kind, path, saver):
    """Also after it was abandoned and the repair undone."""
    check_pause(path, saver, kind)


# --- options -------------------------------------------------------------------------------


def test_a_young_thread_may_have_a_tool_running(path, saver):
    """Within `min_age` nothing is written, unless it is lowered; a time without a zone is UTC."""
    stored("abandoned", saver=saver)
    before = rows_of(path)
    for age, options in ((60, {}), (30, {"min_age": 30})):
        repair = repair_thread(saver, thread(), **options)
        assert repair.skipped
        assert str(repair) == (
            f"'1': young - its newest checkpoint is 0 s old and a tool may be running: wait until "
            f"it is {age} s old, or lower the minimum age"
        )
    assert rows_of(path) == before
    planned = repair_thread(saver, thread(), min_age=0, dry_run=True)
    assert (planned.outcome, planned.skipped) == ("planned", False)
    for ts, outcome in (
        ("2999-01-01T00:00:00+00:00", "young"),
        ("soon", "young"),
        ("2020-01-01T00:00:00", "repaired"),
    ):
        changed(saver, ts=ts)
        repair = repair_thread(saver, thread())
        assert repair.outcome == outcome
        assert ("one clock is wrong" in str(repair)) == ("2999" in ts)


def test_a_checkpoint_id_says_what_is_expected(saver):
    """With a `checkpoint_id` that is not the newest, nothing is done."""
    stored("abandoned", saver=saver)
    [newest, *_, old] = saver.list(thread())
    of_a_run = {"checkpoint_map": {"": "x"}, "__pregel_task_id": "x"}  # is ignored
    config = {"configurable": {**newest.config["configurable"], **of_a_run}}
    repair = repair_thread(saver, old.config, min_age=0)
    ids = newest.checkpoint["id"], old.checkpoint["id"]
    assert (repair.outcome, repair.skipped, repair.before) == ("moved", True, ids[0])
    assert repair.reason == "its newest checkpoint is {}, not {}".format(*ids)
    assert repaired(saver, config) == ("repaired", "")


def test_a_wrong_argument_is_an_error_that_names_it(path, saver):
    """No thread, no checkpointer, no such key, option or namespace; a password is not repeated."""
    graph = stored("abandoned", "hand_built", saver).graph
    opens = "a str: expected a checkpointer, .* `langgraph_patch.open_database` opens a file"
    names, report = 'pass {{"configurable": {{"thread_id": {}}}}}', ThreadReport("1", "", "healthy")
    before = rows_of(path)
    for target, config, options, error, expected in (
        (saver, thread("no"), {}, ThreadError, r"There is no thread 'no'\."),
        (saver, {}, {}, ThreadError, "{} names no thread: " + names.format('"..."')),
        (saver, "1", {}, ThreadError, "'1' names no thread: " + names.format('"1"')),
        (saver, {"thread_id": 1}, {}, ThreadError, "names no thread: " + names.format('"1"')),
        (saver, "u:Zx9secret@h", {}, ThreadError, "names no thread: " + names.format('"..."')),
        (saver, report, {}, ThreadError, "'1': healthy> names no thread: pass its .config"),
        (saver, {"configurable": {"thread_id": None}}, {}, ThreadError, "names no thread"),
        (saver, thread(checkpoint_ns="child"), {}, ThreadError, "'1' in namespace 'child'"),
        (saver, thread(checkpoint_ns="a:1"), {}, ThreadError, "'a:1' .* no later run reads it"),
        (saver, thread(), {"on_pause": "drop"}, OptionError, "on_pause='drop': expected 'keep'"),
        (saver, thread(), {"min_age": float("nan")}, OptionError, "min_age=nan: expected sec"),
        (saver, thread(), {"dry_run": "no"}, OptionError, "dry_run='no': expected True or False"),
        (saver, thread(), {"recover": "no"}, OptionError, "recover='no': expected True or False"),
        (saver, thread(), {"min_age": "60"}, OptionError, "min_age='60'"),
        (saver, thread(), {"messages_key": 7}, OptionError, "messages_key=7: expected the name"),
        (saver, thread(), {"messages_key": "chat"}, GraphError, "'chat'"),
        (saver, thread(), {"placeholder": 7}, OptionError, "placeholder=7"),
        (graph, thread(), {}, GraphError, "pass its checkpointer .graph.checkpointer."),
        (graph.builder, thread(), {}, GraphError, "pass its checkpointer .graph.checkpointer."),
        (None, thread(), {}, OptionError, "None is a NoneType: expected a checkpointer"),
        (path, thread(), {}, OptionError, opens),
        ("postgresql://u:Zx9secret@h/db", thread(), {}, OptionError, opens),
    ):
        with pytest.raises(error, match=expected) as raised:
            repair_thread(target, config, **{"min_age": 0, **options})
        assert "Zx9secret" not in str(raised.value)
    assert rows_of(path) == before


async def test_an_asynchronous_checkpointer_is_refused_and_a_thread_will_do(path, saver):
    """The error says how to open the same database; a service calls the function in a thread."""
    stored("abandoned", saver=saver)
    async with AsyncSqliteSaver.from_conn_string(path) as own:
        for act in (repair_thread, undo_repair, scan_threads):
            with pytest.raises(OptionError, match=r"AsyncSqliteSaver is asynchronous: .*to_thread"):
                act(own, *[thread()] * (act is not scan_threads))
    repair = await asyncio.to_thread(repair_thread, saver, thread(), min_age=0)
    assert repair.outcome == "repaired"


# --- refusals ------------------------------------------------------------------------------


class Noted(MessagesState):
    """A state with a reducer of its own and a key without one."""

    notes: Annotated[list[str], operator.add]
    count: int


def noting(side, saver):
    """A thread whose tool waits, beside another node."""
    builder = StateGraph(Noted).add_node("model", lambda _: {"messages": [calls(WIRE)]})
    builder.add_node("tools", lambda _: interrupt("sure?")).add_node("side", side)
    builder.add_edge(START, "model").add_edge("model", "tools").add_edge("model", "side")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [HumanMessage("go")], "notes": ["one"]}, thread())


APPLICATIONS = (
    "finished tasks wrote the state key 'count', 'notes': with with_patching, the next message "
    "repairs it and restores that"
)


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (lambda _: {"notes": ["two"], "count": 2}, APPLICATIONS),
        (
            lambda state: {"messages": [RemoveMessage(id=state["messages"][0].id)]},
            "1 of its 2 messages would be lost",
        ),
    ],
    ids=["state keys", "a message"],
)
def test_what_a_repair_would_lose_is_refused(side, expected, path, saver):
    """A finished task beside the pause wrote notes, or removed a message: nothing is written."""
    noting(side, saver)
    outcome, reason = check_unchanged(path, lambda: repaired(saver, **ABANDON))
    assert (outcome, reason.startswith(expected)) == ("refused", True)


def test_what_langgraph_cannot_apply_is_refused_and_named(path, saver):
    """A finished task removes a message that there is not: the reason has LangGraph's error."""
    with pytest.raises(ValueError, match="doesn't exist"):
        noting(lambda _: {"messages": [RemoveMessage(id="gone")]}, saver)
    outcome, reason = check_unchanged(path, lambda: repaired(saver, **ABANDON))
    assert (outcome, "ValueError: Attempting to delete a message" in reason) == ("refused", True)
    assert reason.startswith("LangGraph cannot apply what its finished tasks wrote: ")


def test_what_another_thread_does_not_load_is_not_noted():
    """A listener of LangGraph's serializer hears of every conversation that the process loads."""
    event = {"kind": "msgpack_blocked", "module": "shop", "name": "Customer"}
    with classes_not_loaded() as blocked:
        other = Thread(target=emit_serde_event, args=(event,))
        other.start()
        other.join()
        assert blocked == set()
        emit_serde_event(event)
    assert blocked == {"shop:Customer"}


@pytest.mark.needs(langgraph="1.2")
def test_a_history_that_reducers_read_differently_is_refused(path, saver):
    """LangGraph's ignores that all messages are removed, others obey it."""
    made = stored("abandoned", "delta", saver)
    write(made, [RemoveMessage(id=REMOVE_ALL_MESSAGES), *made.history], "tools")
    outcome, reason = check_unchanged(path, lambda: repaired(saver, **ABANDON))
    ignored = "the reducer of LangGraph before 1.2.24 ignores" in reason
    assert (outcome, ignored) == ("refused", True)


@pytest.mark.parametrize("kind", ["agent", "delta"])
def test_a_message_that_no_superstep_has_read_is_not_lost(kind, path, saver):
    """Killed between the input and the first step: nothing is written, and how to go on."""
    write(stored("abandoned", kind, saver), [HumanMessage("late")], "__input__")
    found = check_unchanged(path, lambda: repaired(saver))
    assert (found[0], "continue it with invoke(None) first" in found[1]) == ("refused", True)


def test_checkpoint_ids_that_are_not_langgraphs(path, saver):
    """A repair is directly behind its checkpoint, or is not written and the reason says why."""
    stored("abandoned", saver=saver)
    ahead = later_checkpoint_id(saver.get_tuple(thread()).checkpoint["id"], 10**12)
    changed(saver, id=ahead, metadata={"source": "loop"})
    repair = repair_thread(saver, thread(), min_age=0)
    assert (repair.outcome, repair.before) == ("repaired", ahead)
    assert repair.after == later_checkpoint_id(ahead, 1)
    assert saver.get_tuple(thread()).metadata["step"] == 0
    undo_repair(saver, thread())
    for other in ("ffffffff-ffff-4fff-8fff-ffffffffffff", "zzz"):
        changed(saver, id=other)
        outcome, reason = check_unchanged(path, lambda: repaired(saver))
        assert (outcome, f"{other!r}, is none of LangGraph's" in reason) == ("refused", True)


# --- subgraphs -----------------------------------------------------------------------------


INNER = thread(checkpoint_ns="delegate")


def test_a_subgraph_that_keeps_its_own_history(path, saver):
    """Its pause is live as long as the root waits; then it is damage in its own namespace."""
    made = stored("paused", "stateful_child", saver)
    found = [(r.namespace, r.status, r.asks) for r in scan_threads(saver)]
    assert found == [("", "paused", ("wire 5?",)), ("delegate", "paused", ("wire 5?",))]
    assert repaired(saver, INNER)[0] == "paused"
    builder = StateGraph(MessagesState).add_edge(START, "delegate")
    builder.add_node("delegate", lambda _: {"messages": [AIMessage("later")]})
    builder.compile(checkpointer=saver).invoke({"messages": [HumanMessage("no")]}, thread())
    before = rows_of(path)
    assert [r.namespace for r in scan_threads(saver) if r.status == "damaged"] == ["delegate"]
    repair = repair_thread(saver, INNER, min_age=0)
    assert (repair.outcome, repair.namespace) == ("repaired", "delegate")
    assert str(repair).startswith("'1' in 'delegate': repaired - ")
    undo_repair(saver, INNER)
    assert rows_of(path) == before
    assert repaired(saver, INNER)[0] == "repaired"
    assert {r.status for r in scan_threads(saver)} == {"healthy"}
    made.say("next")
    child = made.graph.get_state(INNER).values["messages"]
    assert [m.type for m in child] == ["human", "ai", "tool", "tool", "human", "ai"]


# --- others write at the same time -----------------------------------------------------------


@pytest.mark.needs("delta", langgraph="1.2.14")
@pytest.mark.parametrize("check", [check_other_writer, check_late_result, check_two_repairs])
@pytest.mark.parametrize("kind", ["agent", "delta"])
def test_what_others_write_at_any_moment_is_kept(kind, check, path):
    """Before whichever call of a repair it comes; two repairs are one."""
    check(path, kind)


def test_a_thread_that_moves_while_a_repair_is_planned_is_not_written(saver):
    """Nobody meets a repair that is taken back at once."""
    made = stored("abandoned", saver=saver)

    def text(_):
        write(made, [HumanMessage("late")])
        saver.put = lambda *_: pytest.fail("written")
        return "nothing is known"

    assert repaired(saver, placeholder=text)[0] == "moved"


class Forgetful(SqliteSaver):
    """Stores something else than a repair wrote."""

    def put(self, config, checkpoint, metadata, new_versions):
        """Store a checkpoint, one with the mark without its last message."""
        if metadata.get("langgraph_patch"):
            messages = checkpoint["channel_values"]["messages"][:-1]
            checkpoint = {**checkpoint, "channel_values": {"messages": messages}}
        return super().put(config, checkpoint, metadata, new_versions)


def test_a_checkpoint_that_is_not_read_back_as_it_was_written_is_deleted(path):
    """The thread is as it was before."""
    with closing(sqlite3.connect(path, check_same_thread=False)) as conn:
        saver = Forgetful(conn)
        stored("abandoned", saver=saver)
        reason = "the database did not return what was written to it"
        assert check_unchanged(path, lambda: repaired(saver)) == ("refused", reason)


# --- checkpointers that fail -----------------------------------------------------------------


@pytest.mark.needs("delta", langgraph="1.2.14")
@pytest.mark.parametrize(("kind", "way"), [("agent", "abandoned"), ("delta", "killed")])
def test_a_fault_at_any_call(kind, way):
    """The error comes out, the thread is unchanged or repaired, and the next repair works."""
    source = stored(way, kind)
    for saver in each_fault(source.graph.checkpointer):
        graph = source.graph.copy({"checkpointer": saver})
        before = len(saver.storage["1"][""])
        found = result_of(lambda: repaired(saver, **ABANDON))  # noqa: B023 - called at once
        assert isinstance(found, Exception) == saver.faults.failed
        is_written = len(saver.storage["1"][""]) > before
        notes = getattr(found, "__notes__", [])
        assert not (isinstance(found, Exception) and is_written) or "May have been" in notes[0]
        saver.faults = Faults(0)
        assert repaired(saver, **ABANDON)[0] in ("repaired", "healthy")
        messages = graph.get_state(thread()).values["messages"]
        assert (results(messages)[0], validate_messages(messages)) == ("sent to bob", [])
