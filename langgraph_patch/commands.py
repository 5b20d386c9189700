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
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph.state import CompiledStateGraph
from rich.console import Console, Group, RenderableType

from langgraph_patch import __version__, threads, view
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import GraphError, OptionError, PatchError, ThreadError, brief
from langgraph_patch.history.json_values import json_value
from langgraph_patch.history.texts import CAUSES
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.opening import is_database_failure, open_database
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stored import config_of, history_of
from langgraph_patch.view import Line, counted, masked, say

CLEAN, DAMAGED, BAD, REFUSED = 0, 1, 2, 3
"""The exit codes."""

_T = TypeVar("_T")
_Add: TypeAlias = Callable[[Mapping[str, Any], Line], None]

# --- output ------------------------------------------------------------------------------


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _print_json(values: Mapping[str, Any], *, whole: bool = False) -> None:
    """Print values on one line; unless `whole`, with the changes in the place of the patch."""
    if not whole:
        changes = (values.get("patch") or {}).get("changes", [])
        values = {key: values[key] for key in values if key != "patch"} | {"changes": changes}
    # Parsed again: Python writes NaN and Infinity, which are not JSON, so they become strings.
    _print(json.dumps(json.loads(json.dumps(values, default=repr), parse_constant=str)) + "\n")


def _print_view(shown: RenderableType) -> None:
    # With a height, rich takes the width also where TERM says that the terminal can do little.
    console = Console(width=_width(), height=24, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(shown)
    _print("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _width() -> int:
    return max(40, shutil.get_terminal_size((120, 24)).columns)


@contextmanager
def _table(options: Namespace, heads: Sequence[str]) -> Iterator[_Add]:
    """Print the values of a thread as found, or a table at the end, damaged threads first."""
    lines: list[Line] = []

    def add(values: Mapping[str, Any], line: Line) -> None:
        if options.json:
            _print_json(values)
        else:
            lines.append(line)

    try:
        yield add
    finally:
        lines.sort(key=lambda line: (line[0] == "paused", line[0] == "unreadable"))
        if lines and sys.stdout.isatty():
            _print_view(view.lines_table(heads, lines, _width()))
        elif lines:
            _print(view.tab_separated(heads, lines))


_SECONDS = 30.0  # between two lines that say how far a command is


def _with_progress(items: Iterable[_T], what: str) -> Iterator[_T]:
    """The same items; says at times how many there were, more often where somebody waits."""
    pause = _SECONDS / 6 if sys.stderr.isatty() else _SECONDS
    due = time.monotonic() + pause
    for count, item in enumerate(items, 1):
        yield item
        if time.monotonic() > due:
            say(f"{count:,} {what} so far")
            due += pause


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
    for each in trust:
        _load("--trust", each)
    serde = _load("--serde", options.serde) if options.serde else None
    if serde and (isinstance(serde, type) or not isinstance(serde, SerializerProtocol)):
        raise OptionError(
            f"--serde {options.serde!r} is a {type(serde).__name__}: expected a serializer, such "
            f"as an EncryptedSerializer, not the function that makes it."
        )
    names = [(module, name) for module, _, name in (each.partition(":") for each in trust)]
    return open_database(options.database, write=write, trust=names, serde=serde)


def _load(option: str, target: str) -> Any:
    """What an option names as `module.py:name` or `package.module:name`; this runs its code."""
    source, _, name = target.rpartition(":")
    folder, module = os.path.split(source.removesuffix(".py"))
    # The module may import its neighbours, as it may when Python runs it.
    sys.path.insert(0, str(Path(folder).resolve()))
    try:
        return pkgutil.resolve_name(f"{module}:{name}")
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise GraphError(
            f"{option} {target!r} cannot be loaded ({brief(error)}): expected "
            f"module.py:attribute or package.module:attribute."
        ) from error


def _is_server(options: Namespace) -> bool:
    return bool(options.database.startswith(("http://", "https://")))


def _graph(options: Namespace) -> Any:
    """The application's graph; None if it is not named, and for a server, which has it."""
    if not options.graph:
        return None
    if _is_server(options):
        raise OptionError("--graph is not used with a LangGraph Server: it has the graph.")
    found = _load("--graph", options.graph)
    if not isinstance(found, CompiledStateGraph):
        raise GraphError(
            f"{options.graph!r} is a {type(found).__name__}: expected a compiled graph "
            f"(if a function makes it, assign its result to a variable)."
        )
    return found


def _reports(saver: BaseCheckpointSaver[Any], options: Namespace) -> Iterator[ThreadReport]:
    """The reports on the selected threads."""
    if options.status or options.metadata:
        if not isinstance(saver, threads.LangGraphServer):
            raise OptionError("--status and --metadata are for threads of a LangGraph Server only.")
        saver = threads.LangGraphServer(
            saver.client, status=options.status, metadata=dict(options.metadata)
        )
    globs: Sequence[str] = options.thread
    return threads.scan_threads(
        saver,
        messages_key=options.messages_key,
        thread_ids=options.ids or None,
        include=(lambda name: any(fnmatchcase(name, glob) for glob in globs)) if globs else None,
        since=None if options.since is None else datetime.now(UTC) - options.since,
    )


# --- what was found ----------------------------------------------------------------------

_REPLACEABLE = "with a placeholder that can be replaced"
_DAMAGE = ("with recoverable results", *CAUSES, "with orphaned results", "in a wrong form")


def count_report(found: Counter[str], report: ThreadReport) -> None:
    """Count one history in the totals that `summary` prints."""
    found["all"] += 1
    found[report.status] += 1
    found["of subgraphs"] += bool(report.namespace)
    # A history that is unreadable may have the key.
    found["with the key"] += report.messages is not None or report.status == "unreadable"
    if report.status == "damaged":
        found[_damage(report)] += 1
    if report.status == "paused":
        found["waiting with damage"] += bool(report.defects)
        found["oldest pause"] = max(found["oldest pause"], int(report.age or 0))


def _damage(report: ThreadReport) -> str:
    """The kind of damage of a history: one of `_DAMAGE`, or that a model accepts it as it is."""
    changes = report.patch.changes if report.patch else ()
    defects = {change.defect for change in report.defects} - {"superseded"}
    if not defects:
        return _REPLACEABLE
    if any(change.kind == "recovered" for change in changes):
        return _DAMAGE[0]
    other = "with orphaned results" if "orphan" in defects else "in a wrong form"
    causes = {change.cause for change in changes}
    return next((cause for cause in ("unknown", *CAUSES) if cause in causes), other)


def summary(found: Counter[str]) -> str:
    """What a scan found: "60 of 200 threads are dead: 41 with recoverable results, ..."."""
    dead, pauses = found["damaged"] - found[_REPLACEABLE], found["paused"]
    noun = "histories" if found["of subgraphs"] else "thread" if found["all"] == 1 else "threads"
    kinds = ", ".join(f"{found[kind]:,} {kind}" for kind in _DAMAGE if found[kind])
    parts = [f"{dead or 'none'} of {found['all']:,} {noun} {'are' if dead > 1 else 'is'} dead"]
    parts[0] += f": {kinds}" if kinds else ""
    if pauses:
        age = view.age_in_words(found["oldest pause"])
        parts.append(f"{pauses:,} wait{'s' * (pauses == 1)} for a human, the oldest for {age}")
    others = ("waiting with damage", _REPLACEABLE, "unreadable")
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


def _say_next(found: Mapping[str, int]) -> None:
    for state, step in _NEXT.items():
        if found.get(state):
            say(f"next for {state}: {step}.")


def _exit_code(found: Counter[str], options: Namespace) -> int:
    """The exit code for what was found; says the next step, or why nothing was found."""
    if not found["all"]:
        say("no thread is stored or selected: nothing was looked at.")
    elif not found["with the key"]:
        say(f"none has a state key {options.messages_key!r}: name it with --messages-key.")
    if not found["with the key"]:
        return BAD
    _say_next(found)
    if found["unreadable"]:
        return REFUSED
    return DAMAGED if found["damaged"] or found["waiting with damage"] else CLEAN


# --- scan and show -----------------------------------------------------------------------


def scan(options: Namespace) -> int:
    """Report on the selected threads."""
    found = Counter[str]()
    with _open(options) as saver, _table(options, view.REPORT_HEADS) as add:
        try:
            for report in _with_progress(_reports(saver, options), "read"):
                count_report(found, report)
                if report.status != "healthy":
                    values = report.to_dict()
                    add(values, view.report_line(values))
        finally:
            if found["with the key"]:
                say(summary(found))
    if found["damaged"]:
        say("next for one thread: `show DB THREAD` shows what happened to it.")
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
    if options.html is not None and shown:
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC} by langgraph-patch {__version__}"
        footer = f"Database {database_name(options.database)}, read on {when}"
        _write_page(options.html, view.page(f"Thread {options.ids[0]}", Group(*shown), footer))
    elif not options.json:
        _print_view(Group(*shown))
    return _exit_code(found, options)


def _history(saver: BaseCheckpointSaver[Any], report: ThreadReport, messages_key: str) -> list[Any]:
    """The messages of a report as JSON values; none if its patch has them, or it has none."""
    if report.patch or report.messages is None:
        return []
    saved = saver.get_tuple(config_of(Key(report.thread_id, report.namespace)))
    found = run_sync(history_of(saver, saved, messages_key)) if saved else None
    return [json_value(each) for each in found or ()]


def _write_page(name: str, text: str) -> None:
    """Write a page in the place of nothing or of another page, as a whole or not at all."""
    path = Path(name)
    try:
        if is_free := not path.is_symlink() and (not path.exists() or _is_page(path)):
            part = path.with_name(f"{path.name}.part")
            with part.open("x", encoding="utf-8") as file:
                file.write(text)
            part.replace(path)
    except (OSError, ValueError) as error:  # ValueError: a null character, or no name
        raise OptionError(f"--html {name!r} cannot be written: {error}.") from error
    if not is_free:
        raise OptionError(
            f"--html {name!r} is not written: what is there is no page of langgraph-patch. "
            f"Choose another name, or delete it first."
        )
    say(f"wrote {name!r}.")


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(view.MARK)) == view.MARK.encode()


# --- repair ------------------------------------------------------------------------------


def repair(options: Namespace) -> int:
    """Repair the selected threads, or plan it without `--apply`."""
    if bool(options.ids or options.thread or options.since is not None) == options.all:
        raise OptionError("name the threads to repair, select them with --thread, or use --all.")
    graph, found, todo = _graph(options), Counter[str](), list[ThreadReport]()
    with _open(options, write=options.apply) as saver:
        for report in _with_progress(_reports(saver, options), "read"):
            count_report(found, report)
            if report.status != "healthy":
                todo.append(replace(report, patch=None))
        if not found["with the key"]:
            return _exit_code(found, options)
        if options.apply and not _is_confirmed(options, todo):
            say("nothing was written.")
            return DAMAGED
        outcomes = Counter(healthy=found["healthy"])
        with _outcomes_table(options, outcomes) as add:
            for report in _with_progress(todo, "done"):
                is_full = outcomes["repaired"] + outcomes["planned"] == options.limit
                if is_full and _is_changed(report, options):
                    outcomes["beyond --limit"] += 1
                else:
                    add(_repair_one(saver, graph, report, options).to_dict())
    _say_next(outcomes)
    if outcomes.keys() & {"refused", "young", "moved", "busy"}:
        return REFUSED
    is_left = outcomes["paused"] and found["waiting with damage"]
    return DAMAGED if outcomes["planned"] or outcomes["beyond --limit"] or is_left else CLEAN


@contextmanager
def _outcomes_table(
    options: Namespace, outcomes: Counter[str]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Print and count what is done with each thread; at the end the totals, however it ends."""

    def add(values: Mapping[str, Any]) -> None:
        outcomes[values["outcome"]] += 1
        if values["patch"] and options.diff and not options.json:
            _print_view(Group(view.report_view(values), ""))
        add_line(values, view.repair_line(values))

    try:
        with _table(options, view.REPAIR_HEADS) as add_line:
            yield add
    finally:
        totals = ", ".join(f"{outcomes[each]:,} {each}" for each in sorted(+outcomes))
        is_dry = options.command == "repair" and not options.apply
        totals += " (nothing was written)" if is_dry else ""
        say(f"{totals or 'no thread has a repair to undo'}.")


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
    """Repair one history; whatever goes wrong with it is a refusal."""
    key = Key(report.thread_id, report.namespace)
    if report.status == "unreadable":
        return ThreadRepair(*key, "refused", report.reason)
    try:
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
    except Exception as error:  # any: the other threads are still to be repaired
        if options.debug or isinstance(error, BrokenPipeError) or is_database_failure(error):
            raise
        reason = str(error) if isinstance(error, PatchError) else brief(error)
        return ThreadRepair(*key, "refused", reason, before=report.checkpoint_id)


# --- undo and demo -----------------------------------------------------------------------


def undo(options: Namespace) -> int:
    """Undo the last repair of the named threads, or of all."""
    if bool(options.ids) == options.all:
        raise OptionError("name the threads whose repair is to be undone, or use --all.")
    if options.all and _is_server(options):
        raise OptionError("name the threads: LangGraph Server cannot list those with a repair.")
    outcomes = Counter[str]()
    with _open(options, write=True) as saver:
        keys = _keys_to_undo(saver, options.ids)
        with _outcomes_table(options, outcomes) as add:
            for key in keys:
                add(_undo_one(saver, key))
    return REFUSED if outcomes["refused"] else CLEAN


def _keys_to_undo(saver: BaseCheckpointSaver[Any], ids: Sequence[str]) -> list[Key]:
    """The histories that a repair wrote last, and the root of every other named thread."""
    reports = threads.scan_threads(saver, thread_ids=ids or None)
    marked = [Key(report.thread_id, report.namespace) for report in reports if report.repaired]
    found = {key.thread_id for key in marked}
    return [*marked, *(Key(each, "") for each in dict.fromkeys(ids) if each not in found)]


def _undo_one(saver: BaseCheckpointSaver[Any], key: Key) -> dict[str, Any]:
    """Undo one repair; what is printed of it."""
    values: dict[str, Any] = {**key._asdict(), "outcome": "undone", "patch": None}
    try:
        before = threads.undo_repair(saver, config_of(key))
    except ThreadError as error:
        if is_database_failure(error):
            raise
        return {**values, "outcome": "refused", "reason": str(error), "before": None}
    return {**values, "reason": f"back to checkpoint {before}", "before": before}


def demo(_: Namespace) -> int:
    """Run the same agent without patching and with it."""
    from langgraph_patch.demo import run  # noqa: PLC0415 - imports agents

    shown, code = run()
    _print_view(shown)
    return code
