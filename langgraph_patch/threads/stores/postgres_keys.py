"""The `Source` of threads that lie in PostgreSQL.

psycopg need not be installed: a checkpointer that needs it is known by the name of its class.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.base import Key

_PAGE = 20_000  # no index has this order, so each page reads all keys: few pages

# As Python sorts, whatever collation the database has.
_KEYS = """SELECT DISTINCT thread_id COLLATE "C", checkpoint_ns COLLATE "C" FROM checkpoints
WHERE (thread_id COLLATE "C", checkpoint_ns COLLATE "C") > (%s, %s) ORDER BY 1, 2 LIMIT %s"""
_FIRST_KEYS = _KEYS.replace(">", ">=")
_OF_THREAD = """SELECT DISTINCT thread_id, checkpoint_ns COLLATE "C" FROM checkpoints
WHERE thread_id = %s ORDER BY 2"""
_LOCK = (
    "SET LOCAL lock_timeout = '5s'",
    # Who writes takes no lock that a row lock would meet: it inserts.
    "LOCK TABLE checkpoints, checkpoint_writes IN SHARE ROW EXCLUSIVE MODE",
)
_NEWEST = """SELECT checkpoint_id, (SELECT count(*) FROM checkpoint_writes w WHERE
w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
AND w.checkpoint_id = c.checkpoint_id) FROM checkpoints c
WHERE thread_id = %s AND checkpoint_ns = %s ORDER BY checkpoint_id DESC LIMIT 1"""
# Not their blobs: a blob belongs to a version of a channel, and other checkpoints, as those of
# a fork, may hold the same version. One that none holds is never read.
_FORGET = tuple(
    f"DELETE FROM {table} WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"  # noqa: S608 - two names
    for table in ("checkpoints", "checkpoint_writes")
)


def postgres_source(saver: BaseCheckpointSaver[Any]) -> Any:
    """The `Source` of a `PostgresSaver` or an `AsyncPostgresSaver`; None if it is neither."""
    for base in type(saver).__mro__:
        # Others have a class of that name too, over other tables.
        if base.__module__.startswith("langgraph.checkpoint.postgres"):
            kind = {"PostgresSaver": _Postgres, "AsyncPostgresSaver": _AsyncPostgres}
            if base.__name__ in kind:
                return kind[base.__name__](saver)
    return None


@dataclass(frozen=True, slots=True)
class _Postgres:
    """The threads of a `PostgresSaver`, over a connection or a pool."""

    saver: Any  # its module needs psycopg, which need not be there

    def page(self, last: Key | None) -> Sequence[Key]:
        return self._keys(*_page_query(last))

    def namespaces(self, thread_id: str) -> Sequence[Key]:
        return self._keys(_OF_THREAD, (thread_id,))

    def _keys(self, query: str, values: Sequence[Any]) -> Sequence[Key]:
        with self._cursor() as cursor:
            return [Key(*row) for row in cursor.execute(query, values)]

    def forget(self, key: Key, newest: str) -> bool:
        with self._cursor() as cursor, cursor.connection.transaction():
            return run_sync(_forget(cursor, key, newest))

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        from psycopg import rows  # noqa: PLC0415 - may not be installed

        saver = self.saver
        with saver.lock, _lent(saver.conn) as conn, conn.cursor(row_factory=rows.tuple_row) as own:
            if saver.pipe:
                saver.pipe.sync()  # what was sent before is no part of our transaction
            yield own


@dataclass(frozen=True, slots=True)
class _AsyncPostgres:
    """The threads of an `AsyncPostgresSaver`, over a connection or a pool."""

    saver: Any  # as above

    async def apage(self, last: Key | None) -> Sequence[Key]:
        return await self._keys(*_page_query(last))

    async def anamespaces(self, thread_id: str) -> Sequence[Key]:
        return await self._keys(_OF_THREAD, (thread_id,))

    async def _keys(self, query: str, values: Sequence[Any]) -> Sequence[Key]:
        async with self._cursor() as cursor:
            await cursor.execute(query, values)
            return [Key(*row) for row in await cursor.fetchall()]

    async def aforget(self, key: Key, newest: str) -> bool:
        async with self._cursor() as cursor, cursor.connection.transaction():
            return await run_async(_forget(cursor, key, newest))

    @asynccontextmanager
    async def _cursor(self) -> AsyncIterator[Any]:
        from psycopg import rows  # noqa: PLC0415 - may not be installed

        saver = self.saver
        async with saver.lock, _lent(saver.conn) as conn:
            if saver.pipe:
                await saver.pipe.sync()  # as above
            async with conn.cursor(row_factory=rows.tuple_row) as own:
                yield own


def _lent(conn: Any) -> Any:
    """The connection itself, or one of the pool's; entered with `with` or `async with`."""
    return conn.connection() if hasattr(conn, "getconn") else nullcontext(conn)


def _page_query(last: Key | None) -> tuple[str, Sequence[Any]]:
    return (_FIRST_KEYS, ("", "", _PAGE)) if last is None else (_KEYS, (*last, _PAGE))


def _forget(cursor: Any, key: Key, newest: str) -> IOGenerator[bool]:
    try:
        for statement in _LOCK:
            yield from _do(cursor.execute, statement)
    except Exception as error:
        if "LockNotAvailable" in _names(error):
            raise ThreadError(
                f"Thread {key.thread_id!r}: others hold the tables of checkpoints, so nothing was "
                f"deleted: try again when they are done."
            ) from error
        raise
    yield from _do(cursor.execute, _NEWEST, key)
    unmoved = bool((yield from _do(cursor.fetchone)) == (newest, 0))
    for statement in _FORGET if unmoved else ():
        yield from _do(cursor.execute, statement, (*key, newest))
    return unmoved


def _do(call: Callable[..., Any], *args: Any) -> IOGenerator[Any]:
    """A call whose async twin has the same name, as psycopg's have."""
    return (yield IORequest(lambda: call(*args), lambda: call(*args)))


# --- its errors --------------------------------------------------------------------------


def is_lost(error: BaseException) -> bool:
    """Whether it is psycopg's way to say that the database failed, and not one thread of it."""
    names = _names(error)
    # What took too long is one statement's matter: the next thread may be smaller.
    return not names.isdisjoint(("OperationalError", "InterfaceError")) and (
        "QueryCanceled" not in names
    )


def _names(error: BaseException) -> set[str]:
    """What psycopg calls an error, if it is one of its own."""
    return {base.__name__ for base in type(error).__mro__ if base.__module__.startswith("psycopg")}
