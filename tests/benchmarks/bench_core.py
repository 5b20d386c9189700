"""What the pure core costs, from 100 to 64,000 messages, beside deepagents' own repair.

deepagents reads the healthy list each time: its own time on a damaged one says how dear its
repair is, not how dear a look is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from measuring import Row, exponent, in_turns, ratios, spent

from langgraph_patch import patch_messages, validate_messages

SIZES = (100, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
QUICK_SIZES = (10, 50, 100)
TURN = 5
"""The messages of a turn: a question, two calls, two results, an answer."""

DEEP = "deepagents"


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


def damaged(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The same thread where in every tenth turn a result was lost."""
    # The second result of the turn.
    return [m for place, m in enumerate(messages) if place % (10 * TURN) != 3]


def ways(messages: list[BaseMessage]) -> Mapping[str, Callable[[], float]]:
    """Each function on the healthy and on the damaged list, and deepagents on the healthy one."""
    repeats = max(1, 8_000 // len(messages)) if len(messages) >= SIZES[0] else 1
    state: Any = {"messages": messages}
    work: dict[str, Callable[[], object]] = {
        DEEP: partial(PatchToolCallsMiddleware().before_agent, state, None)
    }
    for function in (patch_messages, validate_messages):
        work[f"{function.__name__}, healthy"] = partial(function, messages)
        work[f"{function.__name__}, damaged"] = partial(function, damaged(messages))
    return {name: partial(spent, each, repeats) for name, each in work.items()}


def rows(*, quick: bool) -> Iterator[Row]:
    """The ratios at each size, and the exponents."""
    sizes, rounds = (QUICK_SIZES, 1) if quick else (SIZES, 11)
    for blocks in (False, True):
        times = {size: in_turns(ways(healthy(size, blocks=blocks)), rounds) for size in sizes}
        content = "blocks" if blocks else "plain"
        for name in times[sizes[0]]:
            best = {size: min(times[size][name]) for size in sizes[1:]}
            slope = f"exponent of {name}, {content}"
            detail = f"time over messages, from {sizes[1]:,} on"
            yield Row(slope, exponent(best), "{:.2f}", most=1.05, detail=detail)
            if name == DEEP:
                continue
            found = {size: statistics.median(ratios(times[size], name, DEEP)) for size in sizes}
            yield Row(
                f"{name}, {content} / deepagents, the worst size",
                max(found.values()),
                most=(2.0 if blocks else 0.6) if name.endswith("healthy") else None,
                detail=", ".join(f"{size:,}: {each:.2f}" for size, each in found.items()),
            )
