"""The command line: output, error output and exit codes of each command."""

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

import langgraph_patch.cli.main
from langgraph_patch.cli.main import main
from langgraph_patch.threads import scan_threads
from support.agents import both_calls, human, thread
from support.broken_threads import answer, application, kind_of, say, silent, ways_of
from support.databases import rows_of
from support.paths import TESTS
from support.strict import ai

HOSTILE = "\x1b[2Jgone\x07\u202e[red]x[/red]\r\nfake: healthy"


class Customer(BaseModel):
    """A class of an application."""

    name: str


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


# --- scan --------------------------------------------------------------------------------


def test_scan_prints_what_is_not_healthy_and_sums_up_beside(cli, path):
    """Data on the standard output, the summary on the standard error, exit code 1."""
    assert cli("scan", path) == (
        1,
        (
            "'broken': damaged - recovered 'send_email' 'c1'; "
            "inserted 'wire_money' 'c2' (awaiting_input)\n'paused': paused\n"
        ),
        "langgraph-patch: looked at 3 histories: 1 healthy, 1 damaged, 1 paused, 0 unreadable.\n",
    )


def test_scan_in_json_is_one_object_a_line(cli, path):
    """Each line is a report, with the changes that would be made."""
    code, out, _ = cli("scan", path, "--format", "json", "--healthy")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["status"] for line in lines]) == (1, ["damaged", "healthy", "paused"])
    assert [change["kind"] for change in lines[0]["changes"]] == ["recovered", "inserted"]
    assert "patch" not in lines[0]


def test_scan_of_a_clean_database_exits_with_0(cli, path):
    """Nothing damaged: nothing on the standard output."""
    code, out, err = cli("scan", path, "--after", "broken")
    assert (code, out) == (0, "'paused': paused\n")
    assert "0 damaged" in err


def test_scan_of_an_unreadable_thread_exits_with_3(cli, path):
    """An unreadable thread is not clean."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    code, out, _ = cli("scan", path)
    assert code == 3
    assert "'healthy': unreadable - a row of it is a pickle" in out


def test_a_scan_that_saw_nothing_says_so(cli, path):
    """No thread left to look at, or no thread with such a key: exit code 2, and the reason."""
    assert cli("scan", path, "--after", "zzz") == (
        2,
        "",
        "langgraph-patch: there is no thread after 'zzz': nothing was looked at.\n",
    )
    code, _, err = cli("scan", path, "--messages-key", "chat")
    assert code == 2
    assert "none has a state key 'chat': name it with --messages-key." in err


def test_old_damage_under_a_pause_is_damage_for_every_command(cli, path, graph_file):
    """Exit code 1 of scan, of show, and of a repair that leaves it and says so."""
    old = [human("h0"), ai(("send_email", {"to": "x"}, "c0"), id="a0"), human("h1")]
    with SqliteSaver.from_conn_string(path) as saver:
        app = application("react_v2", saver, both_calls())
        app.update_state(thread("paused2"), {"messages": old}, as_node="__start__")
        app.update_state(thread("paused2"), {"messages": [both_calls()]}, as_node="agent")
        app.invoke(None, thread("paused2"))
    assert cli("scan", path, "--after", "paused")[0] == 1
    assert cli("show", path, "paused2")[0] == 1
    how = ("repair", path, "paused2", "--graph", graph_file, "--min-age", 0, "--apply")
    code, out, err = cli(*how)
    assert (code, "'paused2': paused" in out) == (1, True)
    assert err == "langgraph-patch: 1 paused (1 of the paused are damaged too).\n"
    assert cli(*how, "--on-pause", "abandon")[0] == 0


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


def test_json_is_json_whatever_a_state_holds(cli, path):
    """NaN and infinity are no JSON: they are printed as strings."""
    nan, inf = float("nan"), float("inf")
    with SqliteSaver.from_conn_string(path) as saver:
        texts = [human("h"), ai(("t", {"x": [nan, -inf]}, "c"), id="a"), human("x")]
        silent("react_v2", saver).update_state(thread("nan"), {"messages": texts}, "__start__")
    out = cli("show", path, "nan", "--format", "json")[1]
    assert json.loads(out, parse_constant=pytest.fail)["messages"] == 3
    assert '["NaN", "-Infinity"]' in out


def test_shards_divide_a_scan(cli, path):
    """Together, the shards print what one scan prints."""
    one = cli("scan", path)[1]
    parts = [cli("scan", path, "--shard", f"{index}/3")[1] for index in (1, 2, 3)]
    assert sorted("".join(parts).splitlines()) == sorted(one.splitlines())


def test_ctrl_c_stops_between_two_threads_and_says_where(cli, path, monkeypatch):
    """The thread at hand is finished; the next one is not begun; --after goes on."""

    def interrupted(*args, **kwargs):
        for number, report in enumerate(scan_threads(*args, **kwargs)):
            if number == 0:
                os.kill(os.getpid(), signal.SIGINT)
            yield report

    with SqliteSaver.from_conn_string(path) as saver:
        also = {"configurable": {"thread_id": "broken", "checkpoint_ns": "child"}}
        saver.put(also, saver.get_tuple(thread("broken")).checkpoint, {}, {})
    monkeypatch.setattr(langgraph_patch.cli.main, "scan_threads", interrupted)
    before = signal.getsignal(signal.SIGINT)
    code, out, err = cli("scan", path)
    assert [line.split(":")[0] for line in out.splitlines()] == ["'broken'", "'broken' in 'child'"]
    assert (code, err) == (
        130,
        "langgraph-patch: stopped after thread 'broken': go on with --after.\n",
    )
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_where_nothing_waits_for_a_thread_is_one_line(cli, path, monkeypatch):
    """A second Ctrl-C, or one that comes before the work begins, leaves no traceback."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(langgraph_patch.cli.main, "scan_threads", stopped)
    assert cli("show", path, "broken") == (130, "", "langgraph-patch: stopped by Ctrl-C.\n")
    with pytest.raises(KeyboardInterrupt):
        main(["show", path, "broken", "--debug"])


# --- repair ------------------------------------------------------------------------------


def test_repair_is_a_dry_run_unless_applied(cli, path, graph_file):
    """Without --apply nothing is written, the plan is printed, and the exit code is 1."""
    before = rows_of(path)
    code, out, err = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0)
    assert code == 1
    assert out == (
        "'broken': planned - recovered 'send_email' 'c1'; "
        "inserted 'wire_money' 'c2' (awaiting_input)\n"
        "'paused': paused - it waits for a human: answer it, or abandon the pause\n"
    )
    assert "1 healthy, 1 paused, 1 planned. Nothing was written" in err
    assert rows_of(path) == before


def test_repair_apply_repairs_and_a_second_scan_is_clean(cli, path, graph_file):
    """Exit code 0; then the scan is clean, and the pause still takes its resume."""
    code, out, _ = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0, "--apply")
    assert (code, out.splitlines()[0][:20]) == (0, "'broken': repaired -")
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
    found = [json.loads(line) for line in cli("scan", path, "--format", "json")[1].splitlines()]
    assert {line["thread_id"]: line["status"] for line in found} == {
        name: status for name, status in evidence.items() if status != "healthy"
    }
    done = cli("repair", path, "--all", "--graph", graph_file, "--min-age", 0, "--apply")
    assert (done[0], done[1].count(": repaired - ")) == (
        0,
        list(evidence.values()).count("damaged"),
    )
    assert cli("scan", path)[:2] == (0, "'paused': paused\n")


def test_repair_of_named_threads_leaves_the_others(cli, path, graph_file):
    """Only the named threads are read; `abandon` repairs a pause."""
    how = ("--graph", graph_file, "--min-age", 0, "--apply", "--on-pause", "abandon")
    code, out, _ = cli("repair", path, "paused", *how, "--format", "json")
    assert (code, [json.loads(line)["outcome"] for line in out.splitlines()]) == (0, ["repaired"])
    assert "'broken': damaged" in cli("scan", path)[1]


def test_threads_may_stand_behind_options(cli, path, graph_file):
    """Options may come before or after a thread's name; after `--` it may begin with `-`."""
    with SqliteSaver.from_conn_string(path) as saver:
        broken = saver.get_tuple(thread("broken")).checkpoint
        place = {"thread_id": "-x", "checkpoint_ns": ""}
        saver.put({"configurable": place}, broken, {}, {})
    how = ("--min-age", 0, "--graph", graph_file)
    one, two = "'-x': planned", "'broken': planned"
    for arguments, texts in (
        (["repair", path, *how, "broken"], [two]),
        (["repair", path, *how, "--", "-x"], [one]),
        (["repair", path, "broken", *how, "--", "-x"], [one, two]),
    ):
        code, out, _ = cli(*arguments)
        assert (code, [line.split(" -")[0] for line in out.splitlines()]) == (1, texts)


def test_named_threads_are_sorted_sharded_and_begun_later(cli, path, graph_file):
    """`--after` and `--shard` hold for named threads too, and each is looked at once."""
    how = ("--graph", graph_file, "--min-age", 0)
    named = ("repair", path, "paused", "broken", "paused", *how)
    assert [line[:8] for line in cli(*named)[1].splitlines()] == ["'broken'", "'paused'"]
    assert [line[:8] for line in cli(*named, "--after", "broken")[1].splitlines()] == ["'paused'"]
    parts = [cli(*named, "--shard", f"{part}/2")[1].splitlines() for part in (1, 2)]
    assert sorted(parts[0] + parts[1]) == cli(*named)[1].splitlines()


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
    assert (code, "inserted 'send_email' 'c1' (unknown)" in out) == (1, True)
    assert "; its older checkpoints cannot be read" in cli("scan", path)[1]


def test_a_thread_with_an_unexpected_error_is_refused_by_its_name(
    cli, path, graph_file, monkeypatch
):
    """The others are still repaired; a database that failed is no matter of one thread."""
    error = ZeroDivisionError("oh")

    def fail(graph, config, **options):
        if config["configurable"]["thread_id"] == "broken":
            raise error
        return langgraph_patch.threads.repair_thread(graph, config, **options)

    monkeypatch.setattr(langgraph_patch.cli.main, "repair_thread", fail)
    how = ("repair", path, "--all", "--graph", graph_file, "--min-age", 0)
    code, out, _ = cli(*how)
    assert (code, out.splitlines()[0]) == (3, "'broken': refused - ZeroDivisionError: oh")
    assert out.splitlines()[1].startswith("'paused': paused")
    with pytest.raises(ZeroDivisionError):
        main([*map(str, how), "--debug"])
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    assert cli(*how) == (2, "", f"langgraph-patch: {path!r}: disk I/O error.\n")


def test_repair_skips_young_threads_and_exits_with_3(cli, path, graph_file):
    """By default a thread must be a minute old, unless it is forced."""
    code, out, _ = cli("repair", path, "broken", "--graph", graph_file, "--apply")
    assert (code, "'broken': young" in out) == (3, True)
    assert cli("repair", path, "broken", "--graph", graph_file, "--apply", "--force")[0] == 0


def test_repair_refuses_what_it_would_flatten_unless_trusted(cli, path, graph_file):
    """A class that is not loaded would be written back as a dict: refused, and how to go on."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread("broken"))
        values = {**saved.checkpoint["channel_values"], "who": Customer(name="bob")}
        saver.put(saved.config, {**saved.checkpoint, "channel_values": values}, {}, {})
    before = rows_of(path)
    how = ("repair", path, "broken", "--graph", graph_file, "--min-age", 0, "--apply")
    code, out, _ = cli(*how)
    assert (code, rows_of(path) == before) == (3, True)
    assert f"--trust {__name__}:Customer" in out
    assert cli(*how, "--trust", f"{__name__}:Customer")[0] == 0


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
    assert code == 3
    assert "'broken': repaired" in out
    assert "'other' in 'child': refused - The graph has no subgraph 'child'" in out


# --- show --------------------------------------------------------------------------------


def test_show_marks_defects_and_puts_the_patch_beside(cli, path, monkeypatch):
    """Both columns, the defect with its sign, the cause and the recovered result."""
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = cli("show", path, "broken")
    assert code == 1
    assert "! [ai] dangling" in out
    assert "↺ [tool c1] recovered" in out
    assert "+ [tool c2] inserted (awaiting_input)" in out
    assert "sent to bob" in out


def test_show_of_a_valid_thread_has_one_column_and_exits_with_0(cli, path):
    """Healthy and paused threads are shown as they are; JSON has the whole patch."""
    code, out, _ = cli("show", path, "paused")
    assert (code, "as it would be" in out) == (0, False)
    code, out, _ = cli("show", path, "broken", "--format", "json")
    assert len(json.loads(out)["patch"]["messages"]) == 5


def test_hostile_text_is_shown_as_text(cli, tmp_path, monkeypatch):
    """No escape, no control character, no direction mark, no markup, no forged line."""
    monkeypatch.setenv("COLUMNS", "200")
    path = str(tmp_path / "hostile.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        messages = [human(HOSTILE, "h"), ai(("t", {"x": HOSTILE}, HOSTILE), text=HOSTILE, id="a")]
        update = {"messages": [*messages, human("x")]}
        silent("hand_built", saver).update_state(thread(HOSTILE), update, as_node="__start__")
    for arguments in (["scan", path], ["scan", path, "--format", "json"], ["show", path, HOSTILE]):
        code, out, err = cli(*arguments)
        assert code == 1
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out + err)
    assert "[red]x[/red]" in out
    assert not any(line.startswith("fake") for line in cli("scan", path)[1].splitlines())
    code, _, err = cli("show", path, HOSTILE + "2")
    assert (code, err.count("\n"), "\x1b" in err) == (2, 1, False)


def test_show_writes_a_page(cli, path, tmp_path, monkeypatch):
    """`--html` writes one page in the place of the table, over an old one; rich is not needed."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    file = tmp_path / "page.html"
    file.write_text("old " * 100_000)
    code, out, err = cli("show", path, "broken", "--html", file)
    assert (code, out, err) == (1, "", f"langgraph-patch: wrote {str(file)!r}.\n")
    page = file.read_text()
    assert page.startswith("<!doctype html>")
    for texts in ("! dangling", "↺ recovered", "+ inserted (awaiting_input)", "sent to bob"):
        assert texts in page
    assert "<script" not in page
    assert "old " not in page
    code, out, _ = cli("show", path, "paused", "--html", file, "--format", "json")
    assert (code, json.loads(out)["status"]) == (0, "paused")
    assert "Messages (2)" in file.read_text()


def test_a_page_of_an_unreadable_thread_says_why(cli, path, tmp_path):
    """Where there is nothing to show, the page has the reason; exit code 3."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    file = tmp_path / "page.html"
    code, out, _ = cli("show", path, "healthy", "--html", file)
    assert (code, "is a pickle" in out, "is a pickle" in file.read_text()) == (3, True, True)


def test_a_page_of_hostile_text_is_text(cli, tmp_path):
    """Markup, escapes, direction marks and a megabyte, in thread, names, ids and contents."""
    hostile = f"<script>alert(1)</script>'\"><img src=x>{HOSTILE}"
    path, file = str(tmp_path / "hostile.sqlite"), tmp_path / "page.html"
    with SqliteSaver.from_conn_string(path) as saver:
        call = ai((hostile, {hostile: hostile}, hostile), text=hostile, id=hostile)
        update = {"messages": [human(hostile + "x" * 1_000_000, "h"), call, human("x")]}
        silent("hand_built", saver).update_state(thread(hostile), update, as_node="__start__")
    code, _, err = cli("show", path, hostile, "--html", file)
    assert (code, err.count("\n")) == (1, 1)
    page = file.read_text()
    assert not re.search(r"<script|<img|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page)
    assert page.count("x" * 1_000_000) == 2
    assert "1,000,0" in page


# --- bad input ---------------------------------------------------------------------------


BAD = {
    "no such file": (["scan", "/no/such.db"], "there is no such file"),
    "no database": (["scan", __file__], "it is not a SQLite database"),
    "a directory": (["scan", "/"], "is not a file"),
    "no command": ([], "required"),
    "no such command": (["fix"], "invalid choice"),
    "no such option": (["scan", "{db}", "--fast"], "--fast"),
    "a bad shard": (["scan", "{db}", "--shard", "9/8"], "expected I/N"),
    "a shard of words": (["scan", "{db}", "--shard", "a/b"], "expected I/N"),
    "an unknown thread": (["show", "{db}", "nobody"], "There is no thread 'nobody'"),
    "an unknown namespace": (["show", "{db}", "broken", "--namespace", "x"], "no namespace 'x'"),
    "an unknown thread to repair": (
        ["repair", "{db}", "nobody", "--graph", "{graph}"],
        "There is no thread 'nobody'",
    ),
    "no thread to repair": (["repair", "{db}", "--graph", "{graph}"], "--all"),
    "no graph": (["repair", "{db}", "--all"], "--graph"),
    "a graph of another form": (["repair", "{db}", "--all", "--graph", "app"], "expected module"),
    "no such module": (["repair", "{db}", "--all", "--graph", "no_such:g"], "cannot be imported"),
    "no such module file": (["repair", "{db}", "--all", "--graph", "/no.py:g"], "no such file"),
    "a module that fails": (["repair", "{db}", "--all", "--graph", "{failing}:g"], "kaput"),
    "a module that exits": (["repair", "{db}", "--all", "--graph", "{exiting}:g"], "SystemExit"),
    "a name taken": (["repair", "{db}", "--all", "--graph", "{json}:g"], "rename the file"),
    "no such graph": (["repair", "{db}", "--all", "--graph", "{module}:g"], "has no 'g'"),
    "no graph at all": (["repair", "{db}", "--all", "--graph", "{module}:number"], "is a int"),
    "no such folder": (
        ["show", "{db}", "broken", "--html", "/no/such/x.html"],
        "cannot be written",
    ),
    "a folder": (["show", "{db}", "broken", "--html", "/"], "cannot be written"),
    "no file name": (["show", "{db}", "broken", "--html", ""], "cannot be written"),
    "a bad class": (["repair", "{db}", "--all", "--graph", "{graph}", "--trust", "x"], "module:C"),
    "no such class": (
        ["repair", "{db}", "--all", "--graph", "{graph}", "--trust", "json:Who", "--apply"],
        "--trust json:Who cannot be loaded (AttributeError",
    ),
    "a class of no module": (
        ["repair", "{db}", "--all", "--graph", "{graph}", "--trust", "no_such:Who"],
        "would be written back as dicts",
    ),
    "a class of a program": (
        ["repair", "{db}", "--all", "--graph", "{graph}", "--trust", "__main__:Who"],
        "repair from Python",
    ),
    "another key to repair": (
        ["repair", "{db}", "--all", "--graph", "{graph}", "--messages-key", "chat"],
        "none has a state key 'chat': name it with --messages-key.",
    ),
    "another key to show": (
        ["show", "{db}", "broken", "--messages-key", "chat"],
        "none has a state key 'chat': name it with --messages-key.",
    ),
    "an option behind": (
        ["repair", "{db}", "--graph", "{graph}", "--fast", "broken"],
        "unrecognized arguments: --fast (",
    ),
    "a thread too many": (["show", "{db}", "broken", "paused"], "unrecognized arguments: paused ("),
    "an age that is none": (
        ["repair", "{db}", "--all", "--graph", "{graph}", "--min-age", "nan"],
        "'nan': expected seconds, 0 or more",
    ),
    "a thread that is no text": (["show", "{db}", "\udcff"], "There is no thread"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(case, cli, path, graph_file, tmp_path):
    """It says what is wrong and what to do, writes nothing, and shows no traceback."""
    arguments, texts = BAD[case]
    files = {"failing": "raise RuntimeError('kaput\\nand more')", "exiting": "exit('bye')"}
    for name, text in (files | {"json": ""}).items():
        (tmp_path / f"{name}.py").write_text(text)
        files[name] = str(tmp_path / f"{name}.py")
    values = {**files, "db": path, "graph": graph_file, "module": graph_file.removesuffix(":graph")}
    before = rows_of(path)
    code, out, err = cli(*(each.format_map(values) for each in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("langgraph-patch: ")
    assert texts in err
    assert "Traceback" not in err
    assert rows_of(path) == before


def test_debug_shows_the_traceback(path):
    """With --debug the error is raised as it is."""
    with pytest.raises(langgraph_patch.errors.ThreadError):
        main(["show", path, "nobody", "--debug"])


def test_an_unexpected_error_is_one_line_too(cli, path, monkeypatch):
    """An unexpected error is one line that calls it a bug, without a traceback."""

    def fail(*_, **__):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(langgraph_patch.cli.main, "scan_threads", fail)
    assert cli("scan", path) == (2, "", "langgraph-patch: ZeroDivisionError: oh (see --debug).\n")


@pytest.mark.parametrize("command", ["", "scan", "show", "repair", "demo"])
def test_help_documents_the_exit_codes(cli, command):
    """Every --help explains every exit code."""
    code, out, _ = cli(*([command] if command else []), "--help")
    assert code == 0
    assert all(f"\n  {number} " in out for number in (0, 1, 2, 3, 130, 141))


# --- as a process ------------------------------------------------------------------------


def process(
    *arguments, code="from langgraph_patch.cli.main import main; sys.exit(main(sys.argv[1:]))"
):
    """Run it as a process of its own."""
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", f"import sys; {code}", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_without_rich_all_but_show_and_demo_work(path):
    """`--help`, errors, scan and repair need no rich; show and demo say how to get it."""
    without = (
        "sys.modules['rich'] = None; from langgraph_patch.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    assert process("scan", "--help", code=without).returncode == 0
    assert process("scan", path, code=without).returncode == 1
    for arguments in (["show", path, "broken"], ["demo"]):
        done = process(*arguments, code=without)
        assert (done.returncode, done.stderr) == (
            2,
            "langgraph-patch: this needs rich: pip install 'langgraph-patch[cli]'\n",
        )


def test_demo_runs():
    """The demonstration is the one of the package, and its exit code is passed on."""
    done = process("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(path):
    """Whoever reads may stop reading."""
    command = f"{sys.executable} -m langgraph_patch scan '{path}' --format json | true"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)  # noqa: S603 - our own command
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def unread(*arguments, stderr=subprocess.PIPE):
    """Run it with an output that nobody reads; its exit code and its error output."""
    command = [sys.executable, "-m", "langgraph_patch", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as left:  # noqa: S603 - our own command
        left.stdout.close()
        texts = left.stderr.read().decode() if left.stderr else ""
    return left.returncode, texts


@pytest.mark.slow
def test_a_closed_output_stops_between_two_threads_and_names_the_last(path, graph_file):
    """Exit code 141; the thread at hand is repaired, the others are as they were."""
    stopped = "langgraph-patch: the output was closed: stopped"
    # What a scan could not print has not been read; what was repaired is repaired.
    assert unread("scan", path) == (141, f"{stopped} at the first thread.\n")
    after = f"{stopped} after thread {{!r}}: go on with --after.\n"
    assert unread("scan", path, "--after", "healthy") == (141, f"{stopped} at the first thread.\n")
    with SqliteSaver.from_conn_string(path) as saver:
        say(application("react_v2", saver, answer()), thread("a"), "go")
    assert unread("scan", path) == (141, after.format("a"))
    assert unread("show", path, "broken") == (141, "")
    assert unread("show", path, "broken", stderr=subprocess.STDOUT)[0] == 141
    how = ("--graph", graph_file, "--min-age", "0", "--apply", "--on-pause", "abandon")
    assert unread("repair", path, "--all", *how) == (141, after.format("broken"))
    with SqliteSaver.from_conn_string(path) as saver:
        found = {report.thread_id: report.status for report in scan_threads(saver)}
    assert found == dict.fromkeys(("a", "broken", "healthy"), "healthy") | {"paused": "paused"}


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.slow
def test_a_stream_that_is_closed_changes_no_exit_code(closed, path):
    """Cron jobs close what they do not read."""
    for arguments, code in ((f"scan '{path}'", 1), ("scan /no/such.db", 2)):
        command = f"{sys.executable} -m langgraph_patch {arguments} {closed}"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)  # noqa: S603 - our own command
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False)


@pytest.mark.parametrize("what", [["scan"], ["repair", "--all", "--min-age", "0", "--graph"]])
@pytest.mark.slow
def test_a_bar_is_shown_on_a_terminal_only(what, path, graph_file):
    """A terminal gets a bar; a pipe gets plain lines, also if a terminal shows the bar."""
    command, *options = what
    arguments = [command, path, *options, *([graph_file] if options else [])]
    ours, theirs = pty.openpty()
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "langgraph_patch", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert b"threads" in shown
    assert b"looked at 3 histories" in shown or b"Nothing was written" in shown
    plain = process(*arguments)
    assert "'broken': " in plain.stdout
    assert (done.stdout.decode(), "\x1b" in plain.stderr) == (plain.stdout, False)
