"""`python tests/ledger --scenarios 5000 --seed 1`: run scenarios and print a table."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ledger.report import run_many

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first")
    parser.add_argument("--only", help="the name of one kind of agent")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--verbose", type=int, default=0, help="how many transcripts to print")
    parser.add_argument("--find", default="", help="only transcripts with this text in a problem")
    parser.add_argument("--no-kills", action="store_true", help="kill no process")
    parser.add_argument("--bare", action="store_true", help="do not patch the graphs")
    parser.add_argument("--tries", type=int, default=1, help="how often a scenario is played")
    parser.add_argument(
        "--shares",
        action="store_true",
        dest="only_shares",
        help="print instead what was written for calls without a result",
    )
    options = parser.parse_args()
    for name in ("langgraph_patch", "concurrent.futures", "asyncio", "langgraph"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    sys.exit(run_many(**vars(options)))
