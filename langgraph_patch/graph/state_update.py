"""Write a repaired history into a state channel, whatever its reducer.

There are several forms of writes. Each is tried on a copy of the channel, and the first that
produces exactly the repaired history is used. LangGraph behaves as follows:

- In one write, `add_messages` keeps the old position of a message that is removed and added
  again, so removing and adding are two writes.
- A `Command` may write a key twice if its update is a list of pairs.
- Clients in `stream_mode="messages"` receive nothing from such an update.
- `Overwrite` discards whatever other nodes write in the same superstep.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langgraph.types import Overwrite

Writes: TypeAlias = list[Any]
"""The values to write to the channel, in this order."""


def writes_for(
    channel: Any, old: Sequence[BaseMessage], new: Sequence[BaseMessage], *, alone: bool
) -> Writes | None:
    """The writes that turn `old` into `new` in `channel`.

    Args:
        channel: The live channel. None means a channel with `add_messages`.
        old: The value of the channel.
        new: The value that it should have. Unchanged messages are the same objects as in `old`.
        alone: Whether no other node runs in the same superstep. If False, other nodes may write
            to the channel too, and the writes lose none of their messages. If another node
            removes or edits an old message, its change may be undone, since it is not visible
            here.

    Returns:
        The writes, or None if no form has the wanted effect. The channel is then better left
        as it is.
    """
    forms = (_append, _rewrite_tail, _replace, _overwrite) if alone else (_rewrite_tail, _append)
    for form in forms:
        writes = form(old, new)
        if writes is not None and (channel is None or _produces(channel, old, writes, new)):
            return writes
    return None


def _produces(
    channel: Any, old: Sequence[BaseMessage], writes: Writes, new: Sequence[BaseMessage]
) -> bool:
    # The list is copied too: a reducer of the application may extend it in place.
    trial = channel.from_checkpoint(list(old))
    try:
        trial.update(writes)
        return bool(trial.get() == list(new))
    except Exception:  # noqa: BLE001 - a reducer that does not accept the form may raise anything
        return False


def _append(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes | None:
    if _unchanged_count(old, new) < len(old):
        return None
    return [list(new[len(old) :])]


def _rewrite_tail(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes | None:
    """Remove all messages from the first change on, then add the new ones.

    The tail starts with a call and never between a call and its results, since a message that a
    parallel node adds comes before the tail. The first write adds each message before it removes
    it: a parallel node may have removed an old message already, and removing it twice is an
    error. It does so for the new messages too, since a parallel node may have added them.
    """
    start = _unchanged_count(old, new)
    while 0 < start < len(new) and isinstance(new[start], ToolMessage):
        start -= 1
    tail = old[start:]
    if any(message.id is None for message in (*tail, *new[start:])):
        return None
    tail_ids = {message.id for message in tail}
    removed = [*tail, *(message for message in new[start:] if message.id not in tail_ids)]
    removals = [RemoveMessage(id=str(message.id)) for message in removed]
    return [[*removed, *removals], list(new[start:])]


def _replace(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [list(new)]


def _overwrite(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [Overwrite(list(new))]


def _unchanged_count(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """How many messages at the start are the same objects."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
