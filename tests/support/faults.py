"""Checkpointers that fail once, at a call that the test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

PLAIN = ("get_tuple", "put", "put_writes", "get_delta_channel_history")
AWAITED = ("aget_tuple", "aput", "aput_writes", "aget_delta_channel_history")


class FaultError(Exception):
    """What a broken checkpointer raises."""


class Faults:
    """Counts the calls of a checkpointer from outside, and fails one of them.

    Attributes:
        at: The number of the call that fails; 0 for none.
        seen: The methods that were called since `arm`, in order.
    """

    def __init__(self) -> None:
        self.at = 0
        self.seen: list[str] = []

    def arm(self, at: int) -> None:
        """Begin to count; the call number `at` will fail."""
        self.at = at
        self.seen = []

    @property
    def failed(self) -> bool:
        """Whether the call that was to fail has come."""
        return 0 < self.at <= len(self.seen)

    def note(self, method: str) -> None:
        """Count a call."""
        self.seen.append(method)
        if len(self.seen) == self.at:
            raise FaultError(f"call {self.at}: {method}")


def _plain(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.faults.note(name)
        return getattr(super(self.made, self), name)(*args, **kwargs)

    return method


def _awaited(name: str) -> Any:
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.faults.note(name)
        return await getattr(super(self.made, self), name)(*args, **kwargs)

    return method


def _list(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
    self.faults.note("list")
    yield from super(self.made, self).list(*args, **kwargs)
    self.faults.note("the end of list")


async def _alist(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    self.faults.note("alist")
    async for saved in super(self.made, self).alist(*args, **kwargs):
        yield saved
    self.faults.note("the end of alist")


@contextmanager
def _cursor(self: Any, transaction: bool = True) -> Iterator[Any]:  # noqa: FBT001, FBT002 - as there
    self.faults.note("cursor")
    with super(self.made, self).cursor(transaction) as cursor:
        yield cursor


def _faulty(base: Any) -> Any:
    """A subclass of `base`: this package knows checkpointers by their class."""
    methods = {
        **{name: _plain(name) for name in PLAIN},
        **{name: _awaited(name) for name in AWAITED},
        "list": _list,
        "alist": _alist,
        **({"cursor": _cursor} if base is SqliteSaver else {}),
    }
    made = type(base.__name__, (base,), methods)
    made.made = made
    return made


FaultyMemory: Any = _faulty(InMemorySaver)
FaultySqlite: Any = _faulty(SqliteSaver)
FaultyAsyncSqlite: Any = _faulty(AsyncSqliteSaver)
