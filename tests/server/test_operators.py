"""What an operator lives through: an incident, Ctrl-C, and connections that are cut.

With `--long`, each happens at more moments.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from contextlib import closing, redirect_stderr, redirect_stdout
from typing import Any

import pytest
from langgraph.types import Command

from langgraph_patch.cli import main
from support.databases import open_saver, rows_of
from support.servers import Proxy, ctrl_c_after
from support.stored_threads import results, thread
from support.thread_laws import BROKEN, make_incident, say

POSTGRES = pytest.mark.xdist_group("postgres")
APPLY = ("--apply", "--yes", "--json")
REPAIR = ("repair", "--all", *APPLY, "--min-age", "0")


def run(database: str, command: str, *arguments: str) -> tuple[int, list[Any], str]:
    """Run the command line; its code, the objects that it printed, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([command, database, *arguments])
    return code, [*map(json.loads, out.getvalue().splitlines())], err.getvalue()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=POSTGRES)])
def database(request, tmp_path):
    """A new database."""
    if request.param == "sqlite":
        return str(tmp_path / "threads.sqlite")
    return request.getfixturevalue("postgres").make()


# --- an incident -----------------------------------------------------------------------------


def test_an_incident_without_any_code_of_the_application(database, pytestconfig):
    """Scan, dry run, repair, undo, repair; all threads go on, pauses take their answers.

    With `--long`, of 200 threads.
    """
    each, paused, healthy = (10, 7, 133) if pytestconfig.getoption("--long") else (2, 2, 6)
    damaged = len(BROKEN) * each
    with open_saver(database) as saver:
        saver.setup()
        agents = make_incident(saver, each=each, paused=paused, healthy=healthy)
        before = rows_of(database)
        code, [*found, totals], _ = run(database, "scan", "--json")
        counted = totals["totals"]
        assert (code, len(found)) == (1, damaged + paused)
        assert [counted[each] for each in ("histories", "damaged", "paused", "healthy")] == [
            *(len(agents), damaged, paused, healthy)
        ]
        code, planned, _ = run(database, "repair", "--all", "--json", "--min-age", "0")
        assert (code, Counter(e["outcome"] for e in planned)["planned"]) == (1, damaged)
        assert rows_of(database) == before
        code, done, _ = run(database, *REPAIR)
        outcomes = Counter(e["outcome"] for e in done)
        assert (code, outcomes) == (0, {"repaired": damaged, "paused": paused})
        assert run(database, "scan", "--json")[0] == 0
        code, undone, err = run(database, "undo", "--all", *APPLY)
        assert (code, len(undone), f"{damaged} undone" in err) == (0, damaged, True)
        assert rows_of(database) == before
        assert run(database, *REPAIR)[0] == 0
        for name in agents:
            kind = name.partition("-")[0]
            if kind in BROKEN:
                assert say(agents, name, "next")[-1].type in ("ai", "tool")  # it is not refused
            elif kind == "paused":
                agents[name].config = thread(name)
                agents[name].run(Command(resume="yes"))
                assert results(agents[name].history) == ["sent to bob", "wired 5: yes"]
        rows = rows_of(database)
        assert all(rows[name] == before[name] for name in agents if name.startswith("healthy"))


# --- Ctrl-C ----------------------------------------------------------------------------------


def check_ctrl_c(database: str, seconds: float, agents: Any) -> int:
    """Press Ctrl-C during a repair; every printed line is true, and the same command resumes."""
    before = rows_of(database)
    with ctrl_c_after(seconds):
        code, done, err = run(database, *REPAIR)
        time.sleep(0)
    now = rows_of(database)
    repaired = {each["thread_id"] for each in done if each["outcome"] == "repaired"}
    assert {each["outcome"] for each in done} <= {"repaired", "paused"}, done
    assert {name for name in now if now[name] != before[name]} == repaired, err
    assert code in (130, 0)
    assert (code == 130) == ("stopped by Ctrl-C" in err)
    rest = run(database, *REPAIR)
    assert rest[0] == 0
    names = {each["thread_id"] for each in rest[1] if each["outcome"] == "repaired"}
    assert repaired | names == {each for each in agents if each.partition("-")[0] in BROKEN}
    assert run(database, "undo", "--all", *APPLY)[0] == 0
    assert rows_of(database) == before
    return code


def test_ctrl_c_at_any_moment(database, pytestconfig):
    """The thread at hand is done, the code is 130, and the same command goes on."""
    with open_saver(database) as saver:
        saver.setup()
        agents = make_incident(saver, each=3, paused=1, healthy=2)
    began = time.monotonic()
    run(database, *REPAIR)
    whole = time.monotonic() - began
    run(database, "undo", "--all", *APPLY)
    parts = 20 if pytestconfig.getoption("--long") else 4
    moments = (whole * part / parts for part in range(1, parts))
    assert 130 in [check_ctrl_c(database, moment, agents) for moment in moments]


# --- cut connections -------------------------------------------------------------------------


def check_cut(
    proxy: Any, uri: str, database: str, command: Any, cut_at: int, *, whole: object
) -> str:
    """Cut a connection; the code is 2, what is printed is true, what may be written is named.

    A connection that is cut while it is closed may end as `whole`: then all that it says is done.
    """
    before = rows_of(database)
    proxy.seen, proxy.cut_at = 0, cut_at
    code, done, err = run(uri, *command)
    proxy.cut_at = 0
    now = rows_of(database)
    changed = {name for name in now if now[name] != before[name]}
    printed = {e["thread_id"] for e in done if e.get("outcome") in ("repaired", "undone")}
    if proxy.seen < cut_at or told(code, done) == whole:
        assert changed == printed, (changed, printed, err)
        return "ended before"
    named = {name for name in now if f"May have been written: thread '{name}'" in err}
    assert (code, "Traceback" in err) == (2, False), err
    assert printed <= changed <= printed | named, (changed, printed, named, err)
    assert not {e.get("outcome") for e in done} & {"refused", "unreadable"}
    assert all(e.get("status") != "unreadable" for e in done)
    return "written and named" if changed - printed else "written and printed"


def told(code: int, done: Any) -> tuple[int, list[Any]]:
    """What a command says of each thread, without the times."""
    facts = ("thread_id", "status", "outcome", "changes")
    return code, [[each.get(fact) for fact in facts] for each in done]


@POSTGRES
def test_connections_that_are_cut(postgres, pytestconfig):
    """A lost database is never read as damage, and a thread that may be written is named."""
    database = postgres.make()
    scan, undo = ("scan", "--json"), ("undo", "--all", *APPLY)
    with open_saver(database) as saver:
        saver.setup()
        make_incident(saver, each=1, paused=1, healthy=1)
    ends = Counter()
    with closing(Proxy(f"{postgres.socket}/.s.PGSQL.5432")) as proxy:
        name = database.partition("?")[0].rpartition("/")[2]
        uri = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
        for command in (scan, REPAIR, undo):
            begin = REPAIR if command is undo else undo
            run(database, *begin)
            proxy.seen = 0
            code, done, _ = run(uri, *command)
            whole, last = told(code, done), proxy.seen
            found = Counter()
            moments = range(last - 50, last)
            for part in range(7):  # few moments are between a write and its answer
                is_enough = command is scan or (ends | found)["written and named"]
                if part and is_enough and not pytestconfig.getoption("--long"):
                    break
                for moment in moments[part::7]:
                    if command is not scan:
                        run(database, *begin)
                    found[check_cut(proxy, uri, database, command, moment, whole=whole)] += 1
            assert found["ended before"] < found.total() / 3  # messages may be joined
            ends += found
    assert ends["written and named"]
    assert run(database, *REPAIR)[0] == 0
