"""Show messages as HTML: a history before and after a repair, side by side, or a history alone.

Every text is escaped, long texts are folded, and so are long stretches without a change. Each
change has a sign and a word beside its colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langgraph_patch.render.comparison import (
    SIGNS,
    Cell,
    Row,
    Stretch,
    Values,
    conversation,
    lines_of,
    rows_of,
    sender_of,
    stretches,
)
from langgraph_patch.render.text import html_text, shortened

FOLD = 600
"""How many characters are shown before the rest is folded."""

_JUMPS = 200  # to how many changes a list of links leads

_MEANINGS: Mapping[str, str] = {
    "inserted": "a placeholder was added",
    "recovered": "a real result from a checkpoint was added",
    "restored": "a message that LangGraph had dropped was added",
    "moved": "a result was moved to its call",
    "dropped": "a message was removed",
    "converted": "a result became a tool message",
    "promoted": "a call was listed in tool_calls",
    "renamed": "an id or a name was replaced everywhere",
    "corrected": "a damaged field was given the value that it was meant to have",
}


def sides_html(patch: Values, defects: Sequence[Values], name: str) -> str:
    """The messages before and after a repair, side by side.

    Args:
        patch: What `Patch.to_dict()` returns.
        defects: What is wrong with the messages before.
        name: The beginning of the anchors: several fragments may be on one page.
    """
    before, after = patch["before"], patch["messages"]
    if not patch["changes"]:
        return f"<p>Nothing to repair in {len(after)} messages.</p>"
    heads = (f"Before ({len(before)})", f"After ({len(after)})")
    return _legend(patch["changes"]) + _rows(heads, list(rows_of(patch, defects)), name)


def conversation_html(history: Sequence[Any], defects: Sequence[Values], name: str) -> str:
    """The messages of a history.

    Args:
        history: The messages as JSON values.
        defects: What is wrong with them.
        name: The beginning of the anchors: several fragments may be on one page.
    """
    rows: list[Row] = [(cell, None) for cell in conversation(history, defects)]
    return _rows((f"Messages ({len(history)})",), rows, name)


def _legend(changes: Sequence[Values]) -> str:
    kinds = dict.fromkeys(str(change["kind"]) for change in changes)
    items = "".join(
        f'<li class="{html_text(kind)}">{SIGNS[kind]} {kind}: {_MEANINGS[kind]}</li>'
        for kind in SIGNS
        if kind in kinds
    )
    return f"<ul class=legend>{items}</ul>"


class _Jump(NamedTuple):
    """A place to jump to.

    Attributes:
        cell: The cell that is the place.
        anchor: Its name on the page.
        kind: The kind of the change; `"wrong"` for a defect.
        text: What is there.
    """

    cell: Cell
    anchor: str
    kind: str
    text: str


def _jumps(rows: Sequence[Row], name: str) -> list[_Jump]:
    found: list[_Jump] = []
    for left, right in rows:
        cell = next((each for each in (right, left) if each and each.marks), left)
        if cell is None or not (cell.marks or cell.defects):
            continue
        kind = cell.marks[0].kind if cell.marks else "wrong"
        text = _labels(cell) or f"! {', '.join(cell.defects)}"
        place = f"#{cell.index}" if cell.index is not None else sender_of(cell.message)[1]
        text = f"{place} {text}" if place else text
        found.append(_Jump(cell, f"{name}-{len(found) + 1}", kind, text))
    return found


def _rows(heads: Sequence[str], rows: Sequence[Row], name: str) -> str:
    jumps = _jumps(rows, name)
    links = "".join(
        f'<li class="{html_text(jump.kind)}"><a href="#{jump.anchor}">{html_text(jump.text)}</a>'
        "</li>"
        for jump in jumps[:_JUMPS]
    )
    anchors = {id(jump.cell): jump.anchor for jump in jumps}
    titles = "".join(f"<th scope=col>{html_text(head)}</th>" for head in heads)
    shown = [f"<table class=sides><thead><tr>{titles}</tr></thead></table>"]
    shown += [_stretch(stretch, len(heads), anchors) for stretch in stretches(rows)]
    return (f"<ul class=jump>{links}</ul>" if links else "") + "".join(shown)


def _stretch(stretch: Stretch, count: int, anchors: Mapping[int, str]) -> str:
    body = "".join(_row(row, count, anchors) for row in stretch.rows)
    table = f"<table class=sides><tbody>{body}</tbody></table>"
    if not stretch.is_folded:
        return table
    text = f"{len(stretch.rows)} messages without changes"
    return f"<details class=stretch><summary>{text}</summary>{table}</details>"


def _row(row: Row, count: int, anchors: Mapping[int, str]) -> str:
    return f"<tr>{''.join(_cell(cell, anchors) for cell in row[:count])}</tr>"


def _cell(cell: Cell | None, anchors: Mapping[int, str]) -> str:
    if cell is None:
        return "<td class=none></td>"
    kind = cell.marks[0].kind if cell.marks else "same" if cell.is_unchanged else ""
    sender = " for ".join(filter(None, sender_of(cell.message)))
    anchor = f' id="{anchors[id(cell)]}"' if id(cell) in anchors else ""
    return (
        f'<td class="{html_text(kind)}"{anchor}>'
        + _span("what", _labels(cell))
        + _span("who", f"{cell.origin} {sender}".strip())
        + _span("wrong", cell.defects and f"! {', '.join(cell.defects)}")
        + "".join(map(_folded, lines_of(cell.message)))
        + "</td>"
    )


def _labels(cell: Cell) -> str:
    return ", ".join(f"{SIGNS[mark.kind]} {mark.label}" for mark in cell.marks)


def _span(name: str, content: object) -> str:
    return f"<span class={name}>{html_text(content)}</span>" if content else ""


def _folded(line: str) -> str:
    """A line; if it is long, its beginning and the whole line behind it."""
    beginning, note = shortened(line, FOLD)
    whole = f"<pre>{html_text(line)}</pre>"
    if not note:
        return whole
    summary = f"<summary><span>{html_text(beginning)}</span> {note}</summary>"
    return f"<details>{summary}{whole}</details>"
