"""The command line: `langgraph-patch scan | show | repair | undo | demo`.

This module has the arguments and the exit codes. What the commands do is in `commands`, which is
imported when one runs, because it imports LangGraph. The help of each command ends with this:

DB is one of:
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

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from io import TextIOWrapper
from typing import Any, NoReturn, cast

from langgraph_patch import __version__, view
from langgraph_patch.errors import PatchError, brief
from langgraph_patch.view import say

_EPILOG = "".join((__doc__ or "").partition("DB is one of:")[1:])
_BAD, _STOPPED, _CLOSED = 2, 130, 141  # the last two as a shell reports Ctrl-C and a closed pipe


# --- arguments ---------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say(f"{message} (see {self.prog} --help)")
        self.exit(_BAD)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="langgraph-patch",
        description="Find and repair LangGraph threads with a broken tool-call history.",
        epilog=_EPILOG,
        formatter_class=form,
    )
    parser.add_argument("--version", action="version", version=f"langgraph-patch {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, text, groups in (
        ("demo", "run the same agent without patching and with it; its model is scripted", ()),
        ("scan", "report on every thread; only reads, and runs none of your code (but --serde)",
         (_add_database, _add_key, _add_selection)),
        ("show", "show one conversation with its defects, and the patch beside it",
         (_add_database, _add_key, _add_show)),
        ("repair", "repair threads; a dry run without --apply",
         (_add_database, _add_key, _add_selection, _add_repair)),
        ("undo", "undo the last repair of threads, if nothing was written to them since",
         (_add_database, _add_undo)),
    ):  # fmt: skip
        command = commands.add_parser(
            name, help=text, description=text, epilog=_EPILOG, formatter_class=form
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        for add_arguments in groups:
            add_arguments(command.add_argument)
    return parser


def _add_database(add: Callable[..., Any]) -> None:
    add("database", metavar="DB", type=_location, help="where the threads are: see below")
    add("--json", action="store_true", help="print one JSON object a line")
    text = "your serializer, for encrypted rows: module.py:attribute or package.module:attribute"
    add("--serde", metavar="M:A", help=text)


def _add_key(add: Callable[..., Any]) -> None:
    text = "the state key of the history (default: messages)"
    add("--messages-key", default="messages", metavar="KEY", help=text)


def _add_selection(add: Callable[..., Any]) -> None:
    add("ids", nargs="*", metavar="THREAD", help="ids of threads")
    text = "only threads whose id matches, such as 'user-7*'; may be repeated"
    add("--thread", action="append", default=[], metavar="GLOB", help=text)
    text = "only histories written to in this time, such as 30min, 2h or 3d"
    add("--since", type=_duration, metavar="TIME", help=text)
    text = "only threads of a LangGraph Server with this status, such as error"
    add("--status", choices=("idle", "busy", "interrupted", "error"), help=text)
    text = "only threads of a LangGraph Server with this in their metadata; may be repeated"
    add("--metadata", type=_pair, action="append", default=[], metavar="KEY=VALUE", help=text)


def _add_show(add: Callable[..., Any]) -> None:
    add("ids", nargs=1, metavar="THREAD", help="the id of the thread")
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
    text = "skip threads written to in this time (default: 1min)"
    add("--min-age", type=_duration, default=timedelta(minutes=1), metavar="TIME", help=text)
    text = "repair younger threads too, and threads that another graph seems to have written"
    add("--force", action="store_true", help=text)
    text = "do not search older checkpoints for results"
    add("--no-recover", dest="recover", action="store_false", help=text)
    text = "a class of yours in stored states, as module:Class; may be repeated"
    add("--trust", action="append", default=[], metavar="M:C", help=text)


def _add_undo(add: Callable[..., Any]) -> None:
    add("ids", nargs="*", metavar="THREAD", help="ids of threads")
    add("--all", action="store_true", help="every thread whose newest checkpoint a repair wrote")


def _location(text: str) -> str:
    """The path or the URI of the database; it may hold a password."""
    location = os.environ.get(text[4:]) if text.startswith("env:") else text
    if location is None:
        raise argparse.ArgumentTypeError(f"the environment variable {text[4:]!r} is not set")
    # Said before LangGraph is imported. Whatever has one of these signs may be a URI.
    if not (set(":=") & set(location) or os.path.exists(location)):  # noqa: PTH110 - never raises
        raise argparse.ArgumentTypeError(f"{location!r}: there is no such file")
    return location


_DURATION = re.compile(r"(\d{1,5})(s|min|h|d)?")
_SECONDS = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> timedelta:
    if not (found := _DURATION.fullmatch(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 30min, 2h or 3d")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    return key, value


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, 1 or more")
    return int(text)


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
        >>> main(["scan", "/"])
        2
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a notebook has streams of its own
            cast("TextIOWrapper", stream).reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    if not view.HAS_RICH:
        say("the commands need rich: pip install 'langgraph-patch[cli]'")
        return _BAD
    try:
        from langgraph_patch import commands  # noqa: PLC0415 - imports LangGraph

        logger = logging.getLogger("langgraph")
        if not options.debug and not logger.handlers:
            # LangGraph logs each class that it does not load; the reports name them.
            logger.addHandler(logging.NullHandler())
        return int(getattr(commands, options.command)(options))
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED
    except KeyboardInterrupt:
        say("stopped by Ctrl-C.")
        return _STOPPED
    except Exception as error:  # any: a person reads one line; --debug raises it
        if options.debug:
            raise
        is_expected = isinstance(error, PatchError | OSError)
        say(str(error) if is_expected else f"{brief(error)} (see --debug).")
        return _BAD
