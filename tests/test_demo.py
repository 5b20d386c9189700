"""`langgraph-patch demo`: what it prints is what happened, and the README shows a part of it."""

import re

from langgraph_patch import demo
from support.paths import ROOT


def test_the_demo_shows_both_conversations_bare_and_patched(cli):
    """A bare thread dies, and another runs a call that is not finished; the patched ones do not."""
    code, out, err = cli("demo")
    assert (code, err) == (0, "")
    runs = re.split(r"^\d[ab]\. ", out, flags=re.MULTILINE)[1:]
    assert [run.split("(")[0] for run in runs] == ["create_react_agent", "with_patching"] * 2
    bare, patched, cut, guarded = runs
    assert "INVALID_CHAT_HISTORY" in bare
    assert "+ [tool] sent to bob" in patched
    assert "[ai] Bob has my mail. No money was wired." in patched
    assert '[ai] pay(p1) {"amount": 10}\n  [tool] paid 10\n' in cut
    assert "done in the world: a payment of 10\n" in cut
    assert "[ai] pay(p1) {}\n+ [tool] Tool call pay with id p1 was not run" in guarded
    assert "done in the world: nothing" in guarded


def test_the_model_says_what_it_read(cli):
    """No answer contradicts the result above it or what was done in the world (fault D4)."""
    runs = re.split(r"^\d[ab]\. ", cli("demo")[1], flags=re.MULTILINE)[1:]
    answers = [re.findall(r"\[ai\] ([A-Z].*)", run) for run in runs]
    assert answers == [
        [],
        ["Bob has my mail. No money was wired."],
        ["I paid 10."],
        ["The payment was not made."],
    ]
    assert ["a payment of 10" in run for run in runs] == [False, False, True, False]
    assert all("done in the world: a mail to bob\n" in run for run in runs[:2])


def test_the_readme_shows_what_the_demo_prints(cli, monkeypatch):
    """Each line of the README's example is a line of the output, in that order."""
    monkeypatch.setenv("COLUMNS", "200")
    [example] = re.findall(
        r"```text\n(  \[human\].*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert example in cli("demo")[1]


def test_no_line_is_wider_than_the_terminal(cli, monkeypatch):
    """In a narrow terminal, lines are broken between words; nothing is lost."""
    wide = cli("demo")[1]
    monkeypatch.setenv("COLUMNS", "60")
    narrow = cli("demo")[1]
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == wide.split()


def test_the_demo_says_so_if_it_fails(cli, monkeypatch):
    """If the patched agent did not go on, the exit code is 1, and the demo asks for a report."""
    monkeypatch.setattr(demo, "with_patching", lambda graph: graph)
    code, out, _ = cli("demo")
    assert (code, "please report it" in out, "both threads go on" in out) == (1, True, False)
