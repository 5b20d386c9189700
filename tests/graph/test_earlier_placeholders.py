"""Threads with placeholders of an earlier repair, by this package or by another."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from langgraph_patch import validate_messages, with_patching
from langgraph_patch.threads import repair_thread
from support.agents import (
    CREATE_AGENT,
    DEEP_AGENT,
    REACT_V2,
    Bench,
    Graph,
    human,
    thread,
)
from support.open_calls import UNKNOWN_STATEMENTS
from support.paused_agents import paused_agent
from support.placeholder_texts import (
    DEEPAGENTS_INCOMPLETE,
    WAITED,
)
from support.running import in_turn, run_in_worker, sync_and_async
from support.transcripts import statements

each_kind_in_turn = pytest.mark.parametrize(
    ("kind", "asynchronous"), in_turn([REACT_V2, DEEP_AGENT], [False, True])
)


def check(bench: Bench, graph: Graph, *expected: tuple[str, ...]) -> None:
    """The model was shown all but the last line, the state holds all."""
    stored = graph.get_state(thread()).values["messages"]
    assert statements(bench.model.seen[-1]) == list(expected[:-1])
    assert statements(stored) == list(expected)
    assert validate_messages(stored) == []


START_OF_TURN = [("human", "book it"), ("calls", "c1", "c2")]
SENT = ("c1", "sent to bob", "real")
WAITING = ("c2", WAITED.format("wire_money", "c2"), "awaiting_input")
FOREIGN = [
    ("c1", DEEPAGENTS_INCOMPLETE.format("send_email", "c1"), "real"),
    ("c2", DEEPAGENTS_INCOMPLETE.format("wire_money", "c2"), "real"),
]
NEVER_MIND = ("human", "never mind")


# --- placeholders of this package --------------------------------------------------------


@each_kind_in_turn
async def test_a_placeholder_gives_way_to_the_checkpoint(kind, asynchronous):
    """After a repair without recovery `repair_thread` still finds the recorded results."""
    bench = await paused_agent(
        kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous
    )
    blind = with_patching(bench.graph, recover=False)
    await run_in_worker(blind, "never mind", asynchronous=asynchronous)
    check(bench, blind, *START_OF_TURN, *UNKNOWN_STATEMENTS, NEVER_MIND, ("ai", "fine"))
    repair_thread(bench.graph, thread(), min_age=0)
    await run_in_worker(bench.graph, "hello?", asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "fine"), ("human", "hello?"), ("ai", "yes?")]
    check(bench, bench.graph, *START_OF_TURN, SENT, WAITING, *after)


@each_kind_in_turn
async def test_a_placeholder_gives_way_to_a_late_result(kind, asynchronous):
    """A real result that arrives after the placeholder takes its place, beside its call."""
    bench = await paused_agent(
        kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous
    )
    graph = with_patching(bench.graph)
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    check(bench, graph, *START_OF_TURN, SENT, WAITING, NEVER_MIND, ("ai", "fine"))
    late = ToolMessage("wired after all", tool_call_id="c2", name="wire_money", id="late")
    await run_in_worker(graph, [late, human("hello?")], asynchronous=asynchronous)
    wired = ("c2", "wired after all", "real")
    after = [NEVER_MIND, ("ai", "fine"), ("human", "hello?"), ("ai", "yes?")]
    check(bench, graph, *START_OF_TURN, SENT, wired, *after)
    assert graph.get_state(thread()).values["messages"][3].id == "late"


async def test_nothing_gives_way_to_a_placeholder():
    """A call that waited is searched once more; the texts stay, and then nothing is written."""
    patches: list[Any] = []
    answers = [AIMessage("fine"), AIMessage("yes?"), AIMessage("no")]
    bench = await paused_agent(CREATE_AGENT, *answers, asynchronous=False)
    graph = with_patching(bench.graph, on_patch=lambda patch, _: patches.append(patch))
    read = []
    for text in ("never mind", "hello?", "and now?"):
        await run_in_worker(graph, text, asynchronous=False)
        read.append(graph.get_state(thread()).values["messages"])
    first, second, third = read
    assert [m.text for m in second[: len(first)]] == [m.text for m in first]
    assert third[: len(second)] == second
    assert len(patches) == 1


# --- placeholders of others --------------------------------------------------------------


@sync_and_async
async def test_a_deep_agent_s_own_repair_is_replaced(asynchronous):
    """The agent replaced the mail's result; with `replace_foreign` the result is recovered."""
    bench = await paused_agent(
        DEEP_AGENT, AIMessage("hm"), AIMessage("fine"), asynchronous=asynchronous
    )
    await run_in_worker(bench.graph, "never mind", asynchronous=asynchronous)
    check(bench, bench.graph, *START_OF_TURN, *FOREIGN, NEVER_MIND, ("ai", "hm"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await run_in_worker(graph, "hello?", asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, SENT, WAITING, *after)
    assert bench.tools.done == ["mail to bob"]


@sync_and_async
async def test_a_deep_agent_s_own_repair_is_kept(asynchronous):
    """Without `replace_foreign` what deepagents wrote is a result like any other."""
    bench = await paused_agent(
        DEEP_AGENT, AIMessage("hm"), AIMessage("fine"), asynchronous=asynchronous
    )
    await run_in_worker(bench.graph, "never mind", asynchronous=asynchronous)
    patches: list[Any] = []
    graph = with_patching(bench.graph, on_patch=lambda patch, _: patches.append(patch))
    await run_in_worker(graph, "hello?", asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, *FOREIGN, *after)
    assert patches == []


def placeholder(text: str, **extra: Any) -> list[ToolMessage]:
    """What another repair wrote for both calls."""
    names = {"c1": "send_email", "c2": "wire_money"}
    return [
        ToolMessage(
            text.format(name, call_id),
            name=name,
            tool_call_id=call_id,
            id=f"foreign-{call_id}",
            status="error",
            additional_kwargs=extra,
        )
        for call_id, name in names.items()
    ]
