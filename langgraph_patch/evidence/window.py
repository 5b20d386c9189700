"""Read the supersteps in which the calls of a message may have run.

A `Reader` reads supersteps from a checkpointer, and bounds how much one search may read.

The window of a message begins with the superstep that wrote it, and has each later superstep in
which it was the last message that is no result, or whose tasks name one of its calls. It is read
backwards from the current checkpoint: a checkpoint whose history does not have the message ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import dropwhile, groupby
from operator import attrgetter
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_patch._langgraph import storage
from langgraph_patch._langgraph.address import Address
from langgraph_patch._langgraph.nodes import NO_NODES, Nodes
from langgraph_patch._sansio import IOGenerator, IORequest, method_request
from langgraph_patch._text import quoted
from langgraph_patch.errors import EvidenceError, MessagesError
from langgraph_patch.evidence.superstep import Superstep, Task, fold, superstep_of
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.comparing import is_equal
from langgraph_patch.history.fields import corrected
from langgraph_patch.history.messages import as_messages

# --- supersteps -------------------------------------------------------------------------------

_BUDGET = 100_000
"""How many stored messages one search may load for all its calls: 3 to 5 seconds at most."""

_EACH_CHECKPOINT = 100
"""What a query costs beside the messages that it loads, in messages."""


_MOST_STARTS = 20
"""From how many older checkpoints one search starts: real placeholders name one or two."""


@dataclass(slots=True)
class Reader:
    """A checkpointer and what all queries of a search share.

    Attributes:
        saver: The checkpointer.
        messages_key: The state key of the history.
        required: Whether to raise if the checkpointer raises. Otherwise the search ends there.
        nodes: The nodes of the running graph; none are known of a thread that is only stored.
        seen: A checkpoint that was read a moment ago: it is used once, in place of a query.
        budget: How many more messages the search may load.
        error: The first error of the checkpointer, or None.
    """

    saver: BaseCheckpointSaver[Any]
    messages_key: str
    required: bool = False
    nodes: Nodes = NO_NODES
    seen: CheckpointTuple | None = None
    budget: int = _BUDGET
    error: EvidenceError | None = None

    def read(
        self, address: Address, following: Superstep | None = None
    ) -> IOGenerator[Superstep | None]:
        """The superstep after a checkpoint; None if there is no such checkpoint.

        Args:
            address: The checkpoint, or the newest one of its namespace.
            following: The next superstep of this branch. Default: none is known.
        """
        saved = yield from self.read_saved(address)
        return None if saved is None else (yield from self._superstep(saved, following))

    def read_saved(self, address: Address) -> IOGenerator[CheckpointTuple | None]:
        """A checkpoint as it is stored, with its pending writes; None if there is none."""
        if self.seen is not None and Address.of(self.seen.config) == address:
            saved, self.seen = self.seen, None
            return saved
        request = method_request(self.saver, "get_tuple", address.config)
        found: CheckpointTuple | None = yield from self._ask(address, request)
        return found

    def read_all(self, address: Address) -> IOGenerator[list[CheckpointTuple]]:
        """All checkpoints of a namespace, as they are stored, with their pending writes."""
        return (yield from self._ask(address, all_of(self.saver, address))) or []

    def read_older(self, step: Superstep) -> IOGenerator[Superstep | None]:
        """The superstep before one in its branch.

        None if there is none, or if nothing more may be read.
        """
        parent, is_spent = step.parent, self.budget <= 0 or self.error is not None
        # A checkpoint may name itself as its parent.
        if is_spent or parent is None or not "" < (parent.checkpoint_id or "") < step.id:
            return None
        return (yield from self.read(parent, step))

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

        options: Any = {"filter": {"source": "loop", "step": step.number}}
        return (yield from self._first(step, is_wanted, **options)) is not None

    def _superstep(
        self, saved: CheckpointTuple, following: Superstep | None = None
    ) -> IOGenerator[Superstep]:
        history = yield from self._history_at(saved)
        self.budget -= len(history) + _EACH_CHECKPOINT
        return superstep_of(saved, self.messages_key, history, following)

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
            history = [] if stored is None else as_messages(storage.whole_value(stored))
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
                f"Thread {address.thread_id!r}: the checkpointer raised {quoted(error)} while "
                f"the checkpoints of namespace {address.namespace!r} were read. Fix the "
                f"checkpointer, or set recover=False to repair without it."
            )
            failed.__cause__ = error
            if self.required:
                raise failed from error
            self.error = self.error or failed
            return None


def all_of(saver: BaseCheckpointSaver[Any], address: Address) -> IORequest:
    """Read all checkpoints of a namespace."""

    async def read() -> list[CheckpointTuple]:
        return [each async for each in saver.alist(address.newest.config)]

    return IORequest(lambda: [*saver.list(address.newest.config)], read)


# --- the window of a message ------------------------------------------------------------------


def is_version(stored: BaseMessage, message: BaseMessage) -> bool:
    """Whether a stored message is `message`, as it is now or as it was before an edit."""
    if stored.id is not None and message.id is not None:
        return stored.id == message.id
    # A write may be older than the id that the reducer gave its message.
    same_type = type(stored) is type(message)
    return same_type and is_equal(stored.model_copy(update={"id": message.id}), message)


@dataclass(frozen=True, slots=True, eq=False)
class Sighting:
    """A message in one superstep.

    Attributes:
        step: The superstep.
        calls: The calls of the message as it was stored then.
        is_pending: Whether nothing but results followed it.
        rivals: The open calls of other messages: a task of the superstep may have run them too.
    """

    step: Superstep
    calls: Sequence[Call]
    is_pending: bool
    rivals: Sequence[Call]


@dataclass(slots=True, eq=False)
class Window:
    """What was read of one message.

    Attributes:
        message: The message.
        calls: Its calls to search for.
        sightings: The message in each superstep of its window; the oldest first, once it was read.
        start: The checkpoint at which an earlier turn searched for its calls; `""` if none did.
            What follows it is about other calls.
        equals: How many equal messages without an id are before it in the history.
        origin: The superstep that wrote the message, if it was read.
    """

    message: AIMessage
    calls: Sequence[Call]
    start: str = ""
    equals: int = 0
    sightings: list[Sighting] = field(default_factory=list)
    origin: Superstep | None = None

    @property
    def writer(self) -> Task | None:
        """The task of its origin that wrote the message; None if START did, with an input."""
        if self.origin is None or self.origin.source_before == "input":
            return None
        tasks = [*self.origin.tasks, *self.origin.others]
        return next((task for task in tasks if self.versions_in(task.messages)), None)

    def versions_in(self, messages: Sequence[BaseMessage]) -> list[int]:
        """The indexes of the message, and of messages that are equal to it, among messages."""
        return [i for i, m in enumerate(messages) if is_version(m, self.message)]

    def place_in(self, history: Sequence[BaseMessage]) -> int | None:
        """The index of the message in a history; of equal messages, always the same one."""
        return next(iter(self.versions_in(history)[self.equals :]), None)


def windows_of(
    messages: Sequence[BaseMessage],
    calls: Iterable[Call],
    searched_at: Mapping[tuple[int, int], str],
) -> list[Window]:
    """A window for each message that makes one of the calls, in the order of the calls.

    Args:
        messages: The history.
        calls: The calls.
        searched_at: The checkpoint at which an earlier turn searched for a call, if it did.
    """
    windows = []
    for index, same in groupby((call for call in calls if call.id), attrgetter("index")):
        if isinstance(message := messages[index], AIMessage):
            own = list(same)
            start, *others = {searched_at.get(call.key, "") for call in own}
            window = Window(message, own, "" if others else start)
            if message.id is None:
                window.equals = len(window.versions_in(messages[:index]))
            windows.append(window)
    return windows


def _starts(
    reader: Reader, newest: Superstep | None, windows: Sequence[Window]
) -> IOGenerator[list[tuple[Superstep | None, list[Window]]]]:
    """The supersteps from which windows are read, each with its windows.

    A history that was copied from another thread names a checkpoint of that one, and one that a
    client posted any number of them: such windows are read from the newest superstep, together.
    """
    by_start: dict[str, list[Window]] = {"": []}
    for window in windows:
        by_start.setdefault(window.start, []).append(window)
    own, found = by_start.pop(""), list[tuple[Superstep | None, list[Window]]]()
    for number, (start, those) in enumerate(by_start.items()):
        step = None
        if newest is not None and newest.id != start and number < _MOST_STARTS:
            step = yield from reader.read(newest.address.at(newest.namespace, start))
        if step is None:
            own += those
        else:
            found.append((step, those))
    return [(newest, own), *found]


def read_windows(
    reader: Reader, address: Address, windows: Sequence[Window]
) -> IOGenerator[Superstep | None]:
    """Read the windows of messages.

    Args:
        reader: The checkpointer.
        address: The current checkpoint.
        windows: The windows. What is read is added to them.

    Returns:
        The superstep after the current checkpoint; None if there is no checkpoint.
    """
    newest = yield from reader.read(address)
    for first, those in (yield from _starts(reader, newest, windows)):
        step, unfinished = first, those
        while step is not None and unfinished:
            unfinished = _add_sightings(step, unfinished)
            step = (yield from reader.read_older(step)) if unfinished else None
    for window in windows:
        window.sightings.reverse()
    return newest


def _add_sightings(step: Superstep, windows: Iterable[Window]) -> list[Window]:
    """Add the messages as they are in one superstep; return the windows that go on before it."""
    history = step.history
    indexes: dict[str | None, int] = {
        m.id: index for index, m in enumerate(history) if m.id is not None
    }
    end = max((i for i, m in enumerate(history) if not isinstance(m, ToolMessage)), default=None)
    named = _named_in(step)
    unfinished = []
    for window in windows:
        index = indexes.get(window.message.id)
        if index is None and len(indexes) < len(history):  # some messages have no id
            index = window.place_in(history)
        if index is None:
            window.origin = step
            continue
        unfinished.append(window)
        if index == end or any(call.id in named for call in window.calls):
            window.sightings.append(_sighting(step, index))
    return unfinished


def _named_in(step: Superstep) -> set[str]:
    """The ids of the calls that the tasks of a superstep name."""
    results = (m for task in step.writers for m in [*task.messages, *task.returned])
    named = {m.tool_call_id for m in results if isinstance(m, ToolMessage)}
    return named | {str(task.call["id"]) for task in step.tasks if task.call}


def _sighting(step: Superstep, index: int) -> Sighting:
    history, message = step.history, step.history[index]
    calls = read_calls(message) if isinstance(message, AIMessage) else []
    after = list(dropwhile(lambda m: isinstance(m, ToolMessage), history[index + 1 :]))
    rivals = [*open_in_turn(history[:index]), *called_in(after)]
    return Sighting(step, calls, not after, rivals)


def open_in_turn(messages: Sequence[BaseMessage]) -> list[Call]:
    """The open calls of the turn with which a history ends: those since its last human message."""
    answered: set[str] = set()
    found: list[Call] = []
    for stored in reversed(messages):
        if isinstance(stored, HumanMessage):
            break
        if isinstance(stored, ToolMessage):
            answered.add(stored.tool_call_id)
        elif isinstance(stored, AIMessage):
            made = [call for call in read_calls(stored) if not call.is_unfinished]
            found += [call for call in made if call.id not in answered]
            answered -= {call.id for call in made}
    return found


def called_in(messages: Iterable[BaseMessage]) -> list[Call]:
    return [call for m in messages if isinstance(m, AIMessage) for call in read_calls(m)]
