"""PostgreSQL: read in transactions, and nothing that another role has defined is called.

An error never repeats the URI: a password with a `/` or an `@` that is not %-encoded is read as a
host or a database, so any part of a URI may be one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import NO_NAME, brief, cut, database_name, may_hold_password
from langgraph_patch.errors import OptionError, ThreadError, chain_of
from langgraph_patch.threads.stores.other import Loaders
from langgraph_patch.threads.stores.tables import (
    TableStore,
    class_names,
    is_unchanged,
    no_checkpoint,
    not_ordinary,
)


class PostgresStore(TableStore):
    """The tables of a PostgreSQL database."""

    batch = 64
    # PostgreSQL cannot skip the checkpoints of a history; each step looks for the next one.
    page = """WITH RECURSIVE page AS (
        (SELECT thread_id, checkpoint_ns, 1 AS place FROM checkpoints WHERE {}
        ORDER BY thread_id, checkpoint_ns LIMIT 1)
        UNION ALL SELECT following.*, place + 1 FROM page CROSS JOIN LATERAL (
            SELECT c.thread_id, c.checkpoint_ns FROM checkpoints AS c
            WHERE (c.thread_id, c.checkpoint_ns) > (page.thread_id, page.checkpoint_ns)
            ORDER BY c.thread_id, c.checkpoint_ns LIMIT 1
        ) AS following WHERE place < {page}
    ) SELECT thread_id, checkpoint_ns FROM page ORDER BY place"""
    named = "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints WHERE thread_id IN ({})"
    after = "(thread_id, checkpoint_ns) > (%s, %s)"
    writes = "checkpoint_writes"
    parameter = "%s"
    lock = (
        ("SET LOCAL lock_timeout = '1s'",),  # others wait behind whoever waits for a lock
        # Row locks are not enough: LangGraph inserts rows.
        ("LOCK TABLE checkpoints, checkpoint_writes IN SHARE ROW EXCLUSIVE MODE",),
    )
    cursor = staticmethod(storage.postgres_cursor)

    def read_newest(self, saver: Any, addresses: Sequence[Address]) -> Loaders:
        """Read the newest checkpoints of some histories at once.

        One that is not there, or of an old format, is left out: it is then read alone. So are all
        of a subclass, which may read them otherwise, and all of a statement that takes too long or
        fails because of one of them.
        """
        if not is_unchanged(saver):
            return {}
        try:
            return storage.newest_of_postgres(saver, addresses)
        except Exception as error:  # of a driver that may not be installed
            if self.is_failure([*chain_of(error)]):
                raise
            return {}

    def delete_checkpoint(self, saver: Any, address: Address) -> bool:
        """Delete a checkpoint; where another writer's lock is in the way, try again."""
        for seconds in _PAUSES:
            try:
                return super().delete_checkpoint(saver, address)
            except Exception as error:  # of a driver that may not be installed
                if "LockNotAvailable" not in class_names(error, "psycopg"):
                    raise
            time.sleep(seconds)
        return super().delete_checkpoint(saver, address)

    def undo_problem(self, saver: Any) -> str | None:
        """Why no repair can be undone; None if nothing speaks against it, or it is not known."""
        if not is_unchanged(saver) or self._rows(saver, (_MAY_DELETE,)):
            return None
        return f"{_DATABASE}: the user may not DELETE in the table 'checkpoints', as an undo does"

    def is_undone(self, saver: Any, error: BaseException) -> bool:  # noqa: ARG002 - for others
        """Whether the server has said that a statement failed, so that its transaction did nothing.

        A connection that is lost, or a server that goes down, may have committed it before.
        """
        code = getattr(error, "sqlstate", None) if class_names(error, "psycopg") else None
        return isinstance(code, str) and not code.startswith(_MAYBE_DONE)

    def is_failure(self, chain: Sequence[BaseException]) -> bool | None:
        """Whether the database failed, and not a query about one thread."""
        own = [names for each in chain if (names := class_names(each, "psycopg"))]
        is_own = any(names & _FAILURES and not names & _OF_ONE_THREAD for names in own)
        return is_own if own else None


_PAUSES = (0.1, 0.5, 1.0, 2.0)
"""The seconds before a deletion is tried again."""

_MAY_DELETE = """SELECT 1 WHERE pg_catalog.has_table_privilege(
    pg_catalog.to_regclass('checkpoints'), 'DELETE')"""

_MAYBE_DONE = ("08", "57P", "40003")
"""How the SQLSTATEs begin of a connection, of a shutdown, and of "completion unknown"."""

_FAILURES = {
    *("OperationalError", "InterfaceError", "ProgrammingError"),
    *("ReadOnlySqlTransaction", "InFailedSqlTransaction", "IdleInTransactionSessionTimeout"),
}
_OF_ONE_THREAD = {"QueryCanceled", "ProgramLimitExceeded"}
"""It took too long, or is too large: the next thread may be smaller."""

# --- opening -----------------------------------------------------------------------------

_DATABASE = "The PostgreSQL database"
_NAMES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

_LIMITS = "-c row_security=off -c lock_timeout=15s"
"""A policy that hides rows is an error; nothing is waited for without an end."""

_STATEMENT = timedelta(minutes=1)
"""How long one statement may take."""

# These use only what is in pg_catalog, whatever the search path of the connection has.
_SCHEMAS = (
    "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[] AS schemas, "
    "pg_catalog.current_setting('row_security') AS row_security, "
    "ARRAY["
    + ", ".join(f"pg_catalog.to_regclass('{table}')::oid" for table in _NAMES)
    + "] AS tables"
)
_ODD = """SELECT c.relname AS name FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.oid = ANY(%s) AND (c.relkind NOT IN ('r', 'p') OR a.attgenerated <> ''
    OR t.typnamespace <> 'pg_catalog'::regnamespace) LIMIT 1"""
_WITHOUT = """SELECT relname AS name FROM pg_catalog.pg_class WHERE oid = ANY(%s)
AND NOT pg_catalog.has_table_privilege(oid, %s) ORDER BY 1 LIMIT 1"""
_FOREIGN = """SELECT n.nspname AS schema, f.name::text, r.rolname AS owner FROM (
    SELECT proname AS name, pronamespace AS schema, proowner AS owner FROM pg_proc
    WHERE proname = ANY(%(functions)s)
    UNION ALL SELECT oprname, oprnamespace, oprowner FROM pg_operator
    WHERE oprname = ANY(%(operators)s)
) f JOIN pg_namespace n ON n.oid = f.schema JOIN pg_roles r ON r.oid = f.owner
WHERE n.nspname = ANY(%(schemas)s) AND NOT r.rolsuper AND r.rolname <> current_user LIMIT 1"""
_CALLED = {
    "functions": ["array_agg", "convert_to", "jsonb_each_text", "unnest"],
    "operators": ["=", "<>", "<", "<=", ">", "->", "->>", "@>"],
}
"""What the queries of a `PostgresSaver` and of `tables` call by names that may be redefined."""


@contextmanager
def open_saver(
    target: str,
    serde: SerializerProtocol,
    *,
    write: bool,
    statement_timeout: timedelta = _STATEMENT,
) -> Iterator[BaseCheckpointSaver[Any]]:
    """Connect to a database."""
    try:
        import psycopg  # noqa: PLC0415 - may not be installed
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 - as above
    except ImportError as error:
        raise OptionError(
            "a PostgreSQL database needs psycopg: pip install 'langgraph-patch[postgres]'"
        ) from error

    # What is not in a transaction of ours, such as a deletion, is read-only by default.
    milliseconds = statement_timeout // timedelta(milliseconds=1)
    settings = f"{_LIMITS} -c statement_timeout={milliseconds}"
    settings += "" if write else " -c default_transaction_read_only=on"
    with closing(_connection(target, settings, psycopg)) as conn:
        try:
            conn.read_only = not write
            with conn.transaction():
                _check_postgres(conn, write=write)
            with conn.transaction():
                if conn.execute("SELECT FROM checkpoints LIMIT 1").fetchone() is None:
                    raise no_checkpoint(_DATABASE)
            yield _in_transactions(PostgresSaver, conn)(conn, serde=serde)
        except psycopg.Error as error:
            first, *_ = str(error).strip().splitlines() or [type(error).__name__]
            said = brief(error) if may_hold_password(first) else first
            names = {"Broken"} if conn.broken else class_names(error, "psycopg")
            advice = "".join(text for name, text in _ADVICE.items() if name in names)
            raise ThreadError(f"{_DATABASE}: {said}.{advice}") from error


_IS_IT = " Is it the database that LangGraph writes to?"
_ADVICE = {
    "Broken": " Is the server running? Then run the command again.",
    "InsufficientPrivilege": " Grant the user that right, or name another user.",
    "LockNotAvailable": " Another process locks its tables: run the command again.",
    **dict.fromkeys(("UndefinedTable", "UndefinedColumn", "DatatypeMismatch"), _IS_IT),
}
"""What to do, by the class of the error."""


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
    problem, values = "its URI cannot be read", dict[str, Any]()
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
    except psycopg.Error as error:
        if values and (reason := _own_reason(error, uri, values)):
            problem += f" ({reason})"
    except ValueError:
        pass
    # Outside of `except`: the context of the error, and its text, may hold a password.
    raise ThreadError(
        f"{_DATABASE}: {problem}. Is the server running, and are host, port, user, password and "
        f"database right? Special characters in them must be %-encoded. Name the server itself, "
        f"not a pooler before it; psql with the same URI says more."
    )


def _own_reason(error: Exception, uri: str, values: Mapping[str, Any]) -> str:
    """What is said of a failed connection; empty if it may hold a password."""
    text = " ".join(str(error).split())
    secrets = [values.get("password"), values.get("sslpassword"), os.environ.get("PGPASSWORD")]
    is_safe = database_name(uri) != NO_NAME and not may_hold_password(text)
    return cut(text, 300) if is_safe and not any(s and s in text for s in secrets) else ""


def _check_postgres(conn: Any, *, write: bool) -> None:
    """Check that what is read are tables, and that no query calls what another role defined.

    Rights that are missing are said before the first thread is read.
    """
    names = conn.execute(_SCHEMAS).fetchone()
    rights = ("SELECT", "INSERT", "UPDATE") if write else ("SELECT",)
    for right in rights:
        if missing := conn.execute(_WITHOUT, (names["tables"], right)).fetchone():
            raise ThreadError(
                f"{_DATABASE}: the user may not {right} in the table {missing['name']!r}: name a "
                f"user with {', '.join(rights)}."
            )
    conn.execute("SET LOCAL search_path = pg_catalog")
    if odd := conn.execute(_ODD, (names["tables"],)).fetchone():
        raise not_ordinary(_DATABASE, odd["name"])
    foreign = conn.execute(_FOREIGN, {**_CALLED, "schemas": names["schemas"]}).fetchone()
    if foreign:
        raise ThreadError(
            f"{_DATABASE}: role {foreign['owner']!r} has defined {foreign['name']!r} in schema "
            f"{foreign['schema']!r}, which reading the tables would call: drop it, or leave that "
            f"schema out of the search path."
        )
    if names["row_security"] != "off":
        raise ThreadError(f"{_DATABASE}: a pooler drops settings: name the server itself.")
