"""`langgraph-patch undo`: undo the repairs that `repair --apply --json` printed."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from langgraph_patch.cli.arguments import CLEAN, REFUSED
from langgraph_patch.cli.output import (
    print_json,
    print_lines,
    print_message,
    standard_input,
    terminal_width,
)
from langgraph_patch.cli.target import open_target, target_of
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.render.terminal import repair_outcome, repair_row
from langgraph_patch.threads import ThreadRepair, undo_repair
from langgraph_patch.threads.opening import Database, is_database_failure


def run(options: argparse.Namespace) -> int:
    """Undo each repair of a file, the newest first.

    Returns:
        The exit code.

    Raises:
        OptionError: If the file cannot be read, or holds no repair that was written; nothing is
            undone then.
    """
    target = target_of(options)
    repairs = list(_repairs(options.file))
    counts: Counter[str] = Counter()
    try:
        with open_target(target, options, write=True) as database:
            for repair in reversed(repairs):
                reason = _undo(database, repair)
                counts["refused" if reason else "undone"] += 1
                _print(repair, reason, as_json=options.json)
    finally:
        if counts:
            done = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            print_message(f"{done}.")
    return REFUSED if counts["refused"] else CLEAN


def _undo(database: Database, repair: ThreadRepair) -> str | None:
    """Undo one repair; the reason if it is refused."""
    try:
        undo_repair(None, repair, checkpointer=database.saver)
    except ThreadError as error:
        if is_database_failure(error):
            raise
        return str(error)
    return None


def _print(repair: ThreadRepair, reason: str | None, *, as_json: bool) -> None:
    values = {
        "thread_id": repair.thread_id,
        "namespace": repair.namespace,
        "outcome": "refused" if reason else "undone",
        "reason": reason,
        "before": repair.before,
        "after": repair.after,
    }
    if as_json:
        print_json(values)
        return
    shown = {**values, "reason": reason or f"back to checkpoint {repair.before}"}
    lines = repair_row(shown, terminal_width())
    print_lines(lines, end="")
    print_lines(repair_outcome(shown, lines[-1], terminal_width()))


def _repairs(file: str) -> Iterator[ThreadRepair]:
    """The repairs that were written, or may have been, each once, in the order of the file."""
    found: dict[tuple[str, str, str | None], ThreadRepair] = {}
    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        try:
            repair = ThreadRepair.from_dict(json.loads(line))
        except ValueError as error:
            raise OptionError(
                f"{file!r}, line {number}: {error} Expected what `repair --apply --json` printed."
            ) from error
        key = (repair.thread_id, repair.namespace, repair.before)
        # The second line of a repair says how it ended; the first one may be all there is.
        if repair.outcome == "repaired" or (repair.outcome == "planned" and repair.after):
            found[key] = repair
        else:
            found.pop(key, None)
    if not found:
        raise OptionError(f"{file!r} holds no repair that was written: there is nothing to undo.")
    yield from found.values()


def _lines(file: str) -> Iterable[str]:
    if file == "-":
        return list(standard_input())
    try:
        return Path(file).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise OptionError(f"{file!r} cannot be read: {error}.") from error
