"""What the stores of SQLite and PostgreSQL share: the same steps, with other SQL.

`SqlStore` runs each step over a cursor. The cursors of sqlite3, aiosqlite and psycopg have the
same method names, so the steps are written once for all four checkpointers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.stores.base import Key

_T = TypeVar("_T")


_LOCK_ATTEMPTS = 25
"""How often a lock is tried. Each attempt is short: others wait behind whoever waits for a lock."""

_PAUSE = 0.1
"""The seconds between two attempts."""


class LockedError(ThreadError):
    """Another process has locked the tables."""


@dataclass(frozen=True, slots=True)
class Statements:
    """The SQL of one kind of database.

    Attributes:
        keys: Selects the keys that are > `thread` and `namespace`, sorted, up to `limit` keys, or
            up to `limit` threads, each with all its keys. It has one " > ".
        keys_of: Selects the keys of a thread, sorted.
        count: Counts the threads.
        newest: Selects the id of the newest checkpoint of a key and its number of pending writes.
        lock: What a transaction begins with, so that nobody else writes until it ends.
        delete: Delete a checkpoint, named by key and id, and its pending writes.
        page_size: The `limit` for `keys`.
    """

    keys: str
    keys_of: str
    count: str
    newest: str
    lock: Sequence[str]
    delete: Sequence[str]
    page_size: int


@dataclass(frozen=True, slots=True)
class SqlStore:
    """The `Store` of a checkpointer that writes LangGraph's tables.

    Attributes:
        saver: The checkpointer.
        is_async: Whether it is used in an event loop.
        statements: The SQL of its database.
        session: Takes the checkpointer and `writes=`; returns a context manager over a cursor,
            an asynchronous one for an asynchronous checkpointer. With `writes=True` all that
            happens in the context is one transaction.
    """

    saver: Any
    is_async: bool
    statements: Statements
    session: Callable[..., Any]

    def keys_after(self, last: Key | None) -> IOGenerator[Sequence[Key]]:
        """One page of keys, as `Store` documents it."""
        query = self.statements.keys
        if last is None:  # the first key may be ("", "")
            query, last = query.replace(" > ", " >= "), Key("", "")
        values: dict[str, Any] = {"thread": last.thread_id, "namespace": last.namespace}
        for name, value in values.items():
            if isinstance(value, str) and not _is_utf8(value):
                # Only SQLite has such keys. They can be bound as bytes only.
                query = query.replace(f":{name}", f"CAST(:{name} AS TEXT)")
                values[name] = value.encode("utf-8", "surrogateescape")
        values["limit"] = self.statements.page_size
        return self._run(lambda cursor: _keys(cursor, query, values))

    def keys_of(self, thread_id: str) -> IOGenerator[Sequence[Key]]:
        """The keys of one thread, as `Store` documents it."""
        return self._run(lambda cursor: _keys(cursor, self.statements.keys_of, (thread_id,)))

    def count_threads(self) -> IOGenerator[int | None]:
        """How many threads there are, as `Store` documents it."""
        return self._run(lambda cursor: _count(cursor, self.statements.count))

    def delete_checkpoint(self, key: Key, checkpoint_id: str) -> IOGenerator[bool]:
        """Delete a checkpoint if it is the newest, as `Store` documents it."""
        for _ in range(_LOCK_ATTEMPTS - 1):
            try:
                return (yield from self._delete(key, checkpoint_id))
            except LockedError:
                yield IORequest(lambda: time.sleep(_PAUSE), lambda: asyncio.sleep(_PAUSE))
        return (yield from self._delete(key, checkpoint_id))

    def _delete(self, key: Key, checkpoint_id: str) -> IOGenerator[bool]:
        return self._run(
            lambda cursor: _delete_if_newest(cursor, self.statements, key, checkpoint_id),
            writes=True,
        )

    def _run(
        self, steps: Callable[[Any], IOGenerator[_T]], *, writes: bool = False
    ) -> IOGenerator[_T]:
        def synchronously() -> _T:
            self._check_use(is_async=False)
            with self.session(self.saver, writes=writes) as cursor:
                return run_sync(steps(cursor))

        async def asynchronously() -> _T:
            self._check_use(is_async=True)
            async with self.session(self.saver, writes=writes) as cursor:
                return await run_async(steps(cursor))

        value: _T = yield IORequest(synchronously, asynchronously)
        return value

    def _check_use(self, *, is_async: bool) -> None:
        """Refuse to use an asynchronous checkpointer synchronously, or the other way round."""
        if self.is_async != is_async:
            expected = (
                "is asynchronous: use `async for` with ascan_threads, and await arepair_thread and "
                "aundo_repair."
                if self.is_async
                else "is synchronous: call scan_threads, repair_thread and undo_repair."
            )
            raise OptionError(f"{type(self.saver).__name__} {expected}")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _keys(cursor: Any, query: str, values: Any) -> IOGenerator[Sequence[Key]]:
    yield from _call(cursor.execute, query, values)
    return [Key(*row) for row in (yield from _call(cursor.fetchall))]


def _count(cursor: Any, query: str) -> IOGenerator[int | None]:
    yield from _call(cursor.execute, query)
    count: int = (yield from _call(cursor.fetchone))[0]
    return count


def _delete_if_newest(
    cursor: Any, statements: Statements, key: Key, checkpoint_id: str
) -> IOGenerator[bool]:
    for statement in statements.lock:
        yield from _call(cursor.execute, statement)
    yield from _call(cursor.execute, statements.newest, key)
    newest = yield from _call(cursor.fetchone)
    if newest is None or tuple(newest) != (checkpoint_id, 0):
        return False
    for statement in statements.delete:
        yield from _call(cursor.execute, statement, (*key, checkpoint_id))
    return True


def _call(method: Callable[..., Any], *args: Any) -> IOGenerator[Any]:
    """Call a method that is awaited if the cursor is asynchronous."""
    return (yield IORequest(lambda: method(*args), lambda: method(*args)))


def no_table_error(database: str, table: str) -> ThreadError:
    """The error for a view, or anything else that is read like a table and may run code."""
    return ThreadError(
        f"{database}: {table!r} is not an ordinary table, so reading it may run any code: name the "
        f"database that LangGraph writes to."
    )


def check_tables(
    database: str,
    needed: Mapping[str, Sequence[str]],
    columns_of: Callable[[str], set[str]],
    *,
    library: str,
    advice: str,
) -> None:
    """Check that a database has LangGraph's tables with the columns that a checkpointer reads.

    Args:
        database: What to call the database in an error.
        needed: Each table with its columns.
        columns_of: Returns the columns of a table; none if there is no such table.
        library: The library that makes the tables.
        advice: How to bring older tables up to date.

    Raises:
        ThreadError: If a table or a column is missing.

    Examples:
        >>> from langgraph_patch.threads.stores.sql import check_tables
        >>> check_tables("'x.db'", {"writes": ("idx",)}, lambda table: set(),
        ...              library="langgraph-checkpoint-sqlite", advice="Open it.")
        Traceback (most recent call last):
        langgraph_patch.errors.ThreadError: 'x.db' has no table 'writes': it holds no \
LangGraph threads.
    """
    for table, columns in needed.items():
        found = columns_of(table)
        if not found:
            raise ThreadError(f"{database} has no table {table!r}: it holds no LangGraph threads.")
        for column in columns:
            if column not in found:
                raise ThreadError(
                    f"{database}: table {table!r} has no column {column!r}: it was written by "
                    f"another version of {library}. {advice}"
                )
