"""Which threads a scan reads, and what it says of a pause."""

from datetime import UTC, datetime, timedelta

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch.errors import OptionError
from langgraph_patch.threads import ascan_threads, scan_threads
from support.agents import both_calls, thread
from support.broken_threads import application, say
from support.stored_threads import abandoned_thread


@pytest.fixture
def path(tmp_path):
    """A database with a damaged thread, `1`, and a paused one, `2`."""
    made = str(tmp_path / "threads.sqlite")
    with SqliteSaver.from_conn_string(made) as saver:
        abandoned_thread("react_v2", saver)
        say(application("react_v2", saver, both_calls()), thread("2"), "go")
    return made


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
