"""The command line: `langgraph-patch demo | scan | show | repair | undo`.

It adds to `langgraph_patch.threads` only arguments, output and exit codes. Data goes to standard
output, everything else to standard error, and nothing is written without `--apply`. A command is
imported when it runs, so that `--help` and a wrong argument are answered at once.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence

from langgraph_patch.cli.arguments import BAD, CLOSED, STOPPED, TERMINATED, parse
from langgraph_patch.cli.output import discard_output, prepare_streams, print_message
from langgraph_patch.errors import PatchError, brief


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the name of the program. Default: those of the process.

    Returns:
        The exit code.

    Raises:
        SystemExit: If the arguments are wrong, or ask for the help or the version.

    Examples:
        >>> from langgraph_patch.cli.main import main
        >>> main(["scan", "/no/such.db"])
        2
    """
    prepare_streams()
    try:
        try:
            return _run(parse(arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output(sys.stdout)
        return CLOSED


def _run(options: argparse.Namespace) -> int:
    logger = logging.getLogger("langgraph")
    if not options.debug and not logger.handlers:
        # LangGraph logs each class that it does not load; the reports name them.
        logger.addHandler(logging.NullHandler())
    try:
        command = importlib.import_module(f"langgraph_patch.cli.{options.command}")
        code: int = command.run(options)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt as stop:
        is_termination = stop.args == (TERMINATED,)
        print_message(f"stopped by {'SIGTERM' if is_termination else 'Ctrl-C'}.")
        return TERMINATED if is_termination else STOPPED
    except Exception as error:  # any: a person reads one line; --debug raises it
        if options.debug:
            raise
        is_expected = isinstance(error, PatchError | OSError)
        print_message(str(error) if is_expected else f"{brief(error)} (see --debug).")
        return BAD
    return code
