"""Where files are, the environment of child processes, and the pages of the documentation."""

import logging
import os
import re
import warnings
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SCRIPTS = ROOT / "scripts"

_PATH = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))

ENVIRONMENT = {**os.environ, "PYTHONPATH": _PATH}
"""The environment of a child process that imports from `support`."""

# --- the pages of the documentation, and their Python blocks --------------------------------------

SITE = ROOT / "docs"
PAGES = {
    page.relative_to(SITE / "pages").with_suffix("").as_posix(): page
    for page in sorted((SITE / "pages").rglob("*.md"))
}
"""The file of each page, by its address."""

_FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def write_files(name, folder):
    """Write the files that a page shows into a folder."""
    for title, text in _FILE.findall(PAGES[name].read_text("utf-8")):
        (folder / title).write_text(text)


def run_page(name):
    """Run the Python blocks of a page as one module: a line number of an error is the page's."""
    text = PAGES[name].read_text("utf-8")
    lines = [""] * len(text.splitlines())
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2))
        for number, line in enumerate(block[2].splitlines(), first):
            lines[number] = line.removeprefix(block[1])
    return run_block("\n".join(lines), PAGES[name])


def run_block(text, file="README.md"):
    """Run code as a reader pastes it: no WARNING of the package is logged."""
    code = compile(text, file, "exec", dont_inherit=True)
    defined = {"__name__": "page"}
    logger, root = logging.getLogger("langgraph_patch"), logging.getLogger()
    level, handlers = logger.level, root.handlers[:]
    logged = []
    watch = logging.Handler(logging.WARNING)
    watch.emit = lambda record: logged.append(record.getMessage())
    logger.addHandler(watch)
    try:
        with warnings.catch_warnings():
            exec(code, defined)  # noqa: S102 - these are the pages of this project
    finally:  # a page may show how to configure the log
        logger.removeHandler(watch)
        logger.setLevel(level)
        root.handlers[:] = handlers
    assert logged == []
    return defined
