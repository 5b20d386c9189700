"""What can go wrong in a repair: kills, failing savers, full disks, other writers, bad messages.

A kill in the middle of a graph's run is in `test_kills.py`. Each test here counts what it did
and what it cost; the sums are printed at the end of a run with `-s`, and must show no loss.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from langgraph_patch import (
    PatchError,
    patch_messages,
    patch_node,
    threads,
    validate_messages,
    with_patching,
)
from langgraph_patch.cli import main
from langgraph_patch.history.damaged_fields import corrected
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from langgraph_patch.history.patch import as_messages
from langgraph_patch.streaming import message_from_stream
from langgraph_patch.threads import repair_thread, scan_threads
from support import kill_repair
from support.agents import human, thread
from support.broken_threads import Made, answer, edited, kind_of, silent, ways_of
from support.databases import rows_of
from support.faults import FaultError, Faults, FaultyAsyncSqlite, FaultyMemory, FaultySqlite
from support.generated import fewer, work
from support.hostile import anything, histories, messages
from support.kill_agent import KINDS as RUNS
from support.kill_agent import Tools, model_of
from support.kill_repair import Processes
from support.transcripts import call_ids_in, logged_lines, results_by_call

DEAD = -signal.SIGKILL
FIGURES: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def figures() -> Iterator[None]:
    """Tell at the end what was done."""
    yield
    print("\n" + "\n".join(f"{count:7} {what}" for what, count in sorted(FIGURES.items())))  # noqa: T201 - shown with -s


# --- threads in a file -------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """A database of threads of one kind of agent, which tests copy.

    Attributes:
        path: The path of its database.
        kind: The agent.
        made: The threads, with the expected outcome of each.
        spoken: The ids of the messages that are no results, by thread.
    """

    path: Path
    kind: str
    made: list[Made]
    spoken: dict[str, list[str | None]]

    def copy(self, folder: Path) -> str:
        """A copy of the database in that folder."""
        folder.mkdir(exist_ok=True)
        return str(shutil.copy(self.path, folder / "threads.sqlite"))

    @property
    def damaged(self) -> list[Made]:
        """The threads that are broken."""
        return [made for made in self.made if made.status == "damaged"]


RUN = ("healthy", "paused", "abandoned", "failed", "failed_at_the_tail", "killed", "cancelled")
DEEP = ("healthy", "paused", "failed_at_the_tail", "killed")
EDITS = ("F2-sibling-lost@anthropic", "F6-steering-message", "F25-stored-chunk",
         "F29-result-blocks", "mixed-used-again-and-misplaced@v1")  # fmt: skip


def history(graph: Any, thread_id: str) -> list[Any]:
    """The messages that the next run will find."""
    return list(graph.get_state(thread(thread_id)).values["messages"])


def spoken(messages: list[Any]) -> list[str | None]:
    """The ids of the messages that are neither results nor stand for some."""
    return [m.id for m in messages if m.type in ("human", "ai", "system") and not _holds_result(m)]


def _holds_result(message: Any) -> bool:
    return isinstance(message.content, list) and "tool_result" in str(message.content)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: Any) -> dict[str, Template]:
    """One database for each of two kinds of agents; the second has `DeltaChannel` state."""
    found = {}
    for kind, ran in (("react_v2", RUN), ("create_deep_agent", DEEP)):
        every = dict(ways_of(kind)) | {name: edited(name) for name in EDITS}
        path = tmp_path_factory.mktemp(kind) / "threads.sqlite"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            made = [
                Made(name, kind, name, *every[name](kind, saver, thread(name)))
                for name in (*ran, *EDITS)
            ]
            graph = silent(kind, saver)
            stored = {m.thread_id: spoken(history(graph, m.thread_id)) for m in made}
        found[kind] = Template(path, kind, made, stored)
    return found


def is_repaired(saver: Any, made: Made, template: Template) -> bool:
    """Whether a thread is whole: valid, nothing lost, ready for the next message."""
    state = silent(template.kind, saver).get_state(thread(made.thread_id))
    messages = state.values["messages"]
    texts = {m.text for m in messages if isinstance(m, ToolMessage)}
    assert set(template.spoken[made.thread_id]) <= set(spoken(messages)), made
    return not validate_messages(messages) and made.real_results <= texts and not state.next


def count_repaired(template: Template, path: str) -> int:
    """The number of repaired threads; all others must be unchanged, row for row."""
    before, after = rows_of(str(template.path)), rows_of(path)
    repaired = 0
    with SqliteSaver.from_conn_string(path) as saver:
        for made in template.made:
            name = made.thread_id
            assert before[name] <= after[name], made
            if after[name] != before[name]:
                assert made.status == "damaged", made
                assert is_repaired(saver, made, template), made
                repaired += 1
    return repaired


def finish(template: Template, path: str) -> None:
    """Repair once more, in this process: all is repaired, and a scan is clean."""
    with SqliteSaver.from_conn_string(path) as saver:
        for made in template.damaged:
            repair = repair_thread(silent(template.kind, saver), thread(made.thread_id), min_age=0)
            assert repair.outcome in ("repaired", "healthy"), (made, repair)
            assert is_repaired(saver, made, template), made
        found = {r.thread_id: r.status for r in scan_threads(saver) if not r.namespace}
    assert found == {m.thread_id: m.status.replace("damaged", "healthy") for m in template.made}


# --- kill -9 -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes() -> Any:
    """Repairs in processes of their own."""
    with Processes() as server:
        yield server


@pytest.fixture(scope="module")
def is_long(request: Any) -> bool:
    """Whether the long form was asked for."""
    return bool(request.config.getoption("--long", default=False))


KINDS = ("react_v2", "create_deep_agent")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_killed_in_the_repair_of_a_thread(kind, templates, processes, tmp_path, is_long):
    """At random SQL statements: the thread is unchanged or repaired; the next repair works."""
    template = templates[kind]
    rng = random.Random()  # noqa: S311 - no secret; each run kills at other moments
    for number in range(25 if is_long else 2):
        made = rng.choice(template.damaged)
        whole = template.copy(tmp_path / f"whole{number}")
        unkilled = processes.start("repair_one", whole, kind, made.thread_id, 0)
        assert processes.wait(unkilled) == 0
        statements = int(Path(f"{whole}.statements").read_text())
        path = template.copy(tmp_path / str(number))
        fatal = rng.randint(1, statements)
        pid = processes.start("repair_one", path, kind, made.thread_id, fatal)
        assert processes.wait(pid) == DEAD
        repaired = count_repaired(template, path)
        assert repaired <= 1
        FIGURES["kills in the repair of a thread"] += 1
        FIGURES["kills in the repair of a thread, after it was written"] += repaired
        finish(template, path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_killed_in_a_repair_of_all(kind, templates, processes, tmp_path, is_long):
    """At random moments: each thread is unchanged or repaired, and the next repair completes."""
    template = templates[kind]
    whole = template.copy(tmp_path / "whole")
    start = time.monotonic()
    unkilled = processes.start("repair_all", whole, kind)
    assert processes.wait(unkilled) == 0
    lasts = time.monotonic() - start
    assert count_repaired(template, whole) == len(template.damaged)
    rng = random.Random()  # noqa: S311 - no secret; each run kills at other moments
    for number in range(25 if is_long else 1):
        path = template.copy(tmp_path / str(number))
        pid = processes.start("repair_all", path, kind)
        time.sleep(rng.uniform(0, lasts))
        os.kill(pid, signal.SIGKILL)
        code = processes.wait(pid)
        assert code in (DEAD, 0)
        FIGURES["kills in a repair of all"] += code == DEAD
        FIGURES["threads that such a kill left repaired"] += count_repaired(template, path)
        finish(template, path)


# --- a checkpointer that fails once ------------------------------------------------------


class SaverKind:
    """One kind of checkpointer, and how it is used: by calls, or in an event loop.

    Attributes:
        name: The checkpointer's class.
        step: Each which call is let fail.
    """

    def __init__(self, saver: str, step: int = 1) -> None:
        self.name = saver
        self.step = step
        self._runner = asyncio.Runner() if saver == "AsyncSqliteSaver" else None

    def call(self, target: Any, method: str, *args: Any, **options: Any) -> Any:
        """Call a method, or its async form."""
        if self._runner is None:
            return getattr(target, method)(*args, **options)
        return self._runner.run(getattr(target, f"a{method}")(*args, **options))

    def reports(self, saver: Any) -> list[Any]:
        """A whole scan."""
        if self._runner is None:
            return list(threads.scan_threads(saver))

        async def all_of() -> list[Any]:
            return [report async for report in threads.ascan_threads(saver)]

        return self._runner.run(all_of())

    def path(self, source: Source) -> Path:
        """The path of the copy of a thread."""
        return source.path.with_name(f"copy-{self.name}")

    def recorded(self, saver: Any) -> set[str]:
        """The calls with results in the pending writes of a checkpoint."""

        async def all_of() -> list[Any]:
            return [saved async for saved in saver.alist(thread())]

        found = self._runner.run(all_of()) if self._runner else list(saver.list(thread()))
        writes = [write for saved in found for write in saved.pending_writes or ()]
        ids = (call_ids_in(v) for _, c, v in writes if c == "messages")
        return {call_id for some in ids for call_id in some}

    @contextmanager
    def opened(self, source: Source) -> Iterator[Any]:
        """A checkpointer over a copy of that thread; it has its `faults`."""
        if self.name == "InMemorySaver":
            saver = FaultyMemory()
            for part in ("storage", "writes", "blobs"):
                setattr(saver, part, copy.deepcopy(getattr(source.memory, part)))
            saver.faults = Faults()
            yield saver
            return
        path = self.path(source)
        for old in path.parent.glob(f"{path.name}*"):
            old.unlink()
        shutil.copy(source.path, path)
        if self._runner is None:
            with FaultySqlite.from_conn_string(str(path)) as saver:
                saver.faults = Faults()
                yield saver
            return
        opening = FaultyAsyncSqlite.from_conn_string(str(path))
        saver = self._runner.run(opening.__aenter__())
        saver.faults = Faults()
        try:
            yield saver
        finally:
            self._runner.run(opening.__aexit__(None, None, None))

    def close(self) -> None:
        """End the event loop."""
        if self._runner is not None:
            self._runner.close()


@dataclass(frozen=True)
class Source:
    """One thread, in memory and in a file.

    Attributes:
        kind: The agent that ran it.
        way: What happened to it.
        memory: The thread in an in-memory saver.
        path: The path of the same thread in SQLite.
    """

    kind: str
    way: str
    memory: InMemorySaver
    path: Path


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Any:
    """Make a thread to which that happened."""

    def made(kind: str, way: str) -> Source:
        found = Source(kind, way, InMemorySaver(), tmp_path_factory.mktemp(way) / "thread.sqlite")
        dict(ways_of(kind))[way](kind, found.memory, thread())
        with SqliteSaver.from_conn_string(str(found.path)) as saver:
            dict(ways_of(kind))[way](kind, saver, thread())
        return found

    return made


@pytest.fixture(params=["InMemorySaver", "SqliteSaver", "AsyncSqliteSaver"])
def saver_kind(request: Any, is_long: bool) -> Iterator[SaverKind]:  # noqa: FBT001 - a fixture
    """Each kind of checkpointer; every call fails in memory, or if there is time."""
    made = SaverKind(request.param, 1 if is_long or request.param == "InMemorySaver" else 4)
    yield made
    made.close()


def stored_results(saver_kind: SaverKind, kind: str, saver: Any) -> dict[str, tuple[str, str]]:
    """What the thread tells of each call."""
    return results_by_call(
        saver_kind.call(silent(kind, saver), "get_state", thread()).values["messages"]
    )


def names_fault(error: BaseException | None) -> bool:
    """Whether it is the checkpointer's own error, or a `PatchError` that names it."""
    if isinstance(error, PatchError):
        return "FaultError" in str(error) and names_fault(error.__cause__)
    return isinstance(error, FaultError)


def each_call(saver_kind: SaverKind, source: Source, act: Any, check: Any) -> int:
    """Let each call that `act` makes fail in turn, then check, then try again.

    Args:
        saver_kind: The checkpointer.
        source: The thread.
        act: What is tried: `act(saver_kind, saver)`.
        check: `check(saver_kind, saver, error)`, after the failure, with the error that came out.

    Returns:
        How many calls failed.
    """
    at, failed, reached = 1, 0, True
    while reached:
        with saver_kind.opened(source) as saver:
            saver.faults.arm(at)
            error: Exception | None = None
            try:
                act(saver_kind, saver)
            except (FaultError, PatchError) as raised:
                error = raised
            reached = saver.faults.failed
            what = f"{saver.faults.seen[-1]}, call {at}"
            saver.faults.arm(0)
            assert error is None or names_fault(error), what
            check(saver_kind, saver, error)
            if error is not None:
                act(saver_kind, saver)
                check(saver_kind, saver, None)
        failed += reached
        at += saver_kind.step
    return failed


REAL = ("sent to bob", "real")


@cache
def patched(kind: str) -> Any:
    """The application's graph, patched; its model answers, and refuses a broken history."""
    bench = kind_of(kind).make()

    def say(_: Any) -> Any:
        bench.model.script.append(say)
        return answer()

    bench.model.script.append(say)
    return with_patching(bench.graph)


def ask(saver_kind: SaverKind, saver: Any, kind: str, durability: str = "sync") -> None:
    """Write to the thread, as a human does."""
    graph = patched(kind).copy({"checkpointer": saver})
    message = {"messages": [human("and now?")]}
    saver_kind.call(graph, "invoke", message, thread(), durability=durability)


def check_ask(saver_kind: SaverKind, saver: Any, kind: str, *, done: bool) -> None:
    """No recorded result is lost; one that could not be read is found by the next turn."""
    messages = saver_kind.call(silent(kind, saver), "get_state", thread()).values["messages"]
    unread = [m for m in messages if m.additional_kwargs.get(PLACEHOLDER_KEY, {}).get("look_again")]
    if unread:
        assert {
            (m.tool_call_id, m.additional_kwargs[PLACEHOLDER_KEY]["cause"]) for m in unread
        } <= {
            ("c1", "unknown"),
            ("c2", "unknown"),
            ("c2", "awaiting_input"),  # searched once more, whatever failed
        }
        ask(saver_kind, saver, kind)
        messages = saver_kind.call(silent(kind, saver), "get_state", thread()).values["messages"]
    stored = results_by_call(messages)
    assert stored.get("c1", REAL) == REAL
    if done:
        assert stored["c1"] == REAL
        assert stored["c2"][1] in ("awaiting_input", "real")
        assert "and now?" in [m.text for m in messages]
        assert messages[-1].text == "done"
        assert validate_messages(messages) == []


THREADS = (("react_v2", "paused"), ("react_v2", "abandoned"), ("create_deep_agent", "killed"))


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "way"), THREADS)
@pytest.mark.needs(langgraph="1.2.16")
def test_a_fault_in_a_run_that_repairs(kind, way, source, saver_kind, is_long):
    """Whatever call fails, the next message is answered, on the recorded results."""
    made = source(kind, way)
    for durability in ("sync", "async") if is_long else ("sync",):
        FIGURES["faults in a run that repairs"] += each_call(
            saver_kind,
            made,
            lambda saver_kind, saver, durability=durability: ask(
                saver_kind, saver, kind, durability
            ),
            lambda saver_kind, saver, error: check_ask(saver_kind, saver, kind, done=error is None),
        )


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "way"), THREADS[1:])
def test_a_fault_in_the_repair_of_a_thread(kind, way, source, saver_kind):
    """The thread is unchanged or repaired; the next repair repairs it, the next message works."""

    def act(saver_kind: SaverKind, saver: Any) -> None:
        done = saver_kind.call(threads, "repair_thread", silent(kind, saver), thread(), min_age=0)
        assert done.outcome in ("repaired", "healthy")

    def check(saver_kind: SaverKind, saver: Any, error: Exception | None) -> None:
        state = saver_kind.call(silent(kind, saver), "get_state", thread())
        stored = results_by_call(state.values["messages"])
        if validate_messages(state.values["messages"]):
            assert error is not None
            assert "c2" not in stored
        else:
            assert stored["c1"] == REAL
            assert not state.next
        if error is None:
            ask(saver_kind, saver, kind)
            check_ask(saver_kind, saver, kind, done=True)

    FIGURES["faults in the repair of a thread"] += each_call(
        saver_kind, source(kind, way), act, check
    )


def test_a_fault_in_a_scan(source, saver_kind):
    """An error or the report names it; no damaged thread is ever called healthy."""
    found: list[Any] = []

    def act(saver_kind: SaverKind, saver: Any) -> None:
        found[:] = saver_kind.reports(saver)

    def check(saver_kind: SaverKind, saver: Any, error: Exception | None) -> None:
        if error is None:
            (report,) = found
            assert report.status != "healthy"
            if report.reason is None:
                assert next(str(c) for c in report.patch.changes).startswith("recovered")
            else:
                assert "FaultError" in report.reason

    made = source("react_v2", "abandoned")
    FIGURES["faults in a scan"] += each_call(saver_kind, made, act, check)


@pytest.mark.parametrize("name", ["SqliteSaver", "AsyncSqliteSaver"])
def test_a_fault_while_a_repair_is_undone(name, source):
    """The repair stays, whole; the next attempt takes it back."""
    made, kind = source("react_v2", "abandoned"), "react_v2"
    saver_kind = SaverKind(name)
    with saver_kind.opened(made) as saver:
        graph = silent(kind, saver)
        saver_kind.call(threads, "repair_thread", graph, thread(), min_age=0)
        with closing(sqlite3.connect(saver_kind.path(made))) as conn:
            conn.execute(
                "CREATE TRIGGER failing BEFORE DELETE ON checkpoints "
                "BEGIN SELECT RAISE(ABORT, 'the disk failed'); END"
            )
            with pytest.raises(sqlite3.IntegrityError, match="the disk failed"):
                saver_kind.call(threads, "undo_repair", graph, thread())
            assert stored_results(saver_kind, kind, saver)["c1"] == REAL
            assert saver_kind.reports(saver)[0].status == "healthy"
            conn.execute("DROP TRIGGER failing")
        saver_kind.call(threads, "undo_repair", graph, thread())
        assert stored_results(saver_kind, kind, saver) == {}
        assert saver_kind.reports(saver)[0].status == "damaged"
    saver_kind.close()
    FIGURES["faults in an undo"] += 1


def next_input(state: Any) -> Any:
    """What an application gives a graph to go on with; "done" if the model has ended."""
    messages = state.values.get("messages")
    if state.interrupts:
        return Command(resume="yes")
    if not messages:
        return {"messages": [human("go")]}
    return "done" if messages[-1].text == "fine" else None


@pytest.mark.sample(3)
def test_a_fault_in_a_run_that_records(saver_kind, tmp_path_factory):
    """What was recorded is not done again, and nothing is lost: the run ends in its results."""
    calls = [("work", {"number": 1}, "c1"), ("wire", {}, "c2"), ("work", {"number": 3}, "c3")]
    nothing = Source("hand_built", "new", InMemorySaver(), tmp_path_factory.mktemp("new") / "db")
    with SqliteSaver.from_conn_string(str(nothing.path)) as saver:
        saver.setup()
    folder = tmp_path_factory.mktemp("tools")
    once: set[str] = set()

    def act(saver_kind: SaverKind, saver: Any) -> None:
        tools = Tools(folder, 0).all()
        graph = RUNS["hand_built"](model_of(calls), tools, checkpointer=saver)
        while (value := next_input(saver_kind.call(graph, "get_state", thread()))) != "done":
            saver_kind.call(graph, "invoke", value, thread(), durability="sync")

    def check(saver_kind: SaverKind, saver: Any, error: Exception | None) -> None:
        done = Counter(logged_lines(folder))
        assert all(done[call_id] == 1 for call_id in once)
        once.update(saver_kind.recorded(saver) - {"c2"})
        assert once <= done.keys()
        if error is None:
            state = saver_kind.call(
                RUNS["hand_built"](model_of([]), [], checkpointer=saver), "get_state", thread()
            )
            real = {"c1": ("did 1", "real"), "c2": ("yes", "real"), "c3": ("did 3", "real")}
            assert results_by_call(state.values["messages"]) == real
            (folder / "log").unlink()
            once.clear()

    FIGURES["faults in a run that records"] += each_call(saver_kind, nothing, act, check)


# --- a full disk, no right to write ------------------------------------------------------


@pytest.fixture
def long_thread(tmp_path: Any) -> str:
    """A file with a long broken thread, so that a repair needs space on the disk."""
    path = str(tmp_path / "threads.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = silent("react_v2", saver)
        long = [human("x" * 50_000, f"long{n}") for n in range(3)]
        graph.update_state(thread(), {"messages": long}, as_node="__start__")
        dict(ways_of("react_v2"))["abandoned"]("react_v2", saver, thread())
    return path


def cramped(monkeypatch: Any) -> None:
    """No database that is opened from now on may grow: the disk is full."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> Any:
        conn = connect(*args, **options)
        pages = conn.execute("PRAGMA page_count").fetchone()[0]
        conn.execute(f"PRAGMA max_page_count={pages}")
        return conn

    monkeypatch.setattr(sqlite3, "connect", connected)


def as_before(path: str, before: dict[str, set[Any]]) -> None:
    """Nothing was lost or changed, and the thread reads as broken as it was."""
    assert before["1"] <= rows_of(path)["1"]
    with SqliteSaver.from_conn_string(path) as saver:
        (report,) = scan_threads(saver)
        assert [(c.kind, c.tool_call_id) for c in report.patch.changes] == [
            ("recovered", "c1"),
            ("inserted", "c2"),
        ]


def use(path: str) -> None:
    """Write to the thread as a human does: it answers, on the recorded result."""
    saver_kind = SaverKind("SqliteSaver")
    with SqliteSaver.from_conn_string(path) as saver:
        ask(saver_kind, saver, "react_v2")
        check_ask(saver_kind, saver, "react_v2", done=True)


def test_a_full_disk_stops_a_run_and_a_repair(long_thread, monkeypatch):
    """SQLite's own error is raised, the thread is unchanged; with space again the repair works."""
    before = rows_of(long_thread)
    with monkeypatch.context() as patch:
        cramped(patch)
        with SqliteSaver.from_conn_string(long_thread) as saver:
            with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
                ask(SaverKind("SqliteSaver"), saver, "react_v2")
            with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
                repair_thread(silent("react_v2", saver), thread(), min_age=0)
    as_before(long_thread, before)
    use(long_thread)
    FIGURES["full disks"] += 2


def repaired_by_command(path: str) -> int:
    """`langgraph-patch repair --all --apply`; its exit code."""
    graph = f"{kill_repair.__file__}:react_v2"
    return main(["repair", path, "--all", "--apply", "--yes", "--min-age", "0", "--graph", graph])


@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_full_disk_stops_the_command(long_thread, monkeypatch, capsys):
    """An error line and the exit code for a failure; with space again it repairs."""
    before = rows_of(long_thread)
    with monkeypatch.context() as patch:
        cramped(patch)
        assert repaired_by_command(long_thread) == 2
        assert "database or disk is full" in capsys.readouterr().err
    as_before(long_thread, before)
    assert repaired_by_command(long_thread) == 0
    use(long_thread)
    FIGURES["full disks"] += 1


@contextmanager
def read_only(path: str) -> Iterator[None]:
    """Nobody may write the file or into its folder; root is not asked, so it steps back."""
    folder = Path(path).parent
    way = [each for each in folder.parents if not each.stat().st_mode & 1]
    modes = {each: each.stat().st_mode for each in (*way, folder, *folder.iterdir())}
    for each, mode in modes.items():
        each.chmod(mode | 0o011 if each in way else 0o555 if each.is_dir() else 0o444)
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)
        for each, mode in reversed(modes.items()):
            each.chmod(mode)


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.needs(langgraph_checkpoint="4.0.1")
def test_a_read_only_file_stops_all(journal, long_thread, capsys):
    """Each says so; nothing is worse; with the right to write all is well."""
    with closing(sqlite3.connect(long_thread)) as conn:
        conn.execute(f"PRAGMA journal_mode={journal}")
    before = rows_of(long_thread)
    error = "readonly database|unable to open database file"
    silent("react_v2", InMemorySaver()), patched("react_v2")
    with read_only(long_thread):
        with (
            pytest.raises(sqlite3.OperationalError, match=error),
            SqliteSaver.from_conn_string(long_thread) as saver,
        ):
            ask(SaverKind("SqliteSaver"), saver, "react_v2")
        with (
            pytest.raises(sqlite3.OperationalError, match=error),
            SqliteSaver.from_conn_string(long_thread) as saver,
        ):
            repair_thread(silent("react_v2", saver), thread(), min_age=0)
        assert repaired_by_command(long_thread) in (2, 3)
        assert re.search(f"{error}|may this user read the file", capsys.readouterr().err)
    assert rows_of(long_thread) == before
    assert repaired_by_command(long_thread) == 0
    use(long_thread)
    FIGURES["read-only databases"] += 3


def test_a_connection_that_only_reads_stops_a_run_and_a_repair(long_thread):
    """`mode=ro`: SQLite's own error, and nothing is worse."""
    before = rows_of(long_thread)
    uri = f"{Path(long_thread).as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, check_same_thread=False)) as conn:
        saver = SqliteSaver(conn)
        saver.is_setup = True  # else it would write as it is opened
        with pytest.raises(sqlite3.OperationalError, match="readonly database"):
            ask(SaverKind("SqliteSaver"), saver, "react_v2")
        with pytest.raises(sqlite3.OperationalError, match="readonly database"):
            repair_thread(silent("react_v2", saver), thread(), min_age=0)
        (report,) = scan_threads(saver)
        assert report.status == "damaged"
    assert rows_of(long_thread) == before
    use(long_thread)
    FIGURES["read-only databases"] += 2


# --- several at once ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
def test_three_processes_repair_the_same_database(kind, templates, processes, tmp_path, is_long):
    """Every thread is repaired once: one checkpoint more for each, and a second scan is clean."""
    template = templates[kind]
    before = rows_of(str(template.path))
    for number in range(10 if is_long else 1):
        path = template.copy(tmp_path / str(number))
        pids = [processes.start("repair_all", path, kind) for _ in range(3)]
        codes = [processes.wait(pid) for pid in pids]
        assert set(codes) <= {0, 3}, codes
        outcomes = [outcomes_of(path, pid) for pid in pids]
        assert count_repaired(template, path) == len(template.damaged)
        after = rows_of(path)
        for made in template.damaged:
            new = list(after[made.thread_id] - before[made.thread_id])
            assert [row[0] for row in new] == ["checkpoints"], made
            told_of = [each.get(made.thread_id, "healthy") for each in outcomes]
            assert set(told_of) <= {"repaired", "healthy", "moved"}, told_of
            FIGURES["threads that several processes repaired"] += 1
        finish(template, path)


def outcomes_of(path: str, pid: int) -> dict[str, str]:
    """What a process says of each thread that was not healthy."""
    lines = Path(f"{path}.{pid}.output").read_text().splitlines()
    return {line["thread_id"]: line["outcome"] for line in map(json.loads, lines)}


# --- anything for a message --------------------------------------------------------------


def size_of(value: Any) -> int:
    """How much there is in a list, whatever it is: the measure of the work that may be done."""
    found, todo = 0, [value]
    while todo:
        value = todo.pop()
        found += 1
        if isinstance(value, BaseMessage):
            todo.extend(value.__dict__.values())
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, list | tuple):
            todo.extend(value)
        elif isinstance(value, str):
            found += len(value)
    return found


WORK = 500
"""Calls that Python makes for each part of a history, at most; a pass over it needs a few."""


def tried(function: Any, given: Any) -> Any:
    """What `function` gives, or None if it refuses; anything else it may not do, nor work long."""
    results: list[Any] = []

    def run(counted: Any) -> None:
        try:
            results.append(function(counted))
        except PatchError:
            FIGURES["hostile inputs that were refused"] += 1

    assert work(run, given) <= WORK * (10 + size_of(given))
    return results[0] if results else None


def kept(history: list[Any]) -> list[Any]:
    """The messages that neither answer a call nor make one: the very same objects must stay."""
    others = SystemMessage | RemoveMessage
    return [m for m in history if isinstance(m, others) or type(m) in (BaseMessage, HumanMessage)]


@example([AIMessage([{"type": []}]), HumanMessage("hm")])
@example([AIMessage([{"type": "tool_use", "id": {}, "name": "\ud800", "input": object}])])
@fewer(4)
@given(histories() | anything())
@pytest.mark.slow
def test_any_list_is_repaired_or_refused(history):
    """Valid and the same again, with nothing lost and little work; or a `PatchError`.

    A message with a damaged field is corrected, or it stays in the state alone.
    """
    FIGURES["hostile lists"] += 1
    tried(validate_messages, history)
    patch = tried(patch_messages, history)
    if patch is None:
        return
    if not patch:
        assert list(patch.messages) == list(history) or patch.messages is not history
        return
    assert validate_messages(patch.messages) == []
    assert patch_messages(patch.messages).messages is patch.messages
    left, stored = (set(map(id, m)) for m in (patch.messages, patch.messages))
    for message in kept(patch.before):
        read = corrected(message)
        if read is None:
            assert id(message) in stored
        elif read is message and not _may_answer(message):
            assert id(message) in left & stored
    assert json.dumps(patch.to_dict(), default=repr)


def _may_answer(message: Any) -> bool:
    return "tool_call_id" in message.additional_kwargs or _holds_result(message)


@fewer(4)
@given(st.lists(messages((AIMessageChunk,)), max_size=5) | anything())
@pytest.mark.slow
def test_any_stream_becomes_a_message_or_is_refused(chunks):
    """A message that the core can repair, with little work; or a `PatchError`."""
    FIGURES["hostile streams"] += 1
    message = tried(message_from_stream, chunks)
    if message is not None:
        assert validate_messages(patch_messages([message]).messages) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.needs("create_deep_agent", langgraph="1.2.16")
def test_a_stored_chunk_is_repaired_in_any_state(kind):
    """A chunk that is repaired reads back as it was written, also where state is spread."""
    saver = InMemorySaver()
    edited("F25-stored-chunk")(kind, saver, thread())
    repair = repair_thread(silent(kind, saver), thread(), min_age=0)
    assert repair.outcome == "repaired"
    assert history(silent(kind, saver), "1") == repair.patch.messages


class Unchecked(TypedDict):
    """A state that takes its history as it comes."""

    messages: list[Any]


def graph_of(saver: Any = None) -> Any:
    """The patch node and nothing else."""
    builder = StateGraph(Unchecked)
    builder.add_node("patch_tool_calls", patch_node)
    builder.set_entry_point("patch_tool_calls")
    return builder.compile(checkpointer=saver)


GRAPH = graph_of()


@fewer(10)
@given(histories() | anything())
def test_any_state_goes_through_the_node_or_is_refused(history):
    """The node writes what the function gives, or raises a `PatchError`.

    A list that holds no LangChain message, or that nobody can read, is left alone.
    """
    FIGURES["hostile states"] += 1
    try:
        stored = GRAPH.invoke({"messages": history})["messages"]
    except PatchError:
        with pytest.raises(PatchError):
            patch_messages(history)
        return
    try:
        repaired = patch_messages(history).messages
    except PatchError:
        repaired = history
    if not any(isinstance(message, BaseMessage) for message in history):
        repaired = history
    assert repr(stored) == repr(repaired) or as_messages(stored) == repaired


@fewer(10)
@given(histories() | anything())
@pytest.mark.slow
def test_any_stored_thread_is_reported(history):
    """Whatever is in a database: a report, never an exception, and never a false "healthy"."""
    saver = InMemorySaver()
    saved = empty_checkpoint()
    saved["channel_versions"] = {"messages": "1"}
    saved["channel_values"] = {"messages": history}
    place: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
    try:
        saver.put(place, saved, {"source": "input", "step": 1, "parents": {}}, {"messages": "1"})
    except Exception:  # noqa: BLE001 - what cannot be stored cannot lie there
        FIGURES["hostile threads that cannot be stored"] += 1
        return
    (report,) = scan_threads(saver)
    FIGURES[f"hostile threads, {report.status}"] += 1
    if report.status == "healthy":
        found = saver.get_tuple(place)
        assert validate_messages(found.checkpoint["channel_values"]["messages"]) == []
