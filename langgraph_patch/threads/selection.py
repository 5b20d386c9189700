"""Which stored histories are read: their addresses, and the newest checkpoint of each."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._text import brief, quoted, short
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.evidence.claims import is_record
from langgraph_patch.threads.stores import check_of_thread, store_of

_T = TypeVar("_T")


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
    shard: tuple[int, int] | None = None
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
        return is_included and self.has_share(thread_id)

    def has_share(self, thread_id: str) -> bool:
        """Whether a thread is in the share, which is the same in each version and process.

        Examples:
            >>> from langgraph_patch.threads.selection import Selection
            >>> shares = [Selection(shard=(number, 3)) for number in (1, 2, 3)]
            >>> [share.has_share("user-1") for share in shares]
            [False, True, False]
        """
        number, count = self.shard or (1, 1)
        digest = hashlib.sha256(thread_id.encode("utf-8", "surrogateescape")).digest()
        return int.from_bytes(digest[:4]) % count == number - 1

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
    named = [*filter(selection.has_share, selection.thread_ids)]
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
            check_of_thread(error, saver)
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


def reason_of(error: BaseException) -> str:
    """Why a thread cannot be read.

    Args:
        error: What was raised when its checkpoint was read.

    Examples:
        >>> from langgraph_patch.threads.selection import reason_of
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
