"""The programs in `examples`: each runs as it stands, and prints what it is about."""

import runpy

import pytest

from support.paths import PAGES, ROOT

EXAMPLES = ROOT / "examples"
CONVERSATION = """\
[human] Write to Bob and wire him 100.
[ai]
[tool] sent to bob
[tool] Tool call wire_money with id call_2 asked for human input; no answer and no result are \
recorded.
[human] Never mind the money.
[ai] I have read: Never mind the money.
"""
INCIDENT = """\
400: An assistant message with 'tool_calls' must be followed by tool messages
'1': damaged - recovered 'send_email' 'call_1'; inserted 'wire_money' 'call_2' (awaiting_input)
'1': repaired - recovered 'send_email' 'call_1'; inserted 'wire_money' 'call_2' (awaiting_input)
I have read: Are you there?
"""
PRINTED = {
    "agent": CONVERSATION,
    "incident": INCIDENT,
    "swarm": CONVERSATION,
    "tool_node": CONVERSATION,
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_is_about(name, tmp_path, monkeypatch, capsys):
    """Its model refuses what a provider refuses; the mail is known, and that a human was asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.replace("[ai] \n", "[ai]\n") == PRINTED[name]


def test_each_example_is_run():
    """A program that is added is run here, or it is what the others share."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTED, "scripted"}


def test_the_page_shows_the_web_service():
    """The program on the page is the one that `tests/server` runs, and it is short."""
    program = (EXAMPLES / "web_service" / "app.py").read_text("utf-8")
    assert f'```python title="app.py"\n{program}```\n' in PAGES["how-to/web-service"].read_text(
        "utf-8"
    )
    assert len(program.splitlines()) < 125
