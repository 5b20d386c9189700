"""What the command line shows on a terminal; needs rich, and nothing that is shown runs.

Ids, names and contents are data from models, tools and strangers. No control character of
theirs reaches the terminal, and rich reads no markup in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from rich.console import Console
from rich.table import Table
from rich.text import Text

from langgraph_patch.history.patch import Change
from langgraph_patch.render.text import visible
from langgraph_patch.threads.reports import ThreadReport

_SIGNS: Mapping[str, tuple[str, str]] = {
    "inserted": ("+", "yellow"),
    "recovered": ("<", "green"),
    "moved": (">", "cyan"),
    "dropped": ("-", "red"),
    "converted": ("~", "magenta"),
    "promoted": ("^", "blue"),
    "renamed": ("=", "blue"),
}
_LONG = 400  # characters of a content that are shown


def show_report(report: ThreadReport, history: Sequence[BaseMessage], console: Console) -> None:
    """Print a conversation with its defects marked, and the proposed patch beside it."""
    title = Text(visible(str(report)))
    defects = {defect.index: defect.kind for defect in reversed(report.defects)}
    if report.patch is None:
        table = Table("#", "conversation", title=title, title_justify="left", expand=True)
        for place, message in enumerate(history):
            table.add_row(str(place), _cell(message, "!" if place in defects else " ", "red",
                                            defects.get(place, "")))  # fmt: skip
        console.print(table)
        return
    table = Table("#", "as it is", "as it would be", title=title, title_justify="left", expand=True)
    for left, right in _aligned(history, report.patch.messages):
        table.add_row(
            "" if left is None else str(left),
            _left(history, left, defects),
            _right(report.patch.messages, right, report.patch.changes),
        )
    console.print(table)


def _left(history: Sequence[BaseMessage], place: int | None, defects: Mapping[int, str]) -> Text:
    if place is None:
        return Text("")
    wrong = defects.get(place, "")
    return _cell(history[place], "!" if wrong else " ", "red", wrong)


def _right(messages: Sequence[BaseMessage], place: int | None, changes: Sequence[Change]) -> Text:
    if place is None:
        return Text("")
    message = messages[place]
    change = next((c for c in changes if c.after is message), None)
    if change is None:
        return _cell(message, " ", "", "")
    sign, colour = _SIGNS[change.kind]
    said = f"{change.kind} ({change.cause})" if change.cause else change.kind
    return _cell(message, sign, colour, said)


def _cell(message: BaseMessage, sign: str, colour: str, said: str) -> Text:
    who = message.type
    if isinstance(message, ToolMessage):
        who = f"{who} {message.tool_call_id}"
    text = Text().append(f"{sign} ", style=colour)
    text.append(visible(f"[{who}]"), style="bold")
    if said:
        text.append(f" {said}", style=f"{colour} bold")
    for line in _lines(message):
        text.append("\n  " + visible(line))
    return text


def _lines(message: BaseMessage) -> Iterator[str]:
    content = message.content
    said = content if isinstance(content, str) else json.dumps(content, default=repr)
    if said:
        yield said if len(said) <= _LONG else f"{said[:_LONG]}... ({len(said)} characters)"
    if isinstance(message, AIMessage):
        for call in [*message.tool_calls, *message.invalid_tool_calls]:
            args = json.dumps(call.get("args"), default=repr)
            yield f"calls {call.get('name')} {call.get('id')} {args}"[:_LONG]


def _aligned(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage]
) -> Iterator[tuple[int | None, int | None]]:
    """Rows: a message stands beside itself where both sides come to it in their order."""
    left = 0
    places = {_name(message): place for place, message in enumerate(before)}
    for right, message in enumerate(after):
        place = places.get(_name(message))
        if place is None or place < left:
            yield None, right
            continue
        for gone in range(left, place):
            yield gone, None
        yield place, right
        left = place + 1
    for gone in range(left, len(before)):
        yield gone, None


def _name(message: BaseMessage) -> object:
    return message.id if message.id is not None else id(message)
