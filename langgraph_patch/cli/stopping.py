"""Stop a command between two threads: after Ctrl-C or SIGTERM, or when nobody reads its output.

However the loop over the threads ends early, the tally and the last thread are printed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Self

from langgraph_patch.cli.arguments import CLOSED, STOPPED, TERMINATED
from langgraph_patch.cli.output import discard_output, print_message
from langgraph_patch.threads.reports import ThreadReport

_CODES = {signal.SIGINT: STOPPED, signal.SIGTERM: TERMINATED}
_REASONS = {STOPPED: "stopped by Ctrl-C", TERMINATED: "stopped by SIGTERM"}
_REASONS[CLOSED] = "the output was closed: stopped"


class Stopping:
    """Finishes the current thread and then stops. A second signal does not wait.

    Args:
        tally: Returns what was done so far, as a text.
        writes: Whether the command writes to the database.

    Attributes:
        exit_code: The exit code of a command that was stopped; None if it was not.
    """

    def __init__(self, tally: Callable[[], str], *, writes: bool) -> None:
        self.exit_code: int | None = None
        self._tally = tally
        self._writes = writes
        self._requested: int | None = None
        self._current = self._finished = self._unprinted = ""
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _CODES:
            try:
                self._former[number] = signal.signal(number, self._request)
            except ValueError:  # not in the main thread
                break
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        if self.exit_code is not None or (kind is not None and self._current):
            self._say_where(_REASONS.get(self.exit_code or 0, "stopped"))

    def _request(self, number: int, _: FrameType | None) -> None:
        code = _CODES[signal.Signals(number)]
        if self._requested is not None:
            raise KeyboardInterrupt(code)
        self._requested = code

    def until_stopped(self, reports: Iterable[ThreadReport]) -> Iterator[ThreadReport]:
        """The reports up to the end of the thread during which a stop was requested."""
        for report in reports:
            if report.thread_id != self._current:
                self._finished = self._current
                if self._requested is not None and self._current:
                    self.exit_code = self._requested
                    return
                self._current = report.thread_id
            yield report
        self._finished = self._current
        if self._requested == CLOSED:
            self.exit_code = CLOSED

    def print(self, write: Callable[[], None]) -> None:
        """Print something. If nobody reads it, that is a request to stop."""
        try:
            write()
        except BrokenPipeError:
            discard_output(sys.stdout)
            if self._requested != CLOSED:
                # A report that could not be printed has to be repeated; a repair is not repeated.
                self._unprinted = self._finished
            self._requested = CLOSED

    def _say_where(self, reason: str) -> None:
        is_unread = self.exit_code == CLOSED and not self._writes
        last = self._unprinted if is_unread else self._finished
        where = f"after thread {last!r}" if last else "at the first thread"
        print_message(f"{reason} {where}. {self._tally()}")
