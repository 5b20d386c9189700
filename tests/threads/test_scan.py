"""A scan: which threads it reads, what it says of each, and that it only reads."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from langgraph_patch.errors import GraphError, OptionError, ThreadError, is_interrupt
from langgraph_patch.threads import repair_thread, scan_threads
from support.databases import execute
from support.stored_threads import FaultError, Faults, Foreign, each_fault, scanned, stored, thread
from support.thread_laws import ODD_CALLS, check_same_judgement, with_odd_call


def test_reports_and_repairs_are_json_and_notebooks_show_them(saver):
    """With whole messages, whatever the values are."""
    stored("abandoned", saver=saver)
    [report] = scan_threads(saver)
    for each in (report, repair_thread(saver, report.config, min_age=0)):
        assert repr(each) == f"<{type(each).__name__} {each}>"
        assert len(repr(replace(each, thread_id="1\n" * 500))) < 200
        shown = json.loads(json.dumps(each.to_dict()))
        assert "sent to bob" in [message["content"] for message in shown["patch"]["messages"]]
        assert "sent to bob" in each._repr_html_()


# --- which threads ---------------------------------------------------------------------------


def test_a_scan_reads_the_threads_that_are_chosen(saver):
    """No id is no thread, and a time without a zone is UTC; each option leaves out more."""
    for name in ("t1", "t2", "t3"):
        stored("abandoned", saver=saver, thread_id=name)
    assert scanned(saver, thread_ids=[]) == []
    hour_ago = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    options = {"include": "t2".__eq__, "since": hour_ago, "thread_ids": ["t2", "t1", "t2"]}
    assert scanned(saver, **options) == [("t2", "damaged")]


def test_what_is_invalid_is_refused_at_once(saver):
    """Before anything is read; a password is not repeated."""
    no_saver = "is a {}: expected a checkpoin"
    for target, options, expected in (
        (saver, {"thread_ids": "t07"}, "thread_ids='t07': expected a list of the ids"),
        (saver, {"thread_ids": [7]}, "thread_ids=.7.: expected a list of the ids"),
        (saver, {"messages_key": None}, "messages_key=None: expected the name of a state key"),
        (saver, {"include": "1*"}, "include='1.': expected a function of a thread id"),
        (saver, {"since": "2026-05-01"}, "since='2026-05-01': expected a datetime"),
        ("a.sqlite", {}, no_saver.format("str")),
        (None, {}, no_saver.format("NoneType")),
        ("postgresql://u:Zx9secret@h/db", {}, "because it may hold a password, is a str"),
        (saver, {"thread_ids": "u:Zx9secret@h"}, "thread_ids=a value that is not repeated"),
        (stored("new").graph, {}, "pass its checkpointer"),
    ):
        with pytest.raises((OptionError, GraphError), match=expected) as raised:
            scan_threads(target, **options)
        assert "Zx9secret" not in str(raised.value)


# --- what is searched ------------------------------------------------------------------------


def test_a_placeholder_for_which_a_search_may_find_something(saver):
    """Such a thread is damaged, though each of its calls has a result."""
    stored("abandoned", saver=saver)
    assert repair_thread(saver, thread(), min_age=0, recover=False).outcome == "repaired"
    assert [report.status for report in scan_threads(saver)] == ["damaged"]


# --- what cannot be read -----------------------------------------------------------------------


def test_an_id_that_is_no_text(path, saver):
    """SQLite keeps any bytes, as text that is not UTF-8 and as bytes: one thread's matter."""
    stored("abandoned", saver=saver, thread_id="t1")
    columns = "checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
    for key in ("CAST(x'74ff' AS TEXT), ''", "x'00ff', ''", "'t1', x'00'"):
        into = f"INSERT INTO checkpoints (thread_id, checkpoint_ns, {columns})"
        execute(path, f"{into} SELECT {key}, {columns} FROM checkpoints WHERE thread_id = 't1'")  # noqa: S608 - our names
    reports = {(r.thread_id, r.namespace): r for r in scan_threads(saver)}
    assert reports["t1", ""].status == "damaged"
    odd = {key: r for key, r in reports.items() if r.status != "damaged"}
    assert [*odd] == [("t\udcff", ""), ("\x00\udcff", ""), ("t1", "\x00")]
    assert {r.status for r in odd.values()} == {"unreadable"}
    assert "UnicodeEncodeError" in odd["t\udcff", ""].reason


@pytest.mark.parametrize("named", [None, ["1"]])
def test_ctrl_c_ends_a_scan_also_as_the_cause_of_another_error(named, monkeypatch):
    """A driver that is interrupted may raise an error of its own: no thread is blamed for it."""
    note = Faults.note

    def interrupted(self, method):
        try:
            note(self, method)
        except FaultError:
            error = ValueError(f"{method} was not finished")
            raise error from KeyboardInterrupt()

    monkeypatch.setattr(Faults, "note", interrupted)
    for saver in each_fault(stored("abandoned").graph.checkpointer):
        try:
            found = [report.status for report in scan_threads(saver, thread_ids=named)]
        except (KeyboardInterrupt, ValueError) as error:
            found = is_interrupt(error)
        assert found == (saver.faults.failed or ["damaged"])


# --- checkpointers of other packages -------------------------------------------------------------


class Silent(Foreign):
    """`list(None)` of some yields nothing, whatever they hold; others want a namespace too."""

    def list(self, config, **options):
        """List nothing."""
        if config:
            raise NotImplementedError
        return iter(())


class Shallow(Foreign):
    """Those for Redis list the root as it is stored, and find nothing under that name."""

    def list(self, config, **options):
        """List the newest checkpoints."""
        for thread_id in self.kept.storage:
            named = thread(thread_id, checkpoint_ns="__empty__")
            if config is None or config["configurable"]["thread_id"] == thread_id:
                yield self.get_tuple(thread(thread_id))._replace(config=named)


def test_checkpointers_that_list_no_threads_or_in_ways_of_their_own():
    """The error names the option; a thread is found by its name, and repaired all the same."""
    silent, shallow, foreign = Silent(), Shallow(), Foreign()
    for saver in (silent, shallow, foreign):
        stored("failed", saver=saver)
        assert scanned(saver, thread_ids=["1"]) == [("1", "damaged")]
        with pytest.raises(ThreadError, match="There is no thread '2'"):
            scanned(saver, thread_ids=["2"])
    for saver, expected in (
        (silent, "Silent lists no thread: it is empty, or it cannot"),
        (foreign, r"Foreign cannot list .*must contain thread_id.*thread_ids=\["),
    ):
        with pytest.raises(ThreadError, match=expected):
            scanned(saver)
    assert scanned(shallow) == [("1", "damaged")]
    assert repair_thread(foreign, thread(), min_age=0).outcome == "repaired"


# --- every kind of thread ----------------------------------------------------------------

KINDS = ("agent", "hand_built", "delta", "stateful_child")
HAPPENED = ("healthy", "paused", "abandoned", "failed", "failed_and_on", "limited", "killed", "new")


@dataclass
class Note:
    """A class of an application, in a state."""

    text: str


@pytest.mark.needs(langgraph="1.2.20")
def test_a_database_with_every_kind_of_thread(path, saver, cli):
    """A scan and a repair say the same in both commands; and the commands that they print next."""
    for kind in KINDS:
        for way in HAPPENED:
            stored(way, kind, saver, f"{kind} {way}")
    for shape in ODD_CALLS:
        with_odd_call(shape, saver, shape)
    stored("abandoned", "agent", saver, "odd class")
    saved = saver.get_tuple(thread("odd class"))
    values = {**saved.checkpoint["channel_values"], "note": Note("x")}
    versions = {**saved.checkpoint["channel_versions"], "note": "1"}
    changed = {**saved.checkpoint, "channel_values": values, "channel_versions": versions}
    saver.put(saved.config, changed, {}, {})
    outcomes = Counter(check_same_judgement(saver, each) for each in scan_threads(saver))
    assert outcomes.keys() >= {"healthy", "paused", "planned"}

    def lines(*command):
        found = [json.loads(line) for line in cli(*command, "--json")[1].splitlines()]
        return [each for each in found if "thread_id" in each]

    found = lines("scan", path)
    planned = lines("repair", path, "--all", "--min-age", "0")
    same = {"planned": "damaged", "paused": "paused", "refused": "damaged"}
    assert [(each["thread_id"], each["namespace"], same[each["outcome"]]) for each in planned] == [
        (each["thread_id"], each["namespace"], each["status"]) for each in found
    ]
    refused = [each["reason"] for each in planned if each["outcome"] == "refused"]
    assert [each for each in refused if "Note" in each]
    reasons = " ".join(each["reason"] or "" for each in found)
    assert all(reason in reasons for reason in refused)
    [first, *_] = [each["thread_id"] for each in found if "breakpoint" in str(each["reason"])]
    ended = lines("repair", path, first, "--on-pause=abandon", "--min-age", "0")
    assert {each["outcome"] for each in ended} == {"planned"}
