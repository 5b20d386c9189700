"""SQLite: list keys, delete checkpoints, and open a file read-only or for writing.

`select` imports this module only where a SQLite database is used, so that nobody else pays for
the import of sqlite3.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.sql import SqlStore, Statements, check_tables

_TIMEOUT = 2.0  # seconds to wait for the lock of another process

_OF_CHECKPOINT = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_STATEMENTS = Statements(
    keys="""SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints
    WHERE (thread_id, checkpoint_ns) > (?, ?) ORDER BY thread_id, checkpoint_ns LIMIT ?""",
    keys_of="""SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints
    WHERE thread_id = ? ORDER BY checkpoint_ns""",
    newest="""SELECT checkpoint_id, (SELECT count(*) FROM writes w WHERE
    w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
    AND w.checkpoint_id = c.checkpoint_id) FROM checkpoints c
    WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1""",
    lock=(),  # a session that writes begins with a lock
    delete=(
        f"DELETE FROM checkpoints {_OF_CHECKPOINT}",  # noqa: S608 - a constant
        f"DELETE FROM writes {_OF_CHECKPOINT}",  # noqa: S608 - a constant
    ),
    page_size=500,
)

_COLUMNS = {
    "checkpoints": (
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    ),
    "writes": (
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "value",
    ),
}


# --- the store ---------------------------------------------------------------------------


def sqlite_store(saver: Any, *, is_async: bool) -> SqlStore:
    """The store of a `SqliteSaver` or, with `is_async`, of an `AsyncSqliteSaver`."""
    return SqlStore(saver, is_async, _STATEMENTS, _async_session if is_async else _session)


@contextmanager
def _session(saver: SqliteSaver, *, writes: bool) -> Iterator[sqlite3.Cursor]:
    with saver.cursor(transaction=False) as cursor:
        if not writes:
            yield cursor
            return
        cursor.execute("BEGIN IMMEDIATE")
        with saver.conn:  # commits, or rolls back if something fails
            yield cursor


@asynccontextmanager
async def _async_session(saver: Any, *, writes: bool) -> AsyncIterator[Any]:
    await saver.setup()
    async with saver.lock, saver.conn.cursor() as cursor:
        if not writes:
            yield cursor
            return
        await cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
        except BaseException:
            await saver.conn.rollback()
            raise
        await saver.conn.commit()


# --- opening -----------------------------------------------------------------------------


@contextmanager
def open_sqlite(
    target: str, *, write: bool, serde: JsonPlusSerializer
) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open a SQLite file of threads.

    Args:
        target: The path of the file.
        write: Whether the file may be written to.
        serde: The serializer of the checkpointer.

    Raises:
        ThreadError: If there is no such file, or it holds no threads, or SQLite fails.
    """
    with _sqlite_errors(target), closing(_open_file(target, write=write)) as conn:
        _check_sqlite_tables(conn, target, write=write)
        yield (SqliteSaver if write else _ReadOnlySaver)(conn, serde=serde)


class _ReadOnlySaver(SqliteSaver):
    """Never changes a table."""

    def setup(self) -> None:
        self.is_setup = True


def _open_file(target: str, *, write: bool) -> sqlite3.Connection:
    path = Path(target)
    try:
        if not path.exists():
            raise ThreadError(f"{target!r}: there is no such file.")
        if not path.is_file():
            raise ThreadError(f"{target!r} is not a file: expected a SQLite database.")
    except (OSError, ValueError) as error:  # too long, or with a null character
        raise ThreadError(f"{target!r:.200}: there is no such file.") from error
    uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    return sqlite3.connect(uri, uri=True, timeout=_TIMEOUT, check_same_thread=False)


def _check_sqlite_tables(conn: sqlite3.Connection, target: str, *, write: bool) -> None:
    def columns_of(table: str) -> set[str]:
        return {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}

    check_tables(
        repr(target),
        _COLUMNS,
        columns_of,
        library="langgraph-checkpoint-sqlite",
        advice="Open it once with the version that your application uses, then try again.",
    )
    if conn.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is None:
        raise ThreadError(f"{target!r} holds no checkpoint: there is nothing to read.")
    if "task_path" not in columns_of("writes") and not write:
        # Older versions have no such column. A view, seen by this connection only, adds it.
        conn.execute("CREATE TEMP VIEW writes AS SELECT *, '' AS task_path FROM main.writes")


_LOCKED = "another process has locked the database: try again when it is done."
_ADVICE = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database.",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: recover it with `sqlite3 FILE .recover` first.",
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened: may this user read the file, and write its directory?"
    ),
}


@contextmanager
def _sqlite_errors(target: str) -> Iterator[None]:
    """Raise the errors of SQLite as a `ThreadError` that names the file and what to do."""
    try:
        yield
    except sqlite3.Error as error:
        primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise ThreadError(f"{target!r}: {_ADVICE.get(primary_code, f'{error}.')}") from error
