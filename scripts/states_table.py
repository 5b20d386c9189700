"""Print what happens to threads in the states that a provider refuses, as Markdown.

Each state, each wire, in each place that asks again: how many requests each of three turns took;
`-` is a turn that was refused. Needs the integrations: `python scripts/states_table.py`.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.refused import FOREIGN, PLACES, STATES, in_three_turns
from support.wires import WIRES, reason


def cell(counts: list[int]) -> str:
    """The turns of a thread, in short."""
    return "".join(map(str, counts)).replace("0", "-")


def table(states: dict[str, Any], place: str) -> list[str]:
    """The rows of one place."""
    rows = [f"| {place} | {' | '.join(WIRES)} |", "|---" * (len(WIRES) + 1) + "|"]
    for name, (history, _) in states.items():
        cells = [cell(in_three_turns(place, partial(reason, wire), history)) for wire in WIRES]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for each in PLACES:
        sys.stdout.write("\n".join(table({**STATES, **FOREIGN}, each)) + "\n\n")
