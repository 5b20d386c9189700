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
    [found] = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel):
    """What the wheel says of itself; every field is one that packaging knows."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"langgraph_patch-{VERSION}.dist-info/METADATA")
    fields, unknown = parse_email(text)
    assert unknown == {}
    return fields


def files_under(folder):
    """The files of a folder, relative to the checkout, without what tools leave there."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and not CACHES & set(path.relative_to(ROOT).parts)
    }


def required_by(metadata, extra):
    """The requirements of an extra (None: those of everybody), as the wheel says them."""
    found = map(Requirement, metadata["requires_dist"])
    if extra is None:
        return {str(each) for each in found if each.marker is None}
    return {
        f"{each.name}{sorted(each.extras) or ''}{each.specifier}"
        for each in found
        if each.marker is not None and each.marker.evaluate({"extra": extra})
    }


# --- files -------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    """Every module, the mark of its types, and what describes it: no test, no notebook."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "langgraph_patch").rglob("*.py")}
    described = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert wheel.name == f"langgraph_patch-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert sorted(names) == sorted(
        modules
        | {"langgraph_patch/py.typed"}
        | {f"langgraph_patch-{VERSION}.dist-info/{name}" for name in described}
    )


def test_the_sdist_holds_all_that_the_checks_need(built):
    """Who unpacks it can do what `CONTRIBUTING.md` says."""
    alone = {
        ".ci/run",
        ".gitignore",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "PKG-INFO",
        "README.md",
        "SECURITY.md",
        "conftest.py",
        "pyproject.toml",
    }
    folders = set().union(*map(files_under, ("docs", "langgraph_patch", "notebooks", "tests")))
    with tarfile.open(built / f"langgraph_patch-{VERSION}.tar.gz") as archive:
        names = [member.name for member in archive.getmembers() if member.isfile()]
        run = archive.getmember(f"langgraph_patch-{VERSION}/.ci/run")
    expected = {f"langgraph_patch-{VERSION}/{name}" for name in alone | folders}
    assert sorted(names) == sorted(expected)
    assert run.mode & 0o111  # it can be run


def test_the_wheel_works_where_nothing_else_of_the_checkout_is(wheel, tmp_path):
    """All modules can be imported from it, and its command finds its function."""
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    code = (
        "import importlib, importlib.metadata, pkgutil, langgraph_patch\n"
        "for module in pkgutil.iter_modules(langgraph_patch.__path__):\n"
        "    if module.name != '__main__':\n"
        "        importlib.import_module(f'langgraph_patch.{module.name}')\n"
        "scripts = importlib.metadata.distribution('langgraph-patch').entry_points\n"
        "print([(script.group, script.name, script.load().__module__) for script in scripts])\n"
        "print(langgraph_patch.__file__)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    ran = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [
        "[('console_scripts', 'langgraph-patch', 'langgraph_patch.cli')]",
        str(tmp_path / "site" / "langgraph_patch" / "__init__.py"),
    ]


# --- metadata ----------------------------------------------------------------------------


def test_the_metadata_says_who_it_is(metadata):
    """Name, version, licence, Python and types; the README is its description."""
    values = ("langgraph-patch", VERSION, "MIT", ["LICENSE"], ">=3.11", "text/markdown")
    names = ("name", "version", "license_expression", "license_files", "requires_python")
    assert tuple(metadata[name] for name in (*names, "description_content_type")) == values
    assert "Typing :: Typed" in metadata["classifiers"]
    assert metadata["summary"].endswith(".")
    assert metadata["description"].strip() == (ROOT / "README.md").read_text("utf-8").strip()


def test_the_extras_are_those_of_users_and_of_the_tests(metadata):
    """`all` is what a user can add, one by one; `test` has that too, and all of `dev`."""
    assert set(metadata["provides_extra"]) == USER_EXTRAS | {"all", "dev", "docs", "test"}
    each = {extra: required_by(metadata, extra) for extra in USER_EXTRAS}
    assert all(each.values())
    assert required_by(metadata, "all") == set.union(*each.values())
    assert each["cli"] | each["langchain"] < required_by(metadata, "dev")
    assert required_by(metadata, "all") | required_by(metadata, "dev") < required_by(
        metadata, "test"
    )


def test_users_are_not_pinned_and_the_checks_are(metadata):
    """A library leaves its users the choice; a check is the same on every machine."""
    user = required_by(metadata, None) | required_by(metadata, "all")
    assert len(required_by(metadata, None)) == 3
    assert [each for each in user if "==" in each or ">=" not in each] == []
    assert [each for each in required_by(metadata, "test") - user if "==" not in each] == []
