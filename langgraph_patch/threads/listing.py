"""List the histories of a database, and delete the newest checkpoint of one.

LangGraph's interface of a checkpointer can list checkpoints, and not threads. So LangGraph's own
tables are queried, and any other checkpointer is asked for all of its checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import methodcaller
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph.storage import postgres_cursor
from langgraph_patch._text import brief, quoted
from langgraph_patch.address import Address
from langgraph_patch.errors import OptionError, ThreadError, class_names
from langgraph_patch.threads.server import LangGraphServer


@dataclass(frozen=True, slots=True)
class Selection:
    """Which histories a scan, a repair or an undo reads.

    Attributes:
        thread_ids: The ids of the threads. Default: all threads.
        include: A function that takes the id of a thread and returns whether to read it. Default:
            all threads.
        since: Only histories that were written to at this time or later. Default: all.

    Raises:
        OptionError: If one has an invalid value.
    """

    thread_ids: Iterable[str] | None = None
    include: Callable[[str], bool] | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        ids: Any = self.thread_ids
        if ids is not None:
            is_list = isinstance(ids, Iterable) and not isinstance(ids, str | bytes)
            ids = [*ids] if is_list else [None]
            if not all(isinstance(each, str) for each in ids):
                raise OptionError(
                    f"thread_ids={quoted(self.thread_ids)}: expected the ids of threads, for one a "
                    f"list of one."
                )
            object.__setattr__(self, "thread_ids", sorted(set(ids)))
        if self.include is not None and not callable(self.include):
            raise OptionError(
                f"include={quoted(self.include)}: expected a function of a thread id."
            )
        if self.since is not None:
            if not isinstance(self.since, datetime):
                raise OptionError(f"since={quoted(self.since)}: expected a datetime.")
            if self.since.tzinfo is None:
                object.__setattr__(self, "since", self.since.replace(tzinfo=UTC))

    def has_time(self, written: datetime | None) -> bool:
        """Whether a history that was written to then is read; also if that is not known."""
        return self.since is None or written is None or written >= self.since


def list_addresses(saver: BaseCheckpointSaver[Any], selection: Selection) -> list[Address]:
    """The addresses of the histories of the selected threads, by thread and namespace.

    Args:
        saver: The checkpointer.
        selection: Which threads; `since` is not looked at.

    Raises:
        ThreadError: If one of the named threads does not exist, or the checkpointer cannot list
            its threads.

    Examples:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch.threads.listing import Selection, list_addresses
        >>> list_addresses(InMemorySaver(), Selection())
        []
    """
    if selection.thread_ids is None:
        addresses = _addresses(saver, None)
    else:
        addresses = [each for own in selection.thread_ids for each in _of_thread(saver, own)]
    include = selection.include
    return [each for each in addresses if include is None or include(each.thread_id)]


def _of_thread(saver: BaseCheckpointSaver[Any], thread_id: str) -> list[Address]:
    with suppress(UnicodeEncodeError):  # no database can hold such an id
        if addresses := _addresses(saver, thread_id):
            return addresses
    raise ThreadError(f"There is no thread {thread_id!r:.200}.")


def _addresses(saver: BaseCheckpointSaver[Any], thread_id: str | None) -> list[Address]:
    """The addresses of one thread, or of all."""
    if isinstance(saver, LangGraphServer):  # the report tells if there is no such thread
        return [*map(Address, saver.thread_ids() if thread_id is None else [thread_id])]
    if (tables := _tables_of(saver)) is None:
        return _listed(saver, thread_id)
    if thread_id is None:
        return _stored(saver, tables, tables.addresses.format(""))
    where = f"WHERE thread_id = {tables.parameter}"
    return _stored(saver, tables, tables.addresses.format(where), (thread_id,))


def delete_checkpoint(saver: BaseCheckpointSaver[Any], address: Address) -> bool:
    """Delete a checkpoint if it is the newest of its history and has no pending writes.

    Nothing can be written between the check and the deletion.

    Returns:
        Whether the checkpoint was deleted.

    Raises:
        ThreadError: If the checkpointer cannot delete single checkpoints.
    """
    tables = _tables_of(saver)
    if tables is None:
        raise ThreadError(
            f"{type(saver).__name__} cannot delete single checkpoints, so the repair of thread "
            f"{address.thread_id!r} cannot be undone: continue from the checkpoint before it, with "
            f"its checkpoint_id in the config."
        )
    names = address.thread_id, address.namespace, address.checkpoint_id
    delete = (_DELETE.format(tables.parameter, tables.writes), names)
    for seconds in (*_PAUSES, None):
        try:
            with _rows(saver, tables, *tables.lock, delete) as rows:
                return bool([*rows])
        except Exception as error:  # of a driver that may not be installed
            if seconds is None or "LockNotAvailable" not in class_names(error, "psycopg"):
                raise
        time.sleep(seconds)
    return False


_PAUSES = (0.1, 0.5, 1.0, 2.0)
"""The seconds before a deletion is tried again that another writer's lock has kept from running."""


# --- LangGraph's tables ------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class _Tables:
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


@contextmanager
def _rows(saver: Any, tables: _Tables, *statements: tuple[Any, ...]) -> Iterator[Iterable[Any]]:
    """Execute statements in one transaction, which lasts as long as the rows of the last."""
    with tables.cursor(saver) as cursor:
        for statement in statements:
            cursor.execute(*statement)
        yield cursor


def _stored(saver: Any, tables: _Tables, *statement: Any) -> list[Address]:
    """What a query lists: a thread and a namespace in each row, as bytes or texts.

    A byte that is not UTF-8 becomes half a character, so that such a thread id does not stop a
    scan. No query of LangGraph finds a row without an id.
    """
    with _rows(saver, tables, statement) as rows:
        names = (tuple(row.values()) if isinstance(row, Mapping) else row for row in rows)
        return sorted(Address(_text(t), _text(n)) for t, n in names if None not in (t, n))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value, "utf-8", "surrogateescape")


_SQLITE = _Tables(
    # As bytes: SQLite stores any bytes as text.
    addresses="""SELECT CAST(thread_id AS BLOB), CAST(checkpoint_ns AS BLOB)
    FROM (SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints {})""",
    writes="writes",
    parameter="?",
    lock=(),  # one statement is a transaction
    cursor=methodcaller("cursor"),
)
_POSTGRES = _Tables(
    addresses="SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints {}",
    writes="checkpoint_writes",
    parameter="%s",
    lock=(
        ("SET LOCAL lock_timeout = '1s'",),  # others wait behind whoever waits for a lock
        # Row locks are not enough: LangGraph inserts rows.
        ("LOCK TABLE checkpoints, checkpoint_writes IN SHARE ROW EXCLUSIVE MODE",),
    ),
    cursor=postgres_cursor,
)
_TABLES = {"SqliteSaver": _SQLITE, "PostgresSaver": _POSTGRES}


def _tables_of(saver: Any) -> _Tables | None:
    """The tables of a checkpointer of LangGraph's; None for any other."""
    # Other packages have a class `PostgresSaver` too, for other tables: hence the module.
    names = class_names(saver, "langgraph.checkpoint.")
    return next((tables for name, tables in _TABLES.items() if name in names), None)


# --- any other checkpointer --------------------------------------------------------------


def _listed(saver: BaseCheckpointSaver[Any], thread_id: str | None) -> list[Address]:
    """The addresses of all checkpoints that a checkpointer lists."""
    name, root = type(saver).__name__, Address(thread_id or "")
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
    try:
        listing = saver.list(None if thread_id is None else config)
        named = sorted({_as_read(Address.of(saved.config)) for saved in listing})
    except Exception as error:  # any: not every checkpointer can list threads
        if thread_id is not None:  # some want a namespace too; every thread has the root
            return [] if saver.get_tuple(root.config) is None else [root]
        raise ThreadError(f"{name} cannot list its threads ({brief(error)}). {_ADVICE}") from error
    if not named and thread_id is None and not isinstance(saver, InMemorySaver):
        raise ThreadError(
            f"{name} lists no thread: it is empty, or it cannot list its threads. {_ADVICE}"
        )
    return named


_ADVICE = "Name the threads: scan_threads(saver, thread_ids=[...])."


def _as_read(address: Address) -> Address:
    # langgraph-checkpoint-redis lists the root namespace as it is stored, and does not find it so.
    namespace = "" if address.namespace == "__empty__" else address.namespace
    return Address(address.thread_id, namespace)
