"""Read a stored checkpoint without the graph that wrote it: its history, its pause and its age.

`get_state()` applies the pending writes of finished tasks. The next message discards them, so
`get_state()` would hide that they are lost. This module reads the state as the next run finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import get_ident
from typing import Any, Final, Literal, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.event_hooks import register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch.errors import ThreadError
from langgraph_patch.evidence.superstep import fold, superstep_of, written_messages
from langgraph_patch.history.messages import as_messages
from langgraph_patch.threads.stores import server_of

MARK: Final = {"langgraph_patch": "repair"}
"""The metadata of a checkpoint that a repair wrote."""

_FIRST_OF_TODAY = 3
"""The first format of a checkpoint whose nodes are started by `branch:to:<node>`."""

_OLD_PREFIXES = ("start:", "branch:")

_SERIALIZER = JsonPlusSerializer(pickle_fallback=True)
"""LangGraph's own; it is only used to write."""

_NO_RESULT = frozenset((INTERRUPT, RESUME, ERROR, storage.ERROR_SOURCE))
"""A write to one of these channels does not show that a task finished."""


# --- a stored history --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """A history as a checkpoint stores it.

    Attributes:
        saver: The checkpointer.
        saved: The checkpoint.
        messages_key: The state key of the history. Default: `"messages"`.
        not_loaded: The classes in the checkpoint that LangGraph's serializer did not load.
    """

    saver: BaseCheckpointSaver[Any]
    saved: CheckpointTuple
    messages_key: str = "messages"
    not_loaded: Sequence[str] = ()

    @classmethod
    def newest(
        cls, saver: BaseCheckpointSaver[Any], address: Address, messages_key: str = "messages"
    ) -> StoredHistory:
        """Read the newest checkpoint.

        Raises:
            ThreadError: If there is no such thread.
        """
        load = partial(storage.load_newest, address.newest)
        if found := cls.loaded(saver, load, messages_key):
            return found
        where = f" in namespace {address.namespace!r}" if address.namespace else ""
        raise ThreadError(f"There is no thread {address.thread_id!r}{where}.")

    @classmethod
    def loaded(
        cls, saver: BaseCheckpointSaver[Any], load: storage.Loader, messages_key: str = "messages"
    ) -> StoredHistory | None:
        """The history in a checkpoint that is loaded; None if there is none."""
        with classes_not_loaded() as blocked:
            saved = load(saver)
        return cls(saver, saved, messages_key, sorted(blocked)) if saved else None

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
        try:
            tasks = step.tasks
        except Exception:  # noqa: BLE001 - any: what is stored may name what no graph can have
            return {}
        found: dict[str, str] = {}
        for task in tasks:
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


@contextmanager
def classes_not_loaded() -> Iterator[set[str]]:
    """The classes that LangGraph's serializer does not load meanwhile, as `module:name`."""
    own, blocked = get_ident(), set[str]()

    def note(event: Mapping[str, Any]) -> None:
        # A listener hears of every conversation that the process loads.
        if get_ident() == own and event["kind"] == "msgpack_blocked":
            blocked.add(f"{event['module']}:{event['name']}")

    unregister = register_serde_event_listener(cast("Any", note))
    try:
        yield blocked
    finally:
        unregister()


def age_of(written: datetime | None) -> float:
    """The seconds since a checkpoint was written; 0 if that is not known, negative if ahead."""
    return (datetime.now(UTC) - written).total_seconds() if written else 0.0


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


# --- equal contents -----------------------------------------------------------------------------


def are_equal(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two histories have messages with equal contents, in whatever order their keys are.

    `==` raises an error for arrays and data frames in an artifact, and it is false for NaN.

    Examples:
        >>> from langchain_core.messages import ToolMessage
        >>> from langgraph_patch.threads.read import are_equal
        >>> one, other = (
        ...     ToolMessage("r", tool_call_id="c", artifact=float("nan")) for _ in range(2)
        ... )
        >>> one == other, are_equal([one], [other])
        (False, True)
    """
    return len(some) == len(others) and all(
        type(one) is type(other) and _contents(one) == _contents(other)
        for one, other in zip(some, others, strict=True)
    )


def _contents(message: BaseMessage) -> Any:
    fields = {**vars(message), **(message.model_extra or {})}
    return _SERIALIZER.dumps_typed(_in_order(fields))


def _in_order(value: Any) -> Any:
    """A stored value with the keys of its mappings in order, and lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: _in_order(value[key]) for key in sorted(value, key=str)}
    return [*map(_in_order, value)] if isinstance(value, list | tuple) else value
