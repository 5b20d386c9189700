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
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph.state import CompiledStateGraph
from rich.console import Console, Group, RenderableType
from rich.text import Text

from langgraph_patch import __version__, threads, view
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import GraphError, OptionError, PatchError, brief
from langgraph_patch.history.json_values import json_value
from langgraph_patch.history.texts import CAUSES
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.opening import is_database_failure, open_database
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stored import config_of, history_of
from langgraph_patch.view import counted, masked, say

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
            say(text)
        lines.sort(key=lambda line: (line[1] == "paused", line[1] == "unreadable"))
        if lines and sys.stdout.isatty():
            _print_view(view.lines_table(lines, _width()))
        elif lines:
            sys.stdout.write(view.tab_separated(lines))


_SECONDS = 30.0  # between two lines that say how far a command is


def _with_progress(reports: Iterable[ThreadReport], what: str) -> Iterator[ThreadReport]:
    """The same reports; says at times how many there were."""
    due = time.monotonic() + _SECONDS
    for count, report in enumerate(reports, 1):
        yield report
        if time.monotonic() > due:
            say(f"{count:,} {what} so far")
            due += _SECONDS


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
        raise GraphError(
            f"{option} {target!r} cannot be loaded ({brief(error)}): expected "
            f"module.py:attribute or package.module:attribute."
        ) from error
    if not isinstance(found, kind) or isinstance(found, type) != (kind is type):
        raise GraphError(
            f"{option} {target!r} is a {type(found).__name__}: expected a {kind.__name__}, and "
            f"not the function or the class that makes it."
        )
    return found


def _reports(
    saver: BaseCheckpointSaver[Any], found: Counter[str], options: Namespace
) -> Iterator[ThreadReport]:
    """The reports on the selected threads; each is counted."""
    if options.status or options.metadata:
        if not isinstance(saver, threads.LangGraphServer):
            raise OptionError("--status and --metadata are for threads of a LangGraph Server only.")
        saver = threads.LangGraphServer(
            saver.client, status=options.status, metadata=dict(options.metadata)
        )
    globs: Sequence[str] = options.thread
    reports = threads.scan_threads(
        saver,
        messages_key=options.messages_key,
        thread_ids=options.ids or None,
        include=(lambda name: any(fnmatchcase(name, glob) for glob in globs)) if globs else None,
        since=None if options.since is None else datetime.now(UTC) - options.since,
    )
    for report in _with_progress(reports, "read"):
        count_report(found, report)
        yield report


# --- what was found ----------------------------------------------------------------------

_DAMAGE: Mapping[Any, str] = {
    "recovered": "with recoverable results",
    **{cause: cause for cause in CAUSES},
    "orphan": "with orphaned results",
}
"""The kinds of changes that the totals of a scan count, and what they are called there."""


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


_NEXT = {
    "damaged": "`repair DB THREAD` or `repair DB --all` plans the repair and writes nothing yet; "
    "or deploy with_patching(graph): the next message of a thread repairs it",
    "paused": "answer it, or repair it with --on-pause abandon",
    "unreadable": "its line says why",
    "planned": "add --apply to write",
    "repaired": "`undo DB THREAD` or `undo DB --all` takes it back until the thread goes on",
    "beyond --limit": "the same command repairs the next ones, once these are written",
    "young": "wait, or lower --min-age",
    "busy": "repair it again when its run has ended",
    "moved": "repair it again",
    "refused": "its line says why; or deploy with_patching(graph)",
}
"""The next step for each status and each outcome that leaves something to do."""

_SKIPPED = ("unreadable", "refused", "young", "moved", "busy")
_LEFT = ("damaged", "waiting with damage", "planned", "beyond --limit")


def _check_found(found: Counter[str], options: Namespace) -> None:
    """Check that a history was found, so that nothing is called healthy that nobody looked at."""
    if not found["with the key"]:
        raise OptionError(
            f"none of {found['all']:,} histories has a state key {options.messages_key!r}: select "
            f"other threads, or name the key with --messages-key."
        )


def _exit_code(found: Mapping[str, int]) -> int:
    """The exit code for statuses or outcomes; says the next step for each."""
    for state, step in _NEXT.items():
        if found.get(state):
            say(f"next for {state}: {step}.")
    if any(map(found.get, _SKIPPED)):
        return REFUSED
    return DAMAGED if any(map(found.get, _LEFT)) else CLEAN


# --- scan and show -----------------------------------------------------------------------


def scan(options: Namespace) -> int:
    """Report on the selected threads."""
    found = Counter[str]()
    with _open(options) as saver:
        reports = _reports(saver, found, options)
        results = (each.to_dict() for each in reports if each.status != "healthy")
        _print_threads(options, results, lambda: summary(found))
    _check_found(found, options)
    if found["damaged"]:
        say("next for one thread: `show DB THREAD` shows what happened to it.")
    return _exit_code(found)


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
    _check_found(found, options)
    if options.html is not None:
        _write_page(options, shown)
    elif not options.json:
        _print_view(Group(*shown))
    return _exit_code(found)


def _history(saver: BaseCheckpointSaver[Any], report: ThreadReport, messages_key: str) -> list[Any]:
    """The messages of a report as JSON values; none if its patch has them, or it has none."""
    if report.patch or report.messages is None:
        return []
    saved = saver.get_tuple(config_of(Key(report.thread_id, report.namespace)))
    found = run_sync(history_of(saver, saved, messages_key)) if saved else None
    return [json_value(each) for each in found or ()]


def _write_page(options: Namespace, shown: Sequence[Group]) -> None:
    """Write a page, in the place of nothing."""
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC} by langgraph-patch {__version__}"
    footer = Text(view.visible(f"Database {database_name(options.database)}, read on {when}"))
    try:
        with Path(options.html).open("x", encoding="utf-8") as file:  # it follows no link
            file.write(view.as_html(Group(*shown, footer)))
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise OptionError(f"--html {options.html!r} cannot be written: {error}.") from error
    say(f"wrote {options.html!r}.")


# --- repair ------------------------------------------------------------------------------


def repair(options: Namespace) -> int:
    """Repair the selected threads, or plan it without `--apply`."""
    if bool(options.ids or options.thread or options.since is not None) == options.all:
        raise OptionError("name the threads to repair, select them with --thread, or use --all.")
    found = Counter[str]()
    with _open(options, write=options.apply) as saver:
        if options.graph and isinstance(saver, threads.LangGraphServer):
            raise OptionError("--graph is not used with a LangGraph Server: it has the graph.")
        graph = _load("--graph", options.graph, CompiledStateGraph) if options.graph else None
        reports = _reports(saver, found, options)
        todo = [replace(each, patch=None) for each in reports if each.status != "healthy"]
        _check_found(found, options)
        if options.apply and not _is_confirmed(options, todo):
            say("nothing was written.")
            return DAMAGED
        outcomes = Counter(healthy=found["healthy"])
        results = _repairs(saver, graph, todo, options, outcomes)
        end = "." if options.apply else " (nothing was written)."
        _print_threads(options, results, lambda: (_total(outcomes) or "none was done") + end)
    if outcomes["paused"]:
        outcomes["waiting with damage"] = found["waiting with damage"]
    return _exit_code(outcomes)


def _total(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[each]:,} {each}" for each in sorted(+outcomes))


def _repairs(
    saver: BaseCheckpointSaver[Any],
    graph: Any,
    todo: Iterable[ThreadReport],
    options: Namespace,
    outcomes: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Repair each history, up to `--limit`, and count the outcomes; what is printed of them."""
    for report in _with_progress(todo, "done"):
        is_full = outcomes["repaired"] + outcomes["planned"] == options.limit
        if is_full and _is_changed(report, options):
            outcomes["beyond --limit"] += 1
        else:
            key = Key(report.thread_id, report.namespace)
            act = partial(_repair_one, saver, graph, report, options)
            yield _done(options, outcomes, key, act)


def _is_confirmed(options: Namespace, todo: Sequence[ThreadReport]) -> bool:
    """Whether the user wants to write these repairs; with the name of the database."""
    count = sum(_is_changed(report, options) for report in todo)
    if options.yes or not count:
        return True
    repairs = counted(min(count, options.limit or count), "repair*")
    question = f"write {repairs} to {database_name(options.database)}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise OptionError(f"nobody can be asked whether to {question}: add --yes.")
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_changed(report: ThreadReport, options: Namespace) -> bool:
    """Whether a repair changes such a history, unless it is refused."""
    return report.status == "damaged" or (report.status, options.on_pause) == ("paused", "abandon")


def _repair_one(
    saver: BaseCheckpointSaver[Any], graph: Any, report: ThreadReport, options: Namespace
) -> ThreadRepair:
    """Repair one history."""
    key = Key(report.thread_id, report.namespace)
    if report.status == "unreadable":
        return ThreadRepair(*key, "refused", report.reason)
    return threads.repair_thread(
        saver if graph is None else graph.copy({"checkpointer": saver}),
        config_of(key),
        on_pause=options.on_pause,
        min_age=options.min_age.total_seconds(),
        force=options.force,
        recover=options.recover,
        messages_key=options.messages_key,
        dry_run=not options.apply,
    )


def _done(
    options: Namespace, outcomes: Counter[str], key: Key, act: Callable[[], ThreadRepair]
) -> dict[str, Any]:
    """What a repair or an undo did; whatever goes wrong with one thread is a refusal."""
    try:
        values = act().to_dict()
    except Exception as error:  # any: the other threads are still to be done
        if options.debug or is_database_failure(error):
            raise
        reason = str(error) if isinstance(error, PatchError) else brief(error)
        values = ThreadRepair(*key, "refused", reason).to_dict()
    outcomes[values["outcome"]] += 1
    return values


# --- undo and demo -----------------------------------------------------------------------


def undo(options: Namespace) -> int:
    """Undo the last repair of the named threads, or of all."""
    if bool(options.ids) == options.all:
        raise OptionError("name the threads whose repair is to be undone, or use --all.")
    outcomes = Counter[str]()
    with _open(options, write=True) as saver:
        if options.all and isinstance(saver, threads.LangGraphServer):
            raise OptionError("name the threads: LangGraph Server cannot list those with a repair.")
        keys = _keys_to_undo(saver, options.ids)
        results = (_done(options, outcomes, key, partial(_undo_one, saver, key)) for key in keys)
        text = "no thread has a repair to undo"
        _print_threads(options, results, lambda: f"{_total(outcomes) or text}.")
    return REFUSED if outcomes["refused"] else CLEAN


def _keys_to_undo(saver: BaseCheckpointSaver[Any], ids: Sequence[str]) -> list[Key]:
    """The histories that a repair wrote last, and the root of every other named thread."""
    reports = threads.scan_threads(saver, thread_ids=ids or None)
    marked = [Key(report.thread_id, report.namespace) for report in reports if report.repaired]
    found = {key.thread_id for key in marked}
    return [*marked, *(Key(each, "") for each in dict.fromkeys(ids) if each not in found)]


def _undo_one(saver: BaseCheckpointSaver[Any], key: Key) -> ThreadRepair:
    """Undo one repair."""
    before = threads.undo_repair(saver, config_of(key))
    outcome: Any = "undone"  # of the command line only
    return ThreadRepair(*key, outcome, f"back to checkpoint {before}", before=before)


def demo(_: Namespace) -> int:
    """Run the same agent without patching and with it."""
    from langgraph_patch.demo import lines  # noqa: PLC0415 - imports agents

    sys.stdout.writelines(f"{line}\n" for line in lines())
    return CLEAN
