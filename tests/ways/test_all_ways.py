"""Every way of a thread: nothing false, nothing twice, nothing lost, nothing that is not run."""

from itertools import cycle

import pytest

from ways.graphs import EVENTS, KINDS, MODES
from ways.laws import Reference, as_test, ways

pytestmark = pytest.mark.needs(langgraph="1.2")

COUNTS = {**dict.fromkeys(KINDS, 53), "create_agent": 49, "approval": 60}
"""How many ways of up to two events there are in each kind of graph, without one of the letters."""

BUT = dict(zip(KINDS, cycle("rp")))
"""What is left out of two events: of the two refusals each kind of graph has one."""


def pytest_generate_tests(metafunc):
    """Play each way of two events on six graphs, strict and lenient in turn.

    With `--long` each of three events on seven, in both; those with one first event are together.
    """
    if "first" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--long")
        firsts = [letter for letter in EVENTS if letter not in "yn"] if is_long else [""]
        cases = [(kind, mode, first) for kind in KINDS for mode in MODES for first in firsts]
        if not is_long:
            cases = [case for n, case in enumerate(cases) if n % 4 in {0, 3}]
            cases = [case for case in cases if case[0] != "gate, recorded"]
        metafunc.parametrize(("kind", "mode", "first"), cases)


def test_every_way_of_a_thread(kind, mode, first):
    """The shortest way that breaks a law is printed as a test."""
    right = Reference(kind)
    found = list(ways(kind, mode, right, 3 if first else 2, first, but="" if first else BUT[kind]))
    broken = min((way for way in found if way.laws), key=lambda way: len(way.word), default=None)
    assert broken is None, as_test(kind, mode, broken)
    assert len(found) == COUNTS[kind] if not first else first == "i" or len(found) > 50
