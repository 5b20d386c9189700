"""The command line: `langgraph-patch demo | scan | show | repair`.

A thin shell over `langgraph_patch.threads`: data on the standard output, everything else on
the standard error, and nothing is written without `--apply`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Self

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langgraph_patch.arguments import BAD, CLEAN, DAMAGED, REFUSED, STOPPED, parser
from langgraph_patch.asking import run
from langgraph_patch.changes import Patch
from langgraph_patch.databases import Database, open_database
from langgraph_patch.errors import OptionError, PatchError, ThreadError
from langgraph_patch.loading import load_graph
from langgraph_patch.postgres import masked
from langgraph_patch.render import page, report_html
from langgraph_patch.reports import ThreadRepair, ThreadReport
from langgraph_patch.stored import history_of
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.visible import one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What stands behind the program's name. Default: that of the process.

    Returns:
        The exit code.

    Example:
        >>> from langgraph_patch.cli import main
        >>> main(["scan", "/no/such.db"])
        2
    """
    options = parser(demo=_demo, scan=_scan, show=_show, repair=_repair).parse_args(arguments)
    logger = logging.getLogger("langgraph")
    if not options.debug and not logger.handlers:
        logger.addHandler(logging.NullHandler())  # what cannot be loaded is in the reports
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLEAN
    except Exception as error:
        if options.debug:
            raise
        known = isinstance(error, PatchError | OSError)
        _tell(str(error) if known else f"{type(error).__name__}: {error} (see --debug).")
        return BAD
    return code


# --- the commands ------------------------------------------------------------------------


def _demo(_: argparse.Namespace) -> int:
    with _rich_needed():
        from langgraph_patch import demo  # noqa: PLC0415 - needs rich
    return demo.run()


def _scan(options: argparse.Namespace) -> int:
    tally = _Tally()
    with open_database(options.database) as database, _Stop() as stop, _progress() as step:
        for report in _reports(database, options):
            tally.add(report)
            step(report.thread_id)
            if report.status != "healthy" or options.healthy:
                _print(report, options)
            if stop.asked:
                return stop.say(report)
    tally.tell(options)
    return tally.code()


def _show(options: argparse.Namespace) -> int:
    with open_database(options.database) as database:
        place = {"thread_id": options.thread, "checkpoint_ns": options.namespace}
        reports = [
            report
            for report in scan_threads(
                database.saver, messages_key=options.messages_key, thread_ids=[options.thread]
            )
            if report.namespace == options.namespace
        ]
        if reports and reports[0].status == "unreadable":
            _write_page(reports[0], [], options)
            _print(reports[0], options)
            return REFUSED
        saved = database.saver.get_tuple({"configurable": place})
        if not reports or saved is None:
            raise ThreadError(f"Thread {options.thread!r} has no namespace {options.namespace!r}.")
        history = run(history_of(database.saver, saved, options.messages_key)) or []
    _write_page(reports[0], history, options)
    if options.format == "json":
        _print(reports[0], options, whole=True)
    elif options.html is None:
        with _rich_needed():
            from rich.console import Console  # noqa: PLC0415 - may not be installed

            from langgraph_patch.terminal import show_report  # noqa: PLC0415 - needs rich
        show_report(reports[0], history, Console(highlight=False, markup=False, emoji=False))
    return DAMAGED if reports[0].status == "damaged" else CLEAN


def _repair(options: argparse.Namespace) -> int:
    if bool(options.thread) == options.all:
        raise OptionError("name the threads to repair, or say --all.")
    graph = load_graph(options.graph)
    done: Counter[str] = Counter()
    opened = open_database(options.database, write=options.apply, trust=options.trust)
    with opened as database, _Stop() as stop, _progress() as step:
        for report in _reports(database, options, options.thread or None):
            step(report.thread_id)
            repair = _repaired(database, graph, report, options)
            done[repair.outcome] += 1
            if repair.outcome != "healthy":
                _print(repair, options)
            if stop.asked:
                return stop.say(report)
    if not done:
        return _saw_nothing(options)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.items()))
    _tell(f"{said}." + ("" if options.apply else " Nothing was written (no --apply)."))
    if done["refused"] + done["young"] + done["moved"]:
        return REFUSED
    return DAMAGED if done["planned"] else CLEAN


def _repaired(
    database: Database, graph: Any, report: ThreadReport, options: argparse.Namespace
) -> ThreadRepair:
    """Repair one thread, or say why not."""
    key = (report.thread_id, report.namespace)
    if report.status == "unreadable":
        return ThreadRepair(*key, "refused", report.reason)
    if report.status == "healthy":
        return ThreadRepair(*key, "healthy", before=report.checkpoint_id)
    config = RunnableConfig(configurable={"thread_id": key[0], "checkpoint_ns": key[1]})
    how = {
        "on_pause": options.on_pause,
        "min_age": options.min_age,
        "force": options.force,
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
    except PatchError as error:
        if options.debug:
            raise
        return ThreadRepair(*key, "refused", str(error), before=report.checkpoint_id)
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


class _Tally:
    """What a scan has seen."""

    def __init__(self) -> None:
        self._statuses: Counter[str] = Counter()
        self._beside = 0
        self._with_key = False

    def add(self, report: ThreadReport) -> None:
        self._statuses[report.status] += 1
        self._beside += report.status == "paused" and bool(report.defects)
        self._with_key |= report.messages is not None or report.status == "unreadable"

    def tell(self, options: argparse.Namespace) -> None:
        if not self._statuses:
            _saw_nothing(options)
            return
        counts = ", ".join(
            f"{self._statuses[status]} {status}"
            for status in ("healthy", "damaged", "paused", "unreadable")
        )
        beside = f" ({self._beside} of the paused are damaged too)" if self._beside else ""
        _tell(f"looked at {self._statuses.total()} histories: {counts}{beside}.")
        if not self._with_key:
            _tell(f"none has a state key {options.messages_key!r}: name it with --messages-key.")

    def code(self) -> int:
        if not self._with_key:
            return BAD
        if self._statuses["unreadable"]:
            return REFUSED
        return DAMAGED if self._statuses["damaged"] or self._beside else CLEAN


def _saw_nothing(options: argparse.Namespace) -> int:
    part = " in this shard" if options.shard else ""
    behind = f" after {options.after!r}" if options.after else ""
    _tell(f"there is no thread{part}{behind}: nothing was looked at.")
    return BAD


class _Stop:
    """Ctrl-C asks; the thread at hand is finished first. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self.asked = False

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
        if self.asked and callable(self._old):
            self._old(number, frame)
        self.asked = True

    def say(self, report: ThreadReport) -> int:
        _tell(f"stopped after thread {report.thread_id!r}: go on with --after.")
        return STOPPED


# --- writing -----------------------------------------------------------------------------


def _print(
    value: ThreadReport | ThreadRepair, options: argparse.Namespace, *, whole: bool = False
) -> None:
    if options.format == "json":
        line = value.to_dict()
        if not whole:
            line["changes"] = (line.pop("patch") or {}).get("changes", [])
        sys.stdout.write(json.dumps(line, default=repr) + "\n")
    else:
        sys.stdout.write(one_line(str(value)) + "\n")
    sys.stdout.flush()


def _write_page(
    report: ThreadReport, history: list[BaseMessage], options: argparse.Namespace
) -> None:
    if options.html is None:
        return
    shown = report_html(report.to_dict(), Patch([], (), history).to_dict()["before"])
    file = Path(options.html)
    try:
        file.write_text(page(f"Thread {report.thread_id}", [shown]), encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise OptionError(f"--html {options.html!r} cannot be written: {error}.") from error
    _tell(f"wrote {options.html!r}.")


def _tell(text: str) -> None:
    sys.stderr.write(f"langgraph-patch: {one_line(masked(text))}\n")


@contextmanager
def _rich_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise OptionError("this needs rich: pip install 'langgraph-patch[cli]'") from error


def _progress() -> AbstractContextManager[Callable[[str], None]]:
    """A bar, if somebody watches and rich is there."""
    if not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    try:
        return _bar()
    except ModuleNotFoundError:
        return nullcontext(lambda _: None)


def _bar() -> AbstractContextManager[Callable[[str], None]]:
    from rich.console import Console  # noqa: PLC0415 - may not be installed
    from rich.progress import Progress  # noqa: PLC0415 - may not be installed

    @contextmanager
    def shown() -> Iterator[Callable[[str], None]]:
        with Progress(console=Console(stderr=True, markup=False), transient=True) as progress:
            task = progress.add_task("threads", total=None)
            yield lambda _: progress.advance(task)

    return shown()
