"""The page about an incident shows what its commands print.

`python tests/docs/test_incident.py` types every command again and writes the outputs into the page.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.paths import ROOT

PAGE = ROOT / "docs" / "pages" / "how-to" / "incident.md"
_FILE = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COLUMNS = "100"
_NOT_TYPED = "pip install"

_CHANGING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "CHECKPOINT"),
    (re.compile(r"-[0-9a-f]{6}\b"), "-CALL"),
    (re.compile(r"\b\d+ (?:s|seconds?|min|minutes?)\b *"), "AGE "),
)
"""What differs between two runs: ids of checkpoints and calls, and ages."""


def commands_in(block):
    """The commands of a block, each with the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def typed(command, folder):
    """What a terminal shows when a command is typed."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": _COLUMNS,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "TERM": "dumb",
    }
    done = subprocess.Popen(  # noqa: S602 - the commands of our own page
        command, shell=True, cwd=folder, env=environment, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the end of a terminal
            break
        if not part:
            break
        shown += part
    os.close(ours)
    done.wait()
    return shown.decode().replace("\r\n", "\n")


def played(page, folder):
    """The page with the output that each command has now."""
    for name, text in _FILE.findall(page):
        (folder / name).write_text(text)

    def with_output(block):
        lines = ["```console\n"]
        for command, output in commands_in(block[1]):
            shown = output if command.startswith(_NOT_TYPED) else typed(command, folder)
            lines += [f"$ {command}\n", shown]
        return "".join([*lines, "```"])

    return _CONSOLE.sub(with_output, page)


def settled(page):
    """A page without what differs between two runs, and without the breaks that this causes."""
    for pattern, name in _CHANGING:
        page = pattern.sub(name, page)
    return page.split()


@pytest.mark.slow
def test_the_page_shows_what_is_printed(tmp_path):
    """Every command of the page is typed in its order, in an empty folder, on a terminal."""
    page = PAGE.read_text("utf-8")
    assert settled(played(page, tmp_path)) == settled(page)


def test_the_page_goes_from_the_report_to_the_cure():
    """Each command of the command line is on the page, and the errors come before the answers."""
    page = PAGE.read_text("utf-8")
    for command in ("scan", "show", "repair", "undo"):
        assert f"\n$ langgraph-patch {command} " in page
    before, after = page.split("## 5. All healed")
    assert before.count("-> RuntimeError: 400") == 2
    assert "RuntimeError" not in after
    assert "0 damaged, 1 paused" in before


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        PAGE.write_text(played(PAGE.read_text("utf-8"), Path(empty)), "utf-8")
