"""Show patches, reports and repairs as tables: in a terminal and in a notebook.

The tables take `to_dict()` values. They are tables of rich, which the extra `cli` requires; HTML is
an export of the same tables. Without rich, a notebook shows the text of a value.

Ids, names and contents come from models, tools and users. Control characters could command a
terminal, and invisible characters could hide text or turn its direction: both are written as
escapes. No text is read as markup.
"""

from __future__ import annotations

import html
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from io import StringIO
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from langgraph_patch._text import one_line, visible

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
        >>> from langgraph_patch.view import rows_of
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
        >>> from langgraph_patch.view import Cell, Row, folded
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


try:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError:
    HAS_RICH = False
else:
    HAS_RICH = True

# --- kinds of changes --------------------------------------------------------------------

_KINDS: Mapping[str, tuple[str, str, str]] = {
    "": (" ", "", ""),
    "wrong": ("!", "red", ""),
    "inserted": ("+", "yellow", "placeholder for"),
    "recovered": ("↺", "green", "recovers result of"),
    "restored": ("↻", "green", "restores"),
    "moved": ("→", "cyan", "moves result of"),
    "dropped": ("−", "red", "drops result of"),
    "converted": ("⇄", "magenta", "converts result of"),
    "joined": ("∪", "cyan", "joins results of"),
    "promoted": ("↑", "blue", "rewrites call of"),
    "corrected": ("✓", "blue", "corrects"),
}
"""For each kind of cell a sign and a colour, so that nobody has to tell colours apart, and for a
change what a repair does."""

_LIMIT = 400  # how many characters of a content or a call are shown


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters)"


# --- words -------------------------------------------------------------------------------

_DEFECTS: Mapping[str, str] = {
    "dangling": "call* without a result",
    "malformed": "call* with incomplete arguments",
    "unlisted": "call* outside of tool_calls",
    "misplaced": "result* in the wrong place",
    "orphan": "result* without a call",
    "duplicate": "result* beside another of the same call",
    "wrong_role": "result* in another role",
    "superseded": "placeholder* that can be replaced",
    "bad_field": "message* with a damaged field",
    "abandoned": "dropped message*",
}
_UNITS = {"year": 365 * 86400, "month": 30 * 86400, "day": 86400, "hour": 3600, "minute": 60}


def counted(count: int, noun: str) -> str:
    """A number and a noun, whose `*` is the place of the plural's s.

    Examples:
        >>> from langgraph_patch.view import counted
        >>> counted(1, "call* without a result"), counted(2, "call* without a result")
        ('1 call without a result', '2 calls without a result')
    """
    return f"{count:,} {noun.replace('*', '' if count == 1 else 's')}"


def defects_in_words(defects: Iterable[Values]) -> str:
    """How many defects of each kind there are; one that takes two changes counts once."""
    different = {(each["kind"], each["index"], each["tool_call_id"]): None for each in defects}
    kinds = Counter(kind for kind, *_ in different)
    return ", ".join(counted(count, _DEFECTS.get(kind, kind)) for kind, count in kinds.items())


def changes_in_words(changes: Iterable[Values]) -> str:
    """What a repair does for which tools; for each placeholder, why there is no result.

    Examples:
        >>> from langgraph_patch.view import changes_in_words
        >>> mail = {"kind": "recovered", "name": "mail", "tool_call_id": "c1", "cause": None}
        >>> wire = {"kind": "inserted", "name": "wire", "tool_call_id": "c2", "cause": "failed"}
        >>> changes_in_words([mail, wire])
        'recovers result of mail; placeholder for wire (failed)'
    """
    texts = Counter(
        f"{_KINDS[change['kind']][2]} "
        + (change["name"] or ("a call" if change["tool_call_id"] else "a message"))
        + (f" ({change['cause']})" if change["cause"] else "")
        for change in changes
    )
    return "; ".join(f"{text} ({n} times)" if n > 1 else text for text, n in texts.items())


def age_in_words(seconds: float | None) -> str:
    """An age in its largest unit; an empty text if it is not known.

    Examples:
        >>> from langgraph_patch.view import age_in_words
        >>> age_in_words(200), age_in_words(90000)
        ('3 minutes', '1 day')
    """
    if seconds is None:
        return ""
    unit = next((unit for unit, size in _UNITS.items() if seconds >= size), "second")
    return counted(int(seconds // _UNITS.get(unit, 1)), f"{unit}*")


# --- tables ------------------------------------------------------------------------------

_WIDE = 100
"""From how many columns on a line of a thread is one row of a table."""

_ID = {"THREAD": "thread"}
_REPAIR = {**_ID, "OUTCOME": "state", "WHY NOT": "reason"}
HEADS: Mapping[str, Mapping[str, str]] = {
    "scan": {**_ID, "STATUS": "state", "AGE": "age", "WHAT IS WRONG": "wrong", "A REPAIR": "patch"},
    "repair": {**_REPAIR, "THE REPAIR": "patch"},
    "undo": {**_REPAIR, "BACK TO": "before"},
}
"""For each command that prints a table its heads, and the fact below each."""
_NARROW, _COLOURED = ("state", "age"), ("state", "wrong", "reason")

STATUSES = ("damaged", "paused", "unreadable", "healthy")
"""Those of a report, as a command orders them."""

_GREEN, _YELLOW = ("healthy", "repaired", "undone"), ("paused", "planned", "young")


def _colour_of(state: str) -> str:
    return "green" if state in _GREEN else "yellow" if state in _YELLOW else "red"


def label_of(values: Values) -> str:
    """The thread of a report or a repair, with its namespace if it is not that of the root."""
    namespace = values["namespace"]
    return f"{values['thread_id']} in {namespace}" if namespace else values["thread_id"]


def _facts(values: Values) -> dict[str, str]:
    """What a report or a repair says of a thread, in words: each fact under its field."""
    return {
        "state": values.get("status") or values["outcome"],
        "age": age_in_words(values.get("age")),
        "asks": "; ".join(map(compact, values.get("asks", ()))),
        "defects": defects_in_words(values.get("defects", ())),
        "reason": values["reason"] or "",
        "patch": changes_in_words((values["patch"] or {}).get("changes", ())),
    }


def line_of(command: str, values: Values) -> dict[str, str]:
    """The line of a report or a repair in the table of a command: the facts below its heads."""
    facts = {"thread": label_of(values), **_facts(values)}
    facts["before"] = f"checkpoint {values['before']}" if values.get("before") else ""
    asks = facts["asks"] and f"asks {_cut(facts['asks'], 80)}"
    facts["wrong"] = "; ".join(filter(None, (asks, facts["defects"], facts["reason"])))
    return {fact: facts[fact] for fact in HEADS[command].values()}


def lines_table(command: str, lines: Sequence[Mapping[str, str]], width: int) -> Table:
    """The table of a command on a terminal: columns without any text are left out.

    In a narrow terminal an id stands above its texts: no word is broken.
    """
    heads = {h: fact for h, fact in HEADS[command].items() if any(line[fact] for line in lines)}
    if is_narrow := width < _WIDE:
        heads = {h: fact for h, fact in heads.items() if fact in _NARROW} | _ID
    table = _table()
    for head in heads:
        is_id = head == "THREAD" and not is_narrow  # it can be copied: the others become narrower
        table.add_column(head, no_wrap=is_id, max_width=width // 2 if is_id else None)
    for line in lines:
        colour, name = _colour_of(line["state"]), _text(_named(line["thread"]), "bold")
        cells = {fact: _text(line[fact], colour if fact in _COLOURED else "") for fact in line}
        below = [c for fact, c in cells.items() if fact not in (*_NARROW, "thread") and c]
        shown = {**cells, "thread": Group(name, *below) if is_narrow else name}
        table.add_row(*(shown[fact] for fact in heads.values()))
    return table


def patch_view(patch: Values, *, whole: bool = False, is_written: bool = False) -> Table:
    """The history before and after a repair, side by side.

    Args:
        patch: What `Patch.to_dict()` returns.
        whole: Whether to show all of each message, and messages far from a change. Default: False.
        is_written: Whether the repair has been written. Default: False.
    """
    heads = ("AS IT WAS", "AS IT IS") if is_written else ("AS IT IS", "AS IT WOULD BE")
    return _comparison(heads, list(rows_of(patch)), whole)


def report_view(values: Values, history: Sequence[Any] = (), *, whole: bool = False) -> Group:
    """A report or a repair: its facts, and its messages before and after.

    Args:
        values: What `ThreadReport.to_dict()` or `ThreadRepair.to_dict()` returns.
        history: The messages as JSON values, shown if there is no patch. Default: none.
        whole: As for `patch_view`.
    """
    patch, facts = values["patch"], _facts(values)
    state = facts.pop("state")
    others = ("checkpoint_id", "messages", "before", "after")
    facts |= {name: str(values[name]) for name in others if values.get(name)}
    grid = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        if fact:
            grid.add_row("", Text(name, "bright_black"), _text(fact))
    name = _named(label_of(values))
    title = Text.assemble("Thread ", (name, "bold"), ": ", (state, _colour_of(state)))
    parts: list[RenderableType] = [title, grid]
    if patch:
        parts += ["", patch_view(patch, whole=whole, is_written=state == "repaired")]
    elif history:
        cells = cells_of(history, values.get("defects", ()))
        rows = [Row(index, cell) for index, cell in enumerate(cells)]
        parts += ["", _comparison(("MESSAGES",), rows, whole)]
    return Group(*parts)


def _named(thread: str) -> str:
    """An id as it is shown: in quotes if it begins or ends with a blank."""
    return one_line(thread if thread == thread.strip() else repr(thread))


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _text(text: str, style: str = "") -> Text:
    return Text(visible(text), style, overflow="fold", no_wrap=False)


def _comparison(heads: Sequence[str], rows: Sequence[Row], whole: bool) -> Table:  # noqa: FBT001 - of this module
    table = _table()
    table.expand = True
    table.add_column("#")
    for head in heads:
        table.add_column(head, ratio=1)
    for row in rows if whole else folded(rows):
        if isinstance(row, int):
            text = f"... {counted(row, 'message*')} without changes ..."
            table.add_row("", Text(text, "bright_black"))
            continue
        number = "" if row.number is None else str(row.number)
        drawn = [_drawn(cell, sys.maxsize if whole else _LIMIT) for cell in (row.before, row.after)]
        table.add_row(number, *drawn[: len(heads)])
    return table


def _drawn(cell: Cell | None, limit: int) -> RenderableType:
    if cell is None:
        return ""
    sign, colour, _ = _KINDS[cell.kind]
    parts = (cell.message.get("type", "?"), cell.message.get("tool_call_id"))
    sender = " ".join(str(part) for part in parts if part)
    head = _text(one_line(f"[{sender}] {cell.label}"), f"bold {colour}")
    body = _text("\n".join(_cut(line, limit) for line in lines_of(cell.message)), colour)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(sign, f"bold {colour}"), Group(head, body))
    return grid


# --- notebooks --------------------------------------------------------------------------------

_FRAGMENT = (
    '<pre style="color: {foreground}; background: {background}; padding: 0.5em; '
    'overflow-x: auto; font: clamp(9px, 1.3vw, 13px)/1.4 monospace">{code}</pre>'
)


def notebook_html(value: object) -> str:
    """What a notebook shows of a value that has a table; without rich, its text."""
    if HAS_RICH:
        console = Console(record=True, file=StringIO(), width=120, force_jupyter=False)
        console.print(value)
        return console.export_html(code_format=_FRAGMENT, inline_styles=True)
    return f"<pre>{html.escape(visible(str(value)))}</pre>"
