"""Count what a scan or a repair found, print the tally and choose the exit code."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, field

from langgraph_patch.cli.arguments import BAD, CLEAN, DAMAGED, REFUSED
from langgraph_patch.cli.output import print_message
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport

STATUSES = ("healthy", "damaged", "paused", "unreadable")
_SKIPPED = ("refused", "young", "moved", "busy")


@dataclass(slots=True)
class Counts:
    """What a scan or a repair has found so far.

    Attributes:
        statuses: How many histories have each status.
        outcomes: How many repairs had each outcome.
        damaged_pauses: How many paused histories have damage that no answer repairs.
        has_key: Whether a history has the state key, or may have it because it is unreadable.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    damaged_pauses: int = 0
    has_key: bool = False

    def add(self, report: ThreadReport, repair: ThreadRepair | None = None) -> None:
        """Count one history and, if one was tried, its repair."""
        self.statuses[report.status] += 1
        if repair is not None:
            self.outcomes[repair.outcome] += 1
        self.damaged_pauses += _is_damaged_pause(report, repair)
        self.has_key |= report.messages is not None or report.status == "unreadable"

    def found(self) -> str:
        """What a scan found, as a text."""
        counted = ", ".join(f"{self.statuses[status]} {status}" for status in STATUSES)
        total = self.statuses.total()
        histories = "history" if total == 1 else "histories"
        return f"looked at {total} {histories}: {counted}{self._damaged_pauses()}."

    def done(self) -> str:
        """What a repair did, as a text."""
        done = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        return f"{done or 'nothing was repaired'}{self._damaged_pauses()}."

    def _damaged_pauses(self) -> str:
        count = self.damaged_pauses
        return f" ({count} of the paused are damaged too)" if count else ""


def _is_damaged_pause(report: ThreadReport, repair: ThreadRepair | None) -> bool:
    if report.status == "paused" and (repair is None or repair.outcome == "paused"):
        return bool(report.defects)
    if repair is None or repair.outcome != "paused":
        return False
    # Only the graph knows its breakpoints. A scan reports the calls that wait at one, which are
    # in the last message, as damage.
    last = (report.messages or 0) - 1
    return any(defect.index != last for defect in report.defects)


def summarize_scan(counts: Counts, options: argparse.Namespace) -> int:
    """Print what a scan found.

    Returns:
        The exit code.
    """
    statuses = counts.statuses
    if not statuses:
        return _no_thread(options)
    print_message(counts.found())
    if not counts.has_key:
        return no_state_key(options)
    if statuses["unreadable"]:
        return REFUSED
    return DAMAGED if statuses["damaged"] or counts.damaged_pauses else CLEAN


def summarize_repair(counts: Counts, options: argparse.Namespace) -> int:
    """Print what a repair did.

    Returns:
        The exit code.
    """
    if not counts.statuses:
        return _no_thread(options)
    if not counts.has_key:
        return no_state_key(options)
    outcomes = counts.outcomes
    dry_run = "" if options.apply else " Nothing was written (no --apply)."
    print_message(f"{counts.done()}{dry_run}")
    if any(outcomes[outcome] for outcome in _SKIPPED):
        return REFUSED
    return DAMAGED if outcomes["planned"] or counts.damaged_pauses else CLEAN


def no_state_key(options: argparse.Namespace) -> int:
    """Say that no history has the state key.

    Returns:
        The exit code.
    """
    print_message(f"none has a state key {options.messages_key!r}: name it with --messages-key.")
    return BAD


def _no_thread(options: argparse.Namespace) -> int:
    names = f" that matches {' or '.join(map(repr, options.thread))}" if options.thread else ""
    since = f" that was written to since {options.since:%Y-%m-%d %H:%M}" if options.since else ""
    print_message(f"there is no thread{names}{since}: nothing was looked at.")
    return BAD
