"""What an operator lives through: an incident, Ctrl-C, and connections that are cut.

`PYTHONPATH=tests python tests/server/test_operators.py` does it at more moments, and prints what
happened.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command

from langgraph_patch.cli import main
from support.databases import execute, open_saver, rows_of
from support.servers import Proxy, ctrl_c_after, running_postgres
from support.stored_threads import results, thread
from support.thread_laws import BROKEN, make_incident, say

pytestmark = pytest.mark.xdist_group("postgres")

APPLY = ("--apply", "--yes", "--json")
REPAIR = ("repair", "--all", *APPLY, "--min-age", "0")


def run(database: str, command: str, *arguments: str) -> tuple[int, list[Any], str]:
    """Run the command line; its code, the objects that it printed, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([command, database, *arguments])
    return code, [*map(json.loads, out.getvalue().splitlines())], err.getvalue()


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server."""
    with running_postgres() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """A new database."""
    if request.param == "sqlite":
        return str(tmp_path / "threads.sqlite")
    return request.getfixturevalue("server").make()


# --- an incident -----------------------------------------------------------------------------


def test_an_incident_without_any_code_of_the_application(database):
    """200 threads: scan, dry run, repair, undo, repair; all go on, pauses take their answers."""
    with open_saver(database) as saver:
        if hasattr(saver, "setup"):
            saver.setup()
        agents = make_incident(saver)
        before = rows_of(database)
        code, [*found, totals], _ = run(database, "scan", "--json")
        counted = totals["totals"]
        assert (code, len(found)) == (1, 67)
        assert [counted[each] for each in ("histories", "damaged", "paused", "healthy")] == [
            *(200, 60, 7, 133)
        ]
        code, planned, _ = run(database, "repair", "--all", "--json", "--min-age", "0")
        assert (code, Counter(each["outcome"] for each in planned)["planned"]) == (1, 60)
        assert rows_of(database) == before
        code, done, err = run(database, *REPAIR)
        assert (code, Counter(e["outcome"] for e in done)) == (0, {"repaired": 60, "paused": 7})
        assert run(database, "scan", "--json")[0] == 0
        code, undone, err = run(database, "undo", "--all", *APPLY)
        assert (code, len(undone), "60 undone" in err) == (0, 60, True)
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
            else:
                assert rows_of(database)[name] == before[name]


# --- Ctrl-C ----------------------------------------------------------------------------------


def check_ctrl_c(database: str, seconds: float, agents: Any) -> str:
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
    return f"{seconds:.2f} s: exit code {code}, {len(repaired)} repaired, then {len(names)} more"


def test_e1_ctrl_c_at_any_moment(database):
    """The thread at hand is done, the code is 130, and the same command goes on."""
    with open_saver(database) as saver:
        saver.setup()
        agents = make_incident(saver, each=4, paused=2, healthy=6)
    began = time.monotonic()
    run(database, *REPAIR)
    whole = time.monotonic() - began
    run(database, "undo", "--all", *APPLY)
    codes = [check_ctrl_c(database, whole * part / 6, agents) for part in range(1, 6)]
    assert any("code 130" in each for each in codes)


# --- cut connections -------------------------------------------------------------------------


@contextmanager
def through_proxy(server: Any, database: str):
    """The URI of a database through a proxy."""
    path = f"{server.socket}/.s.PGSQL.5432"
    proxy = Proxy(path)
    name = database.partition("?")[0].rpartition("/")[2]
    try:
        yield proxy, f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable"
    finally:
        proxy.close()


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
    return f"exit code 2, {len(printed)} written, {len(changed - printed)} more and named"


def told(code: int, done: Any) -> tuple[int, list[Any]]:
    """What a command says of each thread, without the times."""
    facts = ("thread_id", "status", "outcome", "changes")
    return code, [[each.get(fact) for fact in facts] for each in done]


COMMANDS: dict[str, Any] = {
    "scan": ("scan", "--json"),
    "repair": REPAIR,
    "undo": ("undo", "--all", *APPLY),
}


def check_cuts(server: Any, database: str, count: int, step: int = 1) -> dict[str, Counter[str]]:
    """Cut each command at its last messages; afterwards the threads can be repaired and undone."""
    found: dict[str, Counter[str]] = {name: Counter() for name in COMMANDS}
    with through_proxy(server, database) as (proxy, uri):
        for name, command in COMMANDS.items():
            begin = REPAIR if name == "undo" else COMMANDS["undo"]
            run(database, *begin)
            proxy.seen = 0
            code, done, _ = run(uri, *command)
            whole, last = told(code, done), proxy.seen
            for moment in range(max(1, last - count), last, step):
                run(database, *begin)
                found[name][check_cut(proxy, uri, database, command, moment, whole=whole)] += 1
    assert run(database, *REPAIR)[0] == 0
    return found


def test_e3_e5_connections_that_are_cut(server):
    """A lost database is never read as damage, and a thread that may be written is named."""
    database = server.make()
    with open_saver(database) as saver:
        saver.setup()
        make_incident(saver, each=1, paused=1, healthy=1)
    found = check_cuts(server, database, 50, step=3)
    assert all(sum(each.values()) == 17 for each in found.values())
    assert all(each["ended before"] < 6 for each in found.values())  # messages may be joined
    assert any("1 more and named" in each for name in ("repair", "undo") for each in found[name])


def _print_all() -> None:
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        for database in (str(Path(folder) / "db"), server.make()):
            with open_saver(database) as saver:
                saver.setup()
                agents = make_incident(saver)
            began = time.monotonic()
            run(database, *REPAIR)
            whole = time.monotonic() - began
            run(database, "undo", "--all", *APPLY)
            for part in range(1, 21) if "cuts" not in sys.argv else ():
                sys.stderr.write(f"{check_ctrl_c(database, whole * part / 20, agents)}\n")
        execute(
            database,
            "DELETE FROM checkpoints WHERE thread_id LIKE '%-0%' AND thread_id NOT LIKE '%-000'",
        )
        for name, counted in check_cuts(server, database, 50).items():
            for what, count in counted.items():
                sys.stderr.write(f"{name}: {count} x {what}\n")


if __name__ == "__main__":
    _print_all()
