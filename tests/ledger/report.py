"""Many scenarios, and a table of what came of them."""

import argparse
import logging
import sys
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context

from ledger.agents import KINDS
from ledger.events import EVENTS, happen
from ledger.healthy import differences
from ledger.judge import Judge
from ledger.session import play, scenario
from ledger.world import Read

PROBLEMS = ("false", "lost", "twice", "dead", "hurt", "unclear", "truncated", "unlike bare")
COLUMNS = ("scenarios", "statements", "result", "unknown", *PROBLEMS)


def one(seed, *, kills=True, wrapped=True, compare=0):
    """Play and judge a scenario: its counts, the labels of its problems, and its transcript.

    One scenario of `compare` of each kind is a comparison of healthy runs, too.
    """
    try:
        session = play(scenario(seed, EVENTS, kills=kills), happen, wrapped=wrapped)
        judge = Judge(session)
    except Exception:  # noqa: BLE001 - one crash must not end 5,000 scenarios
        return Counter(scenarios=1, dead=1), ["dead: the simulation"], traceback.format_exc()
    labels = [f"{verdict[0]}: {verdict[1]}" for verdict in judge.verdicts]
    labels += [f"dead: {session.dead}"] * bool(session.dead)
    labels += [f"hurt: {text}" for text in session.hurt]
    labels += [
        f"unlike bare: {name}"
        for name in (differences(seed) if compare and seed // len(KINDS) % compare == 0 else ())
    ]
    problems = Counter(label.partition(":")[0] for label in labels)
    return judge.counts + problems + Counter(["scenarios"]), labels, _transcript(session, judge)


def _transcript(session, judge):
    """All that happened, line by line; the history where a problem was read."""
    lines = [str(vars(session.settings))]
    for number, entry in enumerate([*session.world.entries, ["end"]]):
        lines += [f"--- {r.event} -> {r.error[:150]}" for r in session.runs if r.begin == number]
        found = [verdict for verdict in judge.verdicts if verdict[-1] == number]
        if isinstance(entry, Read):
            lines.append(f"{number:4} READ by {entry.agent} in run {entry.run} {entry.refusal}")
            for m in entry.messages if found or entry.refusal else ():
                calls = [(c["name"], c["args"], c["id"]) for c in getattr(m, "tool_calls", ())]
                mark = m.additional_kwargs.get("langgraph_patch", ""), vars(m).get("tool_call_id")
                lines.append(f"   | {m.type} {m.id} {mark} {m.text[:200]!r} {calls or ''}")
        else:
            lines.append(f"{number:4} {' '.join(map(str, entry))}")
        lines += [
            f"  ==> {problem}: {label} {key} {text}" for problem, label, key, text, _ in found
        ]
    return "\n".join([*lines, *(f"hurt: {text}" for text in session.hurt), f"dead: {session.dead}"])


def main():
    """Run scenarios and print a table; 1 if there is a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first")
    parser.add_argument("--only", choices=list(KINDS), help="one kind of agent")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--verbose", type=int, default=0, help="how many transcripts to print")
    parser.add_argument("--no-kills", action="store_true", help="kill no process")
    parser.add_argument("--bare", action="store_true", help="do not patch the graphs")
    options = parser.parse_args()
    for name in ("langgraph_patch", "concurrent.futures", "asyncio", "langgraph"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    names = list(KINDS)
    wanted = (n for n in count(options.seed) if options.only in {None, names[n % len(names)]})
    play_one = partial(one, kills=not options.no_kills, wrapped=not options.bare, compare=10)
    rows, found = defaultdict(Counter), defaultdict(list)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        apply = partial(pool.map, chunksize=4) if options.jobs > 1 else map
        seeds = list(islice(wanted, options.scenarios))
        for seed, (counts, labels, text) in zip(seeds, apply(play_one, seeds), strict=True):
            rows[names[seed % len(names)]] += counts
            rows["all"] += counts
            for label in labels:
                found[label].append(seed)
            if options.verbose and (labels or options.scenarios == 1):
                options.verbose -= 1
                sys.stdout.write(f"{text}\n\n")
    lines = ["".join(f"{cell:>12}" for cell in (" " * 24, *COLUMNS))]
    for name in [*names, "all"]:
        lines += [f"{name:24}" + "".join(f"{rows[name][column]:>12}" for column in COLUMNS)]
    lines += [f"{len(s):5} {label}: seeds {s[:6]}" for label, s in sorted(found.items())]
    share = 100 * rows["all"]["unknown"] / max(rows["all"]["statements"], 1)
    sys.stdout.write("\n".join([*lines, f"unknown: {share:.1f} % of the statements", ""]))
    return 1 if found else 0
