"""What all stores share: their protocol, the keys of histories, and the shards of a scan."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.errors import ThreadError


class Key(NamedTuple):
    """Names one history: a thread, and the namespace of a graph in it (`""` is the root)."""

    thread_id: str
    namespace: str


def last_key_of(thread_id: str) -> Key:
    """The key that sorts after every other key of the thread."""
    return Key(thread_id, "\U0010ffff")


class StoreFailedError(ThreadError):
    """The store itself failed, not the reading of one thread. It ends a scan."""


class Store(Protocol):
    """Lists threads and deletes checkpoints, which the interface of a checkpointer cannot do.

    Each kind of checkpointer has its own store (`select.store_of`). The methods request I/O, so
    that one store serves a checkpointer in its synchronous and in its asynchronous form.
    """

    def keys_after(self, last: Key | None) -> IOGenerator[Sequence[Key]]:
        """One page of the keys of all threads, sorted by thread and namespace.

        Threads are in the order of the database, namespaces in Python's order. A page begins
        where the last one ended, so that a scan holds one page in memory and keeps no cursor open.

        Args:
            last: The last key of the page before. None asks for the first page.

        Returns:
            The keys that sort after `last`; none if there are no more.
        """
        ...

    def keys_of(self, thread_id: str) -> IOGenerator[Sequence[Key]]:
        """The keys of one thread, sorted by namespace; none if there is no such thread."""
        ...

    def count_threads(self) -> IOGenerator[int | None]:
        """How many threads there are, for a progress bar; None if counting would take long."""
        ...

    def delete_checkpoint(self, key: Key, checkpoint_id: str) -> IOGenerator[bool]:
        """Delete a checkpoint if it is the newest of its history and has no pending writes.

        Nothing can be written between the check and the deletion.

        Returns:
            Whether the checkpoint was deleted.

        Raises:
            ThreadError: If the store cannot delete single checkpoints.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several parts of all threads, so that several processes can share a scan.

    A thread is always in the same shard, on every machine.

    Args:
        index: Which part, from 1 to `count`.
        count: The number of parts.

    Raises:
        ThreadError: If `index` is not between 1 and `count`.

    Examples:
        >>> from langgraph_patch.threads.stores.base import Shard
        >>> [Shard(index, 3).has("thread-18") for index in (1, 2, 3)]
        [True, False, False]
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ThreadError(f"shard {self.index}/{self.count}: expected I/N with 1 <= I <= N.")

    def has(self, thread_id: str) -> bool:
        """Whether the thread is in this part."""
        text = str(thread_id)  # a row that LangGraph did not write may hold bytes
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


def class_names(value: object, package: str) -> set[str]:
    """The names of the classes of `value` that `package` defines.

    It replaces `isinstance` where the package is optional or slow to import: whoever made the
    value has imported it.

    Args:
        value: Any object.
        package: How the names of the modules begin.

    Examples:
        >>> from langgraph_patch.threads.stores.base import class_names
        >>> sorted(class_names(Shard(1, 2), "langgraph_patch"))
        ['Shard']
    """
    return {base.__name__ for base in type(value).__mro__ if base.__module__.startswith(package)}
