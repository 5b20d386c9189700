"""SQLite: a file is opened so that nothing in it is executed, and a scan writes nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_patch._text import quoted, short
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.tables import (
    TableStore,
    class_names,
    no_checkpoint,
    not_ordinary,
)

_KEYS = """SELECT CAST(thread_id AS BLOB), CAST(checkpoint_ns AS BLOB) FROM (
    SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE {}
)"""
"""As bytes: SQLite stores any bytes as text."""
_ARE_TEXTS = "typeof(thread_id) = 'text' AND typeof(checkpoint_ns) = 'text'"


class SqliteStore(TableStore):
    """The tables of a SQLite file; one statement is a transaction."""

    # What is no text comes behind all texts.
    page = _KEYS.format(f"{_ARE_TEXTS} AND {{}} ORDER BY thread_id, checkpoint_ns LIMIT {{page}}")
    odd = _KEYS.format(f"NOT ({_ARE_TEXTS})")
    named = _KEYS.format("thread_id IN ({})")
    after = "(thread_id, checkpoint_ns) > (CAST(? AS TEXT), CAST(? AS TEXT))"
    writes = "writes"
    parameter = "?"
    cursor = methodcaller("cursor")

    def is_undone(self, saver: Any, error: BaseException) -> bool:
        """Whether SQLite has said that a statement failed, and a later commit cannot write it."""
        code = getattr(error, "sqlite_errorcode", 0) if class_names(error, "sqlite3") else 0
        # An extended code has the primary one in its last byte.
        return code % 256 in _NOT_DONE and not saver.conn.in_transaction

    def is_failure(self, chain: Sequence[BaseException]) -> bool | None:
        """Whether the file cannot be read: locked, full, no database. Rows may be odd."""
        own = [each for each in chain if class_names(each, "sqlite3")]
        return any(map(_is_of_file, own)) if own else None


def is_path(target: str) -> bool:
    """Whether a target is one: what has the form of a URI and is no file may hold a password."""
    is_uri = re.search(r"://|^\w+:/|@.*[:/]|password\s*=", target, re.IGNORECASE)
    return not is_uri or os.path.exists(target)  # noqa: PTH110 - never raises


def _is_of_file(error: BaseException) -> bool:
    # Without a code it is an error of Python, for text that is not UTF-8 in one row.
    code = getattr(error, "sqlite_errorcode", None)
    is_operational = "OperationalError" in class_names(error, "sqlite3")
    return code == _NOT_A_DATABASE or (code is not None and is_operational)


_NOT_A_DATABASE = 26
_NOT_DONE = (5, 6, 8, 11, 13, _NOT_A_DATABASE)
"""SQLITE_BUSY, LOCKED, READONLY, CORRUPT, FULL. Behind an I/O error a commit may be in the file."""

# --- opening -----------------------------------------------------------------------------

_SECONDS = 30.0  # to wait for the lock of another process

_TRIGGERS = """SELECT name FROM sqlite_master
WHERE type = 'trigger' AND lower(tbl_name) IN ('checkpoints', 'writes')"""


@contextmanager
def open_saver(
    target: str, serde: SerializerProtocol, *, write: bool
) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open a file; an error names it."""
    import sqlite3  # noqa: PLC0415 - slow to import, and only for SQLite

    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - as above

    class ReadSaver(SqliteSaver):
        def setup(self) -> None:
            """Do not change the tables."""

    if not os.path.isfile(target):  # noqa: PTH113 - a name with a null character is no file
        raise ThreadError(f"{quoted(target)} is no file: expected a SQLite database.")
    path = Path(target).resolve()
    mode = _mode_of(path, write=write)
    try:
        uri = f"{path.as_uri()}?{mode}"
        conn = sqlite3.connect(uri, uri=True, timeout=_SECONDS, check_same_thread=False)
        with closing(conn):
            # The log of a process that was killed is not written into the file when it is closed.
            # Python can switch that off from 3.12 on. Without a `-shm` file it is a copy, and
            # SQLite leaves files behind unless it writes the log into it.
            has_log = Path(f"{path}-shm").exists()
            if sys.version_info >= (3, 12) and has_log and not write:
                conn.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE)
            _check_sqlite(conn, target, write=write)
            yield (SqliteSaver if write else ReadSaver)(conn, serde=serde)
    except sqlite3.Error as error:
        raise ThreadError(f"{target!r}: {error}. {_advice(error)}") from error


def _advice(said: object) -> str:
    """What to do where the file cannot be read or written."""
    found = (advice for text, advice in _ADVICE.items() if text in str(said))
    return next(found, "Is it the SQLite database that LangGraph writes to?")


_ADVICE = {
    "full": "Free space on its disk, then run the same command: what was done stays.",
    "locked": "Another process writes to it. Run the same command again: what was done stays.",
    "no such table": "LangGraph has stored nothing in it. Is it the file of your SqliteSaver?",
    "not a database": "Is it the file of your SqliteSaver? An encrypted one cannot be read.",
    "malformed": "A damaged file is recovered with `sqlite3 FILE .recover`.",
}
"""What to do, by what SQLite says."""


def _mode_of(path: Path, *, write: bool) -> str:
    """How a file is opened: one that may only be read has no log, or it would not be read."""
    if all(os.access(each, os.W_OK) for each in (path, path.parent)):
        # A file that is opened for reading alone leaves a log that its owner cannot delete.
        return "mode=rw"
    logs = [Path(f"{path}{end}") for end in ("-wal", "-journal")]
    if write or any(log.exists() and log.stat().st_size for log in logs):
        raise ThreadError(
            f"{str(path)!r}: this user may not write the file or its directory"
            + ("." if write else ", and a log (-wal) beside it has to be read too.")
            + " Copy it, with its log if there is one, and name the copy."
        )
    return "mode=ro&immutable=1"


def _check_sqlite(conn: Any, target: str, *, write: bool) -> None:
    conn.execute("PRAGMA trusted_schema = OFF")
    for table in ("checkpoints", "writes"):
        if not _is_ordinary(conn, table):
            raise not_ordinary(repr(target), table)
    if conn.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is None:
        raise no_checkpoint(repr(target))
    if write:
        # SQLite may read one thread of such a file, and damage another one with a write.
        for (found,) in conn.execute("PRAGMA quick_check(1)"):
            if found != "ok":
                raise ThreadError(
                    f"{target!r} is malformed: {short(found)}. {_advice('malformed')}"
                )
        trigger = conn.execute(_TRIGGERS).fetchone()
        if trigger:
            raise ThreadError(
                f"{target!r} has a trigger {short(trigger[0], 100)}, which a write would run: "
                f"repair its threads in Python, with the checkpointer of your application."
            )
        return
    columns = {row[1] for row in conn.execute("PRAGMA main.table_info(writes)")}
    if "task_path" not in columns:
        # langgraph-checkpoint-sqlite has it since 3.1.2. A view of this connection adds it.
        conn.execute("CREATE TEMP VIEW writes AS SELECT *, '' AS task_path FROM main.writes")
    conn.execute("PRAGMA query_only = ON")


def _is_ordinary(conn: Any, table: str) -> bool:
    """Whether reading a table runs nothing but SQLite's own reading; also if there is none."""
    kinds = conn.execute("SELECT sql FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,))
    if not all(str(sql).startswith("CREATE TABLE") for (sql,) in kinds):
        return False  # a view, or a virtual table, which may read one
    columns = conn.execute(f"PRAGMA main.table_xinfo({table})")
    return not any(hidden for *_, hidden in columns)  # as generated columns are
