"""The command line: `langgraph-patch scan | show | repair | undo | demo`.

It adds to `langgraph_patch.threads` only arguments, output and exit codes. Data goes to standard
output, everything else to standard error, and nothing is written to a database without `--apply`.
A terminal gets tables, a pipe gets one line for each thread with tabs between the columns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch import __version__, threads, view
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import GraphError, OptionError, PatchError, ThreadError, brief
from langgraph_patch.history.json_values import json_value
from langgraph_patch.history.texts import CAUSES
from langgraph_patch.threads.keys import Key
from langgraph_patch.threads.opening import is_database_failure, open_database
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stored import config_of, history_of
from langgraph_patch.view import Line, counted, one_line

if view.HAS_RICH:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, SpinnerColumn, TextColumn

_T = TypeVar("_T")

CLEAN, DAMAGED, BAD, REFUSED = 0, 1, 2, 3
"""The exit codes, as `_EPILOG` explains them."""

_STOPPED, _CLOSED = 130, 141  # as a shell reports Ctrl-C and a closed pipe

_EPILOG = """DB is one of:
  threads.sqlite            a SQLite file
  postgresql://host/name    a PostgreSQL database; what the URI leaves out comes from libpq's
                            environment, such as PGUSER, PGPASSWORD and PGSERVICE, from ~/.pgpass
                            or from a service file
  http://host:port          a LangGraph Server; keys and headers come from LANGGRAPH_API_KEY and
                            LANGGRAPH_HEADERS
  env:NAME                  the environment variable NAME holds one of these
Every user of this machine can see a password on the command line (ps): use one of the others.

exit codes:
  0    nothing is damaged, or everything damaged was repaired
  1    damage was found (scan, show), would be repaired (repair without --apply), or remains
       under a pause, beyond --limit or unconfirmed (repair)
  2    the arguments or the input are wrong, or the database failed; what was done up to then is
       printed
  3    a thread could not be read, or its repair or undo was refused; the others were processed
Ctrl-C ends a command with 130: each repair is written as a whole or not at all, so that the same
command goes on where it stopped.
"""

# --- arguments ---------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _say(f"{message} (see {self.prog} --help)")
        self.exit(BAD)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="langgraph-patch",
        description="Find and repair LangGraph threads with a broken tool-call history.",
        epilog=_EPILOG,
        formatter_class=form,
    )
    parser.add_argument("--version", action="version", version=f"langgraph-patch {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for run, text, groups in (
        (_demo, "run the same agent without patching and with it; its model is scripted", ()),
        (_scan, "report on every thread; only reads, and runs none of your code (but --serde)",
         (_add_database, _add_key, _add_selection)),
        (_show, "show one conversation with its defects, and the patch beside it",
         (_add_database, _add_key, _add_show)),
        (_repair, "repair threads; a dry run without --apply",
         (_add_database, _add_key, _add_selection, _add_repair)),
        (_undo, "undo the last repair of threads, if nothing was written to them since",
         (_add_database, _add_undo)),
    ):  # fmt: skip
        name = run.__name__.strip("_")
        command = commands.add_parser(
            name, help=text, description=text, epilog=_EPILOG, formatter_class=form
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        for add_arguments in groups:
            add_arguments(command.add_argument)
        command.set_defaults(run=run)
    return parser


def _add_database(add: Callable[..., Any]) -> None:
    add("database", metavar="DB", help="where the threads are: see below")
    add("--json", action="store_true", help="print one JSON object a line")
    module = "module.py:attribute or package.module:attribute"
    add("--serde", metavar="M:A", help=f"your serializer, for encrypted rows: {module}")


def _add_key(add: Callable[..., Any]) -> None:
    text = "the state key of the history (default: messages)"
    add("--messages-key", default="messages", metavar="KEY", help=text)


def _add_selection(add: Callable[..., Any]) -> None:
    text = "ids of threads; - reads them from standard input, one a line"
    add("ids", nargs="*", metavar="THREAD", help=text)
    text = "only threads whose id matches, such as 'user-7*'; may be repeated"
    add("--thread", action="append", default=[], metavar="GLOB", help=text)
    text = "only histories written to since: 30min, 2h, 3d or 2026-05-01T08:30 (UTC)"
    add("--since", type=_moment, metavar="TIME", help=text)
    text = "only threads of a LangGraph Server with this status, such as error"
    add("--status", choices=_STATUSES, help=text)
    text = "only threads of a LangGraph Server with this in their metadata; may be repeated"
    add("--metadata", type=_pair, action="append", default=[], metavar="KEY=VALUE", help=text)


def _add_show(add: Callable[..., Any]) -> None:
    add("ids", nargs=1, metavar="THREAD")
    add("--namespace", default="", help="of a subgraph (default: the root graph)")
    add("--all", action="store_true", help="show all of each message, and unchanged messages too")
    add("--html", metavar="FILE", help="write an HTML page instead")


def _add_repair(add: Callable[..., Any]) -> None:
    add("--all", action="store_true", help="every damaged thread")
    text = "module.py:graph or package.module:graph; needed where a repair says so"
    add("--graph", metavar="M:G", help=text)
    add("--apply", action="store_true", help="write the repairs")
    add("--yes", action="store_true", help="do not ask before repairs are written")
    add("--limit", type=_positive, metavar="N", help="stop after N repairs")
    add("--diff", action="store_true", help="show what changes in each history")
    text = "what to do with threads that wait for a human (default: keep)"
    add("--on-pause", choices=("keep", "abandon"), default="keep", help=text)
    text = "skip threads written to in the last S seconds (default: 60)"
    add("--min-age", type=_seconds, default=60.0, metavar="S", help=text)
    text = "repair younger threads too, and threads that another graph seems to have written"
    add("--force", action="store_true", help=text)
    text = "do not search older checkpoints for results"
    add("--no-recover", dest="recover", action="store_false", help=text)
    text = "a class of yours in stored states, as module:Class; may be repeated"
    add("--trust", action="append", default=[], metavar="M:C", help=text)


def _add_undo(add: Callable[..., Any]) -> None:
    text = "ids of threads; - reads them from standard input, one a line"
    add("ids", nargs="*", metavar="THREAD", help=text)
    add("--all", action="store_true", help="every thread whose newest checkpoint a repair wrote")


def _seconds(text: str) -> float:
    if not 0 <= float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more")
    return float(text)


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    return key, value


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, 1 or more")
    return int(text)


_STATUSES = ("idle", "busy", "interrupted", "error")
_DURATION = re.compile(r"([\d.]+)(min|h|d)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}


def _moment(text: str) -> datetime:
    """A time, or how long ago it was."""
    try:
        if found := _DURATION.fullmatch(text):
            return datetime.now(UTC) - timedelta(**{_UNITS[found[2]]: float(found[1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        expected = "expected 30min, 2h, 3d or a date such as 2026-05-01T08:30"
        raise argparse.ArgumentTypeError(f"{text!r}: {expected}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- output ------------------------------------------------------------------------------


def _prepare_streams() -> None:
    """Let no output fail: what cannot be encoded is escaped, and a closed stream keeps nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _say(text: str) -> None:
    """Print one line to standard error, without passwords."""
    _write_error(f"langgraph-patch: {one_line(masked(text))}")


def _write_error(line: str) -> None:
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


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


def _print_lines(heads: Sequence[str], lines: Sequence[Line]) -> None:
    """Print the table of a scan or a repair, damaged threads first."""
    lines = sorted(lines, key=lambda line: (line[0] == "paused", line[0] == "unreadable"))
    if sys.stdout.isatty():
        _print_view(view.lines_table(heads, lines, _width()))
    else:
        _print(view.tab_separated(heads, lines))


_SECONDS = 30.0  # between two lines that say how far a command is


def _with_progress(items: Iterable[_T], what: str, *, has_bar: bool) -> Iterator[_T]:
    """The same items. A terminal shows how many were read; other outputs get a line at times."""
    due, count = time.monotonic() + _SECONDS, 0
    columns = (SpinnerColumn(), TextColumn(f"{{task.completed:,}} {what}"))
    console = Console(stderr=True)
    bar = Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not has_bar or not console.is_terminal or console.is_dumb_terminal,
    )
    with bar:
        task = bar.add_task("", total=None)
        for item in items:
            yield item
            count += 1
            bar.advance(task)
            if bar.disable and time.monotonic() > due:
                _say(f"{count:,} {what} so far")
                due += _SECONDS


# --- the database ------------------------------------------------------------------------


_SECRETS = (
    re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|\S+)", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://).*@[^\s'\"]*", re.IGNORECASE | re.DOTALL),
    re.compile(r"(postgres[a-z0-9+.-]*://)[^\s'\"]+", re.IGNORECASE),
)


def masked(text: str) -> str:
    """`text` without the passwords of URIs and of libpq's `password=...`.

    Examples:
        >>> from langgraph_patch.cli import masked
        >>> masked("not postgresql://bob:s3cr3t@db/x and not host=db password='s 3' user=bob")
        'not postgresql://*** and not host=db password=*** user=bob'
    """
    for secret in _SECRETS:
        text = secret.sub(r"\1***", text)
    return text


def _location(options: argparse.Namespace) -> str:
    """The path or the URI of the database; it may hold a password."""
    text: str = options.database
    if not text.startswith("env:"):
        return text
    if not os.environ.get(text[4:]):
        raise OptionError(f"{text}: the environment variable {text[4:]!r} is not set.")
    return os.environ[text[4:]]


def database_name(location: str) -> str:
    """A path or a URI without user, password and parameters.

    Examples:
        >>> from langgraph_patch.cli import database_name
        >>> database_name("postgresql://bob:s3cret@db.example/app?sslmode=require")
        'postgresql://db.example/app'
    """
    if "://" not in location:
        return location
    parts = urlsplit(location)
    host = parts.netloc.rpartition("@")[2]
    is_plain = re.fullmatch(r"[^:]*|[^:]*:\d*|\[.*\](:\d*)?", host)
    if "@" in f"{parts.path}{parts.query}{parts.fragment}" or not is_plain:
        return masked(location)  # it may not have been read as it was meant
    return f"{parts.scheme}://{host}{parts.path}"


def _open(
    options: argparse.Namespace, *, write: bool = False
) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    trust = getattr(options, "trust", ())
    for each in trust:
        _load("--trust", each)
    serde = _load("--serde", options.serde) if options.serde else None
    if serde is not None and (
        isinstance(serde, type) or not isinstance(serde, SerializerProtocol) or trust
    ):
        raise OptionError(
            f"--serde {options.serde!r} is a {type(serde).__name__}: expected a serializer, such "
            f"as an EncryptedSerializer, not the function that makes it, and no --trust beside it."
        )
    names = [(module, name) for module, _, name in (each.partition(":") for each in trust)]
    return open_database(_location(options), write=write, trust=names, serde=serde)


def _load(option: str, target: str) -> Any:
    """What an option names as `module.py:name` or `package.module:name`; this runs its code."""
    source, _, name = target.rpartition(":")
    if not (source and name):
        raise OptionError(
            f"{option} {target!r}: expected module.py:attribute or package.module:attribute."
        )
    path, is_file = Path(source).resolve(), source.endswith(".py")
    # The module may import its neighbours, as it may when Python runs it.
    sys.path.insert(0, str(path.parent if is_file else Path.cwd()))
    try:
        module = importlib.import_module(path.stem if is_file else source)
        found = attrgetter(name)(module)
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise GraphError(f"{option} {target!r}: cannot be loaded ({brief(error)}).") from error
    if is_file and Path(module.__file__ or "").resolve() != path:
        raise GraphError(f"{source!r}: another module is called {path.stem!r}: rename the file.")
    return found


def _is_server(options: argparse.Namespace) -> bool:
    return _location(options).startswith(("http://", "https://"))


def _graph(options: argparse.Namespace) -> Any:
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


# --- which threads -----------------------------------------------------------------------


def _reports(
    saver: BaseCheckpointSaver[Any], options: argparse.Namespace
) -> Iterator[ThreadReport]:
    """The reports on the selected threads."""
    globs: Sequence[str] = options.thread
    return threads.scan_threads(
        _filtered(saver, options),
        messages_key=options.messages_key,
        thread_ids=_ids(options),
        include=(lambda name: any(fnmatchcase(name, glob) for glob in globs)) if globs else None,
        since=options.since,
    )


def _filtered(
    saver: BaseCheckpointSaver[Any], options: argparse.Namespace
) -> BaseCheckpointSaver[Any]:
    """The checkpointer; a server lists only the threads that --status and --metadata choose."""
    if not (options.status or options.metadata):
        return saver
    if not isinstance(saver, threads.LangGraphServer):
        raise OptionError("--status and --metadata are for the threads of a LangGraph Server only.")
    return threads.LangGraphServer(
        saver.client, status=options.status, metadata=dict(options.metadata)
    )


def _ids(options: argparse.Namespace) -> Sequence[str] | None:
    """The ids that were typed, or read from standard input for `-`; None if there are none."""
    ids: list[str] = [each for each in options.ids if each != "-"]
    if "-" in options.ids:
        ids += filter(None, _standard_input())
        if not ids:
            raise OptionError("standard input holds no id of a thread: expected one a line.")
    return ids or None


def _standard_input() -> list[str]:
    """The lines of standard input: none if it is closed, and bytes that are no text are escaped."""
    stream: Any = sys.stdin
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="surrogateescape")
    return stream.read().splitlines() if stream else []


# --- what was found ----------------------------------------------------------------------


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
        found["damaged pauses"] += bool(report.defects)
        found["oldest pause"] = max(found["oldest pause"], int(report.age or 0))


def summary(found: Counter[str]) -> str:
    """What a scan found: "60 of 200 threads are dead: 41 with recoverable results, ..."."""
    dead = found["damaged"] - found[_REPLACEABLE]
    noun = "histories" if found["of subgraphs"] else "thread" if found["all"] == 1 else "threads"
    kinds = ", ".join(f"{found[kind]:,} {kind}" for kind in _DAMAGE if found[kind])
    parts = [f"{dead or 'none'} of {found['all']:,} {noun} {'are' if dead > 1 else 'is'} dead"]
    parts[0] += f": {kinds}" if kinds else ""
    if pauses := found["paused"]:
        age = view.age_in_words(found["oldest pause"])
        parts.append(f"{pauses:,} wait{'s' * (pauses == 1)} for a human, the oldest for {age}")
    others = ("damaged pauses", _REPLACEABLE, "unreadable")
    parts += [f"{found[kind]:,} {kind}" for kind in others if found[kind]]
    return "; ".join(parts) + "."


_REPLACEABLE = "with a placeholder that can be replaced"
_DAMAGE = ("with recoverable results", *CAUSES, "with orphaned results", "in a wrong form")


def _damage(report: ThreadReport) -> str:
    """The kind of damage of a history: one of `_DAMAGE`, or that a model accepts it as it is."""
    changes = report.patch.changes if report.patch else ()
    causes = [change.cause for change in changes if change.cause]
    defects = {change.defect for change in report.defects} - {"superseded"}
    if not defects:
        return _REPLACEABLE
    if any(change.kind == "recovered" for change in changes):
        return _DAMAGE[0]
    if causes:
        return "unknown" if "unknown" in causes else causes[0]
    return "with orphaned results" if "orphan" in defects else "in a wrong form"


_NEXT = {
    "damaged": "`show DB THREAD` shows one, `repair DB --all` plans the repairs; or deploy "
    "with_patching(graph): the next message of a thread repairs it",
    "paused": "answer it, or repair it with --on-pause abandon",
    "unreadable": "its line says why",
    "planned": "add --apply to write",
    "young": "wait, or lower --min-age",
    "busy": "repair it again when its run has ended",
    "moved": "repair it again",
    "refused": "its line says why; or deploy with_patching(graph)",
}
"""The next step for each status and each outcome that leaves something to do."""


def _say_next(found: Mapping[str, int]) -> None:
    for state, step in _NEXT.items():
        if found.get(state):
            _say(f"next for {state}: {step}.")


def _has_history(found: Counter[str], options: argparse.Namespace) -> bool:
    """Whether a history was found; if not, why is printed."""
    if not found["all"]:
        _say("no thread is stored or selected: nothing was looked at.")
    elif not found["with the key"]:
        _say(f"none has a state key {options.messages_key!r}: name it with --messages-key.")
    return bool(found["with the key"])


# --- scan and show -----------------------------------------------------------------------


def _scan(options: argparse.Namespace) -> int:
    found, lines = Counter[str](), list[Line]()
    has_bar = not (options.json and sys.stdout.isatty())
    with _open(options) as saver:
        try:
            for report in _with_progress(_reports(saver, options), "read", has_bar=has_bar):
                count_report(found, report)
                if report.status == "healthy":
                    continue
                values = report.to_dict()
                if options.json:
                    _print_json(values)
                else:
                    lines.append(view.report_line(values))
        finally:
            if found["with the key"]:
                _say(summary(found))
            if found["with the key"] and lines:
                _print_lines(view.REPORT_HEADS, lines)
    if not _has_history(found, options):
        return BAD
    _say_next(found)
    if found["unreadable"]:
        return REFUSED
    return DAMAGED if found["damaged"] or found["damaged pauses"] else CLEAN


def _show(options: argparse.Namespace) -> int:
    with _open(options) as saver:
        reports = threads.scan_threads(
            saver, messages_key=options.messages_key, thread_ids=options.ids
        )
        report = next((each for each in reports if each.namespace == options.namespace), None)
        if report is None:
            raise ThreadError(f"Thread {options.ids[0]!r} has no namespace {options.namespace!r}.")
        is_readable = report.status != "unreadable"
        if is_readable and report.messages is None:
            _say(f"it has no state key {options.messages_key!r}: name it with --messages-key.")
            return BAD
        history = _history(saver, report, options) if is_readable and not report.patch else []
    values = report.to_dict()
    shown = view.report_view(values, history, whole=options.all)
    if options.html is not None:
        when = f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC} by langgraph-patch {__version__}"
        footer = f"Database {database_name(_location(options))}, read on {when}"
        _write_page(options.html, view.page(f"Thread {report.thread_id}", shown, footer))
    if options.json:
        _print_json(values, whole=is_readable)
    elif options.html is None:
        _print_view(shown)
        _say_next({report.status: 1})
    if not is_readable:
        return REFUSED
    return DAMAGED if report.defects else CLEAN


def _history(
    saver: BaseCheckpointSaver[Any], report: ThreadReport, options: argparse.Namespace
) -> list[Any]:
    """The messages that a report is about, as JSON values."""
    saved = saver.get_tuple(config_of(Key(report.thread_id, report.namespace)))
    if saved is None:
        raise ThreadError(f"Thread {report.thread_id!r} has been deleted meanwhile.")
    messages = run_sync(history_of(saver, saved, options.messages_key))
    return [json_value(message) for message in messages or ()]


def _write_page(name: str, text: str) -> None:
    """Write a page in the place of nothing or of another page, as a whole or not at all."""
    path = Path(name)
    try:
        if path.is_symlink() or (path.exists() and not _is_page(path)):
            raise OptionError(
                f"--html {name!r} is not written: what is there is no page of langgraph-patch. "
                f"Choose another name, or delete it first."
            )
        file = NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False)  # noqa: SIM115 - renamed below
        try:
            with file:
                file.write(text)
            Path(file.name).replace(path)
        finally:
            Path(file.name).unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a null character
        if isinstance(error, OptionError):
            raise
        raise OptionError(f"--html {name!r} cannot be written: {error}.") from error
    _say(f"wrote {name!r}.")


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(view.MARK)) == view.MARK.encode()


# --- repair ------------------------------------------------------------------------------


def _repair(options: argparse.Namespace) -> int:
    if bool(options.ids or options.thread or options.since) == options.all:
        raise OptionError("name the threads to repair, select them with --thread, or use --all.")
    graph, found, todo = _graph(options), Counter[str](), list[ThreadReport]()
    with _open(options, write=options.apply) as saver:
        for report in _with_progress(_reports(saver, options), "read", has_bar=True):
            count_report(found, report)
            if report.status != "healthy":
                todo.append(replace(report, patch=None))
        if not _has_history(found, options):
            return BAD
        if options.apply and todo and not _is_confirmed(options, todo):
            _say("nothing was written.")
            return DAMAGED
        return _repair_all(saver, graph, todo, options, healthy=found["healthy"])


def _is_confirmed(options: argparse.Namespace, todo: Sequence[ThreadReport]) -> bool:
    """Whether the user wants to write these repairs; with the name of the database."""
    changed = ("damaged", "paused") if options.on_pause == "abandon" else ("damaged",)
    count = sum(report.status in changed for report in todo)
    if options.yes or not count:
        return True
    repairs = counted(min(count, options.limit or count), "repair*")
    question = f"write {repairs} to {database_name(_location(options))}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise OptionError(f"nobody can be asked whether to {question}: add --yes.")
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _repair_all(
    saver: BaseCheckpointSaver[Any],
    graph: Any,
    todo: Sequence[ThreadReport],
    options: argparse.Namespace,
    *,
    healthy: int,
) -> int:
    """Repair the histories one after the other, and print what was done, however it ends."""
    outcomes, damaged_pauses, lines = Counter({"healthy": healthy}), 0, list[Line]()
    has_bar = not ((options.json or options.diff) and sys.stdout.isatty())
    try:
        for report in _with_progress(todo, "done", has_bar=has_bar):
            if options.limit and outcomes["repaired"] + outcomes["planned"] == options.limit:
                outcomes["beyond --limit"] += 1
                continue
            repair = _repair_one(saver, graph, report, options)
            outcomes[repair.outcome] += 1
            damaged_pauses += repair.outcome == "paused" and bool(report.defects)
            values = repair.to_dict()
            if repair.outcome == "healthy":
                continue
            if options.json:
                _print_json(values)
                continue
            if options.diff and repair.patch:
                _print_view(view.report_view(values))
            lines.append(view.repair_line(values))
    finally:
        if lines:
            _print_lines(view.REPAIR_HEADS, lines)
        done = ", ".join(f"{count:,} {each}" for each, count in sorted(outcomes.items()) if count)
        _say(f"{done}{'' if options.apply else ' (nothing was written)'}.")
    _say_next(outcomes)
    if any(outcomes[outcome] for outcome in ("refused", "young", "moved", "busy")):
        return REFUSED
    is_damaged = outcomes["planned"] or outcomes["beyond --limit"] or damaged_pauses
    return DAMAGED if is_damaged else CLEAN


def _repair_one(
    saver: BaseCheckpointSaver[Any], graph: Any, report: ThreadReport, options: argparse.Namespace
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
            min_age=options.min_age,
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


def _undo(options: argparse.Namespace) -> int:
    if bool(options.ids) == options.all:
        raise OptionError("name the threads whose repair is to be undone, or use --all.")
    if options.all and _is_server(options):
        raise OptionError("name the threads: LangGraph Server cannot list those with a repair.")
    outcomes, lines = Counter[str](), list[Line]()
    with _open(options, write=True) as saver:
        keys = _keys_to_undo(saver, _ids(options))
        try:
            for key in keys:
                values = _undo_one(saver, key)
                outcomes[values["outcome"]] += 1
                if options.json:
                    _print_json(values)
                else:
                    lines.append(view.repair_line(values))
        finally:
            if lines:
                _print_lines(view.REPAIR_HEADS, lines)
            done = ", ".join(f"{count:,} {each}" for each, count in sorted(outcomes.items()))
            _say(f"{done or 'no thread has a repair to undo'}.")
    return REFUSED if outcomes["refused"] else CLEAN


def _keys_to_undo(saver: BaseCheckpointSaver[Any], ids: Sequence[str] | None) -> list[Key]:
    """The histories that a repair wrote last, and the root of every other named thread."""
    marked = [
        Key(report.thread_id, report.namespace)
        for report in threads.scan_threads(saver, thread_ids=ids)
        if report.repaired
    ]
    found = {key.thread_id for key in marked}
    return [*marked, *(Key(each, "") for each in dict.fromkeys(ids or ()) if each not in found)]


def _undo_one(saver: BaseCheckpointSaver[Any], key: Key) -> dict[str, Any]:
    """Undo one repair; what is printed of it."""
    before = reason = None
    try:
        before = threads.undo_repair(saver, config_of(key))
    except ThreadError as error:
        if is_database_failure(error):
            raise
        reason = str(error)
    outcome = "refused" if reason else "undone"
    reason = reason or f"back to checkpoint {before}"
    return {**key._asdict(), "outcome": outcome, "reason": reason, "before": before}


def _demo(_: argparse.Namespace) -> int:
    from langgraph_patch.demo import run  # noqa: PLC0415 - imports agents

    lines, code = run()
    _print_view(lines)
    return code


# --- the program -------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the name of the program. Default: those of the process.

    Returns:
        The exit code.

    Raises:
        SystemExit: If the arguments are wrong, or ask for the help or the version.

    Examples:
        >>> from langgraph_patch.cli import main
        >>> main(["scan", "/no/such.db"])
        2
    """
    _prepare_streams()
    logger = logging.getLogger("langgraph")
    options = _parser().parse_args(arguments)
    if not options.debug and not logger.handlers:
        # LangGraph logs each class that it does not load; the reports name them.
        logger.addHandler(logging.NullHandler())
    if not view.HAS_RICH:
        _say("the commands need rich: pip install 'langgraph-patch[cli]'")
        return BAD
    try:
        code: int = options.run(options)
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED
    except KeyboardInterrupt:
        _say("stopped by Ctrl-C.")
        return _STOPPED
    except Exception as error:  # any: a person reads one line; --debug raises it
        if options.debug:
            raise
        is_expected = isinstance(error, PatchError | OSError)
        _say(str(error) if is_expected else f"{brief(error)} (see --debug).")
        return BAD
    return code
