"""Parse the command-line arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias

from langgraph_patch.errors import ThreadError
from langgraph_patch.render.text import one_line
from langgraph_patch.threads.options import MIN_AGE, is_age
from langgraph_patch.threads.stores.base import Shard
from langgraph_patch.threads.stores.masking import masked

CLEAN, DAMAGED, BAD, REFUSED, STOPPED, CLOSED = 0, 1, 2, 3, 130, 141
"""The exit codes, as `_EPILOG` explains them."""

_EPILOG = """exit codes:
  0    nothing is damaged, or everything damaged was repaired
  1    damage was found (scan, show), would be repaired (repair without --apply), or remains
       under a pause (repair)
  2    the arguments or the input are wrong, or the database failed; repairs up to then are printed
  3    a thread could not be read, or its repair was refused; the other threads were processed
  130  stopped by Ctrl-C, between two threads; --after continues from there
  141  the output was closed by its reader; scan and repair print after which thread they stopped
"""

_HELP = {
    "demo": "run the same agent without patching and with it",
    "scan": "report on every thread; only reads, and runs none of your code",
    "show": "show one conversation with its defects, and the patch beside it",
    "repair": "repair threads through your graph; a dry run by default",
}

Command: TypeAlias = Callable[[argparse.Namespace], int]


def parse(arguments: Sequence[str] | None, **commands: Command) -> argparse.Namespace:
    """Parse the command-line arguments; exit with `BAD` if they are wrong.

    Args:
        arguments: The arguments after the name of the program; None for those of the process.
        **commands: The function that runs each command.
    """
    parser = _parser(commands)
    options, rest = parser.parse_known_args(arguments)
    # argparse does not accept threads that are named after an option; nothing after "--" is one.
    end = rest.index("--") if "--" in rest else len(rest)
    unknown = [argument for argument in rest[:end] if argument.startswith("-")]
    threads = getattr(options, "thread", None)
    if unknown or (rest and not isinstance(threads, list)):
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if isinstance(threads, list):
        threads += rest[:end] + rest[end + 1 :]
    return options


# --- the parser --------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(BAD, f"langgraph-patch: {one_line(masked(message))} (see {self.prog} --help)\n")


def _parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="langgraph-patch",
        description="Find and repair LangGraph threads with a broken tool-call history.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, function in commands.items():
        command = subparsers.add_parser(
            name,
            help=_HELP[name],
            description=_HELP[name],
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--debug", action="store_true", help="show tracebacks")
        command.set_defaults(run=function)
        for add_arguments in _ARGUMENTS[name]:
            add_arguments(command)
    return parser


def _add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", help="a SQLite file, or a postgresql:// URI")
    parser.add_argument("--messages-key", default="messages", help="the state key of the history")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object a line"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shard", type=_shard, metavar="I/N", help="only part I of N")
    parser.add_argument("--after", default="", metavar="THREAD", help="begin after this thread")


def _add_scan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--healthy", action="store_true", help="list healthy threads too")


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD")
    parser.add_argument("--namespace", default="", help="of a subgraph (default: the root graph)")
    parser.add_argument("--html", metavar="FILE", help="write an HTML page instead")


def _add_repair(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("thread", nargs="*", metavar="THREAD")
    add("--all", action="store_true", help="every damaged thread")
    add("--graph", required=True, metavar="M:G", help="module.py:graph or package.module:graph")
    add("--apply", action="store_true", help="write the repairs; without it, only print them")
    add("--on-pause", choices=("keep", "abandon"), default="keep",
        help="what to do with threads that wait for a human (default: keep)")  # fmt: skip
    add("--min-age", type=_seconds, default=MIN_AGE, metavar="S",
        help="skip threads written to in the last S seconds (default: 60)")  # fmt: skip
    add("--force", action="store_true", help="repair younger threads too")
    add("--no-recover", dest="recover", action="store_false",
        help="do not search older checkpoints for results")  # fmt: skip
    add("--trust", type=_class_name, action="append", default=[], metavar="M:C",
        help="a class of yours in stored states, as module:Class")  # fmt: skip


_ARGUMENTS: Mapping[str, Sequence[Callable[[argparse.ArgumentParser], None]]] = {
    "demo": (),
    "scan": (_add_database, _add_selection, _add_scan),
    "show": (_add_database, _add_show),
    "repair": (_add_database, _add_selection, _add_repair),
}


# --- the values of options ---------------------------------------------------------------


def _shard(text: str) -> Shard:
    index, _, count = text.partition("/")
    try:
        return Shard(int(index), int(count))
    except (ValueError, ThreadError):
        raise argparse.ArgumentTypeError(f"{text!r}: expected I/N with 1 <= I <= N") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not is_age(seconds):
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more")
    return seconds


def _class_name(text: str) -> tuple[str, str]:
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"{text!r}: expected module:Class")
    return module, name
