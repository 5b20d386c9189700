"""Print what becomes of calls that are alive while a node asks a model of its own, as Markdown.

    python scripts/gate_table.py [--all] [place ...]

A row is a place of the node, what its provider refuses, whether open calls are refused too, who
asks a human, and the options of `with_patching` (`tests/support/gates.py`). A cell has what tools
did in three turns, how often a human was asked, and how each turn ended: bare, and patched. A row
in which a law is broken is printed with the law, and the exit code is 1. `--all` adds what gates
return and how they ask.
"""

from __future__ import annotations

import itertools
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.gates import (
    CLASHES,
    EIGHT,
    MANNERS,
    PLACES,
    REFUSALS,
    RETURNS,
    TABLE,
    Form,
    Outcome,
    broken,
)

OPTIONS = ({}, {"record": True}, {"once": ["pay"]}, {"record": True, "once": ["pay"]})
APPROVALS = ("", "tool", "node", "gate", "gate, newest")


def forms(places: list[str], *, is_all: bool) -> Iterator[Form]:
    """The rows: the table, and with `is_all` each other return and manner beside it."""
    for place, refusal, strict, approval in itertools.product(
        places or (PLACES if is_all else EIGHT),
        REFUSALS if is_all else TABLE,
        (False, True),
        APPROVALS,
    ):
        form = Form(place, refusal, strict, approval)
        yield form
        if not is_all:
            continue
        for returns in [*RETURNS, "append", "append ai"]:
            if returns != form.returns and (place, returns) not in CLASHES:
                yield form._replace(returns=returns)
        for manner in MANNERS:
            if manner != form.manner:
                yield form._replace(manner=manner)
        for way in ("ainvoke", "stream"):
            yield form._replace(way=way)


def cell(outcome: Outcome) -> str:
    """What happened, in short."""
    return "; ".join(
        f"{' '.join(f'{c}:{w}' for c, w in turn.did if w != 'asked') or '-'}"
        f", asked {turn.asked}, {turn.end[:24]!r}"
        for turn in outcome.turns
    )


def main(arguments: list[str]) -> int:
    """Print the table."""
    is_all, places = "--all" in arguments, [each for each in arguments if not each.startswith("-")]
    count, wrong = Counter[str](), Counter[str]()
    sys.stdout.write("| row | bare | patched |\n|---|---|---|\n")
    for form in forms(places, is_all=is_all):
        for options in OPTIONS:
            if form.place == "executor" and options:
                continue  # it has no ToolNode
            count[form.place] += 1
            laws, (bare, _, patched) = broken(form, options)
            row = f"{', '.join(map(str, form))}, {options}"
            if laws:
                wrong[form.place] += 1
            if laws or not is_all:
                sys.stdout.write(f"| {row} | {cell(bare)} | {cell(patched)} |\n")
            for law in laws:
                sys.stdout.write(f"|   **{law}** |||\n")
            sys.stdout.flush()
    sys.stdout.write(f"\nrows: {dict(count)}; wrong: {dict(wrong)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    sys.exit(main(sys.argv[1:]))
