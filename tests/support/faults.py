"""Checkpointers that fail once, at a call that the test chooses."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from langgraph_patch import PatchError

METHODS = ("get_tuple", "put", "put_writes", "get_delta_channel_history")


class FaultError(Exception):
    """What a broken checkpointer raises."""


class Faults:
    """Counts the calls of a checkpointer, and fails one of them.

    Attributes:
        at: The number of the call that fails; 0 for none.
        seen: The methods that were called, in order.
    """

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, list[str]()

    @property
    def failed(self) -> bool:
        """Whether the call that was to fail has come."""
        return 0 < self.at <= len(self.seen)

    def note(self, method: str) -> None:
        """Count a call."""
        self.seen.append(method)
        if len(self.seen) == self.at:
            raise FaultError(f"call {self.at}: {method}")


def _faulty(base: Any) -> Any:
    """A subclass of a checkpointer, with `faults`: this package knows them by their class."""

    def plain(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.faults.note(name)
            return getattr(super(made, self), name)(*args, **kwargs)

        return method

    def listing(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.faults.note("list")
        yield from super(made, self).list(*args, **kwargs)
        self.faults.note("the end of list")

    async def alisting(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.faults.note("alist")
        async for saved in super(made, self).alist(*args, **kwargs):
            yield saved
        self.faults.note("the end of alist")

    methods = {name: plain(name) for each in METHODS for name in (each, f"a{each}")}
    made: Any = type(base.__name__, (base,), {**methods, "list": listing, "alist": alisting})
    return made


FaultyMemory: Any = _faulty(InMemorySaver)
FaultyAsyncSqlite: Any = _faulty(AsyncSqliteSaver)


def each_fault(source: InMemorySaver) -> Iterator[Any]:
    """Copies of a checkpointer; in each the next call fails, until all calls were done."""
    at, failed = 0, True
    while failed:
        at += 1
        saver = FaultyMemory()
        for part in ("storage", "writes", "blobs"):
            setattr(saver, part, copy.deepcopy(getattr(source, part)))
        faults = saver.faults = Faults(at)
        yield saver
        failed = faults.failed
    assert at > 3


def is_named(error: BaseException) -> bool:
    """Whether it is the checkpointer's own error, or a `PatchError` that names it."""
    if isinstance(error, PatchError):
        return "FaultError" in str(error) and error.__cause__ is not None
    return isinstance(error, FaultError)


def result_of(act: Callable[[], Any]) -> Any:
    """What `act` returns, or the error that names a fault."""
    try:
        return act()
    except (FaultError, PatchError) as error:
        if is_named(error):
            return error
        raise
