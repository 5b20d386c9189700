"""Print each repair with its outcome."""

from __future__ import annotations

from langgraph_patch.cli.output import (
    print_json,
    print_lines,
    terminal_width,
    without_messages,
)
from langgraph_patch.cli.stopping import Stopping
from langgraph_patch.render.columns import Piece
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

    def print(self, repair: ThreadRepair) -> None:
        """Print what was done to a thread, or why nothing was done."""
        self._stopping.print(lambda: self._print(repair))

    def _print(self, repair: ThreadRepair) -> None:
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
        print_lines(repair_outcome(values, lines[-1], self._width))
