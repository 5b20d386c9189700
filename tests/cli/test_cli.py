"""The command line: what is printed, written and refused, and the exit codes."""

import gc
import io
import json
import re
import shlex
import shutil
import sqlite3
import sys
import threading
from argparse import Namespace
from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import BaseModel

from kit import calls
from langgraph_patch import patch_messages, threads
from langgraph_patch._text import database_name
from langgraph_patch.cli import commands, main, output
from langgraph_patch.cli.output import Counts, next_command, summary
from langgraph_patch.history.findings import Finding
from langgraph_patch.threads import ThreadReport, open_database, repair_thread, scan_threads
from langgraph_patch.threads.scan import scan_selected
from support.databases import execute, rows_of
from support.stored_threads import MAIL, WIRE, stored, thread, write

YES = ("--apply", "--yes")
APPLY = (*YES, "--min-age", 0)
REPAIRS = "recovers result of mail; placeholder for wire (awaiting_input)"
WAITS = "it waits for a human: answer it, or abandon the pause"


class Own(JsonPlusSerializer):
    """A serializer of an application: it reads a type of its own."""

    def loads_typed(self, data):
        """Read that type as what it is."""
        return super().loads_typed(("msgpack" if data[0] == "own" else data[0], data[1]))


class Customer(BaseModel):
    """A class of an application."""

    name: str


SERDE = Own()


def agent(saver, thread_id):
    """The application's agent, in one thread; its model has nothing to do."""
    made = stored("new", saver=saver, thread_id=thread_id)
    made.model.script.clear()
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A database: a broken thread, a healthy one, a paused one."""
    file = tmp_path_factory.mktemp("made") / "threads.sqlite"
    with SqliteSaver.from_conn_string(str(file)) as saver:
        for way, name in (("abandoned", "broken"), ("paused",) * 2, ("healthy",) * 2):
            stored(way, saver=saver, thread_id=name)
    return file


@pytest.fixture
def path(made, tmp_path, monkeypatch):
    """A copy of that database; what a command adds to the import path is for this test only."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return str(shutil.copy(made, tmp_path))


def raising(function, error, text):
    """The function, which raises an error if an argument has a text in it."""

    def call(*args, **options):
        if text in repr(args):
            raise error
        return function(*args, **options)

    return call


def rows_in(out):
    """The rows of a table in a pipe, without its head."""
    return [line.split("\t") for line in out.splitlines()[1:]]


def ids_in(out):
    """The threads of a table in a pipe."""
    return [row[0] for row in rows_in(out)]


def outcomes_in(out):
    """The outcome of each thread of a repair in a pipe."""
    return {row[0]: row[1] for row in rows_in(out)}


# --- bad input ---------------------------------------------------------------------------

ALL = "repair {db} --all"
BAD = {
    "scan /no/such.db": "is no file: expected",
    "scan {module}": "file is not a database",
    "scan /": "is no file",
    "": "required",
    "scan {db} --fast": "--fast",
    "show {db} nobody": "There is no thread 'nobody'",
    "show {db} \udcff": "There is no thread",
    "show {db} --all": "name threads, or select them with --thread, --since or --status.",
    "show {db} broken --messages-key chat": "state key 'chat': select other threads, or name",
    "scan {db} --since soon": "expected a time such as 90s, 30min, 2h or 3d",
    "scan {db} --since 100000d": "expected a time such as",
    "scan env:NO_SUCH_VARIABLE": "'NO_SUCH_VARIABLE' is not set",
    "scan {db} --serde json:nobody": "has no attribute 'nobody'",
    "scan {db} --serde {module}:Own": "expected a SerializerProtocol, and not",
    "scan {db} --serde x": "--serde 'x' cannot be loaded",
    "scan {db} --status error": "invalid choice: 'error'",
    "repair {db}": "or --all",
    "repair {db} x --all": "or --all",
    "undo {db}": "or --all",
    "show {db}": "name threads, or",
    "scan": "required: DB (see",
    "repair {db} broken zzz --apply --yes": "There is no thread 'zzz'",
    f"{ALL} --messages-key chat": "none of 3 histories has a state key 'chat': select other",
    f"{ALL} --min-age nan": "expected a time such",
    f"{ALL} --limit 0": "expected a number, 1 or more",
    f"{ALL} --apply --min-age 0": "nobody can be asked whether to write 1 repair to {db}",
    f"{ALL} --serde {{failing}}:g": "kaput",
    f"{ALL} --serde {{exiting}}:g": "SystemExit",
    f"{ALL} --trust {{module}}:REPAIRS": "REPAIRS' is a str: expected a type",
    f"{ALL} --trust json:Who": "--trust 'json:Who' cannot be loaded (AttributeError",
    f"{ALL} --trust decimal:Decimal --serde json:loads": "--trust is not used with --serde",
    "undo {db} x": "There is no thread 'x'",
    "repair http://127.0.0.1:1 --all": "Deploy the graph with with_patching, and the next message",
    "undo http://127.0.0.1:1 --all": "or name the database of the server",
}


def test_bad_input_is_said_and_exit_code_2(cli, path, tmp_path):
    """It says what is wrong and what to do, writes nothing, and shows no traceback."""
    values = {"db": path, "module": __file__}
    for name, text in {"failing": "raise RuntimeError('kaput\\nand')", "exiting": "exit()"}.items():
        values[name] = str(tmp_path / f"{name}.py")
        (tmp_path / f"{name}.py").write_text(text)
    before = rows_of(path)
    for command, said in BAD.items():
        code, out, err = cli(*(each.format_map(values) for each in command.split()))
        assert (code, out) == (2, ""), command
        last = err.splitlines()[-1]
        assert last.startswith("langgraph-patch: "), command
        assert said.format_map(values) in last
        assert "Traceback" not in err, command
    assert rows_of(path) == before


# --- where the database is ---------------------------------------------------------------


NO_DATABASE = "This is not a supported database"
SECRET = {
    "u:Zx9secret@host/db": NO_DATABASE,
    "Zx9secret@h": "because it may hold a password, is no file: expected a SQLite database",
    "host=h password=Zx9secret": NO_DATABASE,
    "host=h PASSWORD = 'a Zx9secret'": NO_DATABASE,
    "postgresql//u:Zx9secret@h": "because it may hold a password, is no file",
    "postgresql+psycopg://u:Zx9secret@h/db": NO_DATABASE,
    "postgresql:/u:Zx9secret@h": "begins with postgresql:// or postgres:// (PostgreSQL)",
    "mysql://u:Zx9secret@h/db": "begins with postgresql:// or postgres://",
    "postgresql://u:Zx9secret@127.0.0.1:1/db": "PostgreSQL",
    "https://u:Zx9secret@h": "the environment variable LANGGRAPH_HEADERS",
}
"""Names of databases with a password, and what is said."""
URI = "postgresql://u:Zx9secret@h/db"


def test_no_password_is_printed(cli, path, monkeypatch):
    """Not of an argument that is wrong, and not of the variable that `env:NAME` names."""
    for name, said in SECRET.items():
        monkeypatch.setenv("DBURL", name)
        for arguments in (["scan", path, "--since", name], [name]):
            code, out, err = cli(*arguments)
            assert (code, "Zx9secret" in out + err) == (2, False), arguments
        for each in (name, "env:DBURL"):
            code, out, err = cli("scan", each)
            assert (code, out, "Zx9secret" in err, said in err) == (2, "", False, True), name
    for name in ("slack:U1@T1", "https://x"):  # the id of a thread is shown
        assert f"There is no thread {name!r}." in cli("show", path, name)[2]
        assert f"none of the ids, such as {name!r}" in cli("scan", path, name, "--thread", "x")[2]
    for error in (ValueError(URI), ConnectionError(URI)):  # of a driver
        error.add_note(f"it was {URI}")
        failing = raising(commands.scan_selected, error, "")
        monkeypatch.setattr(commands, "scan_selected", failing)
        code, out, err = cli("scan", path)
        assert (code, out, "Zx9secret" in err, type(error).__name__ in err) == (2, "", False, True)
    monkeypatch.undo()
    monkeypatch.setattr(threads, "repair_thread", raising(repair_thread, ValueError(URI), ""))
    code, out, err = cli("repair", path, "--all", *APPLY)
    assert (code, "Zx9secret" in out + err, "ValueError with a text" in out) == (3, False, True)
    monkeypatch.setenv("THREADS", path)
    code, out, err = cli("scan", "env:THREADS")
    assert (code, ids_in(out), path in err) == (1, ["broken", "paused"], False)


def test_the_totals_of_a_scan_by_cause():
    """A thread counts once for each kind of change."""

    def found_in(*reports):
        found = Counts()
        for report in reports:
            found.add(report)
        return summary(found)

    def damaged(*history, **options):
        return ThreadReport("1", "", "damaged", patch=patch_messages(history, **options))

    call = [calls(("t", {}), id="a"), HumanMessage("x")]
    result = patch_messages(call).messages[1]
    failed = damaged(*call, evidence={(0, 0): Finding("failed")})
    dead = (damaged(*call), damaged(*call), failed, damaged(AIMessage("x"), result))
    pauses = [ThreadReport("1", "", "paused", messages=3, age=age) for age in (259200.0, 5.0)]
    assert found_in(*dead, damaged(*call, result), *pauses) == (
        "7 histories: 5 damaged, 2 paused. Of the damaged, each under all its kinds: 1 failed, "
        "2 unknown, 1 with orphaned results. Waiting for a human: 2, the oldest for 3 days."
    )
    sub = ThreadReport("1", "sub", "unreadable")
    assert found_in(sub, sub) == "2 histories: 2 unreadable."
    assert found_in() == ""


# --- scan --------------------------------------------------------------------------------


def test_scan_in_json_is_one_object_a_line_as_found(cli, path, monkeypatch):
    """Each line is a report, printed before the next thread is read."""
    printed = []

    def watched(*args, **kwargs):
        for report in scan_selected(*args, **kwargs):
            printed.append(sys.stdout.getvalue().count("\n"))
            yield report

    monkeypatch.setattr(commands, "scan_selected", watched)
    code, out, _ = cli("scan", path, "--json")
    broken, paused, totals = map(json.loads, out.splitlines())
    assert (code, broken["status"], paused["status"]) == (1, "damaged", "paused")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(broken["written"])) < timedelta(hours=1)
    assert (totals["at"] >= broken["written"], totals["database"]) == (True, path)
    counts = totals["totals"]
    assert counts.pop("by_kind") == {"recovered": 1, "awaiting_input": 1}
    assert counts.pop("paused_with_damage") == 0
    assert counts == {"histories": 3, "damaged": 1, "paused": 1, "unreadable": 0, "healthy": 1}
    assert [change["kind"] for change in broken["changes"]] == ["recovered", "inserted"]
    assert (paused["asks"], "patch" in broken) == (["wire 5?"], False)
    assert printed == [0, 1, 1]


def test_one_line_says_so_after_a_pause(cli, path, monkeypatch):
    """However long one thread took."""
    reports = [ThreadReport("1", "", "healthy", messages=1)] * 5
    monkeypatch.setattr(commands, "scan_selected", lambda *_, **__: iter(reports))
    clock = iter((0, 65, 66, 67, 68, 71))
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    assert re.findall(r"(\d+) read so far", cli("scan", path)[2]) == ["1", "5"]


def test_a_bar_is_for_a_terminal_that_nothing_else_is_printed_on(cli, path, monkeypatch):
    """A log has no code of a terminal, also with FORCE_COLOR; no spinner stands before a line."""
    repair = ("repair", path, "--all", "--min-age", 0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in cli(*repair)[2]
    for stdout, option, has_bar in (
        *((True, "--diff", False), (True, "--json", False), (True, "--quiet", False)),
        *((False, "--diff", True), (False, "--json", True), (True, "--recover", True)),
    ):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys.stdout, "isatty", lambda it=stdout: it, raising=False)
        arguments = [each for each in (option,) if each != "--recover"]
        assert ("\x1b[?25l" in cli(*repair, *arguments)[2]) == has_bar, option


def test_a_next_command_can_be_pasted(cli, path, tmp_path, monkeypatch):
    """It has the database and the threads of this command, but no password and no odd id."""

    def following(*arguments, name=path):
        err = cli(arguments[0], name, *arguments[1:])[2]
        return re.findall(r"langgraph-patch ((?!.*langgraph-patch ).*)$", err, re.MULTILINE)

    end = f"repair {path} paused --on-pause=abandon"
    assert following("scan") == [f"show {path} broken", f"repair {path} --all", end]
    assert following("show", "--thread=p*", "broken", "paused") == [end]
    assert cli(*shlex.split(end), "--min-age", 0)[0] == 1
    assert following("show", "broken") == [f"repair {path} broken"]
    assert following("scan", "broken", "paused")[1] == f"repair {path} broken paused"
    chosen = ("--thread=b*", "--since=90min", "--status=damaged")
    serde = f"--serde={__file__}:SERDE"
    for options, expected in ((chosen, chosen), ((serde,), ("--all", serde))):
        repair = shlex.split(following("scan", *options)[1])
        assert repair == ["repair", path, *expected]
        assert cli(*repair, "--min-age", 0)[0] == 1
    of_broken = next(n for n in (1, 2) if cli("scan", path, f"--shard={n}/2")[0])
    shard = f"--shard={of_broken}/2"
    named = [f"show {path} broken", f"repair {path} --all {shard}"]
    assert following("scan", shard)[:2] == named
    assert following("scan", "broken", shard)[1] == f"repair {path} broken {shard}"
    assert following("scan", "--status=paused")[1] == f"repair {path} --status=damaged"
    monkeypatch.setenv("DBURL", path)
    assert following("scan", name="env:DBURL")[1] == "repair env:DBURL --all"
    spaced = shutil.copy(path, tmp_path / "my threads.sqlite")
    assert following("scan", name=str(spaced))[1] == f"repair '{spaced}' --all"
    with SqliteSaver.from_conn_string(str(spaced)) as saver:
        for odd in ("-a\x1b", "   "):
            stored("abandoned", saver=saver, thread_id=odd)
    assert following("scan", name=str(spaced))[0] == f"show '{spaced}' '   '"
    assert cli("show", spaced, "   ")[1].startswith("Thread '   ': damaged")
    options = Namespace(named="postgresql://u:Zx9secret@h/db", ids=["1"], serde=None)
    assert next_command(options, "undo") == "langgraph-patch undo DB 1"
    err = cli("repair", path, "--all", *APPLY)[2]
    [undo] = re.findall("langgraph-patch (undo .*)$", err, re.MULTILINE)
    assert cli(*undo.split(), *YES)[0] == 0
    err = cli("repair", path, "--since=2h", shard, *APPLY)[2]
    [undo] = re.findall("langgraph-patch (undo .*)$", err, re.MULTILINE)
    assert undo == f"undo {path} --since=2h {shard}"
    assert cli(*undo.split(), *YES)[0] == 0
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    lines = cli("scan", path)[2].replace("\x1b[2K", "").splitlines()
    assert f"  langgraph-patch repair {path} --all" in lines  # whole, on a line of its own


def test_the_exit_codes_of_a_scan(cli, path):
    """0 if nothing is damaged, 1 for damage; 3 for what cannot be read comes first, and says so."""
    execute(path, "UPDATE checkpoints SET type = 'own' WHERE thread_id = 'healthy'")
    code, _, err = cli("scan", path)
    assert (code, "takes precedence over 1, which stands for: 1 damaged." in err) == (3, True)
    execute(path, "DELETE FROM checkpoints WHERE thread_id = 'broken'")
    code, out, err = cli("scan", path)
    assert (code, ids_in(out)) == (3, ["healthy", "paused"])
    assert "healthy\tunreadable\t" in out
    assert "next for unreadable: its line says why." in err
    code, out, _ = cli("repair", path, "--all", *APPLY)
    assert (code, outcomes_in(out)) == (3, {"healthy": "refused", "paused": "paused"})
    code, out, err = cli("scan", path, "--serde", f"{__file__}:SERDE")
    assert (code, ids_in(out)) == (0, ["paused"])
    assert "2 histories: 1 healthy, 1 paused." in err
    assert "show DB THREAD" not in err


def test_old_damage_under_a_pause_is_damage_for_every_command(cli, path):
    """Exit code 1 of scan, of show, and of a repair that leaves it; `abandon` repairs it."""
    old = [HumanMessage("h0"), calls(MAIL, first=0, id="a0"), HumanMessage("h1")]
    with SqliteSaver.from_conn_string(path) as saver:
        write(write(agent(saver, "old"), old), [calls(WIRE)], "model").run(None)
    code, _, err = cli("scan", path, "old")
    assert (code, "Paused with damage: 1." in err) == (1, True)
    assert cli("show", path, "old")[0] == 1
    code, out, err = cli("repair", path, "old", *APPLY)
    assert (code, outcomes_in(out)) == (1, {"old": "paused"})
    assert f"plan to end it: langgraph-patch repair {path} old --on-pause=abandon" in err
    assert cli("repair", path, "old", *APPLY, "--on-pause", "abandon")[0] == 0


DISK_ERROR = sqlite3.OperationalError("disk I/O error")
DISK_ERROR.sqlite_errorcode = 10


@pytest.mark.parametrize(("error", "code"), [(DISK_ERROR, 2), (KeyboardInterrupt(), 130)])
def test_a_command_that_ends_early_prints_what_was_done(error, code, cli, path, monkeypatch):
    """The totals and the table up to then are printed; what was repaired before stays."""
    last = f"{path!r}: disk I/O error. Is it" if code == 2 else "stopped by Ctrl-C."
    with monkeypatch.context() as patch:
        patch.setattr(Counts, "add", raising(Counts.add, error, "'healthy': healthy"))
        found, out, err = cli("scan", path)
    assert (found, ids_in(out)) == (code, ["broken"])
    assert "1 history: 1 damaged. Of" in err
    assert err.splitlines()[-1].startswith(f"langgraph-patch: {last}")
    monkeypatch.setattr(threads, "repair_thread", raising(repair_thread, error, "'paused'"))
    found, out, err = cli("repair", path, "--all", *APPLY)
    assert (found, outcomes_in(out)) == (code, {"broken": "repaired"})
    assert "1 healthy, 1 repaired." in err
    assert ids_in(cli("scan", path)[1]) == ["paused"]


def test_an_input_without_ids_says_so(cli, path, monkeypatch):
    """A pipe whose first command has found nothing is no error."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = cli("scan", path, "--thread", "-")
    assert (code, err.splitlines()[0]) == (0, "langgraph-patch: no id was read from the input.")


def test_a_database_without_a_name(cli, monkeypatch):
    """Of an environment variable the name is said."""
    monkeypatch.setenv("NO_DB", "")
    assert "'env:NO_DB' is empty" in cli("scan", "env:NO_DB")[2]
    assert "'' is empty" in cli("scan", "")[2]


def test_an_empty_selection_is_no_error(cli, path):
    """A quiet hour does not alarm, and the line says so; --quiet prints nothing."""
    for command in (["scan"], ["repair"], ["repair", "--apply"]):
        code, out, err = cli(command[0], path, "--thread", "x*", *command[1:])
        assert (code, out, err) == (0, "", "langgraph-patch: no thread matches.\n")
    assert cli("scan", path, "--since", "0min", "--quiet") == (0, "", "")
    code, out, err = cli("scan", path, "--quiet")
    assert (code, ids_in(out), err) == (1, ["broken", "paused"], "")


# --- show --------------------------------------------------------------------------------


def test_json_is_json_whatever_a_state_holds(cli, path):
    """The whole patch; NaN and infinity are no JSON, so they are printed as strings."""
    args = {"x": [float("nan"), -float("inf")]}
    with SqliteSaver.from_conn_string(path) as saver:
        write(agent(saver, "nan"), [calls(("t", args), id="a"), HumanMessage("x")])
    code, out, _ = cli("show", path, "nan", "--json")
    assert (code, len(json.loads(out, parse_constant=pytest.fail)["patch"]["messages"])) == (1, 3)
    assert '["NaN", "-Infinity"]' in out


# --- repair ------------------------------------------------------------------------------


def test_repair_is_a_dry_run_unless_applied(cli, path):
    """Without --apply the file is only read, the plan is printed, and the exit code is 1."""
    before = rows_of(path)
    code, out, err = cli("repair", path, "--all", "--min-age", 0)
    assert code == 1
    expected = [["broken", "planned", "", REPAIRS], ["paused", "paused", WAITS, ""]]
    assert rows_in(out) == expected
    assert "1 healthy, 1 paused, 1 planned (nothing was written)." in err
    assert err.endswith(
        f"this writes it: langgraph-patch repair --apply {path} --all --min-age 0\n"
    )
    how = ("repair", path, "broken", "--min-age", 0)
    out = cli(*how, "--diff")[1]
    assert "↺ [tool c1] recovered" in out
    assert out.splitlines()[-1].startswith("broken\tplanned\t")
    out = cli(*how, "--no-recover")[1]
    assert "placeholder for mail (unknown); placeholder for wire (unknown)" in out
    assert json.loads(cli(*how, "--diff", "--json")[1])["outcome"] == "planned"
    assert rows_of(path) == before
    execute(path, "CREATE TRIGGER trap AFTER INSERT ON writes BEGIN DELETE FROM writes; END")
    for command in (("scan", path), ("show", path, "broken"), how):
        assert cli(*command)[0] == 1  # what would refuse a file that is written to
    assert cli(*how, "--apply", "--yes")[0] == 2


def test_a_human_confirms_what_is_written(cli, path, monkeypatch):
    """The question names the database and how many: those are written, and none without a yes."""
    before, how = rows_of(path), ("repair", path, "--all", "--apply", "--min-age", 0)

    def new_ones(name):
        with SqliteSaver.from_conn_string(path) as saver:
            return stored("abandoned", saver=saver, thread_id=name)

    for typed, code in (("", 1), ("n\n", 1), (" YES\n", 0)):
        assert rows_of(path) == before
        typing = io.StringIO(typed)
        typing.isatty = lambda: True
        monkeypatch.setattr(sys, "stdin", typing)
        found, _, err = cli(*how)
        causes = "1 with recoverable results, 1 awaiting_input"
        assert err.startswith(f"write 1 repair to {path} ({causes})? [y/N] ")
        assert (found, "nothing was written." in err) == (code, code == 1)
    typing = io.StringIO("y\n")
    typing.isatty = lambda: bool(new_ones("late"))  # it breaks while the human reads the question
    monkeypatch.setattr(sys, "stdin", typing)
    new_ones("early")
    assert outcomes_in(cli(*how)[1]) == {"early": "repaired", "paused": "paused"}
    assert ids_in(cli("scan", path, "late")[1]) == ["late"]
    assert cli(*how, "--yes")[0] == 0
    for nobody in (None, io.StringIO("y\n")):
        monkeypatch.setattr(sys, "stdin", nobody)  # there is nothing to ask: only a pause is left
        assert cli(*how)[0] == 0
        code, _, err = cli(*how, "--on-pause", "abandon")
        assert (code, "nobody can be asked whether to write 1 repair to" in err) == (2, True)


def test_a_limit_repairs_a_first_few(cli, path):
    """The others are left, counted, and found by the next run; a pause is listed, not counted."""
    with SqliteSaver.from_conn_string(path) as saver:
        for name in ("copy-1", "copy-2"):
            stored("abandoned", saver=saver, thread_id=name)
    how = ("repair", path, "--all", "--limit", 2, "--min-age", 0)
    code, out, err = cli(*how, "--apply")
    assert (code, out, "write 2 repairs to" in err) == (2, "", True)
    assert "1 beyond --limit, 1 healthy, 1 paused, 2 planned" in cli(*how)[2]
    code, out, err = cli(*how, "--apply", "--yes")
    done = {"broken": "repaired", "copy-1": "repaired", "paused": "paused"}
    assert (code, outcomes_in(out)) == (1, done)
    assert "1 beyond --limit, 1 healthy, 1 paused, 2 repaired." in err
    assert "next for beyond --limit: the same command repairs the next ones" in err
    code, out, _ = cli(*how, "--apply", "--yes")
    assert (code, outcomes_in(out)) == (0, {"copy-2": "repaired", "paused": "paused"})


def test_an_unexpected_error_is_one_line(cli, path, monkeypatch):
    """In a repair, the others are still repaired. `--debug` shows the traceback."""
    with monkeypatch.context() as patch:
        failing = raising(repair_thread, ZeroDivisionError("oh"), "'paused'")
        patch.setattr(threads, "repair_thread", failing)
        code, out, err = cli("repair", path, "--all", *APPLY)
        with pytest.raises(ZeroDivisionError):
            main(["repair", path, "--all", "--debug"])
    assert (code, outcomes_in(out)) == (3, {"broken": "repaired", "paused": "refused"})
    assert rows_in(out)[1][2] == "ZeroDivisionError: oh"
    assert "next for refused: its line says why; or deploy with_patching(graph)" in err
    failing = raising(Counts.add, ZeroDivisionError("oh"), "'healthy': healthy")
    monkeypatch.setattr(Counts, "add", failing)
    last = "langgraph-patch: ZeroDivisionError: oh (see --debug)."
    assert cli("scan", path)[2].splitlines()[-1] == last
    with pytest.raises(ZeroDivisionError):
        main(["scan", path, "--debug"])


def test_repair_refuses_what_it_would_flatten_unless_trusted(cli, path):
    """A class that is not loaded would be written back as a dict: refused, and how to go on."""
    with SqliteSaver.from_conn_string(path) as saver:
        saved = saver.get_tuple(thread("broken"))
        values = {**saved.checkpoint["channel_values"], "who": Customer(name="bob")}
        versions = {**saved.checkpoint["channel_versions"], "who": "1"}
        changed = {**saved.checkpoint, "channel_values": values, "channel_versions": versions}
        saver.put(saved.config, changed, {}, {})
    before = rows_of(path)
    code, out, _ = cli("repair", path, "broken", *APPLY)
    assert (code, rows_of(path) == before) == (3, True)
    assert f"--trust {__name__}:Customer" in out
    assert cli("repair", path, "broken", *APPLY, "--trust", f"{__name__}:Customer")[0] == 0
    with open_database(path, trust=[(__name__, "Customer")]) as saver:
        repaired = saver.get_tuple(thread("broken"))
    assert repaired.metadata["langgraph_patch"] == "repair"
    assert repaired.checkpoint["channel_values"]["who"] == Customer(name="bob")


# --- undo --------------------------------------------------------------------------------


def test_undo_takes_back_what_a_repair_wrote_and_nothing_else(cli, path):
    """A dry run first; the rows are those before; a thread that went on, or was never repaired."""
    before, how = rows_of(path), ("repair", path, "--all", *APPLY, "--on-pause", "abandon")
    with open_database(path) as saver:
        old = {each.thread_id: each.checkpoint_id for each in scan_threads(saver)}
    assert cli(*how)[0] == 0
    after = rows_of(path)
    assert after != before
    code, out, err = cli("undo", path, "--all")
    assert (code, outcomes_in(out)) == (1, {"broken": "planned", "paused": "planned"})
    assert "2 planned (nothing was undone)." in err
    assert cli("undo", path, "--all", "--apply")[0] == 2  # nobody can be asked
    assert rows_of(path) == after
    code, out, err = cli("undo", path, "--all", *YES)
    assert (code, outcomes_in(out)) == (0, {"broken": "undone", "paused": "undone"})
    assert all(row[2:] == ["", f"checkpoint {old[row[0]]}"] for row in rows_in(out))
    assert err == "langgraph-patch: 2 undone.\n"
    assert rows_of(path) == before
    nothing = "langgraph-patch: no thread has a repair to undo.\n"
    assert cli("undo", path, "--all", *YES) == (0, "", nothing)
    assert cli(*how)[0] == 0
    with SqliteSaver.from_conn_string(path) as saver:
        agent(saver, "paused").say("x")
    now = rows_of(path)
    code, out, err = cli("undo", path, "paused", "healthy", "--json", *YES)
    assert (code, "2 refused." in err, rows_of(path) == now) == (3, True, True)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["thread_id"] for line in lines] == ["healthy", "paused"]
    assert all("no repair wrote its newest checkpoint" in line["reason"] for line in lines)
    step = "its line says why; undo deletes only what repair wrote, while nothing follows it."
    assert err.endswith(f"next for refused: {step}\n")
    assert cli("undo", path, "broken", *YES)[0] == 0
    assert ids_in(cli("scan", path)[1]) == ["broken"]


def test_undo_selects_as_repair_does(cli, path, monkeypatch):
    """By patterns and by the time of the repair; an unreadable thread is named (fault E6)."""
    assert cli("repair", path, "--all", *APPLY, "--on-pause", "abandon")[0] == 0
    assert outcomes_in(cli("undo", path, "--thread", "p*")[1]) == {"paused": "planned"}
    assert cli("undo", path, "--since", "0min")[:2] == (0, "")
    assert len(rows_in(cli("undo", path, "--since", "1h")[1])) == 2
    typing = io.StringIO("y\n")
    typing.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", typing)
    code, _, err = cli("undo", path, "--thread", "p*", "--apply")
    assert (code, err.startswith(f"undo 1 repair in {path}? [y/N] ")) == (0, True)
    execute(path, "UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 'broken'")
    code, out, _ = cli("undo", path, "--all", *YES)
    assert (code, outcomes_in(out)) == (3, {"broken": "refused"})


# --- demo --------------------------------------------------------------------------------


def test_the_demo_shows_both_conversations_bare_and_patched(cli, monkeypatch):
    """A bare thread dies, another pays a wrong amount; patched, both go on (D4). Signs, colours."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    code, out, err = cli("demo")
    assert (code, err) == (0, "")
    runs = re.split(r"^\d[ab]\. ", out, flags=re.MULTILINE)[1:]
    assert [run.split(":")[0] for run in runs] == ["graph", "with_patching(graph)"] * 2
    assert "400: calls ['c1', 'c2'] have no result right after them" in runs[0]
    assert "+ [tool] sent to bob" in runs[1]
    assert '[ai] pay(p1) {"amount": 10}\n  [tool] paid 10\n' in runs[2]
    assert "~ [ai] pay(p1) {}\n+ [tool] Tool call pay with id p1 was not run" in runs[3]
    assert [re.findall(r"\[ai\] ([A-Z].*)", run) for run in runs] == [
        [],
        ["Bob has my mail. No money was wired."],
        ["I paid 10."],
        ["The payment was not made."],
    ]
    done = [re.findall("done in the world: (.*)", run) for run in runs]
    assert done == [["a mail to bob"], ["a mail to bob"], ["a payment of 10"], ["nothing"]]
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value)
    shown = cli("demo")[1]
    for line in (
        "\x1b[32m+ [tool] sent to bob",
        "\x1b[33m~ [ai] pay(p1) {}",
        "\x1b[31m  400: calls",
    ):
        assert line in shown
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == out


def test_a_database_is_named_without_its_password():
    """What may be a piece of a password is not shown."""
    names = {
        "postgresql://bob:s3cret@db.example/app?sslmode=require": "postgresql://db.example/app",
        "postgresql:///app?service=s3cret": "postgresql:///app",
        "postgresql://[::1]:5432/app": "postgresql://[::1]:5432/app",
        "postgresql://bob:s3cret/@db/app": "the database",
        "postgresql://bob:s3cret#x@db/app": "the database",
        "postgresql://bob:s3cret": "the database",
    }
    assert {location: database_name(location) for location in names} == names


def test_a_command_that_an_error_has_ended_is_collected_in_any_thread(monkeypatch):
    """Only the main thread may change what Ctrl-C does: elsewhere that is an error."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    left = [
        output.each_of(Namespace(command="undo", quiet=True, json=False, rate=None), [1, 2], "done")
    ]
    assert next(left[0]) == 1
    collects = threading.Thread(target=lambda: (left.clear(), gc.collect()))
    collects.start()
    collects.join()
    assert unraisable == []
