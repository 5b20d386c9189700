"""`langgraph-patch demo`: what it prints is what happened, and the README shows a part of it."""

import re

from support.paths import ROOT


def test_the_demo_shows_both_conversations_bare_and_patched(cli):
    """A bare thread dies, and another pays a wrong amount; patched, both go on (fault D4)."""
    code, out, err = cli("demo")
    assert (code, err) == (0, "")
    runs = re.split(r"^\d[ab]\. ", out, flags=re.MULTILINE)[1:]
    assert [run.split("(")[0] for run in runs] == ["create_react_agent", "with_patching"] * 2
    assert "ValueError: Found AIMessages with tool_calls that do not have" in runs[0]
    assert "+ [tool] sent to bob" in runs[1]
    assert '[ai] pay(p1) {"amount": 10}\n  [tool] paid 10\n' in runs[2]
    assert "[ai] pay(p1) {}\n+ [tool] Tool call pay with id p1 was not run" in runs[3]
    assert [re.findall(r"\[ai\] ([A-Z].*)", run) for run in runs] == [
        [],
        ["Bob has my mail. No money was wired."],
        ["I paid 10."],
        ["The payment was not made."],
    ]
    done = [re.findall("done in the world: (.*)", run) for run in runs]
    assert done == [["a mail to bob"], ["a mail to bob"], ["a payment of 10"], ["nothing"]]


def test_the_readme_shows_what_the_demo_prints(cli, monkeypatch):
    """Each line of the README's example is a line of the output, in that order."""
    monkeypatch.setenv("COLUMNS", "200")
    text = (ROOT / "README.md").read_text("utf-8")
    [example] = re.findall(r"```text\n(  \[human\].*?)```", text, re.DOTALL)
    assert example in cli("demo")[1]
