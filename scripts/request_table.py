"""Print how many requests nodes make, and how often each side effect is done, as Markdown.

    python scripts/request_table.py

A row is a shape of a node and an event (`tests/support/requests.py`). A cell has the requests of
all models, how often each side effect was done in each turn, and the errors of the turns. Where
ways of running a graph differ, each has a row. A cell in which a patched graph has done more
often what a callback shows is bold, and the exit code is 1.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.requests import EVENTS, FORMS, SHAPES, WAYS, done_too_often, play


def cells(shape: str, event: str, way: str) -> tuple[str, ...]:
    """What happened in each form."""
    bare, *patched = [play(shape, event, way, form) for form in FORMS]
    return str(bare), *(f"**{p}**" if done_too_often(bare, p) else str(p) for p in patched)


def main() -> int:
    """Print the table."""
    head, is_right = ["node", "event", "run with", *FORMS], True
    sys.stdout.write(f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n")
    for shape in SHAPES:
        for event in EVENTS:
            rows: dict[tuple[str, ...], list[str]] = {}
            for way in WAYS:
                rows.setdefault(cells(shape, event, way), []).append(way)
            for row, ways in rows.items():
                run_with = "each" if len(rows) == 1 else ", ".join(ways)
                sys.stdout.write(f"| {' | '.join([shape, event, run_with, *row])} |\n")
                is_right &= not any(cell.startswith("**") for cell in row)
    return 0 if is_right else 1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    sys.exit(main())
