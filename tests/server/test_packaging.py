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
from packaging.requirements import Requirement

from support.paths import ROOT

VERSION = importlib.metadata.version("langgraph-patch")
USER_EXTRAS = {"cli", "langchain", "postgres", "server"}
CACHES = {"__pycache__", ".hypothesis", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}
FILES = ".ci/run .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE Makefile PKG-INFO README.md"
FILES += " SECURITY.md conftest.py pyproject.toml"
FOLDERS = ("docs", "langgraph_patch", "notebooks", "tests")


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


def required_by(metadata, extra):
    """The requirements of an extra (None: those of everybody), as the wheel says them."""
    return {
        f"{each.name}{sorted(each.extras) or ''}{each.specifier}"
        for each in map(Requirement, metadata["requires_dist"])
        if (each.marker is None) == (extra is None)
        and (each.marker is None or each.marker.evaluate({"extra": extra}))
    }


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Every module, the mark of its types, and what describes it: no test, no notebook."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "langgraph_patch").rglob("*.py")}
    described = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    info = {f"langgraph_patch-{VERSION}.dist-info/{name}" for name in described}
    assert sorted(names) == sorted({*modules, "langgraph_patch/py.typed", *info})


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


def test_the_metadata_says_what_it_is_and_what_it_needs(wheel):
    """Users are not pinned, the checks are; `test` has all of `dev` and all that users can add."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"langgraph_patch-{VERSION}.dist-info/METADATA")
    metadata, unknown = parse_email(text)
    assert unknown == {}
    assert (metadata["license_expression"], metadata["requires_python"]) == ("MIT", ">=3.11")
    assert metadata["description"].strip() == (ROOT / "README.md").read_text("utf-8").strip()
    assert set(metadata["provides_extra"]) == USER_EXTRAS | {"all", "dev", "docs", "test"}
    each = {extra: required_by(metadata, extra) for extra in metadata["provides_extra"]}
    assert all(each.values())
    assert each["all"] == set.union(*(each[extra] for extra in USER_EXTRAS))
    assert each["cli"] | each["langchain"] < each["dev"]
    assert each["all"] | each["dev"] | each["docs"] < each["test"]
    user = required_by(metadata, None) | each["all"]
    assert len(required_by(metadata, None)) == 3
    assert [need for need in user if "==" in need or ">=" not in need] == []
    assert [need for need in each["test"] - user if "==" not in need] == []
