"""The messages that models below a node did not finish, and the output of the node without them.

The guard corrects a message before the node sees it. What it does not reach is corrected here: a
node may merge the chunks of a stream itself, take a call out of its message, or send it on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

from langchain_core.messages import AIMessage
from langchain_core.messages.utils import message_chunk_to_message
from langgraph.types import Command, Overwrite, Send

from langgraph_patch._langgraph.graphs import sent_call
from langgraph_patch.asking.streamed_calls import StreamedCall
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.state import with_changed

_DEEPEST = 50
"""How deep in the output of a node a message may be."""


class Unfinished(NamedTuple):
    """A message that is truncated or unusable.

    Attributes:
        ids: Its ids, as its chunks and the whole have them.
        calls: Its calls.
    """

    ids: set[str]
    calls: Sequence[StreamedCall]

    def may_be(self, message: AIMessage) -> bool:
        """Whether a message may be this one."""
        return message.id is None or message.id in self.ids


@dataclass(slots=True)
class Correction:
    """One walk through the output of a node: the messages are corrected that it merged itself.

    `Send`s and plain dicts that carry a truncated call are left out. What holds neither stays the
    same object.

    Attributes:
        unfinished: The messages that are corrected.
        keys: The state keys of the patched histories. In messages under other keys truncated calls
            are dropped.
        correct: Corrects a message in place; returns whether it has one of the calls. Its `drops`
            says whether nothing would answer an invalid call in it.
        known: The values that were looked at, and those above the one that is looked at now.
    """

    unfinished: Sequence[Unfinished]
    keys: Collection[str]
    correct: Callable[..., bool]
    known: dict[Any, Any] = field(default_factory=dict)

    def of(self, value: Any, *, drops: bool, depth: int = 0) -> Any:
        """A value of the output, corrected."""
        if isinstance(value, AIMessage):
            return self._message(value, drops=drops)
        if isinstance(value, Send):
            return [] if self._is_truncated(value) else value
        place = id(value), drops
        if place not in self.known and depth < _DEEPEST:
            self.known[place] = value
            below = partial(self.of, depth=depth + 1)
            self.known[place] = self._with_corrected(value, below, drops=drops)
        return self.known.get(place, value)

    def _with_corrected(self, value: Any, below: Callable[..., Any], *, drops: bool) -> Any:
        if type(value) in (list, tuple):
            kept = [p for p in value if not self._is_truncated(p)]
            parts = [below(part, drops=drops) for part in kept]
            return value if are_identical(parts, value) else type(value)(parts)
        if isinstance(value, Command | Overwrite):
            return with_changed(value, lambda _, part: below(part, drops=drops))
        return with_changed(value, lambda key, part: below(part, drops=key not in self.keys))

    def _is_truncated(self, value: Any) -> bool:
        """Whether a value is a truncated call that the node took out of a message, or sends on."""
        call = sent_call(value if isinstance(value, Send) else Send("", value))
        calls = chain.from_iterable(each.calls for each in self.unfinished)
        return call is not None and any(each.is_completed(call) for each in calls)

    def _message(self, message: AIMessage, *, drops: bool) -> AIMessage:
        for calls in [each.calls for each in self.unfinished if each.may_be(message)]:
            copied = cast("AIMessage", message_chunk_to_message(message))
            copied = copied.model_copy() if copied is message else copied
            if self.correct(copied, calls, drops=drops):
                return copied
        return message
