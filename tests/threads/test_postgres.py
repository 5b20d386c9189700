"""PostgreSQL: the laws of stored threads over a real server, and what is its own.

Where a law is the same as for SQLite, it is the same test: `test_threads` is run again with
PostgreSQL in the place of SQLite.
"""

import json
import logging
import re
import subprocess
import sys
import threading
import time
import traceback
import uuid
from contextlib import contextmanager

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres import base as postgres_base
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from langgraph_patch import validate_messages
from langgraph_patch._sansio import run_sync
from langgraph_patch.cli import main
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import (
    arepair_thread,
    ascan_threads,
    aundo_repair,
    opening,
    repair_thread,
    scan_threads,
    undo_repair,
)
from langgraph_patch.threads.keys import Key, delete_checkpoint, list_keys
from langgraph_patch.threads.opening import open_database
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
    with open_database(path) as opened:
        assert [r.status for r in scan_threads(opened)] == ["damaged"]
    assert every_row(path) == before
    with pytest.raises(ThreadError, match="read-only"), open_database(path) as opened:
        opened.delete_thread("1")
    with open_database(path, write=True) as opened:
        opened.delete_thread("1")
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
    with open_database(path) as opened:
        reports = {r.thread_id: r for r in scan_threads(opened)}
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
        with open_database(path) as opened:
            for report in scan_threads(opened):
                seen.append(report.status)
                opened.conn.execute(
                    "SELECT pg_terminate_backend(%s)", (opened.conn.info.backend_pid,)
                )

    seen = []
    with pytest.raises(ThreadError, match=r"^The PostgreSQL database: .*terminat"):
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


# --- what others have defined ----------------------------------------------------------------

TROJANS = {
    "a function": (
        "CREATE FUNCTION {schema}.convert_to(text, text) RETURNS bytea LANGUAGE sql "
        "AS $$INSERT INTO {schema}.caught VALUES (1); SELECT ''::bytea$$"
    ),
    "an aggregate": (
        "CREATE FUNCTION {schema}.step(bytea[], bytea[]) RETURNS bytea[] LANGUAGE sql "
        "AS $$INSERT INTO {schema}.caught VALUES (1); SELECT $1$$; "
        "CREATE AGGREGATE {schema}.array_agg(bytea[]) (sfunc = {schema}.step, stype = bytea[])"
    ),
    "an operator": (
        "CREATE FUNCTION {schema}.same(text, character varying) RETURNS boolean LANGUAGE sql "
        "AS $$INSERT INTO {schema}.caught VALUES (1); SELECT true$$; CREATE OPERATOR {schema}.= "
        "(function = {schema}.same, leftarg = text, rightarg = character varying)"
    ),
}


@pytest.fixture
def other_role(server):
    """A database in which another role may create things in a schema of the search path."""
    uri = server.make()
    name = f"mallory{uuid.uuid4().hex}"
    with PostgresSaver.from_conn_string(uri) as saver:
        abandoned_thread("react_v2", saver)
    execute(
        uri,
        f"CREATE ROLE {name} LOGIN",
        f"CREATE SCHEMA {name} AUTHORIZATION {name}",
        f"SET ROLE {name}; CREATE TABLE {name}.caught (i int)",
    )
    return uri, name


@pytest.mark.parametrize("trojan", TROJANS)
def test_what_another_role_has_defined_is_not_called(trojan, other_role, cli):
    """The database is refused, and the line says what is in the way."""
    uri, name = other_role
    execute(uri, f"SET ROLE {name}; {TROJANS[trojan].format(schema=name)}")
    path = f"{uri}&options=-csearch_path%3Dpublic,{name}"
    code, _, err = cli("scan", path)
    assert code == 2
    assert re.search(rf"role '{name}' has defined '[a-z_=]+' in schema '{name}'", err)
    with psycopg.connect(uri) as conn:
        assert conn.execute(f"SELECT * FROM {name}.caught").fetchall() == []  # noqa: S608 - our name
    assert cli("scan", uri)[0] == 1, "without that schema it is read"


def test_a_column_of_a_type_that_others_can_cast_is_not_read(server, cli):
    """The cast of a type of their own would run."""
    uri = server.make()
    execute(
        uri,
        "CREATE TYPE colour AS ENUM ('red')",
        "ALTER TABLE checkpoint_blobs ALTER COLUMN type TYPE colour USING 'red'::colour",
    )
    assert "table 'checkpoint_blobs' has no column 'type'" in cli("scan", uri)[2]


def test_a_policy_that_hides_rows_is_an_error(server, cli):
    """A scan that saw only some rows would say that all is well."""
    uri = server.make()
    with PostgresSaver.from_conn_string(uri) as saver:
        abandoned_thread("react_v2", saver)
    name = f"reader{uuid.uuid4().hex}"
    execute(
        uri,
        f"CREATE ROLE {name} LOGIN",
        *(f"GRANT SELECT ON {table} TO {name}" for table in POSTGRES_TABLES),
        "ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON checkpoints USING (thread_id = 'none')",
    )
    code, _, err = cli("scan", uri.replace("postgres:@", f"{name}@"))
    assert (code, "would be affected by row-level security policy" in err) == (2, True)


@pytest.mark.parametrize("lock", ["before", "during"])
def test_a_lock_is_not_waited_for_without_an_end(lock, path, saver):
    """The line says so, and the scan ends."""
    abandoned_thread("react_v2", saver, "1")
    abandoned_thread("react_v2", saver, "2")

    def scan():
        with open_database(path) as opened:
            for report in scan_threads(opened):
                seen.append(report.thread_id)
                if lock == "during":
                    conn.execute("LOCK TABLE checkpoints")

    seen = []
    with psycopg.connect(path) as conn:
        if lock == "before":
            conn.execute("LOCK TABLE checkpoints")
        began = time.monotonic()
        with pytest.raises(ThreadError, match="due to lock timeout"):
            scan()
    assert time.monotonic() - began < 20
    assert seen == ([] if lock == "before" else ["1"])


def test_a_function_cannot_make_a_scan_write(path, saver):
    """Each query is in a transaction that is read-only, whatever the default of the session is."""
    abandoned_thread("react_v2", saver)
    with open_database(path) as opened:
        opened.conn.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            run_sync(delete_checkpoint(opened, Key("1", ""), "x"))
        seen = []
        execute_query = opened.conn.execute
        for saved in opened.list(thread()):
            seen.append(execute_query("SHOW transaction_read_only").fetchone())
            assert saved
        assert {each["transaction_read_only"] for each in seen} == {"on"}


def test_every_name_that_the_queries_call_is_known():
    """A canary: it fails if LangGraph's queries call more than was searched for."""
    texts = [
        text
        for name, text in vars(postgres_base).items()
        if name in {"SELECT_SQL", "SELECT_PENDING_SENDS_SQL"}
    ]
    texts.append(postgres_base._build_delta_stage1_sql(["a"], paged=True, include_cursor=True))  # noqa: SLF001 - a canary
    texts.append(
        postgres_base._build_delta_stage2_sql(channels_with_chain=["a"], channels_with_seed=["a"])  # noqa: SLF001 - a canary
    )
    called = {name for text in texts for name in re.findall(r"([a-z_]+)\(", text.lower())}
    operators = {name for text in texts for name in re.findall(r"[-<>=@?|&#*/!~]+", text)}
    known = opening._CALLED  # noqa: SLF001 - a canary
    assert called - {"exists", "any", "coalesce"} <= {*known["functions"]}
    assert operators <= {*known["operators"]}


# --- bad input, and passwords --------------------------------------------------------------

MARK = "Zx9secret"
BAD = {
    "nobody listens": ("postgresql://u:{mark}@127.0.0.1:1/db", "Connection refused"),
    "no such socket": ("postgresql://u:{mark}@/db?host=/nowhere", "No such file or directory"),
    "no such database": ("{server}/nope?host={socket}", "(does not exist)"),
    "no such user": ("postgres://bob:{mark}@/made?host={socket}", "(does not exist)"),
    "a wrong password": ("postgres://locked:{mark}@/made?host={socket}", "authentication failed"),
    "no password": ("postgresql://locked@/made?host={socket}", "no password supplied"),
    "no tables": ("{server}/postgres?host={socket}", "has no table 'checkpoints'"),
    "no threads": ("{server}/made?host={socket}", "holds no checkpoint: there is nothing to read"),
    "another version": ("{other}", "has no column 'task_path'"),
    "no right to read": ("{forbidden}", "permission denied"),
    "no URI": (
        "postgresql://u:%zz{mark}@h/db",
        "its URI cannot be read",
    ),
    "a slash in the password": ("postgresql://u:{mark}/x@127.0.0.1:1/db", "must be %-encoded"),
    "a number and a slash": ("postgresql://127.0.0.1:1/{mark}@h/db", "must be %-encoded"),
    "an at sign in it": ("postgresql://u:a@{mark}@127.0.0.1:1/db", "must be %-encoded"),
    "a percent sign in it": ("postgresql://u:%zz{mark}@127.0.0.1/db", "URI cannot be read"),
    "no host": ("postgresql://u:{mark}", "must be %-encoded"),
    "a parameter": ("postgresql://127.0.0.1:1/db?password={mark}", "Connection refused"),
    "a wrong parameter": ("postgresql://127.0.0.1:1/db?pasword={mark}", "URI cannot be read"),
    "a wrong timeout": ("postgres://u:{mark}@h/db?connect_timeout=x", "the connection failed"),
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


def test_keys_are_listed_once_in_pythons_order(server):
    """Each thread and namespace comes once, whatever the collation of the database."""
    with PostgresSaver.from_conn_string(server.make()) as saver:
        wanted = sorted(Key(name, ns) for name in ODD for ns in ("", "a", "B", "a|b", "a:1"))
        for place in wanted:
            config = {"thread_id": place.thread_id, "checkpoint_ns": place.namespace}
            for number in range(2):
                saver.put({"configurable": config}, {**EMPTY, "id": f"{number}"}, {}, {})
        assert run_sync(list_keys(saver)) == wanted
        in_co_op = [key for key in wanted if key.thread_id == "co-op"]
        assert run_sync(list_keys(saver, "co-op")) == in_co_op


def test_a_saver_of_the_same_name_is_not_taken_for_langgraphs():
    """Other packages have a `PostgresSaver` too, over other tables."""
    other = type("PostgresSaver", (PostgresSaver.__mro__[2],), {})()
    with pytest.raises(ThreadError, match=r"PostgresSaver cannot list its threads .*thread_ids="):
        run_sync(list_keys(other))


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
        repair_thread(graph, thread(), min_age=0)
        undo_repair(graph, thread())
        assert rows_of(path) == before
        repair = repair_thread(graph, thread(), min_age=0)
        assert repair.outcome == "repaired"
        say(application(kind, saver, answer()), thread(), "next")
        with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
            undo_repair(graph, thread())
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
        graph = application("create_agent", saver, AIMessage("fine"))
        before = rows_of(path)
        await arepair_thread(graph, thread("killed"), min_age=0)
        await aundo_repair(graph, thread("killed"))
        assert rows_of(path) == before
        await arepair_thread(graph, thread("killed"), min_age=0)
        await graph.ainvoke({"messages": [human("next")]}, thread("killed"))
        with pytest.raises(ThreadError, match="no repair wrote its newest checkpoint"):
            await aundo_repair(graph, thread("killed"))


# --- undo and others -----------------------------------------------------------------------


def test_an_undo_leaves_no_row_but_unreferenced_blobs(path, saver):
    """Blobs may be shared by forks, so they stay; no reading of the thread can meet them."""
    say(application("react_v2", saver, both_calls()), thread(), "go")
    before = every_row(path)
    graph = application("react_v2", saver)
    repair_thread(graph, thread(), min_age=0, on_pause="abandon")
    undo_repair(graph, thread())
    after = every_row(path)
    assert before["1"] < after["1"]
    assert {row[0] for row in after["1"] - before["1"]} == {"checkpoint_blobs"}


def test_an_undo_waits_for_whoever_is_writing_and_then_refuses(path, saver):
    """A checkpoint that is written but not yet committed when the undo comes is not lost."""
    graph = abandoned_thread("react_v2", saver)
    repair_thread(graph, thread(), min_age=0)
    refused = []

    def undo():
        with PostgresSaver.from_conn_string(path) as other:
            try:
                undo_repair(silent("react_v2", other), thread())
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


def test_an_undo_does_not_wait_for_ever_and_keeps_nobody_waiting(path, saver):
    """If another session locks the tables, the undo raises an error, and nothing is deleted.

    Whoever writes meanwhile waits behind the undo for a second.
    """
    graph = abandoned_thread("react_v2", saver)
    repair_thread(graph, thread(), min_age=0)
    before = every_row(path)
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
            undo_repair(silent("react_v2", other), thread())

    with psycopg.connect(path) as conn:
        conn.execute("LOCK TABLE checkpoints IN ROW EXCLUSIVE MODE")
        undoing = threading.Thread(target=undo)
        undoing.start()
        write()
        undoing.join()
    assert waits
    assert max(waits) < 2
    assert every_row(path) == before
    undo_repair(graph, thread())


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
