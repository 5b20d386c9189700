"""What the pure core costs, from 100 to 64,000 messages, beside deepagents' own repair.

Run it as `python tests/benchmarks/bench_core.py [rounds] [largest]`. In each round every
subject reads the same list, in turns which goes first; what is printed is the median of the
rounds' ratios, so that other processes make no difference. The exponent is the slope of the
least-squares line through log(messages), log(best time) from 1,000 messages on: 1 is linear.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_patch import patch_messages

SIZES = (100, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
TURN = 5
"""The messages of a turn: a question, two calls, two results, an answer."""

Subject = Callable[[list[BaseMessage]], object]


def turn(number: int, *, blocks: bool) -> list[BaseMessage]:
    """One turn of a healthy thread."""
    calls = [
        {"name": name, "args": {"query": f"q{number}"}, "id": f"call_{number}_{name}"}
        for name in ("search", "read_file")
    ]
    content: Any = "Let me see."
    if blocks:
        thought = {"type": "thinking", "thinking": "Which one?", "signature": "c2ln"}
        uses = [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}
            for call in calls
        ]
        content = [thought, {"type": "text", "text": "Let me see."}, *uses]
    return [
        HumanMessage(f"question {number}", id=f"h{number}"),
        AIMessage(content, tool_calls=calls, id=f"a{number}"),
        *(
            ToolMessage("found", tool_call_id=call["id"], name=call["name"], id=f"t{call['id']}")
            for call in calls
        ),
        AIMessage("That is it.", id=f"s{number}"),
    ]


def healthy(size: int, *, blocks: bool) -> list[BaseMessage]:
    """A valid thread of about that many messages."""
    return [m for number in range(size // TURN) for m in turn(number, blocks=blocks)]


def damaged(size: int, *, blocks: bool) -> list[BaseMessage]:
    """The same thread where in every tenth turn a result was lost."""
    return [
        message
        for place, message in enumerate(healthy(size, blocks=blocks))
        if place % (10 * TURN) != 3  # the second result of the turn
    ]


THREADS: Mapping[str, Callable[[int], list[BaseMessage]]] = {
    "healthy": lambda size: healthy(size, blocks=False),
    "healthy, blocks": lambda size: healthy(size, blocks=True),
    "damaged": lambda size: damaged(size, blocks=False),
    "damaged, blocks": lambda size: damaged(size, blocks=True),
}

_DEEP = PatchToolCallsMiddleware()
SUBJECTS: Mapping[str, Subject] = {
    "ours": patch_messages,
    "deepagents": lambda messages: _DEEP.before_agent({"messages": messages}, None),
}


def spent(subject: Subject, thread: list[BaseMessage], repeats: int) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    for _ in range(repeats):
        subject(thread)
    return (time.process_time() - start) / repeats


def measure(thread: list[BaseMessage], rounds: int) -> dict[str, list[float]]:
    """The times of each subject, round by round."""
    repeats = max(1, 8_000 // len(thread))
    times: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    for number in range(-1, rounds):  # the first warms up
        for name in sorted(SUBJECTS, reverse=bool(number % 2)):
            found = spent(SUBJECTS[name], thread, repeats)
            if number >= 0:
                times[name].append(found)
    return times


def ratio(times: Mapping[str, Sequence[float]]) -> float:
    """Ours over theirs: the median of the rounds."""
    pairs = zip(times["ours"], times["deepagents"], strict=True)
    return statistics.median(ours / theirs for ours, theirs in pairs)


def exponent(best: Mapping[int, float]) -> float:
    """The slope of log(time) over log(size)."""
    points = [(math.log(size), math.log(found)) for size, found in best.items()]
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope


def main() -> None:
    """Print a Markdown table: a line per size, a column per kind of thread."""
    rounds, largest = (int(v) for v in (*sys.argv[1:], *("15", "64000")[len(sys.argv) - 1 :]))
    sizes = [size for size in SIZES if size <= largest]
    best: dict[str, dict[str, dict[int, float]]] = {
        name: {subject: {} for subject in SUBJECTS} for name in THREADS
    }
    gc.disable()  # its pauses grow with whatever else is alive
    sys.stdout.write(f"patch_messages / deepagents on the same list, {rounds} rounds\n\n")
    sys.stdout.write(f"| messages | {' | '.join(THREADS)} |\n|---:{'|---:' * len(THREADS)}|\n")
    for size in sizes:
        cells = []
        for name, make in THREADS.items():
            times = measure(make(size), rounds)
            gc.collect()
            cells.append(f"x{ratio(times):.2f}")
            for subject, found in times.items():
                best[name][subject][size] = min(found)
        sys.stdout.write(f"| {size:,} | {' | '.join(cells)} |\n")
        sys.stdout.flush()
    if len(sizes) > 2:
        for subject in SUBJECTS:
            slopes = [
                exponent({size: t for size, t in best[name][subject].items() if size > SIZES[0]})
                for name in THREADS
            ]
            cells = [f"{slope:.2f}" for slope in slopes]
            sys.stdout.write(f"| exponent, {subject} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
