"""Runs the core of the tests with old and new versions of LangGraph, and prints a table.

    python scripts/versions.py                           all sets
    python scripts/versions.py 1.1 newest                some of them
    python scripts/versions.py --environments FOLDER     keeps the environments, for the next run

Other options are those of pytest. The exit code is 1 if a test fails. Tests that need a newer
version are left out and counted (`tests/support/versions.py`). The tests of PostgreSQL, LangGraph
Server and the ledger are not part of the core. The last column has the scenes of `tomorrow.py` that
are not as in the environment of this script.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomorrow

ROOT = Path(__file__).parent.parent
CORE = (
    "tests/history",
    "tests/test_middleware.py",
    "tests/ways",
    "tests/graph/test_details.py",
    "tests/graph/test_wrapping.py",
    "tests/graph/test_with_patching.py",
    "tests/tools/test_record.py",
    "tests/test_model.py",
    "tests/asking/test_guard.py",
    "tests/tools/test_once.py",
    "tests/tools/test_once_tools.py",
    "tests/evidence",
    "tests/threads",
)
NOT_CORE = (
    "tests/evidence/test_effects.py",
    "tests/evidence/test_nested.py",
    "tests/repairing/test_reconcile.py",
    "tests/evidence/test_turns.py",
    "tests/threads/stores/test_server.py",
)

TOOLS = ("aiosqlite", "hypothesis", "pytest", "pytest-asyncio", "pytest-socket", "pytest-xdist")
"""What runs the tests, in the versions of the environment that this script runs in."""
EXTRAS = (
    "langgraph-supervisor==0.0.31",
    "langgraph-swarm==0.1.0",
    "rich>=14",
    "sybil",
)
"""What all sets have."""
CORE_AND_SAVERS = (
    "langchain-core==1.7.2",
    "langgraph-checkpoint-postgres==3.2.0",
    "langgraph-checkpoint-sqlite==3.1.2",
)
SETS = {
    "oldest": (
        "langgraph==1.1.10",
        "langgraph-prebuilt==1.0.12",
        "langgraph-checkpoint==4.1.0",
        "langgraph-checkpoint-sqlite==3.1.0",
        "langchain==1.2.15",
        "langchain-core==1.3.1",
    ),
    "1.1": (
        "langgraph==1.1.10",
        "langgraph-prebuilt==1.0.13",
        "langchain==1.2.18",
        *CORE_AND_SAVERS,
    ),
    "1.2.0": ("langgraph==1.2.0", "langchain==1.3.1", *CORE_AND_SAVERS),
    "newest": ("langgraph", "langchain==1.4.7", *CORE_AND_SAVERS),
}
"""`oldest` is what pyproject.toml allows, without extras for servers."""
DEEPAGENTS = {"oldest": "0.5.0", "1.1": "0.5.9", "1.2.0": "0.6.3", "newest": "0.7.32"}
UPGRADED = {
    "newest": (
        "langgraph",
        "langgraph-checkpoint-postgres",
        "langgraph-checkpoint-sqlite",
        "langchain",
        "langchain-core",
    )
}
"""Packages that are then upgraded, whatever others require: an index may lack a requirement."""
COLUMNS = (
    "langgraph",
    "langgraph-prebuilt",
    "langgraph-checkpoint-sqlite",
    "langchain",
    "langchain-core",
    "deepagents",
)


def environment(name: str, folder: Path) -> Path:
    """Make a virtual environment with a set of versions; one that was kept is used as it is.

    Returns:
        Its interpreter.
    """
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    venv.create(folder, clear=True, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    tools = [f"{tool}=={version(tool)}" for tool in TOOLS]
    pinned = [*SETS[name], f"deepagents=={DEEPAGENTS[name]}", *EXTRAS, *tools]
    subprocess.run([*install, *pinned], check=True)  # noqa: S603 - our own list
    if name in UPGRADED:
        upgrade = [*install, "--upgrade", "--no-deps", *UPGRADED[name]]
        subprocess.run(upgrade, check=True)  # noqa: S603 - as above
    (folder / "complete").touch()
    return python


def output_of(python: Path, *arguments: str) -> str:
    """What a command of that interpreter prints."""
    command = [str(python), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout  # noqa: S603


def run_core(python: Path, options: Sequence[str]) -> tuple[bool, str]:
    """Run the core of the tests, and show on the error stream what pytest prints.

    Returns:
        Whether all passed, and what pytest printed.
    """
    ignored = [f"--ignore={path}" for path in NOT_CORE]
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


def other_scenes(python: Path, usual: Mapping[str, Any]) -> str:
    """The scenes of `tomorrow.py` that are not as usual, and how many were played."""
    found = tomorrow.played("", python=str(python))
    others = [name for name in usual if name != "told" and found.get(name) != usual[name]]
    return f"{', '.join(others) or 'none'} of {len(usual) - 1}"


def row(python: Path, output: str, scenes: str) -> str:
    """One row of the table."""
    installed = f"from importlib.metadata import version\nprint(*map(version, {COLUMNS}))"
    end = output.rpartition("\n\n")[2] or output
    passed, failed, errors = (
        int(next(iter(re.findall(rf"(\d+) {name}", end)), "0"))
        for name in ("passed", "failed", "error")
    )
    left_out = re.findall(r"left out: (\d+) \((.*)\)", output)
    reasons = "; ".join(f"{count} {reason}" for count, reason in left_out) or "0"
    versions = output_of(python, "-c", installed).split()
    return f"| {' | '.join([*versions, str(passed), str(failed + errors), reasons, scenes])} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", choices=[[], *SETS], metavar="SET")
    parser.add_argument("--environments", type=Path, help="where the environments are kept")
    known, options = parser.parse_known_args()
    all_passed, rows, usual = True, [], tomorrow.played("")
    for name in known.sets or SETS:
        with tempfile.TemporaryDirectory() as folder:
            python = environment(name, (known.environments or Path(folder)) / name)
            sys.stderr.write(output_of(python, "-m", "pip", "check"))
            passed, output = run_core(python, options)
            all_passed = all_passed and passed
            rows.append(row(python, output, other_scenes(python, usual)))
    head = [*COLUMNS, "passed", "failed", "left out", "other scenes"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
