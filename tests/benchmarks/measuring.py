"""What all benchmarks share: times taken in turns, their ratios, and rows of one table."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Times = Mapping[str, Sequence[float]]
"""The CPU seconds of each way, round by round."""

TITLE = "| what is measured | figure | goal | | in detail |\n|---|---:|---:|---|---|\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        what: What is measured, and beside what.
        figure: The figure.
        form: How the figure is written.
        least: The smallest that is good enough, or None.
        most: The largest that is good enough, or None.
        detail: More figures.
    """

    what: str
    figure: float
    form: str = "x{:.2f}"
    least: float | None = None
    most: float | None = None
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is none."""
        if self.least is None and self.most is None:
            return None
        return (self.least or 0) <= self.figure <= (math.inf if self.most is None else self.most)

    def __str__(self) -> str:
        limits = {">=": self.least, "<=": self.most}
        goals = [f"{s} {self.form.format(one)}" for s, one in limits.items() if one is not None]
        verdict = {True: "met", False: "**missed**", None: ""}[self.met]
        cells = (self.what, self.form.format(self.figure), ", ".join(goals), verdict, self.detail)
        return f"| {' | '.join(cells)} |\n"


def spent(work: Callable[[], object], repeats: int = 1) -> float:
    """The CPU seconds of `work`, without the pauses of the garbage collector.

    Those grow with whatever else is alive.
    """
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        for _ in range(repeats):
            work()
        return (time.process_time() - start) / repeats
    finally:
        gc.enable()


def in_turns(ways: Mapping[str, Callable[[], float]], rounds: int) -> Times:
    """The times of all ways, one after the other in each round, in turns which goes first.

    What else the machine does meets all of them alike. The first of several rounds warms up.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1 if rounds > 1 else 0, rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            found = ways[name]()
            if number >= 0:
                times[name].append(found)
    return times


def ratios(times: Times, ours: str, theirs: str) -> list[float]:
    """Ours over theirs, round by round."""
    return [one / other for one, other in zip(times[ours], times[theirs], strict=True)]


def compared(what: str, times: Times, ours: str, theirs: str, **goal: Any) -> Row:
    """A row with the median of the ratios, and the lowest and the highest of them."""
    found = ratios(times, ours, theirs)
    detail = f"{min(found):.3f} to {max(found):.3f} in {len(found)} rounds"
    return Row(what, statistics.median(found), **{"detail": detail, **goal})


def exponent(best: Mapping[int, float]) -> float:
    """The slope of the least-squares line through log(size), log(time): 1 is linear."""
    points = [(math.log(size), math.log(found)) for size, found in best.items()]
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope
