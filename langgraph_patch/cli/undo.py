"""`langgraph-patch undo`: undo the last repair of threads."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence

from langgraph_patch.cli.arguments import CLEAN, REFUSED
from langgraph_patch.cli.output import print_json, print_lines, print_message, terminal_width
from langgraph_patch.cli.selection import check_ids, chosen_ids
from langgraph_patch.cli.target import open_target, target_of
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.render.terminal import repair_outcome, repair_row
from langgraph_patch.threads import scan_threads, undo_repair
from langgraph_patch.threads.stored import config_of
from langgraph_patch.threads.stores.base import Key
from langgraph_patch.threads.stores.select import Database, is_database_failure


def run(options: argparse.Namespace) -> int:
    """Undo the last repair of each named thread, or of every thread that a repair wrote last.

    Returns:
        The exit code.

    Raises:
        OptionError: If the options name no thread, or all threads of a server.
        ThreadError: If one of the named threads does not exist; nothing is undone then.
    """
    if bool(options.ids) == options.all:
        raise OptionError("name the threads whose repair is to be undone, or use --all.")
    target = target_of(options)
    if options.all and target.is_server:
        raise OptionError("name the threads: LangGraph Server cannot list those with a repair.")
    ids = chosen_ids(options)
    counts: Counter[str] = Counter()
    try:
        with open_target(target, options, write=True) as database:
            if ids is not None:
                check_ids(database, ids)
            for key in dict.fromkeys(_keys(database, ids)):
                values = _undo(database, key)
                counts[values["outcome"] or ""] += 1
                _print(values, as_json=options.json)
    finally:
        if counts:
            done = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            print_message(f"{done}.")
    if not counts:
        print_message("no thread has a repair to undo.")
    return REFUSED if counts["refused"] else CLEAN


def _keys(database: Database, ids: Sequence[str] | None) -> Iterator[Key]:
    """The histories whose newest checkpoint a repair wrote, and the root of every other named one.

    All are read before the first one is undone.
    """
    marked = [
        Key(report.thread_id, report.namespace)
        for report in scan_threads(database.saver, thread_ids=ids)
        if report.repaired
    ]
    found = {key.thread_id for key in marked}
    yield from marked
    yield from (Key(each, "") for each in ids or () if each not in found)


def _undo(database: Database, key: Key) -> dict[str, str | None]:
    """Undo one repair; the values of the result."""
    before = reason = None
    try:
        before = undo_repair(database.saver, config_of(key))
    except ThreadError as error:
        if is_database_failure(error):
            raise
        reason = str(error)
    outcome = "refused" if reason else "undone"
    return {**key._asdict(), "outcome": outcome, "reason": reason, "before": before}


def _print(values: dict[str, str | None], *, as_json: bool) -> None:
    if as_json:
        print_json(values)
        return
    shown = {**values, "reason": values["reason"] or f"back to checkpoint {values['before']}"}
    lines = repair_row(shown, terminal_width())
    print_lines(lines, end="")
    print_lines(repair_outcome(shown, lines[-1], terminal_width()))
