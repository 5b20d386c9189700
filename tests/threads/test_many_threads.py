"""Many threads: listed in pages while they are read, and shared by processes."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import open_database, scan_threads
from langgraph_patch.errors import OptionError
from support.stored_threads import stored

# --- ids ------------------------------------------------------------------------------------------


def test_ids_on_the_input_may_be_old(path, saver, cli, monkeypatch):
    """`--thread -`: a thread that is gone meanwhile is one line, and the others are done."""
    for name in "bd":
        stored("abandoned", saver=saver, thread_id=name)
    monkeypatch.setattr(sys, "stdin", iter(["b\n", "c\n", "d\n"]))
    code, out, _ = cli("scan", path, "--thread", "-", "--json")
    assert code == 3
    lines = [json.loads(line) for line in out.splitlines()][:-1]
    assert [(each["thread_id"], each["status"]) for each in lines] == [
        ("b", "damaged"),
        ("c", "unreadable"),
        ("d", "damaged"),
    ]
    assert lines[1]["reason"] == "there is no such thread: deleted, or spelled otherwise"
    assert cli("scan", path, "b", "c")[0] == 2


# --- shares -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shard", [(0, 16), (17, 16), (1, 0), (1,), (1, 2, 3), [1, 2], "1/2", (1.0, 2), (True, 2)]
)
def test_a_share_that_is_none(shard):
    """The error says what was expected."""
    with pytest.raises(OptionError, match="expected the number of a share and of how many"):
        scan_threads(InMemorySaver(), shard=shard)


def test_the_command_line_takes_a_share(path, saver, cli):
    """`--shard 3/16`, for a scan, a repair and an undo."""
    for number in range(12):
        stored("abandoned", saver=saver, thread_id=str(number))
    found = []
    for share in ("1/3", "2/3", "3/3"):
        code, out, _ = cli("repair", path, "--all", "--apply", "--yes", "--min-age", "0", "--json",
                           "--shard", share)  # fmt: skip
        assert code == 0
        found.append(out.count('"outcome": "repaired"'))
    assert found == [4, 1, 7]
    assert cli("undo", path, "--all", "--apply", "--yes", "--quiet", "--shard", "2/3")[0] == 0
    assert cli("scan", path, "--quiet", "--shard", "1/3")[0] == 0
    assert cli("scan", path, "--quiet", "--shard", "2/3")[0] == 1
    for wrong in ("0/3", "4/3", "3", "x/3", "1/0", "-1/3"):
        code, _, err = cli("scan", path, f"--shard={wrong}")
        assert (code, "such as 3/16" in err) == (2, True)


def test_a_rate_waits_between_histories(path, saver, cli, monkeypatch):
    """And nothing waits without one."""
    for name in "abc":
        stored("abandoned", saver=saver, thread_id=name)
    waited = []
    monkeypatch.setattr("langgraph_patch.threads.selection.time.sleep", waited.append)
    cli("scan", path)
    assert waited == []
    cli("scan", path, "--rate", "50")
    assert waited == [0.02] * 3
    for command in (("scan", path, "--since", "0s"), ("undo", path, "--all")):
        waited.clear()
        cli(*command, "--rate", "50")
        assert waited == [0.02] * 3, "also between those that are left out"


OWN = """
from contextlib import contextmanager
from langgraph.checkpoint.sqlite import SqliteSaver

def opened():
    return SqliteSaver.from_conn_string({path!r})

with opened() as one:
    pass

def made():
    import sqlite3
    return SqliteSaver(sqlite3.connect({path!r}, check_same_thread=False))

def wrong():
    return 7

def fails():
    raise ValueError("no such service")
"""


def test_a_checkpointer_of_ones_own(path, saver, cli, tmp_path):
    """What a function returns: a context manager or a checkpointer; `next` commands name it too."""
    stored("abandoned", saver=saver)
    module = tmp_path / "own.py"
    module.write_text(OWN.format(path=str(path)))
    for name in ("opened", "made"):
        code, out, err = cli("scan", f"saver:{module}:{name}")
        assert (code, "damaged" in out) == (1, True)
        assert f"langgraph-patch show saver:{module}:{name} 1" in err
    done = cli("repair", f"saver:{module}:opened", "1", "--apply", "--yes", "--min-age", "0")
    assert (done[0], "repaired" in done[1]) == (0, True)
    for name, text in {
        "wrong": "expected a checkpointer",
        "fails": "no such service",
        "nope": "cannot be loaded",
    }.items():
        code, _, err = cli("scan", f"saver:{module}:{name}")
        assert (code, text in err) == (2, True), err
    code, _, err = cli("scan", f"saver:{module}:made", "--serde", "x:y")
    assert (code, "for databases only" in err) == (2, True)


def test_a_statement_timeout_is_for_postgresql(path, saver, cli):
    """An error where nothing could keep it."""
    stored("abandoned", saver=saver)
    code, _, err = cli("scan", path, "--statement-timeout", "5min")
    assert (code, "statement_timeout is for PostgreSQL only" in err) == (2, True)
    with open_database(path) as opened:
        assert [report.status for report in scan_threads(opened)] == ["damaged"]
    for wrong in (5, timedelta(0), "1min"):
        with pytest.raises(OptionError, match="expected a timedelta above 0"):
            open_database("postgresql://h/d", statement_timeout=wrong)
    for target in (None, Path("threads.sqlite"), b"x"):
        with pytest.raises(OptionError, match="the URI of a database, as a text"):
            open_database(target)
