"""Checkpointers for one test: one that keeps objects in memory, and one with a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

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
