"""One bad row never stops a scan: it is reported as unreadable, in words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import ascan_threads, scan_threads
from langgraph_patch.threads.opening import open_database
from support.databases import execute, on_both_databases, open_saver
from support.stored_threads import abandoned_thread

THREADS = ("t1", "t2", "t3")


def damaged_threads(saver):
    """Three threads that a scan finds damaged."""
    for thread_id in THREADS:
        abandoned_thread("react_v2", saver, thread_id)
    return saver


def scanned(saver):
    """The status and the reason of each thread."""
    return {report.thread_id: (report.status, report.reason) for report in scan_threads(saver)}


def check_second(found, reason):
    """The second thread is unreadable; the others were looked at."""
    assert {thread_id: status for thread_id, (status, _) in found.items()} == {
        "t1": "damaged",
        "t2": "unreadable",
        "t3": "damaged",
    }
    assert reason in found["t2"][1]


def delete_before_reading(saver):
    """Delete the second thread just before its checkpoint is read."""
    read = saver.get_tuple

    def get_tuple(config):
        if config["configurable"]["thread_id"] == "t2":
            saver.delete_thread("t2")
        return read(config)

    saver.get_tuple = get_tuple
    return saver


@on_both_databases
def test_a_torn_value(path):
    """Bytes that are no value of any serializer."""
    with open_saver(path) as saver:
        damaged_threads(saver)
        if str(path).startswith("postgresql"):
            execute(path, "UPDATE checkpoint_blobs SET blob = '\\xc1c1' WHERE thread_id = 't2'")
        else:
            execute(path, "UPDATE checkpoints SET checkpoint = x'c1c1' WHERE thread_id = 't2'")
        check_second(scanned(saver), "a value of it cannot be loaded (")


@on_both_databases
def test_a_thread_that_is_deleted_meanwhile(path):
    """Between the list of the threads and its turn."""
    with open_saver(path) as saver:
        delete_before_reading(damaged_threads(saver))
        check_second(scanned(saver), "it was deleted during the scan")


def test_an_id_that_is_no_text(path):
    """SQLite keeps any bytes: as text that is not UTF-8, and as bytes. Pages go on behind them."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    odd = "CAST(x'74ff' AS TEXT)", "x'00ff'"
    for value in odd:
        execute(
            path,
            f"INSERT INTO checkpoints SELECT {value}, checkpoint_ns, checkpoint_id, "  # noqa: S608 - our values
            f"parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints "
            f"WHERE thread_id = 't1'",
        )
    with open_saver(path) as saver:
        reports = list(scan_threads(saver))
    assert [r.status for r in reports if r.thread_id in THREADS] == ["damaged"] * 3
    text, raw = (report for report in reports if report.thread_id not in THREADS)
    assert (text.status, raw.status, raw.thread_id) == ("unreadable", "unreadable", r"b'\x00\xff'")
    assert text.reason == "its id is not text in UTF-8, so no checkpointer can read it"
    assert raw.reason
    assert all(isinstance(report.to_dict()["thread_id"], str) for report in reports)


async def test_a_thread_that_is_deleted_meanwhile_in_memory():
    """Synchronously and asynchronously."""
    saver = delete_before_reading(damaged_threads(InMemorySaver()))
    check_second(scanned(saver), "it was deleted during the scan")
    saver = delete_before_reading(damaged_threads(InMemorySaver()))
    reports = [report async for report in ascan_threads(saver)]
    assert [report.status for report in reports] == ["damaged", "unreadable", "damaged"]


def test_a_file_that_nobody_has_open_is_left_alone(path):
    """A scan leaves no log beside it, which another user could not delete, and changes no byte."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    folder, before = Path(path).parent, Path(path).stat()
    with open_database(path) as saver:
        assert len(scanned(saver)) == 3
    assert [each.name for each in folder.iterdir()] == [Path(path).name]
    after = Path(path).stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_file_that_is_written_meanwhile(path):
    """What an application writes during a scan is neither lost nor in the way."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    with open_database(path) as saver:
        first, *_ = scan_threads(saver)
        with open_saver(path) as application:
            abandoned_thread("react_v2", application, "t4")
        assert first.status == "damaged"
        assert len(scanned(saver)) == 4


KILLED = """
import os, signal, sys
from langgraph.checkpoint.sqlite import SqliteSaver
from support.stored_threads import abandoned_thread
with SqliteSaver.from_conn_string(sys.argv[1]) as saver:
    abandoned_thread("react_v2", saver, "t1")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_copy", [False, True])
def test_the_log_of_a_process_that_was_killed(is_copy, path):
    """It is read. Where Python can, the file and the log stay; a copy leaves no file behind."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", KILLED, path], check=False, env=environment)  # noqa: S603 - our own code
    folder = Path(path).parent
    if is_copy:
        Path(f"{path}-shm").unlink()
    before = {each.name: each.read_bytes() for each in folder.iterdir() if "-shm" not in each.name}
    assert len(before) == 2
    with open_database(path) as saver:
        assert scanned(saver) == {"t1": ("damaged", None)}
    after = {each.name: each.read_bytes() for each in folder.iterdir() if "-shm" not in each.name}
    if is_copy or sys.version_info < (3, 12):
        assert [*after] == [Path(path).name]
    else:
        assert after == before


def test_a_file_that_this_user_may_only_read(path, monkeypatch):
    """SQLite would leave a log that the application cannot write: copy it first."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ThreadError, match=r"may this user write .* name the copy"):
        open_database(path).__enter__()
    assert [each.name for each in Path(path).parent.iterdir()] == [Path(path).name]


COLUMNS = (
    "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
)
ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT kept.* FROM kept, n"
)


@on_both_databases
def test_a_view_is_no_table(path):
    """A view over a function would run it, with the rights of whoever scans, or never end."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    execute(
        path,
        "ALTER TABLE checkpoints RENAME TO kept",
        f"CREATE VIEW checkpoints AS {ENDLESS}",
    )
    try:
        with (
            pytest.raises(ThreadError, match="'checkpoints' is not an ordinary table"),
            open_database(path),
        ):
            pass
    finally:
        execute(path, "DROP VIEW checkpoints", "ALTER TABLE kept RENAME TO checkpoints")


@pytest.mark.parametrize(
    "statements",
    [
        [f"CREATE VIEW CheckPoints AS {ENDLESS}"],
        [
            f"CREATE VIEW endless AS {ENDLESS}",
            f"CREATE VIRTUAL TABLE checkpoints USING fts5({COLUMNS}, content='endless')",
        ],
    ],
)
def test_what_reads_a_view_is_no_table_either(statements, path):
    """A view by a name in other letters, and a virtual table over a view."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    execute(path, "ALTER TABLE checkpoints RENAME TO kept", *statements)
    with pytest.raises(ThreadError, match="'checkpoints' is not an ordinary table"):
        open_database(path).__enter__()


def test_a_generated_column_is_not_computed(path):
    """Its expression may fill the memory; to LangGraph's queries it is a column like others."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    execute(
        path,
        "ALTER TABLE checkpoints RENAME COLUMN metadata TO kept",
        "ALTER TABLE checkpoints ADD COLUMN metadata AS (printf('%.*c', 900000000, 'x'))",
    )
    with pytest.raises(ThreadError, match="table 'checkpoints' has no column 'metadata'"):
        open_database(path).__enter__()


def test_a_trigger_is_not_run(path):
    """A repair would run it. It is refused, and a scan reads the file all the same."""
    with open_saver(path) as saver:
        damaged_threads(saver)
    execute(
        path,
        "CREATE TRIGGER trap AFTER INSERT ON checkpoints BEGIN DELETE FROM writes; END",
    )
    with pytest.raises(ThreadError, match="has a trigger 'trap', which a write would run"):
        open_database(path, write=True).__enter__()
    with open_database(path) as saver:
        assert len(scanned(saver)) == 3
