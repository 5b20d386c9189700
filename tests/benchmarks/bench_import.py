"""What `import langgraph_patch` adds to `import langgraph.graph`, in fresh processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measuring import Row

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys, time
import langgraph.graph
before = time.process_time()
import langgraph_patch
sys.stdout.write(str(time.process_time() - before))
"""


def rows(*, quick: bool) -> Iterator[Row]:
    """The milliseconds of CPU time; all that is imported is compiled before."""
    found = [_milliseconds() for _ in range(1 if quick else 12)][-11:]
    yield Row(
        "import langgraph_patch, after langgraph.graph",
        statistics.median(found),
        "{:.0f} ms",
        most=60,
        detail=f"{min(found):.0f} to {max(found):.0f} in {len(found)} processes",
    )


def _milliseconds() -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout) * 1_000
