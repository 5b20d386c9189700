"""Checkpointers that fail once, at a call that the test chooses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import PatchError


class FaultError(Exception):
    """What a broken checkpointer raises."""


class Faults:
    """Counts the calls of a checkpointer; call number `at` fails, 0 for none."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    @property
    def failed(self) -> bool:
        """Whether the call that was to fail has come."""
        return 0 < self.at <= self.seen

    def note(self, method: str) -> None:
        """Count a call."""
        self.seen += 1
        if self.seen == self.at:
            raise FaultError(f"call {self.at}: {method}")


def _counted(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.faults.note(name)
        return getattr(InMemorySaver, name)(self, *args, **kwargs)

    return method


class FaultyMemory(InMemorySaver):
    """A checkpointer with `faults`."""

    faults: Faults
    get_tuple = _counted("get_tuple")
    put = _counted("put")
    put_writes = _counted("put_writes")
    get_delta_channel_history = _counted("get_delta_channel_history")

    def list(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Count the begin and the end."""
        self.faults.note("list")
        yield from super().list(*args, **kwargs)
        self.faults.note("the end of list")


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


def result_of(act: Callable[[], Any]) -> Any:
    """What `act` returns, or the checkpointer's own error, or a `PatchError` that names it."""
    try:
        return act()
    except (FaultError, PatchError) as error:
        if isinstance(error, FaultError) or ("FaultError" in str(error) and error.__cause__):
            return error
        raise
