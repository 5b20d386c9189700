"""What the documentation claims is what the programs print."""

from __future__ import annotations

import pytest

import compare
import wire_table
from support.paths import ROOT
from support.wires import WIRES

README = ROOT / "README.md"
PROVIDERS = ROOT / "docs" / "pages" / "providers.md"


@pytest.mark.parametrize(
    ("printed", "page"),
    [(wire_table.table, PROVIDERS), (compare.table, PROVIDERS)],
    ids=["providers", "compared"],
)
@pytest.mark.slow
def test_tables_are_those_that_the_programs_print(printed, page):
    """Each row of each table was measured, by these very versions."""
    rows = [line for line in printed().splitlines() if line.startswith("|")]
    assert len(rows) > 5
    assert [row for row in rows if row not in page.read_text().splitlines()] == []


def test_ours_wins_every_row():
    """What the comparison shows of this package holds for all wires and all questions."""
    ours = [cells[-1] for _, cells in compare.rows()]
    assert set(ours) == {"yes", f"{len(WIRES)} of {len(WIRES)}", "×1.00"}


def test_the_readme_stays_short():
    """Someone with a dying thread reads it in three minutes."""
    assert len(README.read_text().split()) < 650
