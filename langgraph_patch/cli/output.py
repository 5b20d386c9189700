"""What the commands of the command line print: results, totals, next steps and progress.

Data goes to standard output, everything else to standard error. A terminal gets tables, a pipe gets
one line for each thread with tabs between the columns, `--json` one JSON object for each thread.
"""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from langgraph_patch import view
from langgraph_patch._text import database_name, may_hold_password, one_line, say
from langgraph_patch.errors import OptionError, chain_of
from langgraph_patch.history.findings import CAUSES
from langgraph_patch.threads import ThreadRepair, ThreadReport
from langgraph_patch.threads.repair import STOPPED_RUN, WRITTEN

_T = TypeVar("_T")

CLEAN, DAMAGED, REFUSED = 0, 1, 3
"""The exit codes of a command that is not stopped by an error."""

# --- results -----------------------------------------------------------------------------


def print_json(values: Mapping[str, Any]) -> None:
    """Print values on one line."""
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
    options: Namespace,
    results: Iterable[ThreadReport | ThreadRepair],
    totals: Callable[[], str],
) -> None:
    """Print each result as JSON, or a table at the end, damaged threads first.

    In a pipe, the columns of the table have tabs between them. The table is printed however the
    command ends, and the totals below it, where one looks.
    """
    lines = list[dict[str, str]]()
    try:
        for result in results:
            # Without the histories of the patch: a long one takes long to become JSON.
            values = replace(result, patch=None).to_dict()
            changes = [each.to_dict() for each in result.patch.changes] if result.patch else []
            if options.json:
                del values["patch"]
                print_json({**values, "changes": changes})
                continue
            if result.patch and getattr(options, "diff", False):
                print_view(Group(view.report_view(result.to_dict()), ""))
            values["patch"] = {"changes": changes}
            lines.append(view.line_of(options.command, values))
    finally:
        lines.sort(key=lambda line: (line["state"] == "paused", line["state"] == "unreadable"))
        if lines and sys.stdout.isatty():
            print_view(view.lines_table(options.command, lines, _width()))
        elif lines:
            rows = [view.HEADS[options.command], *(line.values() for line in lines)]
            sys.stdout.write("".join("\t".join(map(one_line, row)) + "\n" for row in rows))
        sys.stdout.flush()  # before the totals, if both streams are one file
        if text := totals():
            tell(options, text)


def tell(options: Namespace, text: str, command: str = "") -> None:
    """Print a line that is no error to standard error, unless --quiet."""
    if not options.quiet:
        say(text, command)


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
            if what != "read" and options.rate:  # a scan itself waits for what it reads
                time.sleep(1 / options.rate)


@contextmanager
def _progress(options: Namespace, what: str) -> Iterator[Callable[[], object]]:
    """Say how far a command is: as a bar on a terminal, otherwise in a line at times.

    A bar would stand in the lines of what is printed meanwhile on the same terminal.
    """
    count, due = 0, time.monotonic() + _SECONDS

    def advance() -> None:
        nonlocal count, due
        count += 1
        if (now := time.monotonic()) > due:
            tell(options, f"{count:,} {what} so far")
            due += _SECONDS * ((now - due) // _SECONDS + 1)  # one line, however long it was

    prints = options.json or getattr(options, "diff", options.command == "show")
    prints = prints and sys.stdout.isatty()
    # Asked of the stream itself: a log is no terminal, whatever FORCE_COLOR says.
    is_terminal = sys.stderr.isatty() and not (console := Console(stderr=True)).is_dumb_terminal
    if options.quiet or prints or not is_terminal:
        yield advance
        return
    columns = SpinnerColumn(), TextColumn(what), MofNCompleteColumn()
    # Standard output is left as it is: rich would break its lines.
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        yield partial(bar.advance, bar.add_task(what, total=None))


@contextmanager
def _ctrl_c_waits() -> Iterator[Callable[[], None]]:
    """Note Ctrl-C until it is asked for, so that the thread at hand is done.

    A second Ctrl-C ends the process, as a kill does: raised here, it could be lost in msgpack.
    """
    pressed = list[int]()

    def note(number: int, _: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        Console(stderr=True).show_cursor()  # a bar has hidden it, and may not show it again
        say("stopping when this thread is done; press Ctrl-C again not to wait.")

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if not _is_main_thread():  # it gets no signals
        yield check
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        if _is_main_thread():  # a command that an error has ended may be collected in any
            signal.signal(signal.SIGINT, before)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def notes_of(error: BaseException) -> str:
    """What was noted on an error and its causes, such as a thread that may have been written.

    A note of another package that may hold a password is left out.
    """
    noted = [note for each in chain_of(error) for note in getattr(each, "__notes__", ())]
    notes = [each for each in noted if each.startswith(WRITTEN) or not may_hold_password(each)]
    return "".join(f" {note}." for note in dict.fromkeys(notes))


# --- totals and next steps ---------------------------------------------------------------

_DAMAGE: Mapping[Any, str] = {
    "recovered": "with recoverable results",
    **{cause: cause for cause in CAUSES},
    "orphan": "with orphaned results",
}
"""The kinds of changes that are counted, and what they are called."""


@dataclass
class Counts:
    """How many histories a command has met.

    Attributes:
        states: By their status, or by the outcome of their repair.
        kinds: By the kinds of changes that repair them; a history counts once for each.
        with_key: Those that have the state key.
        pauses: For how many seconds each one that waits for a human has waited.
        paused_with_damage: Those that wait, with damage that the answer does not repair.
        first: The id of the first thread of each status or outcome.
        can_undo: Whether these repairs can be undone.
    """

    states: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    with_key: int = 0
    pauses: list[float] = field(default_factory=list)
    paused_with_damage: int = 0
    first: dict[str, str] = field(default_factory=dict)
    can_undo: bool = True

    def add(self, result: ThreadReport | ThreadRepair) -> None:
        """Count one history."""
        report = result if isinstance(result, ThreadReport) else None
        state = result.status if isinstance(result, ThreadReport) else result.outcome
        self.states[state] += 1
        is_stopped = state == "paused" and STOPPED_RUN in (result.reason or "")
        self.first.setdefault(_STOPPED if is_stopped else state, result.thread_id)
        if result.patch and state != "paused":
            signs = [(each.kind, each.cause, each.defect) for each in result.patch.changes]
            self.kinds.update({str(sign) for each in signs for sign in each if sign in _DAMAGE})
        if report:
            if state == "paused":
                self.paused_with_damage += bool(report.defects or report.patch)
                self.pauses += [] if is_stopped else [report.age or 0.0]
            # A history that is unreadable may have the key. A thread without a run has no history.
            self.with_key += report.messages is not None or report.checkpoint_id is None


def kinds_in_words(counts: Counts) -> str:
    """How many histories have a change of each kind."""
    return ", ".join(
        f"{counts.kinds[kind]:,} {text}" for kind, text in _DAMAGE.items() if counts.kinds[kind]
    )


def summary(counts: Counts) -> str:
    """What a scan found; empty if it found no history.

    Such as "200 histories: 60 damaged, 140 healthy. Of the damaged, each under all its kinds: 41
    with recoverable results, 32 unknown."
    """
    if not counts.with_key:
        return ""
    noun = "history" if (total := counts.states.total()) == 1 else "histories"
    text = f"{total:,} {noun}: {outcomes_in_words(counts)}."
    if kinds := kinds_in_words(counts):
        text += f" Of the damaged, each under all its kinds: {kinds}."
    if pauses := counts.pauses:
        age = view.age_in_words(max(pauses))
        text += f" Waiting for a human: {len(pauses):,}, the oldest for {age}."
    if counts.paused_with_damage:
        text += f" Paused with damage: {counts.paused_with_damage:,}."
    return text


def outcomes_in_words(counts: Counts) -> str:
    """How many histories have each outcome, by its name."""
    return ", ".join(f"{count:,} {each}" for each, count in sorted(counts.states.items()) if count)


def totals_of(counts: Counts, options: Namespace) -> dict[str, Any]:
    """What a scan found, as JSON values."""
    return {
        "database": database_name(options.database),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "totals": {
            "histories": counts.states.total(),
            **{status: counts.states[status] for status in view.STATUSES},
            "paused_with_damage": counts.paused_with_damage,
            "by_kind": {kind: counts.kinds[kind] for kind in _DAMAGE if counts.kinds[kind]},
        },
    }


BEYOND = "beyond --limit"
"""The outcome of a history that is left to the next command."""
_STOPPED = "paused without a question"
_NEXT = {
    "damaged": "this plans the repair and writes nothing yet (or deploy with_patching(graph), and "
    "the next message of a thread repairs it):",
    "paused": "answer it; or, for one thread, plan to end it:",
    _STOPPED: "continue it with invoke(None), or deploy with_patching(graph), and the next message "
    "repairs it; or, for one thread, plan to end it:",
    "unreadable": "its line says why.",
    "planned": "this writes it:",
    "repaired": "until a thread goes on, this takes it back (add --apply):",
    "young": "wait, or lower --min-age.",
    "moved": "repair it again.",
    "refused": "its line says why; or deploy with_patching(graph).",
    BEYOND: "the same command repairs the next ones, once these are written.",
}
"""The next step for each status and each outcome that leaves something to do."""
_NEXT_OF_UNDO = {
    "planned": "this undoes it:",
    "refused": "its line says why; undo deletes only what repair wrote, while nothing follows it.",
}
_NEXT_OF_SERVER = {
    "damaged": "deploy with_patching(graph), and the next message of a thread repairs it; or name "
    "the database of the server.",
    "paused": "answer it.",
    _STOPPED: _NEXT[_STOPPED].partition("; or, for one thread")[0] + ".",
}


def check_found(counts: Counts, options: Namespace) -> None:
    """Say so if no thread matches.

    Raises:
        OptionError: If none has the key: nothing is called healthy that nobody looked at.
    """
    if not (found := counts.states.total()):
        tell(options, "no thread matches.")
    elif not counts.with_key:
        raise OptionError(
            f"none of {found:,} histories has a state key {options.messages_key!r}: select other "
            f"threads, or name the key with --messages-key."
        )


def exit_code(counts: Counts, options: Namespace) -> int:
    """The exit code for statuses or outcomes; says the next step for each."""
    states = counts.states
    is_server = options.database.startswith(("http://", "https://"))
    steps = _NEXT_OF_UNDO if options.command == "undo" else _NEXT
    for state, step in (steps | _NEXT_OF_SERVER if is_server else steps).items():
        if state in counts.first and (state, counts.can_undo) != ("repaired", False):
            command = "" if is_server else _following(counts, options, state)
            tell(options, f"next for {state}: {step}", command)
    left = {**states, "waiting with damage": counts.paused_with_damage}
    names = ("damaged", "waiting with damage", "planned", BEYOND)
    text = ", ".join(f"{left[name]:,} {name}" for name in names if left.get(name))
    if any(states[each] for each in ("unreadable", "refused", "young", "moved")):
        if text:
            tell(options, f"exit code 3 takes precedence over 1, which stands for: {text}.")
        return REFUSED
    return DAMAGED if text else CLEAN


def _following(counts: Counts, options: Namespace, state: str) -> str:
    """The command that follows a status or an outcome; empty if none does."""
    if state == "planned":
        return _pasted(options, [options.command, "--apply", *options.typed[1:]])
    if state in ("paused", _STOPPED):
        return f"{next_command(options, 'repair', [counts.first[state]])} --on-pause=abandon"
    following = {"damaged": "repair", "repaired": "undo"}.get(state)
    return next_command(options, following) if following else ""


def next_command(options: Namespace, name: str, ids: Sequence[str] = ()) -> str:
    """A command for the same database that can be pasted.

    DB stands for an address that may hold a password, THREAD for an id that cannot be typed.

    Args:
        options: The options of this command.
        name: The next command.
        ids: The ids of its threads. Default: the selection of this command.
    """
    ids = ids or options.ids
    parts = ["THREAD" if each.startswith("-") else each for each in ids]
    if not ids:
        parts = [f"--thread={each}" for each in options.thread]
        parts += [f"--since={_as_typed(options.since)}"] if options.since is not None else []
        parts += ["--status=damaged"] if name == "repair" and options.status else []
        parts = parts or ["--all"]
    if name != "show" and getattr(options, "shard", None):
        parts.append("--shard={}/{}".format(*options.shard))
    if options.serde:
        parts.append(f"--serde={options.serde}")
    if name != "undo":
        if options.messages_key != "messages":
            parts.append(f"--messages-key={options.messages_key}")
        parts += [f"--trust={each}" for each in options.trust]
    return _pasted(options, [name, options.named, *parts])


def _pasted(options: Namespace, parts: Sequence[str]) -> str:
    named = options.named
    is_shown = named.startswith(("env:", "saver:")) or database_name(named) == named
    shown = {each: each if each == one_line(each) else "THREAD" for each in parts}
    shown[named] = named if is_shown else "DB"
    return shlex.join(["langgraph-patch", *map(shown.__getitem__, parts)])


def _as_typed(time: timedelta) -> str:
    """A time as it is written on the command line."""
    seconds = int(time.total_seconds())
    units = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    return next(f"{seconds // size}{unit}" for unit, size in units.items() if seconds % size == 0)
