"""Query a checkpointer: what is read, how long to wait for it, and how much one search may read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph_storage import whole_value
from langgraph_patch._sansio import IOGenerator, IORequest, call_method
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.tasks import configured_id

_BUDGET = 100_000
"""How many stored messages one search may load for all its calls: 3 to 5 seconds at most."""

_EACH_CHECKPOINT = 30
"""What loading a checkpoint costs beside its messages, in messages."""

_WAIT_SECONDS = 1.0
"""How long a search waits for the current checkpoint, which durability "async" writes later."""

_POLL_SECONDS = 0.01

_PAGES = (4, 8, 16, 32, 64)
"""How many checkpoints are listed at once; the last one again and again."""


@dataclass(slots=True)
class Reader:
    """A checkpointer and what all queries of a search share.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        required: Whether to raise if the checkpointer raises. Otherwise the search ends there.
        budget: How many more messages the search may load.
        error: The first error of the checkpointer, or None.
    """

    saver: BaseCheckpointSaver[Any]
    messages_key: str
    required: bool = False
    budget: int = _BUDGET
    error: EvidenceError | None = None

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be read."""
        return self.budget <= 0 or self.error is not None


def walk(
    reader: Reader,
    config: RunnableConfig,
    is_enough: Callable[[CheckpointTuple], bool],
    *,
    wait: bool = False,
) -> IOGenerator[None]:
    """Read the checkpoints of a namespace, newest first, beginning with the current one.

    Args:
        reader: The checkpointer.
        config: The thread, the namespace, and the current checkpoint (default: the newest).
        is_enough: Receives each checkpoint. Returns whether no older one is needed.
        wait: Whether to wait for the current checkpoint if it is not written yet. Default: False.
    """
    oldest: list[CheckpointTuple] = []

    def receive(saved: CheckpointTuple) -> bool:
        oldest[:] = [saved]
        value = whole_value(saved.checkpoint["channel_values"].get(reader.messages_key))
        count = len(value) if isinstance(value, list) else 0
        reader.budget -= count + _EACH_CHECKPOINT
        return is_enough(saved) or reader.is_spent

    current = yield from newest(reader, config, _WAIT_SECONDS if wait else 0.0)
    if current is None or receive(current):
        return
    sizes = iter(_PAGES)
    while oldest:
        size, before = next(sizes, _PAGES[-1]), oldest.pop()
        if (yield from _list(reader, config, before, size, receive)):
            return


def newest(
    reader: Reader, config: RunnableConfig, seconds: float = 0.0
) -> IOGenerator[CheckpointTuple | None]:
    """The checkpoint that a config names, or the newest; None if there is none.

    If the named one is not written within some seconds, it is the newest one.
    """
    end = time.monotonic() + seconds
    while True:
        saved: CheckpointTuple | None
        saved = yield from _ask(reader, config, call_method(reader.saver, "get_tuple", config))
        if saved is not None or configured_id(config) is None or reader.error:
            return saved
        if time.monotonic() > end:
            config = _without_id(config)
            continue
        yield IORequest(partial(time.sleep, _POLL_SECONDS), partial(asyncio.sleep, _POLL_SECONDS))


def input_before(reader: Reader, saved: CheckpointTuple) -> IOGenerator[CheckpointTuple | None]:
    """The newest input of a namespace that is older than a checkpoint; None if there is none.

    It may be one of another branch.
    """
    found: list[CheckpointTuple] = []

    def receive(older: CheckpointTuple) -> bool:
        # Not every checkpointer knows all arguments of `list`.
        is_older = older.checkpoint["id"] < saved.checkpoint["id"]
        if is_older and older.metadata.get("source") == "input":
            found.append(older)
        return bool(found)

    arguments = {"before": saved.config, "limit": 1, "filter": {"source": "input"}}
    request = read_until(receive, reader.saver, _without_id(saved.config), arguments)
    yield from _ask(reader, saved.config, request)
    return found[0] if found else None


def _without_id(config: RunnableConfig) -> RunnableConfig:
    named = config["configurable"]
    return {"configurable": {k: v for k, v in named.items() if k != "checkpoint_id"}}


def _list(
    reader: Reader,
    config: RunnableConfig,
    before: CheckpointTuple,
    limit: int,
    is_enough: Callable[[CheckpointTuple], bool],
) -> IOGenerator[bool]:
    """List checkpoints older than one; whether one was enough, or nothing can be read."""
    arguments = {"before": before.config, "limit": limit}
    found = read_until(is_enough, reader.saver, _without_id(config), arguments)
    return (yield from _ask(reader, config, found)) is not False


def _ask(reader: Reader, config: RunnableConfig, request: IOGenerator[Any]) -> IOGenerator[Any]:
    """What a query returns; None if the checkpointer raised."""
    try:
        return (yield from request)
    except Exception as error:  # of any checkpointer: unreadable evidence never ends a run
        configurable = config["configurable"]
        failed = EvidenceError(
            f"Thread {configurable.get('thread_id')!r}: the checkpointer raised {error!r} while "
            f"the checkpoints of namespace {configurable.get('checkpoint_ns', '')!r} were read. "
            f"Fix the checkpointer, or set recover=False to repair without it."
        )
        failed.__cause__ = error
        if reader.required:
            raise failed from error
        reader.error = reader.error or failed
        return None


def read_until(
    is_enough: Callable[[CheckpointTuple], bool],
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    arguments: dict[str, Any],
) -> IOGenerator[bool]:
    """List checkpoints, newest first, and close the listing as soon as one is enough.

    Args:
        is_enough: Receives each checkpoint. Returns whether no more is needed.
        saver: The checkpointer.
        config: The thread and the namespace.
        arguments: The other arguments of the checkpointer's `list`.

    Returns:
        Whether one was enough.
    """

    def read() -> bool:
        found: Any = saver.list(config, **arguments)
        with closing(found) if hasattr(found, "close") else nullcontext():
            return any(is_enough(saved) for saved in found)

    async def aread() -> bool:
        found: Any = saver.alist(config, **arguments)
        async with aclosing(found):
            async for saved in found:
                if is_enough(saved):
                    return True
        return False

    found: bool = yield IORequest(read, aread)
    return found
