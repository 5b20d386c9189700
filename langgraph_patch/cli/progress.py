"""A progress bar on the terminal of standard error: how many threads, how fast, how long still."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_INTERVAL = 0.2  # seconds between two drawings


class NoProgress:
    """Where there is no terminal, or no rich, there is no bar."""

    def advance(self, thread_id: str) -> None:
        """Note that a report on this thread was made."""

    def hide(self) -> None:
        """Take the bar away, so that something can be printed in its place."""


class Progress(NoProgress):
    """A bar that is drawn only between two outputs, so that it never mixes with them.

    Args:
        bar: The bar of rich.
    """

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task
        self._thread = ""
        self._drawn = 0.0
        self._is_shown = False

    def advance(self, thread_id: str) -> None:
        """Count a thread with its first report, and draw the bar if it is time."""
        if thread_id == self._thread:
            return
        if self._thread:
            self._bar.advance(self._task)
        self._thread = thread_id
        now = time.monotonic()
        if now - self._drawn < _INTERVAL:
            return
        self._drawn = now
        if not self._is_shown:
            self._bar.start()
            self._is_shown = True
        self._bar.refresh()

    def hide(self) -> None:
        """Take the bar away until the next thread."""
        if self._is_shown:
            self._bar.stop()
            self._is_shown = False


@contextmanager
def progress_bar(count: Callable[[], int | None]) -> Iterator[NoProgress]:
    """A bar that ends with the context.

    Args:
        count: Returns the number of threads; it is called only if there is a bar.
    """
    made = _rich_bar(count) if sys.stderr.isatty() else NoProgress()
    try:
        yield made
    finally:
        made.hide()


def _rich_bar(count: Callable[[], int | None]) -> NoProgress:
    try:
        from rich import progress  # noqa: PLC0415 - may not be installed
        from rich.console import Console  # noqa: PLC0415 - may not be installed
        from rich.text import Text  # noqa: PLC0415 - may not be installed
    except ModuleNotFoundError:
        return NoProgress()

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s")

    console = Console(stderr=True, markup=False)
    if console.is_dumb_terminal:
        return NoProgress()
    bar = progress.Progress(
        progress.TextColumn("threads"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        Rate(),
        progress.TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    return Progress(bar, bar.add_task("threads", total=count()))
