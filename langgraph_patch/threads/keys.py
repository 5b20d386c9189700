"""The keys of histories: list them, and delete the newest checkpoint of one.

LangGraph's interface of a checkpointer can list checkpoints, and not threads. So LangGraph's own
tables are queried, and any other checkpointer is asked for all of its checkpoints.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph_storage import delete_from_memory
from langgraph_patch._sansio import IOGenerator, IORequest, call_method
from langgraph_patch.errors import ThreadError, brief
from langgraph_patch.threads.server import LangGraphServer
from langgraph_patch.threads.server_client import check_use


class Key(NamedTuple):
    """Names one history: a thread, and the namespace of a graph in it (`""` is the root)."""

    thread_id: str
    namespace: str


def list_keys(
    saver: BaseCheckpointSaver[Any], thread_id: str | None = None
) -> IOGenerator[list[Key]]:
    """The keys of all histories, sorted by thread and namespace.

    Args:
        saver: The checkpointer.
        thread_id: List the keys of this thread only. Default: of all threads.

    Raises:
        ThreadError: If the checkpointer cannot list its threads.
        OptionError: If `saver` is used synchronously and can only be used asynchronously, or the
            other way round.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch._sansio import run_sync
        >>> from langgraph_patch.threads.keys import list_keys
        >>> run_sync(list_keys(InMemorySaver()))
        []
    """
    if isinstance(saver, LangGraphServer):
        ids = yield from saver.thread_ids(thread_id)
        return [Key(each, "") for each in ids]
    tables = _tables_of(saver)
    if tables is None:
        return (yield from _listed(saver, thread_id))
    values = () if thread_id is None else (thread_id,)
    where = f"WHERE thread_id = {tables.parameter}" * len(values)
    rows = yield from _execute(saver, tables, (tables.keys.format(where), values))
    return sorted(map(_key_of_row, rows))


def delete_checkpoint(
    saver: BaseCheckpointSaver[Any], key: Key, checkpoint_id: str
) -> IOGenerator[bool]:
    """Delete a checkpoint if it is the newest of its history and has no pending writes.

    Nothing can be written between the check and the deletion.

    Returns:
        Whether the checkpoint was deleted.

    Raises:
        ThreadError: If the checkpointer cannot delete single checkpoints.
        OptionError: As for `list_keys`.
    """
    if isinstance(saver, InMemorySaver):
        is_deleted = delete_from_memory(saver, *key, checkpoint_id)
        if is_deleted is not None:
            return is_deleted
    tables = _tables_of(saver)
    if tables is None:
        raise ThreadError(
            f"{type(saver).__name__} cannot delete single checkpoints, so the repair of thread "
            f"{key.thread_id!r} cannot be undone: continue from the checkpoint before it, with "
            f"its checkpoint_id in the config."
        )
    delete = (_DELETE.format(tables.parameter, tables.writes), (*key, checkpoint_id))
    return bool((yield from _execute(saver, tables, *tables.lock, delete)))


def class_names(value: object, package: str) -> set[str]:
    """The names of the classes of `value` that `package` defines.

    It replaces `isinstance` where the package is optional or slow to import: whoever made the
    value has imported it.

    Args:
        value: Any object.
        package: How the names of the modules begin.

    Examples:
        >>> from langgraph_patch.threads.keys import Key, class_names
        >>> sorted(class_names(Key("1", ""), "langgraph_patch"))
        ['Key']
    """
    return {base.__name__ for base in type(value).__mro__ if base.__module__.startswith(package)}


# --- LangGraph's tables ------------------------------------------------------------------


_DELETE = """DELETE FROM checkpoints AS c
WHERE thread_id = {0} AND checkpoint_ns = {0} AND checkpoint_id = {0} AND NOT EXISTS (
    SELECT 1 FROM checkpoints AS newer WHERE newer.thread_id = c.thread_id
    AND newer.checkpoint_ns = c.checkpoint_ns AND newer.checkpoint_id > c.checkpoint_id
) AND NOT EXISTS (
    SELECT 1 FROM {1} AS w WHERE w.thread_id = c.thread_id
    AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
) RETURNING 1"""
"""Blobs stay: other checkpoints, such as those of a fork, may use the same version of a channel."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """How the tables of one kind of database are queried.

    Attributes:
        keys: What lists the keys.
        writes: The table of pending writes.
        parameter: A parameter of a statement.
        lock: Statements that let nobody write until the transaction ends.
        is_async: Whether the checkpointer is used in an event loop.
        cursor: Takes the checkpointer; a context manager over a cursor in one transaction.
    """

    keys: str
    writes: str
    parameter: str
    lock: Sequence[tuple[str]]
    is_async: bool
    cursor: Callable[[Any], Any]


def _execute(saver: Any, tables: _Tables, *statements: tuple[Any, ...]) -> IOGenerator[Any]:
    """Execute statements in one transaction, and return the rows of the last one."""

    def synchronously() -> Any:
        check_use(saver, is_async=tables.is_async, awaited=False)
        with tables.cursor(saver) as cursor:
            for statement in statements:
                cursor.execute(*statement)
            return cursor.fetchall()

    async def asynchronously() -> Any:
        check_use(saver, is_async=tables.is_async, awaited=True)
        async with tables.cursor(saver) as cursor:
            for statement in statements:
                await cursor.execute(*statement)
            return await cursor.fetchall()

    return (yield IORequest(synchronously, asynchronously))


def _key_of_row(row: Any) -> Key:
    """A key; each byte that is not UTF-8 becomes half a character, so that no id stops a scan."""
    values = row.values() if isinstance(row, Mapping) else row
    return Key(*(v if isinstance(v, str) else v.decode("utf-8", "surrogateescape") for v in values))


@asynccontextmanager
async def _async_sqlite_cursor(saver: Any) -> AsyncIterator[Any]:
    await saver.setup()
    async with saver.lock, saver.conn.cursor() as cursor:
        yield cursor
        await saver.conn.commit()


@contextmanager
def _postgres_cursor(saver: Any) -> Iterator[Any]:
    with (
        saver.lock,
        _connection_of(saver) as conn,
        conn.transaction(),
        conn.cursor() as cursor,
    ):
        yield cursor


@asynccontextmanager
async def _async_postgres_cursor(saver: Any) -> AsyncIterator[Any]:
    async with (
        saver.lock,
        _connection_of(saver) as conn,
        conn.transaction(),
        conn.cursor() as cursor,
    ):
        yield cursor


def _connection_of(saver: Any) -> Any:
    """The connection of a checkpointer, or one of its pool, as a context manager."""
    conn = saver.conn
    return conn.connection() if hasattr(conn, "getconn") else nullcontext(conn)


_SQLITE = _Tables(
    # As bytes: SQLite stores any bytes as text.
    keys="""SELECT CAST(thread_id AS BLOB), CAST(checkpoint_ns AS BLOB)
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints {})""",
    writes="writes",
    parameter="?",
    lock=(),  # one statement is a transaction
    is_async=False,
    cursor=methodcaller("cursor"),
)
_POSTGRES = _Tables(
    keys="SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints {}",
    writes="checkpoint_writes",
    parameter="%s",
    lock=(
        ("SET LOCAL lock_timeout = '1s'",),  # others wait behind whoever waits for a lock
        # Row locks are not enough: LangGraph inserts rows.
        ("LOCK TABLE checkpoints, checkpoint_writes IN SHARE ROW EXCLUSIVE MODE",),
    ),
    is_async=False,
    cursor=_postgres_cursor,
)
_TABLES = {
    "SqliteSaver": _SQLITE,
    "AsyncSqliteSaver": replace(_SQLITE, is_async=True, cursor=_async_sqlite_cursor),
    "PostgresSaver": _POSTGRES,
    "AsyncPostgresSaver": replace(_POSTGRES, is_async=True, cursor=_async_postgres_cursor),
}


def _tables_of(saver: Any) -> _Tables | None:
    """The tables of a checkpointer of LangGraph's; None for any other."""
    # Other packages have a class `PostgresSaver` too, for other tables: hence the module.
    names = class_names(saver, "langgraph.checkpoint.")
    return next((tables for name, tables in _TABLES.items() if name in names), None)


# --- any other checkpointer --------------------------------------------------------------


_ADVICE = "Name the threads: scan_threads(saver, thread_ids=[...])."


def _listed(saver: BaseCheckpointSaver[Any], thread_id: str | None) -> IOGenerator[list[Key]]:
    """The keys of all checkpoints that a checkpointer lists."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    try:
        keys = yield from _listed_keys(saver, None if thread_id is None else config)
    except Exception as error:  # any: not every checkpointer can list threads
        if thread_id is not None:  # some want a namespace too; every thread has the root
            config["configurable"]["checkpoint_ns"] = ""
            saved = yield from call_method(saver, "get_tuple", config)
            return [] if saved is None else [Key(thread_id, "")]
        name = type(saver).__name__
        raise ThreadError(f"{name} cannot list its threads ({brief(error)}). {_ADVICE}") from error
    if not keys and thread_id is None and not isinstance(saver, InMemorySaver):
        raise ThreadError(
            f"{type(saver).__name__} lists no thread: it is empty, or it cannot list its threads. "
            f"{_ADVICE}"
        )
    return keys


def _listed_keys(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig | None
) -> IOGenerator[list[Key]]:
    def synchronously() -> list[Key]:
        return sorted({_key_of_config(saved.config) for saved in saver.list(config)})

    async def asynchronously() -> list[Key]:
        return sorted({_key_of_config(saved.config) async for saved in saver.alist(config)})

    keys: list[Key] = yield IORequest(synchronously, asynchronously)
    return keys


_EMPTY = "__empty__"
"""What checkpointers of langgraph-checkpoint-redis store for the root namespace.

`list` of the shallow ones returns it as it is stored, and then `get_tuple` finds nothing there.
"""


def _key_of_config(config: RunnableConfig) -> Key:
    configurable = config["configurable"]
    namespace = str(configurable.get("checkpoint_ns", ""))
    return Key(str(configurable["thread_id"]), "" if namespace == _EMPTY else namespace)
