"""Stop a command between two threads: after Ctrl-C, or when nobody reads the output any more."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Self

from langgraph_patch.cli.arguments import CLOSED, STOPPED
from langgraph_patch.cli.output import discard_output, print_message, print_result
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport


class Stopping:
    """Finishes the current thread and then stops. A second Ctrl-C does not wait.

    Args:
        as_json: Whether results are printed as JSON.
        writes: Whether the command writes to the database.

    Attributes:
        exit_code: The exit code of a command that was stopped; None if it was not.
    """

    def __init__(self, *, as_json: bool, writes: bool) -> None:
        self.exit_code: int | None = None
        self._as_json = as_json
        self._writes = writes
        self._is_requested = False

    def __enter__(self) -> Self:
        try:
            self._former_handler: Any = signal.signal(signal.SIGINT, self._request)
        except ValueError:  # not in the main thread
            self._former_handler = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._former_handler is not None:
            signal.signal(signal.SIGINT, self._former_handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self._is_requested and callable(self._former_handler):
            self._former_handler(number, frame)
        self._is_requested = True

    def until_stopped(self, reports: Iterable[ThreadReport]) -> Iterator[ThreadReport]:
        """The reports up to the end of the thread during which a stop was requested."""
        current = previous = ""
        for report in reports:
            if report.thread_id != current:
                if self._is_requested and current:
                    self.exit_code = self.exit_code or STOPPED
                    break
                previous, current = current, report.thread_id
            yield report
        if self.exit_code is None:
            return
        is_closed = self.exit_code == CLOSED
        # A report that could not be printed has to be repeated; a repair is not repeated.
        last = previous if is_closed and not self._writes else current
        reason = "the output was closed: " if is_closed else ""
        place = f"after thread {last!r}: go on with --after" if last else "at the first thread"
        print_message(f"{reason}stopped {place}.")

    def print(self, result: ThreadReport | ThreadRepair) -> None:
        """Print a result. If nobody reads it, that is a request to stop."""
        try:
            print_result(result, as_json=self._as_json)
        except BrokenPipeError:
            discard_output(sys.stdout)
            self._is_requested, self.exit_code = True, CLOSED
