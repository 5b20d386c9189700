"""`PYTHONPATH=tests python -m ledger.check --scenarios 5000`: play scenarios, print problems."""

import argparse
import logging
import re
import sys
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from types import SimpleNamespace

from ledger.agents import KINDS, Read
from ledger.judge import Judge
from ledger.session import CONFIG, play, scenario

NOISE = re.compile(r"receipt-\d+|[0-9a-f]{8}-[0-9a-f-]{27}")
HEALTHY = {
    **dict.fromkeys(("sqlite", "malformed"), False),
    "ids": "unique",
    "runs_once": (),
    "never": ("boom",),
    "once": ("transfer", "task"),
    "events": ["turn"] * 3,
}


def check(seed, *, wrapped=True, compare=0):
    """Play and judge a scenario: its statements, its problems, its transcript."""
    try:
        session = play(scenario(seed), wrapped=wrapped)
        judge = Judge(session)
        problems = [f"{problem}: {label}" for problem, label, *_ in judge.verdicts]
        if compare and seed // len(KINDS) % compare == 0:
            problems += [f"unlike bare: {name}" for name in differences(seed)]
        return judge.counts, problems, _transcript(session, judge)
    except Exception:  # noqa: BLE001 - one crash must not end 5,000 scenarios
        return Counter(), ["dead: the simulation"], traceback.format_exc()


def _transcript(session, judge):
    """All that happened, line by line; and the last history."""
    lines, reads = [str(vars(session.settings))], session.world.all(Read)
    for number, entry in enumerate([*session.world.entries, ["end"]]):
        lines += [f"--- {r.event} -> {r.error[:150]}" for r in session.runs if r.begin == number]
        shown = entry[:2] if isinstance(entry, Read) else entry
        lines.append(f"{number:4} {type(entry).__name__} {' '.join(map(str, shown))}")
        lines += [f"  ==> {verdict[:4]}" for verdict in judge.verdicts if verdict[-1] == number]
    return "\n".join([*lines, *(m.pretty_repr() for m in reads[-1][1].messages)])


def differences(seed):
    """In what the healthy runs of this seed differ from those of the bare graph."""
    settings = SimpleNamespace(**{**vars(scenario(seed)), **HEALTHY})
    bare_session = play(settings, wrapped=False)
    if bare_session.dead:  # a swarm breaks its own history when a handoff has siblings
        return []
    bare, patched = _seen(bare_session), _seen(play(settings))
    # The library's middleware has no node, deepagents' own has one, in its subagents too.
    other_tasks = settings.middleware or settings.record or settings.name == "deep_agent"
    compared = ("dead", "state", "model calls") if other_tasks else bare
    return [name for name in compared if bare[name] != patched[name]]


def _seen(session):
    """All that can be seen of a session: parallel results may come in any order."""
    rows, values = session.saver.list(CONFIG), session.last.values
    return {
        "dead": session.dead,
        "state": (_plain(values.get("messages", ())), sorted(values.get("notes") or ())),
        "next": session.last.next,
        "writes": [sorted(channel for _, channel, _ in row.pending_writes or ()) for row in rows],
        "model calls": [_plain(read.messages) for _, read in session.world.all(Read)],
    }


def _plain(messages):
    texts = (f"{m.type} {m.text} {m.name} {getattr(m, 'tool_calls', '')}" for m in messages)
    return sorted(NOISE.sub("", text) for text in texts)


def main():
    """Return 1 if there is a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first")
    parser.add_argument("--only", choices=list(KINDS), help="one kind of agent")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--verbose", type=int, default=0, help="how many transcripts to print")
    parser.add_argument("--bare", action="store_true", help="do not patch the graphs")
    options = parser.parse_args()
    wanted = (n for n in count(options.seed) if options.only in {None, scenario(n).name})
    seeds, total, failed = [*islice(wanted, options.scenarios)], Counter(), 0
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), logging.disable) as pool:
        found = pool.map(partial(check, wrapped=not options.bare, compare=10), seeds, chunksize=4)
        for seed, (counts, problems, transcript) in zip(seeds, found, strict=True):
            total, failed = total + counts, failed + bool(problems)
            sys.stdout.writelines(f"seed {seed}: {problem}\n" for problem in problems)
            if failed <= options.verbose and (problems or options.scenarios == 1):
                sys.stdout.write(f"{transcript}\n\n")
    sys.stdout.write(f"{len(seeds)} scenarios, {failed} with problems; {dict(total)}\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
