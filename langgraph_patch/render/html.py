"""Show a patch, a report, a repair or a whole scan as HTML without scripts.

Every text is escaped, long texts are folded, and so are long stretches without a change. Each
change has a sign and a word beside its colour.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from langgraph_patch.render.style import STYLE
from langgraph_patch.render.text import html_text, shortened
from langgraph_patch.render.words import (
    age_in_words,
    causes_in_words,
    changes_in_words,
    defects_in_words,
    questions_of,
)

FOLD = 600
"""How many characters are shown before the rest is folded."""

_JUMPS = 200  # to how many changes a list of links leads

_MEANINGS: Mapping[str, str] = {
    "inserted": "a placeholder was added",
    "recovered": "a real result from a checkpoint was added",
    "moved": "a result was moved to its call",
    "dropped": "a message was removed",
    "converted": "a result became a tool message",
    "promoted": "a call was listed in tool_calls",
    "renamed": "an id or a name was replaced everywhere",
    "corrected": "a damaged field was given the value that it was meant to have",
    "omitted": "a message that no model can read; it stays in the state",
}


def patch_html(patch: Values) -> str:
    """The history before and after, side by side, as a fragment of HTML.

    Args:
        patch: What `Patch.to_dict()` returns.

    Examples:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.render.html import patch_html
        >>> call = {"name": "wire", "args": {}, "id": "<c1>"}
        >>> page = patch_html(patch_messages([AIMessage("", tool_calls=[call])]).to_dict())
        >>> "<c1>" in page, "&lt;c1&gt;" in page
        (False, True)
    """
    return _styled(_sides(patch, (), _name_of(patch)))


def report_html(report: Values, history: Sequence[Any] = ()) -> str:
    """The report on one thread, or its repair, as a fragment of HTML.

    Args:
        report: What `ThreadReport.to_dict()` or `ThreadRepair.to_dict()` returns.
        history: The messages as JSON values, shown if the report has no patch. Default: none.

    Examples:
        >>> from langgraph_patch.render.html import report_html
        >>> "paused" in report_html({"thread_id": "1", "status": "paused"})
        True
    """
    return _styled(report_body(report, history))


def report_body(report: Values, history: Sequence[Any] = ()) -> str:
    """The same as `report_html`, without the style: for `page`."""
    patch, defects = report.get("patch"), report.get("defects") or ()
    name = _name_of([report.get(key) for key in ("thread_id", "namespace", "checkpoint_id")])
    if patch:
        messages = _sides(patch, defects, name)
    else:
        messages = _conversation(history, defects, name) if history else ""
    return _facts(report, defects) + messages


def page(title: str, bodies: Iterable[str], footer: str = "") -> Iterator[str]:
    """The parts of one page that contains all it needs: no scripts, nothing loaded.

    Args:
        title: The title of the page and its first heading.
        bodies: The HTML below the heading.
        footer: The text at the end: where the page comes from. Default: none.
    """
    yield (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        "<meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{html_text(title)}</title><style>{STYLE}</style></head>"
        f"<body class=lgp><h1>{html_text(title)}</h1>"
    )
    yield from bodies
    yield f"<footer>{html_text(footer)}</footer></body></html>\n"


def _styled(body: str) -> str:
    return f"<style>{STYLE}</style><div class=lgp>{body}</div>"


def _name_of(value: object) -> str:
    """A short name for the anchors of a fragment: several fragments may be on one page."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return f"lgp-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"


# --- the index of a scan -----------------------------------------------------------------


def index_body(counts: Mapping[str, int], rows: Iterable[str]) -> Iterator[str]:
    """The parts of a table of threads, below how many there are of each status.

    Args:
        counts: The number of histories of each status.
        rows: What `index_row` returned for each thread.
    """
    items = "".join(
        f"<li>{_badge(status, f'{n} {status}')} {_STATUS_MEANINGS.get(status, '')}</li>"
        for status, n in counts.items()
    )
    heads = "".join(f"<th scope=col>{head}</th>" for head in _INDEX_HEADS)
    yield f"<ul class=counts>{items}</ul>"
    yield f"<table class=index><thead><tr>{heads}</tr></thead><tbody>"
    yield from rows
    yield "</tbody></table>"


def index_html(counts: Mapping[str, int], reports: Iterable[Values]) -> str:
    """A table of threads as a fragment of HTML.

    Args:
        counts: The number of histories of each status.
        reports: What `ThreadReport.to_dict()` returned for each thread of the table.

    Examples:
        >>> from langgraph_patch.render.html import index_html
        >>> "2 healthy" in index_html({"healthy": 2}, [])
        True
    """
    return _styled("".join(index_body(counts, [index_row(report, "") for report in reports])))


_STATUS_MEANINGS = {
    "damaged": "a provider refuses the next message",
    "paused": "waits for a human",
    "unreadable": "could not be read",
    "healthy": "nothing is wrong",
}
_INDEX_HEADS = ("Thread", "Status", "Age", "What is wrong", "A repair", "Cause")


def index_row(report: Values, link: str) -> str:
    """The row of one thread.

    Args:
        report: What `ThreadReport.to_dict()` returns.
        link: Where the thread is shown; `""` for nowhere.
    """
    changes = (report.get("patch") or {}).get("changes", ())
    label = html_text(_label(report))
    asks = "; ".join(" ".join(shortened(text, FOLD)).strip() for text in questions_of(report))
    wrong = filter(
        None,
        (defects_in_words(report["defects"]), asks and f"asks: {asks}", report.get("reason")),
    )
    cells = [
        ("", f"<a href='{html_text(link)}'>{label}</a>" if link else label),
        ("", _badge(report["status"], report["status"])),
        ("Age", html_text(age_in_words(report.get("age"), short=True))),
        ("Wrong", html_text("; ".join(wrong))),
        ("Repair", html_text(changes_in_words(changes))),
        ("Cause", html_text(causes_in_words(changes))),
    ]
    return f"<tr>{''.join(_index_cell(name, value) for name, value in cells)}</tr>"


def _index_cell(name: str, value: str) -> str:
    kind = " class=age" if name == "Age" else ""
    return f"<td{kind} title='{name}'>{value}</td>" if name and value else f"<td>{value}</td>"


def _label(report: Values) -> str:
    namespace = report.get("namespace")
    return f"{report['thread_id']} in {namespace}" if namespace else str(report["thread_id"])


def _badge(status: object, text: object) -> str:
    return f"<span class='badge {html_text(status)}'>{html_text(text)}</span>"


# --- the facts of a report ---------------------------------------------------------------


def _facts(report: Values, defects: Sequence[Values]) -> str:
    changes = (report.get("patch") or {}).get("changes", ())
    facts = {
        key.replace("_", " "): _fact_value(key, value)
        for key, value in report.items()
        if key not in {"patch", "defects", "asks"} and value not in (None, "")
    }
    facts |= {
        "asks": "<br>".join(map(html_text, questions_of(report))),
        "wrong": html_text(defects_in_words(defects)),
        "repair": html_text(changes_in_words(changes)),
        "causes": html_text(causes_in_words(changes)),
    }
    rows = (
        f"<tr><th scope=row>{html_text(name)}</th><td>{value}</td></tr>"
        for name, value in facts.items()
        if value
    )
    return f"<table class=facts>{''.join(rows)}</table>"


def _fact_value(key: str, value: object) -> str:
    if key == "age":
        return html_text(f"{age_in_words(value)}" or value)
    if key in ("status", "outcome"):
        return _badge(value, value)
    if isinstance(value, str | int | float):
        return html_text(value)
    return f"<pre>{html_text(json.dumps(value, indent=1, ensure_ascii=False, default=repr))}</pre>"


# --- the messages ------------------------------------------------------------------------


def _sides(patch: Values, defects: Sequence[Values], name: str) -> str:
    before, after = patch["before"], patch["messages"]
    if not patch["changes"]:
        return f"<p>Nothing to repair in {len(after)} messages.</p>"
    heads = (f"Before ({len(before)})", f"After ({len(after)})")
    return _legend(patch["changes"]) + _rows(heads, list(rows_of(patch, defects)), name)


def _conversation(history: Sequence[Any], defects: Sequence[Values], name: str) -> str:
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
