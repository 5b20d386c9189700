"""`langgraph-patch show`: one conversation, with its defects and the patch beside it."""

from __future__ import annotations

import argparse

from langgraph_patch.cli.arguments import CLEAN, DAMAGED, REFUSED
from langgraph_patch.cli.output import (
    page_width,
    print_json,
    print_lines,
    print_next,
    without_messages,
)
from langgraph_patch.cli.pages import values_of, write_page
from langgraph_patch.cli.summary import no_state_key
from langgraph_patch.cli.target import open_target, stored_history, target_of
from langgraph_patch.errors import ThreadError
from langgraph_patch.render.terminal import show_report
from langgraph_patch.threads import scan_threads
from langgraph_patch.threads.opening import Database
from langgraph_patch.threads.reports import ThreadReport


def run(options: argparse.Namespace) -> int:
    """Show one thread.

    Returns:
        The exit code.
    """
    target = target_of(options)
    with open_target(target, options) as database:
        report = _report(database, options)
        is_readable = report.status != "unreadable"
        if is_readable and report.messages is None:
            return no_state_key(options)
        history = (
            values_of(stored_history(database, report, options.messages_key))
            if is_readable and not report.patch
            else []
        )
    values = report.to_dict()
    if options.html is not None:
        write_page(options.html, report, history, target.name)
    if options.json:
        print_json(values if is_readable else without_messages(values))
    elif options.html is None:
        print_lines(show_report(values, history, page_width(), is_folded=not options.all))
        if report.patch:
            print_next(target.command("repair", "--diff", ids=[options.thread]))
    if not is_readable:
        return REFUSED
    return DAMAGED if report.defects else CLEAN


def _report(database: Database, options: argparse.Namespace) -> ThreadReport:
    reports = scan_threads(
        database.saver, messages_key=options.messages_key, thread_ids=[options.thread]
    )
    for report in reports:
        if report.namespace == options.namespace:
            return report
    raise ThreadError(f"Thread {options.thread!r} has no namespace {options.namespace!r}.")
