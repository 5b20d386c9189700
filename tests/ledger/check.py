"""Checks a scenario, and compares healthy runs of a patched graph with those of the bare graph."""

import re
import traceback
from collections import Counter
from types import SimpleNamespace

from ledger.agents import KINDS
from ledger.events import EVENTS, happen
from ledger.judge import Judge
from ledger.session import CONFIG, play, scenario
from ledger.world import Read

NOISE = re.compile(r"receipt-\d+|[0-9a-f]{8}-[0-9a-f-]{27}")

HEALTHY = {
    **dict.fromkeys(("sqlite", "malformed"), False),
    "ids": "unique",
    "never": ("boom",),
    "once": ("transfer", "task"),
    "events": ["message", *["resume"] * 9],
}


def check(seed, *, kills=True, wrapped=True, compare=0):
    """Play and judge a scenario: its statements, its problems, its transcript."""
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
    """All that happened, line by line; and the last history."""
    [*_, last] = [read for _, read in session.world.all(Read)]
    lines = [str(vars(session.settings))]
    for number, entry in enumerate([*session.world.entries, ["end"]]):
        lines += [f"--- {r.event} -> {r.error[:150]}" for r in session.runs if r.begin == number]
        shown = entry[:2] if isinstance(entry, Read) else entry
        lines.append(f"{number:4} {type(entry).__name__} {' '.join(map(str, shown))}")
        lines += [f"  ==> {verdict[:4]}" for verdict in judge.verdicts if verdict[-1] == number]
    return "\n".join([*lines, *(m.pretty_repr() for m in last.messages)])


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
    """All that can be seen of a session: parallel results may come in any order."""
    rows, values = list(session.saver.list(CONFIG)), session.last.values
    return {
        "dead": session.dead,
        "state": (_plain(values.get("messages", ())), sorted(values.get("notes") or ())),
        "next": session.last.next,
        "checkpoints": len(rows),
        "writes": Counter(channel for row in rows for _, channel, _ in row.pending_writes or ()),
        "model calls": [_plain(read.messages) for _, read in session.world.all(Read)],
    }


def _plain(messages):
    return sorted(
        NOISE.sub("", f"{m.type} {m.text} {m.name} {getattr(m, 'tool_calls', '')}")
        for m in messages
    )
