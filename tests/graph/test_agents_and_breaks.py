"""Every kind of agent, broken in every way, goes on with the expected history."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.messages import ToolMessage

from langgraph_patch import validate_messages
from support.agent_matrix import (
    AGENTS,
    BREAKS,
    CASES,
    ONE_HISTORY,
    Agent,
    MatrixThread,
    expected_history,
    expected_results,
)
from support.agents import human, lines, thread
from support.strict import refuse


def is_written_at_once(agent: Agent, way: str) -> bool:
    """Whether START, or a model node that runs alone, writes the repair in the first run."""
    return way not in ("invoke_none", "goto", "send") or (
        way != "send" and agent.name in ONE_HISTORY
    )


@pytest.mark.parametrize(("agent", "way", "asynchronous"), CASES)
async def test_the_thread_goes_on(agent: Agent, way: str, *, asynchronous: bool):
    """The history is the expected one and valid, no tool runs again, and later turns work.

    Where the first run starts without a message and no model node runs alone, it is so from the
    next message on.
    """
    it = MatrixThread(agent, BREAKS[way].wire, asynchronous)
    value = await BREAKS[way].make(it)
    mails = it.desk.done.count("mail")

    await it.run(it.patched, value)

    assert it.patched.get_state(thread()).next == ()
    assert it.desk.done.count("mail") == mails
    expected = expected_history(agent, way)
    if is_written_at_once(agent, way):
        check(it, expected, way)
    assert lines(it.history())[-1] == expected[-1]
    for text in ("hello", "and now?", "really?"):
        await it.run(it.patched, {"messages": [human(text)]})
        expected += [f"human: {text}", f"ai: re: {text}"]
        check(it, expected, way)
    assert it.desk.done.count("mail") == mails
    summarised = "a summary" in "".join(lines(it.history()))
    assert summarised is (agent.name == "create_agent_with_all")


def check(it: MatrixThread, expected: list[str], way: str) -> None:
    """The stored history is valid and the expected one."""
    messages = it.history()
    assert validate_messages(messages) == []
    refuse(messages)
    results = [m for m in messages if isinstance(m, ToolMessage)]
    names = {"c1": "send_email", "c2": "wire_money"}
    if it.agent.is_told and BREAKS[way].live:
        [told] = [m.text for m in messages if m.id is not None and m.id.startswith("patch-")]
        expected_lines = [line.partition(": ")[2] for line in expected_results(it.agent, way)]
        for line, text in zip(told.split("\n")[1:], expected_lines, strict=True):
            assert line.endswith(f"): {text}")
        assert {m.tool_call_id for m in results}.isdisjoint({"c1", "c2"})
    elif it.agent.is_inside and not BREAKS[way].live:
        assert {"c1", "c2"} <= {m.tool_call_id for m in results}
    elif "a summary" not in "".join(lines(messages)):
        assert lines(messages) == expected
        assert [m.name for m in results] == [names[m.tool_call_id] for m in results]
    assert lines(messages)[-1] == expected[-1] or it.agent.name == "create_agent_with_all"


@pytest.mark.parametrize("way", ["interrupted", "cancelled", "raised"])
def test_which_breaks_leave_a_recorded_result(way: str):
    """The matrix can fail: these agents, and no others, have a recorded result to lose."""
    recorded = {}
    for agent in AGENTS:
        it = MatrixThread(agent, BREAKS[way].wire, asynchronous=True)
        asyncio.run(BREAKS[way].make(it))
        recorded[agent.name] = it.recorded()
    tools_ran = way in ("cancelled", "raised")
    assert recorded == {a.name: a.records and (tools_ran or not a.asks_first) for a in AGENTS}
