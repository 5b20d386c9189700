"""A checkpointer that keeps writes to itself until they are checked.

`StagingSaver` replaces the application's checkpointer while a thread is repaired. It reads
through it, from one fixed checkpoint, and keeps new checkpoints in memory. So the application's
graph makes them with its own reducers and types, they can be checked, and only then does
`commit` write them to the database.

The ids of the new checkpoints follow directly on the id of the checkpoint that is repaired. The
newest checkpoint of a thread is the one with the highest id. So a checkpoint that the application
writes at the same time has a higher id and takes precedence: a repair never hides it.
"""

from __future__ import annotations

import copy
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

from langgraph_patch._langgraph_storage import is_reserved, later_checkpoint_id, triggered_node
from langgraph_patch._sansio import IOGenerator, call_method


@dataclass(frozen=True, slots=True)
class _StagedCheckpoint:
    """The arguments of a `put`, and the checkpoint as the serializer stores it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    stored: tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class _StagedWrites:
    """The arguments of a `put_writes`."""

    config: RunnableConfig
    writes: Sequence[tuple[str, Any]]
    task_id: str


class StagingSaver(BaseCheckpointSaver[Any]):
    """A checkpointer that shows a thread as it was at `base` and keeps writes to itself.

    Args:
        saver: The checkpointer of the application.
        base: The checkpoint that is repaired.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any], base: CheckpointTuple) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._base = base
        self._staged: list[_StagedCheckpoint | _StagedWrites] = []
        self._errors: list[Exception] = []

    # --- the staged writes ---------------------------------------------------------------

    def mark(self) -> int:
        """The current point, for `rewind`."""
        return len(self._staged)

    def rewind(self, mark: int) -> None:
        """Drop what was staged since `mark`."""
        del self._staged[mark:]

    def merge(self, channels: Container[str], whole_values: Mapping[str, Any]) -> None:
        """Merge the staged checkpoints into one, so that nobody reads a half-finished repair.

        Args:
            channels: The channels of the graph. The values of other channels come from the
                base: LangGraph keeps their versions and drops their values.
            whole_values: The values of `DeltaChannel` state, which would otherwise be spread
                over the staged checkpoints.
        """
        last = self._checkpoints[-1]
        foreign = {
            key: value
            for key, value in self._base.checkpoint["channel_values"].items()
            if key not in channels and not is_reserved(key) and triggered_node(key) is None
        }
        values = {**foreign, **last.checkpoint["channel_values"], **whole_values}
        checkpoint: Checkpoint = {**last.checkpoint, "channel_values": values}
        before = self._base.checkpoint["channel_versions"]
        after = last.checkpoint["channel_versions"]
        configurable = {**last.config["configurable"], "checkpoint_id": self._base.checkpoint["id"]}
        merged = replace(
            last,
            config={**last.config, "configurable": configurable},
            checkpoint=self._renumbered(checkpoint, 1),
            metadata={**last.metadata, "step": self._base.metadata.get("step", -1) + 1},
            new_versions={k: v for k, v in after.items() if v != before.get(k)},
        )
        self._staged[:] = [merged]

    @property
    def checkpoint_id(self) -> str:
        """The id of the newest staged checkpoint."""
        return self._checkpoints[-1].checkpoint["id"]

    def commit(self) -> IOGenerator[None]:
        """Write the merged checkpoint to the application's checkpointer."""
        for staged in self._checkpoints:
            yield from call_method(
                self._saver,
                "put",
                staged.config,
                staged.checkpoint,
                staged.metadata,
                staged.new_versions,
            )

    def has_raised(self, error: Exception) -> bool:
        """Whether the application's checkpointer raised the error, and not the graph."""
        return any(error is each for each in self._errors)

    # --- as a checkpointer ---------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, staged or stored."""
        with self._note_errors():
            staged = self._staged_tuple(config)
            return staged or self._as_of_base(self._saver.get_tuple(self._pinned(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the same as `get_tuple`."""
        with self._note_errors():
            staged = self._staged_tuple(config)
            return staged or self._as_of_base(await self._saver.aget_tuple(self._pinned(config)))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stage a checkpoint, under the id that follows the last one."""
        checkpoint = self._renumbered(checkpoint, len(self._checkpoints) + 1)
        stored = self.serde.dumps_typed(checkpoint)
        self._staged.append(_StagedCheckpoint(config, checkpoint, metadata, new_versions, stored))
        return _config_of(config, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stage a checkpoint, as `put` does."""
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",  # noqa: ARG002 - of the interface; staged writes are never stored
    ) -> None:
        """Stage the writes of a task."""
        self._staged.append(_StagedWrites(config, list(writes), task_id))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stage the writes of a task, as `put_writes` does."""
        self.put_writes(config, writes, task_id, task_path)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version that the application's checkpointer would use."""
        with self._note_errors():
            return self._saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> StagingSaver:
        """Return a copy that also loads these classes and shares the staged writes."""
        clone = copy.copy(self)
        clone._saver = self._saver.with_allowlist(extra_allowlist)  # noqa: SLF001 - of this class
        clone.serde = clone._saver.serde  # noqa: SLF001 - as above
        return clone

    # --- reading -------------------------------------------------------------------------

    @contextmanager
    def _note_errors(self) -> Iterator[None]:
        """Note what the application's checkpointer raises."""
        try:
            yield
        except Exception as error:  # any: it is raised again
            self._errors.append(error)
            raise

    @property
    def _checkpoints(self) -> list[_StagedCheckpoint]:
        return [each for each in self._staged if isinstance(each, _StagedCheckpoint)]

    def _staged_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A staged checkpoint, as the database would return it; None if it is not staged."""
        staged = self._checkpoints if self._is_repaired_namespace(config) else []
        wanted = get_checkpoint_id(config) or (staged[-1].checkpoint["id"] if staged else None)
        for each in staged:
            if each.checkpoint["id"] == wanted:
                parent = get_checkpoint_id(each.config)
                return CheckpointTuple(
                    config=_config_of(each.config, wanted),
                    checkpoint=self.serde.loads_typed(each.stored),
                    metadata=each.metadata,
                    parent_config=_config_of(each.config, parent) if parent else None,
                    pending_writes=self._pending_writes(wanted),
                )
        return None

    def _pending_writes(self, checkpoint_id: str) -> list[tuple[str, str, Any]]:
        return [
            (each.task_id, channel, value)
            for each in self._staged
            if isinstance(each, _StagedWrites) and get_checkpoint_id(each.config) == checkpoint_id
            for channel, value in each.writes
        ]

    def _pinned(self, config: RunnableConfig) -> RunnableConfig:
        """`config`, at the base instead of the newest checkpoint, which may change meanwhile."""
        if self._is_repaired_namespace(config) and not get_checkpoint_id(config):
            return self._base.config
        return config

    def _as_of_base(self, saved: CheckpointTuple | None) -> CheckpointTuple | None:
        """A stored checkpoint; the base has the pending writes with which the repair began."""
        if saved is not None and saved.config == self._base.config:
            return saved._replace(pending_writes=self._base.pending_writes)
        return saved

    def _is_repaired_namespace(self, config: RunnableConfig) -> bool:
        namespace = config["configurable"].get("checkpoint_ns", "")
        return bool(namespace == self._base.config["configurable"].get("checkpoint_ns", ""))

    def _renumbered(self, checkpoint: Checkpoint, number: int) -> Checkpoint:
        """The checkpoint with the id of the `number`th after the base."""
        checkpoint_id = later_checkpoint_id(self._base.checkpoint["id"], number) or checkpoint["id"]
        return {**checkpoint, "id": checkpoint_id}


def _config_of(config: RunnableConfig, checkpoint_id: str | None) -> RunnableConfig:
    configurable = config["configurable"]
    return {
        "configurable": {
            "thread_id": configurable["thread_id"],
            "checkpoint_ns": configurable.get("checkpoint_ns", ""),
            "checkpoint_id": checkpoint_id,
        }
    }
