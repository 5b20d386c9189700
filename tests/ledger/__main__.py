"""`PYTHONPATH=tests python -m ledger --scenarios 5000`: play scenarios and print their problems."""

import argparse
import logging
import sys
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context

from ledger.agents import KINDS
from ledger.check import check


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
    logging.disable()
    names = list(KINDS)
    wanted = (n for n in count(options.seed) if options.only in {None, names[n % len(names)]})
    seeds = list(islice(wanted, options.scenarios))
    total, seeds_of = Counter(), defaultdict(list)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        apply = partial(pool.map, chunksize=4) if options.jobs > 1 else map
        found = apply(partial(check, wrapped=not options.bare, compare=10), seeds)
        for seed, (counts, problems, transcript) in zip(seeds, found, strict=True):
            total += counts
            for problem in problems:
                seeds_of[problem].append(seed)
            if options.verbose and (problems or options.scenarios == 1):
                options.verbose -= 1
                sys.stdout.write(f"{transcript}\n\n")
    lines = [f"{len(seeds)} scenarios, {total.total()} statements: {dict(total)}"]
    lines += [f"{len(s):5} {problem}: seeds {s[:6]}" for problem, s in sorted(seeds_of.items())]
    sys.stdout.write("\n".join([*lines, ""]))
    return int(bool(seeds_of))


if __name__ == "__main__":
    sys.exit(main())
