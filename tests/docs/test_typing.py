"""Types are an interface: a user's type checker sees what the package promises."""

import ast
import subprocess
import sys

import pytest

import langgraph_patch
import langgraph_patch.middleware
import langgraph_patch.streaming
from support.paths import ROOT, TESTS

USER = TESTS / "support" / "typed_user.py"
CACHE = ROOT / ".mypy_cache"


def names_used(module):
    """The names that the user's file imports from a module and also uses."""
    tree = ast.parse(USER.read_text("utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }
    return imported & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def mypy(file, folder):
    """What mypy says of a file, strictly, from a folder where no source of the package is."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}"]
    return subprocess.run(  # noqa: S603 - our own
        [*command, str(file)], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("module", "public"),
    [
        ("langgraph_patch", langgraph_patch.__all__),
        ("langgraph_patch.streaming", langgraph_patch.streaming.__all__),
        ("langgraph_patch.middleware", ["PatchToolCallsMiddleware"]),
    ],
)
def test_the_users_file_uses_every_public_name(module, public):
    """No name is public and has no stated type."""
    assert names_used(module) == set(public)


@pytest.mark.slow
def test_a_strict_type_checker_accepts_a_users_file(tmp_path):
    """Every type that the file states is the one that mypy finds in the installed package."""
    ran = mypy(USER, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "Success: no issues found in 1 source file\n")


@pytest.mark.slow
def test_a_type_that_is_not_so_is_refused(tmp_path):
    """The check can fail: the package is read, and what comes from it is not Any."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from langgraph_patch import patch_messages\nx: int = patch_messages([])\n")
    ran = mypy(wrong, tmp_path)
    assert ran.returncode == 1
    assert 'expression has type "Patch", variable has type "int"' in ran.stdout
