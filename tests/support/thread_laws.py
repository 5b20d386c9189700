"""Laws of scan, repair and undo that hold in SQLite and in PostgreSQL; and an incident."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command

from kit import Agent
from langgraph_patch import validate_messages
from langgraph_patch._langgraph.address import Address
from langgraph_patch.threads import ThreadReport, repair_thread, scan_threads, undo_repair
from langgraph_patch.threads.repair import STOPPED_RUN
from support.databases import copy_thread, every_row, open_interrupted_saver, open_saver, rows_of
from support.histories import call_of, invalid_of
from support.stored_threads import WAITED, lines, results, scanned, stored, thread, write

UNKNOWN = "inserted 'mail' 'c1' (unknown); inserted 'wire' 'c2' (unknown)"
FOUND = "recovered 'mail' 'c1'; inserted 'wire' 'c2' (awaiting_input)"
FAILED = "recovered 'mail' 'c1'; inserted 'boom' 'c2' (failed)"
BOTH = "recovered 'mail' 'c1'; recovered 'mail' 'c2'"

CASES = [
    ("hand_built", "abandoned", UNKNOWN),
    ("agent", "abandoned", FOUND),
    ("agent", "failed", FAILED),
    ("agent", "killed", BOTH),
    ("delta", "failed_and_on", FAILED),
    ("delta", "killed", BOTH),
]
"""A kind of agent, what happened, and the repair."""

NOW: Any = {"min_age": 0, "on_pause": "abandon"}
"""Repairs threads of any age, also killed ones, which may wait at a breakpoint."""


def check_same_judgement(saver: Any, report: ThreadReport) -> str:
    """A repair of any age does what a scan has said, for the same reason; returns its outcome."""
    found = repair_thread(saver, report.config, min_age=0, dry_run=True)
    same = {"healthy": "healthy", "damaged": "planned", "paused": "paused"}
    if found.outcome == "refused":
        assert report.status == "damaged"
        assert (found.reason or "") in (report.reason or "")
    else:
        assert found.outcome == same[report.status], report
    if found.patch:
        assert report.patch
        assert found.patch.to_dict() == report.patch.to_dict()
    if report.status == "paused" and not report.asks:
        assert (found.reason or "") in (report.reason or "")
    return found.outcome


def check_repair(database: str, saver: Any, case: tuple[str, str, str]) -> None:
    """Scanned, planned, repaired, undone, repaired again, and continued."""
    kind, way, expected = case
    made = stored(way, kind, saver)
    before, did = rows_of(database)["1"], made.desk.did.copy()
    # The history without what finished tasks wrote beside it.
    state = made.graph.get_state(saver.get_tuple(made.config).config)
    history = [m for m in state.values["messages"] if m.type != "tool"]

    [report] = scan_threads(saver)
    check_same_judgement(saver, report)
    planned = repair_thread(saver, made.config, dry_run=True, **NOW)
    status, last = ("paused", f"; {STOPPED_RUN}") if way == "killed" else ("damaged", "")
    assert str(report) == f"'1': {status} - {expected}{last}"
    assert str(planned) == f"'1': planned - {expected}"
    assert (planned.after, planned.before) == (None, report.checkpoint_id)
    assert rows_of(database)["1"] == before

    repair = repair_thread(saver, made.config, **NOW)
    assert str(repair) == f"'1': repaired - {expected}"
    # A result that its task stored without an id gets one when it is put into the history.
    wanted = lines(report.patch.messages)
    assert lines(repair.patch.messages) == lines(planned.patch.messages) == wanted
    after = rows_of(database)["1"]
    assert before < after
    saved = saver.get_tuple(made.config)
    new = {row[3] for row in after - before if row[0] == "checkpoints"}
    assert new == {repair.after} == {saved.checkpoint["id"]}
    assert saved.parent_config["configurable"]["checkpoint_id"] == repair.before
    assert saved.metadata["langgraph_patch"] == "repair"
    assert made.graph.get_state(made.config).next == ()
    assert made.history == repair.patch.messages
    assert validate_messages(made.history) == []
    assert [m for m in made.history if m in history] == history
    assert scanned(saver) == [("1", "healthy")]
    assert repair_thread(saver, made.config, **NOW).outcome == "healthy"
    assert rows_of(database)["1"] == after

    assert undo_repair(saver, made.config) == repair.before
    assert rows_of(database)["1"] == before
    assert {row[0] for row in every_row(database)["1"] - before} <= {"checkpoint_blobs"}
    again = repair_thread(saver, made.config, **NOW)
    assert (str(again), again.after) == (str(repair), repair.after)
    made.say("next")
    assert lines(made.history) == [*wanted, "human: next", "ai: done"]
    assert made.desk.did == did


def check_pause(database: str, saver: Any, kind: str) -> None:
    """A pause is left alone and takes its answer, also after it was abandoned and taken back.

    A repair that abandons it keeps what has just finished.
    """
    made = stored("paused", kind, saver)
    before = rows_of(database)["1"]
    assert repair_thread(saver, made.config, min_age=0).outcome == "paused"
    assert scanned(saver) == [("1", "paused")]
    assert rows_of(database)["1"] == before
    repair = repair_thread(saver, made.config, **NOW)
    assert (repair.outcome, repair.patch.messages) == ("repaired", made.history)
    assert results(made.history) == ["sent to bob", WAITED.format("c2")]
    assert [(c.index, c.name) for c in repair.patch.changes] == [(1, "mail"), (1, "wire")]
    undo_repair(saver, made.config)
    assert rows_of(database)["1"] == before
    made.run(Command(resume="yes"))
    assert results(made.history) == ["sent to bob", "wired 5: yes"]


def fill(saver: Any) -> list[Address]:
    """Store two checkpoints for each of many odd histories; their addresses, sorted."""
    ids = ["", " ", "'; DROP TABLE checkpoints; --", "線程", "\U0010ffff", "a\nb", "%s", "_b", "é"]
    ids += ["a", "A", "B", "b", "-b", "co-op", "co op"]
    wanted = sorted(Address(name, space) for name in ids for space in ("", "a", "B", "a|b", "a:1"))
    empty: Any = {"v": 4, "ts": "", "channel_values": {}, "channel_versions": {}}
    for each in reversed(wanted):
        for number in range(2):
            checkpoint = {**empty, "versions_seen": {}, "id": f"{number}"}
            saver.put(each.config, checkpoint, {}, {})
    return wanted


# --- others write at the same time ----------------------------------------------------------


def crowd(database: str, kind: str, act: Any) -> Iterator[tuple[Any, Any]]:
    """Repair once for each call of the checkpointer, and let `act` happen before that call."""
    with open_interrupted_saver(database) as saver, open_saver(database) as other:
        made, outsider = stored("killed", kind, other, "t"), stored("new", kind, other, "new")
        at = 0
        while saver.calls >= at:
            at += 1
            made.config = outsider.config = thread(f"t{at}")
            copy_thread(other, "t", f"t{at}")
            saver.calls, saver.at, saver.act = 0, at, partial(act, outsider)
            repair = repair_thread(saver, made.config, **NOW)
            saver.at = -1
            yield repair, made


def check_other_writer(database: str, kind: str) -> None:
    """Before whichever call of a repair a message comes, it is kept, and so are the results."""
    outcomes, wrote = set(), set()

    def message(outsider: Any) -> None:
        outsider.graph.update_state(outsider.config, {"messages": [("human", "late")]}, "__start__")
        wrote.add(outsider.config["configurable"]["thread_id"])

    for repair, made in crowd(database, kind, message):
        outcomes.add(repair.outcome)
        is_late = repair.thread_id in wrote
        assert [m.text for m in made.history].count("late") == is_late
        repair_thread(made.graph.checkpointer, made.config, **NOW)
        assert [m.text for m in made.history].count("late") == is_late
        assert results(made.history) == ["sent to bob", "sent to eve"]
        assert validate_messages(made.history) == []
    assert outcomes == {"moved", "repaired"}


def check_late_result(database: str, kind: str) -> None:
    """What a task writes beside a checkpoint, before whichever call, is not left behind there."""
    outcomes = set()

    def finish(outsider: Any) -> None:
        saver = outsider.graph.checkpointer
        newest = saver.get_tuple(outsider.config).config
        saver.put_writes(newest, [("messages", [HumanMessage("late")])], "late")

    for repair, _ in crowd(database, kind, finish):
        outcomes.add(repair.outcome)
    assert outcomes == {"refused", "moved", "repaired"}


def check_two_repairs(database: str, kind: str) -> None:
    """One wins, or both are one: the results are there once, and the history is valid."""
    outcomes = set()

    def repair_too(outsider: Any) -> None:
        saver = outsider.graph.checkpointer
        outcomes.add(repair_thread(saver, outsider.config, **NOW).outcome)

    for repair, made in crowd(database, kind, repair_too):
        outcomes.add(repair.outcome)
        assert results(made.history) == ["sent to bob", "sent to eve"]
        assert validate_messages(made.history) == []
    assert "repaired" in outcomes
    assert outcomes <= {"repaired", "moved", "healthy"}


# --- calls that are incomplete or not listed --------------------------------------------------


_MAIL = call_of("mail", "c1", {"to": "bob"})
_INPUT = {"id": "c1", "name": "mail", "input": {"to": "bob"}}
_RAW = {"id": "c1", "type": "function", "function": {"name": "mail", "arguments": '{"to": "b'}}
ODD_CALLS: dict[str, AIMessage] = {
    "incomplete": AIMessage("", invalid_tool_calls=[invalid_of('{"to": "bo', name="mail")]),
    "incomplete beside a whole one": AIMessage(
        "", tool_calls=[_MAIL], invalid_tool_calls=[invalid_of('{"amount": 5', "c2", "wire")]
    ),
    "only a block": AIMessage([{"type": "text", "text": "I mail"}, {"type": "tool_use", **_INPUT}]),
    "a block beside a listed one": AIMessage(
        [{"type": "tool_use", **_INPUT}, {"type": "tool_use", **_INPUT, "id": "c2"}],
        tool_calls=[_MAIL],
    ),
    "incomplete with its raw call": AIMessage(
        "",
        invalid_tool_calls=[invalid_of('{"to": "b', name="mail")],
        additional_kwargs={"tool_calls": [_RAW]},
    ),
}
"""Messages with calls that a provider refuses, or that LangChain does not list."""


def with_odd_call(shape: str, saver: Any, thread_id: str) -> Agent:
    """A thread in which such a message was written."""
    made = stored("new", saver=saver, thread_id=thread_id)
    message = ODD_CALLS[shape].model_copy(update={"id": "a1"})
    write(made, [HumanMessage("go", id="h1")])
    return write(made, [message, HumanMessage("and?", id="h2")], "model")


# --- an incident: many threads, broken in several ways, among healthy and paused ones -------------

BROKEN = {
    "abandoned": lambda saver, name: stored("abandoned", "agent", saver, name),
    "failed": lambda saver, name: stored("failed", "agent", saver, name),
    "unrecorded": lambda saver, name: stored("abandoned", "hand_built", saver, name),
    "delta": lambda saver, name: stored("failed_and_on", "delta", saver, name),
    "malformed": partial(with_odd_call, "incomplete"),
    "deep": lambda saver, name: stored("failed", "deep", saver, name),
}
"""Six ways in which a thread breaks."""


def make_incident(
    saver: Any, *, each: int = 10, paused: int = 7, healthy: int = 133
) -> dict[str, Agent]:
    """Store the threads; for the id of each the agent, which speaks in it."""
    agents: dict[str, Agent] = {}
    kinds = {**dict.fromkeys(BROKEN, each), "paused": paused, "healthy": healthy}
    for kind, count in kinds.items():
        first = f"{kind}-000"
        make = BROKEN.get(kind, lambda saver, name, way=kind: stored(way, "agent", saver, name))
        made = make(saver, first)
        for number in range(count):
            name = f"{kind}-{number:03}"
            if number:
                copy_thread(saver, first, name)
            agents[name] = made
    return agents


def say(agents: dict[str, Agent], name: str, text: str) -> Any:
    """Let the user of a thread write; the history after it."""
    made = agents[name]
    made.config = thread(name)
    made.say(text)
    return made.history
