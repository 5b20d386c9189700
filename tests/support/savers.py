"""Checkpointers for one test: in memory, in a database, one that counts, one to wait for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver


@contextmanager
def memory() -> Iterator[InMemorySaver]:
    """A saver in memory."""
    yield InMemorySaver()


@contextmanager
def sqlite() -> Iterator[SqliteSaver]:
    """A saver in a SQLite database."""
    with SqliteSaver.from_conn_string(":memory:") as saver, closing(saver.conn):
        yield saver


each_saver = pytest.mark.parametrize("open_saver", [memory, sqlite])


class Counting(InMemorySaver):
    """Counts its queries and its checkpoints, by method."""

    def __init__(self) -> None:
        super().__init__()
        self.used: Counter[str] = Counter()

    def get_tuple(self, config: Any) -> Any:
        self.used["get_tuple"] += 1
        return super().get_tuple(config)

    def list(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.used["list"] += 1
        yield from super().list(*args, **options)

    def put(self, *args: Any) -> Any:
        self.used["put"] += 1
        return super().put(*args)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for saved in self.list(*args, **options):
            yield saved


class Watched(InMemorySaver):
    """Waits until something is recorded, so that no test has to guess how long that takes."""

    def __init__(self) -> None:
        super().__init__()
        self._news = threading.Condition()
        self._noted = ""

    def put_writes(self, config: Any, writes: Any, *rest: Any) -> None:
        """Record, and tell."""
        super().put_writes(config, writes, *rest)
        with self._news:
            self._noted += repr(writes)
            self._news.notify_all()

    def wait_for(self, *words: str) -> None:
        """Wait until all the words are on record."""
        with self._news:
            assert self._news.wait_for(lambda: all(word in self._noted for word in words), 10)
