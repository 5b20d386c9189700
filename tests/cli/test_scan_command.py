"""`langgraph-patch scan`: the table, the selection of threads, the pages."""

import dataclasses
import io
import json
import os
import re
import shlex
import signal
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

import langgraph_patch.cli.selection
from langgraph_patch.cli.main import main
from langgraph_patch.threads import scan_threads
from langgraph_patch.threads.stores import sqlite
from support.agents import both_calls, human, thread
from support.broken_threads import application, silent
from support.databases import copy_thread
from support.strict import ai


def ids_in(out):
    """The threads of a plain table."""
    return [line.split()[0] for line in out.splitlines()[1:]]


class Chat(TypedDict):
    """A state with another key."""

    chat: Annotated[list, add_messages]


# --- the table ---------------------------------------------------------------------------


def test_scan_prints_a_table_of_what_is_not_healthy_and_a_tally_beside(cli, path):
    """Thread, age, what is wrong, what a repair would do, causes, next command; exit code 1."""
    code, out, err = cli("scan", path)
    head, broken, paused = (re.split(r" {2,}", line) for line in out.splitlines())
    assert head == ["THREAD", "AGE", "WHAT IS WRONG", "A REPAIR", "CAUSE", "NEXT"]
    assert re.fullmatch(r"\d+ s", broken.pop(1))
    assert broken == [
        "broken",
        "2 calls without a result",
        "recovers 1 result, adds 1 placeholder",
        "send_email: result recorded, wire_money: awaiting_input",
        f"langgraph-patch show {path} broken",
    ]
    assert paused[0] == "paused"
    assert paused[2:] == [
        "waits for a human: wire 3?",
        "-",
        "-",
        f"langgraph-patch show {path} paused",
    ]
    assert (code, err.splitlines()) == (
        1,
        [
            "langgraph-patch: looked at 3 histories: 1 healthy, 1 damaged, 1 paused, 0 unreadable.",
            (f"langgraph-patch: next: langgraph-patch repair {path} --all (a dry run)"),
        ],
    )


@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_gets_columns_of_its_width(columns, cli, path, on_terminal):
    """No line but the next command is wider; each cell is whole; healthy ids are not listed."""
    on_terminal(columns)
    out = cli("scan", path)[1]
    lines = [line for line in out.splitlines() if not line.startswith("  next: ")]
    assert max(map(len, lines)) <= columns
    assert f"  next: langgraph-patch show {path} broken" in out.splitlines()
    starts = [lines[0].index(head) for head in ("A REPAIR", "CAUSE")]
    cell = " ".join(line[slice(*starts)].strip() for line in lines[1 : 2 + (columns == 80) * 3])
    assert cell.split("  ")[0].strip().startswith("recovers 1 result, adds 1")
    assert "\x1b" not in out


def test_a_terminal_gets_the_next_command_of_the_first_rows(cli, path, on_terminal):
    """The others differ in the thread only. A pipe gets each, in a column."""
    with SqliteSaver.from_conn_string(path) as saver:
        for number in range(5):
            copy_thread(saver, "broken", f"copy-{number}")
    assert cli("scan", path)[1].count(f"langgraph-patch show {path} ") == 7
    on_terminal(80)
    lines = cli("scan", path)[1].splitlines()
    shown = [line.split()[-1] for line in lines if line.startswith("  next: langgraph-patch show")]
    assert shown == ["broken", "copy-0", "copy-1"]


def test_colours_are_for_a_terminal_with_rich_only(cli, path, on_terminal, monkeypatch):
    """The status has a colour; without rich, or in a pipe, the same text has none."""
    on_terminal(140, colours=True)
    coloured = cli("scan", path)[1]
    assert "\x1b[31m2 calls without a result" in coloured
    assert "\x1b[33mwaits for a human" in coloured
    monkeypatch.setattr(langgraph_patch.cli.output, "_renderers", [])
    monkeypatch.setitem(sys.modules, "rich.console", None)
    plain = cli("scan", path)[1]
    uncoloured = "\n".join(
        line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", coloured).split("\n")
    )
    ages = re.compile(r"\d+ s +")
    assert ages.sub("", plain) == ages.sub("", uncoloured)


def test_scan_in_json_is_one_object_a_line(cli, path):
    """Each line is a report, with the changes that would be made and what a pause asks."""
    code, out, _ = cli("scan", path, "--json", "--healthy")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["status"] for line in lines]) == (1, ["damaged", "healthy", "paused"])
    assert [change["kind"] for change in lines[0]["changes"]] == ["recovered", "inserted"]
    assert [line["asks"] for line in lines] == [[], [], ["wire 3?"]]
    assert "patch" not in lines[0]


def test_scan_of_a_clean_database_exits_with_0(cli, path):
    """Nothing damaged: only what waits is on the standard output, and nothing is next."""
    code, out, err = cli("scan", path, "paused", "healthy")
    assert (code, ids_in(out), "next" in err) == (0, ["paused"], False)
    assert "0 damaged" in err


def test_scan_of_an_unreadable_thread_exits_with_3(cli, path):
    """An unreadable thread is not clean, and the reason is in the table."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    code, out, _ = cli("scan", path)
    assert code == 3
    assert "unreadable: a row of it is a pickle" in out


@pytest.mark.parametrize("page_size", [1, 500])
def test_an_id_that_is_no_text_does_not_stop_a_scan(page_size, cli, path, monkeypatch):
    """It is unreadable and the others are reported, whatever the page is that it stands on."""
    with closing(sqlite3.connect(path)) as conn, conn:
        for table in ("checkpoints", "writes"):
            conn.execute(
                f"UPDATE {table} SET thread_id = CAST(x'6272ff' AS TEXT) WHERE thread_id='healthy'"  # noqa: S608 - two names
            )
    paged = dataclasses.replace(sqlite._STATEMENTS, page_size=page_size)  # noqa: SLF001 - its size
    monkeypatch.setattr(sqlite, "_STATEMENTS", paged)
    code, out, err = cli("scan", path)
    assert (code, ids_in(out)) == (3, ["broken", r"br\udcff", "paused"])
    assert "its id is not text in UTF-8" in out
    assert "1 damaged, 1 paused, 1 unreadable" in err


def test_a_scan_that_saw_nothing_says_so(cli, path):
    """No thread left to look at, or no thread with such a key: exit code 2, and the reason."""
    nothing = "nothing was looked at.\n"
    for options, text in (
        (["--thread", "x*", "--thread", "y"], "there is no thread that matches 'x*' or 'y': "),
    ):
        assert cli("scan", path, *options) == (2, "", f"langgraph-patch: {text}{nothing}")
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
    assert cli("scan", path, "paused2")[0] == 1
    assert cli("show", path, "paused2")[0] == 1
    how = ("repair", path, "paused2", "--graph", graph_file, "--min-age", 0, "--apply")
    code, out, err = cli(*how)
    assert (code, out.splitlines()[1].split()[-1]) == (1, "paused")
    assert err == "langgraph-patch: 1 paused (1 of the paused are damaged too).\n"
    assert cli(*how, "--on-pause", "abandon")[0] == 0


# --- which threads -----------------------------------------------------------------------


def test_threads_are_selected_by_pattern_and_by_id(cli, path, monkeypatch):
    """`--thread` is a pattern and may be repeated; ids are arguments or lines of the input."""
    listed = ("scan", path, "--healthy")
    assert ids_in(cli(*listed, "--thread", "*e*")[1]) == ["broken", "healthy", "paused"]
    assert ids_in(cli(*listed, "--thread", "h*", "--thread", "p?used")[1]) == ["healthy", "paused"]
    assert ids_in(cli(*listed, "paused", "--thread", "p*")[1]) == ["paused"]
    monkeypatch.setattr(sys, "stdin", io.StringIO('paused\n\n{"thread_id": "healthy"}\r\n'))
    assert ids_in(cli(*listed, "-")[1]) == ["healthy", "paused"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert cli(*listed, "-")[::2] == (
        2,
        "langgraph-patch: standard input holds no id of a thread: expected one a line.\n",
    )


def test_standard_input_that_is_closed_or_no_text(cli, path, monkeypatch):
    """It holds no id, or the id of no thread."""
    monkeypatch.setattr(sys, "stdin", None)
    code, _, err = cli("scan", path, "-")
    assert (code, "standard input holds no id of a thread" in err) == (2, True)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"br\xff\n"), "utf-8"))
    code, _, err = cli("scan", path, "-")
    assert (code, r"There is no thread 'br\udcff'." in err) == (2, True)


def test_other_threads_are_not_read(cli, path):
    """A pattern decides by the id alone: a row of another thread need not be readable."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    assert cli("scan", path, "--thread", "b*")[0] == 1


def test_threads_are_selected_by_their_age(cli, path):
    """`--since` takes a duration or a time; what was written to before is not listed."""
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
    for since in ("4h", "90min", "0.1d", (datetime.now(UTC) - timedelta(hours=4)).isoformat()):
        assert ids_in(cli("scan", path, "--since", since)[1]) == ["broken"], since
    for since in ("6h", "2d", "2001-01-01", "2001-01-01T10:00"):
        assert ids_in(cli("scan", path, "--since", since)[1]) == ["broken", "paused"], since
    assert "that was written to since" in cli("scan", path, "--since", "0min")[2]


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
    plain = JsonPlusSerializer()
    with closing(sqlite3.connect(path)) as conn, conn:
        for table, value in (("checkpoints", "checkpoint"), ("writes", "value")):
            for rowid, kind, blob in conn.execute(f"SELECT rowid, type, {value} FROM {table}"):  # noqa: S608 - our names
                assert plain.loads_typed((kind, blob)) is not NotImplemented
                hidden = bytes(255 - byte for byte in blob or b"")
                conn.execute(
                    f"UPDATE {table} SET type=?, {value}=? WHERE rowid=?",  # noqa: S608 - our names
                    (f"{kind}+rot", hidden, rowid),
                )
    code, out, _ = cli("scan", path)
    assert code == 3
    assert out.count("its rows are encrypted") == 3
    assert "--serde module:attribute" in out
    serde = f"{tmp_path / name}.py:serde"
    code, out, _ = cli("scan", path, "--serde", serde)
    assert (code, ids_in(out)) == (1, ["broken", "paused"])
    assert "recovers 1 result" in out
    code, _, err = cli("scan", path, "--serde", serde.replace(":serde", ":made"))
    assert (code, "expected a serializer" in err) == (2, True)


# --- stopped -----------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [(signal.SIGINT, 130, "Ctrl-C"), (signal.SIGTERM, 143, "SIGTERM")])
def test_a_signal_stops_between_two_threads_and_says_where(sent, cli, path, monkeypatch):
    """The thread at hand is finished, with all its histories; tally and resume point follow."""
    number, code, name = sent

    def interrupted(*args, **kwargs):
        for place, report in enumerate(scan_threads(*args, **kwargs)):
            if place == 0:
                os.kill(os.getpid(), number)
            yield report

    with SqliteSaver.from_conn_string(path) as saver:
        also = {"configurable": {"thread_id": "broken", "checkpoint_ns": "child"}}
        saver.put(also, saver.get_tuple(thread("broken")).checkpoint, {}, {})
    monkeypatch.setattr(langgraph_patch.cli.selection, "scan_threads", interrupted)
    before = signal.getsignal(number)
    stopped, out, err = cli("scan", path)
    assert [line.split("  ")[0] for line in out.splitlines()[1:]] == ["broken", "broken in child"]
    assert (stopped, err) == (
        code,
        (
            f"langgraph-patch: stopped by {name} after thread 'broken'. "
            "looked at 2 histories: 0 healthy, 2 damaged, 0 paused, 0 unreadable.\n"
        ),
    )
    assert signal.getsignal(number) is before


def test_a_second_signal_does_not_wait(cli, path, monkeypatch):
    """The tally is printed in any case, with the last thread that was finished."""

    def impatient(*args, **kwargs):
        for place, report in enumerate(scan_threads(*args, **kwargs)):
            if place == 1:
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)
            yield report

    monkeypatch.setattr(langgraph_patch.cli.selection, "scan_threads", impatient)
    code, _, err = cli("scan", path)
    assert (code, err.splitlines()) == (
        143,
        [
            (
                "langgraph-patch: stopped at the first thread. looked at 1 history: 0 healthy, "
                "1 damaged, 0 paused, 0 unreadable."
            ),
            "langgraph-patch: stopped by SIGTERM.",
        ],
    )


def test_a_database_that_fails_leaves_a_tally(cli, path, monkeypatch, tmp_path):
    """What was found up to then is printed, counted and in the pages; exit code 2."""

    def failing(*args, **kwargs):
        for report in scan_threads(*args, **kwargs):
            yield report
            if report.thread_id == "healthy":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = 10
                raise error

    monkeypatch.setattr(langgraph_patch.cli.selection, "scan_threads", failing)
    html = tmp_path / "report"
    code, out, err = cli("scan", path, "--html", html)
    assert (code, ids_in(out)) == (2, ["broken"])
    assert "<a href='threads/000001.html'>broken</a>" in (html / "index.html").read_text()
    assert err.splitlines() == [
        f"langgraph-patch: wrote 1 thread to {str(html)!r}.",
        (
            "langgraph-patch: stopped after thread 'broken'. looked at "
            "2 histories: 1 healthy, 1 damaged, 0 paused, 0 unreadable."
        ),
        f"langgraph-patch: {path!r}: disk I/O error.",
    ]


# --- pages -------------------------------------------------------------------------------


def test_a_scan_writes_a_folder_of_pages(cli, path, tmp_path):
    """An index that links to one page for each thread; each names the database and the version."""
    folder = tmp_path / "report"
    code, out, err = cli("scan", path, "--healthy", "--html", folder)
    assert (code, len(ids_in(out))) == (1, 3)
    assert f"wrote 3 threads to {str(folder)!r}." in err
    index = (folder / "index.html").read_text()
    links = re.findall(r"<a href='([^']*)'>([^<]*)</a>", index)
    assert [name for _, name in links] == ["broken", "healthy", "paused"]
    pages = [(folder / link).read_text() for link, _ in links]
    assert "1 damaged" in index
    assert [page.count("<h1>") for page in pages] == [1, 1, 1]
    assert "recovered" in pages[0]
    assert "wire 3?" in pages[2]
    assert "Messages (2)" in pages[2]
    for page in (index, *pages):
        footer = re.search("<footer>(.*)</footer>", page)[1]
        assert footer.startswith(f"Database {path}, read on 20")
        assert footer.endswith(f"by langgraph-patch {langgraph_patch.__version__}")
    assert all("<a href='../index.html'>" in page for page in pages)


def test_a_scan_writes_one_page_with_everything(cli, path, tmp_path):
    """A name that ends with .html is one file: each link leads to a place in it."""
    file = tmp_path / "all.html"
    assert cli("scan", path, "--html", file)[0] == 1
    page = file.read_text()
    links = re.findall(r"<td><a href='#([^']*)'>", page)
    assert links == ["thread-1", "thread-2"]
    assert all(f"<h2 id={link}>" in page for link in links)
    assert page.count("<style>") == 1


def test_pages_that_cannot_be_written_are_one_line(cli, path):
    """Exit code 2, before anything is read."""
    for place in ("/no/such/x.html", "/dev/null/folder"):
        code, out, err = cli("scan", path, "--html", place)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "cannot be written" in err


def test_pages_name_no_password(cli, monkeypatch, tmp_path, path):
    """A URI in a footer has no user and no password."""
    monkeypatch.setenv("THREADS", path)
    file = tmp_path / "x.html"
    assert cli("scan", "env:THREADS", "--html", file)[0] == 1
    assert f"Database {path}, read" in file.read_text()


def test_a_thousand_threads_are_listed_as_they_are_found(cli, path):
    """The first line is printed before the last thread is read, so that nothing is kept."""
    with SqliteSaver.from_conn_string(path) as saver:
        for number in range(30):
            copy_thread(saver, "broken", f"copy-{number:02}")
    code, out, err = cli("scan", path)
    assert (code, len(ids_in(out))) == (1, 32)
    assert "31 damaged" in err


def test_debug_shows_the_traceback(path):
    """With --debug the error is raised as it is."""
    with pytest.raises(langgraph_patch.errors.ThreadError):
        main(["show", path, "nobody", "--debug"])


def test_a_thread_of_a_silent_graph_is_named_in_the_next_command(cli, path):
    """An id with blanks is quoted, and `--` stands before one that begins with `-`."""
    with SqliteSaver.from_conn_string(path) as saver:
        update = {"messages": [human("h"), ai(("t", {}, "c"), id="a"), human("x")]}
        for name in ("two words", "-x"):
            silent("react_v2", saver).update_state(thread(name), update, "__start__")
    out = cli("scan", path)[1]
    assert f"langgraph-patch show {path} 'two words'" in out
    assert f"langgraph-patch show {path} -- -x" in out
    assert cli("show", path, "--", "-x")[0] == 1
    err = cli("scan", path, "--", "-x", "two words")[2]
    assert f"next: langgraph-patch repair {path} -- -x 'two words' (a dry run)" in err


def test_a_next_command_reads_the_threads_in_the_same_way(cli, path, tmp_path):
    """The state key and the serializer, if they were named: without them it would find nothing."""
    broken = {"chat": [human("h"), ai(("t", {}, "c"), id="a"), human("x")]}
    with SqliteSaver.from_conn_string(path) as saver:
        builder = StateGraph(Chat).add_node("a", lambda _: {}).add_edge(START, "a")
        builder.compile(checkpointer=saver).invoke(broken, thread("chat"))
    (tmp_path / "my_serde.py").write_text(
        "from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer\n"
        "serde = JsonPlusSerializer(allowed_msgpack_modules=None)\n"
    )
    reading = ("--messages-key", "chat", "--serde", f"{tmp_path}/my_serde.py:serde")
    _, out, err = cli("scan", path, *reading)
    [shown] = re.findall(r"langgraph-patch (show .* chat)$", out, re.MULTILINE)
    assert shlex.split(shown) == ["show", path, *reading, "chat"]
    assert " ".join((*reading, "(a dry run)")) in err
    code, _, err = cli(*shlex.split(shown))
    assert (code, " ".join(("--diff", *reading, "chat")) in err) == (1, True)
