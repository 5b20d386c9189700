"""Compares healthy runs of a patched graph with those of the bare graph."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import Command

from ledger.driver import Driver
from ledger.model import Habits
from ledger.run import make_kit
from ledger.scenario import Scenario
from ledger.world import Read, World

NOISE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.+]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|receipt-\d+|run--\S+"
    r"|(?<=may I\? )\w+ R\d+"
)
"""Times, ids and receipts, and which of a node's calls asks first: they differ from run to run."""

TURNS = 3


def differences(seed: int) -> list[str]:
    """In what the healthy runs of this seed differ from those of the bare graph."""
    scenario = Scenario.of(seed)
    healthy = Habits(seed=seed, boom=False, parallel_tasks=False)
    scenario = Scenario(**{**vars(scenario), "habits": healthy, "sqlite": False, "events": ()})
    try:
        bare = _observe(scenario, wrapped=False)
    except Exception:  # noqa: BLE001 - a swarm breaks its own history when a handoff has siblings
        return []
    patched = _observe(scenario, wrapped=True)
    compared = ("state", "model calls") if scenario.kind.adds_node else tuple(bare)
    return [name for name in compared if bare[name] != patched[name]]


def _observe(scenario: Scenario, *, wrapped: bool) -> dict[str, Any]:
    """Play some turns, with an answer to each pause; return all that can be seen."""
    driver = Driver(asynchronous=scenario.asynchronous, path=None, durability=scenario.durability)
    world = World()
    config: Any = {"configurable": {"thread_id": "1"}}
    chunks: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = scenario.kind.build(make_kit(scenario, world, driver, wrapped=wrapped))
            for turn in range(TURNS):
                value: Any = {"messages": [("user", f"please {turn}")]}
                for _ in range(6):
                    chunks += _stream(driver, graph, value, config)
                    interrupts = graph.get_state(config).interrupts
                    if not interrupts:
                        break
                    value = Command(resume={i.id: _yes(i) for i in interrupts})
            rows = driver.rows(config)
            state = graph.get_state(config)
    finally:
        driver.close()
    return {
        "stream": Counter(c for c in chunks if not ("recorded_" in c and scenario.kind.recorded)),
        "state": _plain(state.values),
        "next": state.next,
        "checkpoints": len(rows),
        "writes": Counter(channel for row in rows for _, channel, _ in row.pending_writes or ())
        if not scenario.kind.recorded
        else {},
        "model calls": [_plain(read.messages) for _, read in world.all(Read)],
    }


def _yes(interrupt: Any) -> Any:
    if isinstance(interrupt.value, dict) and "action_requests" in interrupt.value:
        return {"decisions": [{"type": "approve"} for _ in interrupt.value["action_requests"]]}
    return "answer-1"


def _stream(driver: Driver, graph: Any, value: Any, config: Any) -> list[str]:
    """The chunks of one run, without the ids that differ from run to run."""
    options: Any = {
        "stream_mode": ["values", "updates", "messages"],
        "durability": driver.durability,
    }
    if driver.loop is None:
        return [_plain(chunk) for chunk in graph.stream(value, config, **options)]

    async def collect() -> list[str]:
        return [_plain(chunk) async for chunk in graph.astream(value, config, **options)]

    return list(driver.wait(collect()))


def _plain(value: Any) -> str:
    """A value as text, without ids that are made at random; lists of results in any order."""

    def shown(part: Any) -> Any:
        if isinstance(part, BaseMessage):
            calls = getattr(part, "tool_calls", None)
            return (part.type, part.text, part.name, getattr(part, "tool_call_id", ""), calls)
        if isinstance(part, dict):
            hidden = {"langgraph_checkpoint_ns", "checkpoint_ns", "langgraph_triggers"}
            return sorted((k, repr(shown(v))) for k, v in part.items() if k not in hidden)
        if isinstance(part, list | tuple):
            return sorted(repr(shown(each)) for each in part)
        return part

    return NOISE.sub("#", repr(shown(value)))
