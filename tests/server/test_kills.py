"""Processes that are killed or timed out: what was recorded is neither lost nor done twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.types import interrupt

from kit import Agent, Desk, calls, results_in
from langgraph_patch import validate_messages, with_patching
from langgraph_patch.threads import open_database, repair_thread, undo_repair
from support.databases import open_saver, rows_of
from support.paths import ENVIRONMENT
from support.placeholder_texts import FAILED, UNKNOWN, WAITED
from support.servers import forked
from support.stored_threads import results, scanned, stored, thread
from support.thread_laws import NOW

BATCH = [("work", {"number": number}) for number in range(6)]
FOUR = [("work", {"number": 0}), ("wire", {}), ("boom", {}), ("hang", {})]


@dataclass
class Busy(Desk):
    """Tools of which the second takes `pace` seconds, and the others a multiple of it."""

    pace: float = 0

    def tools(self) -> list[Any]:
        """The tools: `work` ends, `wire` asks, `boom` raises when it has, `hang` is killed."""

        @tool
        def work(number: int) -> str:
            """Take a while."""
            if number == 0:
                self.note("begun")
            time.sleep(self.pace * number)
            self.note(f"c{number}")
            return f"did {number}"

        @tool
        def wire() -> str:
            """Wait for a human."""
            return str(interrupt("wire?"))

        @tool
        def boom() -> str:
            """Raise when the others have ended."""
            time.sleep(0.3)
            self.note("raises")
            raise RuntimeError("kaput")

        @tool
        def hang() -> str:
            """Be at work when the process is killed."""
            time.sleep(20)
            return "never"

        return [work, wire, boom, hang]


def agent_of(folder: Path, kind: str, named: Any, *, pace: float = 0) -> Agent:
    """An agent whose model makes these calls when it reads `go`, on the database of the folder."""

    def say(read):
        is_done = read[-1].text == "and?" or "c0" in results_in(read)
        return AIMessage("fine") if is_done else calls(*named, first=0, id="a1")

    desk = Busy(log=folder / "log", pace=pace)
    return Agent(kind, *[say] * 5, saver=folder / "db", desk=desk)


def done_in(folder: Path) -> list[str]:
    """What the tools did."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def kill_at(
    folder: Path, kind: str, durability: Any, named: Any, *, line: str, after: float
) -> None:
    """Let a process talk until its tools have left that line, and a while more; then kill -9."""
    child = forked(
        lambda: agent_of(folder, kind, named, pace=0.05).say("go", durability=durability)
    )
    deadline = time.monotonic() + 60
    while line not in done_in(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("kind", "durability", "resumes"),
    [("send", "sync", True), ("react_v2", "async", False), ("create_agent", "async", False)],
)
def test_killed_in_a_batch(kind, durability, resumes, tmp_path):
    """At a random moment: the thread goes on, and what was recorded is not done again."""
    after = random.uniform(0, 0.3)  # noqa: S311 - no secret; each run kills at other moments
    kill_at(tmp_path, kind, durability, BATCH, line="begun", after=after)
    before = Counter(done_in(tmp_path))
    agent = agent_of(tmp_path, kind, BATCH)
    saver = agent.graph.checkpointer
    writes = [w for saved in saver.list(agent.config) for w in saved.pending_writes or ()]
    lists = [value for _, channel, value in writes if channel == "messages"]
    recorded = {m.tool_call_id for each in lists for m in each if isinstance(m, ToolMessage)}
    assert recorded <= before.keys()
    # Raw: a message that is a pending write alone goes with the next input.
    stored = saver.get_tuple(agent.config).checkpoint["channel_values"].get("messages", [])
    called = any(m.type == "ai" for m in stored)
    assert called or not recorded
    if resumes:
        agent.run(None)
    else:
        agent.say("and?")
    done = {f"c{number}": f"did {number}" for number in range(6)}
    if resumes:
        assert agent.results == done
    elif called:
        assert agent.results == {
            call: done[call] if call in recorded else UNKNOWN.format("work", call) for call in done
        }
        assert Counter(done_in(tmp_path)) == before
    assert all(Counter(done_in(tmp_path))[call] == 1 for call in recorded)
    assert validate_messages(agent.history) == []
    assert agent.history[-1].text == "fine"


@pytest.mark.parametrize(
    ("kind", "durability"),
    [("recorded", "sync"), ("create_agent", "async"), ("swarm", "sync"), ("supervisor", "sync")],
)
def test_four_siblings_of_a_killed_process(kind, durability, tmp_path):
    """Finished, waiting, raised and killed: four different outcomes, read by another process."""
    kill_at(tmp_path, kind, durability, FOUR, line="raises", after=0.4)
    agent = agent_of(tmp_path, kind, FOUR)
    agent.model.script = [AIMessage("fine")]
    agent.say("and?")
    expected = {
        "c0": "did 0",
        "c1": WAITED.format("wire", "c1"),
        "c2": FAILED.format("boom", "c2", "RuntimeError('kaput')"),
        "c3": UNKNOWN.format("hang", "c3"),
    }
    if kind == "supervisor":  # its worker is called by a function
        (told,) = [m.text for m in agent.history if "langgraph_patch" in m.additional_kwargs]
        called = ['work({"number": 0})', "wire({})", "boom({})", "hang({})"]
        lines = [
            f'- {made}: "{text}"' for made, text in zip(called, expected.values(), strict=True)
        ]
        assert told.splitlines()[2:] == lines
    else:
        assert results_in(agent.model.seen[-1]) == expected
    assert agent.history[-1].text == "fine"
    assert Counter(done_in(tmp_path)) == {"begun": 1, "c0": 1, "raises": 1}


async def aslow() -> str:
    """Take for ever."""
    await asyncio.sleep(20)
    return "never"


def slow() -> str:
    """Take longer than the time limit."""
    time.sleep(2)
    return "slowly"


@pytest.mark.parametrize("late", [{"coroutine": aslow}, {"func": slow}], ids=["async", "sync"])
def test_a_step_that_timed_out(late: Any):
    """A task is cut off and its cancellation is recorded; a thread finishes behind the error.

    If its result comes in time, LangGraph records it, and the repair recovers it.
    """

    def build(model: Any, tools: Any, saver: Any) -> Any:
        own = StructuredTool.from_function(name="slow", description="Be slow.", **late)
        bare = create_agent(model, [tools[0], own], checkpointer=saver)
        bare.step_timeout = 1.0
        return with_patching(bare)

    script = calls(("mail", {"to": "bob"}), ("slow", {}))
    agent = Agent(build, script, asynchronous="coroutine" in late)
    with pytest.raises(TimeoutError):
        agent.say("go")
    recorded = "slowly" in repr([r.pending_writes for r in agent.graph.checkpointer.list(None)])
    agent.say("never mind")
    assert agent.read["c1"] == "sent to bob"
    if recorded:
        assert agent.read["c2"] == "slowly"
    else:
        assert ("a cancellation is recorded" in agent.read["c2"]) is agent.asynchronous


# --- the commands ----------------------------------------------------------------------------


def repair_until(fatal: int, path: Path) -> int:
    """Repair, until kill -9 before that statement; how many statements there were."""
    statements = []

    def count(statement: str) -> None:
        statements.append(statement)
        if len(statements) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_saver(str(path)) as saver:
        saver.setup()
        saver.conn.set_trace_callback(count)
        repair_thread(saver, thread(), **NOW)
        saver.conn.set_trace_callback(None)
    return len(statements)


@pytest.mark.parametrize(("kind", "way"), [("agent", "abandoned"), ("delta", "killed")])
def test_a_repair_that_is_killed_at_any_statement(kind, way, tmp_path):
    """The thread is unchanged or repaired; the next repair repairs it once, and can be undone."""
    path = tmp_path / "db"
    with open_saver(str(path)) as saver:
        stored(way, kind, saver)
    before = rows_of(str(path))["1"]
    count = repair_until(0, shutil.copy(path, tmp_path / "whole"))
    added = []
    for fatal in range(1, count + 1):
        copy = shutil.copy(path, tmp_path / f"{fatal}")
        child = forked(partial(repair_until, fatal, copy))
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        added.append(len(rows_of(str(copy))["1"] - before))
        with open_saver(str(copy)) as saver:
            made = stored("new", kind, saver)
            assert repair_thread(saver, thread(), **NOW).outcome in ("repaired", "healthy")
            assert results(made.history)[0] == "sent to bob"
            assert validate_messages(made.history) == []
            assert len(rows_of(str(copy))["1"] - before) == 1
            undo_repair(saver, thread())
        assert rows_of(str(copy))["1"] == before
    assert len(added) > 5
    assert set(added) == {0, 1}


@pytest.mark.parametrize("is_copy", [False, True])
def test_the_log_of_a_process_that_was_killed(is_copy, tmp_path):
    """It is read. Where Python can, the file and the log stay; a copy leaves no file behind."""
    path = tmp_path / "db"

    def store():
        with open_saver(str(path)) as saver:
            stored("abandoned", saver=saver)
            os.kill(os.getpid(), signal.SIGKILL)

    assert os.waitpid(forked(store), 0)[1] == signal.SIGKILL
    if is_copy:
        Path(f"{path}-shm").unlink()

    def files():
        return {
            each.name: each.read_bytes() for each in tmp_path.iterdir() if "-shm" not in each.name
        }

    before = files()
    assert sorted(before) == ["db", "db-wal"]
    with open_database(str(path)) as saver:
        assert scanned(saver) == [("1", "damaged")]
    if is_copy or sys.version_info < (3, 12):
        assert [*files()] == ["db"]
    else:
        assert files() == before


def test_a_reader_may_stop_reading(tmp_path):
    """A pipe that is closed is no error."""
    path = tmp_path / "db"
    with open_saver(str(path)) as saver:
        stored("abandoned", saver=saver)
    shell = f"{sys.executable} -m langgraph_patch scan '{path}' --json | true; exit $PIPESTATUS"
    bash = ["/bin/bash", "-c", shell]
    done = subprocess.run(bash, capture_output=True, check=False, env=ENVIRONMENT)  # noqa: S603 - our own
    assert (done.returncode, b"Traceback" in done.stderr) == (141, False)
