"""How fast a scan is, beside a bare loop of `get_tuple`, and how much memory it takes."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import MessagesState, StateGraph
from measuring import Row, compared, in_turns, spent

from langgraph_patch.threads import scan_threads
from langgraph_patch.threads.opening import open_database


def history(turns: int) -> list[Any]:
    """A valid history: question, call, result, answer."""
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
        for turns, broken in ((2, 0), (25, 0), (25, 10)):
            path = str(Path(folder) / f"{turns}-{broken}.sqlite")
            fill(path, few, turns, damaged=broken)
            ways = {"bare": partial(bare_loop, path), "scan": partial(scan, path)}
            share = f"every {broken}th damaged" if broken else "none damaged"
            what = f"speed of a scan / bare get_tuple, {few} threads of {4 * turns} messages"
            goal = None if broken else 0.7
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
