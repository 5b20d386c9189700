"""Read supersteps from a checkpointer, and bound how much one search may read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph_storage import whole_value
from langgraph_patch._sansio import IOGenerator, IORequest, method_request
from langgraph_patch.errors import EvidenceError, MessagesError
from langgraph_patch.evidence.address import Address
from langgraph_patch.evidence.superstep import Superstep, superstep_of
from langgraph_patch.evidence.writes import fold
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.patch import as_messages

_BUDGET = 100_000
"""How many stored messages one search may load for all its calls: 3 to 5 seconds at most."""

_EACH_CHECKPOINT = 100
"""What a query costs beside the messages that it loads, in messages."""


@dataclass(slots=True)
class Reader:
    """A checkpointer and what all queries of a search share.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        required: Whether to raise if the checkpointer raises. Otherwise the search ends there.
        breakpoints: The nodes before which the graph is set to pause; None for every node.
        budget: How many more messages the search may load.
        error: The first error of the checkpointer, or None.
    """

    saver: BaseCheckpointSaver[Any]
    messages_key: str
    required: bool = False
    breakpoints: frozenset[str] | None = frozenset()
    budget: int = _BUDGET
    error: EvidenceError | None = None

    def read(
        self, address: Address, child: Superstep | None = None
    ) -> IOGenerator[Superstep | None]:
        """The superstep after a checkpoint; None if there is no such checkpoint.

        Args:
            address: The checkpoint, or the newest one of its namespace.
            child: The superstep after the next checkpoint of this branch, if there is one.
        """
        request = method_request(self.saver, "get_tuple", address.config)
        saved = yield from self._ask(address, request)
        return None if saved is None else (yield from self._superstep(saved, child))

    def read_older(self, step: Superstep) -> IOGenerator[Superstep | None]:
        """The superstep before one in its branch.

        None if there is none, or if nothing more may be read.
        """
        parent, parent_id = step.saved.parent_config, step.parent_id
        is_spent = self.budget <= 0 or self.error is not None
        # A checkpoint may name itself as its parent.
        if is_spent or parent is None or parent_id is None or parent_id >= step.id:
            return None
        return (yield from self.read(Address.of(parent), step))

    def read_input(self, step: Superstep) -> IOGenerator[Superstep | None]:
        """The superstep of the newest input that a graph got before one; None without one."""

        def is_wanted(saved: CheckpointTuple) -> bool:
            return saved.checkpoint["id"] < step.id and saved.metadata.get("source") == "input"

        options: Any = {"before": step.saved.config, "filter": {"source": "input"}}
        saved = yield from self._first(step, is_wanted, limit=1, **options)
        return None if saved is None else (yield from self._superstep(saved))

    def has_gone_on(self, step: Superstep) -> IOGenerator[bool]:
        """Whether what the tasks of a superstep wrote was applied, in any branch."""

        def is_wanted(saved: CheckpointTuple) -> bool:
            parent = (saved.parent_config or {}).get("configurable", {}).get("checkpoint_id")
            return parent == step.id and saved.metadata.get("source") == "loop"

        options: Any = {"filter": {"source": "loop", "step": step.number + 1}}
        return (yield from self._first(step, is_wanted, **options)) is not None

    def _superstep(
        self, saved: CheckpointTuple, child: Superstep | None = None
    ) -> IOGenerator[Superstep]:
        history = yield from self._history_at(saved)
        self.budget -= len(history) + _EACH_CHECKPOINT
        return superstep_of(saved, self.messages_key, history, child)

    def _history_at(self, saved: CheckpointTuple) -> IOGenerator[list[BaseMessage]]:
        """The history at a checkpoint; empty if the state has none, or something else there."""
        key, writes = self.messages_key, list[Any]()
        stored = saved.checkpoint["channel_values"].get(key)
        if stored is None and key in saved.checkpoint["channel_versions"]:  # a `DeltaChannel`
            request = method_request(
                self.saver, "get_delta_channel_history", config=saved.config, channels=[key]
            )
            found = yield from self._ask(Address.of(saved.config), request)
            delta = found[key] if found else {}
            stored, writes = delta.get("seed"), [value for *_, value in delta.get("writes", ())]
        try:
            history = [] if stored is None else as_messages(whole_value(stored))
            history = fold(history, writes) if writes else history
            return [corrected(message) for message in history]
        except MessagesError:
            return []  # an older version of the application stored something else there

    def _first(
        self, step: Superstep, is_wanted: Callable[[CheckpointTuple], bool], **options: Any
    ) -> IOGenerator[CheckpointTuple | None]:
        """The first wanted checkpoint of a listing of the namespace of a superstep.

        Not every checkpointer knows all options of `list`.
        """
        newest = step.address.newest

        def read() -> CheckpointTuple | None:
            return next(filter(is_wanted, self.saver.list(newest.config, **options)), None)

        async def aread() -> CheckpointTuple | None:
            listing: Any = self.saver.alist(newest.config, **options)
            async with aclosing(listing):  # a database keeps no cursor open
                return await anext((each async for each in listing if is_wanted(each)), None)

        found: CheckpointTuple | None = yield from self._ask(newest, IORequest(read, aread))
        return found

    def _ask(self, address: Address, request: IORequest) -> IOGenerator[Any]:
        """What a query returns; None if the checkpointer raised."""
        try:
            return (yield request)
        except Exception as error:  # of any checkpointer: unreadable evidence never ends a run
            failed = EvidenceError(
                f"Thread {address.thread_id!r}: the checkpointer raised {error!r} while the "
                f"checkpoints of namespace {address.namespace!r} were read. Fix the checkpointer, "
                f"or set recover=False to repair without it."
            )
            failed.__cause__ = error
            if self.required:
                raise failed from error
            self.error = self.error or failed
            return None
