"""A history before and after a repair, side by side: the rows of the tables of `view`.

It takes `to_dict()` values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

Values: TypeAlias = Mapping[str, Any]
"""What `to_dict()` of a patch, a change, a report, a repair or a message returns."""

_NEW = ("inserted", "recovered", "restored")  # these add a message; their index is not its own
_CONTEXT = 3  # how many unchanged messages are shown before and after a change or a defect


class Cell(NamedTuple):
    """A message on one side of a comparison.

    Attributes:
        message: The message.
        kind: How the repair changed it, or `wrong`; `""` if neither.
        label: The same in words.
    """

    message: Values
    kind: str
    label: str


class Row(NamedTuple):
    """A message as it was and as it is after the repair; None is a gap.

    Attributes:
        number: Its index in the history before; None if it is not in that history.
        before: As it was.
        after: As it is after the repair.
    """

    number: int | None
    before: Cell | None
    after: Cell | None = None


def rows_of(patch: Values) -> Iterator[Row]:
    """The rows of a comparison: a message is beside itself, unless it is new or was moved.

    Args:
        patch: What `Patch.to_dict()` returns.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.comparison import rows_of
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> patch = patch_messages([AIMessage("", tool_calls=[call])])
        >>> [[cell and cell.label for cell in row[1:]] for row in rows_of(patch.to_dict())]
        [['dangling', ''], [None, 'inserted (unknown)']]
    """
    written = defaultdict(list)
    for change in patch["changes"]:
        [message] = _messages([change["after"] or {}])
        written[_identity(message)].append(change)
    before = cells_of(patch["before"], patch["changes"])
    after = [Cell(each, *_marks(written[_identity(each)])) for each in _messages(patch["messages"])]
    names = [_identity(cell.message) for cell in before]
    # A name that no message has: what is new or was moved is beside nothing.
    others = [None if c.kind in (*_NEW, "moved") else _identity(c.message) for c in after]
    for kind, *ends in SequenceMatcher(None, names, others, autojunk=False).get_opcodes():
        old, new = range(*ends[:2]), range(*ends[2:])
        if kind == "equal":
            yield from (Row(i, before[i], after[j]) for i, j in zip(old, new, strict=True))
        else:
            yield from (Row(None, None, after[j]) for j in new)
            yield from (Row(i, before[i]) for i in old)


def cells_of(history: Sequence[Any], defects: Iterable[Values]) -> list[Cell]:
    """The messages of a history with their defects, which name their kind `defect` or `kind`."""
    kinds: defaultdict[int, dict[str, None]] = defaultdict(dict)
    for defect in defects:
        kinds[defect["index"]][defect.get("defect") or defect["kind"]] = None
    return [
        Cell(message, "wrong" if kinds[index] else "", ", ".join(kinds[index]))
        for index, message in enumerate(_messages(history))
    ]


def _messages(history: Sequence[Any]) -> list[Values]:
    """The messages; what has no JSON form is a text, and becomes the content of one."""
    return [each if isinstance(each, Mapping) else {"content": str(each)} for each in history]


def _marks(changes: Sequence[Values]) -> tuple[str, str]:
    """The kind of the first change, and each different change in words."""
    labels = dict.fromkeys(
        f"{change['kind']} ({change['cause']})" if change["cause"] else change["kind"]
        for change in changes
    )
    return (changes[0]["kind"] if changes else ""), ", ".join(labels)


def _identity(message: Values) -> str:
    """The id of a message, or its whole content if it has none."""
    if message.get("id") is not None:
        return f"id {message['id']}"
    return json.dumps(message, sort_keys=True, default=repr)


def folded(rows: Sequence[Row]) -> Iterator[Row | int]:
    """The rows, with a number in the place of those that are far from every change and defect.

    Without any change or defect, only the last rows are shown.

    Examples:
        >>> from langgraph_patch.comparison import Cell, Row, folded
        >>> rows = [Row(index, Cell({}, "", "")) for index in range(9)]
        >>> [each if isinstance(each, int) else each.number for each in folded(rows)]
        [6, 6, 7, 8]
    """
    marked = [
        number for number, row in enumerate(rows) if any(cell and cell.kind for cell in row[1:])
    ] or [len(rows)]  # behind the end, so that the last rows are near it
    shown = {near for number in marked for near in range(number - _CONTEXT, number + _CONTEXT + 1)}
    for is_shown, group in groupby(range(len(rows)), shown.__contains__):
        numbers = list(group)
        yield from (rows[number] for number in numbers) if is_shown else [len(numbers)]


def lines_of(message: Values) -> Iterator[str]:
    """The content of a message and each of its calls, in full.

    A text block is its text, any other block is JSON. A block with a call that is listed beside
    the content is not shown twice.
    """
    calls = [*(message.get("tool_calls") or ()), *(message.get("invalid_tool_calls") or ())]
    listed = [call.get("id") for call in calls]
    content = message.get("content") or []
    for block in content if isinstance(content, list) else [content]:
        kind = block.get("type") if isinstance(block, Mapping) else ""
        if kind == "text" and isinstance(block.get("text"), str):
            yield block["text"]
        elif kind != "tool_use" or block.get("id") not in listed:
            yield compact(block)
    for call in calls:
        yield f"calls {call.get('name')} [{call.get('id')}] {compact(call.get('args'))}"


def compact(value: object) -> str:
    """A string as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
