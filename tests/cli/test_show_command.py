"""`langgraph-patch show`: one conversation on a terminal, as JSON and as a page."""

import json
import re
import sqlite3
import sys
from contextlib import closing

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch.render.words import age_in_words, questions_of
from support.agents import human, thread
from support.broken_threads import silent
from support.strict import ai

HOSTILE = "\x1b[2Jgone\x07\u202e[red]x[/red]\r\nfake: healthy"


@pytest.fixture
def long_path(tmp_path):
    """A thread of 240 messages with two defects, far from each other."""
    history = []
    for number in range(60):
        call = {"name": "look_up", "args": {"invoice": number}, "id": f"c{number}"}
        text = [{"type": "text", "text": f"Let me see invoice {number}."}]
        history += [
            HumanMessage(f"What about invoice {number}?", id=f"h{number}"),
            AIMessage(text, tool_calls=[call], id=f"a{number}"),
            ToolMessage("paid", tool_call_id=f"c{number}", id=f"t{number}"),
            AIMessage(f"Invoice {number} is paid.", id=f"d{number}"),
        ]
    del history[20 * 4 + 2]
    late = history.pop(40 * 4 + 1)
    history.insert(40 * 4 + 3, late)
    history.append(HumanMessage("thanks", id="last"))
    path = str(tmp_path / "long.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        silent("react_v2", saver).update_state(thread(), {"messages": history}, "__start__")
    return path


def test_show_marks_defects_and_puts_the_patch_beside(cli, path, monkeypatch):
    """Both columns, the defect with its sign, the cause and the recovered result."""
    monkeypatch.setenv("COLUMNS", "160")
    code, out, err = cli("show", path, "broken")
    assert code == 1
    for text in (
        "Thread broken is damaged",
        "! [ai] dangling",
        "↺ [tool c1] recovered",
        "+ [tool c2] inserted (awaiting_input)",
        "sent to bob",
    ):
        assert text in out
    assert err == (
        f"langgraph-patch: next: langgraph-patch repair {path} --diff broken (a dry run)\n"
    )


def test_valid_stretches_are_folded(cli, long_path):
    """Three messages before and after each defect are shown; text blocks are shown as text."""
    code, out, _ = cli("show", long_path, "1")
    rows = [int(number) for number in re.findall(r"^(\d+) ", out, re.MULTILINE)]
    assert code == 1
    assert rows == [*range(78, 85), *range(158, 167)]
    folded = [int(count) for count in re.findall(r"\.\.\. (\d+) messages without changes", out)]
    assert (len(folded), sum(folded) + len(rows)) == (3, 240)
    assert "Let me see invoice 20." in out
    assert '"type": "text"' not in out
    assert "1 call without a result, 1 result in the wrong place" in out
    whole = cli("show", long_path, "1", "--all")[1]
    assert len(re.findall(r"^\d+ ", whole, re.MULTILINE)) == 240
    assert "messages without" not in whole


def test_show_says_what_a_pause_asks_and_since_when(cli, path):
    """The question, the age in words, one column; exit code 0, and nothing is next."""
    code, out, err = cli("show", path, "paused")
    assert (code, err, "AS IT WOULD BE" in out) == (0, "", False)
    assert re.search(r"^  asks +wire 3\?$", out, re.MULTILINE)
    assert re.search(r"^  waits for +\d+ seconds?$", out, re.MULTILINE)


def test_questions_are_read_from_the_values_of_interrupts():
    """A text is a question; so is one in an object; requests of the middleware are listed."""
    for value, question in (
        ("Wire 3?", "Wire 3?"),
        ({"question": "Wire 3?", "amount": 3}, "Wire 3?"),
        ({"amount": 3}, '{"amount": 3}'),
        ({"action_requests": [{"name": "wire", "args": {"amount": 3}}]}, 'wire {"amount": 3}'),
        ({"action_requests": [{"name": "w", "args": {}, "description": "Wire 3?"}]}, "Wire 3?"),
        ([{"query": "One?"}, "Two?"], "One?; Two?"),
        (None, "null"),
    ):
        assert questions_of({"asks": [value]}) == [question]


@pytest.mark.parametrize(
    ("seconds", "words", "short"),
    [
        (0, "0 seconds", "0 s"),
        (1, "1 second", "1 s"),
        (119, "1 minute", "1 min"),
        (7200, "2 hours", "2 h"),
        (86400 * 3, "3 days", "3 d"),
        (86400 * 45, "1 month", "1 mo"),
        (86400 * 800, "2 years", "2 y"),
        (None, "", ""),
        (float("nan"), "", ""),
    ],
)
def test_ages_are_said_in_words(seconds, words, short):
    """An age has its largest unit only."""
    assert (age_in_words(seconds), age_in_words(seconds, short=True)) == (words, short)


def test_json_has_the_whole_patch(cli, path):
    """With its messages before and after."""
    code, out, _ = cli("show", path, "broken", "--json")
    assert (code, len(json.loads(out)["patch"]["messages"])) == (1, 5)


def test_json_is_json_whatever_a_state_holds(cli, path):
    """NaN and infinity are no JSON: they are printed as strings."""
    nan, inf = float("nan"), float("inf")
    with SqliteSaver.from_conn_string(path) as saver:
        texts = [human("h"), ai(("t", {"x": [nan, -inf]}, "c"), id="a"), human("x")]
        silent("react_v2", saver).update_state(thread("nan"), {"messages": texts}, "__start__")
    out = cli("show", path, "nan", "--json")[1]
    assert json.loads(out, parse_constant=pytest.fail)["messages"] == 3
    assert '["NaN", "-Infinity"]' in out


def test_show_needs_no_rich(cli, path, monkeypatch, on_terminal):
    """Without it, the table has no colours; that is all."""
    on_terminal(100)
    with_rich = cli("show", path, "broken")[1]
    on_terminal(100)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    without = cli("show", path, "broken")[1]
    ages = re.compile(r"written +\d+ second.*")
    assert ages.sub("", without) == ages.sub("", with_rich)


def test_hostile_text_is_shown_as_text(cli, tmp_path, monkeypatch):
    """No escape, no control character, no direction mark, no markup, no forged line."""
    monkeypatch.setenv("COLUMNS", "200")
    path = str(tmp_path / "hostile.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        messages = [human(HOSTILE, "h"), ai(("t", {"x": HOSTILE}, HOSTILE), text=HOSTILE, id="a")]
        update = {"messages": [*messages, human("x")]}
        silent("hand_built", saver).update_state(thread(HOSTILE), update, as_node="__start__")
    for arguments in (["scan", path], ["scan", path, "--json"], ["show", path, HOSTILE]):
        code, out, err = cli(*arguments)
        assert code == 1
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out + err)
    assert "[red]x[/red]" in out
    assert not any(line.startswith("fake") for line in cli("scan", path)[1].splitlines())
    code, _, err = cli("show", path, HOSTILE + "2")
    assert (code, err.count("\n"), "\x1b" in err) == (2, 1, False)


# --- pages -------------------------------------------------------------------------------


def test_show_writes_a_page(cli, path, tmp_path):
    """`--html` writes one page in the place of the table, over an old one."""
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
    code, out, _ = cli("show", path, "paused", "--html", file, "--json")
    assert (code, json.loads(out)["status"]) == (0, "paused")
    assert "Messages (2)" in file.read_text()
    assert "wire 3?" in file.read_text()


def test_a_page_of_an_unreadable_thread_says_why(cli, path, tmp_path):
    """Where there is nothing to show, the page and the terminal have the reason; exit code 3."""
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("UPDATE checkpoints SET type='pickle' WHERE thread_id='healthy'")
    file = tmp_path / "page.html"
    assert cli("show", path, "healthy", "--html", file)[0] == 3
    assert "is a pickle" in file.read_text()
    code, out, _ = cli("show", path, "healthy")
    assert (code, "unreadable: a row of it is a pickle" in out) == (3, True)


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
