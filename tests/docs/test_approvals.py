"""The page on late, doubled and wrong answers has what the scenes do."""

import runpy
import warnings

import pytest

from support.paths import PAGES, SCRIPTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    TABLE = runpy.run_path(str(SCRIPTS / "approval_table.py"))


def test_the_page_has_each_scene():
    """In the order of the script, and no other."""
    page = PAGES["approvals"].read_text("utf-8")
    rows = page.partition("| what happens |")[2].partition("\n\n")[0].splitlines()[2:]
    scenes = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert scenes == [scene.text for scene in TABLE["SCENES"]]


@pytest.mark.parametrize("place", range(len(TABLE["SCENES"])))
def test_a_scene_does_what_its_row_says(place):
    """A fresh run gives the same cells: `python scripts/approval_table.py` prints them anew."""
    page = PAGES["approvals"].read_text("utf-8")
    rows = page.partition("| what happens |")[2].partition("\n\n")[0].splitlines()[2:]
    assert TABLE["row"](TABLE["SCENES"][place]) == rows[place]
