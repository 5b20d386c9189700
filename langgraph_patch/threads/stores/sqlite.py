"""SQLite: list keys, delete checkpoints, and open a file read-only or for writing.

`select` imports this module only where a SQLite database is used, so that nobody else pays for
the import of sqlite3.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.sql import (
    SqlStore,
    Statements,
    check_tables,
    no_table_error,
)

_TIMEOUT = 2.0  # seconds to wait for the lock of another process

_MODE_AT, _WAL = 18, b"\x02"  # where the header of a file names its mode of journal

_OF_CHECKPOINT = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_STATEMENTS = Statements(
    keys="""SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints
    WHERE (thread_id, checkpoint_ns) > (:thread, :namespace)
    ORDER BY thread_id, checkpoint_ns LIMIT :limit""",
    keys_of="""SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints
    WHERE thread_id = ? ORDER BY checkpoint_ns""",
    count="SELECT count(DISTINCT thread_id) FROM checkpoints",
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
            with _any_text(saver.conn):
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
            with _any_text(saver.conn):
                yield cursor
            return
        await cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
        except BaseException:  # any, and a cancelled task: nothing half-done is written
            await saver.conn.rollback()
            raise
        await saver.conn.commit()


@contextmanager
def _any_text(conn: Any) -> Iterator[None]:
    """Read each byte of an id that is not UTF-8 as half a character, so that no id stops a scan."""
    former = conn.text_factory
    conn.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        yield
    finally:
        conn.text_factory = former


# --- opening -----------------------------------------------------------------------------


@contextmanager
def open_sqlite(
    target: str, *, write: bool, serde: SerializerProtocol
) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open a SQLite file of threads.

    Args:
        target: The path of the file.
        write: Whether the file may be written to.
        serde: The serializer of the checkpointer.

    Raises:
        ThreadError: If there is no such file, or it holds no threads, or SQLite fails.
    """
    path = _existing_file(target)
    with _sqlite_errors(target):
        before = _state_of(path) if not write and _is_closed(path) else None
        mode = "rw" if write else "ro" if before is None else "ro&immutable=1"
        with closing(_connect(path, mode)) as conn:
            _check_sqlite_tables(conn, target, write=write)
            yield (SqliteSaver if write else _ReadOnlySaver)(conn, serde=serde)
        if before is not None and before != _state_of(path):
            raise ThreadError(
                f"{target!r}: another process wrote to it meanwhile, so what was read may be "
                f"wrong: try again."
            )


class _ReadOnlySaver(SqliteSaver):
    """Never changes a table."""

    def setup(self) -> None:
        self.is_setup = True


def _existing_file(target: str) -> Path:
    path = Path(target)
    try:
        if not path.exists():
            raise ThreadError(f"{target!r}: there is no such file.")
        if not path.is_file():
            raise ThreadError(f"{target!r} is not a file: expected a SQLite database.")
    except (OSError, ValueError) as error:  # too long, or with a null character
        raise ThreadError(f"{target!r:.200}: there is no such file.") from error
    return path


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_TIMEOUT, check_same_thread=False)


def _is_closed(path: Path) -> bool:
    """Whether a file in WAL mode has no log, because no process has it open.

    SQLite would make one to read it. Another user could not delete it again, and then the
    application could not write.
    """
    with path.open("rb") as file:
        header = file.read(_MODE_AT + 1)
    log = Path(f"{path.resolve()}-wal")
    return header[_MODE_AT:] == _WAL and not (log.exists() and log.stat().st_size)


def _state_of(path: Path) -> tuple[int, int]:
    """The size of a file and the time of its last change."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _check_sqlite_tables(conn: sqlite3.Connection, target: str, *, write: bool) -> None:
    def columns_of(table: str) -> set[str]:
        kinds = conn.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,))
        if kinds.fetchone() == ("view",):
            raise no_table_error(repr(target), table)
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
    except PermissionError as error:
        raise ThreadError(f"{target!r}: {_ADVICE[sqlite3.SQLITE_CANTOPEN]}") from error
    except sqlite3.Error as error:
        primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise ThreadError(f"{target!r}: {_ADVICE.get(primary_code, f'{error}.')}") from error
