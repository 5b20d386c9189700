"""The prebuilt agents: what is unique to them beside the matrix of agents and breaks."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_patch import validate_messages, with_patching
from support.agents import (
    KINDS,
    Kind,
    both_calls,
    history,
    human,
    lines,
    thread,
)
from support.paused_agents import paused_agent
from support.running import run

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
