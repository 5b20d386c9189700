"""A repair is rehearsed before it is written.

`Rehearsal` stands in for the application's checkpointer. It reads through, from one fixed
checkpoint, and keeps what is written to itself. So the application's graph makes the new
checkpoints with its own reducers and types, they can be looked at, and only then are they
put into the database.

Their ids follow directly upon the id of the checkpoint that was repaired. A thread's newest
checkpoint is the one with the highest id: whatever an application writes at the same time
is later, and wins. Nothing that it writes can be hidden by a repair.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)

from langgraph_patch._sansio import IOGenerator, call_method
from langgraph_patch.threads.checkpoint_state import id_of


@dataclass(frozen=True, slots=True)
class _Put:
    """One checkpoint, as the saver shall receive it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    stored: tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class _Writes:
    """The writes of one task, as the saver shall receive them."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task_id: str
    task_path: str


_OF_STEPS = ("branch:", "__")  # what starts nodes, not what they keep


class Rehearsal(BaseCheckpointSaver[Any]):
    """A checkpointer that shows a thread as it was at `base`, and writes to itself only.

    Args:
        saver: The real checkpointer.
        base: The checkpoint that is repaired.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], base: CheckpointTuple) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._base = base
        self._acts: list[_Put | _Writes] = []
        self._raised: list[Exception] = []  # by the real checkpointer

    # --- what was rehearsed --------------------------------------------------------------

    def mark(self) -> int:
        """A point to `rewind` to."""
        return len(self._acts)

    def rewind(self, mark: int) -> None:
        """Forget what was rehearsed since `mark`."""
        del self._acts[mark:]

    def squash(self, channels: Container[str], whole: Mapping[str, Any]) -> None:
        """Make one checkpoint of all: a repair that nobody can see half done.

        Args:
            channels: Those of the graph. What others stored beside them is kept: LangGraph
                keeps the versions of such values, and drops the values.
            whole: The values that are spread over the writes of many checkpoints
                (`DeltaChannel` state). One that stands in a checkpoint is read from there.
        """
        last = self._puts[-1]
        others = {
            key: value
            for key, value in self._base.checkpoint["channel_values"].items()
            if key not in channels and not key.startswith(_OF_STEPS)
        }
        values = {**others, **last.checkpoint["channel_values"], **whole}
        checkpoint: Checkpoint = {**last.checkpoint, "channel_values": values}
        before = self._base.checkpoint["channel_versions"]
        after = last.checkpoint["channel_versions"]
        one = replace(
            last,
            config={
                **last.config,
                "configurable": {**last.config["configurable"], "checkpoint_id": id_of(self._base)},
            },
            checkpoint=_with_id(checkpoint, self._nth_id(checkpoint, 1)),
            metadata={**last.metadata, "step": self._base.metadata.get("step", -1) + 1},
            new_versions={k: v for k, v in after.items() if v != before.get(k)},
        )
        self._acts = [one]

    @property
    def checkpoint_id(self) -> str:
        """The id of the newest of the new checkpoints."""
        return self._puts[-1].checkpoint["id"]

    def has_raised(self, error: Exception) -> bool:
        """Whether it came from the real checkpointer, and not from the graph."""
        return any(error is each for each in self._raised)

    def perform(self) -> IOGenerator[None]:
        """Write to the real checkpointer what was rehearsed."""
        for act in self._acts:
            if isinstance(act, _Put):
                yield from call_method(
                    self._saver, "put", act.config, act.checkpoint, act.metadata, act.new_versions
                )
            else:
                path = [act.task_path] if act.task_path else []
                yield from call_method(
                    self._saver, "put_writes", act.config, act.writes, act.task_id, *path
                )

    # --- as a checkpointer ---------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names."""
        with self._noting():
            return self._mine(config) or self._at_base(self._saver.get_tuple(self._theirs(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        with self._noting():
            mine = self._mine(config)
            return mine or self._at_base(await self._saver.aget_tuple(self._theirs(config)))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint, under an id that follows upon the last one."""
        checkpoint = _with_id(checkpoint, self._nth_id(checkpoint, len(self._puts) + 1))
        stored = self.serde.dumps_typed(checkpoint)
        self._acts.append(_Put(config, checkpoint, metadata, new_versions, stored))
        return _config_of(config, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep the writes of a task."""
        self._acts.append(_Writes(config, list(writes), task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`."""
        self.put_writes(config, writes, task_id, task_path)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """As the real checkpointer counts."""
        with self._noting():
            return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Rehearsal:
        """The same rehearsal, over a checkpointer that also loads these classes."""
        clone = copy.copy(self)
        clone._saver = self._saver.with_allowlist(extra_allowlist)  # noqa: SLF001 - of this class
        clone.serde = clone._saver.serde  # noqa: SLF001 - as above
        return clone

    # --- inside --------------------------------------------------------------------------

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._raised.append(error)
            raise

    @property
    def _puts(self) -> list[_Put]:
        return [act for act in self._acts if isinstance(act, _Put)]

    def _mine(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A rehearsed checkpoint, read as the database would give it; None if it is not mine."""
        puts = self._puts if self._is_here(config) else []
        wanted = get_checkpoint_id(config) or (puts[-1].checkpoint["id"] if puts else None)
        for put in puts:
            if put.checkpoint["id"] == wanted:
                parent = get_checkpoint_id(put.config)
                return CheckpointTuple(
                    config=_config_of(put.config, wanted),
                    checkpoint=self.serde.loads_typed(put.stored),
                    metadata=put.metadata,
                    parent_config=_config_of(put.config, parent) if parent else None,
                    pending_writes=[
                        (act.task_id, channel, value)
                        for act in self._acts
                        if isinstance(act, _Writes) and get_checkpoint_id(act.config) == wanted
                        for channel, value in act.writes
                    ],
                )
        return None

    def _theirs(self, config: RunnableConfig) -> RunnableConfig:
        """`config`, with the newest checkpoint held fast: the thread may move on meanwhile."""
        if self._is_here(config) and not get_checkpoint_id(config):
            return self._base.config
        return config

    def _at_base(self, saved: CheckpointTuple | None) -> CheckpointTuple | None:
        if saved is not None and saved.config == self._base.config:
            return saved._replace(pending_writes=self._base.pending_writes)
        return saved

    def _is_here(self, config: RunnableConfig) -> bool:
        namespace = config["configurable"].get("checkpoint_ns", "")
        return bool(namespace == self._base.config["configurable"].get("checkpoint_ns", ""))

    def _nth_id(self, checkpoint: Checkpoint, n: int) -> str:
        return _later(id_of(self._base), n) or checkpoint["id"]


def _with_id(checkpoint: Checkpoint, checkpoint_id: str) -> Checkpoint:
    return {**checkpoint, "id": checkpoint_id}


def _config_of(config: RunnableConfig, checkpoint_id: str | None) -> RunnableConfig:
    place = config["configurable"]
    return {
        "configurable": {
            "thread_id": place["thread_id"],
            "checkpoint_ns": place.get("checkpoint_ns", ""),
            "checkpoint_id": checkpoint_id,
        }
    }


def _later(checkpoint_id: str, ticks: int) -> str | None:
    """A checkpoint id that is `ticks` times 100 ns later; None if it is none of LangGraph's."""
    try:
        known = uuid.UUID(checkpoint_id)
    except ValueError:
        return None
    if known.version != 6:  # noqa: PLR2004 - uuid6, whose order is that of time
        return None
    high, low = known.int >> 80, (known.int >> 64) & 0xFFF
    time = (high << 12 | low) + ticks
    return str(
        uuid.UUID(int=(time >> 12) << 80 | 6 << 76 | (time & 0xFFF) << 64 | known.int & (2**64 - 1))
    )
