"""Threads with placeholders of an earlier repair, by this package or by another."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Overwrite

from langgraph_patch import patch_messages, validate_messages, with_patching
from langgraph_patch.threads import repair_thread
from support.agents import (
    CREATE_AGENT,
    DEEP_AGENT,
    REACT_V2,
    Bench,
    Graph,
    Kind,
    both_calls,
    human,
    thread,
)
from support.open_calls import UNKNOWN_STATEMENTS
from support.paused_agents import paused_agent
from support.placeholder_texts import (
    DEEPAGENTS_CANCELLED,
    DEEPAGENTS_INCOMPLETE,
    DEEPAGENTS_MALFORMED,
    WAITED,
)
from support.running import run_in_worker, sync_and_async
from support.transcripts import statements

each_kind = pytest.mark.parametrize(
    "kind", [REACT_V2, CREATE_AGENT, DEEP_AGENT], ids=lambda kind: kind.name
)
bare_repair = pytest.mark.parametrize("kind", [REACT_V2, CREATE_AGENT], ids=lambda kind: kind.name)


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


@each_kind
@sync_and_async
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


@each_kind
@sync_and_async
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


@each_kind
async def test_nothing_gives_way_to_a_placeholder(kind):
    """A call that waited is searched once more; the texts stay, and then nothing is written."""
    patches: list[Any] = []
    answers = [AIMessage("fine"), AIMessage("yes?"), AIMessage("no")]
    bench = await paused_agent(kind, *answers, asynchronous=False)
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


OTHERS = {
    "deepagents_old": placeholder(DEEPAGENTS_CANCELLED),
    "deepagents": placeholder(DEEPAGENTS_INCOMPLETE),
    "deepagents_malformed": placeholder(DEEPAGENTS_MALFORMED),
    "checkpoint_aws": placeholder("any text of {} {}", orphan_tool_call_placeholder=True),
}
each_other = pytest.mark.parametrize("written", OTHERS.values(), ids=OTHERS)


async def poisoned(kind: Kind, written: list[ToolMessage], *script: Any) -> Bench:
    """A thread in which another repair answered both calls, and the model went on."""
    bench = await paused_agent(kind, asynchronous=False)
    stored = [
        human("book it"),
        both_calls(),
        *written,
        human("never mind"),
        AIMessage("hm", id="x"),
    ]
    bench.graph.update_state(thread(), {"messages": Overwrite(stored)}, as_node=kind.model_node)
    bench.model.script[:] = script
    return bench


@bare_repair
@each_other
@sync_and_async
async def test_known_placeholders_of_others_are_replaced(kind, written, asynchronous):
    """Recognised by text or marker, they are replaced by the recorded results, in their place."""
    bench = await poisoned(kind, written, AIMessage("fine"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await run_in_worker(graph, "hello?", asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, SENT, WAITING, *after)


@bare_repair
@each_other
@sync_and_async
async def test_known_placeholders_of_others_are_kept(kind, written, asynchronous):
    """Without `replace_foreign` they are results, and nothing is done."""
    bench = await poisoned(kind, written, AIMessage("fine"))
    graph = with_patching(bench.graph)
    await run_in_worker(graph, "hello?", asynchronous=asynchronous)
    kept = [(m.tool_call_id, m.text, "real") for m in written]
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, *kept, *after)


@bare_repair
async def test_a_tool_that_talks_like_a_placeholder(kind):
    """A real result that only contains such words stays, also with `replace_foreign`."""
    quoted = placeholder("The log says: " + DEEPAGENTS_INCOMPLETE)
    bench = await poisoned(kind, quoted, AIMessage("fine"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await run_in_worker(graph, "hello?", asynchronous=False)
    kept = [(m.tool_call_id, m.text, "real") for m in quoted]
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, *kept, *after)


@each_other
async def test_without_evidence_they_become_unknown_once(written):
    """Without a checkpointer they become unknown, and only the first time."""
    history = [human("book it"), both_calls(), *written, HumanMessage("never mind")]
    patch = patch_messages(history, replace_foreign=True)
    assert statements(patch.messages) == [*START_OF_TURN, *UNKNOWN_STATEMENTS, NEVER_MIND]
    assert patch_messages(patch.messages, replace_foreign=True).messages is patch.messages
