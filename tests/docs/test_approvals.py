"""The page on late, doubled and wrong answers has what the scenes do."""

import runpy
import warnings
from functools import cache, partial

import pytest

from support.paths import PAGES, SCRIPTS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    TABLE = runpy.run_path(str(SCRIPTS / "approval_table.py"))


PAGE = PAGES["approvals"].read_text("utf-8")
ROWS = PAGE.partition("| what happens |")[2].partition("\n\n")[0].splitlines()[2:]
row = cache(lambda place: TABLE["row"](TABLE["SCENES"][place]))


def test_the_page_has_scenes_of_the_script():
    """In its order; a scene has one row."""
    assert [each for each in map(row, range(len(TABLE["SCENES"]))) if each in ROWS] == ROWS


@pytest.mark.parametrize("place", range(len(TABLE["SCENES"])))
def test_a_scene_does_what_its_row_says(place):
    """A fresh run gives the same cells, or three cells that agree and need no row."""
    cells = row(place).strip("| ").split(" | ")[1:]
    assert (row(place) in ROWS) == (len(set(cells)) > 1)


def pytest_generate_tests(metafunc):
    """Play an eleventh of the scenes, each in some graphs; all with `--long`."""
    if "kind" in metafunc.fixturenames:
        cases = [(kind, place) for kind in TABLE["KINDS"] for place in range(len(TABLE["SCENES"]))]
        cases = cases if metafunc.config.getoption("--long") else cases[::11]
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
        assert TABLE["text"](played) == row(place).split(" | ")[3].removesuffix(" |")
