"""Many threads: listed in pages while they are read, and shared by processes."""

import json
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import open_database, scan_threads
from langgraph_patch._langgraph.address import Address, is_in
from langgraph_patch.errors import OptionError, ThreadError
from langgraph_patch.threads.read import Selection, selected_addresses
from langgraph_patch.threads.stores import tables
from langgraph_patch.threads.undo import find_repairs
from support.databases import execute
from support.stored_threads import stored
from support.thread_laws import fill


def listed(saver, **options):
    """The addresses that a selection has."""
    return [*selected_addresses(saver, Selection(**options))]


# --- pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 7, 79, 80, 81])
def test_a_page_may_end_anywhere(size, path, saver, monkeypatch):
    """Inside of a thread, at a key that sorts oddly or is no text, and at the very end."""
    wanted = fill(saver)
    for key in ("CAST(x'74ff' AS TEXT), ''", "x'00ff', ''", "'a', x'00'"):
        rest = "checkpoint_id, type, checkpoint, metadata"
        source = "checkpoints WHERE thread_id = 'a' AND checkpoint_ns = ''"
        into = f"INSERT INTO checkpoints (thread_id, checkpoint_ns, {rest})"
        execute(path, f"{into} SELECT {key}, {rest} FROM {source}")  # noqa: S608 - our names
    whole = listed(saver)
    odd = [Address("t\udcff"), Address("\x00\udcff"), Address("a", "\x00")]
    assert sorted(whole, key=repr) == sorted([*wanted, *odd], key=repr)
    monkeypatch.setattr(tables, "_PAGE", size)
    assert listed(saver) == whole
    names = sorted({address.thread_id for address in wanted})
    assert listed(saver, thread_ids=names) == [a for a in sorted(whole) if a.thread_id in names]


def test_a_scan_stops_the_listing_where_it_stops(saver, monkeypatch):
    """The first report needs one page, and `--limit` or Ctrl-C no more than what was read."""
    fill(saver)
    monkeypatch.setattr(tables, "_PAGE", 2)
    statements = []
    saver.conn.set_trace_callback(statements.append)
    reports = scan_threads(saver)
    for _ in range(3):
        next(reports)
    pages = [each for each in statements if "DISTINCT" in each]
    assert len(pages) == 2


def test_threads_that_appear_and_go_during_a_scan(saver, monkeypatch):
    """Each thread that was there all the time is reported on once; one that goes is a line."""
    for name in "bdf":
        stored("abandoned", saver=saver, thread_id=name)
    monkeypatch.setattr(tables, "_PAGE", 1)
    found = []
    for report in scan_threads(saver):
        found.append((report.thread_id, report.status))
        if report.thread_id == "b":
            stored("abandoned", saver=saver, thread_id="a")
            stored("abandoned", saver=saver, thread_id="c")
            saver.delete_thread("d")
    assert found == [("b", "damaged"), ("c", "damaged"), ("f", "damaged")]


# --- ids ------------------------------------------------------------------------------------------


def test_a_named_thread_that_is_gone(saver):
    """An error before anything is read; a line of its own where ids may be old."""
    for name in "bd":
        stored("abandoned", saver=saver, thread_id=name)
    with pytest.raises(ThreadError, match="There is no thread 'c'"):
        next(scan_threads(saver, thread_ids=["b", "c"]))
    for name in ("c", "\udcff", "\x00"):
        addresses = listed(saver, thread_ids=["b", name, "d"], may_be_gone=True)
        assert sorted({a.thread_id for a in addresses}) == sorted(["b", name, "d"])
    undone = find_repairs(saver, Selection(["b", "c"], may_be_gone=True))
    assert [(a.thread_id, plan.outcome) for a, plan in undone] == [
        ("b", "refused"),
        ("c", "refused"),
    ]


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


def test_the_pipe_of_the_documentation(path, saver, tmp_path):
    """`xargs` puts ids behind the options."""
    for name in ("b 1", "d"):
        stored("abandoned", saver=saver, thread_id=name)
    (tmp_path / "ids").write_text("b 1\nd\n")
    program = f"{sys.executable} -m langgraph_patch"
    command = (
        f"xargs -d '\\n' {program} repair {shlex.quote(str(path))} --apply --yes --min-age 0 "
        f"< {shlex.quote(str(tmp_path / 'ids'))}"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - our own pipe
    assert (done.returncode, done.stdout.count("repaired")) == (0, 2), done
    assert [report.status for report in scan_threads(saver)] == ["healthy", "healthy"]


@pytest.mark.parametrize(
    "arguments", [("scan", "{}", "--nope", "b"), ("show", "{}", "b", "--all", "c"), ("demo", "x")]
)
def test_what_is_no_id_is_still_an_error(arguments, path, saver, cli):
    """Only ids of threads may follow an option."""
    stored("abandoned", saver=saver)
    code, _, err = cli(*(each.format(path) for each in arguments))
    assert (code, "unrecognized arguments" in err) == (2, True)


# --- shares -----------------------------------------------------------------------------------


@given(st.text(), st.integers(1, 20))
def test_each_thread_is_in_one_share(thread_id, count):
    """Whatever its id is."""
    assert [is_in((number, count), thread_id) for number in range(1, count + 1)].count(True) == 1
    assert is_in(None, thread_id)


def test_a_share_is_always_the_same():
    """In each process and version: these never change."""
    names = [str(number) for number in range(12)]
    shares = [[name for name in names if is_in((n, 3), name)] for n in (1, 2, 3)]
    assert shares == [["1", "3", "8", "11"], ["5"], ["0", "2", "4", "6", "7", "9", "10"]]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_shares_are_the_whole(kind, saver):
    """All of them together list each history once; named threads too."""
    own = InMemorySaver() if kind == "memory" else saver
    wanted = fill(own)
    shares = [listed(own, shard=(number, 4)) for number in (1, 2, 3, 4)]
    assert all(shares)
    assert sorted(a for share in shares for a in share) == wanted
    names = ["a", "b", "co-op"]
    named = [listed(own, thread_ids=names, shard=(n, 2)) for n in (1, 2)]
    assert sorted(a for share in named for a in share) == listed(own, thread_ids=names)


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
    monkeypatch.setattr("langgraph_patch.threads.read.time.sleep", waited.append)
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
