"""Any other checkpointer: its own `list_threads`, that of an entry point, or `list(None)`.

LangGraph's interface of a checkpointer can list checkpoints, and not threads. So a checkpointer,
or a package for it, may have a `ThreadStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph_storage import delete_from_memory, keys_in_memory
from langgraph_patch._sansio import IOGenerator, IORequest, call_method
from langgraph_patch.errors import PatchError, ThreadError, brief
from langgraph_patch.threads.stores.base import Key

ENTRY_POINTS = "langgraph_patch.stores"
"""The group of entry points. Each names a function that takes a checkpointer."""


class ThreadStore(Protocol):
    """What a checkpointer, or a package for it, provides so that its threads can be scanned.

    There are two ways. The checkpointer has these methods itself. Or a package registers a
    function in the entry point group `langgraph_patch.stores`, which takes a checkpointer and
    returns an object with these methods, or None if it does not know that checkpointer:

    ```toml
    [project.entry-points."langgraph_patch.stores"]
    mystore = "my_package.threads:store_of"
    ```

    An asynchronous checkpointer needs `alist_threads` and `adelete_checkpoint` instead, with the
    same arguments. `delete_checkpoint` may be absent: then a repair cannot be undone. Everything
    else is LangGraph's interface of a checkpointer. `langgraph_patch.testing` checks all of it.
    """

    def list_threads(self, after: tuple[str, str] | None) -> Iterable[tuple[str, str]]:
        """One page of all threads, as pairs of thread id and namespace.

        Args:
            after: The last pair of the page before. None asks for the first page.

        Returns:
            The pairs that sort after `after`, sorted as Python sorts them. How many is up to the
            store. None at all means that there are no more.
        """
        ...

    def delete_checkpoint(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        """Delete a checkpoint if it is the newest of its history and has no pending writes.

        Nothing may be written between the check and the deletion.

        Returns:
            Whether the checkpoint was deleted.
        """
        ...


@dataclass(slots=True)
class AnyStore:
    """The `Store` of a checkpointer that this package does not know.

    Attributes:
        saver: The checkpointer.
        provided: Its `ThreadStore`, or None. Then `list(None)` lists the checkpoints of all
            threads, and all are read to learn their keys.
        keys: The keys that `list(None)` showed, once it was asked.
    """

    saver: BaseCheckpointSaver[Any]
    provided: Any = None
    keys: Sequence[Key] | None = None

    def keys_after(self, last: Key | None) -> IOGenerator[Sequence[Key]]:
        """One page of keys, as `Store` documents it."""
        if self.provided is not None:
            return (yield from self._provided_keys(last))
        if self.keys is None:
            self.keys = yield from self._all_keys()
        return [key for key in self.keys if last is None or key > last]

    def count_threads(self) -> IOGenerator[int | None]:
        """How many threads there are, as `Store` documents it: unknown except in memory."""
        yield from ()  # a generator that requests no I/O
        keys = keys_in_memory(self.saver) if isinstance(self.saver, InMemorySaver) else None
        return None if keys is None else len({thread_id for thread_id, _ in keys})

    def keys_of(self, thread_id: str) -> IOGenerator[Sequence[Key]]:
        """The keys of one thread, as `Store` documents it."""
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        try:
            return (yield from self._listed(config))
        except _CANNOT_LIST:
            # Some checkpointers want a namespace. The root is the one that every thread has.
            config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            saved = yield from call_method(self.saver, "get_tuple", config)
            return [] if saved is None else [Key(thread_id, "")]

    def delete_checkpoint(self, key: Key, checkpoint_id: str) -> IOGenerator[bool]:
        """Delete a checkpoint if it is the newest, as `Store` documents it."""
        if isinstance(self.saver, InMemorySaver):
            deleted = delete_from_memory(self.saver, *key, checkpoint_id)
            if deleted is not None:
                return deleted
        if self.provided is None:
            raise self._undeleted(key)
        try:
            return bool(
                (yield from call_method(self.provided, "delete_checkpoint", *key, checkpoint_id))
            )
        except (AttributeError, NotImplementedError) as error:  # the method is optional
            raise self._undeleted(key, f" ({brief(error)})") from error

    def _undeleted(self, key: Key, reason: str = "") -> ThreadError:
        return ThreadError(
            f"{type(self.saver).__name__} cannot delete single checkpoints{reason}, so the repair "
            f"of thread {key.thread_id!r} cannot be undone: continue from the checkpoint before "
            f"it, with its checkpoint_id in the config."
        )

    # --- listing -------------------------------------------------------------------------

    def _provided_keys(self, last: Key | None) -> IOGenerator[Sequence[Key]]:
        after = None if last is None else tuple(last)
        try:
            page = yield from call_method(self.provided, "list_threads", after)
            keys = [Key(thread_id, namespace) for thread_id, namespace in page]
            is_sorted = keys == sorted(set(keys))
        except _CANNOT_LIST as error:  # also a page that holds no sortable pairs of texts
            raise self._unlisted(error) from error
        if not is_sorted or (last is not None and keys and keys[0] <= last):
            raise ThreadError(
                f"{type(self.provided).__name__}.list_threads returned threads that are not "
                f"sorted, or that do not sort after {after!r}: see ThreadStore."
            )
        return keys

    def _all_keys(self) -> IOGenerator[Sequence[Key]]:
        in_memory = keys_in_memory(self.saver) if isinstance(self.saver, InMemorySaver) else None
        if in_memory is not None:
            return sorted(Key(str(thread_id), str(namespace)) for thread_id, namespace in in_memory)
        try:
            keys = yield from self._listed(None)
        except PatchError:
            raise
        except _CANNOT_LIST as error:
            raise self._unlisted(error) from error
        if not keys and not isinstance(self.saver, InMemorySaver):
            raise ThreadError(
                f"{type(self.saver).__name__} lists no thread: it is empty, or it cannot list its "
                f"threads. {_ADVICE}"
            )
        return keys

    def _unlisted(self, error: Exception) -> ThreadError:
        return ThreadError(
            f"{type(self.saver).__name__} cannot list its threads ({brief(error)}). {_ADVICE}"
        )

    def _listed(self, config: RunnableConfig | None) -> IOGenerator[Sequence[Key]]:
        """The keys of all checkpoints. All are read first: a saver may hold a lock meanwhile."""

        def synchronously() -> list[Key]:
            return sorted({_key_of_config(saved.config) for saved in self.saver.list(config)})

        async def asynchronously() -> list[Key]:
            return sorted(
                {_key_of_config(saved.config) async for saved in self.saver.alist(config)}
            )

        keys: list[Key] = yield IORequest(synchronously, asynchronously)
        return keys


_CANNOT_LIST = (AttributeError, KeyError, NotImplementedError, TypeError, ValueError)
"""What checkpointers raise if they cannot list all threads, or want more in the config."""

_ADVICE = (
    "Pass thread_ids=[...], or provide list_threads (see langgraph_patch.threads.ThreadStore)."
)


def any_store(saver: BaseCheckpointSaver[Any]) -> AnyStore:
    """The store of a checkpointer that this package does not know.

    Raises:
        ThreadError: If an entry point for stores cannot be loaded, or raises.
    """
    if hasattr(saver, "list_threads") or hasattr(saver, "alist_threads"):
        return AnyStore(saver, provided=saver)
    for name, store_of in registered():
        try:
            provided = store_of(saver)
        except Exception as error:  # any: the code of another package, which the error names
            raise ThreadError(
                f"The entry point {name!r} of {ENTRY_POINTS!r} failed ({brief(error)})."
            ) from error
        if provided is not None:
            return AnyStore(saver, provided=provided)
    return AnyStore(saver)


@cache
def registered() -> Sequence[tuple[str, Callable[[Any], Any]]]:
    """The functions of all installed packages that know other checkpointers."""
    found = []
    for entry_point in entry_points(group=ENTRY_POINTS):
        try:
            found.append((entry_point.name, entry_point.load()))
        except Exception as error:  # any: it imports another package, which the error names
            raise ThreadError(
                f"The entry point {entry_point.name!r} of {ENTRY_POINTS!r} cannot be loaded "
                f"({brief(error)})."
            ) from error
    return found


_EMPTY = "__empty__"
"""What checkpointers of langgraph-checkpoint-redis store for the root namespace.

`list` of the shallow ones returns it as it is stored, and then `get_tuple` finds nothing there.
"""


def _key_of_config(config: RunnableConfig) -> Key:
    configurable = config["configurable"]
    namespace = str(configurable.get("checkpoint_ns", ""))
    return Key(str(configurable["thread_id"]), "" if namespace == _EMPTY else namespace)
