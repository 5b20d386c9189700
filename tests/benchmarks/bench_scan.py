"""How fast a scan is, and how much memory it takes: `python tests/benchmarks/bench_scan.py`.

Compares `scan_threads` with a bare loop of `get_tuple` over the same keys, in one process, in
turns, in CPU seconds, so that other processes make little difference; what is printed is the
median of nine ratios. Then scans 1,000 and 20,000 threads and prints the peak of what Python
holds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import MessagesState, StateGraph

from langgraph_patch.databases import open_database
from langgraph_patch.threads import scan_threads


def history(turns: int) -> list[Any]:
    """A sound history: question, call, result, answer."""
    messages: list[Any] = []
    for n in range(turns):
        call = {"name": "look", "args": {"of": n}, "id": f"c{n}"}
        messages += [
            HumanMessage(f"question {n}", id=f"h{n}"),
            AIMessage("", tool_calls=[call], id=f"a{n}"),
            ToolMessage(f"result {n} " * 10, tool_call_id=f"c{n}", id=f"t{n}"),
            AIMessage(f"answer {n} " * 10, id=f"b{n}"),
        ]
    return messages


def fill(path: str, threads: int, turns: int, *, damaged: int = 0) -> None:
    """Make a database of `threads` threads, every `damaged`-th of them damaged."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": history(turns)})
    builder.set_entry_point("model")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"messages": []}, {"configurable": {"thread_id": "0"}}, durability="exit")
        tuple_ = saver.get_tuple({"configurable": {"thread_id": "0"}})
        assert tuple_ is not None
        whole = tuple_.checkpoint
        last: Any = whole["channel_values"]["messages"]
        broken: Any = {**whole, "channel_values": {"messages": [*last[:-2], last[-1]]}}
        rows = []
        for number in range(threads):
            value = broken if damaged and number % damaged == 0 else whole
            rows.append((f"thread-{number:06}", "", whole["id"], None,
                         *saver.serde.dumps_typed(value), b"{}"))  # fmt: skip
        with saver.cursor() as cursor:
            cursor.execute("DELETE FROM checkpoints")
            cursor.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def bare_loop(path: str) -> float:
    """Seconds to read the newest checkpoint of every key, and do nothing with it."""
    with open_database(path) as database, database.saver.cursor() as cursor:  # type: ignore[attr-defined]
        keys = cursor.execute(
            "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints"
        ).fetchall()
    with open_database(path) as database:
        start = time.process_time()
        for thread_id, namespace in keys:
            place = {"thread_id": thread_id, "checkpoint_ns": namespace}
            database.saver.get_tuple({"configurable": place})
        return time.process_time() - start


def scan(path: str) -> float:
    """Seconds to scan."""
    with open_database(path) as database:
        start = time.process_time()
        for _ in scan_threads(database.saver):
            pass
        return time.process_time() - start


def peak(path: str) -> int:
    """The most bytes that Python held during a scan, beyond those before."""
    scan(path)  # imports and caches
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    scan(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most - before


def main() -> int:
    """Print the figures; the exit code tells whether they are those that were promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=20_000)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for turns, damaged in ((2, 0), (25, 0), (25, 10)):
            path = str(Path(folder) / f"{turns}-{damaged}.sqlite")
            fill(path, options.few, turns, damaged=damaged)
            pairs = [(bare_loop(path), scan(path)) for _ in range(9)]
            ratio = statistics.median(bare / ours for bare, ours in pairs)
            bare, ours = min(bare for bare, _ in pairs), min(ours for _, ours in pairs)
            share = f"every {damaged}th damaged" if damaged else "none damaged"
            print(  # noqa: T201 - a script
                f"{options.few} threads of {4 * turns} messages, {share}: "
                f"bare {bare:.3f} s, scan {ours:.3f} s, {ratio:.2f} of the speed"
            )
            good &= ratio >= 0.7 or bool(damaged)
        peaks = []
        for threads in (options.few, options.many):
            path = str(Path(folder) / f"{threads}.sqlite")
            fill(path, threads, 2)
            peaks.append(peak(path))
            print(f"{threads} threads: peak {peaks[-1] / 1024:.0f} KiB")  # noqa: T201 - a script
        growth = (peaks[1] - peaks[0]) / (options.many - options.few)
        print(f"memory per further thread: {growth:.1f} bytes")  # noqa: T201 - a script
        good &= growth < 200
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
