"""The pages about an incident and about databases show what their commands print.

To type every command again and write the outputs into the pages:

    PYTHONPATH=tests python tests/server/test_incident.py
"""

import io
import os
import re
import runpy
import shlex
import sys
import tempfile
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from langgraph_patch.cli import main
from support.paths import PAGES, write_files
from support.servers import running_postgres

INCIDENT, DATABASES = "how-to/incident", "how-to/databases"
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


class Terminal(io.StringIO):
    """What a terminal shows."""

    def isatty(self):
        """It is one."""
        return True


def typed(command, folder):
    """What a terminal shows when a command is typed: its program runs in this process."""
    program, *arguments = shlex.split(command)
    screen, environment = Terminal(), {"COLUMNS": "100", "TERM": "dumb"}
    with (
        chdir(folder),
        patch.dict(os.environ, environment),
        patch.object(sys, "path", [str(folder), *sys.path]),
        patch.object(sys, "argv", arguments),
        warnings.catch_warnings(action="ignore"),
        redirect_stdout(screen),
        redirect_stderr(screen),
    ):
        if program == "python":
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            assert program == "langgraph-patch"
            main(arguments)
    for file in folder.glob("*.py"):  # the next program imports it anew
        sys.modules.pop(file.stem, None)
    return screen.getvalue()


def played(page, folder):
    """The text of a page with the output that each command has now."""
    write_files(page, folder)

    def with_output(step):
        if step[1].startswith(("pip install", "export ")):  # not typed
            return step[0]
        output = typed(step[1], folder)
        return f"```bash\n{step[1]}\n```" + (f"\n\n```text\n{output}```" if output else "")

    return _STEP.sub(with_output, PAGES[page].read_text("utf-8"))


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
    page = PAGES[INCIDENT].read_text("utf-8")
    for command in ("scan", "show", "repair", "undo"):
        assert f"```bash\nlanggraph-patch {command} " in page
    assert settled(played(INCIDENT, tmp_path)) == settled(page)


@pytest.mark.xdist_group("postgres")
def test_the_page_on_postgresql_shows_what_is_printed(postgres, tmp_path, monkeypatch):
    """The same, with a PostgreSQL server."""
    monkeypatch.setenv("DATABASE_URI", postgres.make())
    assert settled(played(DATABASES, tmp_path)) == settled(PAGES[DATABASES].read_text("utf-8"))


if __name__ == "__main__":
    with running_postgres() as started:
        os.environ["DATABASE_URI"] = started.make()
        for each in (INCIDENT, DATABASES):
            with tempfile.TemporaryDirectory() as empty:
                PAGES[each].write_text(played(each, Path(empty)), "utf-8")
