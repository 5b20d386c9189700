"""`langgraph-patch repair` and `undo`: what is written, and what is printed."""

import io
import json
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

import langgraph_patch.cli.repair
from langgraph_patch.cli.main import main
from langgraph_patch.threads import repair_thread, scan_threads
from support.agents import both_calls, human, thread
from support.broken_threads import application, kind_of, ways_of
from support.databases import copy_thread, rows_of
from support.paths import TESTS
from support.strict import ai


class Customer(BaseModel):
    """A class of an application."""

    name: str


def rows_in(out):
    """The rows of a plain table, without its head: thread, repair, outcome."""
    return [re.split(r" {2,}", line) for line in out.splitlines()[1:]]


def outcomes_in(out):
    """The outcome of each thread."""
    return {row[0]: row[-1] for row in rows_in(out)}


def statuses(path):
    """What a scan finds now."""
    with SqliteSaver.from_conn_string(path) as saver:
        return {report.thread_id: report.status for report in scan_threads(saver)}


# --- what is written ---------------------------------------------------------------------


def test_repair_is_a_dry_run_unless_applied(cli, path, graph_file):
    """Without --apply nothing is written, the plan is printed, and the exit code is 1."""
    before = rows_of(path)
    code, out, err = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0)
    assert code == 1
    assert rows_in(out) == [
        [
            "broken",
            (
                "recovers 1 result, adds 1 placeholder (send_email: result recorded, wire_money: "
                "awaiting_input)"
            ),
            "planned",
        ],
        [
            "paused",
            "it waits for a human: answer it, or abandon the pause (on_pause='abandon')",
            "paused",
        ],
    ]
    assert "1 healthy, 1 paused, 1 planned. Nothing was written" in err
    assert rows_of(path) == before


def test_repair_apply_repairs_and_a_second_scan_is_clean(cli, path, graph_file):
    """Exit code 0; then the scan is clean, and the pause still takes its resume."""
    code, out, _ = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0, "--apply")
    assert (code, outcomes_in(out)) == (0, {"broken": "repaired", "paused": "paused"})
    assert cli("scan", path)[0] == 0
    with SqliteSaver.from_conn_string(path) as saver:
        on = application("react_v2", saver, AIMessage("fine"), AIMessage("fine"))
        assert on.invoke({"messages": [human("x")]}, thread("broken"))["messages"][-1].text
        resumed = on.invoke(Command(resume=kind_of("react_v2").yes), thread("paused"))
        assert [m.text for m in resumed["messages"][-3:]] == ["sent to bob", "wired: yes", "fine"]


@pytest.mark.slow
def test_repair_all_repairs_a_whole_incident(cli, tmp_path, graph_file):
    """Every way in which a thread of one application broke: scan, repair, scan."""
    path = str(tmp_path / "incident.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        evidence = {
            name: way("react_v2", saver, thread(name))[0] for name, way in ways_of("react_v2")
        }
    found = [json.loads(line) for line in cli("scan", path, "--json")[1].splitlines()]
    assert {line["thread_id"]: line["status"] for line in found} == {
        name: status for name, status in evidence.items() if status != "healthy"
    }
    done = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0, "--apply")
    repaired = [name for name, outcome in outcomes_in(done[1]).items() if outcome == "repaired"]
    assert (done[0], len(repaired)) == (0, list(evidence.values()).count("damaged"))
    assert cli("scan", path)[0] == 0


def test_repair_of_named_threads_leaves_the_others(cli, path, graph_file):
    """Only the named threads are read; `abandon` repairs a pause."""
    how = ("--graph", graph_file, "--min-age", 0, "--apply", "--on-pause", "abandon")
    code, out, _ = cli("repair", path, "paused", *how)
    assert (code, outcomes_in(out)) == (0, {"paused": "repaired"})
    assert statuses(path)["broken"] == "damaged"


def test_a_wrong_id_is_noticed_before_anything_is_written(cli, path, graph_file):
    """All ids are checked first, also those that sort behind the others; the error names them."""
    before = rows_of(path)
    how = ("repair", path, "broken", "zzz", "zz\udcff", "--graph", graph_file, "--min-age", 0)
    code, out, err = cli(*how, "--apply")
    assert (code, out, rows_of(path) == before) == (2, "", True)
    assert err == ("langgraph-patch: There is no thread 'zzz', 'zz\\udcff': nothing was done.\n")


def test_a_serializer_of_yours_decides_alone_what_is_loaded(cli, path, graph_file):
    """Beside it `--trust` would do nothing, and its message would come again and again."""
    how = ("repair", path, "broken", "--graph", graph_file, "--trust", "decimal:Decimal")
    code, out, err = cli(*how, "--serde", "no_such_module:serde")
    assert (code, out) == (2, "")
    assert err == (
        "langgraph-patch: --trust is not used with --serde: your serializer decides what to load.\n"
    )


def test_threads_may_stand_behind_options(cli, path, graph_file):
    """Options may come before or after a thread's name; after `--` it may begin with `-`."""
    with SqliteSaver.from_conn_string(path) as saver:
        broken = saver.get_tuple(thread("broken")).checkpoint
        place = {"thread_id": "-x", "checkpoint_ns": ""}
        saver.put({"configurable": place}, broken, {}, {})
    how = ("--min-age", 0, "--graph", graph_file)
    for arguments, named in (
        (["repair", path, *how, "broken"], ["broken"]),
        (["repair", path, *how, "--", "-x"], ["-x"]),
        (["repair", path, "broken", *how, "--", "-x"], ["-x", "broken"]),
    ):
        code, out, _ = cli(*arguments)
        assert (code, outcomes_in(out)) == (1, dict.fromkeys(named, "planned"))


def test_threads_are_sorted_and_selected(cli, path, graph_file, monkeypatch):
    """`--thread` and the input hold for repairs, each thread once."""
    how = ("--graph", graph_file, "--min-age", 0)
    named = ("repair", path, "paused", "broken", "paused", *how)
    assert [*outcomes_in(cli(*named)[1])] == ["broken", "paused"]
    assert [*outcomes_in(cli("repair", path, "--thread", "p*", *how)[1])] == ["paused"]
    printed = cli("scan", path, "--json")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(printed))
    assert [*outcomes_in(cli("repair", path, "-", *how)[1])] == ["broken", "paused"]


def test_older_checkpoints_need_not_be_asked(cli, path, graph_file):
    """With --no-recover what they hold is neither read nor recovered."""
    with closing(sqlite3.connect(path)) as conn, conn:
        old = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'broken'"
        change = f"UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id < ({old})"  # noqa: S608 - our own
        conn.execute(f"{change} AND thread_id = 'broken'")
    how = ("repair", path, "broken", "--graph", graph_file, "--min-age", 0)
    code, out, _ = cli(*how)
    assert (code, "recover=False" in out) == (3, True)
    code, out, _ = cli(*how, "--no-recover")
    assert (code, "send_email: unknown" in out) == (1, True)
    assert "; its older checkpoints cannot be read" in cli("scan", path)[1]


# --- what is refused ---------------------------------------------------------------------


def test_a_thread_with_an_unexpected_error_is_refused_by_its_name(
    cli, path, graph_file, monkeypatch, capsys
):
    """The others are still repaired; a database that failed ends the command, with a tally."""
    error = ZeroDivisionError("oh")

    def fail(graph, config, **options):
        if config["configurable"]["thread_id"] == "broken":
            raise error
        return repair_thread(graph, config, **options)

    monkeypatch.setattr(langgraph_patch.cli.repair, "repair_thread", fail)
    how = ("repair", path, "--all", "--graph", graph_file, "--min-age", 0)
    code, out, _ = cli(*how)
    assert (code, rows_in(out)[0]) == (3, ["broken", "ZeroDivisionError: oh", "refused"])
    assert outcomes_in(out)["paused"] == "paused"
    with pytest.raises(ZeroDivisionError):
        main([*map(str, how), "--debug"])
    capsys.readouterr()
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    code, out, err = cli(*how)
    assert (code, out, err.splitlines()) == (
        2,
        "",
        [
            "langgraph-patch: stopped at the first thread. nothing was repaired.",
            f"langgraph-patch: {path!r}: disk I/O error.",
        ],
    )


def test_repair_skips_young_threads_and_exits_with_3(cli, path, graph_file):
    """By default a thread must be a minute old, unless it is forced."""
    code, out, _ = cli("repair", path, "broken", "--graph", graph_file, "--apply")
    assert (code, outcomes_in(out)) == (3, {"broken": "young"})
    assert cli("repair", path, "broken", "--graph", graph_file, "--apply", "--force")[0] == 0


def test_repair_refuses_what_it_would_flatten_unless_trusted(cli, path, graph_file):
    """A class that is not loaded would be written back as a dict: refused, and how to go on."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread("broken"))
        values = {**saved.checkpoint["channel_values"], "who": Customer(name="bob")}
        saver.put(saved.config, {**saved.checkpoint, "channel_values": values}, {}, {})
    before = rows_of(path)
    how = ("repair", path, "broken", "--graph", graph_file, "--min-age", 0)
    for apply in ([], ["--apply"]):
        code, out, _ = cli(*how, *apply)
        assert (code, rows_of(path) == before) == (3, True)
        assert f"--trust {__name__}:Customer" in out
    assert cli(*how, "--apply", "--trust", f"{__name__}:Customer")[0] == 0


def test_a_repair_that_the_graph_cannot_do_is_refused_and_the_rest_goes_on(cli, path, tmp_path):
    """A namespace that the graph does not have is a line and exit code 3."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread("broken"))
        place = {"thread_id": "other", "checkpoint_ns": "child"}
        saver.put({"configurable": place}, saved.checkpoint, {}, {})
    name = f"hand_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(
        "from support.broken_threads import application\n"
        "builder = application('react_v2', None).builder\n"
    )
    how = ("--graph", f"{tmp_path / name}.py:builder", "--min-age", 0, "--apply")
    code, out, _ = cli("repair", path, "--all", *how)
    assert (code, outcomes_in(out)["broken"]) == (3, "repaired")
    [refused] = [row for row in rows_in(out) if row[0] == "other in child"]
    assert refused[1].startswith("The graph has no subgraph 'child'")
    assert refused[2] == "refused"


def test_the_wrong_graph_is_refused(cli, path, tmp_path):
    """A graph without the node that comes next in the thread is the wrong one."""
    name = f"wrong_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(
        f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n"
        "from support.broken_threads import application\n"
        "other = application('parent_of_stateful', None)\n"
    )
    with SqliteSaver.from_conn_string(path) as saver:
        dict(ways_of("react_v2"))["killed"]("react_v2", saver, thread("killed"))
    before = rows_of(path)
    how = ("repair", path, "killed", "--graph", f"{tmp_path / name}.py:other", "--min-age", 0)
    code, out, _ = cli(*how, "--apply")
    assert (code, rows_of(path) == before) == (3, True)
    assert "the graph has no node" in out


# --- what is printed ---------------------------------------------------------------------


def test_a_difference_shows_what_changes(cli, path, graph_file):
    """Lines with `+` and `-`, with the messages around them, before the outcome."""
    out = cli("repair", path, "broken", "--graph", graph_file, "--min-age", 0, "--diff")[1]
    assert out.splitlines()[1:-1] == [
        "Thread broken",
        "    #0   [human]",
        "           go",
        "    #1   [ai]",
        '           calls send_email [c1] {"to": "bob"}',
        '           calls wire_money [c2] {"amount": 3}',
        "  +      [tool c1] recovered",
        "  +        sent to bob",
        "  +      [tool c2] inserted (awaiting_input)",
        (
            "  +        Tool call wire_money with id c2 was waiting for human input when another "
            "message came in; no answer and no result were recorded."
        ),
        "    #2   [human]",
        "           never mind",
    ]
    assert out.splitlines()[-1].endswith("planned")


def test_a_terminal_gets_columns_of_its_width(cli, path, graph_file, on_terminal):
    """The outcome stands at the end of the last line of a repair."""
    on_terminal(80)
    out = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0)[1]
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    column = lines[0].index("OUTCOME")
    assert [line[column:] for line in lines[1:] if line[column:]] == ["planned", "paused"]


def test_each_repair_is_rehearsed_once(cli, path, graph_file, monkeypatch):
    """With and without --apply the thread is planned one time."""
    calls = []

    def counted(graph, config, **options):
        calls.append(options["dry_run"])
        return repair_thread(graph, config, **options)

    monkeypatch.setattr(langgraph_patch.cli.repair, "repair_thread", counted)
    how = ("repair", path, "broken", "--graph", graph_file, "--min-age", 0)
    cli(*how)
    cli(*how, "--apply")
    assert calls == [True, False]


def test_ctrl_c_prints_the_tally_and_the_last_thread(cli, path, graph_file, monkeypatch):
    """The repair at hand is finished, the next thread is not begun."""

    def interrupted(graph, config, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return repair_thread(graph, config, **options)

    with SqliteSaver.from_conn_string(path) as saver:
        copy_thread(saver, "broken", "copy")
    monkeypatch.setattr(langgraph_patch.cli.repair, "repair_thread", interrupted)
    code, out, err = cli("repair", path, "--all", "--graph", graph_file, "--force", "--apply")
    assert (code, outcomes_in(out)) == (130, {"broken": "repaired"})
    assert err == ("langgraph-patch: stopped by Ctrl-C after thread 'broken'. 1 repaired.\n")
    assert statuses(path)["copy"] == "damaged"


# --- undo --------------------------------------------------------------------------------


@pytest.fixture
def before(cli, path, graph_file):
    """The rows of a database before all damage and pauses in it were repaired."""
    rows = rows_of(path)
    how = ("--graph", graph_file, "--min-age", 0, "--apply", "--on-pause", "abandon")
    assert cli("repair", path, "--all", *how)[0] == 0
    assert rows_of(path) != rows
    return rows


def test_undo_needs_no_file_and_no_graph(cli, path, before):
    """The rows are those before the repair; nothing is left to undo then."""
    code, out, err = cli("undo", path, "--all")
    assert (code, outcomes_in("\n" + out)) == (0, {"broken": "undone", "paused": "undone"})
    assert err == "langgraph-patch: 2 undone.\n"
    assert rows_of(path) == before
    assert cli("undo", path, "--all") == (
        0,
        "",
        "langgraph-patch: no thread has a repair to undo.\n",
    )


def test_undo_deletes_nothing_that_no_repair_wrote(cli, path, before):
    """A thread that has moved on, and one that was never repaired, are refused and stay."""
    with SqliteSaver.from_conn_string(path) as saver:
        on = application("react_v2", saver, AIMessage("fine"))
        on.invoke({"messages": [human("x")]}, thread("paused"))
    now = rows_of(path)
    code, out, err = cli("undo", path, "paused", "healthy", "--json")
    assert (code, err, rows_of(path) == now) == (3, "langgraph-patch: 2 refused.\n", True)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["thread_id"] for line in lines] == ["paused", "healthy"]
    assert all("no repair wrote its newest checkpoint" in line["reason"] for line in lines)
    assert cli("undo", path, "broken")[0] == 0
    assert statuses(path) == {"broken": "damaged", "healthy": "healthy", "paused": "healthy"}


def test_damage_under_a_breakpoint(cli, path, tmp_path):
    """A scan cannot know of it; a repair leaves it, and says whether it leaves damage too."""
    file = tmp_path / f"bp_{abs(hash(tmp_path))}.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n"
        "from support.broken_threads import application\n"
        "graph = application('hand_built', None).builder.compile(interrupt_before=['tools'])\n"
    )
    with SqliteSaver.from_conn_string(path) as saver:
        app = application("hand_built", saver, both_calls(), AIMessage("ok"), both_calls())
        app.interrupt_before_nodes = ["tools"]
        app.invoke({"messages": [human("pay")]}, thread("bp"))
        old = [human("h0"), ai(("send_email", {"to": "x"}, "c0"), id="a0"), human("h1")]
        app.update_state(thread("bpd"), {"messages": old}, as_node="__start__")
        app.update_state(thread("bpd"), {"messages": [both_calls()]}, as_node="agent")
    for name, code, beside in (("bp", 0, ""), ("bpd", 1, " (1 of the paused are damaged too)")):
        how = ("repair", path, name, "--graph", f"{file}:graph", "--min-age", 0, "--apply")
        assert cli(*how)[::2] == (code, f"langgraph-patch: 1 paused{beside}.\n")
