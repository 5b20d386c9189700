"""Show a report as a table on a terminal. It needs rich.

Every text is escaped before rich reads it, and rich reads no markup in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from langgraph_patch.render.comparison import (
    SIGNS,
    Cell,
    Values,
    conversation,
    lines_of,
    rows_of,
    sender_of,
)
from langgraph_patch.render.text import shortened, visible

_COLOURS: Mapping[str, str] = {
    "inserted": "yellow",
    "recovered": "green",
    "moved": "cyan",
    "dropped": "red",
    "converted": "magenta",
    "promoted": "blue",
    "renamed": "blue",
}
_LIMIT = 400  # how many characters of a content or a call are shown


def show_report(title: str, report: Values, history: Sequence[Any], console: Console) -> None:
    """Print a history with its defects marked and, if there is a patch, the repaired history.

    Args:
        title: What to print above the table.
        report: What `ThreadReport.to_dict()` returns.
        history: The messages as JSON values, shown if the report has no patch.
        console: Where to print.
    """
    patch, defects = report.get("patch"), report.get("defects") or ()
    heads = ("as it is", "as it would be") if patch else ("conversation",)
    table = Table("#", *heads, title=Text(visible(title)), title_justify="left", expand=True)
    if patch:
        for left, right in rows_of(patch, defects):
            table.add_row(
                str(left.index) if left else "",
                _with_defects(left) if left else "",
                _with_marks(right) if right else "",
            )
    else:
        for cell in conversation(history, defects):
            table.add_row(str(cell.index), _with_defects(cell))
    console.print(table)


def _with_defects(cell: Cell) -> Text:
    return _drawn(cell.message, "!" if cell.defects else " ", "red", ", ".join(cell.defects))


def _with_marks(cell: Cell) -> Text:
    if not cell.marks:
        return _drawn(cell.message, " ", "", "")
    kind = cell.marks[0].kind
    labels = ", ".join(mark.label for mark in cell.marks)
    return _drawn(cell.message, SIGNS[kind], _COLOURS[kind], labels)


def _drawn(message: Any, sign: str, colour: str, label: str) -> Text:
    kind, call_id = sender_of(message)
    sender = f"[{kind} {call_id}]" if call_id else f"[{kind}]"
    text = Text().append(f"{sign} ", style=colour)
    text.append(visible(sender), style="bold")
    if label:
        text.append(f" {visible(label)}", style=f"{colour} bold")
    for line in lines_of(message):
        text.append("\n  " + visible(" ".join(filter(None, shortened(line, _LIMIT)))))
    return text
