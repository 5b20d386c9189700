"""What a caller decides: which threads a scan reads, and whether a planned repair is written."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch.errors import OptionError
from langgraph_patch.threads import (
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from langgraph_patch.threads.reports import ThreadRepair
from support.agents import both_calls, thread
from support.broken_threads import application, say, silent
from support.databases import rows_of
from support.stored_threads import abandoned_thread


@pytest.fixture
def path(tmp_path):
    """A database with a damaged thread, `1`, and a paused one, `2`."""
    made = str(tmp_path / "threads.sqlite")
    with SqliteSaver.from_conn_string(made) as saver:
        abandoned_thread("react_v2", saver)
        say(application("react_v2", saver, both_calls()), thread("2"), "go")
    return made


# --- confirm -----------------------------------------------------------------------------


def test_confirm_sees_the_repair_before_it_is_written(path):
    """It gets the plan with the id of the checkpoint; nothing is written before it returns."""
    before, seen = rows_of(path), []

    def confirm(repair):
        seen.append((repair, rows_of(path)))

    with SqliteSaver.from_conn_string(path) as saver:
        graph = silent("react_v2", saver)
        repair = repair_thread(graph, thread(), min_age=0, confirm=confirm)
        [(planned, then)] = seen
        assert then == before
        assert (planned.outcome, repair.outcome) == ("planned", "repaired")
        assert (planned.after, planned.patch) == (repair.after, repair.patch)
        assert saver.get_tuple(thread()).checkpoint["id"] == planned.after


def test_confirm_may_refuse(path):
    """Its text is the reason; nothing is written."""
    before = rows_of(path)
    with SqliteSaver.from_conn_string(path) as saver:
        graph = silent("react_v2", saver)
        repair = repair_thread(graph, thread(), min_age=0, confirm=lambda _: "not today")
    assert (repair.outcome, repair.reason, repair.after) == ("refused", "not today", None)
    assert rows_of(path) == before


def test_confirm_is_asked_only_if_something_is_to_be_written(path):
    """Not in a dry run, and not for a thread that is skipped."""
    with SqliteSaver.from_conn_string(path) as saver:
        graph = silent("react_v2", saver)
        for config, options in ((thread(), {"dry_run": True}), (thread("2"), {})):
            repair_thread(graph, config, min_age=0, confirm=pytest.fail, **options)


async def test_an_asynchronous_confirm_is_awaited(path):
    """A coroutine or a plain function."""

    async def refuse(repair):
        return f"no {repair.outcome}"

    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        graph = silent("react_v2", saver)
        repair = await arepair_thread(graph, thread(), min_age=0, confirm=refuse)
        assert (repair.outcome, repair.reason) == ("refused", "no planned")
        repair = await arepair_thread(graph, thread(), min_age=0, confirm=lambda _: None)
        assert repair.outcome == "repaired"


def test_confirm_is_a_function(path):
    """Anything else is an error before anything is read."""
    with SqliteSaver.from_conn_string(path) as saver, pytest.raises(OptionError, match="confirm="):
        repair_thread(silent("react_v2", saver), thread(), confirm="yes")


# --- undo from JSON, without a graph ------------------------------------------------------


def test_a_repair_is_undone_from_its_json(path):
    """`from_dict` reads what `to_dict` returned; a checkpointer alone is enough."""
    before = rows_of(path)
    with SqliteSaver.from_conn_string(path) as saver:
        repair = repair_thread(silent("react_v2", saver), thread(), min_age=0)
        read = ThreadRepair.from_dict(json.loads(json.dumps(repair.to_dict())))
        assert (read.after, read.patch) == (repair.after, None)
        undo_repair(None, read, checkpointer=saver)
    assert rows_of(path) == before


async def test_an_asynchronous_checkpointer_is_enough_too(path):
    """The same for `aundo_repair`."""
    before = rows_of(path)
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        repair = await arepair_thread(silent("react_v2", saver), thread(), min_age=0)
        await aundo_repair(None, repair, checkpointer=saver)
    assert rows_of(path) == before


@pytest.mark.parametrize(
    "values",
    [
        {},
        [],
        None,
        {"thread_id": "1", "namespace": ""},
        {"thread_id": "1", "namespace": "", "outcome": "done"},
        {"thread_id": 1, "namespace": "", "outcome": "repaired"},
        {"thread_id": "1", "namespace": "", "outcome": "repaired", "after": 7},
    ],
)
def test_other_values_are_no_repair(values):
    """The error names the value."""
    with pytest.raises(OptionError, match="is not a repair"):
        ThreadRepair.from_dict(values)


# --- which threads -----------------------------------------------------------------------


async def test_a_scan_reads_the_threads_that_are_included(path):
    """`include` decides by the id, `since` by the time; both hold for `ascan_threads`."""
    now = datetime.now(UTC)
    with SqliteSaver.from_conn_string(path) as saver:
        for options, ids in (
            ({"include": lambda thread_id: thread_id > "1"}, ["2"]),
            ({"include": lambda _: False}, []),
            ({"since": now - timedelta(hours=1)}, ["1", "2"]),
            ({"since": (now - timedelta(hours=1)).replace(tzinfo=None)}, ["1", "2"]),
            ({"since": now + timedelta(hours=1)}, []),
        ):
            assert [report.thread_id for report in scan_threads(saver, **options)] == ids
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        found = ascan_threads(saver, include="2".__eq__, since=now - timedelta(hours=1))
        assert [report.thread_id async for report in found] == ["2"]


@pytest.mark.parametrize("options", [{"include": "1*"}, {"since": "2026-05-01"}])
def test_a_wrong_selection_is_an_error(options, path):
    """It is raised before anything is read, and names the option."""
    with (
        SqliteSaver.from_conn_string(path) as saver,
        pytest.raises(OptionError, match=next(iter(options))),
    ):
        scan_threads(saver, **options)


def test_a_report_has_what_a_pause_asks(path):
    """The value of each interrupt; nothing for a thread that does not wait."""
    with SqliteSaver.from_conn_string(path) as saver:
        asks = {report.thread_id: report.asks for report in scan_threads(saver)}
    assert asks == {"1": (), "2": ("wire 3?",)}
