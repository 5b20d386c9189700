"""Open a database of threads safely: nothing in it is executed, and a scan writes nothing.

By default LangGraph's serializer imports and calls whatever a msgpack row names, and a pickle row
is code. So the serializer gets an allowlist, and pickles are not loaded. An instance of any other
class is read as a dict. If such a value were written back, the class would be lost, so `repair`
refuses that.

An error names a file, and never repeats a URI: a password with a `/` or an `@` that is not
%-encoded is read as a host or a database, so any part of a URI may be one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph_sdk import get_sync_client

from langgraph_patch._text import quoted
from langgraph_patch.errors import OptionError, StoreError, ThreadError
from langgraph_patch.threads.server import LangGraphServer


def open_database(
    target: str,
    *,
    write: bool = False,
    trust: Sequence[tuple[str, str]] = (),
    serde: SerializerProtocol | None = None,
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    """Open a database of threads without executing anything in it.

    Args:
        target: The path of a SQLite file, the `postgresql://` URI of a PostgreSQL database, or
            the `http://` or `https://` URL of a LangGraph Server.
        write: Whether it may be written to. Default: it is opened read-only.
        trust: Classes that may be loaded beside LangChain's and LangGraph's, as (module,
            class). Default: none.
        serde: The serializer of the application, such as one that decrypts. It decides which
            classes are loaded. Default: LangGraph's, which loads only trusted classes.

    Raises:
        ThreadError: If there is no such database, or it holds no threads, or it would run code
            when it is read.
        StoreError: If it fails while it is open.
        OptionError: If it is a PostgreSQL database, and psycopg is not installed.

    Examples:
        >>> from langgraph_patch.threads.opening import open_database
        >>> with open_database("/no/such.db"):
        ...     pass
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: '/no/such.db' is no file: expected a SQLite database.
    """
    used = serde or JsonPlusSerializer(allowed_msgpack_modules=list(trust) or None)
    if target.startswith(("postgresql://", "postgres://")):
        return _open_postgres(target, used, write=write)
    if target.startswith(("http://", "https://")):
        return _open_server(target)
    is_uri = re.search(r"://|^\w+:/|@.*[:/]|password\s*=", target, re.IGNORECASE)
    if is_uri and not os.path.exists(target):  # noqa: PTH110 - never raises
        raise ThreadError(
            "This is not a supported database: expected a URI that begins with postgresql:// or "
            "postgres:// (PostgreSQL), or with http:// or https:// (LangGraph Server), or the "
            "path of a SQLite file."
        )
    return _open_sqlite(target, used, write=write)


def _not_ordinary(database: str, table: str) -> ThreadError:
    return ThreadError(
        f"{database}: {table!r} is not an ordinary table, so reading it may run any code (a view, "
        f"or a column that is computed or of a type of its own): name the database that LangGraph "
        f"writes to."
    )


def _no_checkpoint(database: str) -> ThreadError:
    return ThreadError(f"{database} holds no checkpoint: there is nothing to read.")


# --- SQLite ------------------------------------------------------------------------------


_SECONDS = 30.0  # to wait for the lock of another process

_TRIGGERS = """SELECT name FROM sqlite_master
WHERE type = 'trigger' AND lower(tbl_name) IN ('checkpoints', 'writes')"""


@contextmanager
def _open_sqlite(
    target: str, serde: SerializerProtocol, *, write: bool
) -> Iterator[BaseCheckpointSaver[Any]]:
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
        raise StoreError(
            f"{target!r}: {error}. Is it the SQLite database that LangGraph writes to, and does no "
            f"other process lock it? A damaged file is recovered with `sqlite3 FILE .recover`."
        ) from error


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
            raise _not_ordinary(repr(target), table)
    if conn.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is None:
        raise _no_checkpoint(repr(target))
    if write:
        trigger = conn.execute(_TRIGGERS).fetchone()
        if trigger:
            raise ThreadError(
                f"{target!r} has a trigger {trigger[0]!r:.100}, which a write would run: repair "
                f"its threads in Python, with the checkpointer of your application."
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


# --- PostgreSQL --------------------------------------------------------------------------


_POSTGRES = "The PostgreSQL database"
_POSTGRES_TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

_LIMITS = "-c row_security=off -c lock_timeout=15s -c statement_timeout=60s"
"""A policy that hides rows is an error; nothing is waited for without an end."""

# These use only what is in pg_catalog, whatever the search path of the connection has.
_SCHEMAS = (
    "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[] AS schemas, "
    "pg_catalog.current_setting('row_security') AS row_security, "
    "ARRAY["
    + ", ".join(f"pg_catalog.to_regclass('{table}')::oid" for table in _POSTGRES_TABLES)
    + "] AS tables"
)
_ODD = """SELECT c.relname AS name FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.oid = ANY(%s) AND (c.relkind NOT IN ('r', 'p') OR a.attgenerated <> ''
    OR t.typnamespace <> 'pg_catalog'::regnamespace) LIMIT 1"""
_FOREIGN = """SELECT n.nspname AS schema, f.name::text, r.rolname AS owner FROM (
    SELECT proname AS name, pronamespace AS schema, proowner AS owner FROM pg_proc
    WHERE proname = ANY(%(functions)s)
    UNION ALL SELECT oprname, oprnamespace, oprowner FROM pg_operator
    WHERE oprname = ANY(%(operators)s)
) f JOIN pg_namespace n ON n.oid = f.schema JOIN pg_roles r ON r.oid = f.owner
WHERE n.nspname = ANY(%(schemas)s) AND NOT r.rolsuper AND r.rolname <> current_user LIMIT 1"""
_CALLED = {
    "functions": ["array_agg", "convert_to", "jsonb_each_text"],
    "operators": ["=", "<>", "<", "<=", ">", "->", "->>", "@>"],
}
"""What the queries of a `PostgresSaver` and of `listing` call by names that may be redefined."""


@contextmanager
def _open_postgres(
    uri: str, serde: SerializerProtocol, *, write: bool
) -> Iterator[BaseCheckpointSaver[Any]]:
    try:
        import psycopg  # noqa: PLC0415 - may not be installed
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 - as above
    except ImportError as error:
        raise OptionError(
            "a PostgreSQL database needs psycopg: pip install 'langgraph-patch[postgres]'"
        ) from error

    # What is not in a transaction of ours, such as a deletion, is read-only by default.
    settings = _LIMITS if write else f"{_LIMITS} -c default_transaction_read_only=on"
    with closing(_connection(uri, settings, psycopg)) as conn:
        try:
            conn.read_only = not write
            with conn.transaction():
                _check_postgres(conn)
            with conn.transaction():
                if conn.execute("SELECT FROM checkpoints LIMIT 1").fetchone() is None:
                    raise _no_checkpoint(_POSTGRES)
            yield _in_transactions(PostgresSaver, conn)(conn, serde=serde)
        except psycopg.Error as error:
            first, *_ = str(error).strip().splitlines() or [type(error).__name__]
            raise StoreError(
                f"{_POSTGRES}: {first}. Is it the database that LangGraph writes to, and does no "
                f"other process lock its tables?"
            ) from error


def _in_transactions(saver: type[BaseCheckpointSaver[Any]], conn: Any) -> Any:
    """A checkpointer that reads in transactions, which are read-only if the connection is."""

    class TransactionSaver(saver):  # type: ignore[misc, valid-type]  # may not be installed
        def get_tuple(self, config: Any) -> Any:
            with conn.transaction():
                return super().get_tuple(config)

        def list(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with conn.transaction():
                yield from super().list(*args, **kwargs)

        def get_delta_channel_history(self, **kwargs: Any) -> Any:
            with conn.transaction():
                return super().get_delta_channel_history(**kwargs)

    return TransactionSaver


def _connection(uri: str, settings: str, psycopg: Any) -> Any:
    problem = "its URI cannot be read"
    try:
        values = psycopg.conninfo.conninfo_to_dict(uri)
        problem = "the connection failed"
        options: dict[str, Any] = {
            "connect_timeout": 10,
            "fallback_application_name": "langgraph-patch",
            **values,
            # Not a SET: behind a pooler it would outlive us, on a connection of others.
            "options": f"{values.get('options', '')} {settings}".strip(),
        }
        return psycopg.connect(**options, autocommit=True, row_factory=psycopg.rows.dict_row)
    except (psycopg.Error, ValueError):
        pass
    # Outside of `except`: the context of the error, and its text, may hold a password.
    raise StoreError(
        f"{_POSTGRES}: {problem}. Is the server running, and are host, port, user, password and "
        f"database right? Special characters in them must be %-encoded. Name the server itself, "
        f"not a pooler before it; psql with the same URI says more."
    )


def _check_postgres(conn: Any) -> None:
    """Check that what is read are tables, and that no query calls what another role defined."""
    names = conn.execute(_SCHEMAS).fetchone()
    conn.execute("SET LOCAL search_path = pg_catalog")
    if odd := conn.execute(_ODD, (names["tables"],)).fetchone():
        raise _not_ordinary(_POSTGRES, odd["name"])
    foreign = conn.execute(_FOREIGN, {**_CALLED, "schemas": names["schemas"]}).fetchone()
    if foreign:
        raise ThreadError(
            f"{_POSTGRES}: role {foreign['owner']!r} has defined {foreign['name']!r} in schema "
            f"{foreign['schema']!r}, which reading the tables would call: drop it, or leave that "
            f"schema out of the search path."
        )
    if names["row_security"] != "off":
        raise ThreadError(f"{_POSTGRES}: a pooler drops settings: name the server itself.")


# --- LangGraph Server ---------------------------------------------------------------------


_HEADERS = "LANGGRAPH_HEADERS"
"""The environment variable with further headers."""

_SERVER_SECONDS = 60.0
"""How long the server may say nothing."""


@contextmanager
def _open_server(url: str) -> Iterator[LangGraphServer]:
    """Connect to a LangGraph Server.

    The SDK takes the API key from `LANGGRAPH_API_KEY`, `LANGSMITH_API_KEY` or
    `LANGCHAIN_API_KEY`. Further headers come from `LANGGRAPH_HEADERS`, as lines of `Name: value`.

    Args:
        url: Its URL, without user and password.

    Raises:
        OptionError: If the URL holds a user or has no valid port, or a header is not
            `Name: value`.
    """
    if not _is_plain_url(url):
        raise OptionError(
            f"The URL holds a user or a password, or its port is no number: put the header that "
            f"your server expects into the environment variable {_HEADERS}."
        )
    lines = [line for line in os.environ.get(_HEADERS, "").splitlines() if line.strip()]
    headers = [tuple(map(str.strip, line.partition(":"))) for line in lines]
    if not all(map(all, headers)):
        raise OptionError(f"A line of {_HEADERS} is not a header: expected `Name: value`.")
    named = {name: value for name, _, value in headers}
    with get_sync_client(url=url, headers=named, timeout=_SERVER_SECONDS) as client:
        yield LangGraphServer(client)


def _is_plain_url(url: str) -> bool:
    """Whether a URL has no user, and a port that can be read: a part of a password cannot."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.username is None and port != 0
