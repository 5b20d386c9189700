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

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_patch._langgraph import delete_from_memory
from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.base import Key, Store, class_names
from langgraph_patch.threads.stores.masking import masked

# --- the store of a checkpointer ---------------------------------------------------------


def store_of(saver: BaseCheckpointSaver[Any]) -> Store:
    """The store of a checkpointer.

    Raises:
        OptionError: If `saver` is not a checkpointer.

    Example:
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
    return _AnyStore(saver)


@dataclass(slots=True)
class _AnyStore:
    """The `Store` of any other checkpointer. It reads all checkpoints to learn their keys."""

    saver: BaseCheckpointSaver[Any]
    keys: Sequence[Key] | None = None

    def keys_after(self, last: Key | None) -> IOGenerator[Sequence[Key]]:
        if self.keys is None:
            self.keys = yield from self._listed(None)
        return [key for key in self.keys if last is None or key > last]

    def keys_of(self, thread_id: str) -> IOGenerator[Sequence[Key]]:
        return self._listed({"configurable": {"thread_id": thread_id}})

    def delete_checkpoint(self, key: Key, checkpoint_id: str) -> IOGenerator[bool]:
        yield from ()  # a generator that requests no I/O
        deleted = None
        if isinstance(self.saver, InMemorySaver):
            deleted = delete_from_memory(self.saver, *key, checkpoint_id)
        if deleted is None:
            raise ThreadError(
                f"{type(self.saver).__name__} cannot delete single checkpoints, so the repair of "
                f"thread {key.thread_id!r} cannot be undone: continue from the checkpoint before "
                f"it, with its checkpoint_id in the config."
            )
        return deleted

    def _listed(self, config: RunnableConfig | None) -> IOGenerator[Sequence[Key]]:
        """The keys of all checkpoints. All are read first: a saver may hold a lock meanwhile."""

        def synchronously() -> list[Key]:
            return sorted({_key_of_config(saved.config) for saved in self.saver.list(config)})

        async def asynchronously() -> list[Key]:
            return sorted(
                {_key_of_config(saved.config) async for saved in self.saver.alist(config)}
            )

        keys: list[Key] = yield IORequest(synchronously, asynchronously)
        return keys


def _key_of_config(config: RunnableConfig) -> Key:
    configurable = config["configurable"]
    return Key(str(configurable["thread_id"]), str(configurable.get("checkpoint_ns", "")))


def is_database_failure(error: BaseException) -> bool:
    """Whether the database failed (locked, lost, shut down), and not the reading of one thread."""
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
    target: str, *, write: bool = False, trust: Sequence[tuple[str, str]] = ()
) -> Iterator[Database]:
    """Open a database of threads without executing anything in it.

    Args:
        target: The path of a SQLite file, or the `postgresql://` URI of a PostgreSQL database.
        write: Whether it may be written to. Default: it is opened read-only.
        trust: Classes that may be loaded beside LangChain's and LangGraph's, as (module,
            class). Default: none.

    Raises:
        ThreadError: If there is no such database, or it holds no threads, or it fails while it
            is open.
        OptionError: If it is a PostgreSQL database, and psycopg is not installed.

    Example:
        >>> from langgraph_patch.threads.stores.select import open_database
        >>> with open_database("/no/such.db"):
        ...     pass
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: '/no/such.db': there is no such file.
    """
    serde = JsonPlusSerializer(allowed_msgpack_modules=list(trust) or None)
    with _open_saver(target, write=write, serde=serde) as saver:
        database = Database(saver)

        def record(event: SerdeEvent) -> None:
            if event["kind"] == "msgpack_blocked":
                database.blocked.add(f"{event['module']}:{event['name']}")

        unregister = register_serde_event_listener(record)
        try:
            yield database
        finally:
            unregister()


def _open_saver(
    target: str, *, write: bool, serde: JsonPlusSerializer
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
    if "://" in target or masked(target) != target:
        raise ThreadError(
            f"{masked(target)!r:.200} is not a supported database: expected a URI that begins "
            f"with postgresql:// or postgres:// - or the path of a SQLite file."
        )
    from langgraph_patch.threads.stores.sqlite import (  # noqa: PLC0415 - imports sqlite3
        open_sqlite,
    )

    return open_sqlite(target, write=write, serde=serde)
