"""Show reports and repairs on a terminal: the rows of a scan, one conversation, a difference.

Every function returns lines, so that the caller decides about colours. All text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph_patch.render.columns import GAP, Line, Piece, plain, row, width_of
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
from langgraph_patch.render.text import one_line, shortened, visible
from langgraph_patch.render.words import (
    age_in_words,
    causes_in_words,
    changes_in_words,
    questions_of,
    wrong_in_words,
)

COLOURS: Mapping[str, str] = {
    "inserted": "yellow",
    "recovered": "green",
    "restored": "green",
    "moved": "cyan",
    "dropped": "red",
    "converted": "magenta",
    "promoted": "blue",
    "renamed": "blue",
    "corrected": "blue",
}
STATUS_COLOURS: Mapping[str, str] = {
    "healthy": "green",
    "damaged": "red",
    "paused": "yellow",
    "unreadable": "magenta",
}
_LIMIT = 400  # how many characters of a content or a call are shown
_DIFF_LIMIT = 160  # the same in a difference, where a line should stay a line

# --- the rows of a scan ------------------------------------------------------------------

_HEADS = ("THREAD", "AGE", "WHAT IS WRONG", "A REPAIR", "CAUSE")
_AGE = 6
_ID = 36  # the width of a UUID, beyond which no column of ids grows
_LEAST = (12, _AGE, 26, 34, 30)  # the widths of columns that are not wrapped


def scan_widths(width: int) -> tuple[int, ...]:
    """The widths of the columns of a scan on a terminal of that width."""
    room = max(width, 60) - _AGE - len(GAP) * (len(_HEADS) - 1)
    thread = min(_ID, room // 4)
    third = (room - thread) // 3
    return thread, _AGE, third, third, room - thread - 2 * third


def scan_head(widths: Sequence[int] | None) -> list[Line]:
    """The line above the rows of a scan.

    Args:
        widths: The widths of the columns. None: they are as wide as their text.
    """
    pieces = [[Piece(head, "bold")] for head in _HEADS]
    if widths is None:
        return [_unwrapped([*(cell[0] for cell in pieces), Piece("NEXT", "bold")])]
    return row(pieces, widths)


def scan_row(report: Values, following: str, widths: Sequence[int] | None) -> list[Line]:
    """The lines of one report in the table of a scan.

    Args:
        report: What `ThreadReport.to_dict()` returns.
        following: The next command to type for this thread; `""` for none.
        widths: The widths of the columns. None: the report is one line, with the command.

    Examples:
        >>> from langgraph_patch.render.columns import plain
        >>> from langgraph_patch.render.terminal import scan_row
        >>> report = {"thread_id": "7", "namespace": "", "status": "paused", "age": 90.0}
        >>> [line] = scan_row(report, "show x.db 7", None)
        >>> plain(line).split()
        ['7', '1', 'min', 'waits', 'for', 'a', 'human', '-', '-', 'show', 'x.db', '7']
    """
    changes = (report.get("patch") or {}).get("changes", ())
    colour = STATUS_COLOURS.get(report["status"], "")
    cells = [
        Piece(label_of(report), "bold"),
        Piece(age_in_words(report.get("age"), short=True) or "-"),
        Piece(_wrong(report), colour),
        Piece(changes_in_words(changes) or "-"),
        Piece(causes_in_words(changes) or "-"),
    ]
    if widths is None:
        return [_unwrapped([*cells, Piece(following)])]
    lines = row([[cell] for cell in cells], widths)
    if following:
        lines.append([Piece(f"{GAP}next: {one_line(following)}", "dim")])
    return lines


def label_of(values: Values) -> str:
    """The thread of a report or a repair, with its namespace if it is not that of the root."""
    namespace = values.get("namespace")
    return f"{values['thread_id']} in {namespace}" if namespace else str(values["thread_id"])


def _wrong(report: Values) -> str:
    asks = questions_of(report)
    wrong = wrong_in_words(report)
    if asks:
        wrong = f"{wrong}: {' '.join(shortened('; '.join(asks), 80))}".rstrip()
    reason = report.get("reason")
    return f"{wrong}; {reason}" if reason and report["status"] == "damaged" else wrong


def _unwrapped(pieces: Sequence[Piece]) -> Line:
    """Pieces on one line, each padded to the least width of its column."""
    line = []
    for place, piece in enumerate(pieces):
        text = one_line(piece.text)
        gap = "" if place >= len(_LEAST) else " " * max(0, _LEAST[place] - width_of(text)) + GAP
        line += [Piece(text, piece.style), Piece(gap)]
    return line


# --- one conversation --------------------------------------------------------------------


def show_report(
    report: Values, history: Sequence[Any], width: int, *, is_folded: bool = True
) -> Iterator[Line]:
    """A report with its history and, if there is a patch, the repaired history beside it.

    Args:
        report: What `ThreadReport.to_dict()` returns.
        history: The messages as JSON values, shown if the report has no patch.
        width: How many columns the terminal has.
        is_folded: Whether stretches without a change or a defect are folded. Default: True.
    """
    yield from _facts(report, width)
    patch, defects = report.get("patch"), report.get("defects") or ()
    number = len(str(len(patch["before"] if patch else history))) + 1
    room = max(width, 40) - number - len(GAP)
    widths: tuple[int, ...] = (number, room)
    heads: tuple[str, ...] = ("#", "MESSAGES")
    if patch:
        half = (room - len(GAP)) // 2
        widths, heads = (number, half, room - len(GAP) - half), ("#", "AS IT IS", "AS IT WOULD BE")
        rows: Iterable[Row] = rows_of(patch, defects)
    else:
        rows = ((cell, None) for cell in conversation(history, defects))
    yield []
    yield from row([[Piece(head, "bold")] for head in heads], widths)
    for stretch in stretches(rows) if is_folded else [Stretch(list(rows), is_folded=False)]:
        if stretch.is_folded:
            yield [Piece(" " * (number + len(GAP))), Piece(fold_text(stretch), "dim")]
            continue
        for left, right in stretch.rows:
            cells = [_number(left), _with_defects(left), _with_marks(right)]
            yield from row(cells[: len(widths)], widths)


def fold_text(stretch: Stretch) -> str:
    """What is written in the place of messages that are not shown."""
    return f"... {len(stretch.rows)} messages without changes ..."


def _facts(report: Values, width: int) -> Iterator[Line]:
    status = str(report["status"])
    yield [
        Piece("Thread "),
        Piece(one_line(label_of(report)), "bold"),
        Piece(" is "),
        Piece(status, f"bold {STATUS_COLOURS.get(status, '')}".strip()),
    ]
    changes = (report.get("patch") or {}).get("changes", ())
    age = age_in_words(report.get("age"))
    facts = [
        ("written", f"{age} ago, checkpoint {report['checkpoint_id']}" if age else ""),
        ("messages", str(report.get("messages") or "")),
        ("asks", "\n".join(questions_of(report))),
        ("waits for", age if status == "paused" else ""),
        ("wrong", wrong_in_words(report) if status != "paused" or report.get("defects") else ""),
        ("a repair", changes_in_words(changes)),
        ("causes", causes_in_words(changes)),
        ("note", str(report.get("reason") or "") if status == "damaged" else ""),
    ]
    names = max(len(name) for name, _ in facts)
    for name, text in facts:
        if text:
            widths = (names, max(20, width - names - 2 * len(GAP)))
            for line in row([[Piece(name, "dim")], [Piece(text)]], widths):
                yield [Piece(GAP), *line]


def _number(cell: Cell | None) -> list[Piece]:
    return [Piece("" if cell is None or cell.index is None else str(cell.index), "dim")]


def _with_defects(cell: Cell | None) -> list[Piece]:
    if cell is None:
        return []
    sign = "!" if cell.defects else " "
    return _drawn(cell.message, sign, "red" if cell.defects else "", ", ".join(cell.defects))


def _with_marks(cell: Cell | None) -> list[Piece]:
    if cell is None:
        return []
    if not cell.marks:
        return _drawn(cell.message, " ", "", "")
    kind = cell.marks[0].kind
    labels = ", ".join(mark.label for mark in cell.marks)
    return _drawn(cell.message, SIGNS[kind], COLOURS[kind], labels)


def _drawn(message: Any, sign: str, colour: str, label: str) -> list[Piece]:
    head = f"{sign} {_sender(message)} {label}".rstrip()
    pieces = [Piece(head, f"bold {colour}".strip())]
    texts = (" ".join(filter(None, shortened(text, _LIMIT))) for text in lines_of(message))
    return pieces + [Piece(f"  {text}", colour) for text in texts]


def _sender(message: Any) -> str:
    kind, call_id = sender_of(message)
    return one_line(f"[{kind} {call_id}]" if call_id else f"[{kind}]")


# --- a difference ------------------------------------------------------------------------


def diff(patch: Values) -> Iterator[Line]:
    """The history before and after a repair as a difference: `-` is removed, `+` is added.

    Args:
        patch: What `Patch.to_dict()` returns.
    """
    for stretch in stretches(rows_of(patch)):
        if stretch.is_folded:
            yield [Piece(f"    {fold_text(stretch)}", "dim")]
            continue
        for left, right in stretch.rows:
            if left and right and right.is_unchanged:
                yield from _diff_lines(" ", left, "", "")
                continue
            if left:
                yield from _diff_lines("-", left, "red", _labels(left))
            if right:
                yield from _diff_lines("+", right, "green", _labels(right))


def _labels(cell: Cell) -> str:
    return ", ".join(mark.label for mark in cell.marks)


def _diff_lines(sign: str, cell: Cell, colour: str, label: str) -> Iterator[Line]:
    place = "" if cell.index is None else f"#{cell.index}"
    head = f"  {sign} {place:<5}{_sender(cell.message)} {visible(label)}".rstrip()
    yield [Piece(head, colour)]
    for text in lines_of(cell.message):
        cut = one_line(" ".join(filter(None, shortened(text, _DIFF_LIMIT))))
        yield [Piece(f"  {sign}        {cut}", colour)]


# --- the rows of a repair ----------------------------------------------------------------

_OUTCOME_COLOURS: Mapping[str, str] = {
    "repaired": "green",
    "planned": "cyan",
    "healthy": "green",
    "paused": "yellow",
    "undone": "green",
}
_REPAIR_HEADS = ("THREAD", "REPAIR", "OUTCOME")
_OUTCOME = 8
_LEAST_OF_REPAIR = (12, 60)


def repair_head(width: int | None) -> list[Line]:
    """The line above the rows of a repair; `width` is as for `repair_row`."""
    lines = _repair_cells([Piece(head, "bold") for head in _REPAIR_HEADS[:2]], width)
    return [[*lines[0], *_padding(lines[0], width), Piece(_REPAIR_HEADS[2], "bold")]]


def repair_row(repair: Values, width: int | None) -> list[Line]:
    """The lines of one repair, without its outcome, which is known when it has been written.

    Args:
        repair: What `ThreadRepair.to_dict()` returns.
        width: How many columns the terminal has. None: the repair is one line.
    """
    changes = (repair.get("patch") or {}).get("changes", ())
    causes = causes_in_words(changes)
    text = changes_in_words(changes) + (f" ({causes})" if causes else "")
    cells = [Piece(label_of(repair), "bold"), Piece(text or str(repair.get("reason") or "-"))]
    return _repair_cells(cells, width)


def repair_outcome(repair: Values, last: Line, width: int | None) -> list[Line]:
    """The end of the last line of `repair_row`; below it, why an announced repair was not written.

    Args:
        repair: What `ThreadRepair.to_dict()` returns.
        last: The last line of `repair_row`, which has been printed.
        width: As for `repair_row`.
    """
    outcome = str(repair["outcome"])
    colour = _OUTCOME_COLOURS.get(outcome, "red")
    lines: list[Line] = [[*_padding(last, width), Piece(outcome, f"bold {colour}")]]
    reason = repair.get("reason")
    if reason and reason not in plain(last) and repair.get("patch"):
        lines.append([Piece(f"{GAP}{one_line(str(reason))}", colour)])
    return lines


def _repair_cells(cells: Sequence[Piece], width: int | None) -> list[Line]:
    if width is not None:
        thread, text = _repair_widths(width)
        return row([[cell] for cell in cells], (thread, text))
    first = Piece(one_line(cells[0].text), cells[0].style)
    gap = " " * max(0, _LEAST_OF_REPAIR[0] - width_of(first.text)) + GAP
    return [[first, Piece(gap), Piece(one_line(cells[1].text), cells[1].style)]]


def _padding(line: Line, width: int | None) -> Line:
    """The blanks between a line and the column of the outcomes."""
    columns = sum(_LEAST_OF_REPAIR if width is None else _repair_widths(width)) + len(GAP)
    return [Piece(" " * max(0, columns - width_of(plain(line))) + GAP)]


def _repair_widths(width: int) -> tuple[int, int]:
    room = max(width, 60) - _OUTCOME - 2 * len(GAP)
    thread = min(_ID, room // 4)
    return thread, min(room - thread, 80)
