"""A SQLite file for the tests of stored threads."""

import pytest

from support.databases import open_saver


@pytest.fixture
def path(tmp_path):
    """The path of a new SQLite file."""
    return str(tmp_path / "threads.sqlite")


@pytest.fixture
def saver(path):
    """A checkpointer over that file."""
    with open_saver(path) as opened:
        yield opened
