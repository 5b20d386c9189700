"""PostgreSQL databases of threads: how they are opened, and what is said if they are not.

psycopg is imported only where somebody has such a database.

No password leaves this module. What libpq says of a URI may quote any piece of it: a password
with a `/` or an `@` that is not encoded is read as a host, a port or a database. So libpq is
never quoted, a server only where the URI was surely read as it was meant, and an error that
was raised while connecting is not kept as a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.tables import check_tables

_TIMEOUT = 10  # seconds to wait for a connection, unless the URI says otherwise
_NEEDED = {
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
_COLUMNS = """SELECT attname::text FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"""


# --- opening -----------------------------------------------------------------------------


def is_postgres(target: str) -> bool:
    """Whether a target is the URI of a PostgreSQL database."""
    return target.startswith(("postgresql://", "postgres://"))


def masked(text: str) -> str:
    """`text` without the passwords of URIs and of libpq's `password=...`.

    Example:
        >>> from langgraph_patch.threads.stores.postgres import masked
        >>> masked("no postgresql://bob:s3cr3t@db/x and no host=db password='s 3' user=bob")
        'no postgresql://*** and no host=db password=*** user=bob'
    """
    for secret in _SECRETS:
        text = secret.sub(r"\1***", text)
    return text


_SECRETS = (
    re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|\S+)", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://).*@[^\s'\"]*", re.IGNORECASE | re.DOTALL),
    re.compile(r"(postgres[a-z0-9+.-]*://)[^\s'\"]+", re.IGNORECASE),
)


@contextmanager
def open_postgres(uri: str, *, write: bool, serde: Any) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open a PostgreSQL database of threads that somebody else wrote.

    Args:
        uri: As libpq reads it; what it does not say comes from libpq's environment.
        write: Whether it may be written to. If not, the server sees to it.
        serde: The serializer.

    Raises:
        OptionError: If psycopg is not installed.
        ThreadError: If there is no such database, or it holds no threads.
    """
    try:
        import psycopg  # noqa: PLC0415 - may not be installed
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 - as above
    except ImportError as error:
        raise OptionError(
            "a PostgreSQL database needs psycopg: pip install 'langgraph-patch[postgres]'"
        ) from error
    conn, name = _connected(uri, write=write)
    with closing(conn):
        try:
            _check(conn, name, write=write)
            yield PostgresSaver(conn, serde=serde)
        except psycopg.Error as error:
            raise ThreadError(f"{name}: {masked(_first_line(error))}") from error


def _connected(uri: str, *, write: bool) -> tuple[Any, str]:
    """A connection, and what to call its database."""
    import psycopg  # noqa: PLC0415 - may not be installed
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above
    from psycopg.rows import dict_row  # noqa: PLC0415 - as above

    name, said = "the PostgreSQL database", _NO_URI
    try:
        values = conninfo_to_dict(uri)
        plain = _is_plain(values)
        name = _name(values) if plain else name
        said = ""
        options: dict[str, Any] = {
            "connect_timeout": _TIMEOUT,
            "fallback_application_name": "langgraph-patch",
            **values,
        }
        if not write:
            # Not a SET: behind a pooler that would outlive us, on a connection of others.
            given = values.get("options", "")
            options["options"] = f"{given} -c default_transaction_read_only=on".strip()
        # A pooler may give each statement another server, so none is prepared.
        conn = psycopg.connect(
            **options, autocommit=True, prepare_threshold=None, row_factory=dict_row
        )
    except (psycopg.Error, ValueError) as error:
        if not said:
            said = _advice(str(error), values) if plain else f"{_advice(str(error), {})} {_ENCODED}"
    else:
        return conn, name
    raise ThreadError(f"{name}: {said}")  # out here it has no context: that may hold a password


def _is_plain(values: Mapping[str, Any]) -> bool:
    """Whether a URI was surely read as it was meant, so that no piece of a password is a name."""
    names = [str(value) for key, value in values.items() if "password" not in key]
    return not any("@" in value for value in names) and bool(
        re.fullmatch(r"[\d,]*", str(values.get("port", "")))
    )


def _name(values: Mapping[str, Any]) -> str:
    database, host = values.get("dbname"), values.get("host")
    of = f" {database!r}" if database else ""
    return f"PostgreSQL database{of}" + (f" on {host!r}" if host else "")


def _advice(said: str, values: Mapping[str, Any]) -> str:
    """What to do about a connection that failed. `values`: of the URI, if it may be quoted."""
    _, fatal, reason = said.partition("FATAL:")
    reason = " ".join(reason.split("\n")[0].split())
    secrets = [str(value) for key, value in values.items() if "password" in key]
    if fatal and values and not any(secret in reason for secret in secrets):
        return f"the server refused: {reason}."
    for sign, advice in _ADVICE.items():
        if sign in said:
            return advice
    return "the connection failed: does `psql` open the same URI?"


_NO_URI = (  # set so that `masked` leaves it whole
    "its URI cannot be read: expected USER:PASSWORD@HOST:PORT/DATABASE behind postgresql:// with "
    "special characters %-encoded."
)
_ENCODED = "Are special characters in the user and the password %-encoded?"
_ADVICE = {
    "password authentication failed": "the server refused the user or the password.",
    "no password supplied": "the server wants a password: is it in the URI or in PGPASSWORD?",
    "does not exist": "the server knows no such database or user.",
    "FATAL:": "the server refused the connection: does `psql` open the same URI?",
    "refused": "no server accepts connections there: does it run, are host and port right?",
    "No such file": "no server accepts connections there: does it run, is the socket right?",
    "resolve": "there is no such host.",
    "translate host name": "there is no such host.",
    "bad value": _NO_URI,
    "timeout": "no server answered in time: are host and port right?",
    "invalid": _NO_URI,
}


def _check(conn: Any, name: str, *, write: bool) -> None:
    check_tables(
        name,
        _NEEDED,
        lambda table: {row["attname"] for row in conn.execute(_COLUMNS, (table,))},
        library="langgraph-checkpoint-postgres",
        advice="Call `setup()` of that which your application uses, then try again.",
    )
    if conn.execute("SELECT FROM checkpoints LIMIT 1").fetchone() is None:
        raise ThreadError(f"{name} holds no checkpoint: nothing was looked at.")
    if not write and conn.execute("SHOW transaction_read_only").fetchone() != _READ_ONLY:
        raise ThreadError(
            f"{name} cannot be opened read-only: name the server itself, not a pooler before it."
        )


_READ_ONLY = {"transaction_read_only": "on"}


def _first_line(error: Exception) -> str:
    return f"{str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}."
