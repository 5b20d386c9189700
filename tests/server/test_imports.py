"""What an import loads, in a process of its own, and what is said of a missing extra."""

import subprocess
import sys

import pytest

from support.paths import ENVIRONMENT

EXTRAS = """
from langgraph_patch import *
import langgraph_patch.streaming
"""
PATCHED = """
import langgraph_patch
from langgraph.graph import START, MessagesState, StateGraph
builder = StateGraph(MessagesState).add_node("model", lambda state: None)
graph = builder.add_edge(START, "model").compile()
assert "patch_tool_calls" in langgraph_patch.with_patching(graph).nodes
"""
SCANNED = """
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_patch.threads import scan_threads
assert list(scan_threads(InMemorySaver())) == []
"""
HELPED = """
import contextlib
from langgraph_patch.cli import main
for arguments in (["--help"], ["scan", "/no/such.db"]):
    with contextlib.suppress(SystemExit):
        main(arguments)
"""
LOADED_LATER = {
    # LangGraph itself loads rich, where that is installed.
    "extras": ("langgraph.graph", EXTRAS, "rich langchain psycopg deepagents langgraph.prebuilt"),
    "threads, streams, pictures": (
        "sys",
        PATCHED,
        "langgraph_patch.cli langgraph_patch.streaming langgraph_patch.threads "
        "langgraph_patch.view langgraph_patch.demo",
    ),
    "SQLite": ("langgraph.graph", SCANNED, "sqlite3 langgraph.checkpoint.sqlite aiosqlite"),
    "LangGraph": ("sys", HELPED, "langgraph langchain_core pydantic"),
}
"""What was imported before, a program, and the modules that it must not load."""

POSTGRES = """
from langgraph_patch.threads.opening import open_database
open_database("postgresql://host/name").__enter__()
"""
MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(program):
    """Run a program in a new process."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)  # noqa: S603 - our own code


@pytest.mark.parametrize("case", LOADED_LATER)
def test_what_is_not_needed_is_not_loaded(case):
    """An import costs its time and memory only where it is used."""
    before, program, others = LOADED_LATER[case]
    done = run(
        f"import sys, {before}\nbefore = set(sys.modules)\n{program}\n"
        f"sys.exit(repr(set({others!r}.split()) & (set(sys.modules) - before)))"
    )
    assert done.stderr.splitlines()[-1] == "set()", done.stderr


@pytest.mark.parametrize(
    ("package", "extra", "program"),
    [
        ("langchain", "langchain", "import langgraph_patch.middleware"),
        ("psycopg", "postgres", POSTGRES),
        ("rich", "cli", "from langgraph_patch.cli import main\nsys.exit(main(['demo']) - 1)"),
    ],
)
def test_a_missing_extra_is_an_error_that_names_it(package, extra, program):
    """Who has not installed an extra reads which command installs it.

    LangGraph itself needs langgraph_sdk, so the extra `server` is for the name only.
    """
    done = run(MISSING.format(package=package) + program)
    assert done.returncode == 1
    assert f"pip install 'langgraph-patch[{extra}]'" in done.stderr.splitlines()[-1]


def test_without_rich_a_notebook_shows_the_text():
    """The text is escaped."""
    done = run(
        f"{MISSING.format(package='rich')}"
        "from langgraph_patch import patch_messages\n"
        "from langgraph_patch.view import notebook_html\n"
        "print(patch_messages([])._repr_html_())\n"
        "print(notebook_html('<b>\\x1b', None))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "<pre>nothing to repair</pre>\n<pre>&lt;b&gt;\\x1b</pre>\n"
