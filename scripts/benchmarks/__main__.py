"""All benchmarks in one Markdown table: `python scripts/benchmarks [--quick] [PART ...]`.

Figures are ratios of CPU times that were taken in turns in one process, so they are much the same
on any machine. `--quick` runs everything once over little data: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from measuring import TITLE

PARTS = {
    name: import_module(f"bench_{name}").rows
    for name in ("core", "loop", "turn", "scan", "evidence", "streaming")
}


def main() -> int:
    """Print the table; the exit code tells whether all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data, figures mean nothing")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    warnings.filterwarnings("ignore", message="create_react_agent has been moved")
    gc.freeze()  # else each collection before a measurement would go through all that is imported
    missed = 0
    sys.stdout.write(TITLE)
    for part in options.parts or PARTS:
        for row in PARTS[part](quick=options.quick):
            missed += row.met is False
            sys.stdout.write(str(row))
            sys.stdout.flush()
    return 1 if missed and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
