"""What the pure core costs, from 100 to 64,000 messages, beside deepagents' own repair.

deepagents reads the healthy list each time: its own time on a damaged one says how dear its
repair is, not how dear a look is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from measuring import Row, exponent, in_turns, ratio, spent

from langgraph_patch import patch_messages, validate_messages

SIZES = (100, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
QUICK_SIZES = (10, 50, 100)
TURN = 5
"""The messages of a turn: a question, two calls, two results, an answer."""

DEEP = "deepagents"
WALK = "a bare walk"
"""A loop that reads one field of each message: what the memory alone costs."""


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


def walk(messages: list[BaseMessage]) -> None:
    """Read one field of each message."""
    for message in messages:
        message.__dict__["content"]


def ways(messages: list[BaseMessage]) -> Mapping[str, Callable[[], float]]:
    """Each function on the healthy and on the damaged list, and deepagents on the healthy one."""
    repeats = max(1, 8_000 // len(messages)) if len(messages) >= SIZES[0] else 1
    broken = damaged(messages)
    state: Any = {"messages": messages}
    deep = PatchToolCallsMiddleware()
    work: dict[str, Callable[[], object]] = {
        DEEP: lambda: deep.before_agent(state, None),
        WALK: lambda: walk(messages),
    }
    for function in (patch_messages, validate_messages):
        work[f"{function.__name__}, healthy"] = partial(function, messages)
        work[f"{function.__name__}, damaged"] = partial(function, broken)
    return {name: partial(spent, each, repeats) for name, each in work.items()}


def rows(*, quick: bool) -> Iterator[Row]:
    """The ratios at each size, and the exponents."""
    sizes, rounds = (QUICK_SIZES, 1) if quick else (SIZES, 11)
    for blocks in (False, True):
        times = {size: in_turns(ways(healthy(size, blocks=blocks)), rounds) for size in sizes}
        content = "blocks" if blocks else "plain"
        for name in times[sizes[0]]:
            if name in (DEEP, WALK):
                continue
            ratios = {size: ratio(times[size], name, DEEP) for size in sizes}
            goal = (2.0 if blocks else 0.6) if name.endswith("healthy") else None
            yield Row(
                f"{name}, {content} / deepagents, the worst size",
                max(ratios.values()),
                most=goal,
                detail=", ".join(f"{size:,}: {found:.2f}" for size, found in ratios.items()),
            )
        for name in times[sizes[0]]:
            best = {size: min(times[size][name]) for size in sizes[1:]}
            yield Row(
                f"exponent of {name}, {content}",
                exponent(best),
                "{:.2f}",
                most=None if name in (DEEP, WALK) else 1.05,
                detail=f"time over messages, from {sizes[1]:,} on",
            )
