"""The command line: what is printed, written and refused, and the exit codes."""

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

import langgraph_patch.commands
from langgraph_patch import patch_messages, threads, validate_messages
from langgraph_patch.cli import main
from langgraph_patch.commands import count_report, database_name, summary
from langgraph_patch.history.texts import Finding
from langgraph_patch.threads import ThreadReport, repair_thread, scan_threads
from support.agents import both_calls, human, thread
from support.broken_threads import answer, application, kind_of, say, silent, ways_of
from support.databases import copy_thread, rows_of
from support.paths import ENVIRONMENT
from support.strict import ai

HOSTILE = "\x1b[2Jgone\x07\u202e[red]x[/red]\r\nfake: healthy"


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
    """Standard output is a terminal of a width."""

    def use(columns, *, colours=False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm-256color" if colours else "dumb")
        monkeypatch.delenv("NO_COLOR", raising=False)

    return use


@pytest.fixture
def repair(cli, path, graph_file):
    """Run `repair` on threads of any age."""

    def run(*arguments):
        return cli("repair", path, *arguments, "--graph", graph_file, "--min-age", 0)

    return run


def rows_in(out):
    """The rows of a table in a pipe, without its head."""
    return [line.split("\t") for line in out.splitlines()[1:]]


def ids_in(out):
    """The threads of a table in a pipe."""
    return [row[0] for row in rows_in(out)]


def outcomes_in(out):
    """The outcome of each thread of a repair in a pipe."""
    return {row[0]: row[1] for row in rows_in(out)}


def statuses(path):
    """What a scan finds now."""
    with SqliteSaver.from_conn_string(path) as saver:
        return {report.thread_id: report.status for report in scan_threads(saver)}


# --- bad input ---------------------------------------------------------------------------

ALL = ["repair", "{db}", "--all"]
BAD = {
    "no such file": (["scan", "/no/such.db"], "there is no such file"),
    "no database": (["scan", __file__], "it is not a SQLite database"),
    "a directory": (["scan", "/"], "is not a file"),
    "no command": ([], "required"),
    "no such command": (["fix"], "invalid choice"),
    "no such option": (["scan", "{db}", "--fast"], "--fast"),
    "an unknown thread": (["show", "{db}", "nobody"], "There is no thread 'nobody'"),
    "a thread that is no text": (["show", "{db}", "\udcff"], "There is no thread"),
    "a thread too many": (["show", "{db}", "broken", "paused"], "unrecognized arguments: paused ("),
    "no name at all": (["scan", ""], "'': there is no such file"),
    "an unknown thread to repair": (
        ["repair", "{db}", "broken", "zzz", "--graph", "{graph}", "--apply", "--yes"],
        "There is no thread 'zzz'",
    ),
    "no thread to repair": (["repair", "{db}", "--graph", "{graph}"], "--all"),
    "all and a thread": (["repair", "{db}", "x", "--all", "--graph", "{graph}"], "use --all"),
    "a bad time": (
        ["scan", "{db}", "--since", "soon"],
        "expected a time such as 90s, 30min, 2h or 3d",
    ),
    "a bad duration": (["scan", "{db}", "--since", "1.1h"], "expected a time such as"),
    "a long time": (["scan", "{db}", "--since", "9999999999d"], "expected a time such as"),
    "no such variable": (["scan", "env:NO_SUCH_VARIABLE"], "'NO_SUCH_VARIABLE' is not set"),
    "no such serializer": (["scan", "{db}", "--serde", "json:nobody"], "has no attribute 'nobody'"),
    "no serializer": (["scan", "{db}", "--serde", "json:loads"], "expected a serializer"),
    "a serializer of another form": (
        ["scan", "{db}", "--serde", "x"],
        "--serde 'x' cannot be loaded",
    ),
    "a thread that does not exist to undo": (["undo", "{db}", "x"], "There is no thread 'x'"),
    "no thread to undo": (["undo", "{db}"], "use --all"),
    "a filter of servers": (["scan", "{db}", "--status", "error"], "a LangGraph Server only"),
    "a filter of another form": (["scan", "{db}", "--metadata", "user"], "expected KEY=VALUE"),
    "a graph of another form": ([*ALL, "--graph", "app"], "expected module"),
    "no such module": ([*ALL, "--graph", "no_such:g"], "No module named 'no_such'"),
    "no such module file": ([*ALL, "--graph", "/no_such.py:g"], "No module named 'no_such'"),
    "a module that fails": ([*ALL, "--graph", "{failing}:g"], "kaput"),
    "a module that exits": ([*ALL, "--graph", "{exiting}:g"], "SystemExit"),
    "a name taken": ([*ALL, "--graph", "{json}:graph"], "has no attribute 'graph'"),
    "no such graph": ([*ALL, "--graph", "{module}:g"], "has no attribute 'g'"),
    "no graph at all": ([*ALL, "--graph", "{module}:number"], "is a int"),
    "a bad class": ([*ALL, "--graph", "{graph}", "--trust", "x"], "--trust 'x' cannot be loaded"),
    "no such class": (
        [*ALL, "--graph", "{graph}", "--trust", "json:Who", "--apply"],
        "--trust 'json:Who' cannot be loaded (AttributeError",
    ),
    "a class beside a serializer": (
        [*ALL, "--graph", "{graph}", "--trust", "decimal:Decimal", "--serde", "json:loads"],
        "--trust is not used with --serde",
    ),
    "another key to repair": (
        [*ALL, "--graph", "{graph}", "--messages-key", "chat"],
        "none has a state key 'chat': name it with --messages-key.",
    ),
    "another key to show": (
        ["show", "{db}", "broken", "--messages-key", "chat"],
        "state key 'chat': name it with --messages-key.",
    ),
    "an age that is none": (
        [*ALL, "--graph", "{graph}", "--min-age", "nan"],
        "expected a time such",
    ),
    "no age": ([*ALL, "--graph", "{graph}", "--min-age", "-1s"], "--min-age"),
    "a limit that is none": ([*ALL, "--graph", "{graph}", "--limit", "0"], "1 or more"),
    "nobody to ask": ([*ALL, "--graph", "{graph}", "--apply"], "add --yes"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_said_and_exit_code_2(case, cli, path, graph_file, tmp_path):
    """It says what is wrong and what to do, writes nothing, and shows no traceback."""
    arguments, texts = BAD[case]
    files = {"failing": "raise RuntimeError('kaput\\nand more')", "exiting": "exit('bye')"}
    for name, text in (files | {"json": ""}).items():
        (tmp_path / f"{name}.py").write_text(text)
        files[name] = str(tmp_path / f"{name}.py")
    values = {**files, "db": path, "graph": graph_file, "module": graph_file.removesuffix(":graph")}
    before = rows_of(path)
    code, out, err = cli(*(each.format_map(values) for each in arguments))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("langgraph-patch: ")
    assert texts in err.splitlines()[-1]
    assert "Traceback" not in err
    assert rows_of(path) == before


def test_an_unexpected_error_is_one_line_too(cli, path, monkeypatch):
    """It has no traceback, unless `--debug` asks for it; Ctrl-C has none either."""
    error = ZeroDivisionError("oh")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(threads, "scan_threads", fail)
    assert cli("scan", path) == (2, "", "langgraph-patch: ZeroDivisionError: oh (see --debug).\n")
    with pytest.raises(ZeroDivisionError):
        main(["scan", path, "--debug"])
    error = KeyboardInterrupt()
    assert cli("show", path, "broken") == (130, "", "langgraph-patch: stopped by Ctrl-C.\n")


# --- help, and where the database is -----------------------------------------------------


@pytest.mark.parametrize("command", ["", "scan", "show", "repair", "undo", "demo"])
def test_help_documents_databases_passwords_and_exit_codes(command, cli):
    """Every --help explains every exit code, and where a password belongs."""
    code, out, _ = cli(*([command] if command else []), "--help")
    assert code == 0
    assert all(f"\n  {number} " in out for number in (0, 1, 2, 3))
    for name in ("PGPASSWORD", "PGSERVICE", "env:NAME", "LANGGRAPH_API_KEY", "(ps)"):
        assert name in out
    assert cli("--version")[1] == f"langgraph-patch {langgraph_patch.__version__}\n"


def test_help_and_a_missing_file_wait_for_no_import():
    """They are answered before LangGraph is imported, which takes most of a second."""
    code = (
        "import contextlib, sys\n"
        "from langgraph_patch.cli import main\n"
        "for arguments in (['--help'], ['scan', '/no/such.db']):\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main(arguments)\n"
        "found = {'langgraph', 'langchain_core', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)  # noqa: S603 - our own code


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("threads.sqlite", "threads.sqlite"),
        ("postgresql://bob:s3cret@db.example/app?sslmode=require", "postgresql://db.example/app"),
        ("postgresql://bob@db.example:5432/app", "postgresql://db.example:5432/app"),
        ("postgresql:///app?service=s3cret", "postgresql:///app"),
        ("postgresql://[::1]:5432/app", "postgresql://[::1]:5432/app"),
        ("http://127.0.0.1:2024", "http://127.0.0.1:2024"),
        ("postgresql://bob:s3cret/@db/app", "postgresql://***"),
        ("postgresql://bob:s3cret?x@db/app", "postgresql://***"),
        ("postgresql://bob:s3cret#x@db/app", "postgresql://***"),
        ("postgresql://bob:s3cret", "postgresql://***"),
    ],
)
def test_a_database_is_named_without_its_password(location, name):
    """What may be a piece of a password is not shown."""
    assert database_name(location) == name


def test_no_password_is_printed(cli):
    """Not in an error, and not on the line of an argument that is wrong."""
    uri = "postgresql://u:Zx9secret@127.0.0.1:1/db"
    for arguments in (["scan", uri], ["scan", "x.sqlite", "--since", uri], [uri]):
        code, out, err = cli(*arguments)
        assert (code, "Zx9secret" in out + err) == (2, False)


def test_the_environment_may_name_the_database(cli, path, monkeypatch):
    """`env:NAME` is the variable; what it holds is not printed."""
    monkeypatch.setenv("THREADS", path)
    code, out, err = cli("scan", "env:THREADS")
    assert (code, ids_in(out), path in err) == (1, ["broken", "paused"], False)


# --- scan --------------------------------------------------------------------------------


def test_a_scan_prints_the_totals_and_a_table(cli, path):
    """What is dead and why, who waits and how long; a line for each thread; what to do next."""
    code, out, err = cli("scan", path)
    head, broken, paused = (line.split("\t") for line in out.splitlines())
    assert head == ["THREAD", "AGE", "WHAT IS WRONG", "A REPAIR"]
    assert re.fullmatch(r"\d+ seconds?", broken.pop(1))
    assert broken == [
        "broken",
        "2 calls without a result",
        "recovers result of send_email; placeholder for wire_money (awaiting_input)",
    ]
    assert paused[2:] == ["waits for a human: wire 3?", ""]
    summary, *following = err.splitlines()
    assert code == 1
    assert re.fullmatch(
        r"langgraph-patch: 1 of 3 threads is dead: 1 with recoverable results; "
        r"1 waits for a human, the oldest for \d+ seconds?\.",
        summary,
    )
    assert [line.partition(":")[2].partition(":")[0] for line in following] == [
        " next for one thread",
        " next for damaged",
        " next for paused",
    ]
    assert "or deploy with_patching(graph)" in err


def found_in(*reports):
    """The totals of a scan."""
    found = Counter()
    for report in reports:
        count_report(found, report)
    return summary(found)


def test_the_totals_of_a_scan_by_cause():
    """A dead thread counts once; a placeholder that can be replaced kills no thread."""

    def dead(history, **options):
        defects = tuple(validate_messages(history))
        patch = patch_messages(history, **options)
        return ThreadReport("1", "", "damaged", defects=defects, patch=patch, messages=3)

    call = [ai(("t", {}, "c1"), id="a"), human("x")]
    failed = dead(call, evidence={(0, 0): Finding("failed")})
    orphan = dead([AIMessage("x").model_copy(), patch_messages(call).messages[1]])
    replaceable = ThreadReport("3", "", "damaged", messages=3)
    paused = [ThreadReport("4", "", "paused", age=age, messages=2) for age in (5.0, 3 * 86400.0)]
    assert found_in(dead(call), dead(call), failed, orphan, replaceable, *paused) == (
        "4 of 7 threads are dead: 1 failed, 2 unknown, 1 with orphaned results; "
        "2 wait for a human, the oldest for 3 days; 1 with a placeholder that can be replaced."
    )
    assert found_in(ThreadReport("1", "", "healthy")) == "none of 1 thread is dead."
    sub = ThreadReport("1", "sub", "unreadable")
    assert found_in(sub, sub) == "none of 2 histories is dead; 2 unreadable."


@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_gets_columns_of_its_width(columns, cli, path, on_terminal):
    """No line is wider, and no word is broken (fault C11)."""
    on_terminal(columns)
    out = cli("scan", path)[1]
    assert max(map(len, out.splitlines())) <= columns
    assert max(map(len, cli("show", path, "broken")[1].splitlines())) > columns - 20
    assert {"recovers", "placeholder", "send_email;", "(awaiting_input)"} <= set(out.split())
    assert "\x1b" not in out


def test_colours_are_for_a_terminal(cli, path, on_terminal, monkeypatch):
    """The status has a colour, unless NO_COLOR is set."""
    on_terminal(140, colours=True)
    assert "\x1b[31m2 calls without a result" in cli("scan", path)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in cli("scan", path)[1]


def test_damaged_threads_are_listed_first(cli, path):
    """Then unreadable and paused ones (fault C11)."""
    with SqliteSaver.from_conn_string(path) as saver:
        copy_thread(saver, "broken", "zzz")
    assert ids_in(cli("scan", path)[1]) == ["broken", "zzz", "paused"]


def test_scan_in_json_is_one_object_a_line_as_found(cli, path, monkeypatch):
    """Each line is a report, printed before the next thread is read."""
    printed = []

    def watched(*args, **kwargs):
        for report in scan_threads(*args, **kwargs):
            printed.append(sys.stdout.getvalue().count("\n"))
            yield report

    monkeypatch.setattr(threads, "scan_threads", watched)
    code, out, _ = cli("scan", path, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["status"] for line in lines]) == (1, ["damaged", "paused"])
    assert [change["kind"] for change in lines[0]["changes"]] == ["recovered", "inserted"]
    assert [line["asks"] for line in lines] == [[], ["wire 3?"]]
    assert "patch" not in lines[0]
    assert printed == [0, 1, 1]


def test_without_a_terminal_a_line_says_at_times_how_far_a_scan_is(cli, path, monkeypatch):
    """Otherwise a long scan in a log looks as if it hung (fault C11)."""
    monkeypatch.setattr(langgraph_patch.commands, "_SECONDS", -1.0)
    assert cli("scan", path)[2].startswith("langgraph-patch: 1 read so far\n")


def test_the_exit_codes_of_a_scan(cli, path, repair):
    """0 if nothing is damaged, 1 for damage, 3 for what cannot be read, 2 if nothing was seen."""
    assert repair("--all", "--apply", "--yes")[0] == 0
    code, out, err = cli("scan", path)
    assert (code, ids_in(out)) == (0, ["paused"])
    assert "none of 3 threads is dead" in err
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    code, out, _ = cli("scan", path)
    assert (code, "unreadable; a row of it is a pickle" in out) == (3, True)
    code, out, err = cli("scan", path, "--thread", "x*")
    assert (code, out, "nothing was looked at" in err) == (2, "", True)
    code, _, err = cli("scan", path, "paused", "--messages-key", "chat")
    assert (code, "none has a state key 'chat': name it with --messages-key" in err) == (2, True)


def test_old_damage_under_a_pause_is_damage_for_every_command(cli, path, repair):
    """Exit code 1 of scan, of show, and of a repair that leaves it; `abandon` repairs it."""
    old = [human("h0"), ai(("send_email", {"to": "x"}, "c0"), id="a0"), human("h1")]
    with SqliteSaver.from_conn_string(path) as saver:
        app = application("react_v2", saver, both_calls())
        app.update_state(thread("paused2"), {"messages": old}, as_node="__start__")
        app.update_state(thread("paused2"), {"messages": [both_calls()]}, as_node="agent")
        app.invoke(None, thread("paused2"))
    code, _, err = cli("scan", path, "paused2")
    assert (code, "1 waiting with damage" in err) == (1, True)
    assert cli("show", path, "paused2")[0] == 1
    code, out, err = repair("paused2", "--apply", "--yes")
    assert (code, outcomes_in(out)) == (1, {"paused2": "paused"})
    assert "repair it with --on-pause abandon" in err
    assert repair("paused2", "--apply", "--yes", "--on-pause", "abandon")[0] == 0


def test_a_database_that_fails_leaves_what_was_found(cli, path, monkeypatch):
    """The totals and the table up to then are printed; exit code 2. So with Ctrl-C: 130."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10

    def failing(*args, **kwargs):
        for report in scan_threads(*args, **kwargs):
            yield report
            if report.thread_id == "healthy":
                raise error

    monkeypatch.setattr(threads, "scan_threads", failing)
    code, out, err = cli("scan", path)
    assert (code, ids_in(out)) == (2, ["broken"])
    assert "1 of 2 threads is dead" in err
    assert err.splitlines()[-1] == f"langgraph-patch: {path!r}: disk I/O error."
    error = KeyboardInterrupt()
    assert (cli("scan", path)[0], ids_in(out)) == (130, ["broken"])


# --- which threads -----------------------------------------------------------------------


def test_threads_are_selected_by_pattern_and_by_id(cli, path):
    """`--thread` is a pattern and may be repeated; ids are arguments."""
    listed = ("scan", path)
    assert ids_in(cli(*listed, "--thread", "*e*")[1]) == ["broken", "paused"]
    assert ids_in(cli(*listed, "--thread", "b*", "--thread", "p?used")[1]) == ["broken", "paused"]
    assert ids_in(cli(*listed, "paused", "--thread", "p*")[1]) == ["paused"]
    assert ids_in(cli(*listed, "paused", "broken")[1]) == ["broken", "paused"]


def test_threads_are_selected_by_their_age(cli, path):
    """`--since` takes a duration; what was written to before is not listed."""
    old = (datetime.now(UTC) - timedelta(hours=5)).isoformat()
    serde = JsonPlusSerializer()
    with closing(sqlite3.connect(path)) as conn, conn:
        rows = conn.execute(
            "SELECT checkpoint_id, type, checkpoint FROM checkpoints WHERE thread_id='paused'"
        ).fetchall()
        for checkpoint_id, kind, blob in rows:
            checkpoint = {**serde.loads_typed((kind, blob)), "ts": old}
            conn.execute(
                "UPDATE checkpoints SET checkpoint=? WHERE thread_id='paused' AND checkpoint_id=?",
                (serde.dumps_typed(checkpoint)[1], checkpoint_id),
            )
    for since in ("4h", "90min", "600s", "600"):
        assert ids_in(cli("scan", path, "--since", since)[1]) == ["broken"], since
    assert cli("scan", path, "--since", "0min")[0] == 2
    for since in ("6h", "2d", "99999d"):
        assert ids_in(cli("scan", path, "--since", since)[1]) == ["broken", "paused"], since


def test_encrypted_rows_name_the_option_that_decrypts_them(cli, path, tmp_path):
    """Without the serializer of the application its rows are unreadable, with it they are read."""
    name = f"serde_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(
        "from langgraph.checkpoint.serde.encrypted import EncryptedSerializer\n"
        "class Cipher:\n"
        "    def encrypt(self, text): return 'rot', bytes(255 - b for b in text)\n"
        "    def decrypt(self, name, text): return bytes(255 - b for b in text)\n"
        "serde = EncryptedSerializer(Cipher())\nmade = lambda: serde\n"
    )
    with closing(sqlite3.connect(path)) as conn, conn:
        for table, value in (("checkpoints", "checkpoint"), ("writes", "value")):
            for rowid, kind, blob in conn.execute(f"SELECT rowid, type, {value} FROM {table}"):  # noqa: S608 - our names
                hidden = bytes(255 - byte for byte in blob or b"")
                conn.execute(
                    f"UPDATE {table} SET type=?, {value}=? WHERE rowid=?",  # noqa: S608 - our names
                    (f"{kind}+rot", hidden, rowid),
                )
    code, out, _ = cli("scan", path)
    assert (code, out.count("its rows are encrypted")) == (3, 3)
    assert "--serde module:attribute" in out
    serde = f"{tmp_path / name}.py:serde"
    code, out, _ = cli("scan", path, "--serde", serde)
    assert (code, ids_in(out)) == (1, ["broken", "paused"])
    assert (
        "expected a serializer" in cli("scan", path, "--serde", serde.replace(":serde", ":made"))[2]
    )


# --- show --------------------------------------------------------------------------------


def test_show_marks_defects_and_puts_the_patch_beside(cli, path):
    """Both columns, the defect with its sign, the cause and the recovered result."""
    code, out, err = cli("show", path, "broken")
    assert code == 1
    for text in ("broken: damaged", "! [ai] dangling", "↺ [tool c1] recovered", "sent to bob"):
        assert text in out
    assert "+ [tool c2] inserted (awaiting_input)" in out
    assert err.startswith("langgraph-patch: next for damaged: ")
    code, out, _ = cli("show", path, "paused")
    assert (code, "AS IT WOULD BE" in out) == (0, False)
    assert re.search(r"^  asks +wire 3\?$", out, re.MULTILINE)


def test_json_is_json_whatever_a_state_holds(cli, path):
    """The whole patch; NaN and infinity are no JSON, so they are printed as strings."""
    nan, inf = float("nan"), float("inf")
    with SqliteSaver.from_conn_string(path) as saver:
        texts = [human("h"), ai(("t", {"x": [nan, -inf]}, "c"), id="a"), human("x")]
        silent("react_v2", saver).update_state(thread("nan"), {"messages": texts}, "__start__")
    code, out, _ = cli("show", path, "nan", "--json")
    assert (code, len(json.loads(out, parse_constant=pytest.fail)["patch"]["messages"])) == (1, 4)
    assert '["NaN", "-Infinity"]' in out


def test_hostile_text_is_shown_as_text(cli, tmp_path):
    """No escape, no control character, no direction mark, no markup, no forged line."""
    path, file = str(tmp_path / "hostile.sqlite"), tmp_path / "page.html"
    with SqliteSaver.from_conn_string(path) as saver:
        messages = [human(HOSTILE, "h"), ai(("t", {"x": HOSTILE}, HOSTILE), text=HOSTILE, id="a")]
        update = {"messages": [*messages, human("x")]}
        silent("hand_built", saver).update_state(thread(HOSTILE), update, as_node="__start__")
    for arguments in (["scan", path], ["scan", path, "--json"], ["show", path, HOSTILE]):
        code, out, err = cli(*arguments)
        assert code == 1
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err)
    assert "[red]x[/red]" in out
    assert not any(line.startswith("fake") for line in cli("scan", path)[1].splitlines())
    assert cli("show", path, HOSTILE, "--html", file)[0] == 1
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", file.read_text())


def test_show_writes_a_page(cli, path, tmp_path):
    """`--html` writes one page in the place of the table, over an old page; it names its source."""
    file = tmp_path / "page.html"
    for _ in range(2):
        code, out, err = cli("show", path, "broken", "--html", file)
        assert (code, out) == (1, "")
        assert err.startswith(f"langgraph-patch: wrote {str(file)!r}.\n")
    text = file.read_text()
    for shown in (
        ">!</span>",
        "[ai] dangling",
        "[tool c1] recovered",
        "sent to bob",
        f"Database {path}, read",
    ):
        assert shown in text
    code, out, _ = cli("show", path, "paused", "--html", file, "--json")
    assert (code, json.loads(out)["status"]) == (0, "paused")
    assert "wire 3?" in file.read_text()
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    assert cli("show", path, "healthy", "--html", file)[0] == 3
    assert "is a pickle" in file.read_text()
    assert list(tmp_path.glob("*.part")) == []


def test_a_page_replaces_nothing_but_a_page(cli, path, tmp_path):
    """Not the database, not another file, no link, no folder (fault C1)."""
    other, link, page = tmp_path / "notes.txt", tmp_path / "link.html", tmp_path / "page.html"
    other.write_text("mine")
    cli("show", path, "broken", "--html", page)
    link.symlink_to(page)
    written = page.read_bytes()
    before = rows_of(path)
    for target in (path, other, link, tmp_path, "", "/no/such/x.html", "/dev/null", "a\0b"):
        code, out, err = cli("show", path, "broken", "--html", target)
        assert (code, out, err.count("\n")) == (2, "", 1), target
        assert "is no page of langgraph-patch" in err or "cannot be written" in err
    assert rows_of(path) == before
    assert (other.read_text(), page.read_bytes(), link.is_symlink()) == ("mine", written, True)


# --- repair ------------------------------------------------------------------------------


class Customer(BaseModel):
    """A class of an application."""

    name: str


def test_repair_is_a_dry_run_unless_applied(path, repair):
    """Without --apply nothing is written, the plan is printed, and the exit code is 1."""
    before = rows_of(path)
    code, out, err = repair("--all")
    assert code == 1
    assert rows_in(out) == [
        [
            "broken",
            "planned",
            "recovers result of send_email; placeholder for wire_money (awaiting_input)",
        ],
        [
            "paused",
            "paused",
            "it waits for a human: answer it, or abandon the pause (on_pause='abandon')",
        ],
    ]
    assert err.splitlines() == [
        "langgraph-patch: 1 healthy, 1 paused, 1 planned (nothing was written).",
        "langgraph-patch: next for paused: answer it, or repair it with --on-pause abandon.",
        "langgraph-patch: next for planned: add --apply to write.",
    ]
    assert rows_of(path) == before
    out = repair("broken", "--diff")[1]
    assert "↺ [tool c1] recovered" in out
    assert out.splitlines()[-1].startswith("broken\tplanned\t")


def test_repair_apply_repairs_and_a_second_scan_is_clean(cli, path, repair):
    """Exit code 0; then the scan is clean, and the pause still takes its resume."""
    code, out, _ = repair("--all", "--apply", "--yes")
    assert (code, outcomes_in(out)) == (0, {"broken": "repaired", "paused": "paused"})
    assert cli("scan", path)[0] == 0
    with SqliteSaver.from_conn_string(path) as saver:
        on = application("react_v2", saver, AIMessage("fine"), AIMessage("fine"))
        assert on.invoke({"messages": [human("x")]}, thread("broken"))["messages"][-1].text
        resumed = on.invoke(Command(resume=kind_of("react_v2").yes), thread("paused"))
        assert [m.text for m in resumed["messages"][-3:]] == ["sent to bob", "wired: yes", "fine"]


def test_a_human_confirms_what_is_written(path, repair, monkeypatch):
    """The question names the database and how many histories; all but yes writes nothing."""
    before = rows_of(path)
    for typed, code in (("", 1), ("n\n", 1), ("YES\n", 0)):
        assert rows_of(path) == before
        typing = io.StringIO(typed)
        typing.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", typing)
        found, _, err = repair("--all", "--apply")
        assert err.startswith(f"write 1 repair to {path}? [y/N] ")
        assert (found, "nothing was written." in err) == (code, code == 1)
    assert statuses(path)["broken"] == "healthy"
    monkeypatch.setattr(sys, "stdin", None)  # there is nothing to ask: only a pause is left
    assert repair("--all", "--apply")[0] == 0


def test_a_limit_repairs_a_first_few(path, repair):
    """The others are left, counted, and found by the next run; a pause is listed, not counted."""
    with SqliteSaver.from_conn_string(path) as saver:
        for name in ("copy-1", "copy-2"):
            copy_thread(saver, "broken", name)
    how = ("--all", "--apply", "--yes", "--limit", 2)
    code, out, err = repair(*how)
    done = {"broken": "repaired", "copy-1": "repaired", "paused": "paused"}
    assert (code, outcomes_in(out)) == (1, done)
    assert "1 beyond --limit, 1 healthy, 1 paused, 2 repaired." in err
    assert "next for beyond --limit: the same command repairs the next ones" in err
    code, out, _ = repair(*how)
    assert (code, outcomes_in(out)) == (0, {"copy-2": "repaired", "paused": "paused"})


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
    how = ("--all", "--graph", graph_file, "--min-age", 0, "--apply", "--yes")
    code, out, _ = cli("repair", path, *how)
    repaired = [name for name, outcome in outcomes_in(out).items() if outcome == "repaired"]
    assert (code, len(repaired)) == (0, list(evidence.values()).count("damaged"))
    assert cli("scan", path)[0] == 0


def test_older_checkpoints_need_not_be_asked(cli, path, repair):
    """With --no-recover what they hold is neither read nor recovered."""
    with closing(sqlite3.connect(path)) as conn, conn:
        old = "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'broken'"
        change = f"UPDATE checkpoints SET checkpoint = x'c1' WHERE checkpoint_id < ({old})"  # noqa: S608 - our own
        conn.execute(f"{change} AND thread_id = 'broken'")
    code, out, _ = repair("broken")
    assert (code, "recover=False" in out) == (3, True)
    code, out, _ = repair("broken", "--no-recover")
    assert (code, "placeholder for send_email (unknown)" in out) == (1, True)
    assert "; its older checkpoints cannot be read" in cli("scan", path)[1]


def test_a_thread_with_an_unexpected_error_is_refused_by_its_name(path, repair, monkeypatch):
    """The others are still repaired; a database that failed ends the command, with a tally."""
    error = ZeroDivisionError("oh")

    def fail(graph, config, **options):
        if config["configurable"]["thread_id"] == "paused":
            raise error
        return repair_thread(graph, config, **options)

    monkeypatch.setattr(threads, "repair_thread", fail)
    code, out, err = repair("--all")
    assert (code, rows_in(out)[1][1:3]) == (3, ["refused", "ZeroDivisionError: oh"])
    assert "next for refused: its line says why; or deploy with_patching(graph)" in err
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = 10
    code, out, err = repair("--all", "--apply", "--yes")
    assert (code, outcomes_in(out)) == (2, {"broken": "repaired"})
    assert "1 healthy, 1 repaired." in err
    error = KeyboardInterrupt()
    assert repair("--all")[0] == 130


def test_repair_skips_young_threads_and_exits_with_3(cli, path, graph_file):
    """By default a thread must be a minute old, unless it is forced; the next step is named."""
    how = ("repair", path, "broken", "--graph", graph_file, "--apply", "--yes")
    code, out, err = cli(*how)
    assert (code, outcomes_in(out)) == (3, {"broken": "young"})
    assert "young: wait, or lower --min-age" in err
    assert cli(*how, "--force")[0] == 0


def test_repair_refuses_what_it_would_flatten_unless_trusted(path, repair):
    """A class that is not loaded would be written back as a dict: refused, and how to go on."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread("broken"))
        values = {**saved.checkpoint["channel_values"], "who": Customer(name="bob")}
        saver.put(saved.config, {**saved.checkpoint, "channel_values": values}, {}, {})
    before = rows_of(path)
    for apply in ([], ["--apply", "--yes"]):
        code, out, _ = repair("broken", *apply)
        assert (code, rows_of(path) == before) == (3, True)
        assert f"--trust {__name__}:Customer" in out
    assert repair("broken", "--apply", "--yes", "--trust", f"{__name__}:Customer")[0] == 0


def test_a_repair_that_the_graph_cannot_do_is_refused_and_the_rest_goes_on(path, repair):
    """A namespace that the graph does not have is a line and exit code 3."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread("broken"))
        place = {"thread_id": "other", "checkpoint_ns": "child"}
        saver.put({"configurable": place}, saved.checkpoint, {}, {})
    code, out, _ = repair("--all", "--apply", "--yes")
    assert (code, outcomes_in(out)["broken"]) == (3, "repaired")
    [refused] = [row for row in rows_in(out) if row[0] == "other in child"]
    assert refused[1] == "refused"
    assert refused[2].startswith("The graph has no subgraph 'child'")


# --- undo --------------------------------------------------------------------------------


@pytest.fixture
def before(path, repair):
    """The rows of a database before all damage and pauses in it were repaired."""
    rows = rows_of(path)
    assert repair("--all", "--apply", "--yes", "--on-pause", "abandon")[0] == 0
    assert rows_of(path) != rows
    return rows


def test_undo_needs_no_file_and_no_graph(cli, path, before):
    """The rows are those before the repair; nothing is left to undo then."""
    code, out, err = cli("undo", path, "--all")
    assert (code, outcomes_in(out)) == (0, {"broken": "undone", "paused": "undone"})
    assert err == "langgraph-patch: 2 undone.\n"
    assert rows_of(path) == before
    nothing = "langgraph-patch: no thread has a repair to undo.\n"
    assert cli("undo", path, "--all") == (0, "", nothing)


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


# --- as a process ------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from langgraph.checkpoint.sqlite import SqliteSaver
put = SqliteSaver.put
def killed(self, config, *args):
    place = put(self, config, *args)
    if config["configurable"]["thread_id"] == "copy":
        os.kill(os.getpid(), signal.SIGKILL)
    return place
SqliteSaver.put = killed
from langgraph_patch.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_what_a_killed_process_wrote_can_be_undone(cli, path, graph_file):
    """Killed directly after a write: each repair is written as a whole, and has its mark."""
    with SqliteSaver.from_conn_string(path) as saver:
        copy_thread(saver, "broken", "copy")
    before = rows_of(path)
    how = [path, "--all", "--graph", graph_file, "--min-age", "0", "--apply", "--yes", "--json"]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", KILLED, "repair", *how], check=False, env=ENVIRONMENT
    )
    assert done.returncode == -signal.SIGKILL
    assert statuses(path)["copy"] == "healthy"
    assert cli("undo", path, "--all")[0] == 0
    assert rows_of(path) == before


@pytest.mark.slow
def test_closed_outputs_are_no_error(path, graph_file):
    """Whoever reads may stop reading, and cron jobs close what they do not read."""
    repair = f"repair '{path}' --all --graph {graph_file} --min-age 0 --apply --yes --json"
    for command, codes in (
        (f"scan '{path}' >&-", {1}),
        (f"scan '{path}' 2>&-", {1}),
        ("scan /no/such.db >&- 2>&-", {2}),
        (f"scan '{path}' --json | true", {0}),
        ("demo | true", {0}),
        (f"{repair} | true", {0}),
    ):
        done = subprocess.run(  # noqa: S603 - our own command
            ["/bin/sh", "-c", f"{sys.executable} -m langgraph_patch {command}"],
            capture_output=True,
            check=False,
            env={**os.environ, **ENVIRONMENT},
        )
        assert (done.returncode in codes, b"Traceback" in done.stderr) == (True, False), command
