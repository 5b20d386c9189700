"""Any checkpointer: what LangGraph's interface of one can do, and how its errors are read.

Nothing is known of its database but that interface. It lists checkpoints and not threads, so all
checkpoints are listed, and it cannot delete one.

Whose failure is an error of a driver that nobody here has heard of? Where it was raised tells, and
what kind of error it is:

- Below a method of a serializer or of a message: it is about the value that was loaded or read.
- Anywhere else, as an `OSError`, or with a class of a driver, such as MongoDB's
  `ServerSelectionTimeoutError`: the database failed, and the next thread would wait for the same
  time-out.
- With a class of Python's or LangGraph's, such as `KeyError`, or one that is a `ValueError`,
  `TypeError` or `LookupError` too: the code of the checkpointer did not expect what one thread has
  stored. A driver has classes of its own for what is wrong with the database.

A connection that is refused or times out is a failure wherever it was: a serializer that asks
another service for its key gets none for the next thread either.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from traceback import walk_tb
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import brief
from langgraph_patch.errors import ThreadError, chain_of, is_interrupt

Loaders: TypeAlias = dict[Address, storage.Loader]
"""What loads the newest checkpoint of each of some histories."""


class Store:
    """A kind of database of threads, as far as any checkpointer has one: the base of the others.

    Attributes:
        batch: How many newest checkpoints are read at once at most.
    """

    batch = 1

    def list_addresses(self, saver: Any, thread_ids: Sequence[str] | None) -> Iterator[Address]:
        """The addresses of the histories of some threads, or of all for None."""
        for thread_id in [None] if thread_ids is None else thread_ids:
            yield from self._listed(saver, thread_id)

    def _listed(self, saver: BaseCheckpointSaver[Any], thread_id: str | None) -> list[Address]:
        name, root = type(saver).__name__, Address(thread_id or "")
        config: RunnableConfig = {"configurable": {"thread_id": thread_id}}
        try:
            listing = saver.list(None if thread_id is None else config)
            named = sorted({_as_read(Address.of(saved.config)) for saved in listing})
        except Exception as error:  # any: not every checkpointer can list threads
            if is_interrupt(error):
                raise
            if thread_id is not None:  # some want a namespace too; every thread has the root
                return [root] if self._exists(saver, root) else []
            if self.is_failure([*chain_of(error)]):
                error.add_note(f"If {name} cannot list its threads: {_ADVICE}")
                raise
            raise ThreadError(
                f"{name} cannot list its threads ({brief(error)}). {_ADVICE}"
            ) from error
        if not named and thread_id is None and not isinstance(saver, InMemorySaver):
            raise ThreadError(
                f"{name} lists no thread: it is empty, or it cannot list its threads. {_ADVICE}"
            )
        return named

    def _exists(self, saver: BaseCheckpointSaver[Any], root: Address) -> bool:
        try:
            return saver.get_tuple(root.config) is not None
        except Exception as error:  # any: its report says why it cannot be read
            if is_interrupt(error) or self.is_failure([*chain_of(error)]):
                raise
            return True

    def read_newest(self, saver: Any, addresses: Sequence[Address]) -> Loaders:  # noqa: ARG002 - for others
        """What loads the newest checkpoints of some histories: those that were read at once."""
        return {}

    def delete_checkpoint(self, saver: Any, address: Address) -> bool:
        """Delete a checkpoint if it is the newest of its history and has no pending writes.

        Nothing can be written in between. It returns whether it did.
        """
        raise ThreadError(
            f"{type(saver).__name__} cannot delete single checkpoints, so the repair of thread "
            f"{address.thread_id!r} cannot be undone: continue from the checkpoint before it, with "
            f"its checkpoint_id in the config."
        )

    def undo_problem(self, saver: Any) -> str | None:  # noqa: ARG002 - for others
        """Why nothing can be deleted; None if nothing speaks against it, or it is not known."""
        return None

    def is_undone(self, saver: Any, error: BaseException) -> bool:  # noqa: ARG002 - for others
        """Whether an error of a write says that nothing was written."""
        return False

    def is_failure(self, chain: Sequence[BaseException]) -> bool | None:
        """Whether an error, with its causes, is a failure of the database, and not of one thread.

        None if it is an error of another driver.
        """
        if any(isinstance(each, ConnectionError | TimeoutError) for each in chain):
            return True
        frames = [frame for each in chain for frame, _ in walk_tb(each.__traceback__)]
        # Of the class: an object, such as a collection of MongoDB, may have any attribute.
        classes = [type(frame.f_locals.get("self")) for frame in frames]
        is_loading = any(hasattr(c, "loads_typed") or issubclass(c, BaseMessage) for c in classes)
        return not is_loading and any(map(_is_of_driver, chain))


_ADVICE = "Name the threads: scan_threads(saver, thread_ids=[...])."


def _as_read(address: Address) -> Address:
    # langgraph-checkpoint-redis lists the root namespace as it is stored, and does not find it so.
    namespace = "" if address.namespace == "__empty__" else address.namespace
    return Address(address.thread_id, namespace)


def _is_of_driver(error: BaseException) -> bool:
    """Whether it is an error of a driver, or of the operating system below it."""
    if isinstance(error, OSError):
        return True
    names = {base.__name__ for base in type(error).__mro__}
    # PEP 249 has `DataError` for what is wrong with the data that are read or written.
    if isinstance(error, ValueError | TypeError | LookupError) or "DataError" in names:
        return False
    package = type(error).__module__.partition(".")[0]
    is_of_langgraph = package.startswith(("langchain", "langgraph"))
    return package not in sys.stdlib_module_names and not is_of_langgraph
