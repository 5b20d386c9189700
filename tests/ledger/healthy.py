"""Compares healthy runs of a patched graph with those of the bare graph."""

import re
import warnings
from collections import Counter
from types import SimpleNamespace

from langchain_core.messages import BaseMessage
from langgraph.types import Command

from ledger.events import EVENTS
from ledger.session import CONFIG, Session, scenario
from ledger.world import Read

NOISE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.+]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|receipt-\d+|run--\S+"
    r"|(?<=may I\? )\w+ R\d+"
)
"""Times, ids and receipts, and which of a node's calls asks first: they differ from run to run."""

HIDDEN = {"langgraph_checkpoint_ns", "checkpoint_ns", "langgraph_triggers"}
HEALTHY = {"sqlite": False, "ids": "unique", "malformed": False, "same_args": False}
ONCE = {"never": ("boom",), "once": ("write_todos", "task"), "events": []}


def differences(seed):
    """In what the healthy runs of this seed differ from those of the bare graph."""
    settings = SimpleNamespace(**{**vars(scenario(seed, EVENTS)), **HEALTHY, **ONCE})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            bare = _observe(Session(settings, wrapped=False))
        except Exception:  # noqa: BLE001 - a swarm breaks its own history when a handoff has siblings
            return []
        session = Session(settings)
        patched = _observe(session)
    other_tasks = session.kind.adds_node or session.kind.record
    compared = ("state", "model calls") if other_tasks else bare
    return [name for name in compared if bare[name] != patched[name]]


def _observe(session):
    """Play three turns, with an answer to each pause; return all that can be seen."""
    graph, chunks = session.graph, []
    modes = {"stream_mode": ["values", "updates", "messages"]}
    options = {**modes, "durability": session.settings.durability}
    try:
        for turn in range(3):
            value = {"messages": [("user", f"please {turn}")]}
            for _ in range(6):
                chunks += session.call(graph.stream, graph.astream, value, CONFIG, **options)
                if not (pauses := session.state().interrupts):
                    break
                asked = {p.id: p.value for p in pauses}  # what a tool asks is a text
                actions = {i: v["action_requests"] for i, v in asked.items() if v != str(v)}
                yes = {i: {"decisions": [{"type": "approve"}] * len(a)} for i, a in actions.items()}
                value = Command(resume=dict.fromkeys(asked, "answer-1") | yes)
        rows, state = list(session.saver.list(CONFIG)), session.state()
    finally:
        session.close()
    return {
        "stream": Counter(map(_plain, chunks)),
        "state": _plain(state.values),
        "next": state.next,
        "checkpoints": len(rows),
        "writes": Counter(channel for row in rows for _, channel, _ in row.pending_writes or ()),
        "model calls": [_plain(read.messages) for _, read in session.world.all(Read)],
    }


def _plain(value):
    """A value as text, without ids that are made at random; lists of results in any order."""

    def shown(part):
        if isinstance(part, BaseMessage):
            calls, call = getattr(part, "tool_calls", None), getattr(part, "tool_call_id", "")
            return (part.type, part.text, part.name, call, calls)
        if isinstance(part, dict):
            return sorted((k, repr(shown(v))) for k, v in part.items() if k not in HIDDEN)
        if isinstance(part, list | tuple):
            return sorted(repr(shown(each)) for each in part)
        return part

    return NOISE.sub("#", repr(shown(value)))
