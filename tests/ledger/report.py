"""Runs many scenarios and prints what came of them, by kind of agent."""

from __future__ import annotations

import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from typing import Any

from ledger.agents import KINDS
from ledger.healthy import differences
from ledger.run import Outcome, is_bad, problems, run_scenario
from ledger.scenario import Scenario

HEALTHY_EACH = 10
"""Of so many scenarios, one is also a comparison of healthy runs."""

COLUMNS = (
    "scenarios", "model calls", "statements", "true", "unknown", "weak", "lost", "false",
    "unclear", "twice", "hurt", "dead", "not as bare",
)  # fmt: skip


def seeds(first: int, scenarios: int, only: str | None) -> list[int]:
    """The seeds of so many scenarios, of one kind or of all."""
    if only is not None and only not in KINDS:
        raise SystemExit(f"--only {only}: expected one of {', '.join(KINDS)}")
    found = (n for n in count(first) if only in {None, Scenario.of(n).kind.name})
    return list(islice(found, scenarios))


def play(
    seed: int, *, kills: bool, transcript: bool, wrapped: bool, tries: int
) -> tuple[Outcome, list[str]]:
    """One scenario, and now and then a comparison of healthy runs."""
    for _ in range(tries):
        try:
            outcome = run_scenario(seed, kills=kills, transcript=transcript, wrapped=wrapped)
        except Exception as error:  # noqa: BLE001 - one crash must not end 5,000 scenarios
            dead = f"harness: crashed with {error!r}"
            outcome = Outcome(Scenario.of(seed), [], 0, 0, dead, [], [], traceback.format_exc())
        if is_bad(outcome):
            break
    compare = (seed // len(KINDS)) % HEALTHY_EACH == 0
    return outcome, differences(seed) if compare else []


def play_all(
    numbers: Iterable[int],
    *,
    jobs: int,
    kills: bool = True,
    transcript: bool = False,
    wrapped: bool = True,
    tries: int = 1,
) -> Iterator[tuple[Outcome, list[str]]]:
    """All scenarios, in this process or in several."""
    one = partial(play, kills=kills, transcript=transcript, wrapped=wrapped, tries=tries)
    if jobs <= 1:
        yield from map(one, numbers)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(one, numbers, chunksize=4)


def row_of(outcome: Outcome, unlike: list[str]) -> Counter[str]:
    """What a scenario adds to the table."""
    row = Counter(v.outcome for v in outcome.verdicts)
    row.update(
        {
            "scenarios": 1,
            "model calls": outcome.judged,
            "statements": outcome.statements,
            "twice": len(outcome.twice),
            "hurt": len(outcome.hurt),
            "dead": bool(outcome.dead),
            "not as bare": bool(unlike),
        }
    )
    return row


def shares(repaired: dict[str, Counter[str]]) -> str:
    """What the library wrote for calls without a result, by kind of agent, and `unknown` of it."""
    total: Counter[str] = Counter()
    for counts in repaired.values():
        total.update(counts)
    causes = sorted(total)
    lines = [f"{'':24}" + "".join(f"{c:>15}" for c in (*causes, "all", "unknown %"))]
    for name, counts in [*repaired.items(), ("all", total)]:
        amount = counts.total()
        share = f"{100 * counts['unknown'] / amount:.0f}" if amount else "-"
        cells = (*(counts[cause] for cause in causes), amount, share)
        lines.append(f"{name:24}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines)


def replay_command(seed: int) -> str:
    """The command that plays a scenario again, more than once: threads decide a little too."""
    return f"python tests/ledger --scenarios 1 --seed {seed} --verbose 1 --tries 20"


def table(rows: dict[str, Counter[str]]) -> str:
    """The table, with a line for all kinds."""
    total: Counter[str] = Counter()
    for row in rows.values():
        total.update(row)
    lines = [f"{'':24}" + "".join(f"{c:>12}" for c in COLUMNS)]
    for name, row in [*rows.items(), ("all", total)]:
        lines.append(f"{name:24}" + "".join(f"{row[c]:>12}" for c in COLUMNS))
    return "\n".join(lines)


def classes(found: dict[str, dict[str, list[int]]]) -> str:
    """Each class of problem: how often, in which kinds, and the seeds of the first."""
    lines = []
    for label, kinds in sorted(found.items()):
        amount = sum(map(len, kinds.values()))
        shown = ", ".join(f"{k} {len(s)} (seed {s[0]})" for k, s in sorted(kinds.items()))
        lines.append(f"{amount:5}  {label}\n       {shown}")
    return "\n".join(lines)


def run_many(
    *,
    scenarios: int,
    seed: int,
    only: str | None,
    jobs: int,
    verbose: int,
    find: str,
    no_kills: bool,
    bare: bool,
    tries: int,
    only_shares: bool,
) -> int:
    """Run the scenarios, print the table, and return 1 if anything is wrong."""
    rows: dict[str, Counter[str]] = {name: Counter() for name in KINDS if only in {None, name}}
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    repaired: dict[str, Counter[str]] = {name: Counter() for name in rows}
    numbers = seeds(seed, scenarios, only)
    bad = 0
    show: Any = sys.stdout.write
    for outcome, unlike in play_all(
        numbers,
        jobs=jobs,
        kills=not no_kills,
        transcript=bool(verbose),
        wrapped=not bare,
        tries=tries,
    ):
        name = outcome.scenario.kind.name
        rows[name].update(row_of(outcome, unlike))
        repaired[name].update(outcome.repaired.values())
        labels = problems(outcome)
        labels.update(f"not as bare: {text}" for text in unlike)
        for label, amount in labels.items():
            found[label][name] += [outcome.scenario.seed] * amount
        bad += is_bad(outcome) or bool(unlike)
        wanted = any(find in label for label in labels) if find else True
        if verbose and wanted and (labels or scenarios == 1):
            verbose -= 1
            show(f"{outcome.transcript}\n{replay_command(outcome.scenario.seed)}\n\n")
    if only_shares:
        show(f"{shares(repaired)}\n")
        return 0
    show(f"{table(rows)}\n\n{classes(found)}\n")
    return 1 if bad else 0
