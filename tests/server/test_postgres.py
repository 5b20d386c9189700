"""PostgreSQL: the laws of stored threads over a real server, and what is its own."""

import logging
import re
import threading
import time
import traceback
import uuid
from datetime import timedelta

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres import base as postgres_base
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg_pool import ConnectionPool

from kit import Agent, calls, results_in
from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch.cli import main
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads import open_database, repair_thread, scan_threads, undo_repair
from langgraph_patch.threads.selection import Selection, selected_addresses
from langgraph_patch.threads.stores import postgres as store
from langgraph_patch.threads.stores import tables
from support.databases import POSTGRES_TABLES, copy_thread, every_row, execute, open_saver, rows_of
from support.placeholder_texts import WAITED
from support.servers import PASSWORD
from support.stored_threads import scanned, stored, thread
from support.thread_laws import CASES, check_other_writer, check_repair, check_two_repairs, fill

pytestmark = pytest.mark.xdist_group("postgres")


@pytest.fixture(scope="module")
def shared(postgres):
    """The database that most tests use, one after the other."""
    return postgres.make()


@pytest.fixture
def path(shared):
    """The URI of an empty database."""
    execute(shared, f"TRUNCATE {', '.join(POSTGRES_TABLES)}")
    return shared


@pytest.fixture
def saver(path):
    """A checkpointer over the empty database."""
    with open_saver(path) as opened:
        yield opened


@pytest.fixture
def own(postgres):
    """The URI of a database of the test's own, with a damaged thread."""
    uri = postgres.make()
    with open_saver(uri) as saver:
        stored("abandoned", saver=saver)
    return uri


# --- the laws ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [CASES[1], CASES[3], CASES[5]], ids=lambda case: case[0])
def test_scan_repair_and_undo(case, path, saver):
    """As in SQLite; an undo leaves blobs that nobody reads, since forks may share them."""
    check_repair(path, saver, case)


@pytest.mark.parametrize("check", [check_other_writer, check_two_repairs])
def test_others_write_at_any_moment(check, path):
    """As in SQLite: nothing that they write is lost."""
    check(path, "delta")


# --- opening -------------------------------------------------------------------------------


def test_a_database_is_opened_read_only_by_the_server(path, saver):
    """A scan changes no byte; each query is in a transaction that is read-only."""
    stored("abandoned", saver=saver)
    before = every_row(path)
    with open_database(path) as opened:
        assert scanned(opened) == [("1", "damaged")]
        opened.conn.execute("SET default_transaction_read_only = off")  # as a function might
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            store.PostgresStore().delete_checkpoint(opened, Address("1", "", "x"))
        shown = opened.conn.execute
        seen = [shown("SHOW transaction_read_only").fetchone() for _ in opened.list(thread())]
        assert {each["transaction_read_only"] for each in seen} == {"on"}
    with pytest.raises(ThreadError, match="read-only"), open_database(path) as opened:
        opened.delete_thread("1")
    assert every_row(path) == before
    with open_database(path, write=True) as opened:
        opened.delete_thread("1")
    assert every_row(path) == {}


def test_the_options_of_a_uri_are_kept_and_the_keys_sorted(postgres, own, cli):
    """Tables may be in another schema, and the collation of the database does not matter."""
    moved = [f"ALTER TABLE {table} SET SCHEMA app" for table in POSTGRES_TABLES]
    execute(own, "CREATE SCHEMA app", *moved)
    assert cli("scan", f"{own}&options=-csearch_path%3Dapp")[0] == 1
    assert 'relation "checkpoints" does not exist' in cli("scan", own)[2]
    with open_saver(postgres.make()) as saver:
        wanted = fill(saver)
        assert [*selected_addresses(saver, Selection())] == wanted
        assert len([*selected_addresses(saver, Selection(["co-op"]))]) == 5


def crafted(module, name, *args):
    """A msgpack value that names a function and its arguments, as LangGraph writes classes."""
    return ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb((module, name, args))))


def test_a_crafted_row_and_a_pickle_execute_nothing(path, saver, tmp_path):
    """What LangGraph itself would run is a report here, and the other threads are looked at."""
    touched = tmp_path / "touched"
    rows = {
        "crafted": ("msgpack", crafted("os", "system", f"touch '{touched}'")),
        "pickle": ("pickle", f"cos\nsystem\n(S\"touch '{touched}'\"\ntR.".encode()),
        "torn": ("msgpack", b"\xc1\xc1"),
    }
    write = (
        "UPDATE checkpoint_blobs SET type = %s, blob = %s "
        "WHERE thread_id = %s AND channel = 'messages'"
    )
    for name, row in rows.items():
        stored("abandoned", saver=saver, thread_id=name)
        execute(path, (write, (*row, name)))
    stored("abandoned", saver=saver, thread_id="valid")
    with open_database(path) as opened:
        assert dict(scanned(opened)) == {**dict.fromkeys(rows, "unreadable"), "valid": "damaged"}
    assert not touched.exists()
    saver.get_tuple(thread("crafted"))
    assert touched.exists(), "the row must be one that would run"


def test_a_lost_history_is_not_rebuilt_from_older_ones(path, saver):
    """A blob that is gone makes its thread unreadable; it would look healthy by an older one."""
    for name, kind in (("1", "agent"), ("2", "delta")):
        stored("abandoned", kind, saver, name)
    lost = "DELETE FROM checkpoint_blobs WHERE channel = 'messages' AND version = "
    newest = "(SELECT max(version) FROM checkpoint_blobs WHERE channel = 'messages')"
    execute(path, f"{lost} {newest} AND thread_id = '1'")
    assert scanned(saver) == [("1", "unreadable"), ("2", "damaged")]


def test_a_database_that_may_only_be_read_is_no_fault_of_a_thread(own, cli):
    """A repair ends with 2, and not with a refusal."""
    uri = f"{own}&options=-cdefault_transaction_read_only%3Don"
    code, _, err = cli("repair", uri, "--all", "--apply", "--yes", "--min-age", 0)
    assert (code, "read-only transaction" in err) == (2, True)


def test_a_database_that_is_lost_during_a_scan_stops_it(path, saver):
    """A server that goes away ends the scan with its error; the other threads are not reported."""
    for number in range(3):
        stored("abandoned", saver=saver, thread_id=str(number))
    seen = []

    def scan():
        with open_database(path) as opened:
            for report in scan_threads(opened):
                seen.append(report.status)
                own_id = opened.conn.info.backend_pid
                opened.conn.execute("SELECT pg_terminate_backend(%s)", (own_id,))

    with pytest.raises(
        ThreadError, match=r"^The PostgreSQL database: .*terminat.*run the command again\.$"
    ):
        scan()
    assert seen == ["damaged"]


@pytest.mark.parametrize("lock", ["before", "during"])
def test_a_lock_is_not_waited_for_without_an_end(lock, path, saver, monkeypatch):
    """The line says so, and the scan ends."""
    monkeypatch.setattr(store, "_LIMITS", store._LIMITS.replace("15s", "300ms"))  # noqa: SLF001 - not 15 s
    for name in ("1", "2"):
        stored("abandoned", saver=saver, thread_id=name)
    seen, began = [], time.monotonic()

    def scan(conn):
        with open_database(path) as opened:
            for report in scan_threads(opened):
                seen.append(report.thread_id)
                conn.execute("LOCK TABLE checkpoints")

    with psycopg.connect(path) as conn:
        if lock == "before":
            conn.execute("LOCK TABLE checkpoints")
        with pytest.raises(ThreadError, match="due to lock timeout"):
            scan(conn)
    assert time.monotonic() - began < 20
    assert seen == ([] if lock == "before" else ["1"])


# --- what others have defined ----------------------------------------------------------------

CAUGHT = "LANGUAGE sql AS $$INSERT INTO {schema}.caught VALUES (1); SELECT"
TROJANS = {
    "function": (
        f"CREATE FUNCTION {{schema}}.convert_to(text, text) RETURNS bytea {CAUGHT} ''::bytea$$"
    ),
    "aggregate": (
        f"CREATE FUNCTION {{schema}}.step(bytea[], bytea[]) RETURNS bytea[] {CAUGHT} $1$$; "
        "CREATE AGGREGATE {schema}.array_agg(bytea[]) (sfunc = {schema}.step, stype = bytea[])"
    ),
    "operator": (
        f"CREATE FUNCTION {{schema}}.same(text, varchar) RETURNS boolean {CAUGHT} true$$; CREATE "
        "OPERATOR {schema}.= (function = {schema}.same, leftarg = text, rightarg = varchar)"
    ),
}


@pytest.mark.parametrize("trojan", TROJANS)
def test_what_another_role_has_defined_is_not_called(trojan, own, cli):
    """The database is refused, and the line says what is in the way."""
    name = f"mallory{uuid.uuid4().hex}"
    execute(
        own,
        f"CREATE ROLE {name} LOGIN",
        f"CREATE SCHEMA {name} AUTHORIZATION {name}",
        f"SET ROLE {name}; CREATE TABLE {name}.caught (i int)",
        TROJANS[trojan].format(schema=name),
    )
    code, _, err = cli("scan", f"{own}&options=-csearch_path%3Dpublic,{name}")
    assert code == 2
    assert re.search(rf"role '{name}' has defined '[a-z_=]+' in schema '{name}'", err)
    with psycopg.connect(own) as conn:
        assert conn.execute(f"SELECT * FROM {name}.caught").fetchall() == []  # noqa: S608 - our name
    assert cli("scan", own)[0] == 1, "without that schema it is read"


def test_what_would_run_code_of_others_is_refused(own, cli):
    """The cast of a type of their own, and the function of a view, would run."""
    execute(
        own,
        "CREATE TYPE colour AS ENUM ('red')",
        "ALTER TABLE checkpoint_blobs ALTER COLUMN type TYPE colour USING 'red'::colour",
    )
    assert "'checkpoint_blobs' is not an ordinary table" in cli("scan", own)[2]
    execute(
        own,
        "ALTER TABLE checkpoint_blobs ALTER COLUMN type TYPE text",
        "ALTER TABLE checkpoints RENAME TO kept",
        "CREATE VIEW checkpoints AS SELECT * FROM kept",
    )
    assert "'checkpoints' is not an ordinary table" in cli("scan", own)[2]


def test_a_policy_that_hides_rows_is_an_error(own, cli):
    """A scan that saw only some rows would say that all is well."""
    name = f"reader{uuid.uuid4().hex}"
    execute(
        own,
        f"CREATE ROLE {name} LOGIN",
        *(f"GRANT SELECT ON {table} TO {name}" for table in POSTGRES_TABLES),
        "ALTER TABLE checkpoints ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON checkpoints USING (thread_id = 'none')",
    )
    code, _, err = cli("scan", own.replace("postgres:@", f"{name}@"))
    assert (code, "would be affected by row-level security policy" in err) == (2, True)


def test_every_name_that_the_queries_call_is_known():
    """A canary: it fails if LangGraph's queries call more than was searched for."""
    stage1 = postgres_base._build_delta_stage1_sql(["a"], paged=True, include_cursor=True)  # noqa: SLF001 - a canary
    stage2 = postgres_base._build_delta_stage2_sql(  # noqa: SLF001 - a canary
        channels_with_chain=["a"], channels_with_seed=["a"]
    )
    texts = [
        postgres_base.SELECT_SQL, postgres_base.SELECT_PENDING_SENDS_SQL, stage1, stage2,
    ]  # fmt: skip
    called = {name for text in texts for name in re.findall(r"([a-z_]+)\(", text.lower())}
    operators = {name for text in texts for name in re.findall(r"[-<>=@?|&#*/!~]+", text)}
    known = store._CALLED  # noqa: SLF001 - a canary
    assert called - {"exists", "any", "coalesce"} <= {*known["functions"]}
    assert operators <= {*known["operators"]}


# --- many threads -------------------------------------------------------------------------------

KINDS = [
    ("abandoned", "agent"),
    ("killed", "delta"),
    ("abandoned", "stateful_child"),
    ("healthy", "agent"),
    ("paused", "agent"),
]


def filled(saver):
    """Threads of several kinds, one of them paused; their histories."""
    for number, (way, kind) in enumerate(KINDS):
        stored(way, kind, saver, thread_id=f"t{number}")
    return [*selected_addresses(saver, Selection())]


@pytest.mark.parametrize("opened", [True, False])
def test_checkpoints_that_are_read_at_once_are_those_of_the_saver(opened, path, saver):
    """Equal tuples, for every kind of thread, whoever opened the connection: a private detail."""
    addresses = filled(saver)
    with open_database(path) if opened else open_saver(path) as own:
        found = store.PostgresStore().read_newest(own, addresses)
        assert len(found) == len(addresses) > 5
        for address in addresses:
            assert found[address](own) == own.get_tuple(address.config)


def test_few_large_checkpoints_are_held_at_once(path, saver, monkeypatch):
    """At most so many bytes, and one; the reports are the same. Smaller batches follow."""
    stored("abandoned", saver=saver, thread_id="t")
    for number in range(29):
        copy_thread(saver, "t", f"t{number:02}")
    whole, read = [str(report) for report in scan_threads(saver)], storage.newest_of_postgres
    asked, kept = [], []

    def noted(own, addresses):
        found = read(own, addresses)
        asked.append(len(addresses))
        kept.append([storage._size_of(loader.args[1]) for loader in found.values()])  # noqa: SLF001
        return found

    monkeypatch.setattr(storage, "newest_of_postgres", noted)
    for most in (1, 5_000, 64_000_000):
        asked.clear()
        kept.clear()
        monkeypatch.setattr(storage, "_HELD", most)
        assert [str(report) for report in scan_threads(saver)] == whole
        assert all(sum(sizes) <= most or len(sizes) == 1 for sizes in kept)
        assert asked[0] == 30 or asked[1] < 30
        assert (sum(map(len, kept)) == 30) == (most > 5_000)
        assert min(min(sizes) for sizes in kept) > 500


@pytest.mark.parametrize("detail", ["SELECT_SQL", "_load_checkpoint_tuple"])
def test_without_the_private_detail_they_are_read_one_by_one(detail, path, saver, monkeypatch):
    """The same reports."""
    filled(saver)
    with open_database(path) as opened:
        whole = [str(report) for report in scan_threads(opened)]
        monkeypatch.setattr(storage, "newest_of_postgres", lambda *_: {})
        assert [str(report) for report in scan_threads(opened)] == whole
    monkeypatch.undo()
    odd = type("Odd", (type(saver),), {detail: None})(saver.conn)
    assert storage.newest_of_postgres(odd, [Address("t0")]) == {}


def test_a_subclass_is_asked_for_each_history(path, saver):
    """Its `get_tuple` may hide messages, or count."""
    addresses = filled(saver)

    class Counting(type(saver)):
        asked = 0

        def get_tuple(self, config):
            self.asked += 1
            return super().get_tuple(config)

    own = Counting(saver.conn)
    assert [str(report) for report in scan_threads(own)] == [*map(str, scan_threads(saver))]
    assert own.asked > len(addresses) > 5


def test_what_cannot_be_read_is_read_alone(path, saver):
    """A broken row, one of an old format, one that is gone, an id that no database holds."""
    addresses = filled(saver)
    execute(path, "UPDATE checkpoint_blobs SET blob = '\\xc1c1' WHERE thread_id = 't0'")
    execute(
        path,
        "UPDATE checkpoints SET checkpoint = checkpoint || '{\"v\": 3}' WHERE thread_id = 't3'",
    )
    saver.delete_thread("t4")
    found = store.PostgresStore().read_newest(
        saver, [*addresses, Address("\udcff"), Address("\x00")]
    )
    assert {"t3", "t4"}.isdisjoint(address.thread_id for address in found)
    reports = {report.thread_id: report for report in scan_threads(saver)}
    assert reports["t0"].status == "unreadable"
    assert reports["t3"].status == "healthy"


def test_a_batch_that_takes_too_long_is_read_one_by_one(path, saver, monkeypatch):
    """A smaller one follows; the reports are the same."""
    filled(saver)
    whole, sizes = [str(report) for report in scan_threads(saver)], []
    read = storage.newest_of_postgres

    def slow(own, addresses):
        sizes.append(len(addresses))
        if len(addresses) > 2:
            own.conn.execute("SET statement_timeout = '20ms'")
            try:
                own.conn.execute("SELECT pg_sleep(1)")
            finally:
                own.conn.execute("RESET statement_timeout")
        return read(own, addresses)

    monkeypatch.setattr(storage, "newest_of_postgres", slow)
    monkeypatch.setattr(store.PostgresStore, "batch", 4)
    assert [str(report) for report in scan_threads(saver)] == whole
    assert sizes[:2] == [4, 1]


def test_pages_and_shares(saver, monkeypatch):
    """A page may end anywhere, and all shares are the whole."""
    wanted = fill(saver)
    for size in (1, 3, 80):
        monkeypatch.setattr(tables, "_PAGE", size)
        assert [*selected_addresses(saver, Selection())] == wanted
    shares = [[*selected_addresses(saver, Selection(shard=(n, 3)))] for n in (1, 2, 3)]
    assert sorted(address for share in shares for address in share) == wanted


def test_rights_that_are_missing_are_said_before_the_scan(own, cli):
    """Of the table and of the right; a repair needs more than a scan."""
    for right in ("SELECT", "INSERT"):
        tables_of = ", ".join(POSTGRES_TABLES)
        execute(own, "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
        execute(own, f"GRANT {right} ON checkpoints, checkpoint_blobs TO reader")
        uri = own.replace("postgres:@", "reader@")
        code, out, err = cli("scan", uri)
        table = "checkpoint_writes" if right == "SELECT" else "checkpoint_blobs"
        assert (code, out) == (2, "")
        assert f"the user may not SELECT in the table '{table}'" in err
        execute(own, f"GRANT SELECT ON {tables_of} TO reader")
        assert cli("scan", uri)[0] == 1
        code, out, err = cli("repair", uri, "--all", "--apply", "--yes", "--min-age", "0")
        assert (code, out) == (2, "")
        assert "name a user with SELECT, INSERT, UPDATE" in err
        execute(own, f"REVOKE ALL ON {tables_of} FROM reader")


def without_delete(own):
    """The database for a role that may repair, and not undo."""
    execute(own, "DROP ROLE IF EXISTS mender", "CREATE ROLE mender LOGIN")
    tables_of = ", ".join(POSTGRES_TABLES)
    execute(own, f"GRANT SELECT, INSERT, UPDATE ON {tables_of} TO mender")
    return own.replace("postgres:@", "mender@")


def test_an_undo_without_the_right_to_delete_is_said_before(own, cli):
    """By the repair, and by the undo before it does anything; nothing may have been written."""
    uri, apply = without_delete(own), ("--all", "--apply", "--yes")
    may_not = "the user may not DELETE in the table 'checkpoints', as an undo does"
    code, _, err = cli("repair", uri, *apply, "--min-age", "0")
    assert (code, f"{may_not}: these repairs could not be undone" in err) == (0, True)
    assert "langgraph-patch undo" not in err
    before = rows_of(own)
    code, out, err = cli("undo", uri, *apply)
    assert (code, out, may_not in err, "written" in err) == (2, "", True, False)
    with open_database(uri, write=True) as opened, pytest.raises(psycopg.Error) as raised:
        undo_repair(opened, thread())
    assert "__notes__" not in vars(raised.value)
    assert rows_of(own) == before
    assert cli("undo", own, *apply)[0] == 0


def test_what_the_server_has_refused_was_not_written(own, cli):
    """A trigger, a right that is taken meanwhile; a lost connection may have written."""
    execute(
        own,
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$",
        "CREATE TRIGGER no BEFORE INSERT ON checkpoints FOR EACH ROW EXECUTE FUNCTION no()",
    )
    before = rows_of(own)
    code, out, err = cli("repair", own, "--all", "--apply", "--yes", "--min-age", "0")
    assert (code in (2, 3), "no" in out + err, "written" in out + err) == (True, True, False)
    assert rows_of(own) == before
    codes = {"42501": True, "40001": True, "57014": True, "08006": False, "57P01": False}
    codes |= {"40003": False}
    for state, is_undone in codes.items():
        assert store.PostgresStore().is_undone(None, psycopg.errors.lookup(state)()) == is_undone
    assert not store.PostgresStore().is_undone(None, psycopg.OperationalError())
    assert not store.PostgresStore().is_undone(None, KeyboardInterrupt())


def test_why_a_connection_failed_is_said(postgres, cli, monkeypatch):
    """In the words of the server; a text of its own may hold the password, and is not printed."""
    here = f"host={postgres.socket}"
    monkeypatch.setenv("PGPASSWORD", MARK)
    for uri in (f"postgresql://postgres@/{MARK}?{here}", f"postgresql://{MARK}@/postgres?{here}"):
        assert MARK not in cli("scan", uri)[2]

    def fails(**options):
        raise psycopg.OperationalError(f"cannot connect with {texts.pop()}")

    monkeypatch.setattr(psycopg, "connect", fails)
    texts = [MARK, f"postgresql://u:{MARK}@h/db", f"password={MARK}"]
    while texts:
        code, _, err = cli("scan", "postgresql://u@h/db")
        assert (code, "the connection failed. Is" in err, MARK in err) == (2, True, False)


def test_a_statement_timeout_of_ones_own(own, cli):
    """It replaces the minute."""
    with open_database(own, statement_timeout=timedelta(minutes=5)) as opened:
        [shown] = opened.conn.execute("SHOW statement_timeout").fetchone().values()
        assert shown == "5min"
    assert cli("scan", own, "--statement-timeout", "90s")[0] == 1


# --- bad input, and passwords --------------------------------------------------------------

MARK = "Zx9secret"


def test_a_bad_uri_is_one_line_without_its_password(postgres, cli, caplog):
    """Exit code 2; the line says what to do; no log, no traceback, no cause has the password."""
    other, forbidden = postgres.make(), postgres.make()
    with open_saver(other) as saver:
        stored("abandoned", saver=saver)
    execute(other, "ALTER TABLE checkpoint_writes DROP COLUMN task_path")
    execute(forbidden, "CREATE ROLE guest LOGIN")
    here = f"host={postgres.socket}"
    caplog.set_level(logging.DEBUG)
    for uri, text in (
        (f"postgresql://u:{MARK}@127.0.0.1:1/db", "Connection refused"),
        (f"postgresql://postgres:{MARK}@/nope?{here}", 'database "nope" does not exist'),
        (f"postgresql://nobody:{MARK}@/postgres?{here}", 'role "nobody" does not exist'),
        (f"postgres://locked:{MARK}@/made?{here}", "password authentication failed"),
        (f"postgresql://postgres:{MARK}@/postgres?{here}", 'relation "checkpoints" does not exist'),
        (f"postgresql://postgres:{MARK}@/made?{here}", "holds no checkpoint: there is nothing to"),
        (other, "task_path does not exist"),
        (forbidden.replace("postgres:@", "guest@"), "the user may not SELECT in the table"),
        (f"postgresql://u:{MARK}/x@127.0.0.1:1/db", "must be %-encoded"),
        (f"postgresql://127.0.0.1:1/{MARK}@h/db", "must be %-encoded"),
        (f"postgresql://u:%zz{MARK}@127.0.0.1/db", "URI cannot be read"),
        (f"postgresql://u:{MARK}", "must be %-encoded"),
        (f"postgresql://127.0.0.1:1/db?pasword={MARK}", "URI cannot be read"),
        (f"postgres://u:{MARK}@h/db?connect_timeout=x", "the connection failed"),
        (f"postgresql://u:%5A%78{MARK}@127.0.0.1:1/db", "the connection failed"),
        (f"postgresql://u:{MARK}\udcff@127.0.0.1:1/db", "PostgreSQL database"),
    ):
        code, out, err = cli("scan", uri)
        [line] = err.splitlines()
        assert (code, out, text in line, MARK in err) == (2, "", True, False), line
        with pytest.raises((ThreadError, OptionError)) as raised:
            main(["scan", uri, "--debug"])
        assert MARK not in "".join(traceback.format_exception(raised.value))
        error = raised.value
        while error is not None:
            assert MARK not in repr(error)
            error = error.__cause__ or error.__context__
    assert MARK not in caplog.text


def test_a_right_password_opens_encoded_or_from_the_environment(postgres, monkeypatch):
    """Every special character may stand in a password, %-encoded; `PGPASSWORD` is read too."""
    for who, password in (("locked:s3%2Fcr%40t%3Azw%3Fei%23f%C3%BCnf", ""), ("locked", PASSWORD)):
        monkeypatch.setenv("PGPASSWORD", password)
        with pytest.raises(ThreadError, match="holds no checkpoint"):
            open_database(postgres.at("made", who)).__enter__()


# --- keys, pools, pipelines ------------------------------------------------------------------


@pytest.mark.parametrize("is_pool", [True, False])
def test_any_connection_will_do(is_pool, path):
    """Scan, repair and undo, over a pool and in pipeline mode."""
    pool = ConnectionPool(path, kwargs={"autocommit": True}, open=False)
    piped = PostgresSaver.from_conn_string(path, pipeline=True)
    with pool if is_pool else piped as opened:
        check_repair(path, PostgresSaver(opened) if is_pool else opened, CASES[5])


TURN = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))


@pytest.mark.parametrize("kind", ["node", "three_levels"])
async def test_an_agent_that_is_a_node(kind, path):
    """Its filters are not relied on: the turn of each level is found, and of no other thread."""
    with PostgresSaver.from_conn_string(path) as saver:
        made = Agent(kind, TURN, saver=saver)
        for text in ("pay bob", "never mind"):
            made.say(text)
        found = made.results
    async with AsyncPostgresSaver.from_conn_string(path) as saver:
        made = Agent(kind, TURN, saver=saver)
        for text in ("pay bob", "never mind"):
            said = {"messages": [HumanMessage(text)]}
            final = await made.graph.ainvoke(said, thread("2"))
    assert found == results_in(final["messages"])
    assert found == {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}


# --- undo and others -----------------------------------------------------------------------


def undoing(path, refused):
    """Undo the repair of the thread in a thread of its own, over a connection of its own."""

    def undo():
        with PostgresSaver.from_conn_string(path) as other:
            try:
                undo_repair(other, thread())
            except (ThreadError, psycopg.errors.LockNotAvailable) as error:
                refused.append(str(error))

    started = threading.Thread(target=undo)
    started.start()
    return started


def test_an_undo_waits_for_whoever_is_writing_and_then_refuses(path, saver):
    """A checkpoint that is written but not yet committed when the undo comes is not lost."""
    made = stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    refused = []
    with psycopg.connect(path, row_factory=psycopg.rows.dict_row) as conn:
        writer = made.graph.copy({"checkpointer": PostgresSaver(conn)})
        writer.update_state(thread(), {"messages": [("human", "late")]}, as_node="__start__")
        racing = undoing(path, refused)
        while not saver.conn.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
            assert racing.is_alive(), "it must wait"
    racing.join()
    assert [("moved on" in each) for each in refused] == [True]
    assert made.history[-1].text == "late"


def test_an_undo_does_not_wait_for_ever_and_keeps_nobody_waiting(path, saver, monkeypatch):
    """If another session locks the tables, nothing is deleted; writers wait for a second."""
    monkeypatch.setattr(store, "_PAUSES", (0.1,))  # it tries twice
    stored("abandoned", saver=saver)
    repair_thread(saver, thread(), min_age=0)
    before, waits, refused = every_row(path), [], []
    with psycopg.connect(path) as conn, psycopg.connect(path, autocommit=True) as writer:
        conn.execute("LOCK TABLE checkpoints IN ROW EXCLUSIVE MODE")
        racing = undoing(path, refused)
        while racing.is_alive():
            began = time.monotonic()
            writer.execute("DELETE FROM checkpoints WHERE thread_id = 'none'")
            waits.append(time.monotonic() - began)
    assert ["due to lock timeout" in each for each in refused] == [True]
    assert 0 < max(waits) < 2
    assert every_row(path) == before
    undo_repair(saver, thread())
