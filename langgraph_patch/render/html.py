"""Show a patch, a report, a repair or a whole scan as HTML without scripts.

Every text is escaped. `html_messages` shows the messages; here are the facts about a thread, the
index of a scan and the page around them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph_patch.render.comparison import Values
from langgraph_patch.render.html_messages import FOLD, conversation_html, sides_html
from langgraph_patch.render.style import STYLE
from langgraph_patch.render.text import html_text, shortened
from langgraph_patch.render.words import (
    age_in_words,
    causes_in_words,
    changes_in_words,
    defects_in_words,
    questions_of,
)


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
    return _styled(sides_html(patch, (), _name_of(patch)))


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
        messages = sides_html(patch, defects, name)
    else:
        messages = conversation_html(history, defects, name) if history else ""
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
