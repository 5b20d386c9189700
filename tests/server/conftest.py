"""Tests that need a server, a process or a package outside the set `dev`: `pytest -m server`."""

from pathlib import Path

import pytest

from support.servers import running_postgres, running_server


def pytest_collection_modifyitems(items):
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server. The tests that use it are in one group, so it is started once."""
    with running_postgres() as started:
        yield started


@pytest.fixture(scope="session")
def dev_server(tmp_path_factory):
    """The URL of a LangGraph Server, for the tests of one group."""
    with running_server(tmp_path_factory.mktemp("server")) as base:
        yield base
