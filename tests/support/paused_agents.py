"""Agents that pause in the middle of a turn."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from support.agents import Bench, Kind, both_calls
from support.running import run_in_worker


async def paused_agent(
    kind: Kind,
    *script: Any,
    asynchronous: bool = False,
    saver: Any = None,
    durability: str = "async",
) -> Bench:
    """A bare agent that has sent its mail and waits for a human before it wires money."""
    saver = InMemorySaver() if saver is None else saver
    bench = kind.make(both_calls(), *script, asynchronous=asynchronous, checkpointer=saver)
    await run_in_worker(bench.graph, "book it", asynchronous=asynchronous, durability=durability)
    assert bench.tools.done == (["mail to bob"] if kind.asks else [])
    return bench
