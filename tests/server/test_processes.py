"""Processes that are killed, or whose reader stops reading."""

import subprocess
import sys
from pathlib import Path

import pytest

from langgraph_patch import validate_messages
from langgraph_patch.threads import repair_thread, undo_repair
from langgraph_patch.threads.opening import open_database
from support.databases import open_saver, rows_of
from support.paths import ENVIRONMENT
from support.stored_threads import results, scanned, stored, thread
from support.thread_laws import NOW

REPAIRS = """
import os, shutil, signal, sqlite3, sys
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph_patch.threads import repair_thread
from support.stored_threads import thread

[database] = sys.argv[1:]

def repair(path, fatal):
    conn = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(conn)
    saver.setup()
    statements = []

    def count(statement):
        statements.append(statement)
        if len(statements) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    conn.set_trace_callback(count)
    repair_thread(saver, thread(), min_age=0, on_pause="abandon")
    return len(statements)

for fatal in range(1, repair(shutil.copy(database, f"{database}.0"), 0) + 1):
    path = shutil.copy(database, f"{database}.{fatal}")
    child = os.fork()
    if child == 0:
        repair(path, fatal)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""

STORED = """
import os, signal, sys
from langgraph.checkpoint.sqlite import SqliteSaver
from support.stored_threads import stored
with SqliteSaver.from_conn_string(sys.argv[1]) as saver:
    stored("abandoned", saver=saver)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(code, *arguments):
    """Run Python code in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, check=False, capture_output=True)  # noqa: S603 - our own code


@pytest.mark.parametrize(("kind", "way"), [("agent", "abandoned"), ("delta", "killed")])
def test_a_repair_that_is_killed_at_any_statement(kind, way, tmp_path):
    """The thread is unchanged or repaired; the next repair repairs it once, and can be undone."""
    path = tmp_path / "db"
    with open_saver(str(path)) as saver:
        stored(way, kind, saver)
    before = rows_of(str(path))["1"]
    done = run(REPAIRS, path)
    assert done.returncode == 0, done.stderr
    added = []
    for copy in (each for each in tmp_path.iterdir() if each.suffix[1:].isdigit()):
        added.append(len(rows_of(str(copy))["1"] - before))
        with open_saver(str(copy)) as saver:
            made = stored("new", kind, saver)
            assert repair_thread(saver, thread(), **NOW).outcome in ("repaired", "healthy")
            assert results(made.history)[0] == "sent to bob"
            assert validate_messages(made.history) == []
            assert len(rows_of(str(copy))["1"] - before) == 1
            undo_repair(saver, thread())
        assert rows_of(str(copy))["1"] == before
    assert len(added) > 5
    assert set(added) == {0, 1}


@pytest.mark.parametrize("is_copy", [False, True])
def test_c5_the_log_of_a_process_that_was_killed(is_copy, tmp_path):
    """It is read. Where Python can, the file and the log stay; a copy leaves no file behind."""
    path = tmp_path / "db"
    run(STORED, path)
    if is_copy:
        Path(f"{path}-shm").unlink()

    def files():
        return {
            each.name: each.read_bytes() for each in tmp_path.iterdir() if "-shm" not in each.name
        }

    before = files()
    assert [*sorted(before)] == ["db", "db-wal"]
    with open_database(str(path)) as saver:
        assert scanned(saver) == [("1", "damaged")]
    if is_copy or sys.version_info < (3, 12):
        assert [*files()] == ["db"]
    else:
        assert files() == before


def test_a_reader_may_stop_reading(tmp_path):
    """A pipe that is closed is no error."""
    path = tmp_path / "db"
    with open_saver(str(path)) as saver:
        stored("abandoned", saver=saver)
    shell = f"{sys.executable} -m langgraph_patch scan '{path}' --json | true; exit $PIPESTATUS"
    bash = ["/bin/bash", "-c", shell]
    done = subprocess.run(bash, capture_output=True, check=False, env=ENVIRONMENT)  # noqa: S603 - our own
    assert (done.returncode, b"Traceback" in done.stderr) == (141, False)
