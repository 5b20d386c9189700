"""What all benchmarks share: times taken in turns, their ratios, and rows of one table."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

Times = Mapping[str, Sequence[float]]
"""The CPU seconds of each way, round by round."""

TITLE = "| what is measured | figure | goal | | in detail |\n|---|---:|---:|---|---|\n"


def history(turns: int, *, blocks: bool = False) -> list[BaseMessage]:
    """A valid history: in each turn a question, two calls, two results, an answer."""
    messages: list[BaseMessage] = []
    for n in range(turns):
        calls = [
            {"name": name, "args": {"query": f"q{n}"}, "id": f"call_{n}_{name}"}
            for name in ("search", "read_file")
        ]
        content: Any = "Let me see."
        if blocks:
            thought = {"type": "thinking", "thinking": "Which one?", "signature": "c2ln"}
            uses = [{"type": "tool_use", "input": c["args"], **c} for c in calls]
            content = [thought, {"type": "text", "text": "Let me see."}, *uses]
        messages += [
            HumanMessage(f"question {n}", id=f"h{n}"),
            AIMessage(content, tool_calls=calls, id=f"a{n}"),
            *(ToolMessage("found", tool_call_id=c["id"], name=c["name"]) for c in calls),
            AIMessage("That is it. " * 10, id=f"s{n}"),
        ]
    return messages


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `least` and `most` are its goal."""

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
    """The CPU seconds of `work`, without the pauses of the garbage collector."""
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
    """The times of all ways, in turns in each round; the first of several rounds warms up."""
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
