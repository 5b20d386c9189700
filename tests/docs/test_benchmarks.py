"""The benchmarks run. Their figures are looked at by people, never by a test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.paths import TESTS

pytestmark = pytest.mark.slow

FOLDER = TESTS / "benchmarks"

ROWS = {
    "patch_messages, healthy, plain / deepagents": 1,
    "patch_messages, damaged, plain / deepagents": 1,
    "patch_messages, healthy, blocks / deepagents": 1,
    "patch_messages, damaged, blocks / deepagents": 1,
    "validate_messages, healthy, plain / deepagents": 1,
    "validate_messages, damaged, plain / deepagents": 1,
    "validate_messages, healthy, blocks / deepagents": 1,
    "validate_messages, damaged, blocks / deepagents": 1,
    "exponent of ": 12,
    "hand-built agent, SqliteSaver, 2 turns: with_patching / bare": 3,
    "hand-built agent, SqliteSaver, 2 turns: patch_node by hand / bare": 3,
    "hand-built agent, InMemorySaver, 2 turns: with_patching / bare": 3,
    "hand-built agent, InMemorySaver, 2 turns: patch_node by hand / bare": 3,
    "create_react_agent, SqliteSaver, 2 turns: with_patching / bare": 3,
    "create_react_agent, InMemorySaver, 2 turns: with_patching / bare": 3,
    "create_agent, SqliteSaver, 2 turns: with_patching / bare": 3,
    "create_agent, SqliteSaver, 2 turns: our middleware / bare": 3,
    "create_agent, SqliteSaver, 2 turns: deepagents' middleware / bare": 3,
    "create_agent, InMemorySaver, 2 turns: with_patching / bare": 3,
    "create_agent, InMemorySaver, 2 turns: our middleware / bare": 3,
    "create_agent, InMemorySaver, 2 turns: deepagents' middleware / bare": 3,
    "speed of a scan / bare get_tuple": 3,
    "memory of a scan": 1,
    "import langgraph_patch": 1,
    "split_stream, generator: ": 2,
    "split_stream, chat model: ": 2,
    "asplit_stream, generator: ": 1,
    "final_answers, generator: ": 2,
    "a message of all chunks: message_from_stream": 1,
    "first token of 'text', ": 27,
    "first token of 'text, then a call', ": 27,
    "first token of 'a call', ": 27,
    "search of a call ": 6,
}
"""How a row begins -> how many there are."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python tests/benchmarks ...`."""
    return subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(FOLDER), *arguments], capture_output=True, text=True, check=False
    )


def test_quick_prints_every_row_of_one_table():
    """One Markdown table, each row of it, and nothing else."""
    done = run("--quick")
    assert (done.returncode, done.stderr) == (0, "")
    title, rule, *rows = done.stdout.splitlines()
    assert {line.count("|") for line in (title, rule, *rows)} == {6}, done.stdout
    begins = {start: sum(row.startswith(f"| {start}") for row in rows) for start in ROWS}
    assert begins == ROWS
    assert len(rows) == sum(ROWS.values())


def test_an_unknown_part_is_refused():
    """It is named, and nothing is measured."""
    done = run("everything")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such part: everything" in done.stderr
