"""What the pure core costs, beside deepagents' look at the healthy list."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain_core.messages import BaseMessage
from measuring import Row, exponent, history, in_turns, ratios, spent

from langgraph_patch import patch_messages, validate_messages

SIZES = (100, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
TURN = 5
"""The messages of a turn."""

DEEP = "deepagents"


def ways(messages: list[BaseMessage]) -> Mapping[str, Callable[[], float]]:
    """Each function on the healthy and on a damaged list, and deepagents on the healthy one."""
    # In every tenth turn the second result was lost.
    damaged = [m for place, m in enumerate(messages) if place % (10 * TURN) != 3]
    repeats = max(1, 8_000 // len(messages)) if len(messages) >= SIZES[0] else 1
    state: Any = {"messages": messages}
    work: dict[str, Callable[[], object]] = {
        DEEP: partial(PatchToolCallsMiddleware().before_agent, state, None)
    }
    for function in (patch_messages, validate_messages):
        work[f"{function.__name__}, healthy"] = partial(function, messages)
        work[f"{function.__name__}, damaged"] = partial(function, damaged)
    return {name: partial(spent, each, repeats) for name, each in work.items()}


def rows(*, quick: bool) -> Iterator[Row]:
    """The ratios at each size, and the exponents."""
    sizes, rounds = ((10, 50, 100), 1) if quick else (SIZES, 11)
    for blocks in (False, True):
        lists = {size: history(size // TURN, blocks=blocks) for size in sizes}
        times = {size: in_turns(ways(messages), rounds) for size, messages in lists.items()}
        content = "blocks" if blocks else "plain"
        for name in times[sizes[0]]:
            best = {size: min(times[size][name]) for size in sizes[1:]}
            slope = f"exponent of {name}, {content}"
            detail = f"time over messages, from {sizes[1]:,} on"
            most = None if name == DEEP else 1.1
            yield Row(slope, exponent(best), "{:.2f}", most=most, detail=detail)
            if name == DEEP:
                continue
            cost = min(times[sizes[-1]][name]) / sizes[-1] * 1e6
            yield Row(f"{name}, {content}: a message in microseconds", cost, "{:.2f}")
            found = {size: statistics.median(ratios(times[size], name, DEEP)) for size in sizes}
            yield Row(
                f"{name}, {content} / deepagents, the worst size",
                max(found.values()),
                # deepagents looks for results, and at nothing else of a message.
                most=(2.0 if blocks else 1.4) if name.endswith("healthy") else None,
                detail=", ".join(f"{size:,}: {each:.2f}" for size, each in found.items()),
            )
