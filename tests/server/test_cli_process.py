"""The command line as a process: its reader stops reading, or it is killed."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from kit import Agent, calls, loop, send_each
from support.paths import ENVIRONMENT

KILLED = """
import os, signal, sys
from langgraph.checkpoint.sqlite import SqliteSaver
put = SqliteSaver.put
def killed(self, config, *args):
    place = put(self, config, *args)
    if config["configurable"]["thread_id"] == "2":
        os.kill(os.getpid(), signal.SIGKILL)
    return place
SqliteSaver.put = killed
from langgraph_patch.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def path(tmp_path):
    """A database with three broken threads."""
    file = str(tmp_path / "threads.sqlite")
    for thread_id in ("1", "2", "3"):
        with SqliteSaver.from_conn_string(file) as saver:
            script = calls(("mail", {"to": "bob"}), ("wire", {"amount": 3}))
            agent = Agent(
                lambda model, tools, saver: loop(model, tools, router=send_each).compile(saver),
                script,
                saver=saver,
            )
            agent.config = {"configurable": {"thread_id": thread_id}}
            agent.say("go")
            with suppress(ValueError):
                agent.say("never mind")
    return file


def rows_of(path):
    """Every row of the database."""
    with closing(sqlite3.connect(path)) as conn:
        return [set(conn.execute(f"SELECT * FROM {name}")) for name in ("checkpoints", "writes")]  # noqa: S608 - our names


def test_what_a_killed_process_wrote_can_be_undone(cli, path):
    """Killed directly after a write: each repair is written as a whole, and has its mark."""
    before = rows_of(path)
    how = ["repair", path, "--all", "--min-age", "0", "--apply", "--yes"]
    done = subprocess.run([sys.executable, "-c", KILLED, *how], check=False, env=ENVIRONMENT)  # noqa: S603 - our own
    assert done.returncode == -signal.SIGKILL
    assert [row.split("\t")[0] for row in cli("scan", path)[1].splitlines()[1:]] == ["3"]
    assert cli("undo", path, "--all", "--apply", "--yes")[0] == 0
    assert rows_of(path) == before


def test_a_reader_may_stop_reading(path):
    """A pipe that is closed is no error."""
    shell = f"{sys.executable} -m langgraph_patch scan '{path}' --json | true; exit $PIPESTATUS"
    bash = ["/bin/bash", "-c", shell]
    done = subprocess.run(bash, capture_output=True, check=False, env=ENVIRONMENT)  # noqa: S603 - our own
    assert (done.returncode, b"Traceback" in done.stderr) == (141, False)
