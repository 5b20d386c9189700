"""What a tool message states, by its words alone.

`meaning` knows the library's texts of today, the texts of its next version, those of deepagents,
of langchain's middleware, and those of the simulation's own tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.world import FINAL, RECEIPT


@dataclass(frozen=True)
class Statement:
    """What a tool message states about its call.

    Attributes:
        kind: One of the kinds in `PATTERNS`, or `result`, `effect`, `handoff`, `answer`,
            `empty`, or `unclear` where nobody knows what the text means.
        receipts: The executions that it names.
        subject: The effect or the agent that it names, if any.
        not_kept: Whether it says itself that something was not kept.
    """

    kind: str
    receipts: tuple[int, ...] = ()
    subject: str = ""
    not_kept: bool = False


CALL = r"Tool call \S{1,200} with id \S{1,200}"

PATTERNS: tuple[tuple[str, str], ...] = (
    # the world: what happened, whatever was recorded
    ("cancelled", rf"^{CALL} was cancelled - another message came in before it could be completed"),
    ("no_answer", rf"^{CALL} was waiting for human input; no answer came and it did not finish"),
    ("failed", rf"^{CALL} failed: "),
    ("not_run", rf"^{CALL} was not run\b"),
    ("not_run", rf"^{CALL} could not be executed - arguments were malformed or truncated"),
    ("not_complete", rf"^{CALL} did not complete - no result was recorded"),
    ("rejected", r"(?:^|Its recorded result:\n)User rejected the tool call for "),
    # the record: what the checkpoints hold
    (
        "waiting_recorded",
        rf"^{CALL} (?:was|is) waiting for human input\b.*no answer and no result were recorded",
    ),
    ("failed_recorded", rf"^{CALL} failed in its last recorded attempt: "),
    ("timed_out_recorded", rf"^{CALL} timed out; it may have gone on: "),
    ("cancel_recorded", rf"^{CALL}: a cancellation was recorded; it may have taken effect"),
    (
        "not_approved_recorded",
        (
            rf"^{CALL} was not approved before another message came in; "
            r"no start and no result were recorded"
        ),
    ),
    ("not_started_recorded", r"(?i)no start and no result (?:of .* )?were recorded"),
    ("no_result", rf"^{CALL} has incomplete arguments; no result was recorded"),
    (
        "unknown",
        r"^No result of tool call \S+ with id \S+ was recorded; it may or may not have run",
    ),
)

EFFECTS: tuple[tuple[str, str], ...] = (
    ("files", r"Updated file /?(?P<ref>R\d+)"),
    ("todos", r"Updated todo list to .*?(?P<ref>R\d+)"),
    ("notes", r"done: note (?P<ref>R\d+(?:E\d+)?) "),
)

RESULTS: tuple[tuple[str, str], ...] = (
    ("handoff", r"Successfully transferred (?:back )?to (\w+)"),
    ("result", RECEIPT.pattern),
    ("answer", f"({FINAL.pattern})"),
    ("refused_by_tool", r"^Error: |can only be|cannot be called|validation error"),
    ("empty", r"^\s*$"),
)

NOT_KEPT = re.compile(
    r"not (?:been )?(?:kept|restored|applied|stored|saved)|was lost|were lost|no longer"
)


def meaning(text: str, marker: Any = None) -> Statement:
    """What a tool message states.

    Args:
        text: Its text.
        marker: The library's mark in its `additional_kwargs`, or None.

    Returns:
        The statement. Later patterns describe the record, and are matched first where a text of
        today and a text of the record begin alike.
    """
    receipts = tuple(map(int, RECEIPT.findall(text)))
    for kind, pattern in sorted(PATTERNS, key=lambda each: not each[0].endswith("_recorded")):
        if re.search(pattern, text, re.DOTALL):
            return Statement(kind, receipts)
    not_kept = isinstance(marker, Mapping) and bool(NOT_KEPT.search(text))
    kind, subject = _result(text)
    return Statement(kind, receipts, subject, not_kept)


def _result(text: str) -> tuple[str, str]:
    """The kind and the subject of a text that is a tool's own."""
    for key, pattern in EFFECTS:
        if found := re.search(pattern, text, re.DOTALL):
            return "effect", f"{key}:{found['ref']}"
    for kind, pattern in RESULTS:
        if found := re.search(pattern, text):
            return kind, (found.groups() or ("",))[0]
    return "unclear", ""
