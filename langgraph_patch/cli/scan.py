"""`langgraph-patch scan`: a table of the threads that are not healthy."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from langgraph_patch.cli.output import (
    print_json,
    print_lines,
    print_next,
    terminal_width,
    without_messages,
)
from langgraph_patch.cli.pages import ScanPages, values_of
from langgraph_patch.cli.progress import progress_bar
from langgraph_patch.cli.selection import chosen_ids, count_threads, read_reports
from langgraph_patch.cli.stopping import Stopping
from langgraph_patch.cli.summary import Counts, summarize_scan
from langgraph_patch.cli.target import Target, open_target, stored_history, target_of
from langgraph_patch.render.terminal import scan_head, scan_row, scan_widths
from langgraph_patch.threads.opening import Database
from langgraph_patch.threads.reports import ThreadReport


def run(options: argparse.Namespace) -> int:
    """Report on every selected thread.

    Returns:
        The exit code.
    """
    target = target_of(options)
    ids = chosen_ids(options)
    counts = Counts()
    table = _Table(target, options)
    with ExitStack() as stack:
        database = stack.enter_context(open_target(target, options))
        stopping = stack.enter_context(Stopping(counts.found, writes=False))
        pages = (
            stack.enter_context(ScanPages(options.html, target.name, counts.statuses))
            if options.html
            else None
        )
        bar = stack.enter_context(progress_bar(lambda: count_threads(database, options, ids)))
        for report in stopping.until_stopped(read_reports(database, options, ids)):
            counts.add(report)
            bar.advance(report.thread_id)
            if report.status == "healthy" and not options.healthy:
                continue
            bar.hide()
            stopping.print(lambda: table.print(report))  # noqa: B023 - called at once
            if pages:
                pages.add(report, _history(database, report, options))
    if stopping.exit_code is not None:
        return stopping.exit_code
    code = summarize_scan(counts, options)
    if counts.statuses["damaged"] and not options.since:
        selected = [part for glob in options.thread for part in ("--thread", glob)]
        which = selected if selected or options.ids else ["--all"]
        print_next(target.command("repair", *which, ids=options.ids))
    return code


def _history(database: Database, report: ThreadReport, options: argparse.Namespace) -> list[Any]:
    """The messages of a thread whose report has no patch that shows them."""
    if report.patch or report.status == "unreadable" or report.messages is None:
        return []
    return values_of(stored_history(database, report, options.messages_key))


_SHOWN = 3
"""How many rows on a terminal end with the next command: the other commands differ in the thread.

Rows for a pipe are one line each, and all have it."""


class _Table:
    """Prints each report as soon as it is there."""

    def __init__(self, target: Target, options: argparse.Namespace) -> None:
        self._target = target
        self._as_json = options.json
        width = terminal_width()
        self._widths = None if width is None else scan_widths(width)
        self._has_head = False
        self._commands = 0

    def print(self, report: ThreadReport) -> None:
        values = report.to_dict()
        if self._as_json:
            print_json(without_messages(values))
            return
        if not self._has_head:
            print_lines(scan_head(self._widths))
            self._has_head = True
        print_lines(scan_row(values, self._next(report), self._widths))

    def _next(self, report: ThreadReport) -> str:
        is_known = self._widths is not None and self._commands == _SHOWN
        if report.status in ("healthy", "unreadable") or is_known:
            return ""
        self._commands += 1
        namespace = ["--namespace", report.namespace] if report.namespace else []
        return self._target.command("show", *namespace, ids=[report.thread_id])
