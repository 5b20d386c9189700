"""The command line: `langgraph-patch demo | scan | show | repair`.

A thin shell over `langgraph_patch.threads`: data on the standard output, everything else on
the standard error, and nothing is written without `--apply`.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, Self

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch._sansio import run_sync
from langgraph_patch.cli.arguments import BAD, CLEAN, CLOSED, DAMAGED, REFUSED, STOPPED, parse
from langgraph_patch.cli.load_graph import check_trusted, load_graph
from langgraph_patch.cli.output import (
    open_streams,
    print_value,
    progress,
    rich_needed,
    silence,
    tell,
    write_page,
)
from langgraph_patch.errors import OptionError, PatchError, ThreadError, brief
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.threads.checkpoint_state import history_of
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stores.database import Database, open_database
from langgraph_patch.threads.stores.select import has_failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What stands behind the program's name. Default: that of the process.

    Returns:
        The exit code.

    Example:
        >>> from langgraph_patch.cli.main import main
        >>> main(["scan", "/no/such.db"])
        2
    """
    open_streams()
    options = parse(arguments, demo=_demo, scan=_scan, show=_show, repair=_repair)
    logger = logging.getLogger("langgraph")
    if not options.debug and not logger.handlers:
        logger.addHandler(logging.NullHandler())  # what cannot be loaded is in the reports
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        silence(sys.stdout)
        return CLOSED
    except KeyboardInterrupt:
        if options.debug:
            raise
        tell("stopped by Ctrl-C.")
        return STOPPED
    except Exception as error:
        if options.debug:
            raise
        known = isinstance(error, PatchError | OSError)
        tell(str(error) if known else f"{type(error).__name__}: {error} (see --debug).")
        return BAD
    return code


# --- the commands ------------------------------------------------------------------------


def _demo(_: argparse.Namespace) -> int:
    with rich_needed():
        from langgraph_patch.cli import demo  # noqa: PLC0415 - needs rich
    return demo.run()


def _scan(options: argparse.Namespace) -> int:
    tally = _Tally(options)
    with open_database(options.database) as database, _Stop(options) as stop, progress() as step:
        for report in stop.until(_reports(database, options)):
            tally.add(report)
            step(report.thread_id)
            if report.status != "healthy" or options.healthy:
                stop.print(report)
    if stop.code is not None:
        return stop.code
    return tally.tell()


def _show(options: argparse.Namespace) -> int:
    as_json = options.format == "json"
    with open_database(options.database) as database:
        report = _report_of(database, options)
        history: list[BaseMessage] = []
        if report.status != "unreadable":
            if report.messages is None:
                return _saw_no_key(options)
            place = {"thread_id": options.thread, "checkpoint_ns": options.namespace}
            saved = database.saver.get_tuple({"configurable": place})
            if saved is None:
                raise ThreadError(f"Thread {options.thread!r} has been deleted meanwhile.")
            found = run_sync(history_of(database.saver, saved, options.messages_key))
            history = found or []
    if options.html is not None:
        write_page(options.html, report, history)
    if as_json or report.status == "unreadable":
        print_value(report, as_json=as_json, is_whole=report.status != "unreadable")
    elif options.html is None:
        sys.stdout.write(_table(report, history))
    if report.status == "unreadable":
        return REFUSED
    return DAMAGED if report.defects else CLEAN


def _table(report: ThreadReport, history: list[BaseMessage]) -> str:
    """The conversation as a terminal shows it; rich itself would exit where nobody reads it."""
    with rich_needed():
        from rich.console import Console  # noqa: PLC0415 - may not be installed

        from langgraph_patch.render.terminal import show_report  # noqa: PLC0415 - needs rich
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as shown:
        show_report(report, history, console)
    return shown.get()


def _repair(options: argparse.Namespace) -> int:
    if bool(options.thread) == options.all:
        raise OptionError("name the threads to repair, or say --all.")
    graph = load_graph(options.graph)
    check_trusted(options.trust)
    tally = _Tally(options)
    opened = open_database(options.database, write=options.apply, trust=options.trust)
    with opened as database, _Stop(options) as stop, progress() as step:
        for report in stop.until(_reports(database, options, options.thread or None)):
            step(report.thread_id)
            repair = _repaired(database, graph, report, options)
            tally.add(report, repair)
            if repair.outcome != "healthy":
                stop.print(repair)
    if stop.code is not None:
        return stop.code
    return tally.tell_repairs()


def _repaired(
    database: Database, graph: Any, report: ThreadReport, options: argparse.Namespace
) -> ThreadRepair:
    """Repair one thread, or say why not."""
    key = (report.thread_id, report.namespace)
    if report.status == "unreadable":
        return ThreadRepair(*key, "refused", report.reason)
    if report.status == "healthy" or report.messages is None:
        return ThreadRepair(*key, "healthy", before=report.checkpoint_id)
    config = RunnableConfig(configurable={"thread_id": key[0], "checkpoint_ns": key[1]})
    how = {
        "on_pause": options.on_pause,
        "min_age": options.min_age,
        "force": options.force,
        "recover": options.recover,
        "messages_key": options.messages_key,
        "checkpointer": database.saver,
    }
    database.blocked.clear()
    try:
        repair = repair_thread(graph, config, dry_run=True, **how)
        if repair.outcome == "planned" and database.blocked:
            names = " ".join(f"--trust {name}" for name in sorted(database.blocked))
            reason = f"its state holds classes that were not loaded; if they are yours: {names}"
            return ThreadRepair(*key, "refused", reason, before=repair.before)
        if repair.outcome == "planned" and options.apply:
            return repair_thread(graph, config, **how)
    except Exception as error:
        if options.debug or has_failed(error):
            raise
        said = str(error) if isinstance(error, PatchError) else brief(error)
        return ThreadRepair(*key, "refused", said, before=report.checkpoint_id)
    return repair


# --- reading -----------------------------------------------------------------------------


def _reports(
    database: Database, options: argparse.Namespace, thread_ids: Sequence[str] | None = None
) -> Iterator[ThreadReport]:
    return scan_threads(
        database.saver,
        messages_key=options.messages_key,
        thread_ids=thread_ids,
        after=options.after,
        shard=options.shard,
    )


def _report_of(database: Database, options: argparse.Namespace) -> ThreadReport:
    """The report on the one history that is shown."""
    key, ids = options.messages_key, [options.thread]
    for report in scan_threads(database.saver, messages_key=key, thread_ids=ids):
        if report.namespace == options.namespace:
            return report
    raise ThreadError(f"Thread {options.thread!r} has no namespace {options.namespace!r}.")


class _Tally:
    """What a scan or a repair has seen, and the exit code for it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._statuses: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._beside = 0
        self._with_key = False

    def add(self, report: ThreadReport, repair: ThreadRepair | None = None) -> None:
        self._statuses[report.status] += 1
        if repair is not None:
            self._outcomes[repair.outcome] += 1
        if repair is None:
            self._beside += report.status == "paused" and bool(report.defects)
        elif repair.outcome == "paused":
            # Only the graph knows of its breakpoints: to a scan the calls that wait are damage.
            calls = -1 if report.status == "paused" else (report.messages or 0) - 1
            self._beside += any(defect.index != calls for defect in report.defects)
        self._with_key |= report.messages is not None or report.status == "unreadable"

    def tell(self) -> int:
        if not self._statuses:
            return _saw_nothing(self._options)
        counts = ", ".join(
            f"{self._statuses[status]} {status}"
            for status in ("healthy", "damaged", "paused", "unreadable")
        )
        tell(f"looked at {self._statuses.total()} histories: {counts}{self._said_beside()}.")
        if not self._with_key:
            return _saw_no_key(self._options)
        if self._statuses["unreadable"]:
            return REFUSED
        return DAMAGED if self._statuses["damaged"] or self._beside else CLEAN

    def tell_repairs(self) -> int:
        if not self._statuses:
            return _saw_nothing(self._options)
        if not self._with_key:
            return _saw_no_key(self._options)
        done = self._outcomes
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.items()))
        dry = "" if self._options.apply else " Nothing was written (no --apply)."
        tell(f"{said}{self._said_beside()}.{dry}")
        if done["refused"] + done["young"] + done["moved"]:
            return REFUSED
        return DAMAGED if done["planned"] or self._beside else CLEAN

    def _said_beside(self) -> str:
        return f" ({self._beside} of the paused are damaged too)" if self._beside else ""


def _saw_nothing(options: argparse.Namespace) -> int:
    part = " in this shard" if options.shard else ""
    behind = f" after {options.after!r}" if options.after else ""
    tell(f"there is no thread{part}{behind}: nothing was looked at.")
    return BAD


def _saw_no_key(options: argparse.Namespace) -> int:
    tell(f"none has a state key {options.messages_key!r}: name it with --messages-key.")
    return BAD


class _Stop:
    """Ctrl-C asks, or a reader who goes away; the thread at hand is finished first.

    A second Ctrl-C does not wait.

    Attributes:
        code: The exit code, if there was no reason to go on.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.code: int | None = None
        self._as_json = options.format == "json"
        self._writes = getattr(options, "apply", False)
        self._asked = False

    def __enter__(self) -> Self:
        try:
            self._old: Any = signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not in the main thread
            self._old = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._asked and callable(self._old):
            self._old(number, frame)
        self._asked = True

    def until(self, reports: Iterable[ThreadReport]) -> Iterator[ThreadReport]:
        """The reports, up to the last one of the thread at which somebody asked to stop."""
        last = before = ""
        for report in reports:
            if report.thread_id != last:
                if self._asked and last:
                    self.code = self.code or STOPPED
                    break
                before, last = last, report.thread_id
            yield report
        if self.code is None:
            return
        if self.code == CLOSED and not self._writes:
            last = before  # what was only to be read has not been read
        why = "the output was closed: " if self.code == CLOSED else ""
        where = f"after thread {last!r}: go on with --after" if last else "at the first thread"
        tell(f"{why}stopped {where}.")

    def print(self, value: ThreadReport | ThreadRepair) -> None:
        """Print, as long as somebody reads it."""
        try:
            print_value(value, as_json=self._as_json)
        except BrokenPipeError:
            silence(sys.stdout)
            self._asked, self.code = True, CLOSED
