"""What is read after a process was killed, a superstep timed out, or with PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from kit import NESTED, Agent, Desk, calls, kill, results_in
from langgraph_patch import with_patching
from support.databases import running_postgres
from support.placeholder_texts import UNKNOWN, WAITED

TURN = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
FORBIDDEN = ("was cancelled", "no answer came", "was not run", "did not finish")


@pytest.mark.parametrize("kind", ["swarm", "supervisor"])
def test_a_process_that_was_killed(kind: str, tmp_path: Path):
    """The mail of the killed run is known; what the killed tool did is not."""
    done = kill(kind, tmp_path / "db")
    agent = Agent(kind, saver=tmp_path / "db")
    agent.model.script = []
    agent.say("never mind")
    assert done == {"mail bob": 1}
    unknown = UNKNOWN.format("wire", "c2")
    if kind in NESTED:
        assert agent.results == {"c1": "sent to bob", "c2": unknown}
    else:
        (told,) = [m.text for m in agent.history if "langgraph_patch" in m.additional_kwargs]
        assert told.splitlines()[1:] == [
            '- mail({"to": "bob"}): sent to bob',
            f'- wire({{"amount": 5}}): {unknown}',
        ]
    assert agent.desk.did == {}


@pytest.mark.parametrize("slow", [False, True], ids=["stored", "lost"])
def test_a_plain_answer_and_a_kill_after_the_work(tmp_path: Path, *, slow: bool):
    """SIGKILL when the money is wired: the text agrees with what the database has."""

    class Slow(SqliteSaver):
        """A database that is slow to store answers."""

        def put_writes(self, config: Any, writes: Any, *args: Any) -> None:
            if slow and any(channel == "__resume__" for channel, _ in writes):
                time.sleep(5)
            super().put_writes(config, writes, *args)

    class Dies(Desk):
        """The process ends when the money is wired."""

        def note(self, work: str) -> None:
            time.sleep(0.3)  # LangGraph stores the answer in another thread
            os.kill(os.getpid(), signal.SIGKILL)

    turn = calls(("wire", {"amount": 5}))
    Agent("send", turn, saver=tmp_path / "db").say("go", durability="sync")
    if (child := os.fork()) == 0:
        try:
            agent = Agent("send", saver=tmp_path / "db", desk=Dies())
            agent.graph.checkpointer.__class__ = Slow
            agent.run(Command(resume="yes"), durability="sync")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    after = Agent("send", saver=tmp_path / "db")
    rows = list(after.graph.checkpointer.list(after.config))
    stored = any(channel == "__resume__" for row in rows for _, channel, _ in row.pending_writes)
    assert stored is not slow
    after.say("what happened?")
    assert (after.read["c1"] == WAITED.format("wire", "c1")) is slow
    assert not any(words in after.read["c1"] for words in FORBIDDEN)


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
