"""Break each promise with one line, one at a time, and see whether its test fails.

    python scripts/breaks.py                   all of tests/breaks.toml
    python scripts/breaks.py "runs once"       those whose promise has these words
    python scripts/breaks.py --all "runs once" with all tests that run quickly, not the named one

A break that no test notices is printed, and the exit code is 1. It works on a copy: the checkout
stays as it is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_SECONDS = 600
"""How long tests may take before a break counts as noticed."""
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "mutants")


def is_noticed(copy: Path, tests: list[str]) -> bool:
    """Whether these tests fail in the copy of the project.

    Raises:
        SystemExit: If they cannot be run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(  # noqa: S603 - our own tests
            [*command, *tests],
            cwd=copy,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:  # without a check hostile input may run for ever
        return True
    if done.returncode > 1 and "ERROR" not in done.stdout:  # an error while it is imported counts
        sys.exit(f"{tests} cannot be run:\n{done.stdout[-3_000:]}{done.stderr[-3_000:]}")
    return done.returncode != 0


def main() -> None:
    """Play the breaks that were chosen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="?", default="")
    parser.add_argument("--all", action="store_true")
    chosen = parser.parse_args()
    breaks = tomllib.loads((ROOT / "tests/breaks.toml").read_text("utf-8"))["break"]
    lived = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        for each in breaks:
            if chosen.words.casefold() not in each["promise"].casefold():
                continue
            path, start = copy / "langgraph_patch" / each["file"], time.monotonic()
            text = path.read_text("utf-8")
            path.write_text(text.replace(each["old"], each["new"]), "utf-8")
            tests = ["-m", "not server"] if chosen.all else ["-n0", f"tests/{each['test']}"]
            noticed = is_noticed(copy, tests)
            path.write_text(text, "utf-8")
            lived += not noticed
            word = "noticed" if noticed else "LIVES  "
            print(f"{word} {time.monotonic() - start:4.0f} s  {each['promise']}", flush=True)  # noqa: T201
    sys.exit(lived > 0)


if __name__ == "__main__":
    main()
