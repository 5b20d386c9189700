"""The page about the command line shows what `--help` prints.

`PYTHONPATH=tests python tests/docs/test_command_line.py` writes the page anew.
"""

import io
import os
import re
from contextlib import redirect_stdout, suppress
from unittest.mock import patch

from langgraph_patch.cli import main
from support.paths import PAGES

PAGE = PAGES["reference/command-line"]
_SECTION = re.compile(r"^## ([\w-]+)\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHARED = "\nDB is one of:"
"""Where the end of each help text begins that all commands share."""


def help_text(command):
    """What `--help` prints, 80 columns wide; of a command without the shared end."""
    arguments = [] if command == "langgraph-patch" else [command]
    text = io.StringIO()
    eighty = patch.dict(os.environ, COLUMNS="80", NO_COLOR="1")
    with eighty, redirect_stdout(text), suppress(SystemExit):
        main([*arguments, "--help"])
    return text.getvalue().partition(_SHARED)[0] if arguments else text.getvalue()


_ARGUMENT = re.compile(r"^  (?:-|[A-Z]).*\n(?:   .*\n)*", re.MULTILINE)


def printed(page):
    """The page with the help texts of this version; an argument is described once."""
    seen = set()

    def once(found):
        return "" if found[0] in seen else seen.add(found[0]) or found[0]

    def section(found):
        text = help_text(found[1])
        text = _ARGUMENT.sub(once, text) if " DB " in text else text
        text = re.sub(r"\n[a-z ]+:\n(?=\n|\Z)", "", text)  # a head without a line
        return f"## {found[1]}\n\n```text\n{text}```"

    return _SECTION.sub(section, page)


def test_the_page_shows_the_help_of_each_command():
    """What a reader finds on the page is what the program prints; line breaks are Python's."""
    page = PAGE.read_text("utf-8")
    assert printed(page).split() == page.split()
    assert {*" ".join(map(help_text, ("scan", "show", "repair", "undo"))).split()} <= {
        *page.split()
    }
    listed = re.findall(r"^    (\w+)  ", help_text("langgraph-patch"), re.MULTILINE)
    assert len(listed) == 5
    assert [name for name, _ in _SECTION.findall(page)] == ["langgraph-patch", *listed]


if __name__ == "__main__":
    PAGE.write_text(printed(PAGE.read_text("utf-8")), "utf-8")
