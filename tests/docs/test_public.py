"""What the package offers, and that it offers nothing else."""

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
import tomllib
from types import ModuleType

import pytest

import langgraph_patch
from support.paths import ROOT

MODULES = [m.name for m in pkgutil.iter_modules(langgraph_patch.__path__) if m.name != "__main__"]


def test_all_is_sorted_and_is_every_public_name():
    """`__all__` equals the public names of the package, in order; each is found when it is used."""
    for name in langgraph_patch.__all__:
        assert getattr(langgraph_patch, name) is vars(langgraph_patch)[name]
    public = {
        name
        for name, value in vars(langgraph_patch).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(langgraph_patch.__all__) == public
    assert list(langgraph_patch.__all__) == sorted(
        langgraph_patch.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )


def test_a_name_that_is_imported_later_is_listed_and_any_other_is_an_error():
    """`dir` has every public name before it is used; a wrong name is named."""
    assert set(langgraph_patch.__all__) <= set(dir(langgraph_patch))
    with pytest.raises(AttributeError, match="'langgraph_patch' has no attribute 'no_such_name'"):
        langgraph_patch.no_such_name  # noqa: B018 - it raises


@pytest.mark.parametrize("name", langgraph_patch.__all__)
def test_every_public_name_is_documented(name):
    """Each public class and function has a docstring of its own."""
    value = getattr(langgraph_patch, name)
    if isinstance(value, type) or callable(value):
        assert value.__doc__
        assert value.__doc__ != type(value).__mro__[1].__doc__


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_for(module):
    """Each package has a docstring."""
    assert importlib.import_module(f"langgraph_patch.{module}").__doc__


def test_the_package_needs_none_of_its_extras():
    """Importing the package loads neither rich nor langchain nor psycopg, nor the prebuilts."""
    code = (
        "import sys, langgraph.graph\n"
        "before = set(sys.modules)\n"  # LangGraph itself loads rich, where that is installed
        "import langgraph_patch, langgraph_patch.streaming\n"
        "from langgraph_patch import *\n"
        "extras = {'rich', 'langchain', 'psycopg', 'deepagents', 'langgraph.prebuilt'}\n"
        "found = extras & (set(sys.modules) - before)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code


@pytest.mark.slow
def test_sqlite_is_imported_only_where_it_is_used():
    """Neither the import of the package nor a scan of another checkpointer loads SQLite."""
    code = (
        "import sys, langgraph.graph\n"
        "from langgraph.checkpoint.memory import InMemorySaver\n"
        "before = set(sys.modules)\n"
        "import langgraph_patch, langgraph_patch.streaming, langgraph_patch.threads\n"
        "from langgraph_patch import *\n"
        "assert list(langgraph_patch.threads.scan_threads(InMemorySaver())) == []\n"
        "sqlite = {'sqlite3', 'langgraph.checkpoint.sqlite', 'aiosqlite'}\n"
        "found = sqlite & (set(sys.modules) - before)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "extra", "code"),
    [
        ("langchain", "langchain", "import langgraph_patch.middleware"),
        ("psycopg", "postgres", "open_database('postgresql://host/name').__enter__()"),
    ],
)
def test_a_missing_extra_is_an_error_that_names_it(package, extra, code):
    """Who has not installed an extra reads which command installs it.

    LangGraph itself needs langgraph_sdk, so the extra `server` is for the name only.
    """
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from langgraph_patch.threads.opening import open_database\n"
        f"{code}\n"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"pip install 'langgraph-patch[{extra}]'" in done.stderr.splitlines()[-1]


def test_the_runtime_loads_no_threads_streams_or_pictures():
    """Who only patches graphs loads neither the thread functions nor the command line."""
    code = (
        "import sys, langgraph_patch\n"
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        "builder = StateGraph(MessagesState).add_node('model', lambda state: None)\n"
        "graph = builder.add_edge(START, 'model').compile()\n"
        "assert 'patch_tool_calls' in langgraph_patch.with_patching(graph).nodes\n"
        "names = ('cli', 'demo', 'streaming', 'threads', 'view')\n"
        "others = {f'langgraph_patch.{name}' for name in names}\n"
        "sys.exit(', '.join(others & set(sys.modules)) or 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code


def test_the_version_is_that_of_the_distribution():
    """pyproject.toml reads the version from the package, so there is one place to change it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["dynamic"] == ["version"]
    assert "version" not in project
    assert langgraph_patch.__version__ == importlib.metadata.version("langgraph-patch")
