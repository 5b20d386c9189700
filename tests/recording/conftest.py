"""Fixtures of the tests of recording."""

import pytest

from support.recorded_agents import Runs, World


@pytest.fixture(params=["sync", "async"])
def runs_mode(request):
    """Threads or an event loop."""
    return request.param


@pytest.fixture(params=["memory", "sqlite"])
def runs(runs_mode, request):
    """Runs a scenario over each checkpointer, by threads and in an event loop."""
    return Runs(runs_mode, request.param)


@pytest.fixture
def world():
    """Where tools leave their traces."""
    return World()
