"""The page about the command line shows what `--help` prints.

`PYTHONPATH=tests python tests/docs/test_command_line.py` writes the page anew.
"""

import os
import re
import subprocess
import sys

from support.paths import ROOT

PAGE = ROOT / "docs" / "pages" / "reference" / "command-line.md"
_SECTION = re.compile(r"^## ([\w-]+)\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHARED = "\nDB is one of:"
"""Where the end of each help text begins that all commands share."""


def help_text(command):
    """What `--help` prints, 80 columns wide; of a command without the shared end."""
    arguments = [] if command == "langgraph-patch" else [command]
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "langgraph_patch", *arguments, "--help"],
        capture_output=True,
        check=True,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        text=True,
    )
    return done.stdout.partition(_SHARED)[0] if arguments else done.stdout


def printed(page):
    """The page with the help texts of this version."""
    return _SECTION.sub(lambda found: f"## {found[1]}\n\n```text\n{help_text(found[1])}```", page)


def test_the_page_shows_the_help_of_each_command():
    """What a reader finds on the page is what the program prints; line breaks are Python's."""
    page = PAGE.read_text("utf-8")
    assert printed(page).split() == page.split()


def test_no_command_is_missing():
    """The page has a section for each command that `--help` lists."""
    listed = re.findall(r"^    (\w+)  ", help_text("langgraph-patch"), re.MULTILINE)
    sections = [name for name, _ in _SECTION.findall(PAGE.read_text("utf-8"))]
    assert len(listed) == 5
    assert sections == ["langgraph-patch", *listed]


if __name__ == "__main__":
    PAGE.write_text(printed(PAGE.read_text("utf-8")), "utf-8")
