"""The compatibility page says which versions have bugs; the versions of the tests have none."""

import pytest

import langgraph_bugs


@pytest.mark.parametrize("check", langgraph_bugs.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_pinned_versions_have_none_of_the_bugs(check):
    """What the page says of the newest versions."""
    assert langgraph_bugs.result(check) == "no"
