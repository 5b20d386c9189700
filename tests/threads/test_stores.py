"""Databases of unknown origin: opened read-only, and nothing in them is executed."""

import sqlite3
from contextlib import closing

import ormsgpack
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import BaseModel

from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import ascan_threads, scan_threads
from langgraph_patch.threads.keys import Key, delete_checkpoint, list_keys
from langgraph_patch.threads.opening import open_database
from support.agents import thread
from support.broken_threads import application, say
from support.databases import execute, open_async_saver, open_saver
from support.strict import ai


class Customer(BaseModel):
    """A class of an application."""

    name: str


@pytest.fixture
def path(tmp_path):
    """A database with one broken thread."""
    made = str(tmp_path / "th reads?#%.sqlite")
    with SqliteSaver.from_conn_string(made) as saver:
        graph = application("react_v2", saver, ai(("boom", {"x": 1}, "c1"), id="a1"))
        say(graph, thread(), "go")
    return made


def scanned(path, **options):
    """What a scan says of each thread."""
    with open_database(path, **options) as saver:
        return [(r.status, r.reason) for r in scan_threads(saver)]


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_database_is_opened_read_only(path):
    """A scan leaves the file unchanged, whatever characters its name has, and cannot write."""
    with open(path, "rb") as file:  # noqa: PTH123 - its bytes
        before = file.read()
    assert scanned(path) == [("damaged", None)]
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        assert file.read() == before
    with (
        pytest.raises(ThreadError, match="readonly"),
        open_database(path) as saver,
        saver.cursor() as cursor,
    ):
        cursor.execute("DELETE FROM checkpoints")


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_database_without_a_write_ahead_log_can_be_read(path):
    """The journal mode is the database's own business; LangGraph's setup would change it."""
    execute(path, "PRAGMA journal_mode=delete")
    assert scanned(path) == [("damaged", None)]


@pytest.mark.needs(langgraph_checkpoint="4.0.1", langgraph_checkpoint_sqlite="3.1.2")
def test_a_database_of_an_older_version_can_be_read(path):
    """Before `task_path` existed, writes were stored without it."""
    execute(path, "ALTER TABLE writes DROP COLUMN task_path")
    assert scanned(path) == [("damaged", None)]


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_database_with_more_columns_can_be_read(path):
    """A later version may add columns."""
    execute(path, "ALTER TABLE checkpoints ADD COLUMN later TEXT")
    assert scanned(path) == [("damaged", None)]


def crafted(module, name, *args):
    """A msgpack row that names a function and its arguments, as LangGraph writes classes."""
    inner = ormsgpack.packb((module, name, args))
    return ormsgpack.packb({"v": 4, "id": "f", "ts": "", "channel_values": {
        "messages": ormsgpack.Ext(1, inner)}, "channel_versions": {"messages": "1"},
        "versions_seen": {}})  # fmt: skip


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_crafted_row_executes_nothing(path, tmp_path):
    """A row that names `os.system` runs by default in LangGraph; here it is a report."""
    touched = tmp_path / "touched"
    row = crafted("os", "system", f"touch '{touched}'")
    execute(path, ("UPDATE checkpoints SET checkpoint = ?", (row,)))
    with open_database(path) as saver:
        (report,) = scan_threads(saver)
        assert report.status == "unreadable"
    assert not touched.exists()
    with SqliteSaver.from_conn_string(path) as unsafe:
        unsafe.get_tuple(thread())
    assert touched.exists(), "the row must be one that would run"


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_pickled_row_executes_nothing(path, tmp_path):
    """A pickle is code, so it is never loaded, and the report says so."""
    touched = tmp_path / "touched"
    row = f"cos\nsystem\n(S\"touch '{touched}'\"\ntR.".encode()
    execute(path, ("UPDATE checkpoints SET type = 'pickle', checkpoint = ?", (row,)))
    assert scanned(path) == [
        ("unreadable", "a row of it is a pickle, which is never loaded: it could run any code")
    ]
    assert not touched.exists()


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_classes_of_an_application_are_loaded_if_trusted(path):
    """An untrusted class comes back as a dict."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread())
        values = {**saved.checkpoint["channel_values"], "who": Customer(name="bob")}
        saver.put(saved.config, {**saved.checkpoint, "channel_values": values}, {}, {})
    for trust, expected in (
        ([], {"name": "bob"}),
        ([(__name__, "Customer")], Customer(name="bob")),
    ):
        with open_database(path, trust=trust) as saver:
            assert saver.get_tuple(thread()).checkpoint["channel_values"]["who"] == expected


@pytest.mark.parametrize("column", ["metadata", "type", "parent_checkpoint_id"])
@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_text_that_is_no_text_is_one_threads_matter(column, path):
    """SQLite keeps any bytes as text; Python's refusal to decode them stops no scan."""
    with SqliteSaver.from_conn_string(path) as saver:
        place = {"thread_id": "2", "checkpoint_ns": ""}
        saver.put({"configurable": place}, saver.get_tuple(thread()).checkpoint, {}, {})
    execute(path, f"UPDATE checkpoints SET {column} = CAST(x'ff' AS TEXT) WHERE thread_id = '2'")  # noqa: S608 - our names
    valid, (status, reason) = scanned(path)
    assert (valid, status, "decode" in reason) == (("damaged", None), "unreadable", True)


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_bytes_in_the_place_of_a_key_are_one_threads_matter(path):
    """A foreign row may hold them; it is reported like any other."""
    rest = "checkpoint_id, type, checkpoint, metadata"
    for key in ("'1', x'00'", "x'ff', ''"):
        into = f"INSERT INTO checkpoints (thread_id, checkpoint_ns, {rest})"
        execute(path, f"{into} SELECT {key}, {rest} FROM checkpoints LIMIT 1")  # noqa: S608 - our names
    assert [status for status, _ in scanned(path)] == ["damaged", "unreadable", "unreadable"]


def _locked(path):
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA journal_mode=delete")
    conn.execute("BEGIN EXCLUSIVE")
    return conn


@pytest.mark.slow
def test_a_locked_database_is_reported_as_locked(path):
    """Another process holds the lock: the message says so, and what to do."""
    with (
        closing(_locked(path)),
        pytest.raises(ThreadError, match="another process has locked the database: try again"),
    ):
        scanned(path)


@pytest.mark.slow
def test_a_database_that_is_locked_during_a_scan_stops_it(path):
    """A lock is no fault of a thread, so it is not reported as one."""
    execute(path, "PRAGMA journal_mode=delete")

    def scan():
        with open_database(path) as saver, closing(_locked(path)):
            list(scan_threads(saver))

    with pytest.raises(ThreadError, match="locked"):
        scan()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda _: None, "there is no such file"),
        (lambda p: p.mkdir(), "is not a file"),
        (lambda p: p.write_text("hello " * 1000), "it is not a SQLite database"),
        (lambda p: p.write_bytes(b""), "has no table 'checkpoints'"),
        (lambda p: execute(p, "CREATE TABLE checkpoints (thread_id)"), "no column 'checkpoint_ns'"),
        (lambda p: closing(_empty(p)).__exit__(), "holds no checkpoint: there is nothing to read"),
        (lambda p: p.write_bytes(_torn(p)), "the file is damaged|not a SQLite database"),
    ],
)
@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_what_is_no_database_of_threads_is_named(make, expected, tmp_path):
    """No file, a directory, a text, other tables, another version, no rows, a torn file."""
    path = tmp_path / "x.sqlite"
    make(path)
    with pytest.raises(ThreadError, match=expected) as raised:
        scanned(str(path))
    assert "\n" not in str(raised.value)


def _empty(path):
    conn = sqlite3.connect(path)
    SqliteSaver(conn).setup()
    return conn


def _torn(path):
    with SqliteSaver.from_conn_string(str(path)) as saver:
        for number in range(50):
            say(application("hand_built", saver, ai(text="x" * 1000)), thread(str(number)), "go")
    return path.read_bytes()[:4096] + bytes(range(256)) * 400


def test_a_name_that_no_file_can_have_is_no_file():
    """Null characters, absurd lengths and URIs are answered, not raised."""
    for name in ("a\0b", "x" * 5000, "postgresql://u:secret@h/db"):
        with pytest.raises(ThreadError) as raised:
            scanned(name)
        assert "secret" not in str(raised.value)


# --- keys --------------------------------------------------------------------------------


def test_keys_are_listed_once_and_sorted(path):
    """Each thread and namespace that has a checkpoint, of all threads and of one."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread())
        wanted = {Key("1", "")}
        for number in range(23):
            key = Key(f"t{number % 7}", ["", "a", "a|b", "a:1"][number % 4])
            place = {"thread_id": key.thread_id, "checkpoint_ns": key.namespace}
            saver.put({"configurable": place}, saved.checkpoint, {}, {})
            wanted.add(key)
        assert run_sync(list_keys(saver)) == sorted(wanted)
        in_t3 = sorted(key for key in wanted if key.thread_id == "t3")
        assert run_sync(list_keys(saver, "t3")) == in_t3
        assert run_sync(list_keys(saver, "t9")) == []


def test_odd_thread_ids_are_found(path):
    """The empty id and ids of any script are keys like others."""
    ids = ["", " ", "'; DROP TABLE checkpoints; --", "線程", "\U0010ffff", "a\nb"]
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread())
        for thread_id in ids:
            place = {"thread_id": thread_id, "checkpoint_ns": ""}
            saver.put({"configurable": place}, saved.checkpoint, {}, {})
        assert {r.thread_id for r in scan_threads(saver)} == {"1", *ids}


def test_only_the_newest_checkpoint_without_pending_writes_is_deleted(path):
    """Nothing is deleted if the thread has moved on, or if the checkpoint has pending writes."""
    with SqliteSaver.from_conn_string(path) as saver:
        ids = [saved.checkpoint["id"] for saved in saver.list(thread())]
        assert not run_sync(delete_checkpoint(saver, Key("1", ""), ids[1]))
        saver.put_writes(saver.get_tuple(thread()).config, [("messages", [])], "task")
        assert not run_sync(delete_checkpoint(saver, Key("1", ""), ids[0]))
        assert [saved.checkpoint["id"] for saved in saver.list(thread())] == ids


def test_a_saver_that_cannot_delete_a_checkpoint_names_the_alternative():
    """The error says how to continue from the checkpoint before."""

    class Other(SqliteSaver.__mro__[1]):
        """A custom checkpointer."""

    with pytest.raises(ThreadError, match="Other cannot delete single checkpoints"):
        run_sync(delete_checkpoint(Other(), Key("1", ""), "a"))
    assert run_sync(list_keys(InMemorySaver())) == []


async def test_an_asynchronous_checkpointer_names_the_functions_to_use(tmp_path):
    """`ascan_threads` is iterated, not awaited; and the other way round."""
    path = str(tmp_path / "threads.sqlite")
    async with open_async_saver(path) as saver:
        with pytest.raises(OptionError, match=r"AsyncSqliteSaver is asynchronous: use `async for`"):
            list(scan_threads(saver))
    with (
        open_saver(path) as saver,
        pytest.raises(OptionError, match=r"SqliteSaver is synchronous: call scan_threads"),
    ):
        _ = [report async for report in ascan_threads(saver)]
