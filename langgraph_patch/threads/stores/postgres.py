"""PostgreSQL: list keys, delete checkpoints, and open a database read-only or for writing.

`select` imports this module only where a PostgreSQL database is used: psycopg is optional.

No password leaves this module. A password with a `/` or an `@` that is not %-encoded is read as
a host, a port or a database, so the message of a failed connection may quote any piece of it.
The message is shown only if the URI was certainly read as it was meant, and the error of a
failed connection is never kept as the cause.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from typing import Any

import psycopg
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row, tuple_row

from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.masking import masked
from langgraph_patch.threads.stores.sql import (
    LockedError,
    SqlStore,
    Statements,
    check_tables,
    no_table_error,
)

_TIMEOUT = 10  # seconds to wait for a connection, unless the URI sets `connect_timeout`

_STATEMENTS = Statements(
    # Each step reads one entry of the index: the next thread in the order of the database. Without
    # it each page would read and sort all rows. All keys of a thread are in the same page, so the
    # namespace where a page ended does not matter.
    keys="""WITH RECURSIVE threads (thread_id, number) AS (
        (SELECT thread_id, 1 FROM checkpoints WHERE thread_id > %(thread)s
        ORDER BY thread_id LIMIT 1)
        UNION ALL
        SELECT (SELECT c.thread_id FROM checkpoints c WHERE t.thread_id < c.thread_id
            ORDER BY c.thread_id LIMIT 1), t.number + 1
        FROM threads t WHERE t.thread_id IS NOT NULL AND t.number < %(limit)s
    )
    SELECT t.thread_id, n.checkpoint_ns FROM threads t CROSS JOIN LATERAL (
        SELECT DISTINCT checkpoint_ns COLLATE "C" AS checkpoint_ns FROM checkpoints c
        WHERE c.thread_id = t.thread_id
    ) n ORDER BY t.number, n.checkpoint_ns""",
    keys_of="""SELECT DISTINCT thread_id, checkpoint_ns COLLATE "C" FROM checkpoints
    WHERE thread_id = %s ORDER BY 2""",
    # A sorted count(DISTINCT) takes three times as long.
    count="SELECT count(*) FROM (SELECT DISTINCT thread_id FROM checkpoints) AS threads",
    newest="""SELECT checkpoint_id, (SELECT count(*) FROM checkpoint_writes w WHERE
    w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
    AND w.checkpoint_id = c.checkpoint_id) FROM checkpoints c
    WHERE thread_id = %s AND checkpoint_ns = %s ORDER BY checkpoint_id DESC LIMIT 1""",
    lock=(
        "SET LOCAL lock_timeout = '100ms'",  # others queue behind it, so it is tried again instead
        # Row locks are not enough: LangGraph inserts rows.
        "LOCK TABLE checkpoints, checkpoint_writes IN SHARE ROW EXCLUSIVE MODE",
    ),
    # Blobs stay: a blob belongs to a version of a channel, and other checkpoints, such as those
    # of a fork, may use the same version. A blob that no checkpoint uses is never read.
    delete=tuple(
        f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"  # noqa: S608 - two constants
        for table in ("checkpoints", "checkpoint_writes")
    ),
    page_size=2_000,
)

_COLUMNS = {
    "checkpoints": (
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "checkpoint",
        "metadata",
    ),
    "checkpoint_blobs": ("thread_id", "checkpoint_ns", "channel", "version", "type", "blob"),
    "checkpoint_writes": (
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "task_id",
        "idx",
        "channel",
        "type",
        "blob",
        "task_path",
    ),
}
_KIND_OF = "SELECT relkind::text AS kind FROM pg_class WHERE oid = to_regclass(%s)"
_TABLES = (None, {"kind": "r"}, {"kind": "p"})  # none, a table, a partitioned table
_COLUMNS_OF = """SELECT attname::text FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""


# --- the store ---------------------------------------------------------------------------


def postgres_store(saver: Any, *, is_async: bool) -> SqlStore:
    """The store of a `PostgresSaver` or, with `is_async`, of an `AsyncPostgresSaver`.

    The checkpointer may use a connection, a connection in pipeline mode, or a pool.
    """
    return SqlStore(saver, is_async, _STATEMENTS, _async_transaction if is_async else _transaction)


@contextmanager
def _transaction(saver: Any, *, writes: bool) -> Iterator[Any]:
    with saver.lock, _connection_of(saver) as conn:
        if saver.pipe:
            saver.pipe.sync()  # what was sent before is not part of this transaction
        with (
            _lock_errors(),
            conn.transaction() if writes else nullcontext(),
            conn.cursor(row_factory=tuple_row) as cursor,
        ):
            yield cursor


@asynccontextmanager
async def _async_transaction(saver: Any, *, writes: bool) -> AsyncIterator[Any]:
    async with saver.lock, _connection_of(saver) as conn:
        if saver.pipe:
            await saver.pipe.sync()  # what was sent before is not part of this transaction
        with _lock_errors():
            async with (
                conn.transaction() if writes else nullcontext(),
                conn.cursor(row_factory=tuple_row) as cursor,
            ):
                yield cursor


def _connection_of(saver: Any) -> Any:
    """The connection of a checkpointer, or one of its pool, as a context manager."""
    conn = saver.conn
    return conn.connection() if hasattr(conn, "getconn") else nullcontext(conn)


@contextmanager
def _lock_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise LockedError(
            "Another process has locked the tables of checkpoints, so nothing was deleted: try "
            "again when it is done."
        ) from error


# --- opening -----------------------------------------------------------------------------


@contextmanager
def open_postgres(uri: str, *, write: bool, serde: Any) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open a PostgreSQL database of threads.

    Args:
        uri: The URI of the database. libpq's environment supplies what is missing in it.
        write: Whether the database may be written to. If not, the server refuses all writes.
        serde: The serializer of the checkpointer.

    Raises:
        ThreadError: If there is no such database, or it holds no threads, or the server fails.
    """
    conn, name = _open_connection(uri, write=write)
    with closing(conn):
        try:
            _check_postgres_tables(conn, name, write=write)
            yield PostgresSaver(conn, serde=serde)
        except psycopg.Error as error:
            raise ThreadError(f"{name}: {_message_of(error)}.") from error


def _open_connection(uri: str, *, write: bool) -> tuple[Any, str]:
    """A connection, and what to call its database."""
    name, problem = "the PostgreSQL database", _UNREADABLE
    try:
        values = conninfo_to_dict(uri)
        problem = _UNCERTAIN
        if _is_certain(values):
            name, problem = _name_of(values), ""
        options: dict[str, Any] = {
            "connect_timeout": _TIMEOUT,
            "fallback_application_name": "langgraph-patch",
            **values,
        }
        if not write:
            # Not a SET: behind a pooler it would outlive us, on a connection of others.
            own = values.get("options", "")
            options["options"] = f"{own} -c default_transaction_read_only=on".strip()
        # A pooler may give each statement another server, so none is prepared.
        conn: Any = psycopg.connect(
            **options, autocommit=True, prepare_threshold=None, row_factory=dict_row
        )
    except (psycopg.Error, ValueError) as error:
        problem = problem or f"{_without_secrets(_message_of(error), values)}."
        if not write and "unsupported startup parameter" in str(error):
            problem += _NO_POOLER
    else:
        return conn, name
    raise ThreadError(f"{name}: {problem}")  # outside of `except`: the context may hold a password


_UNREADABLE = (  # written so that `masked` leaves it as it is
    "its URI cannot be read: expected USER:PASSWORD@HOST:PORT/DATABASE behind postgresql:// with "
    "special characters %-encoded."
)
_NO_POOLER = (
    " A pooler, such as PgBouncer, refuses the option that makes the connection read-only: name "
    "the server itself instead of the pooler."
)
_UNCERTAIN = "the connection failed. Are special characters in user and password %-encoded?"


def _is_certain(values: Mapping[str, Any]) -> bool:
    """Whether a URI was read as it was meant, so that no part of a password is elsewhere."""
    return not any("@" in value for value in _public_values(values)) and bool(
        re.fullmatch(r"[\d,]*", str(values.get("port", "")))
    )


def _public_values(values: Mapping[str, Any]) -> list[str]:
    return [str(value) for key, value in values.items() if "password" not in key]


def _name_of(values: Mapping[str, Any]) -> str:
    database, host = values.get("dbname"), values.get("host")
    return (
        "PostgreSQL database"
        + (f" {database!r}" if database else "")
        + (f" on {host!r}" if host else "")
    )


def _message_of(error: Exception) -> str:
    """The first line of the message of the driver or the server: the others are details."""
    first, *_ = str(error).strip().splitlines() or [type(error).__name__]
    return masked(" ".join(first.split()))


def _without_secrets(message: str, values: Mapping[str, Any]) -> str:
    public = ["", *_public_values(values)]  # a password may be the name of the user
    for secret in map(str, values.values()):
        if secret not in public:
            message = message.replace(secret, "***")
    return message


def _check_postgres_tables(conn: Any, name: str, *, write: bool) -> None:
    def columns_of(table: str) -> set[str]:
        if conn.execute(_KIND_OF, (table,)).fetchone() not in _TABLES:
            raise no_table_error(name, table)
        return {row["attname"] for row in conn.execute(_COLUMNS_OF, (table,))}

    check_tables(
        name,
        _COLUMNS,
        columns_of,
        library="langgraph-checkpoint-postgres",
        advice="Call `setup()` of the version that your application uses, then try again.",
    )
    if conn.execute("SELECT FROM checkpoints LIMIT 1").fetchone() is None:
        raise ThreadError(f"{name} holds no checkpoint: there is nothing to read.")
    if not write and conn.execute("SHOW transaction_read_only").fetchone() != _READ_ONLY:
        raise ThreadError(
            f"{name} cannot be opened read-only: name the server itself, not a pooler before it."
        )


_READ_ONLY = {"transaction_read_only": "on"}
