"""What is read after a process was killed, a superstep timed out, or with PostgreSQL."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from kit import NESTED, Agent, calls, kill, results_in
from langgraph_patch import with_patching
from support.databases import running_postgres
from support.placeholder_texts import UNKNOWN, WAITED

TURN = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))


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
        assert told.splitlines()[2:] == [
            '- mail({"to": "bob"}): "sent to bob"',
            f'- wire({{"amount": 5}}): "{unknown}"',
        ]
    assert agent.desk.did == {}


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
