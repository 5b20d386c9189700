"""Databases of checkpoints: SQLite files and PostgreSQL, opened and read in the same way.

A database is named by the path of a SQLite file or by the URI of a PostgreSQL database. What is
needed for the latter is imported only then: plain `pytest` runs without it.
"""

import sqlite3
from contextlib import closing, contextmanager
from importlib import import_module
from typing import TypeVar
from weakref import finalize

from langgraph.checkpoint.sqlite import SqliteSaver

SQLITE_TABLES = ("checkpoints", "writes")
POSTGRES_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


_Saver = TypeVar("_Saver", bound=SqliteSaver)


def sqlite_saver(database=":memory:", kind: type[_Saver] = SqliteSaver) -> _Saver:
    """A checkpointer of SQLite, whose connection is closed when nothing needs it any more."""
    conn = sqlite3.connect(database, check_same_thread=False)
    saver = kind(conn)
    finalize(saver, conn.close)
    return saver


def _postgres(database):
    """The module for a PostgreSQL database; None for a file."""
    is_uri = str(database).startswith("postgresql://")
    return import_module("support.servers") if is_uri else None


def open_saver(database):
    """A checkpointer, as a context manager."""
    postgres = _postgres(database)
    return (postgres.PostgresSaver if postgres else SqliteSaver).from_conn_string(database)


def execute(database, *statements):
    """Run SQL statements, each a text or a text with its parameters, past LangGraph."""
    postgres = _postgres(database)
    with closing(postgres.connect(database) if postgres else sqlite3.connect(database)) as conn:
        for statement in statements:
            conn.execute(*statement if isinstance(statement, tuple) else (statement,))
        conn.commit()


def every_row(database):
    """Every row of the database, by thread."""
    postgres = _postgres(database)
    if postgres:
        return postgres.every_row(database)
    rows = {}
    with closing(sqlite3.connect(database)) as conn:
        for table in SQLITE_TABLES:
            for row in conn.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our names
                rows.setdefault(row[0], set()).add((table, *row))
    return rows


def rows_of(database):
    """Every row that a thread can read, by thread."""
    postgres = _postgres(database)
    return postgres.named_rows(database) if postgres else every_row(database)


def copy_thread(saver, old, new):
    """Store the rows of thread `old` a second time, as thread `new`."""
    if not isinstance(saver, SqliteSaver):
        import_module("support.servers").copy_thread(saver.conn, old, new)
        return
    with saver.cursor() as cursor:
        for table in SQLITE_TABLES:
            rows = cursor.execute(f"SELECT * FROM {table} WHERE thread_id = ?", (old,)).fetchall()  # noqa: S608 - our names
            marks = ", ".join("?" * len(rows[0]))
            copies = [(new, *row[1:]) for row in rows]
            cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)  # noqa: S608 - our names


# --- writers that come between --------------------------------------------------------------


@contextmanager
def open_interrupted_saver(database):
    """A checkpointer that calls `act` just before its cursor number `at`."""
    postgres = _postgres(database)
    name = "_cursor" if postgres else "cursor"
    with open_saver(database) as saver:
        cursor = getattr(saver, name)

        def counting(*args, **options):
            saver.calls += 1
            if saver.calls == saver.at:
                saver.act()
            return cursor(*args, **options)

        saver.calls, saver.at, saver.act = 0, -1, lambda: None
        setattr(saver, name, counting)
        yield saver
