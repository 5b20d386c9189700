"""Query a checkpointer: which checkpoints to list, and how many queries one search may make."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.checkpoint_messages import Checkpoint, configured_id

_MAX_QUERIES = 64
"""For all calls of a search together, so that a thread with damage everywhere costs no more."""

_NEWEST = 8
"""How many checkpoints are listed first. Damage is nearly always found there."""

_WAIT_SECONDS = 1.0
"""How long a search waits for the current checkpoint, which durability "async" writes later."""

_POLL_SECONDS = 0.01

MAX_SUBGRAPH_CHECKPOINTS = 1000
"""How many checkpoints of the subgraphs of one superstep are listed."""


@dataclass(slots=True)
class CheckpointReader:
    """A checkpointer and what all queries of a search share.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        queries_left: How many more queries the search may make. After that, it finds nothing.
    """

    saver: BaseCheckpointSaver[Any]
    messages_key: str
    queries_left: int = _MAX_QUERIES


def list_checkpoints(
    reader: CheckpointReader,
    config: RunnableConfig,
    limit: int,
    *,
    metadata: dict[str, Any] | None = None,
    before: Checkpoint | None = None,
) -> IOGenerator[list[Checkpoint]]:
    """List checkpoints, newest first; an empty list if no query is left.

    Args:
        reader: The checkpointer.
        config: The thread, and the namespace (all namespaces if it names none).
        limit: How many checkpoints at most.
        metadata: What the metadata of the checkpoints must contain.
        before: List only checkpoints older than this one.

    Raises:
        EvidenceError: If the checkpointer raises.
    """
    if not reader.queries_left:
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
) -> IOGenerator[list[Checkpoint]]:
    """List the checkpoints of all subgraphs that ran in the superstep after a checkpoint.

    Args:
        reader: The checkpointer.
        config: The thread and the namespace of the checkpoint.
        checkpoint: The checkpoint.
        **metadata: What the metadata of the subgraphs' checkpoints must contain.
    """
    configurable = dict(config["configurable"])
    namespace = configurable.pop("checkpoint_ns")
    parents = {**checkpoint.saved.metadata.get("parents", {}), namespace: checkpoint.id}
    everywhere = RunnableConfig(configurable=configurable)
    wanted = {"parents": parents, **metadata}
    found = list_checkpoints(reader, everywhere, MAX_SUBGRAPH_CHECKPOINTS, metadata=wanted)
    return (yield from found)


def _reaches(page: list[Checkpoint], current: str) -> bool:
    return bool(page) and page[0].id >= current


def _wait_for(
    reader: CheckpointReader, config: RunnableConfig, current: str
) -> IOGenerator[list[Checkpoint]]:
    """List the newest checkpoints as soon as the current one is written; [] if it never is.

    These queries do not count: each reads a single checkpoint.
    """
    waited = 0.0
    while waited < _WAIT_SECONDS:
        waited += _POLL_SECONDS
        yield IORequest(lambda: time.sleep(_POLL_SECONDS), lambda: asyncio.sleep(_POLL_SECONDS))
        if _reaches((yield from _list(reader, config, 1)), current):
            return (yield from _list(reader, config, _NEWEST))
    return []


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
        found: list[CheckpointTuple] = yield IORequest(
            lambda: list(reader.saver.list(config, **arguments)),
            lambda: _listed(reader.saver, config, arguments),
        )
    except Exception as error:
        raise _error(error, config, arguments) from error
    return [Checkpoint(saved, reader.messages_key) for saved in found]


async def _listed(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, arguments: dict[str, Any]
) -> list[CheckpointTuple]:
    return [saved async for saved in saver.alist(config, **arguments)]


def _error(error: Exception, config: RunnableConfig, arguments: dict[str, Any]) -> EvidenceError:
    configurable = config["configurable"]
    return EvidenceError(
        f"Thread {configurable.get('thread_id')!r}: the checkpointer raised {error!r} while it "
        f"listed {arguments['limit']} checkpoints of namespace "
        f"{configurable.get('checkpoint_ns', 'any')!r} (filter {arguments['filter']!r}, before "
        f"{configured_id(arguments['before'])!r}). Nothing was repaired. Fix the checkpointer, "
        f"or set recover=False to repair without it."
    )
