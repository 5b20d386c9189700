"""The command line: `langgraph-patch scan | show | repair | undo | demo`.

This module has the arguments and the exit codes. What the commands do is in `commands`, which is
imported when one runs, because it imports LangGraph. The help of each command ends with this:

DB is one of:
  threads.sqlite            a SQLite file
  postgresql://host/name    a PostgreSQL database; what the URI leaves out comes from libpq's
                            environment, such as PGUSER, PGPASSWORD and PGSERVICE, from ~/.pgpass
                            or from a service file
  http://host:port          a LangGraph Server, for scan and show; keys and headers come from
                            LANGGRAPH_API_KEY and LANGGRAPH_HEADERS
  saver:module.py:function  any other checkpointer: what your function returns, a checkpointer or a
                            context manager of one; or package.module:function
  env:NAME                  the environment variable NAME holds one of these
Every user of this machine can see a password on the command line (ps): use one of the others.

exit codes:
  0    nothing is damaged, everything damaged was repaired, or no thread matches
  1    damage was found (scan, show), would be repaired or undone (without --apply), or remains
       under a pause, beyond --limit or unconfirmed (repair, undo)
  2    the arguments or the input are wrong, the database holds no checkpoint, or it failed; what
       was done up to then is printed, and a thread that may have been written before that is named
  3    a thread could not be read or is gone, or its repair or undo was not done: refused, moved on,
       or younger than --min-age; the others were processed. 3 takes precedence over 1
Ctrl-C ends a command with 130 when the thread at hand is done: each repair is written as a whole or
not at all, so that the same command goes on where it stopped. A second Ctrl-C does not wait.
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
from langgraph_patch._text import NOT_REPEATED, brief, may_hold_password, quoted, say
from langgraph_patch.errors import PatchError, is_interrupt

_EPILOG = "".join((__doc__ or "").partition("DB is one of:")[1:])
_BAD, _STOPPED, _CLOSED = 2, 130, 141  # the last two as a shell reports Ctrl-C and a closed pipe


# --- arguments ---------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if may_hold_password(message):
            message = f"{message.partition(': ')[0]}: one {NOT_REPEATED}"
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
        ("scan", "report on every thread; only reads; of your code runs --serde, --trust, saver:",
         (_add_database, _add_key, _add_selection, _add_filters)),
        ("show", "show conversations with their defects, and the patch beside each",
         (_add_database, _add_key, _add_selection, _add_filters, _add_show)),
        ("repair", "repair threads; a dry run without --apply",
         (_add_database, _add_key, _add_selection, _add_filters, _add_write, _add_repair)),
        ("undo", "undo last repairs, where nothing was written since; a dry run without --apply",
         (_add_database, _add_selection, _add_write)),
    ):  # fmt: skip
        command = commands.add_parser(
            name, help=text, description=text, epilog=_EPILOG, formatter_class=form
        )
        command.set_defaults(parser=command)
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        for add_arguments in groups:
            add_arguments(command.add_argument)
    return parser


def _add_database(add: Callable[..., Any]) -> None:
    add("database", metavar="DB", type=_database, help="where the threads are: see below")
    add("--json", action="store_true", help="print one JSON object a line")
    text = "print no summary, progress or next steps; errors and --json are printed whole"
    add("--quiet", action="store_true", help=text)
    text = "your serializer, for encrypted rows: module.py:attribute or package.module:attribute"
    add("--serde", metavar="M:A", help=text)
    text = "PostgreSQL: how long one statement may take (default: 1min)"
    add("--statement-timeout", type=_duration, metavar="TIME", help=text)


def _add_key(add: Callable[..., Any]) -> None:
    text = "the state key of the history (default: messages)"
    add("--messages-key", default="messages", metavar="KEY", help=text)
    text = "a class of yours in stored states, as module:Class; repeatable"
    add("--trust", action="append", default=[], metavar="M:C", help=text)


def _add_selection(add: Callable[..., Any]) -> None:
    add("ids", nargs="*", default=[], metavar="THREAD", help="ids; behind -- if one begins with -")
    text = "only threads whose id matches, such as 'user-7*'; - reads ids, one a line, from the "
    add("--thread", action="append", default=[], metavar="GLOB", help=f"{text}input; repeatable")
    text = "only histories that changed within this time, such as 30min, 2h or 3d"
    add("--since", type=_duration, metavar="TIME", help=text)
    text = "only the third of sixteen shares of the threads, for one of sixteen processes"
    add("--shard", type=_shard, metavar="3/16", help=text)
    text = "read at most so many histories a second"
    add("--rate", type=_positive, metavar="N", help=text)


def _add_filters(add: Callable[..., Any]) -> None:
    text = "only histories that a scan finds so; repeatable (default: all; of scan: no healthy)"
    add("--status", action="append", default=[], choices=view.STATUSES, help=text)


def _add_show(add: Callable[..., Any]) -> None:
    add("--all", action="store_true", help="show all of each message, and unchanged messages too")


def _add_write(add: Callable[..., Any]) -> None:
    add("--all", action="store_true", help="every thread that is damaged, or was repaired")
    add("--apply", action="store_true", help="write to the database")
    add("--yes", action="store_true", help="do not ask before that")


def _add_repair(add: Callable[..., Any]) -> None:
    add("--limit", type=_positive, metavar="N", help="stop after N repairs")
    add("--diff", action="store_true", help="show what changes in each history")
    text = "what to do with threads that wait for a human (default: keep)"
    add("--on-pause", choices=("keep", "abandon"), default="keep", help=text)
    text = "skip threads that changed within this time (default: 1min)"
    add("--min-age", type=_duration, default=timedelta(minutes=1), metavar="TIME", help=text)
    text = "do not search older checkpoints for results"
    add("--no-recover", dest="recover", action="store_false", help=text)


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command; ids of threads may follow an option, as `xargs` puts them.

    What stands behind `--` are ids, whatever they begin with.
    """
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    last = given.index("--", 2) if "--" in given[2:] else len(given)
    options, others = _parser().parse_known_args(given[:last])
    ids, takes_ids = [*others, *given[last + 1 :]], hasattr(options, "ids")
    unknown = [each for each in others if each.startswith("-")] if takes_ids else ids
    if unknown:
        hint = ". An id that begins with - stands at the end, behind --" if takes_ids else ""
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if takes_ids:
        options.ids += ids
        options.database, options.named = options.database
    options.typed = given
    return options


def _database(named: str) -> tuple[str, str]:
    """The path or the URI of a database, which may hold a password, and how it was named."""
    location = os.environ.get(named[4:]) if named.startswith("env:") else named
    if location is None:
        raise argparse.ArgumentTypeError(f"the environment variable {named[4:]!r} is not set")
    if not location:
        text = f"{quoted(named)} is empty: expected the name of a database"
        raise argparse.ArgumentTypeError(text)
    return location, named


_DURATION = re.compile(r"(\d{1,5})(s|min|h|d)?")
_SECONDS = {None: 1, "s": 1, "min": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> timedelta:
    if not (parts := _DURATION.fullmatch(text)):
        raise argparse.ArgumentTypeError(
            f"{quoted(text)}: expected a time such as 90s, 30min, 2h or 3d"
        )
    return timedelta(seconds=int(parts[1]) * _SECONDS[parts[2]])


def _shard(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"{quoted(text)}: expected the number of a share and of how many, such as 3/16"
        )
    return int(number), int(count)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{quoted(text)}: expected a number, 1 or more")
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
    options = _read(arguments)
    if not view.HAS_RICH:
        say("the commands need rich: pip install 'langgraph-patch[cli]'")
        return _BAD
    from langgraph_patch.cli import commands, output  # noqa: PLC0415 - imports LangGraph

    try:
        logger = logging.getLogger("langgraph")
        if not options.debug and not logger.handlers:
            # LangGraph logs each class that it does not load; the reports name them.
            logger.addHandler(logging.NullHandler())
        return int(getattr(commands, options.command)(options))
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED
    except (KeyboardInterrupt, Exception) as error:  # a person reads one line; --debug raises it
        if is_interrupt(error):
            say(f"stopped by Ctrl-C.{output.notes_of(error)}")
            return _STOPPED
        if options.debug:
            raise
        is_own = isinstance(error, PatchError)
        is_expected = is_own or (isinstance(error, OSError) and not may_hold_password(str(error)))
        text = str(error) if is_expected else f"{brief(error)} (see --debug)."
        say(f"{text}{output.notes_of(error)}")
        return _BAD
