"""Show a patch or a report as HTML without scripts.

Every text is escaped, and long texts are folded. Each change has a sign and a word beside its
colour.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph_patch.render.comparison import (
    SIGNS,
    Cell,
    Values,
    conversation,
    lines_of,
    rows_of,
    sender_of,
)
from langgraph_patch.render.text import html_text, shortened

FOLD = 600
"""How many characters are shown before the rest is folded."""

_STYLE = """
.lgp{font:14px/1.45 system-ui,sans-serif;color:#1c1e21;background:#fff}
body.lgp{margin:1rem auto;max-width:90rem;padding:0 1rem}
.lgp h1{font-size:1.3rem;overflow-wrap:anywhere}
.lgp table{border-collapse:collapse}
.lgp .facts{margin-bottom:1rem}
.lgp .facts th{text-align:left;font-weight:400;color:#5b6470;padding:.1rem 1rem .1rem 0;
  vertical-align:top;white-space:nowrap}
.lgp .facts td{overflow-wrap:anywhere}
.lgp .sides{width:100%;table-layout:fixed;border-spacing:.5rem .3rem;border-collapse:separate}
.lgp .sides th{text-align:left}
.lgp .sides td{vertical-align:top;padding:.3rem .6rem;overflow-wrap:anywhere;
  border:1px solid #d0d4d9;border-left-width:.4rem;border-radius:.3rem}
.lgp .sides td.none{border:0}
.lgp pre{margin:.2rem 0 0;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}
.lgp summary{cursor:pointer;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}
.lgp details[open] summary span{display:none}
.lgp .who{color:#5b6470}
.lgp .what{float:right;font-weight:600;margin-left:.6rem}
.lgp .wrong{color:#a8071a;font-weight:600;margin-left:.6rem}
.lgp .sides .inserted{border-color:#b26a00;background:#fff6e6}
.lgp .sides .recovered{border-color:#18794e;background:#e9f9ee}
.lgp .sides .moved{border-color:#0b68cb;background:#eaf3ff}
.lgp .sides .dropped{border-color:#c6262e;background:#ffefef}
.lgp .sides .converted{border-color:#7c4dbd;background:#f5efff}
.lgp .sides .promoted{border-color:#00707a;background:#e5f7f8}
.lgp .sides .renamed{border-color:#46606f;background:#eef4f7}
.lgp table,.lgp table th{color:inherit;background:none;font-size:inherit;margin-left:0}
.lgp table tbody tr:nth-child(n),.lgp table tbody tr:nth-child(n):hover{background:none}
.lgp .sides td,.lgp .sides th,.lgp .facts td,.lgp .facts th{text-align:left}
.lgp td pre,.lgp summary{padding:0;background:none;color:inherit;word-break:normal}
@media(max-width:50rem){.lgp .sides,.lgp .sides tbody,.lgp .sides tr,.lgp .sides td{display:block}
  .lgp .sides thead,.lgp .sides td.none,.lgp .sides td.same{display:none}
  .lgp .sides td{margin:.3rem 0}}
"""


def patch_html(patch: Values) -> str:
    """The history before and after, side by side, as a fragment of HTML.

    Args:
        patch: What `Patch.to_dict()` returns.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.render.html import patch_html
        >>> call = {"name": "wire", "args": {}, "id": "<c1>"}
        >>> page = patch_html(patch_messages([AIMessage("", tool_calls=[call])]).to_dict())
        >>> "<c1>" in page, "&lt;c1&gt;" in page
        (False, True)
    """
    return _fragment(_sides(patch, ()))


def report_html(report: Values, history: Sequence[Any] = ()) -> str:
    """The report on one thread, as a fragment of HTML.

    Args:
        report: What `ThreadReport.to_dict()` returns.
        history: The messages as JSON values, shown if the report has no patch. Default: none.

    Example:
        >>> from langgraph_patch.render.html import report_html
        >>> "paused" in report_html({"thread_id": "1", "status": "paused"})
        True
    """
    patch, defects = report.get("patch"), report.get("defects") or ()
    if patch:
        messages = _sides(patch, defects)
    else:
        messages = _conversation(history, defects) if history else ""
    return _fragment(_facts(report, defects) + messages)


def page(title: str, fragments: Iterable[str]) -> str:
    """One page that contains all it needs: no scripts, nothing loaded from elsewhere."""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        "<meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{html_text(title)}</title></head>"
        f"<body class=lgp><h1>{html_text(title)}</h1>{''.join(fragments)}</body></html>\n"
    )


def _fragment(body: str) -> str:
    return f"<style>{_STYLE}</style><div class=lgp>{body}</div>"


# --- the facts of a report ---------------------------------------------------------------


def _facts(report: Values, defects: Sequence[Values]) -> str:
    rows = [
        _fact(key.replace("_", " "), _fact_value(key, value))
        for key, value in report.items()
        if key not in {"patch", "defects"} and value not in (None, "")
    ]
    if defects:
        counted = Counter(str(defect["kind"]) for defect in defects)
        counts = ", ".join(f"{count} {kind}" for kind, count in counted.items())
        rows.append(_fact("defects", html_text(counts)))
    return f"<table class=facts>{''.join(rows)}</table>"


def _fact(name: str, value: str) -> str:
    return f"<tr><th scope=row>{html_text(name)}</th><td>{value}</td></tr>"


def _fact_value(key: str, value: object) -> str:
    if key == "age" and isinstance(value, int | float):
        return f"{value:,.0f} s"
    if isinstance(value, str | int | float):
        return html_text(value)
    return f"<pre>{html_text(json.dumps(value, indent=1, ensure_ascii=False, default=repr))}</pre>"


# --- the messages ------------------------------------------------------------------------


def _sides(patch: Values, defects: Sequence[Values]) -> str:
    before, after = patch["before"], patch["messages"]
    if not patch["changes"]:
        return f"<p>Nothing to repair in {len(after)} messages.</p>"
    rows = (_cell(left) + _cell(right) for left, right in rows_of(patch, defects))
    return _table((f"Before ({len(before)})", f"After ({len(after)})"), rows)


def _conversation(history: Sequence[Any], defects: Sequence[Values]) -> str:
    cells = map(_cell, conversation(history, defects))
    return _table((f"Messages ({len(history)})",), cells)


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    titles = "".join(f"<th scope=col>{html_text(head)}</th>" for head in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table class=sides><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td class=none></td>"
    kind = cell.marks[0].kind if cell.marks else "same" if cell.is_unchanged else ""
    labels = ", ".join(f"{SIGNS[mark.kind]} {mark.label}" for mark in cell.marks)
    sender = " for ".join(filter(None, sender_of(cell.message)))
    return (
        f'<td class="{html_text(kind)}">'
        + _span("what", labels)
        + _span("who", f"{cell.origin} {sender}".strip())
        + _span("wrong", cell.defects and f"! {', '.join(cell.defects)}")
        + "".join(map(_folded, lines_of(cell.message)))
        + "</td>"
    )


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
