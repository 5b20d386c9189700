"""Runs the core of the tests with old and new versions of LangGraph, and prints a table.

    python tests/versions.py                           all sets
    python tests/versions.py 1.1 newest                some of them
    python tests/versions.py --quick -n1               without slow tests, in one process
    python tests/versions.py --environments FOLDER     keeps the environments, for the next run

The exit code is 1 if a test fails. Tests that need a newer version are left out and counted
(`tests/support/versions.py`). The tests of PostgreSQL, LangGraph Server and the ledger are not
part of the core.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORE = (
    "tests/history",
    "tests/middleware",
    "tests/graph/test_agents_and_breaks.py",
    "tests/graph/test_with_patching.py",
    "tests/graph/test_fan_out.py",
    "tests/graph/test_model.py",
    "tests/graph/test_truncation.py",
    "tests/evidence",
    "tests/threads",
)
NOT_CORE = (
    "tests/evidence/test_effects.py",
    "tests/evidence/test_nested.py",
    "tests/evidence/test_reconcile.py",
    "tests/evidence/test_turns.py",
    "tests/threads/test_server_threads.py",
)

TOOLS = ("aiosqlite", "hypothesis", "pytest", "pytest-asyncio", "pytest-socket", "pytest-xdist")
"""What runs the tests, in the versions of the environment that this script runs in."""

EXTRAS = (
    "langgraph-swarm==0.1.0",
    "langgraph-supervisor==0.0.31",
    "psycopg[binary]>=3.2",
    "rich>=14",
    "sybil",
    "langchain-anthropic==1.7.7",
    "langchain-aws==1.9.1",
    "langchain-deepseek==1.1.1",
    "langchain-google-genai==4.4.2",
    "langchain-mistralai==1.1.6",
    "langchain-openai==1.7.3",
)


@dataclass(frozen=True)
class VersionSet:
    """Versions that are tested together.

    Attributes:
        pinned: The requirements.
        newest: Packages that are then upgraded to their newest version, whatever the others
            require: an index may lack one of their requirements.
    """

    pinned: Sequence[str]
    newest: Sequence[str] = field(default=())


SETS = {
    "1.1": VersionSet(
        (
            "langgraph==1.1.10",
            "langgraph-prebuilt==1.0.13",
            "langgraph-checkpoint-postgres==3.2.0",
            "langgraph-checkpoint-sqlite==3.1.2",
            "langchain==1.2.18",
            "langchain-core==1.7.2",
            "deepagents==0.5.9",
            *EXTRAS,
        )
    ),
    "1.2.0": VersionSet(
        (
            "langgraph==1.2.0",
            "langgraph-checkpoint-postgres==3.2.0",
            "langgraph-checkpoint-sqlite==3.1.2",
            "langchain==1.3.1",
            "langchain-core==1.7.2",
            "deepagents==0.6.3",
            *EXTRAS,
        )
    ),
    "newest": VersionSet(
        (
            "langgraph",
            "langgraph-checkpoint-postgres",
            "langgraph-checkpoint-sqlite",
            "langchain==1.4.7",
            "langchain-core==1.7.2",
            "deepagents==0.7.32",
            *EXTRAS,
        ),
        newest=("langgraph", "langchain", "langchain-core"),
    ),
}

COLUMNS = (
    "langgraph",
    "langgraph-prebuilt",
    "langgraph-checkpoint-sqlite",
    "langchain",
    "langchain-core",
    "deepagents",
)


def environment(versions: VersionSet, folder: Path) -> Path:
    """Make a virtual environment with a set of versions; one that was kept is used as it is.

    Returns:
        Its interpreter.
    """
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if complete.exists():
        return python
    venv.create(folder, clear=True, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    tools = [f"{tool}=={version(tool)}" for tool in TOOLS]
    subprocess.run([*install, *versions.pinned, *tools], check=True)  # noqa: S603 - our own list
    if versions.newest:
        upgrade = [*install, "--upgrade", "--no-deps", *versions.newest]
        subprocess.run(upgrade, check=True)  # noqa: S603 - as above
    complete.touch()
    return python


def unmet(python: Path) -> list[str]:
    """The requirements of installed packages that the environment does not meet."""
    check = [str(python), "-m", "pip", "check", "--disable-pip-version-check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True)  # noqa: S603
    return [] if done.returncode == 0 else done.stdout.splitlines()


def installed(python: Path) -> list[str]:
    """The version of each package of `COLUMNS`."""
    code = f"from importlib.metadata import version\nprint(*map(version, {COLUMNS}))"
    command = [str(python), "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.split()


def run_core(python: Path, options: Sequence[str]) -> tuple[bool, str]:
    """Run the core of the tests, and show on the error stream what pytest prints.

    Returns:
        Whether all passed, and what pytest printed.
    """
    ignored = [part for path in NOT_CORE for part in ("--ignore", path)]
    command = [str(python), "-m", "pytest", "--tb=short", "-p", "no:cacheprovider", *options]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    printed = []
    with subprocess.Popen(  # noqa: S603 - our own list
        [*command, *CORE, *ignored],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        for line in run.stdout or ():
            printed.append(line)
            sys.stderr.write(line)
    return run.returncode == 0, "".join(printed)


def row(python: Path, output: str) -> str:
    """One row of the table."""
    counts = {
        name: next(iter(re.findall(rf"(\d+) {name}", output.rpartition("\n\n")[2] or output)), "0")
        for name in ("passed", "failed", "error", "skipped")
    }
    failed = int(counts["failed"]) + int(counts["error"])
    left_out = re.findall(r"left out: (\d+) \((.*)\)", output)
    reasons = "; ".join(f"{count} {reason}" for count, reason in left_out) or "0"
    cells = [*installed(python), counts["passed"], str(failed), reasons]
    return f"| {' | '.join(cells)} |"


def run_set(name: str, python: Path, options: Sequence[str]) -> tuple[bool, str]:
    """Test one set.

    Returns:
        Whether all tests passed, and the row of the table.
    """
    for line in unmet(python):
        sys.stderr.write(f"{name}: {line}\n")
    passed, output = run_core(python, options)
    return passed, row(python, output)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], metavar="SET")
    parser.add_argument("--environments", type=Path, help="where the environments are kept")
    parser.add_argument("--quick", action="store_true", help="leave out the slow tests")
    known, options = parser.parse_known_args()
    options += ["-m", "not slow"] if known.quick else []
    results = []
    for name in known.sets or SETS:
        with tempfile.TemporaryDirectory() as folder:
            python = environment(SETS[name], (known.environments or Path(folder)) / name)
            results.append(run_set(name, python, options))
    head = [*COLUMNS, "passed", "failed", "left out"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(line for _, line in results)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if all(passed for passed, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
