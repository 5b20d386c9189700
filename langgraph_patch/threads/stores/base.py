"""Which history: the keys under which threads are stored, and how they are shared out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from langgraph_patch.errors import ThreadError


class Key(NamedTuple):
    """Which history: a thread, and the namespace of a graph in it (`""` is the root)."""

    thread_id: str
    namespace: str


def behind(thread_id: str) -> Key:
    """The last key that a thread can have."""
    return Key(thread_id, "\U0010ffff")


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts of all threads; the same thread is always in the same part."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ThreadError(f"shard {self.index}/{self.count}: expected I/N with 1 <= I <= N.")

    def has(self, thread_id: str) -> bool:
        """Whether the thread is in this part."""
        said = str(thread_id)  # a foreign row may hold bytes
        digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1
