"""LangGraph's tables: what its checkpointers for SQLite and PostgreSQL have in common.

LangGraph's interface of a checkpointer lists checkpoints and not threads, and deletes whole threads
only. So its tables are queried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langgraph_patch._langgraph.address import Address
from langgraph_patch.errors import ThreadError
from langgraph_patch.threads.stores.other import Store

_PAGE = 2_000
"""How many histories are listed by one statement, which takes about 20 ms."""


class TableStore(Store):
    """How the tables of one kind of database are queried.

    Attributes:
        page: What lists histories in the order of their keys: takes a condition of the first, and
            `{page}`, how many.
        named: What lists the histories of some threads: takes the parameters of their ids.
        after: The condition that a history comes after another one.
        odd: What lists the histories whose keys are no texts; `""` if there are none.
        writes: The table of pending writes.
        parameter: A parameter of a statement.
        lock: Statements that let nobody write until the transaction ends.
        cursor: Takes the checkpointer; a context manager over a cursor in one transaction.
    """

    page: str
    named: str
    after: str
    odd = ""
    writes: str
    parameter: str
    lock: Sequence[tuple[str]] = ()
    cursor: Callable[[Any], Any]

    def list_addresses(self, saver: Any, thread_ids: Sequence[str] | None) -> Iterator[Address]:
        """The addresses of some threads, or of all, in the order of the database.

        They are listed in pages by key, while they are read: each page is a short statement, and
        none is kept. A byte that is not UTF-8 becomes half a character, so that such a thread id
        does not stop a scan. No query of LangGraph finds a row without an id.

        Args:
            saver: The checkpointer.
            thread_ids: The ids of the threads; None for all.
        """
        if thread_ids is not None:
            ids = [each for each in thread_ids if _is_text(each)]
            marks = ", ".join([self.parameter] * len(ids))
            found = self._names(saver, self.named.format(marks), ids) if ids else []
            yield from sorted(map(_address, found))
            return
        condition, last = "TRUE", list[Any]()
        while page := self._names(saver, self.page.format(condition, page=_PAGE), last):
            yield from map(_address, page)
            condition, last = self.after, [*page[-1]]
        if self.odd:
            yield from sorted(map(_address, self._names(saver, self.odd, [])))

    def _names(self, saver: Any, statement: str, values: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The thread id and the namespace of each row."""
        rows = self._rows(saver, (statement, values))
        names = (tuple(row.values()) if isinstance(row, Mapping) else row for row in rows)
        return [(t, n) for t, n in names if None not in (t, n)]

    def delete_checkpoint(self, saver: Any, address: Address) -> bool:
        """Delete a checkpoint if it is the newest of its history and has no pending writes."""
        names = address.thread_id, address.namespace, address.checkpoint_id
        delete = (_DELETE.format(self.parameter, self.writes), names)
        return bool(self._rows(saver, *self.lock, delete))

    def _rows(self, saver: Any, *statements: tuple[Any, ...]) -> list[Any]:
        """The rows of the last of some statements, all in one transaction."""
        with self.cursor(saver) as cursor:
            for statement in statements:
                cursor.execute(*statement)
            return [*cursor]


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


def _is_text(thread_id: str) -> bool:
    """Whether a database can hold such an id: half a character has no bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in thread_id)


def _address(names: tuple[Any, Any]) -> Address:
    thread_id, namespace = names
    return Address(_text(thread_id), _text(namespace))


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


PACKAGES = ("langgraph.checkpoint.", "langgraph_patch.")
"""How the modules begin whose checkpointers are known."""


def is_unchanged(saver: object) -> bool:
    """Whether a checkpointer is of a known class, and not of a subclass that may read otherwise."""
    return type(saver).__module__.startswith(PACKAGES)


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
