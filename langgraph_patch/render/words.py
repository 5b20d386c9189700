"""Say in words what is wrong with a thread, what a repair does, and how old it is.

It takes `to_dict()` values. What it returns may hold names of tools, so each renderer escapes it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langgraph_patch.render.comparison import Values, compact

_DEFECTS: Mapping[str, tuple[str, str]] = {
    "dangling": ("call without a result", "calls without a result"),
    "malformed": ("call with incomplete arguments", "calls with incomplete arguments"),
    "unlisted": ("call outside of tool_calls", "calls outside of tool_calls"),
    "misplaced": ("result in the wrong place", "results in the wrong place"),
    "orphan": ("result without a call", "results without a call"),
    "duplicate": ("second result of a call", "second results of calls"),
    "bad_id": ("invalid call id", "invalid call ids"),
    "bad_name": ("invalid tool name", "invalid tool names"),
    "wrong_role": ("result in another role", "results in another role"),
    "superseded": ("placeholder that can be replaced", "placeholders that can be replaced"),
    "bad_field": ("message with a damaged field", "messages with damaged fields"),
    "abandoned": ("message that was dropped", "messages that were dropped"),
}
_CHANGES: Mapping[str, tuple[str, str, str]] = {
    "recovered": ("recovers", "result", "results"),
    "inserted": ("adds", "placeholder", "placeholders"),
    "restored": ("restores", "message", "messages"),
    "moved": ("moves", "result", "results"),
    "dropped": ("drops", "message", "messages"),
    "converted": ("converts", "result", "results"),
    "promoted": ("lists", "call", "calls"),
    "renamed": ("renames", "call", "calls"),
    "corrected": ("corrects", "message", "messages"),
}
_SHOWN_CAUSES = 4


def defects_in_words(defects: Iterable[Values]) -> str:
    """How many defects of each kind there are.

    Examples:
        >>> from langgraph_patch.render.words import defects_in_words
        >>> defects_in_words([{"kind": "dangling"}, {"kind": "dangling"}, {"kind": "orphan"}])
        '2 calls without a result, 1 result without a call'
    """
    counted = Counter(str(defect["kind"]) for defect in defects)
    return ", ".join(
        f"{count} {_DEFECTS[kind][count > 1]}" if kind in _DEFECTS else f"{count} {kind}"
        for kind, count in counted.items()
    )


def changes_in_words(changes: Iterable[Values]) -> str:
    """How many changes of each kind a repair makes.

    Examples:
        >>> from langgraph_patch.render.words import changes_in_words
        >>> changes_in_words([{"kind": "recovered"}, {"kind": "inserted"}, {"kind": "inserted"}])
        'recovers 1 result, adds 2 placeholders'
    """
    counted = Counter(str(change["kind"]) for change in changes)
    parts = []
    for kind, count in counted.items():
        verb, one, many = _CHANGES.get(kind, (kind, "message", "messages"))
        parts.append(f"{verb} {count} {many if count > 1 else one}")
    return ", ".join(parts)


def causes_in_words(changes: Iterable[Values]) -> str:
    """For each tool whose result was missing, whether it is recorded, or why there is none.

    Examples:
        >>> from langgraph_patch.render.words import causes_in_words
        >>> causes_in_words([{"kind": "recovered", "name": "mail", "cause": None},
        ...                  {"kind": "inserted", "name": "wire", "cause": "failed"}])
        'mail: result recorded, wire: failed'
    """
    found = Counter(
        f"{change.get('name') or 'result'}: {change.get('cause') or 'result recorded'}"
        for change in changes
        if change["kind"] in ("recovered", "inserted")
    )
    parts = [f"{text} ({count} times)" if count > 1 else text for text, count in found.items()]
    more = len(parts) - _SHOWN_CAUSES
    return ", ".join(parts[:_SHOWN_CAUSES]) + (f" and {more} more" if more > 0 else "")


def wrong_in_words(report: Values) -> str:
    """What is wrong with the thread of a report; for a healthy one, that nothing is.

    Args:
        report: What `ThreadReport.to_dict()` returns.
    """
    defects = defects_in_words(report.get("defects") or ())
    if report["status"] == "unreadable":
        return f"unreadable: {report.get('reason') or 'no reason is known'}"
    if report["status"] == "paused":
        return f"waits for a human; {defects}" if defects else "waits for a human"
    if report["status"] == "healthy":
        return "nothing"
    return defects or "a placeholder can be replaced"


def questions_of(report: Values) -> list[str]:
    """What a paused thread asks, each interrupt as a text.

    The question of an interrupt with a `question`, `query`, `message` or `description` is that
    text. Any other value is shown as JSON.
    """
    return [_question(value) for value in report.get("asks") or ()]


_QUESTION_KEYS = ("question", "query", "message", "description", "prompt")


def _question(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "; ".join(map(_question, value))
    if isinstance(value, Mapping):
        for key in _QUESTION_KEYS:
            if isinstance(value.get(key), str):
                return str(value[key])
        requests = value.get("action_requests")
        if isinstance(requests, Sequence) and requests and not isinstance(requests, str):
            return "; ".join(map(_request, requests))
    return compact(value)


def _request(value: Any) -> str:
    """A request of the middleware that asks a human before a tool runs."""
    if not isinstance(value, Mapping):
        return compact(value)
    if isinstance(value.get("description"), str):
        return str(value["description"])
    name = value.get("name") or value.get("action")
    return f"{name} {compact(value.get('args'))}" if name else compact(value)


# --- time --------------------------------------------------------------------------------

_UNITS = (
    (365 * 86400, "year"),
    (30 * 86400, "month"),
    (86400, "day"),
    (3600, "hour"),
    (60, "minute"),
    (1, "second"),
)
_SHORT = {"second": "s", "minute": "min", "hour": "h", "day": "d", "month": "mo", "year": "y"}


def age_in_words(seconds: object, *, short: bool = False) -> str:
    """An age in its largest unit; an empty text if it is not known.

    Args:
        seconds: The age.
        short: Whether to shorten the unit. Default: False.

    Examples:
        >>> from langgraph_patch.render.words import age_in_words
        >>> age_in_words(200), age_in_words(90000), age_in_words(200, short=True)
        ('3 minutes', '1 day', '3 min')
    """
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return ""
    size, unit = next((each for each in _UNITS if seconds >= each[0]), _UNITS[-1])
    count = int(seconds // size)
    if short:
        return f"{count} {_SHORT[unit]}"
    return f"{count} {unit}" + ("" if count == 1 else "s")
