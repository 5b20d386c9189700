"""Every kind of agent, broken in every way, goes on with the expected history, or is resumed."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_patch import validate_messages, with_patching
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
from support.agents import KINDS, Kind, both_calls, history, human, lines, thread
from support.paused_agents import paused_agent
from support.running import run
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


WAYS = [("bare", "patched"), ("patched", "bare"), ("patched", "patched")]

BOOKED = human("book it")


# --- resume ------------------------------------------------------------------------------


RESUMED = [
    "human: book it",
    "ai c1 c2: ",
    "tool c1: sent to bob",
    "tool c2: wired: yes",
    "ai: done",
]


@pytest.mark.parametrize(
    ("kind", "paused_by", "resumed_by", "asynchronous"),
    [
        (kind, *WAYS[n % 3], bool((n // 3 + k) % 2))
        for k, kind in enumerate(KINDS)
        for n in (k, k + 1)
    ],
)
async def test_resume_goes_to_the_paused_tool(
    kind: Kind, paused_by: str, resumed_by: str, *, asynchronous: bool
):
    """The human's answer arrives, whichever of the two graphs paused and resumes."""
    bench = kind.make(
        both_calls(), AIMessage("done"), asynchronous=asynchronous, checkpointer=InMemorySaver()
    )
    graphs = {"bare": bench.graph, "patched": with_patching(bench.graph)}
    await run(graphs[paused_by], {"messages": [BOOKED]}, asynchronous=asynchronous)
    await run(graphs[resumed_by], Command(resume=kind.yes), asynchronous=asynchronous)
    assert lines(history(bench.graph, thread())) == RESUMED
    mails = bench.tools.done.count("mail to bob")
    assert mails == (2 if kind.runs_again else 1)
    assert bench.tools.done.count("wire 3") == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_an_approval_after_an_edit_still_arrives(kind: Kind):
    """A model that is called while a tool waits takes nothing from the waiting tool."""
    bench = await paused_agent(kind, AIMessage("wait"), AIMessage("done"), AIMessage("yes?"))
    graph = with_patching(bench.graph)
    aside = Command(update={"messages": [human("how long?")]}, goto=kind.model_node)
    graph.invoke(aside, thread())
    assert graph.get_state(thread()).next == (kind.pauses_in,)
    graph.invoke(Command(resume=kind.yes), thread())
    graph.invoke({"messages": [human("hello")]}, thread())
    messages = history(graph, thread())
    assert validate_messages(messages) == []
    results = [line for line in lines(messages) if line.startswith("tool")]
    assert results == ["tool c1: sent to bob", "tool c2: wired: yes"]
    assert bench.tools.done.count("wire 3") == 1
