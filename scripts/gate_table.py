"""Print what becomes of calls that are alive while a node asks a model of its own, as Markdown.

    python scripts/gate_table.py [--all] [place ...]

A row is a place of the node, what its provider refuses, how the models are (`MODELS`), who asks a
human, and the options of `with_patching` (`tests/gates`). A cell has what
tools did in each of three turns, how often a human was asked, and how the turn ended: in the bare
graph, and in the patched one. A row that breaks a law is followed by the law, and the exit code
is 1. `--all` plays what gates return and how they ask as well, and prints only rows that break a
law.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from gates.laws import Outcome, broken, table, variants


def cell(outcome: Outcome) -> str:
    """What happened, in short."""
    return "; ".join(
        f"{' '.join(f'{call}:{what}' for call, what in turn.did if what != 'asked') or '-'}, "
        f"asked {turn.asked}, {turn.end[:24]!r}"
        for turn in outcome.turns
    )


def main(arguments: list[str]) -> int:
    """Print the table."""
    is_all, places = "--all" in arguments, [each for each in arguments if not each.startswith("-")]
    count, wrong = Counter[str](), Counter[str]()
    sys.stdout.write("| row | bare | patched |\n|---|---|---|\n")
    for form, options in variants() if is_all else table():
        if places and form.place not in places:
            continue
        laws, (bare, _, patched) = broken(form, options)
        count[form.place] += 1
        wrong[form.place] += bool(laws)
        if laws or not is_all:
            row = ", ".join([*map(str, form), str(options)])
            sys.stdout.write(f"| {row} | {cell(bare)} | {cell(patched)} |\n")
        for law in laws:
            sys.stdout.write(f"|   **{law}** |||\n")
        sys.stdout.flush()
    sys.stdout.write(f"\nrows: {dict(count)}; wrong: {dict(+wrong)}\n")
    return 1 if +wrong else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    sys.exit(main(sys.argv[1:]))
