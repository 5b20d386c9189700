"""What patching costs a healthy thread: 60 turns over SQLite, bare and patched.

Run it as `python tests/benchmarks/bench_loop.py [turns] [pairs]`. In each pair the bare and
the patched agent run the same script, one after the other, in turns which goes first. CPU
time is the median of the pairs' ratios; rows and bytes are counted in both tables.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agents import KINDS, Kind, healthy_script, human, stored, thread
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch import with_patching

NAMES = ("hand_built", "react_v2", "create_agent")

WRAPS: dict[str, Callable[[Any], Any]] = {
    "bare": lambda graph: graph,
    "patched": with_patching,
}


def loop(kind: Kind, wrap: Callable[[Any], Any], path: Path, turns: int) -> float:
    """The CPU seconds of one thread with that many turns."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = wrap(kind.make(*healthy_script(turns), checkpointer=saver).graph)
        start = time.process_time()
        for turn in range(turns):
            message = human(f"go {turn:03}", f"h{turn:03}")
            graph.invoke({"messages": [message]}, thread())
        return time.process_time() - start


def measure(kind: Kind, turns: int, pairs: int) -> dict[str, Any]:
    """The ratios patched / bare."""
    ratios = []
    held: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(-1, pairs):  # the first warms up
            spent = {}
            names = sorted(WRAPS, reverse=bool(pair % 2))
            for name in names:
                path = Path(folder) / f"{name}{pair}.db"
                spent[name] = loop(kind, WRAPS[name], path, turns)
                held[name] = stored(path) if pair == pairs - 1 else {}
                path.unlink()
            if pair >= 0:
                ratios.append(spent["patched"] / spent["bare"])
    return {
        "cpu": statistics.median(ratios),
        "low": min(ratios),
        "high": max(ratios),
        "bytes": held["patched"]["bytes"] / held["bare"]["bytes"],
        "rows": (held["bare"]["rows"], held["patched"]["rows"]),
        "names": held["patched"]["names"] == held["bare"]["names"],
    }


def main() -> None:
    """Print a line per agent."""
    turns, pairs = (int(v) for v in (*sys.argv[1:], *("60", "7")[len(sys.argv) - 1 :]))
    for kind in KINDS:
        if kind.name not in NAMES:
            continue
        found = measure(kind, turns, pairs)
        bare, patched = found["rows"]
        same = "same rows" if bare == patched else f"ROWS {bare} -> {patched}"
        names = "same names" if found["names"] else "OTHER NAMES"
        sys.stdout.write(
            f"{kind.name:14} {turns} turns, {pairs} pairs: CPU x{found['cpu']:.3f} "
            f"({found['low']:.3f} to {found['high']:.3f}), bytes x{found['bytes']:.5f}, "
            f"{same} {bare}, {names}\n"
        )


if __name__ == "__main__":
    main()
