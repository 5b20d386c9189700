"""The database of the command-line tests."""

import sys

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import langgraph_patch.cli.output
from support.agents import both_calls, thread
from support.broken_threads import answer, application, say, silent


@pytest.fixture(autouse=True)
def own_import_path(monkeypatch):
    """The command line adds the folder of `--graph` to the import path: only for this test."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def path(tmp_path):
    """A database: a broken thread, a healthy one, a paused one."""
    made = str(tmp_path / "threads.sqlite")
    with SqliteSaver.from_conn_string(made) as saver:
        for thread_id in ("broken", "paused"):
            say(application("react_v2", saver, both_calls()), thread(thread_id), "go")
        say(silent("react_v2", saver), thread("broken"), "never mind")
        say(application("react_v2", saver, answer()), thread("healthy"), "go")
    return made


@pytest.fixture
def on_terminal(monkeypatch):
    """Standard output is a terminal of a width; colours only if asked for."""

    def use(columns, *, colours=False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(langgraph_patch.cli.output, "_renderers", [])
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm-256color" if colours else "dumb")
        monkeypatch.delenv("NO_COLOR", raising=False)

    return use
