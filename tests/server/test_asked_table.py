"""Threads whose pictures, order of roles or end are refused, on servers of the providers.

`scripts/asked_table.py` prints how many requests each turn takes.
"""

import pytest

from asked_table import SERVERS, turns
from support.asked import STATES
from support.refused import PLACES


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("place", [place for place in PLACES if place != "bare"])
def test_each_place_does_the_same(place, server):
    """A thread lives from its first turn on; with a picture in the newest message from the next."""
    for state in STATES:
        found = turns(place, server, state)
        assert found == turns("create_agent", server, state)
        assert 0 not in found[1:]
        assert found[0] or state == "a picture in the newest message"
