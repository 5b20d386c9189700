"""Write a repaired history into a state channel, whatever its reducer.

There are several forms of writes. Each is tried on a copy of the channel, and the first that
produces exactly the repaired history is used. LangGraph behaves as follows:

- In one write, `add_messages` keeps the old position of a message that is removed and added
  again, so removing and adding are two writes.
- A `Command` may write a key twice if its update is a list of pairs; a dict writes it once.
- A message with the id of a stored one replaces it in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.types import Overwrite

from langgraph_patch.history.damaged_fields import id_of

Writes: TypeAlias = list[Any]
"""The values to write to the channel, in this order."""


def writes_for(
    channel: Any, old: Sequence[BaseMessage], new: Sequence[BaseMessage]
) -> Writes | None:
    """The writes that turn `old` into `new` in `channel`, if nothing else writes to it.

    Args:
        channel: The live channel. None means a channel with `add_messages`.
        old: The value of the channel.
        new: The value that it should have. Unchanged messages are the same objects as in `old`.

    Returns:
        The writes, or None if no form has the wanted effect. The channel is then better left
        as it is.
    """
    for form in _FORMS:
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


def _edit_in_place(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes | None:
    """Write the changed messages under their ids, if none is added, removed or moved."""
    if [id_of(message) for message in old] != [id_of(message) for message in new]:
        return None
    edited = [after for before, after in zip(old, new, strict=True) if after is not before]
    return None if any(message.id is None for message in edited) else [edited]


def _rewrite_tail(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes | None:
    """Remove all messages from the first change on, then add the new ones."""
    start = _unchanged_count(old, new)
    if any(id_of(message) is None for message in (*old[start:], *new[start:])):
        return None
    removals = [RemoveMessage(id=str(message.id)) for message in old[start:]]
    return [removals, list(new[start:])]


def _replace(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [list(new)]


def _overwrite(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [Overwrite(list(new))]


_FORMS: Sequence[Callable[[Sequence[BaseMessage], Sequence[BaseMessage]], Writes | None]] = (
    _append,
    _edit_in_place,
    _rewrite_tail,
    _replace,
    _overwrite,
)
"""The forms of writes, in the order in which they are tried."""


def _unchanged_count(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """How many messages at the start are the same objects."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
