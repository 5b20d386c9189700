"""Show patches, reports and repairs as tables: in a terminal, in a notebook, as an HTML page.

The tables take `to_dict()` values. They are tables of rich, which the extra `cli` requires; HTML is
an export of the same tables. Without rich, a notebook shows the text of a value.

Ids, names and contents come from models, tools and users. Control characters could command a
terminal, and invisible characters could hide text or turn its direction: both are written as
escapes. No text is read as markup.
"""

from __future__ import annotations

import html
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

try:
    from rich.color import parse_rgb_hex
    from rich.console import Console, Group, RenderableType
    from rich.padding import Padding
    from rich.table import Table
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text
except ModuleNotFoundError:
    HAS_RICH = False
else:
    HAS_RICH = True

Values: TypeAlias = Mapping[str, Any]
"""What `to_dict()` of a patch, a change, a report, a repair or a message returns."""

# --- untrusted text ----------------------------------------------------------------------

_NOT_ASCII_TEXT = re.compile(r"[^\x20-\x7e\n\t]")
# Control, format (such as a change of direction), half a character, line and paragraph breaks.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # formats that emoji, Arabic and Indic scripts need


def visible(text: str) -> str:
    r"""`text` with its control characters and invisible characters written as escapes.

    Line breaks and tabs stay.

    Examples:
        >>> from langgraph_patch.view import visible
        >>> print(visible("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    return _NOT_ASCII_TEXT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character in _JOINERS or unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """`visible`, with line breaks and tabs written as escapes too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _cut(text: str, limit: float) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: int(limit)]}… ({len(text):,} characters)"


# --- the rows before and after a repair --------------------------------------------------

_SIGNS: Mapping[str, tuple[str, str]] = {
    "": (" ", ""),
    "wrong": ("!", "red"),
    "inserted": ("+", "yellow"),
    "recovered": ("↺", "green"),
    "restored": ("↻", "green"),
    "moved": ("→", "cyan"),
    "dropped": ("−", "red"),
    "converted": ("⇄", "magenta"),
    "promoted": ("↑", "blue"),
    "renamed": ("✎", "blue"),
    "corrected": ("✓", "blue"),
}
"""A sign and a colour for each kind of cell, so that nobody has to tell colours apart."""

_NEW = ("inserted", "recovered", "restored")  # these add a message; their index is not its own
_CONTEXT = 3  # how many unchanged messages are shown before and after a change or a defect
_LIMIT = 400  # how many characters of a content or a call are shown


class Cell(NamedTuple):
    """A message on one side of a comparison.

    Attributes:
        message: The message.
        place: Its index in the history before; None if it is not in that history.
        kind: How the repair changed it, or `wrong`; `""` if neither.
        label: The same in words.
    """

    message: Any
    place: int | None
    kind: str
    label: str


Row: TypeAlias = tuple[Cell | None, Cell | None]
"""A message as it was and as it is after the repair; None is a gap."""


def rows_of(patch: Values, defects: Sequence[Values] = ()) -> Iterator[Row]:
    """The rows of a comparison: a message is beside itself, unless it is new or was moved.

    Args:
        patch: What `Patch.to_dict()` returns.
        defects: What a report says is wrong with the history before.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.view import rows_of
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> patch = patch_messages([AIMessage("", tool_calls=[call])])
        >>> [[cell and cell.label for cell in row] for row in rows_of(patch.to_dict())]
        [['', ''], [None, 'inserted (unknown)']]
    """
    before, after = patch["before"], patch["messages"]
    removed, written = defaultdict(list), defaultdict(list)
    for change in patch["changes"]:
        if change["kind"] not in _NEW:
            removed[change["index"]].append(change)
        if change["after"] is not None:
            written[_json(change["after"])].append(change)
    changes_after = [written[_json(message)] for message in after]
    remaining = set(map(_identity, after))
    lefts = list(_conversation(before, defects))
    for index, position in _aligned(before, after, changes_after):
        left = right = None
        if index is not None:
            left = lefts[index]
            kind, labels = _marks(removed[index])
            if not kind and _identity(left.message) not in remaining:
                kind, labels = "dropped", "replaced"
            if position is None:
                left = left._replace(kind=kind, label=", ".join(filter(None, (left.label, labels))))
        if position is not None:
            right = Cell(after[position], index, *_marks(changes_after[position]))
        yield left, right


def _conversation(history: Sequence[Any], defects: Sequence[Values]) -> Iterator[Cell]:
    """The cells of a history, with its defects."""
    kinds: defaultdict[int, dict[str, None]] = defaultdict(dict)
    for defect in defects:
        kinds[defect["index"]][str(defect["kind"])] = None
    for index, message in enumerate(history):
        yield Cell(message, index, "wrong" if kinds[index] else "", ", ".join(kinds[index]))


def _marks(changes: Sequence[Values]) -> tuple[str, str]:
    """The kind of the first change, and each different change in words."""
    labels = dict.fromkeys(
        f"{change['kind']} ({change['cause']})" if change.get("cause") else str(change["kind"])
        for change in changes
    )
    return (str(changes[0]["kind"]) if changes else ""), ", ".join(labels)


def _aligned(
    before: Sequence[Any], after: Sequence[Any], changes_after: Sequence[Sequence[Values]]
) -> Iterator[tuple[int | None, int | None]]:
    """For each row, the index of its message before and after."""
    indexes: defaultdict[str, deque[int]] = defaultdict(deque)
    for index, message in enumerate(before):
        indexes[_identity(message)].append(index)
    begin = 0
    for position, message in enumerate(after):
        ahead = indexes[_identity(message)]
        while ahead and ahead[0] < begin:
            ahead.popleft()
        if not ahead or any(c["kind"] in (*_NEW, "moved") for c in changes_after[position]):
            yield None, position
            continue
        yield from ((index, None) for index in range(begin, ahead[0]))
        begin = ahead[0] + 1
        yield ahead[0], position
    yield from ((index, None) for index in range(begin, len(before)))


def _identity(message: Any) -> str:
    """The id of a message, or its whole content if it has none."""
    message_id = message.get("id") if isinstance(message, Mapping) else None
    return _json(message) if message_id is None else f"id {message_id}"


def _json(message: Any) -> str:
    return json.dumps(message, sort_keys=True, default=repr)


def folded(rows: Sequence[Row]) -> Iterator[Row | int]:
    """The rows, with a number in the place of those that are far from every change and defect.

    A single row is not folded: the line in its place would be as long. Without any change or
    defect, only the last rows are shown.

    Examples:
        >>> from langgraph_patch.view import Cell, folded
        >>> rows = [(Cell({}, index, "", ""), None) for index in range(9)]
        >>> [each if isinstance(each, int) else each[0].place for each in folded(rows)]
        [6, 6, 7, 8]
    """
    marked = [
        index for index, row in enumerate(rows) if any(cell and cell.kind for cell in row)
    ] or [len(rows)]  # behind the end, so that the last rows are near it
    shown = {near for index in marked for near in range(index - _CONTEXT, index + _CONTEXT + 1)}
    for is_shown, group in groupby(range(len(rows)), shown.__contains__):
        indexes = list(group)
        if is_shown or len(indexes) == 1:
            yield from (rows[index] for index in indexes)
        else:
            yield len(indexes)


def lines_of(message: Any) -> Iterator[str]:
    """The content of a message and each of its calls, in full.

    A text block is its text, any other block is JSON. A block with a call that is listed beside
    the content is not shown twice.
    """
    if not isinstance(message, Mapping):
        yield str(message)
        return
    calls = [*(message.get("tool_calls") or ()), *(message.get("invalid_tool_calls") or ())]
    listed = [call.get("id") for call in calls]
    content = message.get("content") or []
    for block in content if isinstance(content, list) else [content]:
        kind = block.get("type") if isinstance(block, Mapping) else ""
        if kind == "text" and isinstance(block.get("text"), str):
            yield block["text"]
        elif kind != "tool_use" or block.get("id") not in listed:
            yield _compact(block)
    for call in calls:
        yield f"calls {call.get('name')} [{call.get('id')}] {_compact(call.get('args'))}"


def _compact(value: object) -> str:
    """A string as it is, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


# --- words -------------------------------------------------------------------------------

_DEFECTS: Mapping[str, str] = {
    "dangling": "call* without a result",
    "malformed": "call* with incomplete arguments",
    "unlisted": "call* outside of tool_calls",
    "misplaced": "result* in the wrong place",
    "orphan": "result* without a call",
    "duplicate": "second result* of a call",
    "bad_id": "invalid call id*",
    "bad_name": "invalid tool name*",
    "wrong_role": "result* in another role",
    "superseded": "placeholder* that can be replaced",
    "bad_field": "message* with a damaged field",
    "abandoned": "dropped message*",
}
_CHANGES: Mapping[str, tuple[str, str]] = {
    "recovered": ("recovers", "result*"),
    "inserted": ("adds", "placeholder*"),
    "restored": ("restores", "message*"),
    "moved": ("moves", "result*"),
    "dropped": ("drops", "message*"),
    "converted": ("converts", "result*"),
    "promoted": ("writes", "call* into tool_calls"),
    "renamed": ("renames", "call*"),
    "corrected": ("corrects", "message*"),
}
_SHOWN_CAUSES = 4
_QUESTIONS = ("question", "query", "message", "description", "prompt")
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
    """How many defects of each kind there are."""
    kinds = Counter(str(defect["kind"]) for defect in defects)
    return ", ".join(counted(count, _DEFECTS.get(kind, kind)) for kind, count in kinds.items())


def changes_in_words(changes: Iterable[Values]) -> str:
    """How many changes of each kind a repair makes.

    Examples:
        >>> from langgraph_patch.view import changes_in_words
        >>> changes_in_words([{"kind": "recovered"}, {"kind": "inserted"}, {"kind": "inserted"}])
        'recovers 1 result, adds 2 placeholders'
    """
    kinds = Counter(str(change["kind"]) for change in changes)
    words = ((*_CHANGES.get(kind, (kind, "message*")), count) for kind, count in kinds.items())
    return ", ".join(f"{verb} {counted(count, noun)}" for verb, noun, count in words)


def causes_in_words(changes: Iterable[Values]) -> str:
    """For each tool whose result was missing, whether it is recorded, or why there is none.

    Examples:
        >>> from langgraph_patch.view import causes_in_words
        >>> causes_in_words([{"kind": "recovered", "name": "mail", "cause": None},
        ...                  {"kind": "inserted", "name": "wire", "cause": "failed"}])
        'mail: result recorded, wire: failed'
    """
    found = Counter(
        f"{change.get('name') or 'result'}: {change.get('cause') or 'result recorded'}"
        for change in changes
        if change["kind"] in ("inserted", "recovered")
    )
    parts = [f"{text} ({count} times)" if count > 1 else text for text, count in found.items()]
    more = len(parts) - _SHOWN_CAUSES
    return ", ".join(parts[:_SHOWN_CAUSES]) + (f" and {more} more" if more > 0 else "")


def questions_of(report: Values) -> str:
    """What a paused thread asks: the text in the value of each interrupt, or the value as JSON."""
    return "; ".join(map(_question, report.get("asks") or ()))


def _question(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_question, value))
    if not isinstance(value, Mapping):
        return _compact(value)
    for key in _QUESTIONS:
        if isinstance(value.get(key), str):
            return str(value[key])
    requests = value.get("action_requests")  # of the middleware that asks before a tool runs
    if isinstance(requests, list) and requests:
        return _question(requests)
    return (
        f"{value['name']} {_compact(value['args'])}"
        if {*value} == {"name", "args"}
        else (_compact(value))
    )


def age_in_words(seconds: object) -> str:
    """An age in its largest unit; an empty text if it is not known.

    Examples:
        >>> from langgraph_patch.view import age_in_words
        >>> age_in_words(200), age_in_words(90000)
        ('3 minutes', '1 day')
    """
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return ""
    unit = next((unit for unit, size in _UNITS.items() if seconds >= size), "second")
    return counted(int(seconds // _UNITS.get(unit, 1)), f"{unit}*")


# --- tables ------------------------------------------------------------------------------

Line: TypeAlias = tuple[str, Sequence[str]]
"""The status or outcome of a thread, and the cells of its line in a table."""

REPORT_HEADS = ("THREAD", "AGE", "WHAT IS WRONG", "A REPAIR", "CAUSE")
REPAIR_HEADS = ("THREAD", "OUTCOME", "REPAIR", "CAUSE")
_NARROW = 100  # columns of a terminal below which the texts of a thread share one column
_COLOURS: Mapping[str, str] = {
    "damaged": "red",
    "paused": "yellow",
    "unreadable": "magenta",
    "healthy": "green",
    "planned": "cyan",
    "repaired": "green",
    "undone": "green",
}


def label_of(values: Values) -> str:
    """The thread of a report or a repair, with its namespace if it is not that of the root."""
    namespace = values.get("namespace")
    return f"{values['thread_id']} in {namespace}" if namespace else str(values["thread_id"])


def report_line(report: Values) -> Line:
    """The line of one thread in the table of a scan.

    Args:
        report: What `ThreadReport.to_dict()` returns.
    """
    status, changes = report["status"], (report.get("patch") or {}).get("changes", ())
    wrong = [defects_in_words(report.get("defects") or ()), report.get("reason") or ""]
    if status == "paused":
        wrong.insert(0, f"waits for a human: {_cut(questions_of(report), 80)}".rstrip(": "))
    elif status == "unreadable":
        wrong.insert(0, "unreadable")
    elif not wrong[0]:
        wrong[0] = "a placeholder can be replaced" if status == "damaged" else "nothing"
    age = age_in_words(report.get("age"))
    texts = "; ".join(filter(None, wrong)), changes_in_words(changes), causes_in_words(changes)
    return status, [label_of(report), age, *texts]


def repair_line(repair: Values) -> Line:
    """The line of one thread in the table of a repair.

    Args:
        repair: What `ThreadRepair.to_dict()` returns.
    """
    changes = (repair.get("patch") or {}).get("changes", ())
    text = "; ".join(filter(None, (repair.get("reason"), changes_in_words(changes))))
    return repair["outcome"], [
        label_of(repair),
        repair["outcome"],
        text or "nothing",
        causes_in_words(changes),
    ]


def tab_separated(heads: Sequence[str], lines: Iterable[Line]) -> str:
    """A table for a pipe: one line for each thread, with a tab between two columns."""
    rows = [heads, *(cells for _, cells in lines)]
    return "".join("\t".join(map(one_line, cells)) + "\n" for cells in rows)


def lines_table(heads: Sequence[str], lines: Iterable[Line], width: int) -> Table:
    """A table of threads, of a scan or of a repair.

    Args:
        heads: The heads of its columns.
        lines: A line for each thread.
        width: How many columns the terminal has.
    """
    count = len(heads) if width >= _NARROW else 3
    table = _table()
    for place, head in enumerate(heads[:count]):
        table.add_column(head, max_width=None if place else max(12, min(36, width // 3)))
    for state, cells in lines:
        shown = [*cells[: count - 1], "\n".join(filter(None, cells[count - 1 :]))]
        styles = ["bold", *[_COLOURS.get(state, "red")] * (count - 1)]
        table.add_row(*(_text(text, style) for text, style in zip(shown, styles, strict=True)))
    return table


def patch_view(patch: Values, defects: Sequence[Values] = (), *, whole: bool = False) -> Table:
    """The history before and after a repair, side by side.

    Args:
        patch: What `Patch.to_dict()` returns.
        defects: What a report says is wrong with the history before.
        whole: Whether to show all of each message, and messages far from a change. Default: False.
    """
    return _messages(("AS IT IS", "AS IT WOULD BE"), list(rows_of(patch, defects)), whole)


def report_view(values: Values, history: Sequence[Any] = (), *, whole: bool = False) -> Group:
    """A report or a repair: its facts, and its messages before and after.

    Args:
        values: What `ThreadReport.to_dict()` or `ThreadRepair.to_dict()` returns.
        history: The messages as JSON values, shown if there is no patch. Default: none.
        whole: As for `patch_view`.
    """
    state, patch = values.get("status") or values["outcome"], values.get("patch")
    defects, changes = values.get("defects") or (), (patch or {}).get("changes", ())
    age = age_in_words(values.get("age"))
    facts = {
        "written": f"{age} ago, checkpoint {values.get('checkpoint_id')}" if age else "",
        "messages": values.get("messages"),
        "asks": questions_of(values),
        "waits for": age if state == "paused" else "",
        "wrong": defects_in_words(defects),
        "a repair": changes_in_words(changes),
        "causes": causes_in_words(changes),
        "reason": values.get("reason"),
        "before": values.get("before"),
        "after": values.get("after"),
    }
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value:
            grid.add_row("", Text(name, "bright_black"), _text(str(value)))
    title = Text.assemble(
        "Thread ", (one_line(label_of(values)), "bold"), ": ", (state, _COLOURS.get(state, "red"))
    )
    parts: list[RenderableType] = [title, grid]
    if patch:
        parts += ["", patch_view(patch, defects, whole=whole)]
    elif history:
        rows: list[Row] = [(cell, None) for cell in _conversation(history, defects)]
        parts += ["", _messages(("MESSAGES",), rows, whole)]
    return Group(*parts)


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _text(text: str, style: str = "") -> Text:
    return Text(visible(text), style, overflow="fold")


def _messages(heads: Sequence[str], rows: Sequence[Row], whole: bool) -> Table:  # noqa: FBT001 - of this module
    table = _table()
    table.expand = True
    table.add_column("#")
    for head in heads:
        table.add_column(head, ratio=1, overflow="fold")
    limit = math.inf if whole else _LIMIT
    for row in rows if whole else folded(rows):
        if isinstance(row, int):
            table.add_row("", Text(f"... {row} messages without changes ...", "bright_black"))
            continue
        number = "" if row[0] is None else str(row[0].place)
        table.add_row(number, *(_drawn(cell, limit) for cell in row[: len(heads)]))
    return table


def _drawn(cell: Cell | None, limit: float) -> RenderableType:
    if cell is None:
        return ""
    sign, colour = _SIGNS[cell.kind]
    sender = type(cell.message).__name__
    if isinstance(cell.message, Mapping):
        call_id = cell.message.get("tool_call_id")
        sender = str(cell.message.get("type", "?")) + (f" {call_id}" if call_id else "")
    head = _text(f"{sign} {one_line(f'[{sender}] {cell.label}')}".rstrip(), f"bold {colour}")
    body = _text("\n".join(_cut(line, limit) for line in lines_of(cell.message)), colour)
    return Group(head, Padding(body, (0, 0, 0, 2)))


# --- HTML --------------------------------------------------------------------------------

MARK = "<!doctype html><!-- written by langgraph-patch -->"
"""How each page begins."""

_WIDTH = 120
_SHADES = (
    ("#5b6470", "#9aa3af"),
    ("#a8071a", "#ff8a8a"),
    ("#18794e", "#63d297"),
    ("#8a5300", "#f0b860"),
    ("#0b5cad", "#7fb5f5"),
    ("#7c4dbd", "#c4a3f5"),
    ("#00707a", "#5fd0da"),
    ("#1c1e21", "#e4e6ea"),
    ("#ffffff", "#16181c"),
)
"""Each colour on a light page and on a dark one, in the order of a terminal: grey, red, green,
yellow, blue, magenta, cyan, the text; and the background."""

_FRAGMENT = (
    '<pre style="color-scheme: light dark; color: {foreground}; background: {background}; '
    'padding: 0.5em; overflow-x: auto; line-height: 1.4; font-family: monospace">{code}</pre>'
)


def as_html(view: RenderableType) -> str:
    """A table as a fragment of HTML that is readable on a light and on a dark page."""
    console = Console(record=True, file=StringIO(), width=_WIDTH, force_jupyter=False)
    console.print(view)
    light: list[tuple[int, int, int]] = [parse_rgb_hex(shade[1:]) for shade, _ in _SHADES]
    theme = TerminalTheme(light[8], light[7], light[:8])
    shown = console.export_html(theme=theme, code_format=_FRAGMENT, inline_styles=True)
    return re.sub(r'(?<= style=")[^"]*', lambda style: _with_dark(style[0]), shown)


def _with_dark(style: str) -> str:
    for light, dark in _SHADES:
        style = style.replace(light, f"light-dark({light}, {dark})")
    return style


def page(title: str, view: RenderableType, footer: str) -> str:
    """A whole page: no scripts, nothing loaded.

    Args:
        title: The title of the page.
        view: What it shows.
        footer: The text at the end: where the page comes from.
    """
    return (
        f"{MARK}<html lang=en><head><meta charset=utf-8>"
        "<meta name=color-scheme content='light dark'><meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_escape(title)}</title></head><body>{as_html(view)}"
        f"<footer>{_escape(footer)}</footer></body></html>\n"
    )


def notebook_html(value: object, view: Callable[[], RenderableType]) -> str:
    """What a notebook shows of a value; without rich, its text.

    Args:
        value: The value.
        view: Makes its table.
    """
    return as_html(view()) if HAS_RICH else f"<pre>{_escape(str(value))}</pre>"


def _escape(text: str) -> str:
    return html.escape(visible(text), quote=True)
