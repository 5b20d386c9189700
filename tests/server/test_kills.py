"""Killed, timed out, or in PostgreSQL: what was recorded is neither lost nor done twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.types import interrupt

from kit import Agent, Desk, calls, results_in
from langgraph_patch import validate_messages, with_patching
from support.paths import ENVIRONMENT
from support.placeholder_texts import FAILED, UNKNOWN, WAITED
from support.servers import running_postgres

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


def main(place: str, kind: str, durability: Any, named: Any) -> None:
    """What the child does."""
    agent_of(Path(place), kind, named, pace=0.05).say("go", durability=durability)


def done_in(folder: Path) -> list[str]:
    """What the tools did."""
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


def kill_at(folder: Path, *argv: Any, line: str, after: float) -> None:
    """Run the child until its tools have left that line, and a while more; then kill -9."""
    code = f"import test_kills; test_kills.main({str(folder)!r}, *{argv!r})"
    path = f"{Path(__file__).parent}:{ENVIRONMENT['PYTHONPATH']}"
    with subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-W", "ignore", "-c", code],
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "PYTHONPATH": path},
    ) as child:
        deadline = time.monotonic() + 60
        while line not in done_in(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child.poll() is None
        time.sleep(after)
        child.kill()


@pytest.mark.parametrize(
    ("kind", "durability", "resumes"),
    [("send", "sync", True), ("react_v2", "async", False), ("create_agent", "async", False)],
)
def test_f34_killed_in_a_batch(kind, durability, resumes, tmp_path):
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
def test_f03_four_siblings_of_a_killed_process(kind, durability, tmp_path):
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


TURN = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_step_that_timed_out(*, asynchronous: bool):
    """A task is cut off and its cancellation is recorded; a thread finishes behind the error.

    If its result comes in time, LangGraph records it, and the repair recovers it.
    """

    def slow() -> str:
        """Take longer than the time limit."""
        time.sleep(2)
        return "slowly"

    async def aslow() -> str:
        """Take for ever."""
        await asyncio.sleep(20)
        return "never"

    def build(model: Any, tools: Any, saver: Any) -> Any:
        late: Any = {"coroutine": aslow} if asynchronous else {"func": slow}
        own = StructuredTool.from_function(name="slow", description="Be slow.", **late)
        bare = create_agent(model, [tools[0], own], checkpointer=saver)
        bare.step_timeout = 1.0
        return with_patching(bare)

    script = calls(("mail", {"to": "bob"}), ("slow", {}))
    agent = Agent(build, script, asynchronous=asynchronous)
    with pytest.raises(TimeoutError):
        agent.say("go")
    recorded = "slowly" in repr([r.pending_writes for r in agent.graph.checkpointer.list(None)])
    agent.say("never mind")
    assert agent.read["c1"] == "sent to bob"
    if recorded:
        assert agent.read["c2"] == "slowly"
    else:
        assert ("a cancellation was recorded" in agent.read["c2"]) is asynchronous


async def play(kind: str, saver: Any, *, asynchronous: bool = False) -> dict[str, str]:
    """What is stored of an abandoned turn."""
    agent = Agent(kind, TURN, saver=saver)
    agent.config = {"configurable": {"thread_id": f"{kind}, {asynchronous}"}}
    for text in ("pay bob", "never mind"):
        if asynchronous:
            final = await agent.graph.ainvoke({"messages": [HumanMessage(text)]}, agent.config)
        else:
            final = agent.say(text)
    return results_in(final["messages"])


async def test_postgresql():
    """Its filters are not relied on: the turn of each level is found, and no other."""
    with running_postgres() as server:
        uri = server.make()
        for kind in ("node", "three_levels"):
            with PostgresSaver.from_conn_string(uri) as saver:
                found = await play(kind, saver)
            async with AsyncPostgresSaver.from_conn_string(uri) as saver:
                assert await play(kind, saver, asynchronous=True) == found
            assert found["c1"] == "sent to bob"
            assert found["c2"] == WAITED.format("wire", "c2")
