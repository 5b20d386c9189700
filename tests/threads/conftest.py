"""Databases for the tests of stored threads: SQLite, or PostgreSQL where a test asks for it."""

import pytest

from support.broken_threads import ways
from support.databases import POSTGRES_TABLES, execute, open_saver, running_postgres
from support.stored_threads import Incident


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, started once."""
    with running_postgres() as started:
        yield started


@pytest.fixture(scope="session")
def shared(server):
    """The PostgreSQL database that most tests use, one after the other."""
    return server.make()


@pytest.fixture
def postgres_path(shared):
    """The URI of an empty PostgreSQL database."""
    execute(shared, f"TRUNCATE {', '.join(POSTGRES_TABLES)}")
    return shared


@pytest.fixture
def path(request, tmp_path):
    """The path of a new SQLite file, or the URI of an empty PostgreSQL database."""
    if getattr(request, "param", "sqlite") == "postgres":
        return request.getfixturevalue("postgres_path")
    return str(tmp_path / "threads.sqlite")


@pytest.fixture
def saver(path):
    """A checkpointer over the empty database."""
    with open_saver(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def incident(request, tmp_path_factory):
    """One thread for every way and kind of agent; with `--long`, 2,000 threads."""
    count = 2000 if request.config.getoption("--long", default=False) else len(ways())
    if getattr(request, "param", "sqlite") == "postgres":
        return Incident(request.getfixturevalue("server").make(), count)
    return Incident(str(tmp_path_factory.mktemp("incident") / "threads.sqlite"), count)
