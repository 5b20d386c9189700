"""Read a stored checkpoint without the graph that wrote it: its history, its pause and its age.

`get_state()` applies the pending writes of finished tasks. The next message discards them, so
`get_state()` would hide that they are lost. This module reads the state as the next run finds it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address, Shard, is_in
from langgraph_patch._text import brief, quoted, short
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.evidence.claims import is_record
from langgraph_patch.evidence.superstep import (
    Superstep,
    Task,
    fold,
    superstep_of,
    written_messages,
)
from langgraph_patch.history.messages import as_messages
from langgraph_patch.threads.stores import check_of_thread, server_of, store_of

_T = TypeVar("_T")

MARK: Final = {"langgraph_patch": "repair"}
"""The metadata of a checkpoint that a repair wrote."""

_FIRST_OF_TODAY = 3
"""The first format of a checkpoint whose nodes are started by `branch:to:<node>`."""

_OLD_PREFIXES = ("start:", "branch:")

_NO_RESULT = frozenset((INTERRUPT, RESUME, ERROR, storage.ERROR_SOURCE))
"""A write to one of these channels does not show that a task finished."""


# --- which histories -------------------------------------------------------------------------


def checked_address(config: RunnableConfig) -> Address:
    """The address that a caller's config names.

    Raises:
        ThreadError: If it names no thread, or a namespace that no later run reads.
    """
    configurable = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(configurable, Mapping) or configurable.get("thread_id") is None:
        raise ThreadError(f"{quoted(config)} names no thread: pass {_config_for(config)}.")
    # Other keys stay: some checkpointers need more than these.
    address = Address.of({"configurable": {**configurable}})
    if storage.task_of_namespace(address.namespace) is not None:
        raise ThreadError(
            f"Namespace {address.namespace!r} belongs to one run of a node: no later run reads it, "
            f"so there is nothing to repair. Repair the root namespace of the thread."
        )
    return address


def _config_for(value: object) -> str:
    """How a config is written that names the thread that a caller may have meant."""
    if hasattr(value, "config"):
        return "its .config"
    named = value.get("thread_id") if isinstance(value, Mapping) else value
    is_shown = isinstance(named, str | int) and quoted(named) == repr(named)
    return '{"configurable": {"thread_id": %s}}' % (json.dumps(str(named)) if is_shown else '"..."')


@dataclass(frozen=True, slots=True)
class Selection:
    """Which histories a scan, a repair or an undo reads.

    Attributes:
        thread_ids: The ids of the threads. Default: all threads.
        include: A function that takes the id of a thread and returns whether to read it. Default:
            all threads.
        since: Only histories that were written to at this time or later. Default: all.
        shard: Only a share of the threads: the number of the share, from 1 on, and of how many.
            Default: all.
        may_be_gone: Whether a named thread that does not exist is read as one that was deleted.
            Default: False; then it is an error before anything is read.
        rate: How many histories are read a second at most. Default: no limit.

    Raises:
        OptionError: If one has an invalid value.
    """

    thread_ids: Iterable[str] | None = None
    include: Callable[[str], bool] | None = None
    since: datetime | None = None
    shard: Shard | None = None
    may_be_gone: bool = False
    rate: int | None = None

    def __post_init__(self) -> None:
        ids: Any = self.thread_ids
        if ids is not None:
            is_list = isinstance(ids, Iterable) and not isinstance(ids, str | bytes)
            ids = [*ids] if is_list else [None]
            if not all(isinstance(each, str) for each in ids):
                raise OptionError(
                    f"thread_ids={quoted(self.thread_ids)}: expected a list of the ids of threads, "
                    f"which are texts, such as thread_ids=['user-7']."
                )
            object.__setattr__(self, "thread_ids", sorted(set(ids)))
        if self.include is not None and not callable(self.include):
            raise OptionError(
                f"include={quoted(self.include)}: expected a function of a thread id."
            )
        if self.shard is not None:
            is_pair = isinstance(self.shard, tuple) and [*map(type, self.shard)] == [int, int]
            if not (is_pair and 1 <= self.shard[0] <= self.shard[1]):
                raise OptionError(
                    f"shard={quoted(self.shard)}: expected the number of a share and of how many, "
                    f"such as (3, 16) for the third of sixteen."
                )
        if self.since is not None:
            if not isinstance(self.since, datetime):
                raise OptionError(f"since={quoted(self.since)}: expected a datetime.")
            if self.since.tzinfo is None:
                object.__setattr__(self, "since", self.since.replace(tzinfo=UTC))

    def has_id(self, thread_id: str) -> bool:
        """Whether the histories of a thread are read."""
        is_included = self.include is None or self.include(thread_id)
        return is_included and is_in(self.shard, thread_id)

    def has_time(self, written: datetime | None) -> bool:
        """Whether a history that was written to then is read; also if that is not known."""
        return self.since is None or written is None or written >= self.since


def selected_addresses(saver: BaseCheckpointSaver[Any], selection: Selection) -> Iterator[Address]:
    """The addresses of the histories of the selected threads, by thread and namespace.

    Args:
        saver: The checkpointer.
        selection: Which threads; `since` is not looked at.

    Yields:
        The addresses, as they are listed. Of a named thread that is gone, its root.

    Raises:
        ThreadError: If one of the named threads does not exist and none may be gone, or the
            checkpointer cannot list its threads.
    """
    for address in _listed(saver, selection):
        if selection.has_id(address.thread_id) and not is_record(address.namespace):
            yield address


def _listed(saver: BaseCheckpointSaver[Any], selection: Selection) -> Iterator[Address]:
    """The addresses of all threads, or of those that are named."""
    listed = store_of(saver).list_addresses
    if selection.thread_ids is None:
        yield from listed(saver, None)
        return
    named = [each for each in selection.thread_ids if is_in(selection.shard, each)]
    for start in range(0, len(named), _NAMED):
        some = named[start : start + _NAMED]
        found = [*listed(saver, some)]
        missing = sorted({*some} - {address.thread_id for address in found})
        if missing and not selection.may_be_gone:
            raise ThreadError(f"There is no thread {short(missing[0])}.")
        yield from merge(found, map(Address, missing))


_NAMED = 500
"""How many named threads are listed at once."""


def read_each(
    saver: BaseCheckpointSaver[Any],
    selection: Selection,
    read: Callable[[Address, storage.Loader], _T | None],
    unreadable: Callable[[Address, str], _T],
) -> Iterator[_T]:
    """Read each selected history that later runs read.

    Args:
        saver: The checkpointer.
        selection: Which threads.
        read: Takes a history and what loads its newest checkpoint; returns what is yielded for
            it, or None.
        unreadable: Returns what is yielded for a history that cannot be read, with the reason.

    Raises:
        ThreadError: If one of the named threads does not exist.
        Exception: What a database or a server raises that fails.
    """
    addresses = selected_addresses(saver, selection)
    if selection.thread_ids is not None and not selection.may_be_gone:
        addresses = iter([*addresses])  # a name that is wrong is said before anything is done
    for address, load in _newest_of(saver, addresses):
        try:
            result = read(address, load)
        except Exception as error:  # noqa: BLE001 - what is stored may make every constructor fail
            check_of_thread(error)
            result = unreadable(address, reason_of(error))
        if result is not None:
            yield result
        if selection.rate:
            time.sleep(1 / selection.rate)


def _newest_of(
    saver: BaseCheckpointSaver[Any], addresses: Iterable[Address]
) -> Iterator[tuple[Address, storage.Loader]]:
    """The histories that later runs read, each with what loads its newest checkpoint.

    Where a database is over a network, the newest checkpoints of some histories come at once: of
    fewer if they are large, because what is not held is read a second time.
    """
    histories = (a for a in addresses if storage.task_of_namespace(a.namespace) is None)
    store = store_of(saver)
    size = store.batch
    while some := [*islice(histories, size)]:
        found = store.read_newest(saver, some)
        is_whole = len(found) == len(some)
        size = min(store.batch, size + size // 4 + 1) if is_whole else max(1, len(found))
        for address in some:
            yield address, found.pop(address, partial(storage.load_newest, address))


# --- a stored history --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """A history as a checkpoint stores it.

    Attributes:
        saver: The checkpointer.
        saved: The checkpoint.
        messages_key: The state key of the history.
    """

    saver: BaseCheckpointSaver[Any]
    saved: CheckpointTuple
    messages_key: str

    @classmethod
    def newest(
        cls, saver: BaseCheckpointSaver[Any], address: Address, messages_key: str = "messages"
    ) -> StoredHistory:
        """Read the newest checkpoint.

        Raises:
            ThreadError: If there is no such thread.
        """
        return cls.of(saver, address, saver.get_tuple(address.newest.config), messages_key)

    @classmethod
    def of(
        cls,
        saver: BaseCheckpointSaver[Any],
        address: Address,
        saved: CheckpointTuple | None,
        messages_key: str = "messages",
    ) -> StoredHistory:
        """The history in a checkpoint that was read.

        Raises:
            ThreadError: If there is no such thread: nothing was read.
        """
        if saved is None:
            where = f" in namespace {address.namespace!r}" if address.namespace else ""
            raise ThreadError(f"There is no thread {address.thread_id!r}{where}.")
        return cls(saver, saved, messages_key)

    @property
    def checkpoint_id(self) -> str:
        return self.saved.checkpoint["id"]

    @property
    def parent_id(self) -> str:
        """The id of the checkpoint before it; empty if there is none."""
        parent = self.saved.parent_config
        return (Address.of(parent).checkpoint_id or "") if parent else ""

    def differs_from(self, address: Address) -> str | None:
        """Why nothing is done, if a caller named another checkpoint than this one."""
        if address.checkpoint_id in (None, self.checkpoint_id):
            return None
        return f"its newest checkpoint is {self.checkpoint_id}, not {address.checkpoint_id}"

    # --- messages ------------------------------------------------------------------------

    def messages(self) -> list[BaseMessage] | None:
        """The messages as the next run finds them; None if the state has no such key.

        Raises:
            ThreadError: If the format of the checkpoint is newer than this module supports, or if
                the value is lost or holds anything but messages.
            MessagesError: If the value is not a list of messages.
        """
        checkpoint = self.saved.checkpoint
        if checkpoint.get("v", 1) > storage.NEWEST_FORMAT:
            raise ThreadError(
                f"its checkpoint has format {checkpoint['v']!r}, which is newer than this version "
                f"of langgraph-patch supports: upgrade langgraph-patch"
            )
        if self.messages_key in checkpoint["channel_values"]:
            return _checked_messages(checkpoint["channel_values"][self.messages_key])
        if self.messages_key not in checkpoint["channel_versions"]:
            return None
        return fold(*self._spread())

    def is_ambiguous(self) -> bool:
        """Whether the history is in a `DeltaChannel` that reducers read differently.

        `RemoveMessage(REMOVE_ALL_MESSAGES)` is obeyed by the reducer of deepagents, as by `fold`,
        and ignored by that of LangGraph.
        """
        if self.messages_key in self.saved.checkpoint["channel_values"]:
            return False
        _, writes = self._spread()
        written = (message for write in writes for message in written_messages(write))
        return any(message.id == REMOVE_ALL_MESSAGES for message in written)

    def _spread(self) -> tuple[list[BaseMessage], list[Any]]:
        """The last stored value of a `DeltaChannel`, and what was written since."""
        key = self.messages_key
        own = self.saver.get_delta_channel_history(config=self.saved.config, channels=[key])[key]
        seed: Any = own.get("seed", [])
        # A value that was stored as it is belongs to another channel, or to a state before it.
        if (
            "seed" in own
            and storage.whole_value(seed) is seed
            and not storage.is_spread(self.saved, key)
        ):
            raise ThreadError(
                f"the value of its state key {key!r} is not stored any more: an older one is no "
                f"substitute"
            )
        return _checked_messages(seed), [value for _, _, value in own.get("writes", ())]

    # --- pauses, marks and ages ----------------------------------------------------------

    def interrupts(self) -> dict[str, Any]:
        """The interrupts of the tasks that wait for a human: what each asks, by its id."""
        waiting: dict[str, Sequence[Any]] = {}
        finished: set[str] = set()
        for task, channel, value in self.saved.pending_writes or ():
            if channel == INTERRUPT and task != storage.NO_TASK:
                waiting[task] = value if isinstance(value, Sequence) else [value]
            elif channel not in _NO_RESULT:
                finished.add(task)
        asking = [each for task, own in waiting.items() if task not in finished for each in own]
        asks = {str(getattr(each, "id", each)): getattr(each, "value", each) for each in asking}
        answered = self.answered() if asks else {}
        return {key: value for key, value in asks.items() if key not in answered}

    def answered(self) -> dict[str, str]:
        """The interrupts behind whose stored answer a task failed, here or in a graph below.

        Such a task waits for nobody, though `get_state()` shows its interrupt.

        Returns:
            The node of this graph that failed, by the id of the interrupt.
        """
        step = superstep_of(self.saved, self.messages_key)
        is_asked = any(task.errors and task.interrupt_ids for task in step.writers)
        if not is_asked or server_of(self.saver):  # whose API shows no answers
            return {}
        found: dict[str, str] = {}
        for task in _tasks_of(step):
            ids = {*task.answered}
            is_below = task.errors and task.interrupt_ids and not task.owns_interrupts
            if is_below and (below := self.saver.get_tuple(task.below.config)):
                ids |= {*StoredHistory(self.saver, below, self.messages_key).answered()}
            found |= dict.fromkeys(ids, task.node or "")
        return found

    def activity(self) -> Literal["running", "waiting"] | None:
        """Whether a human may still answer or, on a server, a run is in progress; None if not."""
        if server := server_of(self.saver):
            return server.activity(self.saved) if self.starts_tasks() else None
        interrupts = {*self.interrupts()}
        if interrupts and (address := Address.of(self.saved.config)).namespace:
            # An answer comes through the root graph only. If that has moved on, none will come.
            root = self.saver.get_tuple(address.at("").config)
            asked = StoredHistory(self.saver, root, self.messages_key).interrupts() if root else ()
            interrupts &= {*asked}
        return "waiting" if interrupts else None

    def starting_channels(self) -> list[str]:
        """The channels that start the tasks of the superstep after the checkpoint."""
        checkpoint = self.saved.checkpoint
        due = storage.due_channels(checkpoint["channel_values"])
        if checkpoint.get("v", 1) >= _FIRST_OF_TODAY:
            return due
        # Before, a node was started by a channel with its name, or by one for each edge.
        nodes = checkpoint["versions_seen"]
        old = {c for c in checkpoint["channel_values"] if c in nodes or c.startswith(_OLD_PREFIXES)}
        return sorted({*due, *old})

    def starts_tasks(self) -> bool:
        """Whether a superstep follows the checkpoint, or was begun."""
        return bool(self.starting_channels())

    def is_repair(self) -> bool:
        """Whether a repair wrote the checkpoint: it has the mark, and an id right after its parent.

        A mark alone may be a copy: `update_state` stores whatever metadata its config has.
        """
        metadata: Any = self.saved.metadata or {}
        if metadata.get("source") != "update" or not MARK.items() <= metadata.items():
            return False
        return self.checkpoint_id == storage.later_checkpoint_id(self.parent_id, 1)

    def written(self) -> datetime | None:
        """When the checkpoint was written, in UTC; None if it has no readable time."""
        try:
            written = datetime.fromisoformat(str(self.saved.checkpoint["ts"]))
        except (KeyError, ValueError):
            return None
        return written.replace(tzinfo=UTC) if written.tzinfo is None else written.astimezone(UTC)


def _tasks_of(step: Superstep) -> Sequence[Task]:
    """The tasks of a superstep; none if no graph fits what is stored."""
    try:
        return step.tasks
    except Exception:  # noqa: BLE001 - any: what is stored may name what no graph can have
        return ()


def age_of(written: datetime | None) -> float:
    """The seconds since a checkpoint was written; 0 if that is not known, or lies ahead."""
    return max(0.0, -seconds_ahead(written))


def seconds_ahead(written: datetime | None) -> float:
    """How far the time of a checkpoint is ahead of this machine's clock; 0 if it is not known."""
    return (written - datetime.now(UTC)).total_seconds() if written else 0.0


def _checked_messages(value: Any) -> list[BaseMessage]:
    """The messages of a stored value; a class that is not loaded leaves only its arguments."""
    value = storage.whole_value(value)
    for kind in set(map(type, value)) if isinstance(value, list) else ():
        if not issubclass(kind, BaseMessage | dict):
            raise ThreadError(
                f"its history holds a {kind.__name__} where a message was expected: a class that "
                f"is not loaded, or another kind of state"
            )
    return as_messages(value)


def reason_of(error: BaseException) -> str:
    """Why a thread cannot be read.

    Args:
        error: What was raised when its checkpoint was read.

    Examples:
        >>> from langgraph_patch.threads.read import reason_of
        >>> reason_of(ValueError("unpack(b) received extra data"))
        'a value of it cannot be loaded (ValueError: unpack(b) received extra data)'
    """
    if isinstance(error, ThreadError):
        return str(error)
    # LangGraph's serializer raises it with the type of the row, such as pickle or msgpack+aes.
    if isinstance(error, NotImplementedError) and "serialization type" in str(error):
        return (
            f"a row of it is of a type that is not loaded, because it is encrypted or may run any "
            f"code ({brief(error)}): if you trust it, scan with the checkpointer of the "
            f"application, or name its serializer with --serde module:attribute"
        )
    return f"a value of it cannot be loaded ({brief(error)})"
