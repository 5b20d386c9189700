"""Checks a scenario, and compares healthy runs of a patched graph with those of the bare graph."""

import re
import traceback
from collections import Counter
from types import SimpleNamespace

from langchain_core.messages import BaseMessage

from ledger.agents import KINDS
from ledger.events import EVENTS, happen
from ledger.judge import Judge
from ledger.session import CONFIG, play, scenario
from ledger.world import Read

NOISE = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.+]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|receipt-\d+|run--\S+"
    r"|(?<=may I\? )\w+ R\d+"
)
"""Times, ids and receipts, and which of a node's calls asks first: they differ from run to run."""

HIDDEN = {"langgraph_checkpoint_ns", "checkpoint_ns", "langgraph_triggers", "ledger_run"}
HEALTHY = {
    **dict.fromkeys(("sqlite", "malformed"), False),
    "streams": True,
    "ids": "unique",
    "never": ("boom",),
    "once": ("transfer", "task"),
    "events": ["resume", "resume", "message", "resume", "resume"],
}


def check(seed, *, kills=True, wrapped=True, compare=0):
    """Play and judge a scenario: its statements, its problems, and its transcript.

    One scenario of `compare` of each kind is a comparison of healthy runs, too.
    """
    try:
        session = play(scenario(seed, EVENTS, kills=kills), happen, wrapped=wrapped)
        judge = Judge(session)
        problems = [f"{problem}: {label}" for problem, label, *_ in judge.verdicts]
        if compare and seed // len(KINDS) % compare == 0:
            problems += [f"unlike bare: {name}" for name in differences(seed)]
        return judge.counts, problems, _transcript(session, judge)
    except Exception:  # noqa: BLE001 - one crash must not end 5,000 scenarios
        return Counter(), ["dead: the simulation"], traceback.format_exc()


def _transcript(session, judge):
    """All that happened, line by line; the history where a problem was read, and the last one."""
    lines, last = [str(vars(session.settings))], max(n for n, _ in session.world.all(Read))
    for number, entry in enumerate([*session.world.entries, ["end"]]):
        lines += [f"--- {r.event} -> {r.error[:150]}" for r in session.runs if r.begin == number]
        found = [verdict for verdict in judge.verdicts if verdict[-1] == number]
        shown = entry[:2] if isinstance(entry, Read) else entry
        lines.append(f"{number:4} {type(entry).__name__} {' '.join(map(str, shown))}")
        for m in entry.messages if isinstance(entry, Read) and (found or number == last) else ():
            calls = [(c["name"], c["args"], c["id"]) for c in getattr(m, "tool_calls", ())]
            lines.append(f"   | {m.type} {m.id} {m.text[:200]!r} {calls or ''}")
        lines += [f"  ==> {' '.join(map(str, verdict[:4]))}" for verdict in found]
    return "\n".join(lines)


def differences(seed):
    """In what the healthy runs of this seed differ from those of the bare graph."""
    settings = SimpleNamespace(**{**vars(scenario(seed, EVENTS)), **HEALTHY})
    bare_session = play(settings, happen, wrapped=False)
    if bare_session.dead:  # a swarm breaks its own history when a handoff has siblings
        return []
    bare, patched = _seen(bare_session), _seen(play(settings, happen))
    other_tasks = settings.middleware or settings.record
    compared = ("dead", "state", "model calls") if other_tasks else bare
    return [name for name in compared if bare[name] != patched[name]]


def _seen(session):
    """All that can be seen of the runs of a session."""
    rows = list(session.saver.list(CONFIG))
    return {
        "dead": session.dead,
        "stream": _plain(session.seen),
        "state": _plain(session.last.values),
        "next": session.last.next,
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
