"""The page on late, doubled and wrong answers has what the scenes do."""

import runpy
import warnings
from functools import partial

import pytest

from support.paths import PAGES, SCRIPTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    TABLE = runpy.run_path(str(SCRIPTS / "approval_table.py"))


PAGE = PAGES["approvals"].read_text("utf-8")
ROWS = PAGE.partition("| what happens |")[2].partition("\n\n")[0].splitlines()[2:]


def test_the_page_has_each_scene():
    """In the order of the script, and no other."""
    scenes = [row.split(" | ")[0].removeprefix("| ") for row in ROWS]
    assert scenes == [scene.text for scene in TABLE["SCENES"]]


@pytest.mark.parametrize("place", range(len(TABLE["SCENES"])))
def test_a_scene_does_what_its_row_says(place):
    """A fresh run gives the same cells: `python scripts/approval_table.py` prints them anew."""
    assert TABLE["row"](TABLE["SCENES"][place]) == ROWS[place]


def pytest_generate_tests(metafunc):
    """Play a sixth of the scenes, each in some graphs; all with `--long`."""
    if "kind" in metafunc.fixturenames:
        cases = [(kind, place) for kind in TABLE["KINDS"] for place in range(len(ROWS))]
        cases = cases if metafunc.config.getoption("--long") else cases[::6]
        elsewhere = {"deep agent": pytest.mark.server}  # deepagents is not in the set `dev`
        marked = [pytest.param(*case, marks=elsewhere.get(case[0], ())) for case in cases]
        metafunc.parametrize(("kind", "place"), marked)


def test_in_each_graph(kind, place):
    """With `once` the tool runs once for each call, and what the model reads is true."""
    (build, options), scene = TABLE["KINDS"][kind], TABLE["SCENES"][place]
    wrap = partial(TABLE["GRAPHS"]["`once`"], **options)
    try:
        played = TABLE["play"](scene, wrap, build, TABLE["new_saver"]("sqlite"))
    except NotImplementedError:
        assert scene.middleware
        return
    assert played.paid.count(5) <= 1
    assert played.is_true
    if kind in [*TABLE["KINDS"]][:8]:
        assert TABLE["text"](played) == ROWS[place].split(" | ")[3].removesuffix(" |")
