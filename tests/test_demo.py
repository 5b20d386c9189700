"""`langgraph-patch demo`: what it prints is what happened."""

import re

import pytest


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """The colours of a terminal are not asked for."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_the_demo_shows_both_conversations_bare_and_patched(cli):
    """A bare thread dies, and another pays a wrong amount; patched, both go on (fault D4)."""
    code, out, err = cli("demo")
    assert (code, err) == (0, "")
    runs = re.split(r"^\d[ab]\. ", out, flags=re.MULTILINE)[1:]
    assert [run.split("(")[0] for run in runs] == ["create_react_agent", "with_patching"] * 2
    assert "ValueError: Found AIMessages with tool_calls that do not have" in runs[0]
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


def test_a_terminal_has_colours_and_a_pipe_has_none(cli, monkeypatch):
    """What is new is green, what was cut is yellow, an error is red; each has a sign too."""
    plain = cli("demo")[1]
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "300")
    shown = cli("demo")[1]
    assert "\x1b[32m+ [tool] sent to bob\x1b[0m" in shown
    assert "\x1b[33m~ [ai] pay(p1) {}\x1b[0m" in shown
    [error] = re.findall(r"\x1b\[31m  (ValueError: .*)\x1b", shown)
    assert error.endswith("…")
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == plain
