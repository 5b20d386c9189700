"""How a repaired history is written into a state channel, whatever its reducer.

Each form is tried on a copy of the channel, and the first that gives exactly the repaired
history is used. Facts of LangGraph that the forms rest on: in one write `add_messages`
keeps a removed message's old place, so removing and adding are two writes; a tuple of
pairs may name a key twice; clients in `messages` mode see nothing of such a write;
`Overwrite` discards whatever another node writes in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langgraph.types import Overwrite

Writes: TypeAlias = list[Any]
"""The values that are written to the channel, one after the other."""


def writes_for(
    channel: Any, old: Sequence[BaseMessage], new: Sequence[BaseMessage], *, alone: bool
) -> Writes | None:
    """The writes that turn `old` into `new` in `channel`.

    Args:
        channel: The live channel, or None if it is not known; then it is taken for one
            with `add_messages`.
        old: What the channel holds.
        new: What it shall hold; unchanged messages are the same objects as in `old`.
        alone: Whether the writer has a step of its own. If not, other nodes write to the
            channel in the same step, and no message of theirs may be lost. If they remove or
            edit an old message, that may be undone: what they write cannot be seen.

    Returns:
        The writes, or None if no form fits: then the channel is better left as it is.
    """
    forms = (_append, _rewrite_tail, _replace, _overwrite) if alone else (_rewrite_tail, _append)
    for form in forms:
        writes = form(old, new)
        if writes is not None and (channel is None or _gives(channel, old, writes, new)):
            return writes
    return None


def _gives(
    channel: Any, old: Sequence[BaseMessage], writes: Writes, new: Sequence[BaseMessage]
) -> bool:
    # A copy of the list too: an application's reducer may extend it in place.
    trial = channel.from_checkpoint(list(old))
    try:
        trial.update(writes)
        return bool(trial.get() == list(new))
    except Exception:  # noqa: BLE001 - a reducer that cannot take a form may raise anything
        return False


def _append(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes | None:
    if _unchanged(old, new) < len(old):
        return None
    return [list(new[len(old) :])]


def _rewrite_tail(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes | None:
    """Remove everything from the first change on, then add what shall stand there.

    The tail begins with a call, never between a call and its results: a message that a
    parallel node adds comes before the tail. What is removed is added first, since another
    writer in the same step may have removed it already, and what is new is removed first,
    since another may have added it.
    """
    start = _unchanged(old, new)
    while 0 < start < len(new) and isinstance(new[start], ToolMessage):
        start -= 1
    tail = old[start:]
    if any(message.id is None for message in (*tail, *new[start:])):
        return None
    stood = {message.id for message in tail}
    gone = [*tail, *(message for message in new[start:] if message.id not in stood)]
    removals = [RemoveMessage(id=str(message.id)) for message in gone]
    return [[*gone, *removals], list(new[start:])]


def _replace(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [list(new)]


def _overwrite(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [Overwrite(list(new))]


def _unchanged(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """How many messages at the start are the very same."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
