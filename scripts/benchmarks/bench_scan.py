"""How fast a scan is, beside a bare loop of `get_tuple`, and how much memory it takes."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from measuring import Row, compared, history, in_turns, spent

from langgraph_patch.threads import open_database, scan_threads


def fill(path: str, threads: int, turns: int, *, damaged: int = 0) -> None:
    """Make a database of `threads` threads, every `damaged`-th of them damaged."""
    messages: Any = history(turns)
    values = [messages, [*messages[:-2], messages[-1]]]
    versions = {"messages": "1"}
    with SqliteSaver.from_conn_string(path) as saver, saver.cursor() as cursor:
        first = {**empty_checkpoint(), "channel_versions": versions}
        each = ({**first, "channel_values": {"messages": value}} for value in values)
        stored = [*map(saver.serde.dumps_typed, each)]
        cursor.executemany(
            "INSERT INTO checkpoints VALUES (?, '', ?, NULL, ?, ?, '{}')",
            (
                (f"thread-{n:06}", first["id"], *stored[damaged > 0 and n % damaged == 0])
                for n in range(threads)
            ),
        )


def bare_loop(path: str) -> float:
    """CPU seconds to read the newest checkpoint of every key, and do nothing with it."""
    with open_database(path) as saver:
        with saver.cursor() as cursor:
            ids = cursor.execute("SELECT DISTINCT thread_id FROM checkpoints").fetchall()
        configs = [{"configurable": {"thread_id": each, "checkpoint_ns": ""}} for (each,) in ids]
        return spent(lambda: deque(map(saver.get_tuple, configs), maxlen=0))


def scan(path: str) -> float:
    """CPU seconds to scan."""
    with open_database(path) as saver:
        return spent(lambda: deque(scan_threads(saver), maxlen=0))


def peak(path: str) -> int:
    """The peak of bytes that Python allocated during a scan."""
    scan(path)  # imports and caches
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    scan(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most - before


def rows(*, quick: bool) -> Iterator[Row]:
    """The speed over three kinds of databases, then the memory of each further thread."""
    few, many, rounds = (20, 40, 1) if quick else (1_000, 20_000, 9)
    with tempfile.TemporaryDirectory() as folder:
        for turns, broken in ((2, 0), (20, 0), (20, 10)):
            path = str(Path(folder) / f"{turns}-{broken}.sqlite")
            fill(path, few, turns, damaged=broken)
            ways = {"bare": partial(bare_loop, path), "scan": partial(scan, path)}
            share = f"every {broken}th damaged" if broken else "none damaged"
            what = f"speed of a scan / bare get_tuple, {few} threads of {5 * turns} messages"
            goal = None if broken else 0.65
            times = in_turns(ways, rounds)
            yield compared(f"{what}, {share}", times, "bare", "scan", least=goal)
        peaks = []
        for threads in (few, many):
            path = str(Path(folder) / f"{threads}.sqlite")
            fill(path, threads, 2)
            peaks.append(peak(path))
        yield Row(
            "memory of a scan, for each further thread",
            (peaks[1] - peaks[0]) / (many - few),
            "{:.1f} bytes",
            most=200,
            detail=f"{few}: {peaks[0] / 1024:.0f} KiB, {many}: {peaks[1] / 1024:.0f} KiB",
        )
