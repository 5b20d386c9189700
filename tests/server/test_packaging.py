"""What users get: what is built, what an import loads, what a type checker finds."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from packaging.metadata import parse_email

import langgraph_patch
from support.paths import ENVIRONMENT, PAGES, ROOT, TESTS

pytestmark = pytest.mark.xdist_group("package")  # it is built once

VERSION = importlib.metadata.version("langgraph-patch")
USER_EXTRAS = {"cli", "langchain", "postgres"}
CACHES = {"__pycache__", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}
FILES = ".ci/run .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE Makefile PKG-INFO README.md"
FILES += " SECURITY.md conftest.py pyproject.toml"
FOLDERS = (".github", "docs", "examples", "langgraph_patch", "notebooks", "scripts", "tests")


def run(*arguments, folder=None, path=ENVIRONMENT["PYTHONPATH"]):
    """Run Python in a new process, in this folder and with this path of modules."""
    command = [sys.executable, *map(str, arguments)]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(path)}
    return subprocess.run(  # noqa: S603 - our own code
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the sdist and of the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    ran = run("-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    """The one wheel."""
    [found] = built.glob(f"langgraph_patch-{VERSION}-py3-none-any.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Each module, their data and types, and what describes it: no test; users are not pinned."""
    files = [*(ROOT / "langgraph_patch").rglob("*.py"), *(ROOT / "langgraph_patch").rglob("*.toml")]
    modules = {str(path.relative_to(ROOT)) for path in files}
    described = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        text = archive.read(f"langgraph_patch-{VERSION}.dist-info/METADATA")
    info = {f"langgraph_patch-{VERSION}.dist-info/{name}" for name in described}
    assert sorted(names) == sorted({*modules, "langgraph_patch/py.typed", *info})
    metadata, _ = parse_email(text)
    assert set(metadata["provides_extra"]) >= USER_EXTRAS
    needs = [need for need in metadata["requires_dist"] if "extra ==" not in need]
    assert [need for need in needs if "==" in need or ">=" not in need] == []
    assert len(needs) == 3


def test_the_sdist_holds_all_that_the_checks_need(built):
    """Who unpacks it can do what `CONTRIBUTING.md` says."""
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    paths = [path.relative_to(ROOT) for path in files if not CACHES & set(path.parts)]
    root = f"langgraph_patch-{VERSION}"
    with tarfile.open(built / f"{root}.tar.gz") as archive:
        names = [member.name for member in archive.getmembers() if member.isfile()]
        assert archive.getmember(f"{root}/.ci/run").mode & 0o111  # it can be run
    expected = [*FILES.split(), *(path.as_posix() for path in paths)]
    assert sorted(names) == sorted(f"{root}/{name}" for name in expected)


def test_the_wheel_works_where_nothing_else_of_the_checkout_is(wheel, tmp_path):
    """Its command runs, with its own modules."""
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    code = (
        "from importlib.metadata import distribution\n"
        "[script] = distribution('langgraph-patch').entry_points\n"
        "print(script.group, script.name, script.load().__code__.co_filename)\n"
        "raise SystemExit(script.load()(['demo']))\n"
    )
    ran = run("-c", code, folder=tmp_path, path=tmp_path / "site")
    file = tmp_path / "site" / "langgraph_patch" / "cli" / "main.py"
    assert ran.stdout.splitlines()[:1] == [f"console_scripts langgraph-patch {file}"], ran.stderr
    assert ran.returncode == 0


# --- what an import loads, in a process of its own -----------------------------------------

LOADED = """
import sys, langgraph_patch
light = {each.partition(".")[0] for each in sys.modules}
assert light.isdisjoint(("langgraph", "langchain_core", "pydantic"))
import langgraph.graph
before = {*sys.modules}  # LangGraph loads rich, where it is installed

import langgraph_patch.streaming
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_patch import patch_messages, patch_model, patch_node, with_patching
builder = StateGraph(MessagesState).add_node("model", lambda state: None)
graph = builder.add_edge(START, "model").compile()
assert "patch_tool_calls" in with_patching(graph).nodes
later = "rich langchain psycopg langgraph_patch.threads langgraph_patch.view langgraph_patch.cli"
print({*later.split(), "langgraph_patch.cli.demo"} & ({*sys.modules} - before))

from langgraph.checkpoint.memory import InMemorySaver
from langgraph_patch import scan_threads
assert list(scan_threads(InMemorySaver())) == []
print({"sqlite3", "langgraph.checkpoint.sqlite", "aiosqlite"} & ({*sys.modules} - before))
"""
MISSING = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("langchain", "psycopg", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import langgraph_patch
from langgraph_patch import *
from langgraph_patch.cli import main
from langgraph_patch.view import notebook_html

print(patch_messages([])._repr_html_())
print(notebook_html("<b>\\x1b"))
for use in (
    lambda: langgraph_patch.PatchToolCallsMiddleware,
    lambda: open_database("postgresql://host/name").__enter__(),
):
    try:
        use()
    except (ImportError, OptionError) as error:
        print(error, file=sys.stderr)
sys.exit(main(["demo"]))
"""


def test_what_is_not_needed_is_not_loaded():
    """An import costs its time and memory only where it is used."""
    done = run("-c", LOADED)
    assert (done.returncode, done.stdout) == (0, "set()\nset()\n"), done.stderr


def test_a_missing_extra_is_an_error_that_names_it():
    """Who has not installed it reads which command installs it; a notebook shows texts only."""
    done = run("-c", MISSING)
    assert done.stdout == "<pre>nothing to repair</pre>\n<pre>&lt;b&gt;\\x1b</pre>\n", done.stderr
    assert done.returncode == 2
    for line, extra in zip(done.stderr.splitlines(), ("langchain", "postgres", "cli"), strict=True):
        assert f"pip install 'langgraph-patch[{extra}]'" in line


# --- the types in the installed package ---------------------------------------------------

WRONG = "from langgraph_patch import patch_messages\nx: int = patch_messages([])\n"
PAGES_OPTIONS = "# mypy: allow-redefinition, allow-untyped-defs, allow-untyped-calls\n"
CONFIG = """\
[mypy]
strict = True
warn_unreachable = True
[mypy-anthropic.*,fastapi.*,google.*,langchain_anthropic.*,langchain_google_genai.*]
follow_imports = skip
[mypy-langchain_openai.*,openai.*]
follow_imports = skip
"""
"""As ours, so that what `mypy` has read is not read again; some pages import what is large."""
BLOCK = re.compile(r'^```python(?: title="([\w.]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
OURS = {*langgraph_patch.__all__, "placeholder", "reconcile", "on_patch", "messages_key"}


def test_a_strict_type_checker_reads_the_package_and_the_pages(tmp_path):
    """It accepts what is promised, and refuses what is not: nothing is Any.

    No error in the code of a page names anything of this package: what mypy says of LangGraph's
    own is LangGraph's.
    """
    user = (TESTS / "support" / "typed_user.py").read_text("utf-8")
    texts = {"promised.py": user, "wrong.py": WRONG}  # no source of the package beside them
    for name, page in {**PAGES, "README": ROOT / "README.md"}.items():
        for title, text in BLOCK.findall(page.read_text("utf-8")):
            file = f"page_{re.sub(r'[^a-z]', '_', f'{name}_{title}')}.py"
            texts[file] = texts.get(file, PAGES_OPTIONS) + text
    for file, text in {**texts, "mypy.ini": CONFIG}.items():
        (tmp_path / file).write_text(text)
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"
    ran = run("-m", "mypy", "--config-file=mypy.ini", cache, *texts, folder=tmp_path)
    errors = [line for line in ran.stdout.splitlines() if ": error:" in line]
    found = [line for line in errors if not line.startswith("page_")]
    assert len(found) == 1, ran.stdout + ran.stderr
    assert found[0].startswith("wrong.py:2: error: Incompatible types in assignment (expression")
    of_pages = [line for line in errors if line.startswith("page_")]
    assert [line for line in of_pages if OURS.intersection(re.findall(r"\w+", line))] == []
    assert ran.stdout.splitlines()[-1].endswith(f"(checked {len(texts)} source files)")
