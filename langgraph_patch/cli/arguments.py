"""What may stand on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias

from langgraph_patch.errors import ThreadError
from langgraph_patch.render.text import one_line
from langgraph_patch.threads import MIN_AGE
from langgraph_patch.threads.options import is_age
from langgraph_patch.threads.stores.postgres import masked
from langgraph_patch.threads.stores.select import Shard

CLEAN, DAMAGED, BAD, REFUSED, STOPPED, CLOSED = 0, 1, 2, 3, 130, 141

_EPILOG = """exit codes:
  0    nothing is damaged, or everything damaged was repaired
  1    damage was found (scan, show), would be repaired (repair without --apply), or is left
       under a pause (repair)
  2    bad usage or input, or the database failed; what was repaired before is printed
  3    a thread could not be read, or its repair was refused; the other threads were dealt with
  130  stopped by Ctrl-C, between two threads; --after goes on from there
  141  the reader of the output went away; scan and repair say after which thread they stopped
"""

_HELP = {
    "demo": "the same run without patching and with it",
    "scan": "report every thread; only reads, and runs none of your code",
    "show": "one conversation, its defects marked, the patch beside it",
    "repair": "repair threads through your graph; a dry run by default",
}

Command: TypeAlias = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(BAD, f"langgraph-patch: {one_line(masked(message))} (see {self.prog} --help)\n")


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


def _trust(text: str) -> tuple[str, str]:
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise argparse.ArgumentTypeError(f"{text!r}: expected module:Class")
    return module, name


def parse(arguments: Sequence[str] | None, **commands: Command) -> argparse.Namespace:
    """What stands on the command line.

    Args:
        arguments: What stands behind the program's name; None for that of the process.
        **commands: The function that each command runs.
    """
    parser = _parser(commands)
    options, extra = parser.parse_known_args(arguments)
    # Threads that are named behind an option, argparse leaves over; behind "--" is no option.
    end = extra.index("--") if "--" in extra else len(extra)
    unknown = [each for each in extra[:end] if each.startswith("-")]
    threads = getattr(options, "thread", None)
    if unknown or (extra and not isinstance(threads, list)):
        parser.error(f"unrecognized arguments: {' '.join(unknown or extra)}")
    if isinstance(threads, list):
        threads += extra[:end] + extra[end + 1 :]
    return options


def _parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    made = _Parser(
        prog="langgraph-patch",
        description="Find and repair LangGraph threads whose tool-call history is broken.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = made.add_subparsers(metavar="COMMAND", required=True)

    found = {}
    for name, function in commands.items():
        found[name] = subparsers.add_parser(
            name,
            help=_HELP[name],
            description=_HELP[name],
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        found[name].add_argument("--debug", action="store_true", help="show tracebacks")
        found[name].set_defaults(run=function)
    scan, show, repair = found["scan"], found["show"], found["repair"]
    for each in (scan, show, repair):
        _add_reading(each)
    for each in (scan, repair):
        each.add_argument("--shard", type=_shard, metavar="I/N", help="only part I of N")
        each.add_argument("--after", default="", metavar="THREAD", help="begin after this thread")
    scan.add_argument("--healthy", action="store_true", help="list healthy threads too")
    show.add_argument("thread", metavar="THREAD")
    show.add_argument("--namespace", default="", help="of a subgraph (default: the root graph)")
    show.add_argument("--html", metavar="FILE", help="write it as a page instead")
    _add_repairing(repair)
    return made


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", help="a SQLite file, or a postgresql:// URI")
    parser.add_argument("--messages-key", default="messages", help="the state key of the history")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object a line"
    )


def _add_repairing(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("thread", nargs="*", metavar="THREAD")
    add("--all", action="store_true", help="every damaged thread")
    add("--graph", required=True, metavar="M:G", help="module.py:graph or package.module:graph")
    add("--apply", action="store_true", help="write; without it, only say what would be done")
    add("--on-pause", choices=("keep", "abandon"), default="keep",
        help="what to do with threads that wait for a human (default: keep)")  # fmt: skip
    add("--min-age", type=_seconds, default=MIN_AGE, metavar="S",
        help="skip threads written to in the last S seconds (default: 60)")  # fmt: skip
    add("--force", action="store_true", help="repair younger threads too")
    add("--no-recover", dest="recover", action="store_false",
        help="do not ask older checkpoints what had happened")  # fmt: skip
    add("--trust", type=_trust, action="append", default=[], metavar="M:C",
        help="a class of yours that stored states hold, as module:Class")  # fmt: skip
