"""What is built is what users get: nothing is missing, nothing is too much."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from packaging.metadata import parse_email

from support.paths import ROOT

VERSION = importlib.metadata.version("langgraph-patch")
USER_EXTRAS = {"cli", "langchain", "postgres", "server"}
CACHES = {"__pycache__", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}
FILES = ".ci/run .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE Makefile PKG-INFO README.md"
FILES += " SECURITY.md conftest.py pyproject.toml"
FOLDERS = ("docs", "langgraph_patch", "notebooks", "scripts", "tests")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the sdist and of the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    """The one wheel."""
    [found] = built.glob(f"langgraph_patch-{VERSION}-py3-none-any.whl")
    return found


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Every module, the mark of its types, and what describes it: no test; users are not pinned."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "langgraph_patch").rglob("*.py")}
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
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)  # noqa: S603 - our own
    file = tmp_path / "site" / "langgraph_patch" / "cli.py"
    assert ran.stdout.decode().splitlines()[0] == f"console_scripts langgraph-patch {file}"
