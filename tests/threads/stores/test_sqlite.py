"""Databases of unknown origin: opened read-only, and nothing in them is executed."""

import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import ormsgpack
import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads import open_database, repair_thread, scan_threads
from langgraph_patch.threads.stores import sqlite
from support.databases import execute, open_saver
from support.stored_threads import stored, thread


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A database with one damaged thread, made once."""
    made = tmp_path_factory.mktemp("made") / "threads.sqlite"
    with open_saver(str(made)) as saver:
        stored("abandoned", saver=saver)
    return made


@pytest.fixture
def path(made, tmp_path):
    """A copy of it, under a name with odd characters."""
    return str(shutil.copy(made, tmp_path / "th reads?#%.sqlite"))


def found(path, **options):
    """The status and the reason of each thread."""
    with open_database(path, **options) as saver:
        return [(report.status, report.reason) for report in scan_threads(saver)]


DAMAGED = [("damaged", None)]


def test_a_scan_changes_no_byte_and_leaves_no_file(path):
    """A log beside the file could not be deleted by its owner; and nothing can be written."""
    file = Path(path)
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert found(path) == DAMAGED
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    with (
        pytest.raises(ThreadError, match=rf"'{re.escape(path)}': attempt to write a readonly"),
        open_database(path) as saver,
        saver.cursor() as cursor,
    ):
        cursor.execute("DELETE FROM checkpoints")
    with open_database(path, write=True) as saver:
        assert repair_thread(saver, thread(), min_age=0).outcome == "repaired"


@pytest.mark.parametrize("refused", ["the file", "its directory"])
def test_what_this_user_may_only_read(refused, path, monkeypatch):
    """Without a log it is read as it is, and never written; with one it has to be copied."""
    file = Path(path)
    places = {"the file": file, "its directory": file.parent}

    def access(place, mode):
        return mode != os.W_OK or Path(place) != places[refused]

    monkeypatch.setattr(os, "access", access)
    before = file.read_bytes()
    assert found(path) == DAMAGED
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    with pytest.raises(ThreadError, match=r"may not write the file .*\. Copy it, .* the copy\."):
        open_database(path, write=True).__enter__()
    Path(f"{path}-wal").write_bytes(b"x")
    with pytest.raises(ThreadError, match=r"a log .-wal. beside it has to be read too\. Copy it"):
        open_database(path).__enter__()
    assert file.read_bytes() == before


# --- nothing is executed -----------------------------------------------------------------------


def crafted(module, name, *args):
    """A msgpack row that names a function and its arguments, as LangGraph writes classes."""
    inner = ormsgpack.Ext(1, ormsgpack.packb((module, name, args)))
    values = {"channel_values": {"messages": inner}, "channel_versions": {"messages": "1"}}
    return ormsgpack.packb({"v": 4, "id": "f", "ts": "", **values, "versions_seen": {}})


def test_a_row_that_names_a_function_and_a_pickle_execute_nothing(path, tmp_path):
    """LangGraph calls by default what the first one names; here each is a report."""
    touched = tmp_path / "touched"
    command = f"touch '{touched}'"
    row = f'cos\nsystem\n(S"{command}"\ntR.'.encode()
    execute(path, ("UPDATE checkpoints SET type = 'pickle', checkpoint = ?", (row,)))
    [(status, reason)] = found(path)
    assert (status, "may run any code" in reason, "pickle" in reason) == ("unreadable", True, True)
    row = crafted("os", "system", command)
    execute(path, ("UPDATE checkpoints SET type = 'msgpack', checkpoint = ?", (row,)))
    assert [status for status, _ in found(path)] == ["unreadable"]
    assert not touched.exists()
    with SqliteSaver.from_conn_string(path) as unsafe:
        unsafe.get_tuple(thread())
    assert touched.exists(), "the row must be one that would run"


COLUMNS = (
    "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
)
RENAMED = "ALTER TABLE checkpoints RENAME TO kept"
ENDLESS = (
    "AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT kept.* FROM kept, n"
)
VIRTUAL = f"CREATE VIRTUAL TABLE checkpoints USING fts5({COLUMNS}, content='endless')"
BOMB = "ALTER TABLE checkpoints ADD COLUMN metadata AS (printf('%.*c', 900000000, 'x'))"
NO_TABLE = "'checkpoints' is not an ordinary table, so reading it may run any code"


@pytest.mark.parametrize(
    ("statements", "write", "expected"),
    [
        ([RENAMED, f"CREATE VIEW CheckPoints {ENDLESS}"], False, NO_TABLE),
        ([RENAMED, f"CREATE VIEW endless {ENDLESS}", VIRTUAL], False, NO_TABLE),
        (["ALTER TABLE checkpoints RENAME COLUMN metadata TO kept", BOMB], False, NO_TABLE),
        (
            ["CREATE TRIGGER trap AFTER INSERT ON Writes BEGIN DELETE FROM writes; END"],
            True,
            "has a trigger 'trap', which a write would run: repair its threads in Python",
        ),
    ],
    ids=["view in other letters", "virtual table", "generated column", "trigger"],
)
def test_what_would_run_code_of_the_file_is_refused(statements, write, expected, path):
    """It could run with the rights of whoever scans, never end, or fill the memory."""
    execute(path, *statements)
    with pytest.raises(ThreadError, match=expected):
        open_database(path, write=write).__enter__()


# --- what is no database -----------------------------------------------------------------------


def test_a_locked_database_is_reported_as_locked(path, monkeypatch):
    """Before and during a scan, which stops: a lock is no fault of a thread."""
    monkeypatch.setattr(sqlite, "_SECONDS", 0.01)
    execute(path, "PRAGMA journal_mode=delete")
    expected = "database is locked"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ThreadError, match=expected):
            found(path)
        conn.rollback()
        with pytest.raises(ThreadError, match=expected), open_database(path) as saver:
            [conn.execute("BEGIN EXCLUSIVE"), *scan_threads(saver)]


def test_what_is_no_database_of_threads_is_named(tmp_path, path):
    """No file, a directory, a text, no tables, other tables, half of them, a torn file, no rows."""
    half = f"CREATE TABLE checkpoints ({COLUMNS})"
    row = "INSERT INTO checkpoints (thread_id, checkpoint_ns) VALUES ('1', '')"
    pages = Path(path).read_bytes()[:4096]
    for number, (make, expected) in enumerate((
        (lambda _: None, "is no file: expected a SQLite database"),
        (lambda file: file.mkdir(), "is no file: expected a SQLite database"),
        (lambda file: file.write_text("hello " * 1000), "file is not a database"),
        (lambda file: file.write_bytes(b""), "no such table: checkpoints"),
        (lambda file: execute(file, "CREATE TABLE checkpoints (a)"), "holds no checkpoint"),
        (lambda file: execute(file, half, row), "no such table: main.writes"),
        (
            lambda file: file.write_bytes(pages + bytes(range(256)) * 400),
            "database disk image is malformed|file is not a database",
        ),
    )):  # fmt: skip
        file = tmp_path / f"{number}.sqlite"
        make(file)
        with pytest.raises(ThreadError, match=expected) as raised:
            found(str(file))
        assert "\n" not in str(raised.value)
        assert str(file) in str(raised.value)
    execute(path, "DELETE FROM checkpoints")
    with pytest.raises(ThreadError, match="holds no checkpoint: there is nothing to read"):
        found(path)
    for name in ("a\0b", "x" * 5000, "host=h PASSWORD = secret"):
        with pytest.raises(ThreadError, match=r"is no file: expected|not a supported") as raised:
            found(name)
        assert len(str(raised.value)) < 400
        assert "secret" not in str(raised.value)


def test_a_malformed_file_takes_no_repair(path):
    """Also of a thread that can be read: a write may damage another one. It can be scanned."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE other AS SELECT randomblob(20000) AS value")
        page = database.execute("PRAGMA page_size").fetchone()[0]
        database.commit()
    content = bytearray(Path(path).read_bytes())
    content[-page:] = b"\xff" * page
    Path(path).write_bytes(content)
    assert found(path) == DAMAGED
    advice = r"is malformed: .*\.recover"
    with pytest.raises(ThreadError, match=advice), open_database(path, write=True):
        pytest.fail("it was opened")
    assert Path(path).read_bytes() == content


REFUSALS = {
    "full": "PRAGMA max_page_count = 1",
    "read-only": "PRAGMA query_only = ON",
    "locked": "PRAGMA busy_timeout = 0",
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_of_sqlite_says_that_nothing_was_written(reason, path):
    """Its code says so; not of a commit that failed: a later one may write what is left."""
    with closing(sqlite3.connect(path)) as other, open_database(path, write=True) as saver:
        saver.conn.execute(REFUSALS[reason])
        if reason == "locked":
            other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as caught:
            repair_thread(saver, thread(), placeholder="x" * 100_000, min_age=0)
        assert getattr(caught.value, "__notes__", []) == []
        saver.conn.execute("PRAGMA query_only = OFF")
        other.rollback()
        store = sqlite.SqliteStore()
        assert store.is_undone(saver, caught.value)
        saver.conn.execute("BEGIN")
        assert not store.is_undone(saver, caught.value)
        saver.conn.rollback()
    assert found(path) == DAMAGED
