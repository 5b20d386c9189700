"""The command line as a whole: bad input, help, closed outputs, the bar of progress."""

import os
import pty
import subprocess
import sys

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

import langgraph_patch.cli.scan
import langgraph_patch.cli.show
from langgraph_patch.cli.arguments import parse
from langgraph_patch.cli.output import print_next
from langgraph_patch.cli.target import Target
from langgraph_patch.threads import scan_threads
from support.agents import thread
from support.broken_threads import answer, application, say
from support.databases import rows_of

# --- bad input ---------------------------------------------------------------------------


BAD = {
    "no such file": (["scan", "/no/such.db"], "there is no such file"),
    "no database": (["scan", __file__], "it is not a SQLite database"),
    "a directory": (["scan", "/"], "is not a file"),
    "no command": ([], "required"),
    "no such command": (["fix"], "invalid choice"),
    "no such option": (["scan", "{db}", "--fast"], "--fast"),
    "an unknown thread": (["show", "{db}", "nobody"], "There is no thread 'nobody'"),
    "an unknown namespace": (["show", "{db}", "broken", "--namespace", "x"], "no namespace 'x'"),
    "an unknown thread to repair": (
        ["repair", "{db}", "nobody", "--graph", "{graph}"],
        "There is no thread 'nobody'",
    ),
    "no thread to repair": (["repair", "{db}", "--graph", "{graph}"], "--all"),
    "all and a thread": (["repair", "{db}", "x", "--all", "--graph", "{graph}"], "use --all"),
    "a bad time": (["scan", "{db}", "--since", "soon"], "expected 30min, 2h, 3d or a date"),
    "a bad duration": (["scan", "{db}", "--since", "xh"], "expected 30min, 2h, 3d or a date"),
    "a long time": (["scan", "{db}", "--since", "1e30d"], "expected 30min, 2h, 3d or a date"),
    "no such variable": (["scan", "env:NO_SUCH_VARIABLE"], "'NO_SUCH_VARIABLE' is not set"),
    "no such serializer": (["scan", "{db}", "--serde", "json:nobody"], "has no 'nobody'"),
    "no serializer": (["scan", "{db}", "--serde", "json:loads"], "expected a serializer"),
    "a serializer of another form": (["scan", "{db}", "--serde", "x"], "--serde 'x': expected"),
    "nothing to undo": (["undo", "{db}"], "--all"),
    "an unknown thread to undo": (["undo", "{db}", "nobody"], "There is no thread 'nobody'"),
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


def test_an_unexpected_error_is_one_line_too(cli, path, monkeypatch):
    """An unexpected error is one line that calls it a bug, without a traceback."""

    def fail(*_, **__):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(langgraph_patch.cli.scan, "read_reports", fail)
    assert cli("scan", path) == (2, "", "langgraph-patch: ZeroDivisionError: oh (see --debug).\n")


def test_ctrl_c_where_nothing_waits_for_a_thread_is_one_line(cli, path, monkeypatch):
    """A Ctrl-C that comes before the work begins leaves no traceback."""

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(langgraph_patch.cli.show, "scan_threads", stopped)
    assert cli("show", path, "broken") == (130, "", "langgraph-patch: stopped by Ctrl-C.\n")


# --- help, and where the database is -----------------------------------------------------

COMMANDS = ["", "scan", "show", "repair", "undo", "demo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_documents_databases_passwords_and_exit_codes(command, cli):
    """Every --help explains every exit code, and where a password belongs."""
    code, out, _ = cli(*([command] if command else []), "--help")
    assert code == 0
    assert all(f"\n  {number} " in out for number in (0, 1, 2, 3, 130, 141, 143))
    for name in ("PGPASSWORD", "PGSERVICE", "env:NAME", "LANGGRAPH_API_KEY", "(ps)"):
        assert name in out


def test_the_version_is_printed(cli):
    """`--version` names the program and its version."""
    printed = f"langgraph-patch {langgraph_patch.__version__}\n"
    assert cli("--version") == (0, printed, "")


def test_the_default_age_is_that_of_the_library():
    """The parser has the number of its own, because importing it would take a second."""
    assert parse(["repair", "x.db", "--all"]).min_age == 60


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
    """What may be a piece of a password is not shown; a command line has DB in its place."""
    target = Target(location, location, is_server=False)
    assert target.name == name
    assert "s3cret" not in target.command("scan") or "service" in location


def test_a_password_that_is_typed_gets_a_hint(cli):
    """The hint names the places where nobody else reads it; a URI without one gets no hint."""
    uri = "postgresql://u:Zx9secret@127.0.0.1:1/db"
    code, _, err = cli("scan", uri)
    hint, _ = err.splitlines()
    assert code == 2
    for name in ("PGPASSWORD", "PGSERVICE", "~/.pgpass", "env:NAME", "(ps)"):
        assert name in hint
    assert "Zx9secret" not in err
    assert cli("scan", uri.replace(":Zx9secret", ""))[2].count("\n") == 1


def test_the_next_command_can_be_typed(capsys):
    """A URI without a password stays as it is, though every message hides URIs."""
    target = Target("postgresql://db/app", "postgresql://db/app", is_server=False)
    print_next(target.command("repair", "--all"))
    assert capsys.readouterr().err == (
        "langgraph-patch: next: langgraph-patch repair postgresql://db/app --all (a dry run)\n"
    )
    typed = "postgresql://bob:s3cret@db/app"
    assert Target(typed, typed, is_server=False).command("scan") == "langgraph-patch scan DB"


def test_the_environment_may_name_the_database(cli, path, monkeypatch):
    """`env:NAME` is the variable; the next command names it too, and not what it holds."""
    monkeypatch.setenv("THREADS", path)
    code, out, _ = cli("scan", "env:THREADS")
    assert (code, "langgraph-patch show env:THREADS broken" in out) == (1, True)
    assert path not in out


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
def test_without_rich_everything_works(path):
    """Only the colours and the bar need rich."""
    without = (
        "sys.modules['rich'] = None; from langgraph_patch.cli.main import main; "
        "sys.exit(main(sys.argv[1:]))"
    )
    for code, *arguments in (
        (0, "scan", "--help"),
        (1, "scan", path),
        (1, "show", path, "broken"),
        (0, "demo"),
    ):
        done = process(*arguments, code=without)
        assert (done.returncode, "rich:" in done.stderr) == (code, False)
        assert done.stdout


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(path):
    """Whoever reads may stop reading."""
    for arguments in (f"scan '{path}' --json", "demo", "--help"):
        command = f"{sys.executable} -m langgraph_patch {arguments} | true"
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
    code, text = unread("scan", path)
    assert (code, text.startswith(f"{stopped} at the first thread. looked at 1 history")) == (
        141,
        True,
    )
    with SqliteSaver.from_conn_string(path) as saver:
        say(application("react_v2", saver, answer()), thread("a"), "go")
    after = "after thread {0!r}."
    code, text = unread("scan", path)
    assert (code, text.startswith(f"{stopped} {after.format('a')}")) == (141, True)
    assert unread("show", path, "broken") == (141, "")
    assert unread("show", path, "broken", stderr=subprocess.STDOUT)[0] == 141
    assert unread("demo") == (141, "")
    code, text = unread("--help")  # argparse itself ignores an output that is closed
    assert (code in {0, 141}, text) == (True, "")
    how = ("--graph", graph_file, "--min-age", "0", "--apply", "--on-pause", "abandon")
    code, text = unread("repair", path, "--all", *how)
    assert (code, text) == (
        141,
        f"{stopped} {after.format('broken')} 1 healthy, 1 repaired.\n",
    )
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
    assert b"/3" in shown
    assert b"looked at 3 histories" in shown or b"Nothing was written" in shown
    plain = process(*arguments)
    assert "\nbroken " in plain.stdout
    assert "\x1b" not in plain.stdout + plain.stderr + done.stdout.decode()
