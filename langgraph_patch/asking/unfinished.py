"""The messages that models below a node did not finish, and the output of the node without them.

The guard corrects a message before the node sees it. What it does not reach is corrected here: a
node may merge the chunks of a stream itself, take a call out of its message, or send it on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol, cast

from langchain_core.messages import AIMessage
from langchain_core.messages.utils import message_chunk_to_message
from langgraph.types import Command, Overwrite, Send

from langgraph_patch._langgraph.graphs import sent_call
from langgraph_patch.asking.streamed_calls import StreamedCall
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.state import with_changed

_DEEPEST = 50
"""How deep in the output of a node a message may be."""


class Correct(Protocol):
    """Corrects a message in place; returns whether it has one of the calls."""

    def __call__(
        self, message: AIMessage, calls: Sequence[StreamedCall], *, drops: bool = False
    ) -> bool:
        """Correct a message; `drops` says whether nothing would answer an invalid call in it."""


class Unfinished:
    """The messages that are truncated or unusable."""

    def __init__(self) -> None:
        self._messages: list[tuple[set[str], Sequence[StreamedCall]]] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self._messages)

    def add(self, ids: set[str], calls: Sequence[StreamedCall]) -> None:
        """Add a message: its ids, as its chunks and the whole have them, and its calls."""
        self._messages.append((ids, calls))

    def has(self, message: AIMessage) -> bool:
        """Whether a message may be one of them."""
        return any(True for _ in self.calls_of(message))

    def calls_of(self, message: AIMessage) -> Iterable[Sequence[StreamedCall]]:
        """The calls of those that a message may be."""
        return (c for ids, c in self._messages if message.id is None or message.id in ids)

    def carries_truncated(self, value: Any) -> bool:
        """Whether a value is a truncated call that the node took out of a message, or sends on."""
        call = sent_call(value if isinstance(value, Send) else Send("", value))
        refused = (each for _, calls in self._messages for each in calls if each.args is None)
        return call is not None and any(each.is_completed(call) for each in refused)

    def corrected(self, output: Any, keys: Collection[str], correct: Correct) -> Any:
        """The output of the node, with the messages corrected that it merged itself.

        `Send`s and plain dicts that carry a truncated call are left out. What holds neither stays
        the same object.

        Args:
            output: The output.
            keys: The state keys of the patched histories. In messages under other keys truncated
                calls are dropped.
            correct: How a message is corrected.
        """
        if not self._messages:
            return output
        return _Correction(self, keys, correct).of(output, drops=not keys)


@dataclass(slots=True)
class _Correction:
    """One walk through an output.

    Attributes:
        unfinished: The messages that are corrected.
        keys: As for `Unfinished.corrected`.
        correct: As there.
        known: The values that were looked at, and those above the one that is looked at now.
    """

    unfinished: Unfinished
    keys: Collection[str]
    correct: Correct
    known: dict[Any, Any] = field(default_factory=dict)

    def of(self, value: Any, *, drops: bool, depth: int = 0) -> Any:
        """A value of the output, corrected."""
        if isinstance(value, AIMessage):
            return self._message(value, drops=drops)
        if isinstance(value, Send):
            return [] if self.unfinished.carries_truncated(value) else value
        place = id(value), drops
        if place not in self.known and depth < _DEEPEST:
            self.known[place] = value
            below = partial(self.of, depth=depth + 1)
            self.known[place] = self._with_corrected(value, below, drops=drops)
        return self.known.get(place, value)

    def _with_corrected(self, value: Any, below: Callable[..., Any], *, drops: bool) -> Any:
        if type(value) in (list, tuple):
            kept = [p for p in value if not self.unfinished.carries_truncated(p)]
            parts = [below(part, drops=drops) for part in kept]
            return value if are_identical(parts, value) else type(value)(parts)
        if isinstance(value, Command | Overwrite):
            old = {each.name: getattr(value, each.name) for each in fields(value)}
            new = {name: below(part, drops=drops) for name, part in old.items()}
            changed = {name: part for name, part in new.items() if part is not old[name]}
            return replace(value, **changed) if changed else value
        return with_changed(value, lambda key, part: below(part, drops=key not in self.keys))

    def _message(self, message: AIMessage, *, drops: bool) -> AIMessage:
        for calls in self.unfinished.calls_of(message):
            copied = cast("AIMessage", message_chunk_to_message(message))
            copied = copied.model_copy() if copied is message else copied
            if self.correct(copied, calls, drops=drops):
                return copied
        return message
