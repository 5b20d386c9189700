"""Databases of threads, opened so that nothing in them runs.

Opening a foreign database must execute nothing: LangGraph's serializer imports and calls
whatever a msgpack row names unless it is given an empty allowlist, and a pickle row is code.
So neither is done here. A class of the application that is not trusted by name comes back
as a dict; who writes such a value back would corrupt it, so it is noted (`blocked`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.postgres import is_postgres, masked, open_postgres
from langgraph_patch.threads.stores.tables import check_tables

_TIMEOUT = 2.0  # seconds to wait for another's lock
_NEEDED = {
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


@dataclass(slots=True)
class Database:
    """An open database of threads.

    Attributes:
        saver: Its checkpointer.
        blocked: The classes that rows named and that were not loaded, as `module:Class`.
    """

    saver: BaseCheckpointSaver[Any]
    blocked: set[str] = field(default_factory=set)


@contextmanager
def open_database(
    target: str, *, write: bool = False, trust: Sequence[tuple[str, str]] = ()
) -> Iterator[Database]:
    """Open a database of threads that somebody else wrote.

    Args:
        target: The path of a SQLite file, or the `postgresql://` URI of a PostgreSQL database.
        write: Whether it may be written to. Default: it is opened read-only.
        trust: Classes that may be loaded beside LangChain's and LangGraph's, as (module,
            class). Default: none.

    Raises:
        ThreadError: If there is no such database, or it holds no threads.
        OptionError: If it is a PostgreSQL database, and psycopg is not installed.

    Example:
        >>> from langgraph_patch.threads.stores.database import open_database
        >>> with open_database("/no/such.db"):
        ...     pass
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: '/no/such.db': there is no such file.
    """
    serde = JsonPlusSerializer(allowed_msgpack_modules=list(trust) or None)
    opened = open_postgres if is_postgres(target) else _open_sqlite
    with opened(target, write=write, serde=serde) as saver:
        database = Database(saver)

        def note(event: SerdeEvent) -> None:
            if event["kind"] == "msgpack_blocked":
                database.blocked.add(f"{event['module']}:{event['name']}")

        unregister = register_serde_event_listener(note)
        try:
            yield database
        finally:
            unregister()


@contextmanager
def _open_sqlite(
    target: str, *, write: bool, serde: JsonPlusSerializer
) -> Iterator[BaseCheckpointSaver[Any]]:
    if "://" in target or masked(target) != target:
        raise ThreadError(
            f"{masked(target)!r:.200} is no database that is known: expected a URI that begins "
            f"with postgresql:// or postgres:// - or the path of a SQLite file."
        )
    with closing(_connected(target, write=write)) as conn:
        try:
            yield (SqliteSaver if write else _ReadOnlySaver)(conn, serde=serde)
        except sqlite3.Error as error:
            raise ThreadError(f"{target!r}: {_advice(error)}") from error


class _ReadOnlySaver(SqliteSaver):
    """Never changes a table."""

    def setup(self) -> None:
        self.is_setup = True


def _connected(target: str, *, write: bool) -> sqlite3.Connection:
    path = Path(target)
    try:
        if not path.exists():
            raise ThreadError(f"{target!r}: there is no such file.")
        if not path.is_file():
            raise ThreadError(f"{target!r} is no file: expected a SQLite database.")
    except (OSError, ValueError) as error:  # too long, or with a null character
        raise ThreadError(f"{target!r:.200}: there is no such file.") from error
    uri = f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}"
    try:
        conn = sqlite3.connect(uri, uri=True, timeout=_TIMEOUT, check_same_thread=False)
        try:
            _check_schema(conn, target, write=write)
        except BaseException:
            conn.close()
            raise
    except sqlite3.Error as error:
        raise ThreadError(f"{target!r}: {_advice(error)}") from error
    return conn


def _check_schema(conn: sqlite3.Connection, target: str, *, write: bool) -> None:
    def columns_of(table: str) -> set[str]:
        return {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}

    check_tables(
        repr(target),
        _NEEDED,
        columns_of,
        library="langgraph-checkpoint-sqlite",
        advice="Open it once with the version that your application uses, then try again.",
    )
    if conn.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is None:
        raise ThreadError(f"{target!r} holds no checkpoint: nothing was looked at.")
    if "task_path" not in columns_of("writes") and not write:
        # Written before that column existed. A view of our own connection adds it.
        conn.execute("CREATE TEMP VIEW writes AS SELECT *, '' AS task_path FROM main.writes")


def _advice(error: sqlite3.Error) -> str:
    said = str(error)
    if "locked" in said or "busy" in said:
        return "another process has locked the database: try again when it is done."
    if "not a database" in said:
        return "it is not a SQLite database."
    if "malformed" in said:
        return "the file is damaged: recover it with `sqlite3 FILE .recover` first."
    if "unable to open" in said:
        return "it cannot be opened: may this user read the file, and write its directory?"
    return f"{said}."
