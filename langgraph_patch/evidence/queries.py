"""Query a checkpointer: which checkpoints to list, and how many queries one search may make."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, configured_id

_MAX_QUERIES = 64
"""How many queries a search may make for all its calls, also if many messages are damaged."""

_NEWEST = 8
"""How many checkpoints are listed first. Damage is nearly always found there."""

_WAIT_SECONDS = 1.0
"""How long a search waits for the current checkpoint, which durability "async" writes later."""

_POLL_SECONDS = 0.01

_MAX_SUBGRAPH_CHECKPOINTS = 1000
"""How many checkpoints of the subgraphs of one superstep are listed."""

PAGE_WEIGHT = 10_000_000
"""A page ends when its checkpoints weigh as much, about 10,000 messages. Each checkpoint holds the
whole history, so a page of a long thread is limited by its size and not only by its length."""

_UNFILTERED = 200
"""How many checkpoints are listed and filtered here if the checkpointer refuses a filter."""


@dataclass(slots=True)
class CheckpointReader:
    """A checkpointer and what all queries of a search share.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        required: Whether to raise if the checkpointer raises. Otherwise the search ends there.
        queries_left: How many more queries the search may make. After that, it finds nothing.
        can_filter: Whether the checkpointer accepts a filter.
        is_cut: Whether the last page ended before the checkpointer had no more.
        error: The first error of the checkpointer, or None.
        pages: The pages that several calls may need, by what was listed.
    """

    saver: BaseCheckpointSaver[Any]
    messages_key: str
    required: bool = False
    queries_left: int = _MAX_QUERIES
    can_filter: bool = True
    is_cut: bool = False
    error: EvidenceError | None = None
    pages: dict[tuple[str, ...], tuple[list[Checkpoint], bool]] = field(default_factory=dict)


def list_checkpoints(
    reader: CheckpointReader,
    config: RunnableConfig,
    limit: int,
    *,
    metadata: dict[str, Any] | None = None,
    before: Checkpoint | None = None,
) -> IOGenerator[list[Checkpoint]]:
    """List checkpoints, newest first; an empty list if no query is left or an error occurred.

    Args:
        reader: The checkpointer.
        config: The thread, and the namespace (all namespaces if it names none).
        limit: How many checkpoints at most.
        metadata: What the metadata of the checkpoints must contain.
        before: List only checkpoints older than this one.

    Raises:
        EvidenceError: If the checkpointer raises and the evidence is required.
    """
    reader.is_cut = True
    if not reader.queries_left or reader.error is not None:
        return []
    reader.queries_left -= 1
    return (yield from _list(reader, config, limit, metadata, before))


def newest_checkpoints(
    reader: CheckpointReader, config: RunnableConfig, current: str | None
) -> IOGenerator[list[Checkpoint]]:
    """List the newest checkpoints up to the current one, and wait until that is written.

    Args:
        reader: The checkpointer.
        config: The thread and the namespace.
        current: The id of the current checkpoint; None for the newest.
    """
    page = yield from list_checkpoints(reader, config, _NEWEST)
    if current is None:
        return page
    if not _reaches(page, current):
        page = (yield from _wait_for(reader, config, current)) or page
    if page and page[-1].id > current:
        exact = {**config["configurable"], "checkpoint_id": current}
        page = yield from list_checkpoints(reader, RunnableConfig(configurable=exact), 1)
    return [checkpoint for checkpoint in page if checkpoint.id <= current]


def subgraph_checkpoints(
    reader: CheckpointReader, config: RunnableConfig, checkpoint: Checkpoint, **metadata: Any
) -> IOGenerator[tuple[list[Checkpoint], bool]]:
    """List the checkpoints of all subgraphs that ran in the superstep after a checkpoint, once.

    Args:
        reader: The checkpointer.
        config: The thread and the namespace of the checkpoint.
        checkpoint: The checkpoint.
        **metadata: What the metadata of the subgraphs' checkpoints must contain.

    Returns:
        The checkpoints, and whether these are all.
    """
    configurable = dict(config["configurable"])
    namespace = configurable.pop("checkpoint_ns")
    key = (namespace, checkpoint.id, *map(repr, metadata.items()))
    if key not in reader.pages:
        parents = {**checkpoint.saved.metadata.get("parents", {}), namespace: checkpoint.id}
        everywhere = RunnableConfig(configurable=configurable)
        wanted = {"parents": parents, **metadata}
        found = list_checkpoints(reader, everywhere, _MAX_SUBGRAPH_CHECKPOINTS, metadata=wanted)
        reader.pages[key] = (yield from found), not reader.is_cut
    return reader.pages[key]


def parent_checkpoints(
    reader: CheckpointReader, config: RunnableConfig, checkpoint: Checkpoint
) -> IOGenerator[list[Checkpoint]]:
    """The checkpoints of the graphs above, in whose supersteps a subgraph made a checkpoint."""
    found: list[Checkpoint] = []
    for namespace, checkpoint_id in checkpoint.saved.metadata.get("parents", {}).items():
        if namespace == checkpoint.namespace:
            continue
        key = namespace, checkpoint_id
        if key not in reader.pages:
            names = {"checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
            exact = RunnableConfig(configurable={**config["configurable"], **names})
            page = yield from list_checkpoints(reader, exact, 1)
            reader.pages[key] = page, not reader.is_cut
        found += reader.pages[key][0]
    return found


def _reaches(page: list[Checkpoint], current: str) -> bool:
    return bool(page) and page[0].id >= current


def _wait_for(
    reader: CheckpointReader, config: RunnableConfig, current: str
) -> IOGenerator[list[Checkpoint]]:
    """List the newest checkpoints as soon as the current one is written; [] if it never is.

    These queries do not count: each reads a single checkpoint. The time includes them.
    """
    end = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < end and reader.error is None:
        yield IORequest(lambda: time.sleep(_POLL_SECONDS), lambda: asyncio.sleep(_POLL_SECONDS))
        if _reaches((yield from _list(reader, config, 1)), current):
            return (yield from _list(reader, config, _NEWEST))
    return []


# --- one query ----------------------------------------------------------------------------


def _list(
    reader: CheckpointReader,
    config: RunnableConfig,
    limit: int,
    metadata: dict[str, Any] | None = None,
    before: Checkpoint | None = None,
) -> IOGenerator[list[Checkpoint]]:
    older = before.saved.config if before else None
    arguments: dict[str, Any] = {"filter": metadata, "before": older, "limit": limit}
    try:
        if metadata and not reader.can_filter:
            return (yield from _list_unfiltered(reader, config, arguments))
        try:
            return (yield from _request(reader, config, arguments))
        except Exception:  # a checkpointer may raise anything for a filter that it refuses
            if not metadata:
                raise
            page = yield from _list_unfiltered(reader, config, arguments)
            reader.can_filter = False
            return page
    except Exception as error:  # of any checkpointer: unreadable evidence never ends a run
        failed = _error(error, config, arguments)
        failed.__cause__ = error
        if reader.required:
            raise failed from error
        reader.error, reader.is_cut = reader.error or failed, True
        return []


def _list_unfiltered(
    reader: CheckpointReader, config: RunnableConfig, arguments: dict[str, Any]
) -> IOGenerator[list[Checkpoint]]:
    """List without the filter, and filter here: some checkpointers refuse some keys."""
    metadata, limit = arguments["filter"], arguments["limit"]
    wider = {**arguments, "filter": None, "limit": max(limit, _UNFILTERED)}
    page: list[Checkpoint] = yield from _request(reader, config, wider)
    wanted = [
        checkpoint
        for checkpoint in page
        if all(checkpoint.saved.metadata.get(key) == value for key, value in metadata.items())
    ]
    return wanted[:limit]


def _request(
    reader: CheckpointReader, config: RunnableConfig, arguments: dict[str, Any]
) -> IOGenerator[list[Checkpoint]]:
    page = _Page(reader, arguments["limit"])
    try:
        yield from read_until(page.add, reader.saver, config, arguments)
    except Exception as error:  # of any checkpointer, at an old row for example
        if reader.required or not page.checkpoints:
            raise
        reader.error = _error(error, config, arguments)  # what came before it counts
        reader.error.__cause__ = error
    reader.is_cut = page.is_full or reader.error is not None
    return page.checkpoints


@dataclass(slots=True)
class _Page:
    """The checkpoints of one query, until they are enough."""

    reader: CheckpointReader
    limit: int
    checkpoints: list[Checkpoint] = field(default_factory=list)
    weight: int = 0

    @property
    def is_full(self) -> bool:
        return self.weight >= PAGE_WEIGHT or len(self.checkpoints) >= self.limit

    def add(self, saved: CheckpointTuple) -> bool:
        """Add a checkpoint. Returns whether no more is needed."""
        checkpoint = Checkpoint(saved, self.reader.messages_key)
        if len(self.checkpoints) == self.limit:
            return True  # a checkpointer that ignores the limit
        self.checkpoints.append(checkpoint)
        self.weight += checkpoint.weight
        # At the limit the checkpointer ends by itself. To stop it before that makes the
        # synchronous `list` of an asynchronous one print errors about its generator.
        return self.weight >= PAGE_WEIGHT


def read_until(
    is_enough: Callable[[CheckpointTuple], bool],
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    arguments: dict[str, Any],
) -> IOGenerator[None]:
    """List checkpoints, newest first, and close the listing as soon as one is enough.

    Args:
        is_enough: Receives each checkpoint. Returns whether no more is needed.
        saver: The checkpointer.
        config: The thread and the namespace.
        arguments: The other arguments of the checkpointer's `list`.
    """

    def read() -> None:
        found: Any = saver.list(config, **arguments)
        with closing(found) if hasattr(found, "close") else nullcontext():
            for saved in found:
                if is_enough(saved):
                    return

    async def aread() -> None:
        found: Any = saver.alist(config, **arguments)
        async with aclosing(found):
            async for saved in found:
                if is_enough(saved):
                    return

    yield IORequest(read, aread)


def _error(error: Exception, config: RunnableConfig, arguments: dict[str, Any]) -> EvidenceError:
    configurable = config["configurable"]
    return EvidenceError(
        f"Thread {configurable.get('thread_id')!r}: the checkpointer raised {error!r} while it "
        f"listed {arguments['limit']} checkpoints of namespace "
        f"{configurable.get('checkpoint_ns', 'any')!r} (filter {arguments['filter']!r}, before "
        f"{configured_id(arguments['before'])!r}). Fix the checkpointer, or set "
        f"recover=False to repair without it."
    )
