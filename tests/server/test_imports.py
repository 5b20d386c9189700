"""What an import loads, in a process of its own, and what is said of a missing extra."""

import subprocess
import sys

import pytest

from support.paths import ENVIRONMENT

PATCHED = """
import langgraph_patch.streaming
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_patch import *
builder = StateGraph(MessagesState).add_node("model", lambda state: None)
graph = builder.add_edge(START, "model").compile()
assert "patch_tool_calls" in with_patching(graph).nodes
"""
SCANNED = """
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_patch.threads import scan_threads
assert list(scan_threads(InMemorySaver())) == []
"""
LATER = {
    PATCHED: "rich langchain psycopg langgraph_patch.threads "
    "langgraph_patch.view langgraph_patch.cli langgraph_patch.demo",
    SCANNED: "sqlite3 langgraph.checkpoint.sqlite aiosqlite",
}
"""A program, and the modules that it must not load."""

MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
POSTGRES = """
from langgraph_patch.threads.opening import open_database
open_database("postgresql://host/name").__enter__()
"""
NOTEBOOK = """
from langgraph_patch import patch_messages
from langgraph_patch.cli import main
from langgraph_patch.view import notebook_html
print(patch_messages([])._repr_html_())
print(notebook_html("<b>\\x1b", None))
sys.exit(main(["demo"]) - 1)
"""


def run(program):
    """Run a program in a new process."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)  # noqa: S603 - our own code


@pytest.mark.parametrize("program", LATER, ids=["patched", "scanned"])
def test_what_is_not_needed_is_not_loaded(program):
    """An import costs its time and memory only where it is used."""
    before = "import sys, langgraph.graph\nbefore = set(sys.modules)\n"
    found = f"set({LATER[program]!r}.split()) & (set(sys.modules) - before)"
    done = run(f"{before}{program}\nprint({found})")  # LangGraph loads rich, where it is installed
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr


@pytest.mark.parametrize(
    ("package", "extra", "program", "printed"),
    [
        ("langchain", "langchain", "import langgraph_patch.middleware", ""),
        ("psycopg", "postgres", POSTGRES, ""),
        ("rich", "cli", NOTEBOOK, "<pre>nothing to repair</pre>\n<pre>&lt;b&gt;\\x1b</pre>\n"),
    ],
)
def test_a_missing_extra_is_an_error_that_names_it(package, extra, program, printed):
    """Who has not installed it reads which command installs it; a notebook shows texts only."""
    done = run(MISSING.format(package=package) + program)
    assert (done.returncode, done.stdout) == (1, printed)
    assert f"pip install 'langgraph-patch[{extra}]'" in done.stderr.splitlines()[-1]
