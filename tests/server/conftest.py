"""Tests that need a server, a process or a package outside the set `dev`: `pytest -m server`."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.server)
