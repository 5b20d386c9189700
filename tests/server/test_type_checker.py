"""A strict type checker finds the types that a user's file states, in the installed package."""

import subprocess
import sys

import pytest

from support.paths import ROOT, TESTS

WRONG = "from langgraph_patch import patch_messages\nx: int = patch_messages([])\n"


@pytest.mark.parametrize(
    ("source", "code", "output"),
    [
        ((TESTS / "support" / "typed_user.py").read_text("utf-8"), 0, "no issues found in 1 sou"),
        (WRONG, 1, 'expression has type "Patch", variable has type "int"'),
    ],
    ids=["as promised", "wrong"],
)
def test_a_strict_type_checker_reads_the_package(tmp_path, source, code, output):
    """It accepts what is promised, and refuses what is not: nothing is Any."""
    file = tmp_path / "user.py"  # where no source of the package is
    file.write_text(source)
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", cache, str(file)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert (ran.returncode, output in ran.stdout) == (code, True), ran.stdout
