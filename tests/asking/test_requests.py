"""What a patched graph does more often: nothing that a callback shows, and no healthy request.

`scripts/request_table.py` prints all cells.
"""

from collections import Counter
from itertools import cycle, product
from typing import Any

import pytest

from request_table import CUT, EVENTS, FORMS, SHAPES, WAYS, Cell, done_too_often, play

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.needs("v3", langgraph="1.2"),
]

BARE, *PATCHED = FORMS
HEALTHY = ("nothing", "429")
"""Events after which nothing is repaired."""


def pytest_generate_tests(metafunc: Any) -> None:
    """Play each shape with a third of the events, the rest in turn; all with `--long`."""
    if "shape" not in metafunc.fixturenames:
        return
    rows: Any = [*product(SHAPES, EVENTS, WAYS, PATCHED)]
    if not metafunc.config.getoption("--long"):
        others = cycle(product(WAYS, PATCHED))
        pairs = [(s, e) for i, s in enumerate(SHAPES) for e in [*EVENTS][i % 3 :: 3]]
        rows = [(*pair, *next(others)) for pair in pairs]
    metafunc.parametrize(("shape", "event", "way", "form"), rows)


def test_nothing_that_a_callback_shows_is_done_more_often(shape, event, way, form):
    """No cut call runs. A healthy run has the requests, side effects and errors of a bare one."""
    bare, patched = (play(shape, event, way, each) for each in (BARE, form))
    assert done_too_often(bare, patched) == {}
    assert len(patched.raised) <= max(len(bare.raised), 1)
    if event in HEALTHY:
        assert patched == bare


def test_the_comparison_can_fail():
    """A bare agent runs a cut call; what ran twice is named."""
    bare = play("`create_agent`", "cut once", "invoke", BARE)
    assert done_too_often(bare, bare) == {f"mail {CUT}": 1}
    once, twice = (Cell(1, Counter({"mail 1": n, "row 1": n}), ()) for n in (1, 2))
    assert done_too_often(once, twice) == {"mail 1": 2}
    assert str(twice) == "1, mail 2, row 2"
