"""Find the store of a checkpointer, and open a database of threads safely.

Opening a database must execute nothing. By default LangGraph's serializer imports and calls
whatever a msgpack row names, and a pickle row is code. So the serializer gets an allowlist, and
pickles are not loaded. An instance of any other class is read as a dict. If such a value were
written back, the class would be lost, so each one is recorded (`Database.blocked`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.any import any_store
from langgraph_patch.threads.stores.base import Store, StoreFailedError, class_names
from langgraph_patch.threads.stores.masking import masked
from langgraph_patch.threads.stores.server import LangGraphServer
from langgraph_patch.threads.stores.server_api import is_client
from langgraph_patch.threads.stores.server_store import ServerStore, open_server
from langgraph_patch.threads.stores.versions import recording_blocked_classes, safe_serializer

# --- the store of a checkpointer ---------------------------------------------------------


def store_of(saver: BaseCheckpointSaver[Any]) -> Store:
    """The store of a checkpointer.

    Raises:
        OptionError: If `saver` is not a checkpointer.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch._sansio import run_sync
        >>> from langgraph_patch.threads.stores.select import store_of
        >>> run_sync(store_of(InMemorySaver()).keys_after(None))
        []
    """
    if not isinstance(saver, BaseCheckpointSaver):
        raise OptionError(
            f"{saver!r:.200} is a {type(saver).__name__}: expected a checkpointer, such as a "
            f"SqliteSaver or the `checkpointer` of a graph."
        )
    if isinstance(saver, LangGraphServer):
        return ServerStore(saver)
    # Other packages have a class `PostgresSaver` too, for other tables: hence the module.
    names = class_names(saver, "langgraph.checkpoint.")
    if names & {"SqliteSaver", "AsyncSqliteSaver"}:
        from langgraph_patch.threads.stores.sqlite import (  # noqa: PLC0415 - imports sqlite3
            sqlite_store,
        )

        return sqlite_store(saver, is_async="AsyncSqliteSaver" in names)
    if names & {"PostgresSaver", "AsyncPostgresSaver"}:
        from langgraph_patch.threads.stores.postgres import (  # noqa: PLC0415 - imports psycopg
            postgres_store,
        )

        return postgres_store(saver, is_async="AsyncPostgresSaver" in names)
    return any_store(saver)


def server_of(target: Any) -> LangGraphServer | None:
    """The LangGraph Server that `target` is, or that it is a client of; otherwise None."""
    if isinstance(target, LangGraphServer):
        return target
    return LangGraphServer(target) if is_client(target) else None


def is_database_failure(error: BaseException) -> bool:
    """Whether the database failed (locked, lost, shut down), and not the reading of one thread."""
    if isinstance(error, StoreFailedError):
        return True
    if "OperationalError" in class_names(error, "sqlite3"):
        # Without a code it is an error of Python, for text that is not UTF-8 in one row.
        return getattr(error, "sqlite_errorcode", None) is not None
    names = class_names(error, "psycopg")
    # A statement that took too long concerns one thread: the next one may be smaller.
    return bool(names & {"OperationalError", "InterfaceError"}) and "QueryCanceled" not in names


# --- opening -----------------------------------------------------------------------------


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
    target: str,
    *,
    write: bool = False,
    trust: Sequence[tuple[str, str]] = (),
    serde: SerializerProtocol | None = None,
) -> Iterator[Database]:
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
        ThreadError: If there is no such database, or it holds no threads, or it fails while it
            is open; or if LangGraph's serializer would load every class, as it does before
            langgraph-checkpoint 4.0.1.
        OptionError: If it is a PostgreSQL database, and psycopg is not installed.

    Examples:
        >>> from langgraph_patch.threads.stores.select import open_database
        >>> with open_database("/no/such.db"):
        ...     pass
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: '/no/such.db': there is no such file.
    """
    used = serde or safe_serializer(trust, ThreadError)
    with _open_saver(target, write=write, serde=used) as saver:
        database = Database(saver)
        with recording_blocked_classes(database.blocked.add):
            yield database


def _open_saver(
    target: str, *, write: bool, serde: SerializerProtocol
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    if target.startswith(("postgresql://", "postgres://")):
        try:
            from langgraph_patch.threads.stores.postgres import (  # noqa: PLC0415 - imports psycopg
                open_postgres,
            )
        except ImportError as error:
            raise OptionError(
                "a PostgreSQL database needs psycopg: pip install 'langgraph-patch[postgres]'"
            ) from error
        return open_postgres(target, write=write, serde=serde)
    if target.startswith(("http://", "https://")):
        return open_server(target)
    if "://" in target or masked(target) != target:
        raise ThreadError(
            f"{masked(target)!r:.200} is not a supported database: expected a URI that begins "
            f"with postgresql:// or postgres:// (PostgreSQL), or with http:// or https:// "
            f"(LangGraph Server), or the path of a SQLite file."
        )
    from langgraph_patch.threads.stores.sqlite import (  # noqa: PLC0415 - imports sqlite3
        open_sqlite,
    )

    return open_sqlite(target, write=write, serde=serde)
