"""Change the core at random places, one at a time, and see whether a test fails.

    python scripts/mutants.py                       300 of the mutants that mutmut makes
    python scripts/mutants.py --sample 50 --seed 2  fewer, and others
    python scripts/mutants.py --only history        of one package

It prints the share that a test killed, and the change of each mutant that survived. `[tool.mutmut]`
in pyproject.toml names the packages that are changed and the tests that run. It needs more:
`pip install -e '.[test,mutants]'`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SURVIVED = {0, 33}
"""The exit codes of mutants that all tests passed, and of those that no test ran."""


PACKAGES = ["history", "evidence", "repairing", "asking", "tools", "graph"]


def mutmut(*arguments: str) -> str:
    """Run mutmut and return what it prints."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, "-m", "mutmut", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def exit_codes(package: str) -> Iterator[tuple[str, int | None]]:
    """Each mutant of a package, and the exit code of its tests; None if they did not run."""
    for file in sorted((ROOT / "mutants/langgraph_patch" / package).rglob("*.meta")):
        yield from json.loads(file.read_text())["exit_code_by_key"].items()


def main() -> None:
    """Take a sample, run it, and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PACKAGES)
    known = parser.parse_args()
    packages = [known.only] if known.only else PACKAGES
    made = mutmut("run", "no mutant")  # makes all, runs none
    mutants = sorted(name for package in packages for name, _ in exit_codes(package))
    if not mutants:
        sys.exit(f"mutmut made no mutants:\n{made}")
    sample = random.Random(known.seed).sample(  # noqa: S311 - a sample
        mutants, min(known.sample, len(mutants))
    )
    said = mutmut("run", *sample)
    codes = dict(pair for package in packages for pair in exit_codes(package))
    if any(codes[name] is None for name in sample):
        sys.exit(f"mutmut did not run all of the sample:\n{said[-5_000:]}")
    alive = [name for name in sample if codes[name] in SURVIVED]
    for name in alive:
        sys.stdout.write(mutmut("show", name))
    killed = len(sample) - len(alive)
    sys.stdout.write(f"{killed} of {len(sample)} mutants were killed, of {len(mutants)}\n")


if __name__ == "__main__":
    main()
