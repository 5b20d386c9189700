"""What the README claims is what the programs print."""

from __future__ import annotations

from pathlib import Path

import compare
import pytest
import wire_table
from wires import WIRES

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("printed", [wire_table.table, compare.table], ids=["wires", "compared"])
def test_tables_are_those_that_the_programs_print(printed):
    """Each row of each table was measured, by these very versions."""
    rows = [line for line in printed().splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert [row for row in rows if row not in README.read_text().splitlines()] == []


def test_ours_wins_every_row():
    """What the comparison shows of this package holds for all wires and all questions."""
    ours = [cells[-1] for _, cells in compare.rows()]
    assert set(ours) == {"yes", f"{len(WIRES)} of {len(WIRES)}", "×1.00"}


def test_it_stays_short():
    """Someone reads it in ten minutes."""
    assert len(README.read_text().splitlines()) < 150
