"""How a patch or a report is shown: one HTML page without scripts, made of `to_dict()` values.

Everything in a history is data from a model, a tool or a stranger. It is escaped, control
characters are made visible, and what is long is folded. Each change has a sign and a word
beside its colour.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Values: TypeAlias = Mapping[str, Any]
"""What `to_dict()` of a patch, a change, a defect, a report or a message gives."""

SIGNS: Mapping[str, str] = {
    "inserted": "+",
    "recovered": "↺",
    "moved": "→",
    "dropped": "−",
    "converted": "⇄",
    "promoted": "↑",
    "renamed": "✎",
}
"""A sign for each kind of change, so that nobody has to tell colours apart."""

FOLD = 600
"""How many characters are shown before the rest is folded."""

_NEW = frozenset({"inserted", "recovered"})
"""Changes whose message stood nowhere before; their index is that of the call."""

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


def text(value: object) -> str:
    """`value` as HTML: escaped, with control characters made visible."""
    return html.escape(_NOT_PLAIN.sub(_visible, str(value)), quote=True)


def _visible(found: re.Match[str]) -> str:
    character = found[0]
    # Cc: control; Cf: formats, such as those that turn the direction; Cs: halves of a character.
    # Two formats are letters' own business: emoji, Arabic and Indic scripts are joined by them.
    if character in "\u200c\u200d" or unicodedata.category(character) not in _OBEYED:
        return character
    return f"<U+{ord(character):04X}>"


_NOT_PLAIN = re.compile(r"[^\x20-\x7e\n\t]")
_OBEYED = ("Cc", "Cf", "Cs")


def patch_html(patch: Values) -> str:
    """The history before and after, side by side, as a fragment of HTML.

    Args:
        patch: What `Patch.to_dict()` gives.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.render.html import patch_html
        >>> call = {"name": "wire", "args": {}, "id": "<c1>"}
        >>> page = patch_html(patch_messages([AIMessage("", tool_calls=[call])]).to_dict())
        >>> "<c1>" in page, "&lt;c1&gt;" in page
        (False, True)
    """
    return _fragment(_patch(patch, ()))


def report_html(report: Values, history: Sequence[Any] = ()) -> str:
    """What is known of one thread, as a fragment of HTML.

    Args:
        report: What `ThreadReport.to_dict()` gives.
        history: The messages as JSON values, shown where the report has no patch. Default: none.

    Example:
        >>> from langgraph_patch.render.html import report_html
        >>> "paused" in report_html({"thread_id": "1", "status": "paused"})
        True
    """
    patch, defects = report.get("patch"), report.get("defects") or ()
    rows = "".join(
        f"<tr><th scope=row>{text(key.replace('_', ' '))}</th><td>{_value(key, value)}</td></tr>"
        for key, value in report.items()
        if key not in {"patch", "defects"} and value not in (None, "")
    )
    if defects:
        counted = Counter(str(defect["kind"]) for defect in defects)
        said = ", ".join(f"{count} {kind}" for kind, count in counted.items())
        rows += f"<tr><th scope=row>defects</th><td>{text(said)}</td></tr>"
    facts = f"<table class=facts>{rows}</table>"
    if patch:
        return _fragment(facts + _patch(patch, defects))
    return _fragment(facts + (_conversation(history, defects) if history else ""))


def page(title: str, fragments: Iterable[str]) -> str:
    """One self-contained page: no scripts, nothing loaded from anywhere."""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        "<meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title></head><body class=lgp><h1>{text(title)}</h1>"
        f"{''.join(fragments)}</body></html>\n"
    )


def _fragment(body: str) -> str:
    return f"<style>{_STYLE}</style><div class=lgp>{body}</div>"


# --- two sides ---------------------------------------------------------------------------


def _patch(patch: Values, defects: Sequence[Values]) -> str:
    before, after, changes = patch["before"], patch["messages"], patch["changes"]
    if not changes:
        return f"<p>Nothing to repair in {len(after)} messages.</p>"
    wrong = _wrong(defects)
    stood, stands = defaultdict(list), defaultdict(list)
    for change in changes:
        if change["kind"] not in _NEW:
            stood[change["index"]].append(change)
        if change["after"] is not None:
            stands[_key(change["after"])].append(change)
    left = {_name(message) for message in after}
    rows = []
    for place, message in _aligned(before, after, stands):
        old, new = _NOTHING, _NOTHING
        if place is not None:
            mine = stood[place]
            if not mine and _name(before[place]) not in left:
                mine = [_REPLACED]
            old = _cell(before[place], f"#{place}", mine, wrong[place])
        if message is not None:
            mine = stands[_key(message)]
            here = {change["index"] for change in mine if change["kind"] not in _NEW}
            origin = f"from #{min(here)}" if here else "new" if mine else ""
            same = place is not None and message == before[place]
            origin = origin or (f"from #{place}" if place is not None else "")
            new = _cell(message, origin, mine, kind="same" if same else "")
        rows.append(f"<tr>{old}{new}</tr>")
    return _table((f"Before ({len(before)})", f"After ({len(after)})"), rows)


def _conversation(history: Sequence[Any], defects: Sequence[Values]) -> str:
    wrong = _wrong(defects)
    cells = (_cell(message, f"#{k}", (), wrong[k]) for k, message in enumerate(history))
    return _table((f"Messages ({len(history)})",), (f"<tr>{cell}</tr>" for cell in cells))


def _aligned(
    before: Sequence[Any], after: Sequence[Any], stands: Mapping[str, Sequence[Values]]
) -> Iterator[tuple[int | None, Any]]:
    """Rows: a message stands beside itself, unless it is new or was moved."""
    places = defaultdict(list)
    for place, message in enumerate(before):
        places[_name(message)].append(place)
    left = 0
    for message in after:
        kinds = {change["kind"] for change in stands.get(_key(message), ())}
        ahead = [place for place in places[_name(message)] if place >= left]
        if not ahead or kinds & {*_NEW, "moved"}:
            yield None, message
            continue
        yield from ((gone, None) for gone in range(left, ahead[0]))
        yield ahead[0], message
        left = ahead[0] + 1
    yield from ((gone, None) for gone in range(left, len(before)))


def _name(message: Any) -> str:
    known = message.get("id") if isinstance(message, Mapping) else None
    return _key(message) if known is None else f"id {known}"


def _key(message: Any) -> str:
    return json.dumps(message, sort_keys=True, default=repr)


def _wrong(defects: Sequence[Values]) -> defaultdict[int, list[str]]:
    wrong: defaultdict[int, list[str]] = defaultdict(list)
    for defect in defects:
        wrong[defect["index"]].append(str(defect["kind"]))
    return wrong


def _table(heads: Sequence[str], rows: Iterable[str]) -> str:
    titles = "".join(f"<th scope=col>{text(head)}</th>" for head in heads)
    return (
        f"<table class=sides><thead><tr>{titles}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


_NOTHING = "<td class=none></td>"
_REPLACED = {"kind": "dropped", "said": "replaced"}


def _cell(
    message: Any,
    origin: str,
    changes: Sequence[Values],
    wrong: Sequence[str] = (),
    kind: str = "",
) -> str:
    kind = changes[0]["kind"] if changes else kind
    said = dict.fromkeys(f"{SIGNS[change['kind']]} {_said_of(change)}" for change in changes)
    what = f"<span class=what>{text(', '.join(said))}</span>" if said else ""
    marks = f"<span class=wrong>! {text(', '.join(dict.fromkeys(wrong)))}</span>" if wrong else ""
    who = f"<span class=who>{text(f'{origin} {_who(message)}'.strip())}</span>"
    return f'<td class="{text(kind)}">{what}{who}{marks}{_body(message)}</td>'


def _said_of(change: Values) -> str:
    cause = f" ({change['cause']})" if change.get("cause") else ""
    return f"{change.get('said', change['kind'])}{cause}"


def _who(message: Any) -> str:
    if not isinstance(message, Mapping):
        return type(message).__name__
    call = message.get("tool_call_id")
    return f"{message.get('type', '?')}{f' for {call}' if call else ''}"


def _body(message: Any) -> str:
    if not isinstance(message, Mapping):
        return _folded(str(message))
    calls = [*(message.get("tool_calls") or ()), *(message.get("invalid_tool_calls") or ())]
    said = message.get("content")
    said = said if isinstance(said, str) else _short(said)
    lines = [f"calls {c.get('name')} [{c.get('id')}] {_short(c.get('args'))}" for c in calls]
    return (_folded(said) if said else "") + "".join(_folded(line) for line in lines)


def _short(args: object) -> str:
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, default=repr)


def _folded(said: str) -> str:
    if len(said) <= FOLD:
        return f"<pre>{text(said)}</pre>"
    return (
        f"<details><summary><span>{text(said[:FOLD])}…</span> ({len(said):,} characters)</summary>"
        f"<pre>{text(said)}</pre></details>"
    )


def _value(key: str, value: object) -> str:
    if key == "age" and isinstance(value, int | float):
        return f"{value:,.0f} s"
    if isinstance(value, str | int | float):
        return text(value)
    return f"<pre>{text(json.dumps(value, indent=1, ensure_ascii=False, default=repr))}</pre>"
