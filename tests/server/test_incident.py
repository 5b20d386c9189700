"""The pages about an incident and about PostgreSQL show what their commands print.

To type every command again and write the outputs into the pages:

    PYTHONPATH=tests python tests/server/test_incident.py
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from support.paths import PAGES
from support.servers import running_postgres

INCIDENT, POSTGRES = PAGES["how-to/incident"], PAGES["how-to/postgresql"]
_FILE = re.compile(r'^```python title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_STEP = re.compile(
    r"^```bash\n([^\n]*)\n```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
"""A command in a block of its own, and below it what it prints."""

_CHANGING = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "CHECKPOINT"),
    (re.compile(r"-[0-9a-f]{6}\b"), "-CALL"),
    (re.compile(r"\b\d+ (?:s|seconds?|min|minutes?)\b *"), "AGE "),
)
"""What differs between two runs: ids of checkpoints and calls, and ages."""


def typed(command, folder):
    """What a terminal shows when a command is typed."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "TERM": "dumb",
    }
    done = subprocess.Popen(  # noqa: S602 - the commands of our own page
        command, shell=True, cwd=folder, env=environment, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    parts = []
    with suppress(OSError):  # the end of a terminal
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    done.wait()
    return b"".join(parts).decode().replace("\r\n", "\n")


def played(page, folder):
    """The text of a page with the output that each command has now."""
    text = page.read_text("utf-8")
    for name, code in _FILE.findall(text):
        (folder / name).write_text(code)

    def with_output(step):
        if step[1].startswith("pip install"):  # not typed
            return step[0]
        output = typed(step[1], folder)
        return f"```bash\n{step[1]}\n```" + (f"\n\n```text\n{output}```" if output else "")

    return _STEP.sub(with_output, text)


def settled(text):
    """The parts of a page, without what differs between two runs.

    An age may be a character longer, which moves the breaks in the columns of its table: so the
    words of each output are compared, whatever their order.
    """
    for pattern, name in _CHANGING:
        text = pattern.sub(name, text)
    return [sorted(part.split()) for part in text.split("```")]


def test_the_page_shows_what_is_printed(tmp_path):
    """Every command of the page is typed in its order, in an empty folder, on a terminal."""
    page = INCIDENT.read_text("utf-8")
    for command in ("scan", "show", "repair", "undo"):
        assert f"```bash\nlanggraph-patch {command} " in page
    assert settled(played(INCIDENT, tmp_path)) == settled(page)


@pytest.mark.xdist_group("postgres")
def test_the_page_on_postgresql_shows_what_is_printed(postgres, tmp_path, monkeypatch):
    """The same, with a PostgreSQL server."""
    monkeypatch.setenv("DATABASE_URI", postgres.make())
    assert settled(played(POSTGRES, tmp_path)) == settled(POSTGRES.read_text("utf-8"))


if __name__ == "__main__":
    with running_postgres() as started:
        os.environ["DATABASE_URI"] = started.make()
        for each in (INCIDENT, POSTGRES):
            with tempfile.TemporaryDirectory() as empty:
                each.write_text(played(each, Path(empty)), "utf-8")
