"""Read the supersteps in which the calls of a message may have run.

The window of a message begins with the superstep that wrote it, and has each later superstep in
which it was the last message that is no result, or whose tasks name one of its calls. It is read
backwards from the current checkpoint: a checkpoint whose history does not have the message ends it.

A checkpoint of a `DeltaChannel` mostly does not store the history. What it was is computed from
the supersteps after the message was written, once these have been read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_patch._sansio import IOGenerator
from langgraph_patch.evidence.checkpointer import Reader, walk
from langgraph_patch.evidence.tasks import Step, Task, fold, read_step
from langgraph_patch.history.calls import Call, read_calls
from langgraph_patch.history.ids import valid_name

_NEVER_RUN = ("invalid_tool_calls", "stopped")
"""Where calls stand that nothing runs."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A message in one superstep.

    Attributes:
        step: The superstep.
        calls: The calls of the message as it was stored then.
        later: The results directly after it.
        is_pending: Whether nothing but results followed it.
        rivals: The open calls of other messages: a task of the superstep may have run them too.
    """

    step: Step
    calls: Sequence[Call]
    later: Sequence[ToolMessage]
    is_pending: bool
    rivals: Sequence[Call]

    def version_of(self, call: Call) -> Call | None:
        """The call as it was then; None if the message made another one in its place."""
        same = [made for made in self.calls if is_same(made, call)]
        if len(same) > 1:
            same = [made for made in same if made.ordinal == call.ordinal]
        return same[0] if same else None


@dataclass(slots=True, eq=False)
class Window:
    """What was read of one message.

    Attributes:
        message: The message.
        calls: Its calls to search for.
        views: The message in each superstep of its window; the oldest first, once it was read.
        origin: The superstep that wrote the message, if it was read.
        writer: The task of it that wrote the message.
        is_finished: Whether no older checkpoint is needed.
    """

    message: AIMessage
    calls: Sequence[Call]
    views: list[View] = field(default_factory=list)
    origin: Step | None = None
    writer: Task | None = None
    is_finished: bool = False
    ids: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.ids = frozenset(i for call in self.calls for i in (call.id, *call.earlier_ids))

    @property
    def index(self) -> int:
        """The index of the message in the history that is searched for."""
        return self.calls[0].index

    def finish(self, step: Step) -> None:
        """End the window with the superstep before which the message was not stored."""
        self.is_finished, self.origin = True, step
        self.writer = next(
            (task for task in step.written if self._place(task.messages) is not None), None
        )

    def place_in(self, history: Sequence[BaseMessage], places: dict[Hashable, int]) -> int | None:
        """The index of the message in a history."""
        if self.message.id is not None and len(places) == len(history):
            return places.get(self.message.id)
        return self._place(history)  # some messages have no id

    def _place(self, messages: Sequence[BaseMessage]) -> int | None:
        return next((i for i, m in enumerate(messages) if is_version(m, self.message)), None)


def is_version(stored: BaseMessage, message: BaseMessage) -> bool:
    """Whether a stored message is `message`, as it is now or as it was before an edit."""
    if stored.id is not None and message.id is not None:
        return stored.id == message.id
    # A write may be older than the id that the reducer gave its message.
    same_type = type(stored) is type(message)
    return same_type and stored.model_copy(update={"id": message.id}) == message


def windows_of(messages: Sequence[BaseMessage], calls: Iterable[Call]) -> list[Window]:
    """A window for each message that makes one of the calls, in the order of the calls."""
    by_message: dict[int, list[Call]] = {}
    for call in calls:
        if call.id:
            by_message.setdefault(call.index, []).append(call)
    return [
        Window(message, own)
        for index, own in by_message.items()
        if isinstance(message := messages[index], AIMessage)
    ]


def read_windows(
    reader: Reader,
    config: RunnableConfig,
    windows: Sequence[Window],
    messages: Sequence[BaseMessage],
) -> IOGenerator[Step | None]:
    """Read the windows of messages.

    Args:
        reader: The checkpointer.
        config: The thread, the namespace, and the current checkpoint (default: the newest).
        windows: The windows, in the order of the history. What is read is added to them.
        messages: The history that has them.

    Returns:
        The superstep after the current checkpoint; None if there is no checkpoint.
    """
    walked = _Walk(reader.messages_key, windows)
    yield from walk(reader, config, walked.add, wait=True)
    walked.add_folded(messages)
    for window in windows:
        window.views.sort(key=lambda view: view.step.id)
    return walked.newest


class _Walk:
    """A walk from the current checkpoint to those that it was made from."""

    def __init__(self, messages_key: str, windows: Sequence[Window]) -> None:
        self.messages_key = messages_key
        self.unfinished = list(windows)
        self.newest: Step | None = None
        self.oldest: Step | None = None
        self.wanted: str | None = None
        """The id of the next checkpoint of this branch; None for any."""
        self.unread: list[tuple[Step, list[BaseMessage] | None, list[Window]]] = []
        """The supersteps with no stored history, the windows that may have them, and snapshots."""

    def add(self, saved: CheckpointTuple) -> bool:
        """Add the next older checkpoint. Returns whether no older one is needed."""
        if self.wanted is not None and saved.checkpoint["id"] != self.wanted:
            return bool(saved.checkpoint["id"] < self.wanted)  # a checkpoint of another branch
        step, history = read_step(saved, self.messages_key, self.oldest)
        self.wanted = step.parent_id
        self.newest, self.oldest = self.newest or step, step
        if history is None or self.unread:
            self.unread.append((step, history, list(self.unfinished)))
        if history is None:
            self._find_writers(step)
        else:
            for window in self._add_views(step, history, self.unfinished):
                window.finish(step)
        self.unfinished = [window for window in self.unfinished if not window.is_finished]
        return not self.unfinished or step.parent_id is None

    def _add_views(
        self, step: Step, history: list[BaseMessage], windows: Iterable[Window]
    ) -> list[Window]:
        """Add the messages as they are in one superstep; return the windows without theirs."""
        places, end = _places(history), _end_of_turn(history)
        named = _named_in(step)
        absent = []
        for window in windows:
            place = window.place_in(history, places)
            if place is None:
                absent.append(window)
            elif place == end or window.ids & named:
                window.views.append(_view(step, history, place))
        return absent

    def _find_writers(self, step: Step) -> None:
        for window in self.unfinished:
            for task in step.written:
                wrote = any(is_version(m, window.message) for m in task.messages)
                if wrote and step.child != "update" and not task.rewrites(window.message.id):
                    window.finish(step)

    def add_folded(self, messages: Sequence[BaseMessage]) -> None:
        """Add the supersteps without a stored history, oldest first."""
        history: list[BaseMessage] | None = None
        for step, stored, windows in reversed(self.unread):
            if stored is not None:
                history = stored
            elif history is None:
                begins = [window.index for window in windows if window.origin is step]
                history = list(messages[: min(begins)]) if begins else None
            if history is None:
                continue
            if stored is None:
                self._add_views(step, history, windows)
            history = _after(history, step)


def _after(history: list[BaseMessage], step: Step) -> list[BaseMessage]:
    """A history after a superstep of a `DeltaChannel`."""
    if step.child == "loop":
        return fold(history, step.written)
    if step.child == "update":
        return fold(history, step.others)
    return history


def _places(history: Sequence[BaseMessage]) -> dict[Hashable, int]:
    return {m.id: i for i, m in enumerate(history) if m.id is not None}


def _end_of_turn(history: Sequence[BaseMessage]) -> int:
    """The index of the last message that is no result."""
    index = len(history) - 1
    while index >= 0 and isinstance(history[index], ToolMessage):
        index -= 1
    return index


def _named_in(step: Step) -> set[str]:
    """The ids of the calls that the tasks of a superstep name."""
    results = (m for task in step.written for m in [*task.messages, *task.returned])
    named = {m.tool_call_id for m in results if isinstance(m, ToolMessage)}
    return named | {str(task.call["id"]) for task in step.tasks if task.call}


def _view(step: Step, history: Sequence[BaseMessage], place: int) -> View:
    message = history[place]
    calls = read_calls(message) if isinstance(message, AIMessage) else []
    later = _results_after(history, place)
    after = history[place + 1 + len(later) :]
    rivals = [*open_before(history[:place]), *called_in(after)]
    return View(step, calls, later, not after, rivals)


def _results_after(history: Sequence[BaseMessage], place: int) -> list[ToolMessage]:
    """The results directly after a message."""
    found: list[ToolMessage] = []
    for message in history[place + 1 :]:
        if not isinstance(message, ToolMessage):
            break
        found.append(message)
    return found


def open_before(earlier: Sequence[BaseMessage]) -> list[Call]:
    """The open calls of earlier messages of the same turn."""
    answered: set[str] = set()
    found: list[Call] = []
    for stored in reversed(earlier):
        if isinstance(stored, HumanMessage):
            break
        if isinstance(stored, ToolMessage):
            answered.add(stored.tool_call_id)
        elif isinstance(stored, AIMessage):
            made = [call for call in read_calls(stored) if call.source not in _NEVER_RUN]
            found += [call for call in made if call.id not in answered]
            answered -= {call.id for call in made}
    return found


def called_in(messages: Sequence[BaseMessage]) -> list[Call]:
    """All calls that messages make."""
    return [call for m in messages if isinstance(m, AIMessage) for call in read_calls(m)]


def is_same(made: Call, call: Call) -> bool:
    """Whether a stored call is `call`, as it is now or before a repair renamed it."""
    has_id = made.id == call.id or made.id in call.earlier_ids
    return has_id and label(made.name) == label(call.name) and made.args == call.args


def label(name: str | None) -> str:
    """The name of a tool in the form of a valid name; `""` for none."""
    return valid_name(name) if name else ""
