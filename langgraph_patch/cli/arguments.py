"""Parse the command-line arguments. It imports nothing that is slow: `--help` answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from langgraph_patch import __version__

CLEAN, DAMAGED, BAD, REFUSED, STOPPED, CLOSED, TERMINATED = 0, 1, 2, 3, 130, 141, 143
"""The exit codes, as `_EPILOG` explains them."""

MESSAGES_KEY = "messages"
"""The default state key of the history."""

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
       under a pause (repair)
  2    the arguments or the input are wrong, or the database failed; what was done up to then is
       printed, with a tally
  3    a thread could not be read, or its repair or undo was refused; the others were processed
  130  stopped by Ctrl-C, between two threads
  141  the output was closed by its reader; scan and repair print after which thread they stopped
  143  stopped by SIGTERM, as by Ctrl-C
"""

_HELP = {
    "demo": "run the same agent without patching and with it; its model is scripted",
    "scan": "report on every thread; only reads, and runs none of your code (but --serde)",
    "show": "show one conversation with its defects, and the patch beside it",
    "repair": "repair threads; a dry run by default",
    "undo": "undo the last repair of threads, if nothing was written to them since",
}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command-line arguments; exit with `BAD` if they are wrong.

    Args:
        arguments: The arguments after the name of the program; None for those of the process.
    """
    options, rest = _parser().parse_known_args(arguments)
    # argparse does not accept threads that are named after an option; nothing after "--" is one.
    end = rest.index("--") if "--" in rest else len(rest)
    unknown = [argument for argument in rest[:end] if argument.startswith("-") and argument != "-"]
    names = getattr(options, "ids", None)
    if unknown or (rest and not isinstance(names, list)):
        _Parser(prog="langgraph-patch").error(
            f"unrecognized arguments: {' '.join(unknown or rest)}"
        )
    if isinstance(names, list):
        names += rest[:end] + rest[end + 1 :]
    return options


# --- the parser --------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        from langgraph_patch.cli.output import cleaned  # noqa: PLC0415 - only for an error

        self.exit(BAD, f"langgraph-patch: {cleaned(message)} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="langgraph-patch",
        description="Find and repair LangGraph threads with a broken tool-call history.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"langgraph-patch {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name, groups in _ARGUMENTS.items():
        command = commands.add_parser(
            name,
            help=_HELP[name],
            description=_HELP[name],
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        for add_arguments in groups:
            add_arguments(command)
    return parser


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", help="where the threads are: see below")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--serde",
        metavar="M:A",
        help="your serializer, for encrypted rows: module.py:attribute or package.module:attribute",
    )


def _add_messages_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--messages-key",
        default=MESSAGES_KEY,
        metavar="KEY",
        help=f"the state key of the history (default: {MESSAGES_KEY})",
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "ids",
        nargs="*",
        metavar="THREAD",
        help="ids of threads; - reads them from standard input, one a line or as JSON of scan",
    )
    add(
        "--thread",
        action="append",
        default=[],
        metavar="GLOB",
        help="only threads whose id matches, such as 'user-7*'; may be repeated",
    )
    add(
        "--since",
        type=_moment,
        metavar="TIME",
        help="only histories written to since: 30min, 2h, 3d or 2026-05-01T08:30 (UTC)",
    )


def _add_scan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--healthy", action="store_true", help="list healthy threads too")
    parser.add_argument(
        "--html",
        metavar="PATH",
        help="also write a report: one page if PATH ends with .html, else a folder of pages",
    )


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD")
    parser.add_argument("--namespace", default="", help="of a subgraph (default: the root graph)")
    parser.add_argument("--all", action="store_true", help="show unchanged messages too")
    parser.add_argument("--html", metavar="FILE", help="write an HTML page instead")


def _add_repair(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--all", action="store_true", help="every damaged thread")
    add(
        "--graph",
        metavar="M:G",
        help="module.py:graph or package.module:graph; needed where a repair says so",
    )
    add("--apply", action="store_true", help="write the repairs")
    add("--diff", action="store_true", help="print what changes in each history")
    add(
        "--on-pause",
        choices=("keep", "abandon"),
        default="keep",
        help="what to do with threads that wait for a human (default: keep)",
    )
    add(
        "--min-age",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="skip threads written to in the last S seconds (default: 60)",
    )
    add(
        "--force",
        action="store_true",
        help="repair younger threads too, and threads that another graph seems to have written",
    )
    add(
        "--no-recover",
        dest="recover",
        action="store_false",
        help="do not search older checkpoints for results",
    )
    add(
        "--trust",
        type=_class_name,
        action="append",
        default=[],
        metavar="M:C",
        help="a class of yours in stored states, as module:Class; may be repeated",
    )


def _add_undo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="THREAD",
        help="ids of threads; - reads them from standard input, one a line or as JSON of repair",
    )
    parser.add_argument("--all", action="store_true", help="every repaired thread; not on a server")


_ARGUMENTS: Mapping[str, Sequence[Callable[[argparse.ArgumentParser], None]]] = {
    "demo": (),
    "scan": (_add_database, _add_messages_key, _add_selection, _add_scan),
    "show": (_add_database, _add_messages_key, _add_show),
    "repair": (_add_database, _add_messages_key, _add_selection, _add_repair),
    "undo": (_add_database, _add_undo),
}


# --- the values of options ---------------------------------------------------------------


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more")
    return seconds


_UNITS = {"min": "minutes", "h": "hours", "d": "days"}


def _moment(text: str) -> datetime:
    """A time, or how long ago it was."""
    number = text.rstrip("adhimns ")
    unit = text[len(number) :].strip()
    try:
        if unit in _UNITS:
            return datetime.now(UTC) - timedelta(**{_UNITS[unit]: float(number)})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected 30min, 2h, 3d or a date such as 2026-05-01T08:30"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _class_name(text: str) -> tuple[str, str]:
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"{text!r}: expected module:Class")
    return module, name
