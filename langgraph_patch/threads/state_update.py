"""Write a repaired history into a state channel, whatever its reducer.

There are several forms of writes. Each is tried on a copy of the channel, and the first that
produces exactly the repaired history is used. LangGraph behaves as follows:

- In one write, `add_messages` keeps the old position of a message that is removed and added
  again, so removing and adding are two writes.
- A `Command` may write a key twice if its update is a list of pairs; a dict writes it once.
- A message with the id of a stored one replaces it in its place.
- Clients in `stream_mode="messages"` receive nothing from such an update.
- `Overwrite` discards whatever other nodes write in the same superstep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langgraph.types import Overwrite

from langgraph_patch.history.field_check import id_of

Writes: TypeAlias = list[Any]
"""The values to write to the channel, in this order."""


def writes_for(
    channel: Any,
    old: Sequence[BaseMessage],
    new: Sequence[BaseMessage],
    *,
    alone: bool,
    after: bool = False,
    once: bool = False,
) -> Writes | None:
    """The writes that turn `old` into `new` in `channel`.

    Args:
        channel: The live channel. None means a channel with `add_messages`.
        old: The value of the channel.
        new: The value that it should have. Unchanged messages are the same objects as in `old`.
        alone: Whether nothing else writes to the channel in the same superstep. If False, the
            writes lose none of the other messages. If another node removes or edits an old
            message, its change may be undone, since it is not visible here.
        after: If not `alone`: whether only the node itself writes to the channel too, after these
            writes. Default: False.
        once: Whether the key is written once, because a dict has each key once. It needs
            `alone`. Default: False.

    Returns:
        The writes, or None if no form has the wanted effect. The channel is then better left
        as it is.
    """
    if alone:
        forms = _FORMS_ONCE if once else _FORMS_ALONE
    else:
        forms = _FORMS_BEFORE_OUTPUT if after else _FORMS_BESIDE_NODES
    for form in forms:
        writes = form(old, new)
        if writes is not None and (channel is None or _produces(channel, old, writes, new)):
            return writes
    return None


def values_once(
    channels: Mapping[str, Any], writes: Iterable[tuple[str, Any]]
) -> dict[str, Any] | None:
    """One value for each key, with the effect of all its writes; None if a key has no such value.

    A key that is written several times gets its final value, as an `Overwrite`.
    """
    by_key: dict[str, list[Any]] = {}
    for key, value in writes:
        by_key.setdefault(key, []).append(value)
    found = {}
    for key, values in by_key.items():
        value = values[0] if len(values) == 1 else _overwritten(channels.get(key), values)
        if value is None:
            return None
        found[key] = value
    return found


def _overwritten(channel: Any, values: Sequence[Any]) -> Overwrite | None:
    """The `Overwrite` with the effect of several writes; None if the channel knows none."""
    if channel is None:
        return None
    after, trial = channel.copy(), channel.copy()
    after.update(values)
    try:
        trial.update([Overwrite(after.get())])
    except Exception:  # noqa: BLE001 - a channel that does not know it may raise anything
        return None
    return Overwrite(after.get()) if trial.get() == after.get() else None


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
    if any(id_of(message) is None for message in (*tail, *new[start:])):
        return None
    tail_ids = {message.id for message in tail}
    removed = [*tail, *(message for message in new[start:] if message.id not in tail_ids)]
    removals = [RemoveMessage(id=str(message.id)) for message in removed]
    return [[*removed, *removals], list(new[start:])]


def _replace(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [list(new)]


def _overwrite(_: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> Writes:
    return [Overwrite(list(new))]


_Form: TypeAlias = Callable[[Sequence[BaseMessage], Sequence[BaseMessage]], Writes | None]

_FORMS_BESIDE_NODES: Sequence[_Form] = (_rewrite_tail, _append)
_FORMS_BEFORE_OUTPUT: Sequence[_Form] = (_edit_in_place, _rewrite_tail, _append)
_FORMS_ALONE: Sequence[_Form] = (_append, _edit_in_place, _rewrite_tail, _replace, _overwrite)
_FORMS_ONCE: Sequence[_Form] = (_append, _edit_in_place, _overwrite, _replace)
"""The forms of writes, in the order in which they are tried."""


def _unchanged_count(old: Sequence[BaseMessage], new: Sequence[BaseMessage]) -> int:
    """How many messages at the start are the same objects."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
