"""LangGraph's tables: what its checkpointers for SQLite and PostgreSQL have in common.

LangGraph's interface of a checkpointer lists checkpoints and not threads, and deletes whole threads
only. So its tables are queried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langgraph_patch.address import Address
from langgraph_patch.errors import ThreadError


@dataclass(frozen=True, slots=True)
class Tables:
    """How the tables of one kind of database are queried.

    Attributes:
        addresses: What lists the threads and their namespaces.
        writes: The table of pending writes.
        parameter: A parameter of a statement.
        lock: Statements that let nobody write until the transaction ends.
        cursor: Takes the checkpointer; a context manager over a cursor in one transaction.
    """

    addresses: str
    writes: str
    parameter: str
    lock: Sequence[tuple[str]]
    cursor: Callable[[Any], Any]

    def list_addresses(self, saver: Any, thread_id: str | None) -> list[Address]:
        """The addresses of one thread, or of all: a thread and a namespace in each row.

        A byte that is not UTF-8 becomes half a character, so that such a thread id does not stop a
        scan. No query of LangGraph finds a row without an id.
        """
        where = "" if thread_id is None else f"WHERE thread_id = {self.parameter}"
        statement = (self.addresses.format(where), *([] if thread_id is None else [(thread_id,)]))
        with self._rows(saver, statement) as rows:
            names = (tuple(row.values()) if isinstance(row, Mapping) else row for row in rows)
            return sorted(Address(_text(t), _text(n)) for t, n in names if None not in (t, n))

    def delete_checkpoint(self, saver: Any, address: Address) -> bool:
        """Delete a checkpoint if it is the newest of its history and has no pending writes."""
        names = address.thread_id, address.namespace, address.checkpoint_id
        delete = (_DELETE.format(self.parameter, self.writes), names)
        with self._rows(saver, *self.lock, delete) as rows:
            return bool([*rows])

    @contextmanager
    def _rows(self, saver: Any, *statements: tuple[Any, ...]) -> Iterator[Iterable[Any]]:
        """Execute statements in one transaction, which lasts as long as the rows of the last."""
        with self.cursor(saver) as cursor:
            for statement in statements:
                cursor.execute(*statement)
            yield cursor


_DELETE = """DELETE FROM checkpoints AS c
WHERE thread_id = {0} AND checkpoint_ns = {0} AND checkpoint_id = {0}
AND NOT EXISTS (
    SELECT 1 FROM checkpoints AS newer WHERE newer.thread_id = c.thread_id
    AND newer.checkpoint_ns = c.checkpoint_ns AND newer.checkpoint_id > c.checkpoint_id
) AND NOT EXISTS (
    SELECT 1 FROM {1} AS w WHERE w.thread_id = c.thread_id
    AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id
) RETURNING 1"""
"""Blobs stay: other checkpoints, such as those of a fork, may use the same version of a channel."""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value, "utf-8", "surrogateescape")


def not_ordinary(database: str, table: str) -> ThreadError:
    """The error for a table whose reading may run something."""
    return ThreadError(
        f"{database}: {table!r} is not an ordinary table, so reading it may run any code (a view, "
        f"or a column that is computed or of a type of its own): name the database that LangGraph "
        f"writes to."
    )


def no_checkpoint(database: str) -> ThreadError:
    """The error for tables without rows."""
    return ThreadError(f"{database} holds no checkpoint: there is nothing to read.")


def class_names(value: object, package: str | tuple[str, ...]) -> set[str]:
    """The names of the classes of `value` that `package` defines.

    It replaces `isinstance` where the package is optional or slow to import: whoever made the
    value has imported it.

    Args:
        value: Any object.
        package: How the names of the modules begin, or several.

    Examples:
        >>> from langgraph_patch.errors import PatchError
        >>> from langgraph_patch.threads.stores.tables import class_names
        >>> sorted(class_names(PatchError(), "langgraph_patch"))
        ['PatchError']
    """
    return {base.__name__ for base in type(value).__mro__ if base.__module__.startswith(package)}
