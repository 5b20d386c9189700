"""Where threads lie, beyond what a checkpointer can tell: their keys, and how to forget.

One `Source` for each kind of checkpointer. Keys come in pages, each of which begins where the
last one ended, so that a scan holds one page in memory and no cursor open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.base import Key, Shard, behind
from langgraph_patch.threads.stores.postgres_keys import is_lost, postgres_source

__all__ = ["Key", "Shard", "Source", "ask_source", "behind", "has_failed", "source_of"]

_PAGE = 500


class Source(Protocol):
    """Where threads lie, beyond what a checkpointer can tell: one for each kind of saver.

    The twin of each method, with an `a` before its name, is there for an async saver.
    """

    def page(self, last: Key | None) -> Sequence[Key]:
        """The next keys that sort after `last` (None: the first), sorted; empty at the end."""
        ...

    def namespaces(self, thread_id: str) -> Sequence[Key]:
        """The keys of one thread, sorted."""
        ...

    def forget(self, key: Key, newest: str) -> bool:
        """Delete a checkpoint, if it still is the newest and nothing was written to it.

        Returns:
            Whether that was so.
        """
        ...


# --- SQLite ------------------------------------------------------------------------------

_KEYS = """SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints
WHERE (thread_id, checkpoint_ns) > (?, ?) ORDER BY thread_id, checkpoint_ns LIMIT ?"""
_FIRST_KEYS = _KEYS.replace(">", ">=")
_OF_THREAD = """SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints
WHERE thread_id = ? ORDER BY checkpoint_ns"""
_NEWEST = """SELECT checkpoint_id, (SELECT count(*) FROM writes w WHERE
w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
AND w.checkpoint_id = c.checkpoint_id) FROM checkpoints c
WHERE thread_id = ? AND checkpoint_ns = ? ORDER BY checkpoint_id DESC LIMIT 1"""
_FORGET = (
    "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
    "DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
)


@dataclass(frozen=True, slots=True)
class _Sqlite:
    """The threads of a `SqliteSaver`."""

    saver: SqliteSaver

    def page(self, last: Key | None) -> Sequence[Key]:
        return self._keys(*_page_query(last))

    def namespaces(self, thread_id: str) -> Sequence[Key]:
        return self._keys(_OF_THREAD, (thread_id,))

    def _keys(self, query: str, values: Sequence[Any]) -> Sequence[Key]:
        with self.saver.cursor(transaction=False) as cursor:
            return [Key(*row) for row in cursor.execute(query, values)]

    def forget(self, key: Key, newest: str) -> bool:
        with self.saver.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                unmoved = bool(cursor.execute(_NEWEST, key).fetchone() == (newest, 0))
                for statement in _FORGET if unmoved else ():
                    cursor.execute(statement, (*key, newest))
            except BaseException:
                self.saver.conn.rollback()
                raise
            return unmoved


@dataclass(frozen=True, slots=True)
class _AsyncSqlite:
    """The threads of an `AsyncSqliteSaver`."""

    saver: Any  # its module needs aiosqlite, which need not be there

    async def apage(self, last: Key | None) -> Sequence[Key]:
        return await self._keys(*_page_query(last))

    async def anamespaces(self, thread_id: str) -> Sequence[Key]:
        return await self._keys(_OF_THREAD, (thread_id,))

    async def _keys(self, query: str, values: Sequence[Any]) -> Sequence[Key]:
        await self.saver.setup()
        async with self.saver.lock, self.saver.conn.execute(query, values) as cursor:
            return [Key(*row) for row in await cursor.fetchall()]

    async def aforget(self, key: Key, newest: str) -> bool:
        await self.saver.setup()
        async with self.saver.lock:
            conn = self.saver.conn
            await conn.execute("BEGIN IMMEDIATE")
            try:
                async with conn.execute(_NEWEST, key) as cursor:
                    unmoved = bool(await cursor.fetchone() == (newest, 0))
                for statement in _FORGET if unmoved else ():
                    await conn.execute(statement, (*key, newest))
            except BaseException:
                await conn.rollback()
                raise
            await conn.commit()
            return unmoved


def _page_query(last: Key | None) -> tuple[str, Sequence[Any]]:
    return (_FIRST_KEYS, ("", "", _PAGE)) if last is None else (_KEYS, (*last, _PAGE))


# --- any other saver ---------------------------------------------------------------------


@dataclass(slots=True)
class _Listed:
    """The threads of any saver. All checkpoints are read to learn their keys."""

    saver: BaseCheckpointSaver[Any]

    keys: list[Key] | None = None

    def page(self, last: Key | None) -> Sequence[Key]:
        if self.keys is None:
            # Drained first: a saver may hold a lock while it lists.
            self.keys = sorted({_key_of(saved.config) for saved in self.saver.list(None)})
        return [key for key in self.keys if last is None or key > last]

    async def apage(self, last: Key | None) -> Sequence[Key]:
        if self.keys is None:
            self.keys = sorted({_key_of(saved.config) async for saved in self.saver.alist(None)})
        return [key for key in self.keys if last is None or key > last]

    def namespaces(self, thread_id: str) -> Sequence[Key]:
        found = self.saver.list({"configurable": {"thread_id": thread_id}})
        return sorted({_key_of(saved.config) for saved in found})

    async def anamespaces(self, thread_id: str) -> Sequence[Key]:
        found = self.saver.alist({"configurable": {"thread_id": thread_id}})
        return sorted({_key_of(saved.config) async for saved in found})

    def forget(self, key: Key, newest: str) -> bool:
        if not isinstance(self.saver, InMemorySaver):
            raise ThreadError(
                f"{type(self.saver).__name__} has no way to delete single checkpoints, so the "
                f"repair of thread {key.thread_id!r} cannot be undone: go on from the checkpoint "
                f"before it, with its checkpoint_id in the config."
            )
        stored = self.saver.storage.get(key.thread_id, {}).get(key.namespace, {})
        if max(stored, default=None) != newest or self.saver.writes.get((*key, newest)):
            return False
        del stored[newest]
        self.saver.writes.pop((*key, newest), None)
        return True

    async def aforget(self, key: Key, newest: str) -> bool:
        return self.forget(key, newest)


def _key_of(config: Any) -> Key:
    place = config["configurable"]
    return Key(str(place["thread_id"]), str(place.get("checkpoint_ns", "")))


def source_of(saver: BaseCheckpointSaver[Any]) -> Any:
    """The `Source` of a saver (its sync or its async half, as the saver is).

    Raises:
        OptionError: If it is no checkpointer.
    """
    if not isinstance(saver, BaseCheckpointSaver):
        raise OptionError(
            f"{saver!r:.200} is a {type(saver).__name__}: expected a checkpointer, such as a "
            f"SqliteSaver or the `checkpointer` of a graph."
        )
    if isinstance(saver, SqliteSaver):
        return _Sqlite(saver)
    if any(base.__name__ == "AsyncSqliteSaver" for base in type(saver).__mro__):
        return _AsyncSqlite(saver)
    return postgres_source(saver) or _Listed(saver)


def ask_source(source: Any, method: str, *args: Any) -> IOGenerator[Any]:
    """What a `Source` says, asked in the way that its saver is used."""
    return (
        yield IORequest(
            lambda: _half(source, method, _ASYNC)(*args),
            lambda: _half(source, f"a{method}", _SYNC)(*args),
        )
    )


_SYNC = "is used by plain calls: call scan_threads, repair_thread and undo_repair."
_ASYNC = "is used in an event loop: await ascan_threads, arepair_thread and aundo_repair."


def _half(source: Any, method: str, advice: str) -> Any:
    found = getattr(source, method, None)
    if found is None:
        raise OptionError(f"{type(source.saver).__name__} {advice}")
    return found


def has_failed(error: BaseException) -> bool:
    """Whether the database failed (locked, lost, shut down), and not one thread of it."""
    # Without a code it is Python's own, of a text that is no UTF-8: a matter of one row.
    coded = getattr(error, "sqlite_errorcode", None) is not None
    return (isinstance(error, sqlite3.OperationalError) and coded) or is_lost(error)
