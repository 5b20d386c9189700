"""Threads whose pictures, order of roles or end are refused, on servers of the providers."""

import pytest

import asked_table
from support.asked import STATES
from support.asked_servers import SERVERS, turns
from support.paths import PAGES
from support.refused import PLACES

PAGE = PAGES["refused"].read_text("utf-8").splitlines()


@pytest.mark.parametrize("state", STATES)
def test_the_page_has_what_the_script_prints(state):
    """Each cell was measured: `python scripts/asked_table.py` prints them anew."""
    assert asked_table.HEAD in PAGE
    assert asked_table.row(state) in PAGE


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "bare"])
def test_each_place_does_the_same(place, server):
    """A thread lives from its first turn on; with a picture in the newest message from the next."""
    for state in STATES:
        found = turns(place, server, state)
        assert found == turns("create_agent", server, state)
        assert 0 not in found[1:]
        assert found[0] or state == "a picture in the newest message"
