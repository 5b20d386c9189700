"""A checkpointer on which a test or a tool can wait."""

from __future__ import annotations

import threading
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

SECONDS = 10


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
            assert self._news.wait_for(lambda: all(word in self._noted for word in words), SECONDS)
