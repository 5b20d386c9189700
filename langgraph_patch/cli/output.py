"""What the commands of the command line print: results, totals, next steps and progress.

Data goes to standard output, everything else to standard error. A terminal gets tables, a pipe gets
one line for each thread with tabs between the columns, `--json` one JSON object for each thread.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from traceback import walk_stack
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from langgraph_patch import view
from langgraph_patch._text import masked, say
from langgraph_patch.errors import OptionError, chain_of
from langgraph_patch.history.findings import CAUSES
from langgraph_patch.threads.reports import ThreadReport
from langgraph_patch.threads.stores.other import is_loading

_T = TypeVar("_T")

CLEAN, DAMAGED, REFUSED = 0, 1, 3
"""The exit codes of a command that is not stopped by an error."""

# --- results -----------------------------------------------------------------------------


def print_json(values: Mapping[str, Any], *, whole: bool = False) -> None:
    """Print values on one line; unless `whole`, with the changes in the place of the patch."""
    if not whole:
        changes = (values.get("patch") or {}).get("changes", [])
        values = {key: values[key] for key in values if key != "patch"} | {"changes": changes}
    # Parsed again: Python writes NaN and Infinity, which are not JSON, so they become strings.
    text = json.dumps(json.loads(json.dumps(values, default=repr), parse_constant=str))
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_view(shown: RenderableType) -> None:
    """Print a table in the width of the terminal."""
    # With a height, rich takes the width also where TERM says that the terminal can do little.
    console = Console(width=_width(), height=24, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(shown)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _width() -> int:
    return max(40, shutil.get_terminal_size((120, 24)).columns)


def print_threads(
    options: Namespace, results: Iterable[Mapping[str, Any]], totals: Callable[[], str]
) -> None:
    """Print the values of each thread as counts, or a table at the end, damaged threads first.

    In a pipe, the columns of the table have tabs between them. The totals and the table are
    printed however the command ends.
    """
    lines = list[list[str]]()
    try:
        for values in results:
            if options.json:
                print_json(values)
                continue
            if values["patch"] and getattr(options, "diff", False):
                print_view(Group(view.report_view(values), ""))
            lines.append(view.line_of(values))
    finally:
        if text := totals():
            tell(options, text)
        lines.sort(key=lambda line: (line[1] == "paused", line[1] == "unreadable"))
        if lines and sys.stdout.isatty():
            print_view(view.lines_table(lines, _width()))
        elif lines:
            sys.stdout.write(view.tab_separated(lines))


def tell(options: Namespace, text: str) -> None:
    """Print a line that is no error to standard error, unless --quiet."""
    if not options.quiet:
        say(text)


# --- one thread after the other ----------------------------------------------------------

_SECONDS = 10.0  # between two lines that say how far a command is


def each_of(options: Namespace, items: Iterable[_T], what: str) -> Iterator[_T]:
    """The same items; shows how many there were, and ends between two of them after Ctrl-C.

    Raises:
        KeyboardInterrupt: After Ctrl-C.
    """
    with _ctrl_c_waits() as check, _progress(options, what) as advance:
        for item in items:
            yield item
            advance()
            check()


@contextmanager
def _progress(options: Namespace, what: str) -> Iterator[Callable[[], object]]:
    """Say how far a command is: as a bar on a terminal, otherwise in a line at times."""
    console = Console(stderr=True)
    count, due = 0, time.monotonic() + _SECONDS

    def advance() -> None:
        nonlocal count, due
        count += 1
        if time.monotonic() > due:
            tell(options, f"{count:,} {what} so far")
            due += _SECONDS

    if options.quiet or not console.is_terminal or console.is_dumb_terminal:
        yield advance
        return
    columns = SpinnerColumn(), TextColumn(what), MofNCompleteColumn()
    # Standard output is left as it is: rich would break its lines.
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        yield partial(bar.advance, bar.add_task(what, total=None))


_AGAIN_SECONDS = 0.01


@contextmanager
def _ctrl_c_waits() -> Iterator[Callable[[], None]]:
    """Note Ctrl-C until it is asked for, so that the thread at hand is done.

    A second Ctrl-C is raised where it comes, unless a row is being loaded: msgpack would lose it,
    and the row would be read as another one. It comes again then, until the row is loaded.
    """
    pressed, timers = list[int](), list[threading.Timer]()

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if len(pressed) == 1:
            say("stopping when this thread is done; press Ctrl-C again not to wait.")
        elif is_loading(each for each, _ in walk_stack(frame)):
            timers[:] = [threading.Timer(_AGAIN_SECONDS, signal.raise_signal, [number])]
            timers[0].start()
        else:
            raise KeyboardInterrupt

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # it gets no signals
        yield check
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        for timer in timers:
            timer.cancel()
        signal.signal(signal.SIGINT, before)


def notes_of(error: BaseException) -> str:
    """What was noted on an error and its causes, such as a thread that may have been written."""
    notes = [note for each in chain_of(error) for note in getattr(each, "__notes__", ())]
    return "".join(f" {note}." for note in dict.fromkeys(notes))


# --- totals and next steps ---------------------------------------------------------------

_ADDRESS = re.compile(
    r"(\w+://)(?:[^@/?#]*@)?((?:[\w.-]*|\[[\da-f:.]*\])(?::\d*)?(?:/[^@?#]*)?)(?:\?[^@#]*)?"
)


def database_name(location: str) -> str:
    """A path or a URI without user, password and parameters.

    Examples:
        >>> from langgraph_patch.cli.commands import database_name
        >>> database_name("postgresql://bob:s3cret@db.example/app?sslmode=require")
        'postgresql://db.example/app'
    """
    parts = _ADDRESS.fullmatch(location)
    return parts[1] + parts[2] if parts else masked(location)


_DAMAGE: Mapping[Any, str] = {
    "recovered": "with recoverable results",
    **{cause: cause for cause in CAUSES},
    "orphan": "with orphaned results",
}
"""The kinds of changes that the totals of a scan count, and what they are called there."""

STATUSES = ("damaged", "paused", "unreadable", "healthy")


def count_report(counts: Counter[str], report: ThreadReport) -> None:
    """Count one history in the totals that `summary` prints."""
    counts["all"] += 1
    counts[report.status] += 1
    # A history that is unreadable may have the key.
    counts["with the key"] += report.messages is not None or report.status == "unreadable"
    if report.patch:
        signs = [(each.kind, each.cause, each.defect) for each in report.patch.changes]
        counts.update({str(sign) for each in signs for sign in each if sign in _DAMAGE})
    if report.status == "paused":
        counts["waiting with damage"] += bool(report.defects)
        counts["oldest pause"] = max(counts["oldest pause"], int(report.age or 0))


def summary(counts: Counter[str]) -> str:
    """What a scan found; empty if it found no history.

    Such as "60 of 200 histories are damaged: 41 with recoverable results, 12 unknown". The numbers
    behind the colon are those of histories with such a change.
    """
    if not counts["with the key"]:
        return ""
    damaged, pauses = counts["damaged"], counts["paused"]
    kinds = ", ".join(f"{counts[kind]:,} {text}" for kind, text in _DAMAGE.items() if counts[kind])
    are = "is" if damaged == 1 else "are"
    parts = [f"{damaged:,} of {counts['all']:,} histories {are} damaged"]
    parts[0] += f": {kinds}" if kinds else ""
    if pauses:
        age = view.age_in_words(counts["oldest pause"])
        wait = "waits" if pauses == 1 else "wait"
        parts.append(f"{pauses:,} {wait} for a human, the oldest for {age}")
    others = ("waiting with damage", "unreadable")
    parts += [f"{counts[kind]:,} {kind}" for kind in others if counts[kind]]
    return "; ".join(parts) + "."


def totals_of(counts: Counter[str], options: Namespace) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "database": database_name(options.database),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "totals": {
            "histories": counts["all"],
            **{status: counts[status] for status in STATUSES},
            "paused_with_damage": counts["waiting with damage"],
            "by_kind": {kind: counts[kind] for kind in _DAMAGE if counts[kind]},
        },
    }


_NEXT = {
    "damaged": "`repair DB THREAD` or `repair DB --all` plans the repair and writes nothing yet; "
    "or deploy with_patching(graph): the next message of a thread repairs it",
    "paused": "answer it, or repair it with --on-pause abandon",
    "unreadable": "its line says why",
    "planned": "add --apply to write",
    "repaired": "`undo DB THREAD` or `undo DB --all` takes it back until the thread goes on",
    "beyond --limit": "the same command repairs the next ones, once these are written",
    "young": "wait, or lower --min-age",
    "moved": "repair it again",
    "refused": "its line says why; or deploy with_patching(graph)",
}
"""The next step for each status and each outcome that leaves something to do."""

_SKIPPED = ("unreadable", "refused", "young", "moved")
_LEFT = ("damaged", "waiting with damage", "planned", "beyond --limit")


def has_histories(counts: Counter[str], options: Namespace) -> bool:
    """Whether a history was found; says so if no thread matches.

    Raises:
        OptionError: If none has the key: nothing is called healthy that nobody looked at.
    """
    if not counts["all"]:
        tell(options, "no thread matches.")
    elif not counts["with the key"]:
        raise OptionError(
            f"none of {counts['all']:,} histories has a state key {options.messages_key!r}: select "
            f"other threads, or name the key with --messages-key."
        )
    return bool(counts["all"])


def exit_code(counts: Mapping[str, int], options: Namespace) -> int:
    """The exit code for statuses or outcomes; says the next step for each."""
    for state, step in _NEXT.items():
        if counts.get(state):
            tell(options, f"next for {state}: {step}.")
    left = ", ".join(f"{counts[each]:,} {each}" for each in _LEFT if counts.get(each))
    if any(map(counts.get, _SKIPPED)):
        if left:
            tell(options, f"exit code 3 takes precedence over 1, which stands for: {left}.")
        return REFUSED
    return DAMAGED if left else CLEAN
