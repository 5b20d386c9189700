"""Compare a history before and after a repair, row by row, from `to_dict()` values.

Every renderer shows the rows that this module makes. A row has a cell for the history as it
was and one for the history as it is after the repair; a gap is None.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

Values: TypeAlias = Mapping[str, Any]
"""What `to_dict()` of a patch, a change, a defect, a report or a message returns."""

SIGNS: Mapping[str, str] = {
    "inserted": "+",
    "recovered": "↺",
    "restored": "↻",
    "moved": "→",
    "dropped": "−",
    "converted": "⇄",
    "promoted": "↑",
    "renamed": "✎",
    "corrected": "✓",
}
"""A sign for each kind of change, so that nobody has to tell colours apart."""

_NEW = frozenset({"inserted", "recovered", "restored"})
"""Changes that add a message; their index is not that of the message."""


class Mark(NamedTuple):
    """A change of the message in a cell."""

    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A message on one side of a comparison.

    Attributes:
        message: The message.
        index: Its index in the history before; None if it is not in that history.
        origin: Where the message was, or comes from.
        marks: How the repair changed it.
        defects: The kinds of its defects.
        is_unchanged: Whether the message beside it is the same.
    """

    message: Any
    index: int | None
    origin: str
    marks: Sequence[Mark] = ()
    defects: Sequence[str] = ()
    is_unchanged: bool = False


Row: TypeAlias = tuple[Cell | None, Cell | None]

CONTEXT = 3
"""How many unchanged messages are shown before and after a change or a defect."""


class Stretch(NamedTuple):
    """Rows that follow each other.

    Attributes:
        rows: The rows.
        is_folded: Whether nothing in them is changed or wrong, and no change is near.
    """

    rows: Sequence[Row]
    is_folded: bool


def stretches(rows: Iterable[Row]) -> Iterator[Stretch]:
    """Divide rows into those to show and those to fold: far from every change and defect.

    A single row is not folded: the line in its place would be as long. Without any change or
    defect, only the last rows are shown.

    Examples:
        >>> from langgraph_patch.render.comparison import Cell, stretches
        >>> rows = [(Cell({}, index, f"#{index}", is_unchanged=True), None) for index in range(9)]
        >>> [(len(each.rows), each.is_folded) for each in stretches(rows)]
        [(6, True), (3, False)]
    """
    rows = list(rows)
    # Behind the end, so that the last rows are near it.
    marked = [index for index, row in enumerate(rows) if _is_marked(row)] or [len(rows)]
    shown = {near for index in marked for near in range(index - CONTEXT, index + CONTEXT + 1)}
    begin = 0
    while begin < len(rows):
        is_folded = begin not in shown
        end = begin + 1
        while end < len(rows) and (end not in shown) == is_folded:
            end += 1
        yield Stretch(rows[begin:end], is_folded and end - begin > 1)
        begin = end


def _is_marked(row: Row) -> bool:
    left, right = row
    if left is None or left.marks or left.defects:
        return True
    return bool(right and right.marks)


def rows_of(patch: Values, defects: Sequence[Values] = ()) -> Iterator[Row]:
    """The rows of a comparison: a message is beside itself, unless it is new or was moved.

    Args:
        patch: What `Patch.to_dict()` returns.
        defects: What `Defect.to_dict()` returns, for each defect of the history before.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.render.comparison import rows_of
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> patch = patch_messages([AIMessage("", tool_calls=[call])])
        >>> [[cell and cell.origin for cell in row] for row in rows_of(patch.to_dict())]
        [['#0', 'from #0'], [None, 'new']]
    """
    before, after = patch["before"], patch["messages"]
    removed, written = _changes_by_side(patch["changes"])
    kinds = _defects_by_index(defects)
    remaining = {_identity(message) for message in after}

    def left(index: int) -> Cell:
        marks = _marks(removed[index])
        if not marks and _identity(before[index]) not in remaining:
            marks = (Mark("dropped", "replaced"),)
        return Cell(before[index], index, f"#{index}", marks, kinds[index])

    def right(index: int | None, message: Any) -> Cell:
        changes = written[_json(message)]
        sources = [change["index"] for change in changes if change["kind"] not in _NEW]
        if sources:
            origin = f"from #{min(sources)}"
        elif changes:
            origin = "new"
        else:
            origin = "" if index is None else f"from #{index}"
        is_unchanged = index is not None and message == before[index]
        return Cell(message, index, origin, _marks(changes), is_unchanged=is_unchanged)

    for index, position in _aligned(before, after, written):
        yield (
            None if index is None else left(index),
            None if position is None else right(index, after[position]),
        )


def conversation(history: Sequence[Any], defects: Sequence[Values]) -> Iterator[Cell]:
    """The cells of a history that is shown alone, with its defects."""
    kinds = _defects_by_index(defects)
    for index, message in enumerate(history):
        yield Cell(message, index, f"#{index}", defects=kinds[index])


def _changes_by_side(
    changes: Sequence[Values],
) -> tuple[defaultdict[int, list[Values]], defaultdict[str, list[Values]]]:
    """The changes by the index of the message before, and by the message after."""
    removed: defaultdict[int, list[Values]] = defaultdict(list)
    written: defaultdict[str, list[Values]] = defaultdict(list)
    for change in changes:
        if change["kind"] not in _NEW:
            removed[change["index"]].append(change)
        if change["after"] is not None:
            written[_json(change["after"])].append(change)
    return removed, written


def _defects_by_index(defects: Sequence[Values]) -> defaultdict[int, list[str]]:
    kinds: defaultdict[int, list[str]] = defaultdict(list)
    for defect in defects:
        if defect["kind"] not in kinds[defect["index"]]:
            kinds[defect["index"]].append(str(defect["kind"]))
    return kinds


def _marks(changes: Sequence[Values]) -> tuple[Mark, ...]:
    """One mark for each different change."""
    marks = (Mark(change["kind"], _label(change)) for change in changes)
    return tuple(dict.fromkeys(marks))


def _label(change: Values) -> str:
    cause = change.get("cause")
    return f"{change['kind']} ({cause})" if cause else str(change["kind"])


def _aligned(
    before: Sequence[Any], after: Sequence[Any], written: Mapping[str, Sequence[Values]]
) -> Iterator[tuple[int | None, int | None]]:
    """For each row, the index of its message before and after."""
    indexes = defaultdict(list)
    for index, message in enumerate(before):
        indexes[_identity(message)].append(index)
    next_index = 0
    for position, message in enumerate(after):
        kinds = {change["kind"] for change in written.get(_json(message), ())}
        ahead = [index for index in indexes[_identity(message)] if index >= next_index]
        if not ahead or kinds & {*_NEW, "moved"}:
            yield None, position
            continue
        yield from ((index, None) for index in range(next_index, ahead[0]))
        yield ahead[0], position
        next_index = ahead[0] + 1
    yield from ((index, None) for index in range(next_index, len(before)))


def _identity(message: Any) -> str:
    """The id of a message, or its whole content if it has none."""
    message_id = message.get("id") if isinstance(message, Mapping) else None
    return _json(message) if message_id is None else f"id {message_id}"


def _json(message: Any) -> str:
    return json.dumps(message, sort_keys=True, default=repr)


# --- one message -------------------------------------------------------------------------


def sender_of(message: Any) -> tuple[str, str | None]:
    """The type of a message, and the id of the call that it answers, if it answers one."""
    if not isinstance(message, Mapping):
        return type(message).__name__, None
    return str(message.get("type", "?")), message.get("tool_call_id")


def lines_of(message: Any) -> Iterator[str]:
    """The content of a message, each block of it, and each of its calls, in full."""
    if not isinstance(message, Mapping):
        yield str(message)
        return
    calls = (*(message.get("tool_calls") or ()), *(message.get("invalid_tool_calls") or ()))
    yield from _lines_of_content(message.get("content"), {call.get("id") for call in calls})
    for call in calls:
        yield f"calls {call.get('name')} [{call.get('id')}] {compact(call.get('args'))}"


def _lines_of_content(content: Any, listed: Collection[Any]) -> Iterator[str]:
    """A text as it is, the text of each text block, and every other block as JSON.

    A block with a call that is listed beside the content is not shown twice.
    """
    if not isinstance(content, list):
        if content:
            yield compact(content)
        return
    for block in content:
        text = block.get("text") if isinstance(block, Mapping) else block
        kind = block.get("type") if isinstance(block, Mapping) else "text"
        if kind == "text" and isinstance(text, str):
            if text:
                yield text
        elif kind != "tool_use" or block.get("id") not in listed:
            yield compact(block)


def compact(value: object) -> str:
    """A string as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
