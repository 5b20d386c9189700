"""PostgreSQL: the laws of stored threads over a real server, and what is its own.

Where a law is the same as for SQLite, it is the same test: `test_threads` is run again with
PostgreSQL in the place of SQLite.
"""

import json
import logging
import socketserver
import struct
import subprocess
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from dataclasses import replace

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_patch import validate_messages
from langgraph_patch._sansio import run_sync
from langgraph_patch.cli import main
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
from langgraph_patch.threads.stores import postgres, sql
from langgraph_patch.threads.stores.base import Key, last_key_of
from langgraph_patch.threads.stores.select import open_database, store_of
from support.agents import both_calls, human, lines, thread
from support.broken_threads import answer, application, say, silent, ways_of
from support.databases import PASSWORD, POSTGRES_TABLES, every_row, execute, rows_of
from support.stored_threads import abandoned_thread, stored_messages

ENCODED = "s3%2Fcr%40t%3Azw%3Fei%23f%C3%BCnf"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def path(postgres_path):
    """The URI of an empty PostgreSQL database."""
    return postgres_path


# --- the command line ----------------------------------------------------------------------


def incident_of(saver, kind="react_v2", count=None):
    """A thread for every way in which one application's threads break, or for the first ways."""
    return {name: way(kind, saver, thread(name))[0] for name, way in ways_of(kind)[:count]}


def test_the_command_line_repairs_a_whole_incident(path, saver, cli, graph_file, request):
    """Scan, repair, scan: exactly the broken ones, all of them, and nothing of the others."""
    evidence = incident_of(
        saver, count=None if request.config.getoption("--long", default=False) else 60
    )
    code, out, _ = cli("scan", path, "--json")
    found = {line["thread_id"]: line["status"] for line in map(json.loads, out.splitlines())}
    assert code == 1
    assert found == {name: status for name, status in evidence.items() if status != "healthy"}
    before = every_row(path)
    how = ("repair", path, "--all", "--graph", graph_file, "--min-age", 0)
    code, out, err = cli(*how)
    assert (code, every_row(path) == before, "nothing was written" in err) == (1, True, True)
    code, out, _ = cli(*how, "--apply", "--yes")
    assert (code, out.count("\trepaired\t")) == (0, list(evidence.values()).count("damaged"))
    after = every_row(path)
    for name, status in evidence.items():
        assert (before[name] < after[name]) == (status == "damaged")
    code, out, _ = cli("scan", path)
    assert (code, [line.split("\t")[0] for line in out.splitlines()[1:]]) == (0, ["paused"])
    code, out, _ = cli("show", path, "killed", "--json")
    assert (code, json.loads(out)["status"]) == (0, "healthy")


# --- opening -----------------------------------------------------------------------------


def test_a_database_is_opened_read_only_by_the_server(path, saver):
    """A scan changes no byte, and the server itself would refuse to."""
    abandoned_thread("react_v2", saver)
    before = every_row(path)
    with open_database(path) as database:
        assert [r.status for r in scan_threads(database.saver)] == ["damaged"]
    assert every_row(path) == before
    with pytest.raises(ThreadError, match="read-only"), open_database(path) as database:
        database.saver.delete_thread("1")
    with open_database(path, write=True) as database:
        database.saver.delete_thread("1")
    assert every_row(path) == {}


def test_the_options_of_a_uri_are_kept(server, path, saver, cli):
    """Tables may lie in another schema, which the URI names."""
    abandoned_thread("react_v2", saver)
    uri = server.make()
    execute(uri, "CREATE SCHEMA app", *(f"ALTER TABLE {t} SET SCHEMA app" for t in POSTGRES_TABLES))
    execute(uri, "SET search_path = app; INSERT INTO checkpoints VALUES ('1', '', '1', null, null, "
                 "'{\"v\": 4, \"id\": \"1\", \"ts\": \"\", \"channel_values\": {}, "
                 "\"channel_versions\": {}, \"versions_seen\": {}}')")  # fmt: skip
    code, _, err = cli("scan", f"{uri}&options=-csearch_path%3Dapp")
    assert (code, "none has a state key 'messages'" in err) == (2, True)
    assert "has no table 'checkpoints'" in cli("scan", uri)[2]


def test_a_crafted_row_and_a_pickle_execute_nothing(path, saver, tmp_path):
    """What LangGraph itself would run is a report here, and the other threads are looked at."""
    touched = tmp_path / "touched"
    rows = {
        "crafted": ("msgpack", crafted("os", "system", f"touch '{touched}'")),
        "pickle": ("pickle", f"cos\nsystem\n(S\"touch '{touched}'\"\ntR.".encode()),
        "torn": ("msgpack", b"\xc1\xc1"),
    }
    for name, row in rows.items():
        abandoned_thread("react_v2", saver, name)
        saver.conn.execute(
            "UPDATE checkpoint_blobs SET type = %s, blob = %s "
            "WHERE thread_id = %s AND channel = 'messages'",
            (*row, name),
        )
    abandoned_thread("react_v2", saver, "valid")
    with open_database(path) as database:
        reports = {r.thread_id: r for r in scan_threads(database.saver)}
        assert database.blocked == {"os:system"}
    assert {name: r.status for name, r in reports.items()} == {
        **dict.fromkeys(rows, "unreadable"),
        "valid": "damaged",
    }
    assert "is a pickle, which is never loaded" in reports["pickle"].reason
    assert not touched.exists()
    saver.get_tuple(thread("crafted"))
    assert touched.exists(), "the row must be one that would run"


def crafted(module, name, *args):
    """A msgpack value that names a function and its arguments, as LangGraph writes classes."""
    return ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb((module, name, args))))


def test_a_database_that_is_lost_during_a_scan_stops_it(path, saver):
    """A server that goes away ends the scan with its error; the other threads are not reported."""
    for number in range(3):
        abandoned_thread("react_v2", saver, str(number))

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
        abandoned_thread("react_v2", saver, str(number))
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
        "import sys; sys.modules['psycopg'] = None; from langgraph_patch.cli import main; "
        "sys.exit(str([main(['scan', target]) for target in sys.argv[1:]]))"
    )
    file = str(tmp_path / "threads.sqlite")
    with SqliteSaver.from_conn_string(file) as saver:
        abandoned_thread("react_v2", saver)
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", code, file, f"postgresql://u:{MARK}@127.0.0.1/db"],
        capture_output=True,
        text=True,
        check=False,
    )
    *_, missing, codes = done.stderr.splitlines()
    assert missing == (
        "langgraph-patch: a PostgreSQL database needs psycopg: "
        "pip install 'langgraph-patch[postgres]'"
    )
    assert codes == "[1, 2]"


# --- bad input, and passwords --------------------------------------------------------------

MARK = "Zx9secret"
BAD = {
    "nobody listens": ("postgresql://u:{mark}@127.0.0.1:1/db", "Connection refused"),
    "no such socket": ("postgresql://u:{mark}@/db?host=/nowhere", "No such file or directory"),
    "no such database": ("{server}/nope?host={socket}", 'database "nope" does not exist'),
    "no such user": ("postgres://bob:{mark}@/made?host={socket}", 'role "bob" does not exist'),
    "a wrong password": ("postgres://locked:{mark}@/made?host={socket}", "authentication failed"),
    "no password": ("postgresql://locked@/made?host={socket}", "no password supplied"),
    "no tables": ("{server}/postgres?host={socket}", "has no table 'checkpoints'"),
    "no threads": ("{server}/made?host={socket}", "holds no checkpoint: there is nothing to read"),
    "another version": ("{other}", "has no column 'task_path'"),
    "no right to read": ("{forbidden}", "permission denied"),
    "no URI": (
        "postgresql://u:%zz{mark}@h/db",
        "HOST:PORT/DATABASE behind postgresql:// with spec",
    ),
    "a slash in the password": ("postgresql://u:{mark}/x@127.0.0.1:1/db", "%-encoded?"),
    "a number and a slash": ("postgresql://127.0.0.1:1/{mark}@h/db", "%-encoded?"),
    "an at sign in it": ("postgresql://u:a@{mark}@127.0.0.1:1/db", "%-encoded?"),
    "a percent sign in it": ("postgresql://u:%zz{mark}@127.0.0.1/db", "URI cannot be read"),
    "no host": ("postgresql://u:{mark}", "%-encoded?"),
    "a parameter": ("postgresql://127.0.0.1:1/db?password={mark}", "Connection refused"),
    "a wrong parameter": ("postgresql://127.0.0.1:1/db?pasword={mark}", "URI cannot be read"),
    "a wrong timeout": ("postgres://u:{mark}@h/db?connect_timeout=x", "connect_timeout"),
    "encoded": ("postgresql://u:%5A%78{mark}@127.0.0.1:1/db", "Connection refused"),
    "half a character": ("postgresql://u:{mark}\udcff@127.0.0.1:1/db", "PostgreSQL database"),
    "keywords": ("host=127.0.0.1 user=u password={mark}", "begins with postgresql://"),
    "quoted": ("password = '{mark} {mark}' host=127.0.0.1", "begins with postgresql://"),
    "another database": (
        "mysql://u:{mark}@127.0.0.1/db",
        "http:// or https:// (LangGraph Server), or the path of a SQLite file.",
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
def test_a_bad_uri_is_one_line_without_its_password(case, places, cli, graph_file, caplog):
    """Exit code 2; the line says what to do; no log, no traceback, no cause has the password."""
    uri, texts = BAD[case][0].format_map(places), BAD[case][1]
    caplog.set_level(logging.DEBUG)
    for arguments in (
        ["scan", uri],
        ["show", uri, "1"],
        ["repair", uri, "1", "--graph", graph_file],
    ):
        code, out, err = cli(*arguments)
        [line] = err.splitlines()
        assert (code, out) == (2, "")
        assert texts in line
        assert MARK not in err
    with pytest.raises((ThreadError, OptionError)) as raised:
        main(["scan", uri, "--debug"])
    assert MARK not in "".join(traceback.format_exception(raised.value))
    error = raised.value
    while error is not None:
        assert MARK not in repr(error)
        error = error.__cause__ or error.__context__
    assert MARK not in caplog.text


@pytest.mark.parametrize("arguments", [["{}"], ["scan", "x.db", "{}"], ["scan", "--since", "{}"]])
def test_a_misplaced_password_is_not_printed(arguments, cli):
    """A forgotten command or a superfluous argument is quoted without it."""
    for uri in (f"postgresql://u:{MARK}/@ {MARK}@h/db", f"postgres://h?password={MARK}"):
        code, out, err = cli(*(each.format(uri) for each in arguments))
        assert (code, out, MARK in err) == (2, "", False)


@contextmanager
def pooler():
    """A server that refuses the startup parameter `options`, as PgBouncer does; its port."""
    message = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
    refusal = b"E" + struct.pack("!i", len(message) + 4) + message
    encryption = {80877103, 80877104}  # what a client asks for first

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self):
            while True:
                (length, code) = struct.unpack("!ii", self.rfile.read(8))
                parameters = self.rfile.read(length - 8)
                if code not in encryption:
                    break
                self.wfile.write(b"N")
            assert b"options\0" in parameters
            self.wfile.write(refusal)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse) as listening:
        serving = threading.Thread(target=listening.serve_forever)
        serving.start()
        try:
            yield listening.server_address[1]
        finally:
            listening.shutdown()
            serving.join()


def test_a_pooler_that_refuses_a_read_only_connection_gets_advice(cli):
    """The line says what to name instead."""
    with pooler() as port:
        code, _, err = cli("scan", f"postgresql://u@127.0.0.1:{port}/db")
    assert code == 2
    assert "unsupported startup parameter: options. A pooler, such as PgBouncer, refuses" in err
    assert "name the server itself instead of the pooler." in err


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
    """However pages fall, each thread and namespace comes once, and `after` begins behind one.

    The order is that of the database. This one sorts as Python does.
    """
    with PostgresSaver.from_conn_string(server.make()) as saver:
        wanted = sorted(Key(name, ns) for name in ODD for ns in ("", "a", "B", "a|b", "a:1"))
        for place in wanted:
            config = {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}
            for number in range(2):
                saver.put({"configurable": config}, {**EMPTY, "id": f"{number}"}, {}, {})
        for size in (1, 7, 500):
            statements = replace(postgres._STATEMENTS, page_size=size)  # noqa: SLF001 - smaller pages
            monkeypatch.setattr(postgres, "_STATEMENTS", statements)
            store, last, found = store_of(saver), None, []
            while page := run_sync(store.keys_after(last)):
                assert len({key.thread_id for key in page}) <= size
                found += page
                last = page[-1]
            assert found == wanted
        assert run_sync(store.keys_after(last_key_of("\U0010ffff"))) == []
        in_co_op = [key for key in wanted if key.thread_id == "co-op"]
        assert run_sync(store.keys_of("co-op")) == in_co_op
        after = [r.thread_id for r in scan_threads(saver, after="co op") if not r.namespace]
        assert after == sorted(name for name in ODD if name > "co op")


@pytest.mark.parametrize("operator", [" > ", " >= "])
def test_a_page_of_keys_reads_only_its_part_of_the_index(operator, path, saver):
    """Among 30,000 threads, 10 threads cost a few blocks, wherever the page begins."""
    execute(
        path,
        "INSERT INTO checkpoints (thread_id, checkpoint_ns, checkpoint_id, checkpoint) "
        "SELECT 'thread-' || i, '', '1', '{}' FROM generate_series(1, 30000) i",
        "ANALYZE checkpoints",
    )
    whole = saver.conn.execute("SELECT pg_relation_size('checkpoints') / 8192 AS blocks").fetchone()
    query = postgres._STATEMENTS.keys.replace(" > ", operator)  # noqa: SLF001 - its cost is read
    for first in ("", "thread-2", "thread-99"):
        values = {"thread": first, "limit": 10}
        explained = saver.conn.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", values
        ).fetchone()
        plan = explained["QUERY PLAN"][0]["Plan"]
        read = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert read < 150 < whole["blocks"]


def test_a_saver_of_the_same_name_is_not_taken_for_langgraphs():
    """Other packages have a `PostgresSaver` too, over other tables."""
    other = type("PostgresSaver", (PostgresSaver.__mro__[2],), {})()
    assert type(store_of(other)).__name__ == "AnyStore"


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
        assert lines(stored_messages(graph))[-2:] == ["human: next", "ai: done"]


@pytest.fixture
def agents(saver):
    """What became of the threads of one application."""
    return incident_of(saver, "create_agent", 16)


async def test_the_async_functions_over_a_pool(path, agents):
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


def test_an_undo_leaves_no_row_but_unreferenced_blobs(path, saver):
    """Blobs may be shared by forks, so they stay; no reading of the thread can meet them."""
    say(application("react_v2", saver, both_calls()), thread(), "go")
    before = every_row(path)
    graph = application("react_v2", saver)
    undo_repair(graph, repair_thread(graph, thread(), min_age=0, on_pause="abandon"))
    after = every_row(path)
    assert before["1"] < after["1"]
    assert {row[0] for row in after["1"] - before["1"]} == {"checkpoint_blobs"}


def test_an_undo_waits_for_whoever_is_writing_and_then_refuses(path, saver):
    """A checkpoint that is written but not yet committed when the undo comes is not lost."""
    graph = abandoned_thread("react_v2", saver)
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
    assert lines(stored_messages(graph))[-1] == "human: late"


def test_an_undo_does_not_wait_for_ever_and_keeps_nobody_waiting(path, saver, monkeypatch):
    """If another session locks the tables, the undo raises an error, and nothing is deleted.

    Whoever writes meanwhile waits behind the undo for the tenth of a second of one attempt.
    """
    graph = abandoned_thread("react_v2", saver)
    repair = repair_thread(graph, thread(), min_age=0)
    before = every_row(path)
    monkeypatch.setattr(sql, "_LOCK_ATTEMPTS", 5)
    waits = []

    def write():
        with psycopg.connect(path, autocommit=True) as conn:
            while undoing.is_alive():
                began = time.monotonic()
                conn.execute("DELETE FROM checkpoints WHERE thread_id = 'none'")
                waits.append(time.monotonic() - began)

    def undo():
        with (
            PostgresSaver.from_conn_string(path) as other,
            pytest.raises(ThreadError, match="Another process has locked the tables"),
        ):
            undo_repair(silent("react_v2", other), repair)

    with psycopg.connect(path) as conn:
        conn.execute("LOCK TABLE checkpoints IN ROW EXCLUSIVE MODE")
        undoing = threading.Thread(target=undo)
        undoing.start()
        write()
        undoing.join()
    assert waits
    assert max(waits) < 1
    assert every_row(path) == before
    undo_repair(graph, repair)


def test_repairs_from_many_processes_at_once_leave_one_history(path, saver):
    """Six repairs, each over a connection of its own, race for real: none harms another."""
    graph = abandoned_thread("create_agent", saver)
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
    assert stored_messages(graph) == wanted
    assert validate_messages(wanted) == []


def test_delta_state_is_read_back_whole_from_a_new_connection(path, saver):
    """What a repair wrote as blobs and writes gives the same history to who opens it anew."""
    for kind in ("create_deep_agent", "react_v2"):
        dict(ways_of(kind))["killed"](kind, saver, thread(kind))
        repair = repair_thread(silent(kind, saver), thread(kind), min_age=0)
        with PostgresSaver.from_conn_string(path) as other:
            again = stored_messages(silent(kind, other), kind)
            assert again == repair.patch.messages
            assert {"sent to bob", "sent to eve"} == {
                m.text for m in again if isinstance(m, ToolMessage)
            }
