"""What the commands of the command line do, with the options that `cli` has read.

They add to `langgraph_patch.threads` only output and exit codes. Data goes to standard output,
everything else to standard error, and nothing is written to a database without `--apply`. A
terminal gets tables, a pipe gets one line for each thread with tabs between the columns.
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
import shutil
import signal
import sys
import threading
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from rich.console import Console, Group, RenderableType
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from langgraph_patch import __version__, threads, view
from langgraph_patch.errors import (
    OptionError,
    PatchError,
    brief,
    chain_of,
    is_store_failure,
    quoted,
)
from langgraph_patch.evidence.address import Address
from langgraph_patch.history.json_values import json_value
from langgraph_patch.history.texts import CAUSES
from langgraph_patch.threads.listing import Selection
from langgraph_patch.threads.opening import open_database
from langgraph_patch.threads.read import StoredHistory, checked_saver
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.scan import scan_selected
from langgraph_patch.threads.undo import find_repairs
from langgraph_patch.view import counted, masked, say

_T = TypeVar("_T")

CLEAN, DAMAGED, BAD, REFUSED = 0, 1, 2, 3
"""The exit codes."""


# --- output ------------------------------------------------------------------------------


def _print_json(values: Mapping[str, Any], *, whole: bool = False) -> None:
    """Print values on one line; unless `whole`, with the changes in the place of the patch."""
    if not whole:
        changes = (values.get("patch") or {}).get("changes", [])
        values = {key: values[key] for key in values if key != "patch"} | {"changes": changes}
    # Parsed again: Python writes NaN and Infinity, which are not JSON, so they become strings.
    text = json.dumps(json.loads(json.dumps(values, default=repr), parse_constant=str))
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _print_view(shown: RenderableType) -> None:
    # With a height, rich takes the width also where TERM says that the terminal can do little.
    console = Console(width=_width(), height=24, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(shown)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _width() -> int:
    return max(40, shutil.get_terminal_size((120, 24)).columns)


def _print_threads(
    options: Namespace, results: Iterable[Mapping[str, Any]], totals: Callable[[], str]
) -> None:
    """Print the values of each thread as found, or a table at the end, damaged threads first.

    In a pipe, the columns of the table have tabs between them. The totals and the table are
    printed however the command ends.
    """
    lines = list[list[str]]()
    try:
        for values in results:
            if options.json:
                _print_json(values)
                continue
            if values["patch"] and getattr(options, "diff", False):
                _print_view(Group(view.report_view(values), ""))
            lines.append(view.line_of(values))
    finally:
        if text := totals():
            _tell(options, text)
        lines.sort(key=lambda line: (line[1] == "paused", line[1] == "unreadable"))
        if lines and sys.stdout.isatty():
            _print_view(view.lines_table(lines, _width()))
        elif lines:
            sys.stdout.write(view.tab_separated(lines))


def _tell(options: Namespace, text: str) -> None:
    """Print a line that is no error to standard error, unless --quiet."""
    if not options.quiet:
        say(text)


# --- one thread after the other ----------------------------------------------------------


_SECONDS = 30.0  # between two lines that say how far a command is


def _each(options: Namespace, items: Iterable[_T], what: str) -> Iterator[_T]:
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
def _ctrl_c_waits() -> Iterator[Callable[[], None]]:
    """Note Ctrl-C until it is asked for: raised in a row, msgpack makes it an error of that row.

    A second Ctrl-C is raised where it comes.
    """
    pressed: list[int] = []

    def note(number: int, _: object) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)
        say("stopping when this thread is done; press Ctrl-C again not to wait.")

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
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(options: Namespace, what: str) -> Iterator[Callable[[], None]]:
    """Say how far a command is: on a terminal at any time, otherwise at times."""
    console = Console(stderr=True)
    if options.quiet:
        yield lambda: None
    elif console.is_terminal and not console.is_dumb_terminal:
        columns = SpinnerColumn(), TextColumn(what), MofNCompleteColumn()
        with Progress(
            *columns,
            console=console,
            transient=True,
            redirect_stdout=False,  # rich would break its lines
            redirect_stderr=False,
        ) as bar:
            task = bar.add_task(what, total=None)
            yield lambda: bar.advance(task)
    else:
        count, due = 0, time.monotonic() + _SECONDS

        def advance() -> None:
            nonlocal count, due
            count += 1
            if time.monotonic() > due:
                say(f"{count:,} {what} so far")
                due += _SECONDS

        yield advance


def notes_of(error: BaseException) -> str:
    """What was noted on an error and its causes, such as a thread that may have been written."""
    notes = [note for each in chain_of(error) for note in getattr(each, "__notes__", ())]
    return "".join(f" {note}." for note in dict.fromkeys(notes))


# --- the database ------------------------------------------------------------------------

_ADDRESS = re.compile(
    r"(\w+://)(?:[^@/?#]*@)?((?:[\w.-]*|\[[\da-f:.]*\])(?::\d*)?(?:/[^@?#]*)?)(?:\?[^@#]*)?"
)


def database_name(location: str) -> str:
    """A path or a URI without user, password and parameters.

    Examples:
        >>> from langgraph_patch.commands import database_name
        >>> database_name("postgresql://bob:s3cret@db.example/app?sslmode=require")
        'postgresql://db.example/app'
    """
    found = _ADDRESS.fullmatch(location)
    return found[1] + found[2] if found else masked(location)


def _open(
    options: Namespace, *, write: bool = False
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    trust: Sequence[str] = getattr(options, "trust", ())
    if trust and options.serde:
        raise OptionError("--trust is not used with --serde: it decides which classes are loaded.")
    classes = [_load("--trust", each, type) for each in trust]
    serde = _load("--serde", options.serde, SerializerProtocol) if options.serde else None
    names = [(each.__module__, each.__name__) for each in classes]
    return open_database(options.database, write=write, trust=names, serde=serde)


def _load(option: str, target: str, kind: type) -> Any:
    """What an option names as `module.py:name` or `package.module:name`; this runs its code."""
    source, _, name = target.rpartition(":")
    folder, module = os.path.split(source.removesuffix(".py"))
    # The module may import its neighbours, as it may when Python runs it.
    sys.path.insert(0, str(Path(folder).resolve()))
    try:
        found = pkgutil.resolve_name(f"{module}:{name}")
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise OptionError(
            f"{option} {quoted(target)} cannot be loaded ({brief(error)}): expected "
            f"module.py:attribute or package.module:attribute."
        ) from error
    if not isinstance(found, kind) or isinstance(found, type) != (kind is type):
        raise OptionError(
            f"{option} {quoted(target)} is a {type(found).__name__}: expected a {kind.__name__}, "
            f"and not the function or the class that makes it."
        )
    return found


def _selection(options: Namespace) -> Selection:
    """The threads that were selected; ids may come from the standard input."""
    ids, globs = [*options.ids], [glob for glob in options.thread if glob != "-"]
    if len(globs) < len(options.thread):
        ids += filter(None, (line.rstrip("\r\n") for line in sys.stdin or ()))
    is_named = bool(options.ids) or "-" in options.thread
    return Selection(
        ids if is_named else None,
        (lambda name: any(fnmatchcase(name, glob) for glob in globs)) if globs else None,
        None if options.since is None else datetime.now(UTC) - options.since,
    )


def _reports(
    saver: BaseCheckpointSaver[Any], found: Counter[str], options: Namespace, *, search: bool = True
) -> Iterator[ThreadReport]:
    """The reports on the selected threads with the selected statuses; all of them are counted."""
    reports = scan_selected(
        saver, _selection(options), messages_key=options.messages_key, search=search
    )
    for report in _each(options, reports, "read"):
        count_report(found, report)
        if report.status in (options.status or (report.status,)):
            yield report


# --- what was found ----------------------------------------------------------------------

_DAMAGE: Mapping[Any, str] = {
    "recovered": "with recoverable results",
    **{cause: cause for cause in CAUSES},
    "orphan": "with orphaned results",
}
"""The kinds of changes that the totals of a scan count, and what they are called there."""

_STATUSES = ("damaged", "paused", "unreadable", "healthy")


def count_report(found: Counter[str], report: ThreadReport) -> None:
    """Count one history in the totals that `summary` prints."""
    found["all"] += 1
    found[report.status] += 1
    # A history that is unreadable may have the key.
    found["with the key"] += report.messages is not None or report.status == "unreadable"
    if report.patch:
        signs = [(each.kind, each.cause, each.defect) for each in report.patch.changes]
        found.update({str(sign) for each in signs for sign in each if sign in _DAMAGE})
    if report.status == "paused":
        found["waiting with damage"] += bool(report.defects)
        found["oldest pause"] = max(found["oldest pause"], int(report.age or 0))


def summary(found: Counter[str]) -> str:
    """What a scan found; empty if it found no history.

    Such as "60 of 200 histories are damaged: 41 with recoverable results, 12 unknown". The numbers
    behind the colon are those of histories with such a change.
    """
    if not found["with the key"]:
        return ""
    damaged, pauses = found["damaged"], found["paused"]
    kinds = ", ".join(f"{found[kind]:,} {text}" for kind, text in _DAMAGE.items() if found[kind])
    parts = [f"{damaged:,} of {found['all']:,} histories {'is' if damaged == 1 else 'are'} damaged"]
    parts[0] += f": {kinds}" if kinds else ""
    if pauses:
        age = view.age_in_words(found["oldest pause"])
        parts.append(f"{pauses:,} wait{'s' * (pauses == 1)} for a human, the oldest for {age}")
    others = ("waiting with damage", "unreadable")
    parts += [f"{found[kind]:,} {kind}" for kind in others if found[kind]]
    return "; ".join(parts) + "."


def _totals(found: Counter[str], options: Namespace) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "database": database_name(options.database),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "totals": {
            "histories": found["all"],
            **{status: found[status] for status in _STATUSES},
            "paused_with_damage": found["waiting with damage"],
            "by_kind": {kind: found[kind] for kind in _DAMAGE if found[kind]},
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


def _is_found(found: Counter[str], options: Namespace) -> bool:
    """Whether a history was found; says so if no thread matches.

    Raises:
        OptionError: If none has the key: nothing is called healthy that nobody looked at.
    """
    if not found["all"]:
        _tell(options, "no thread matches.")
    elif not found["with the key"]:
        raise OptionError(
            f"none of {found['all']:,} histories has a state key {options.messages_key!r}: select "
            f"other threads, or name the key with --messages-key."
        )
    return bool(found["all"])


def _exit_code(found: Mapping[str, int], options: Namespace) -> int:
    """The exit code for statuses or outcomes; says the next step for each."""
    for state, step in _NEXT.items():
        if found.get(state):
            _tell(options, f"next for {state}: {step}.")
    left = ", ".join(f"{found[each]:,} {each}" for each in _LEFT if found.get(each))
    if any(map(found.get, _SKIPPED)):
        if left:
            _tell(options, f"exit code 3 takes precedence over 1, which stands for: {left}.")
        return REFUSED
    return DAMAGED if left else CLEAN


# --- scan and show -----------------------------------------------------------------------


def scan(options: Namespace) -> int:
    """Report on the selected threads."""
    found = Counter[str]()
    with _open(options) as saver:
        reports = _reports(saver, found, options)
        wanted = options.status or [status for status in _STATUSES if status != "healthy"]
        results = (each.to_dict() for each in reports if each.status in wanted)
        _print_threads(options, results, lambda: summary(found))
    if options.json:
        _print_json(_totals(found, options), whole=True)
    if not _is_found(found, options):
        return CLEAN
    if found["damaged"]:
        _tell(options, "next for one thread: `show DB THREAD` shows what happened to it.")
    return _exit_code(found, options)


def show(options: Namespace) -> int:
    """Show each history of a thread, with its defects and the patch beside it."""
    found, shown = Counter[str](), list[Group]()
    with _open(options) as saver:
        for report in threads.scan_threads(
            saver, messages_key=options.messages_key, thread_ids=options.ids
        ):
            count_report(found, report)
            if report.messages is None and report.status != "unreadable":
                continue
            values = report.to_dict()
            if options.json:
                _print_json(values, whole=True)
            history = _history(saver, report, options.messages_key)
            shown.append(view.report_view(values, history, whole=options.all))
    _is_found(found, options)
    if options.html is not None:
        _write_page(options, shown)
    elif not options.json:
        _print_view(Group(*shown))
    return _exit_code(found, options)


def _history(saver: BaseCheckpointSaver[Any], report: ThreadReport, messages_key: str) -> list[Any]:
    """The messages of a report as JSON values; none if its patch has them, or it has none."""
    if report.patch or report.messages is None:
        return []
    address = Address(report.thread_id, report.namespace)
    messages = StoredHistory.newest(saver, address, messages_key).messages()
    return [json_value(each) for each in messages or ()]


def _write_page(options: Namespace, shown: Sequence[Group]) -> None:
    """Write a page; never overwrite a file."""
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC} by langgraph-patch {__version__}"
    footer = Text(view.visible(f"Database {database_name(options.database)}, read on {when}"))
    try:
        with Path(options.html).open("x", encoding="utf-8") as file:  # it follows no link
            file.write(view.as_html(Group(*shown, footer)))
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise OptionError(f"--html {options.html!r} cannot be written: {error}.") from error
    _tell(options, f"wrote {options.html!r}.")


# --- repair and undo ---------------------------------------------------------------------


def repair(options: Namespace) -> int:
    """Repair the selected threads, or plan it without `--apply`."""
    _check_selected(options)
    found, outcomes = Counter[str](), Counter[str]()
    with _open(options, write=options.apply) as saver:
        checked_saver(saver, server=False)
        reports = _reports(saver, found, options, search=False)
        todo = [report for report in reports if report.status != "healthy"]
        if not _is_found(found, options):
            return CLEAN
        if options.apply and not options.yes:
            plans = _repairs(saver, todo, options, outcomes, dry_run=True)
            written = sum(values["outcome"] == "planned" for values in plans)
            if not _is_confirmed(options, written, "write {} to"):
                _tell(options, "nothing was written.")
                return DAMAGED
            outcomes.clear()
        outcomes["healthy"] += found["healthy"]
        results = _repairs(saver, todo, options, outcomes, dry_run=not options.apply)
        shown = (values for values in results if values["outcome"] != "healthy")
        end = "." if options.apply else " (nothing was written)."
        _print_threads(options, shown, lambda: (_total(outcomes) or "no thread was finished") + end)
    if outcomes["paused"]:
        outcomes["waiting with damage"] = found["waiting with damage"]
    return _exit_code(outcomes, options)


def undo(options: Namespace) -> int:
    """Undo the last repair of the selected threads, or show it without `--apply`."""
    _check_selected(options)
    outcomes = Counter[str]()
    with _open(options, write=options.apply) as saver:
        found = [*_each(options, find_repairs(saver, _selection(options)), "read")]
        count = sum(plan.outcome == "planned" for _, plan in found)
        if options.apply and not (options.yes or _is_confirmed(options, count, "undo {} in")):
            _tell(options, "nothing was undone.")
            return DAMAGED
        acts = (
            (address, partial(_undo_one, saver, address, plan, options)) for address, plan in found
        )
        results = (_done(options, outcomes, *act) for act in _each(options, acts, "done"))
        end = "." if options.apply else " (nothing was undone)."
        none = "" if found else "no thread has a repair to undo"
        text = "no thread was finished" if found else none
        _print_threads(options, results, lambda: (_total(outcomes) or text) + end)
    return _exit_code({**outcomes, "repaired": 0}, options)


def _check_selected(options: Namespace) -> None:
    is_chosen = options.ids or options.thread or options.since is not None
    if bool(is_chosen or getattr(options, "status", ())) == options.all:
        raise OptionError("name threads, select them with --thread, --since or --status, or --all.")


def _total(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[each]:,} {each}" for each in sorted(+outcomes))


def _repairs(
    saver: BaseCheckpointSaver[Any],
    todo: Iterable[ThreadReport],
    options: Namespace,
    outcomes: Counter[str],
    *,
    dry_run: bool,
) -> Iterator[dict[str, Any]]:
    """Repair each history, up to `--limit`, and count the outcomes; what is printed of them."""
    for report in _each(options, todo, "planned" if dry_run else "done"):
        is_full = outcomes["repaired"] + outcomes["planned"] == options.limit
        if is_full and _is_changed(report, options):
            outcomes["beyond --limit"] += 1
        else:
            act = partial(_repair_one, saver, report, options, dry_run=dry_run)
            yield _done(options, outcomes, Address(report.thread_id, report.namespace), act)


def _is_confirmed(options: Namespace, count: int, what: str) -> bool:
    """Whether the user wants to write so many repairs; with the name of the database."""
    if not count:
        return True
    question = f"{what.format(counted(count, 'repair*'))} {database_name(options.database)}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise OptionError(f"nobody can be asked whether to {question}: add --yes.")
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_changed(report: ThreadReport, options: Namespace) -> bool:
    """Whether a repair changes such a history, unless it is refused."""
    return report.status == "damaged" or (report.status, options.on_pause) == ("paused", "abandon")


def _repair_one(
    saver: BaseCheckpointSaver[Any], report: ThreadReport, options: Namespace, *, dry_run: bool
) -> ThreadRepair:
    """Repair one history."""
    if report.status == "unreadable":
        return ThreadRepair(report.thread_id, report.namespace, "refused", report.reason)
    return threads.repair_thread(
        saver,
        Address(report.thread_id, report.namespace).config,
        on_pause=options.on_pause,
        min_age=options.min_age.total_seconds(),
        force=options.force,
        recover=options.recover,
        messages_key=options.messages_key,
        dry_run=dry_run,
    )


def _undo_one(
    saver: BaseCheckpointSaver[Any], address: Address, plan: ThreadRepair, options: Namespace
) -> ThreadRepair:
    """Undo one repair."""
    if plan.outcome != "planned":
        return plan
    text, outcome = f"back to checkpoint {plan.before}", "planned"
    if options.apply:
        threads.undo_repair(saver, address.config)
        outcome = "undone"  # of the command line only
    return ThreadRepair(address.thread_id, address.namespace, outcome, text, before=plan.before)  # type: ignore[arg-type]


def _done(
    options: Namespace,
    outcomes: Counter[str],
    address: Address,
    act: Callable[[], ThreadRepair],
) -> dict[str, Any]:
    """What a repair or an undo did; whatever goes wrong with one thread is a refusal."""
    try:
        values = act().to_dict()
    except Exception as error:  # any: the other threads are still to be done
        if any(isinstance(each, KeyboardInterrupt) for each in chain_of(error)):
            raise KeyboardInterrupt from error  # it came while a row was read
        if options.debug or is_store_failure(error):
            raise
        reason = (str(error) if isinstance(error, PatchError) else brief(error)) + notes_of(error)
        values = ThreadRepair(address.thread_id, address.namespace, "refused", reason).to_dict()
    outcomes[values["outcome"]] += 1
    for python, own in _OWN_WORDS.items():
        values["reason"] = values["reason"] and values["reason"].replace(python, own)
    return values


_OWN_WORDS = {"on_pause='abandon'": "--on-pause abandon", "or force the repair": "or add --force"}
"""What the reasons of Python's functions call an option, and what it is called here."""


def demo(_: Namespace) -> int:
    """Run the same agent without patching and with it."""
    from langgraph_patch.demo import lines  # noqa: PLC0415 - imports agents

    sys.stdout.writelines(f"{line}\n" for line in lines())
    return CLEAN
