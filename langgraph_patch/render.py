"""How a patch or a report is shown: one HTML page without scripts, made of `to_dict()` values.

Everything in a history is data from a model, a tool or a stranger. It is escaped, control
characters are made visible, and what is long is folded. Each change has a sign and a word
beside its colour.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
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

_STYLE = """
.lgp{font:14px/1.45 system-ui,sans-serif;color:#1c1e21;background:#fff}
.lgp .pair{display:grid;grid-template-columns:1fr 1fr;gap:1rem}
.lgp h1{font-size:1.3rem}.lgp h2{font-size:1rem;margin:.6rem 0 .3rem}
.lgp ol{list-style:none;margin:0;padding:0}
.lgp li{border:1px solid #d0d4d9;border-left:.4rem solid #d0d4d9;border-radius:.3rem;
  margin:.3rem 0;padding:.3rem .6rem;overflow-wrap:anywhere}
.lgp pre{margin:.2rem 0 0;white-space:pre-wrap;font:13px/1.4 ui-monospace,monospace}
.lgp .who{color:#5b6470}.lgp .what{float:right;font-weight:600}
.lgp .inserted{border-color:#b26a00;background:#fff6e6}
.lgp .recovered{border-color:#18794e;background:#e9f9ee}
.lgp .moved{border-color:#0b68cb;background:#eaf3ff}
.lgp .dropped{border-color:#c6262e;background:#ffefef}
.lgp .converted{border-color:#7c4dbd;background:#f5efff}
.lgp .promoted,.lgp .renamed{border-color:#46606f;background:#eef4f7}
@media(max-width:50rem){.lgp .pair{grid-template-columns:1fr}}
"""


def text(value: object) -> str:
    """`value` as HTML: escaped, with control characters made visible."""
    shown = "".join(_visible(c) for c in str(value))
    return html.escape(shown, quote=True)


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or (code >= 0x20 and not 0x7F <= code <= 0x9F):  # noqa: PLR2004
        # Invisible marks that turn the direction of text can make it read as something else.
        turns = character in "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
        lone = 0xD800 <= code <= 0xDFFF  # noqa: PLR2004 - half of a character has no UTF-8
        return f"<U+{code:04X}>" if turns or lone else character
    return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"  # noqa: PLR2004


def patch_html(patch: Values) -> str:
    """The history before and after, side by side, as a fragment of HTML.

    Args:
        patch: What `Patch.to_dict()` gives.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import patch_messages
        >>> from langgraph_patch.render import patch_html
        >>> call = {"name": "wire", "args": {}, "id": "<c1>"}
        >>> page = patch_html(patch_messages([AIMessage("", tool_calls=[call])]).to_dict())
        >>> "<c1>" in page, "&lt;c1&gt;" in page
        (False, True)
    """
    before, after, changes = patch["before"], patch["messages"], patch["changes"]
    if not changes:
        return _fragment(f"<p>Nothing to repair in {len(after)} messages.</p>")
    stood = {c["index"]: c for c in changes if c["kind"] not in {"inserted", "recovered"}}
    stands = {_key(c["after"]): c for c in changes if c["after"] is not None}
    left = (_item(message, stood.get(k), f"#{k}") for k, message in enumerate(before))
    right = (_item(message, stands.get(_key(message))) for message in after)
    return _fragment(_pair(f"Before ({len(before)})", left, f"After ({len(after)})", right))


def _key(message: Any) -> str:
    return json.dumps(message, sort_keys=True, default=repr)


def report_html(report: Values) -> str:
    """What is known of one thread, as a fragment of HTML.

    Args:
        report: What `ThreadReport.to_dict()` gives.
    """
    patch = report.get("patch")
    facts = {key: value for key, value in report.items() if key != "patch" and value is not None}
    rows = "".join(
        f"<tr><th scope=row>{text(key)}</th><td>{_value(value)}</td></tr>"
        for key, value in facts.items()
    )
    return _fragment(f"<table>{rows}</table>{patch_html(patch) if patch else ''}")


def page(title: str, fragments: Iterable[str]) -> str:
    """One self-contained page: no scripts, nothing loaded from anywhere."""
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta http-equiv=Content-Security-Policy "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title></head><body class=lgp><h1>{text(title)}</h1>"
        f"{''.join(fragments)}</body></html>"
    )


def _fragment(body: str) -> str:
    return f"<style>{_STYLE}</style><div class=lgp>{body}</div>"


def _pair(left: str, lefts: Iterable[str], right: str, rights: Iterable[str]) -> str:
    return (
        f"<div class=pair><section><h2>{text(left)}</h2><ol>{''.join(lefts)}</ol></section>"
        f"<section><h2>{text(right)}</h2><ol>{''.join(rights)}</ol></section></div>"
    )


def _item(message: Any, change: Values | None, label: str = "") -> str:
    kind = change["kind"] if change else ""
    what = f"<span class=what>{SIGNS[kind]} {text(_said_of(change))}</span>" if change else ""
    new = kind in {"inserted", "recovered"}
    origin = label or ("new" if new else f"from #{change['index']}" if change else "")
    return (
        f'<li class="{text(kind)}">{what}<span class=who>{origin} {text(_who(message))}</span>'
        f"{_body(message)}</li>"
    )


def _said_of(change: Values) -> str:
    cause = f" ({change['cause']})" if change.get("cause") else ""
    return f"{change['kind']}{cause}"


def _who(message: Any) -> str:
    if not isinstance(message, Mapping):
        return type(message).__name__
    call = message.get("tool_call_id")
    return f"{message.get('type', '?')}{f' for {call}' if call else ''}"


def _body(message: Any) -> str:
    if not isinstance(message, Mapping):
        return _folded(str(message))
    calls = [*message.get("tool_calls", ()), *message.get("invalid_tool_calls", ())]
    said = message.get("content")
    said = said if isinstance(said, str) else json.dumps(said, indent=1, ensure_ascii=False)
    lines = [f"{c.get('name')} [{c.get('id')}] {_short(c.get('args'))}" for c in calls]
    return (_folded(said) if said else "") + "".join(_folded(line) for line in lines)


def _short(args: object) -> str:
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False, default=repr)


def _folded(said: str) -> str:
    if len(said) <= FOLD:
        return f"<pre>{text(said)}</pre>"
    return (
        f"<details><summary>{text(said[:FOLD])}… ({len(said):,} characters)</summary>"
        f"<pre>{text(said)}</pre></details>"
    )


def _value(value: object) -> str:
    if isinstance(value, str | int | float):
        return text(value)
    return f"<pre>{text(json.dumps(value, indent=1, ensure_ascii=False, default=repr))}</pre>"
