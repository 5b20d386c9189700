"""Print each repair before it is written, and its outcome afterwards.

A process that is killed between the two has printed what it was about to write: as text, a line
without an outcome; as JSON, an object with the outcome `planned` and the id of the checkpoint.
"""

from __future__ import annotations

from langgraph_patch.cli.output import (
    print_json,
    print_lines,
    terminal_width,
    without_messages,
)
from langgraph_patch.cli.stopping import Stopping
from langgraph_patch.render.columns import Line, Piece
from langgraph_patch.render.terminal import diff, label_of, repair_head, repair_outcome, repair_row
from langgraph_patch.render.text import one_line
from langgraph_patch.threads.reports import ThreadRepair


class RepairOutput:
    """The lines of a repair command.

    Args:
        stopping: What stops the command if nobody reads its output.
        as_json: Whether to print JSON.
        with_diff: Whether to print what changes in the history.
    """

    def __init__(self, stopping: Stopping, *, as_json: bool, with_diff: bool) -> None:
        self._stopping = stopping
        self._as_json = as_json
        self._with_diff = with_diff
        self._width = terminal_width()
        self._has_head = False
        self._last: Line | None = None

    def announce(self, repair: ThreadRepair) -> None:
        """Print a repair that is about to be written."""
        self._stopping.print(lambda: self._announce(repair))

    def finish(self, repair: ThreadRepair) -> None:
        """Print the outcome of a repair, or why there was none."""
        self._stopping.print(lambda: self._finish(repair))

    def _announce(self, repair: ThreadRepair) -> None:
        values = repair.to_dict()
        if self._as_json:
            print_json(without_messages(values))
            return
        if not self._has_head:
            print_lines(repair_head(self._width))
            self._has_head = True
        if self._with_diff and values["patch"]:
            print_lines([[Piece(f"Thread {one_line(label_of(values))}", "bold")]])
            print_lines(diff(values["patch"]))
        lines = repair_row(values, self._width)
        print_lines(lines, end="")
        self._last = lines[-1]

    def _finish(self, repair: ThreadRepair) -> None:
        values = repair.to_dict()
        if self._as_json:
            print_json(without_messages(values))
            return
        if self._last is None:
            self._announce(repair)
        print_lines(repair_outcome(values, self._last or (), self._width))
        self._last = None
