"""How fast a scan is, beside a bare loop of `get_tuple`, and how much memory it takes.

As a script it measures whole databases, once each, beside the loop that a user would write:

    python tests/benchmarks/bench_scan.py --database sqlite --threads 10000 50000 --repairs 1000
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import MessagesState, StateGraph
from measuring import Row, in_turns, ratio, spent, spread

from langgraph_patch import validate_messages
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.threads.opening import open_database
from support.databases import (
    POSTGRES_TABLES,
    SQLITE_TABLES,
    execute,
    open_saver,
    running_postgres,
)
from support.stored_threads import stored, thread


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
    with open_database(path) as saver, saver.cursor() as cursor:
        keys = cursor.execute(
            "SELECT DISTINCT thread_id, checkpoint_ns FROM checkpoints"
        ).fetchall()
    places: list[Any] = [
        {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
        for thread_id, namespace in keys
    ]
    with open_database(path) as saver:
        return spent(lambda: look_up(saver, places))


def look_up(saver: Any, places: list[Any]) -> None:
    """Read, and keep nothing."""
    for place in places:
        saver.get_tuple(place)


def scan(path: str) -> float:
    """CPU seconds to scan."""
    with open_database(path) as saver:
        return spent(lambda: read_all(saver))


def read_all(saver: Any) -> None:
    """Scan, and keep nothing."""
    for _ in scan_threads(saver):
        pass


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
            times = in_turns(
                {"bare": partial(bare_loop, path), "scan": partial(scan, path)}, rounds
            )
            share = f"every {broken}th damaged" if broken else "none damaged"
            yield Row(
                f"speed of a scan / bare get_tuple, {few} threads of {4 * turns} messages, {share}",
                ratio(times, "bare", "scan"),
                least=None if broken else 0.7,
                detail=spread(times, "bare", "scan"),
            )
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


# --- whole databases, as a script --------------------------------------------------------

KIND = "agent"
DAMAGED_EVERY = 20


class Cost(NamedTuple):
    """What a piece of work took in a process of its own."""

    found: int
    seconds: float
    cpu: float
    mebibytes: float


def fill_with_copies(database: str, threads: int) -> None:
    """Store copies of a healthy thread and, every twentieth, of an abandoned one."""
    with open_saver(database) as saver:
        stored("healthy", KIND, saver, "healthy")
        stored("abandoned", KIND, saver, "damaged")
    is_postgres = database.startswith("postgresql")
    for table in POSTGRES_TABLES if is_postgres else SQLITE_TABLES:
        for seed, where in (("damaged", "="), ("healthy", "<>")):
            numbers = (
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "  # noqa: S608 - ours
                f"WHERE i < {threads})"
            )
            copy = "t.*"
            if is_postgres:
                named = "jsonb_build_object('thread_id', 'thread-' || lpad(i::text, 8, '0'))"
                copy = f"(jsonb_populate_record(t, {named})).*"
            else:
                with open_saver(database) as saver, saver.cursor() as cursor:
                    columns = [row[1] for row in cursor.execute(f"PRAGMA table_info({table})")]
                copy = ", ".join(["printf('thread-%08d', i)", *columns[1:]])
            execute(
                database,
                f"INSERT INTO {table} {numbers} SELECT {copy} FROM {table} t, n "  # noqa: S608 - ours
                f"WHERE t.thread_id = '{seed}' AND i % {DAMAGED_EVERY} {where} 0",
            )
        execute(database, f"DELETE FROM {table} WHERE thread_id IN ('healthy', 'damaged')")  # noqa: S608 - ours
    execute(database, "ANALYZE")


def scan_whole(database: str) -> int:
    """Scan; how many threads are damaged."""
    with open_database(database) as opened:
        return sum(report.status == "damaged" for report in scan_threads(opened))


def users_loop(database: str) -> int:
    """The newest checkpoint of each thread from `list(None)`, each checked."""
    seen: set[str] = set()
    found = 0
    with open_saver(database) as saver:
        for saved in saver.list(None):
            thread_id = saved.config["configurable"]["thread_id"]
            if thread_id not in seen:
                seen.add(thread_id)
                found += bool(validate_messages(saved.checkpoint["channel_values"]["messages"]))
    return found


def repair_some(database: str, count: int) -> int:
    """Repair this many damaged threads; how many were repaired."""
    with open_saver(database) as saver:
        graph = stored("new", KIND, saver).graph
        numbers = (DAMAGED_EVERY * (i + 1) for i in range(count))
        repairs = [repair_thread(graph, thread(f"thread-{n:08}"), min_age=0) for n in numbers]
    return sum(repair.outcome == "repaired" for repair in repairs)


def _cost(work: Callable[..., int], arguments: Sequence[Any]) -> Cost:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    found = work(*arguments)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Cost(found, wall, cpu, grown / 1024)


def cost(work: Callable[..., int], *arguments: Any) -> Cost:
    """What `work` takes in a new process, without its imports."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_cost, (work, arguments))


def show(what: str, threads: int, taken: Cost) -> None:
    """Print one line."""
    sys.stdout.write(
        f"| {what} | {threads:,} | {taken.found:,} | {taken.seconds:.1f} s | {taken.cpu:.1f} s | "
        f"{1000 * taken.seconds / threads:.2f} ms | {taken.mebibytes:.0f} MiB |\n"
    )
    sys.stdout.flush()


def exponent(sizes: Sequence[int], taken: Sequence[Cost]) -> float:
    """How the CPU time grows from the smallest to the largest database: 1 is linear."""
    return math.log(taken[-1].cpu / taken[0].cpu) / math.log(sizes[-1] / sizes[0])


def main() -> None:
    """Print a table of whole databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--threads", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--repairs", type=int, default=0, help="how many threads to repair, too")
    options = parser.parse_args()
    sys.stdout.write(
        f"| {options.database} | threads | found | time | CPU | each | memory |\n"
        "|---|---:|---:|---:|---:|---:|---:|\n"
    )
    taken: dict[str, list[Cost]] = {"scan": [], "loop over list(None)": []}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(running_postgres()) if options.database != "sqlite" else None
        for threads in sorted(options.threads):
            database = server.make() if server else str(Path(folder) / f"{threads}.sqlite")
            cost(_fill, database, threads)
            for what, work in (("scan", scan_whole), ("loop over list(None)", users_loop)):
                taken[what].append(cost(work, database))
                show(what, threads, taken[what][-1])
        if options.repairs:
            show("repair", options.repairs, cost(repair_some, database, options.repairs))
    if len(options.threads) > 1:
        for what, costs in taken.items():
            sys.stdout.write(f"{what}: exponent {exponent(sorted(options.threads), costs):.2f}\n")


def _fill(database: str, threads: int) -> int:
    fill_with_copies(database, threads)
    return threads


if __name__ == "__main__":
    main()
