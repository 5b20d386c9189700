"""Threads into which a repair, ours or another's, wrote something that was not the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from agents import CANCELLED, KINDS, UNKNOWN, Bench, Graph, Kind, both_calls, human, thread
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Overwrite
from strict import ai

from langgraph_patch import PLACEHOLDER_KEY, patch_messages, validate_messages, with_patching
from langgraph_patch.threads import repair_thread

BY_NAME = {kind.name: kind for kind in KINDS}
V2, AGENT, DEEP = (BY_NAME[n] for n in ("react_v2", "create_agent", "create_deep_agent"))
DEEP_TEXT = (
    "Tool call {} with id {} did not complete - no result was recorded. "
    "It may have been cancelled or interrupted."
)

each_kind = pytest.mark.parametrize("kind", [V2, AGENT, DEEP], ids=lambda kind: kind.name)
bare_repair = pytest.mark.parametrize("kind", [V2, AGENT], ids=lambda kind: kind.name)
sync_and_async = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


async def say(graph: Graph, *messages: Any, asynchronous: bool) -> Any:
    """Messages come in."""
    value = {"messages": list(messages)}
    if asynchronous:
        return await graph.ainvoke(value, thread())
    return await asyncio.to_thread(graph.invoke, value, thread())


async def paused(kind: Kind, *script: Any, asynchronous: bool) -> Bench:
    """A bare agent whose mail is sent and whose wire waits for a human."""
    bench = kind.make(
        both_calls(), *script, asynchronous=asynchronous, checkpointer=InMemorySaver()
    )
    await say(bench.graph, human("book it"), asynchronous=asynchronous)
    return bench


def told(messages: Sequence[BaseMessage]) -> list[tuple[str, ...]]:
    """What each message says; of a result also whether it is ours, and with what cause."""
    lines: list[tuple[str, ...]] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            mark = message.additional_kwargs.get(PLACEHOLDER_KEY, {})
            lines.append((message.tool_call_id, message.text, mark.get("cause", "not ours")))
        elif message.type != "system":
            lines.append((message.type, message.text))
    return lines


def check(bench: Bench, graph: Graph, *expected: tuple[str, ...]) -> None:
    """The model was shown all but the last line, the state holds all."""
    held = graph.get_state(thread()).values["messages"]
    assert told(bench.model.seen[-1]) == list(expected[:-1])
    assert told(held) == list(expected)
    assert validate_messages(held) == []


START_OF_TURN = [("human", "book it"), ("ai", "")]
SENT = ("c1", "sent to bob", "not ours")
WAITED = ("c2", CANCELLED.format("wire_money", "c2"), "awaiting_input")
UNKNOWNS = [
    ("c1", UNKNOWN.format("send_email", "c1"), "unknown"),
    ("c2", UNKNOWN.format("wire_money", "c2"), "unknown"),
]
FOREIGN = [
    ("c1", DEEP_TEXT.format("send_email", "c1"), "not ours"),
    ("c2", DEEP_TEXT.format("wire_money", "c2"), "not ours"),
]
NEVER_MIND = ("human", "never mind")


# --- placeholders of ours ----------------------------------------------------------------


@each_kind
@sync_and_async
async def test_ours_gives_way_to_the_checkpoint(kind, asynchronous):
    """Repaired without recovery, the thread is sound and nobody asks; `repair_thread` asks."""
    bench = await paused(kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous)
    blind = with_patching(bench.graph, recover=False)
    await say(blind, human("never mind"), asynchronous=asynchronous)
    check(bench, blind, *START_OF_TURN, *UNKNOWNS, NEVER_MIND, ("ai", "fine"))
    repair_thread(bench.graph, thread(), min_age=0)
    await say(bench.graph, human("hello?"), asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "fine"), ("human", "hello?"), ("ai", "yes?")]
    check(bench, bench.graph, *START_OF_TURN, SENT, WAITED, *after)


@each_kind
@sync_and_async
async def test_ours_gives_way_beside_other_damage(kind, asynchronous):
    """Where something else has to be mended, the recorded result is asked for as well."""
    bench = await paused(kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous)
    blind = with_patching(bench.graph, recover=False)
    await say(blind, human("never mind"), asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    open_call = ai(("send_email", {"to": "eve"}, "c7"), id="a7")
    graph.update_state(thread(), {"messages": [open_call]}, as_node=kind.model_node)
    await say(graph, human("hello?"), asynchronous=asynchronous)
    after = [
        NEVER_MIND,
        ("ai", "fine"),
        ("ai", ""),
        ("c7", UNKNOWN.format("send_email", "c7"), "unknown"),
        ("human", "hello?"),
        ("ai", "yes?"),
    ]
    check(bench, graph, *START_OF_TURN, SENT, WAITED, *after)
    assert bench.tools.done == ["mail to bob"]


@each_kind
@sync_and_async
async def test_ours_gives_way_to_a_late_result(kind, asynchronous):
    """A real result that arrives after the placeholder takes its place, beside its call."""
    bench = await paused(kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    await say(graph, human("never mind"), asynchronous=asynchronous)
    check(bench, graph, *START_OF_TURN, SENT, WAITED, NEVER_MIND, ("ai", "fine"))
    late = ToolMessage("wired after all", tool_call_id="c2", name="wire_money", id="late")
    await say(graph, late, human("hello?"), asynchronous=asynchronous)
    wired = ("c2", "wired after all", "not ours")
    after = [NEVER_MIND, ("ai", "fine"), ("human", "hello?"), ("ai", "yes?")]
    check(bench, graph, *START_OF_TURN, SENT, wired, *after)
    assert graph.get_state(thread()).values["messages"][3].id == "late"


@each_kind
async def test_nothing_gives_way_to_a_placeholder(kind):
    """A second repair writes nothing: the truth that was told stays as it is."""
    patches: list[Any] = []
    bench = await paused(kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=False)
    graph = with_patching(bench.graph, on_patch=lambda patch, _: patches.append(patch))
    await say(graph, human("never mind"), asynchronous=False)
    first = graph.get_state(thread()).values["messages"]
    await say(graph, human("hello?"), asynchronous=False)
    assert graph.get_state(thread()).values["messages"][: len(first)] == first
    assert len(patches) == 1


# --- placeholders of others --------------------------------------------------------------


@sync_and_async
async def test_a_deep_agent_s_own_repair_is_replaced(asynchronous):
    """The agent wrote over the sent mail; with `replace_foreign` the truth comes back."""
    bench = await paused(DEEP, AIMessage("hm"), AIMessage("fine"), asynchronous=asynchronous)
    await say(bench.graph, human("never mind"), asynchronous=asynchronous)
    check(bench, bench.graph, *START_OF_TURN, *FOREIGN, NEVER_MIND, ("ai", "hm"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await say(graph, human("hello?"), asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, SENT, WAITED, *after)
    assert bench.tools.done == ["mail to bob"]


@sync_and_async
async def test_a_deep_agent_s_own_repair_is_kept(asynchronous):
    """Without `replace_foreign` what deepagents wrote is a result like any other."""
    bench = await paused(DEEP, AIMessage("hm"), AIMessage("fine"), asynchronous=asynchronous)
    await say(bench.graph, human("never mind"), asynchronous=asynchronous)
    patches: list[Any] = []
    graph = with_patching(bench.graph, on_patch=lambda patch, _: patches.append(patch))
    await say(graph, human("hello?"), asynchronous=asynchronous)
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
    "deepagents_old": placeholder(
        "Tool call {} with id {} was cancelled - another message came in before it could be "
        "completed."
    ),
    "deepagents": placeholder(DEEP_TEXT),
    "deepagents_malformed": placeholder(
        "Tool call {} with id {} could not be executed - arguments were malformed or truncated."
    ),
    "checkpoint_aws": placeholder("any text of {} {}", orphan_tool_call_placeholder=True),
}
each_other = pytest.mark.parametrize("written", OTHERS.values(), ids=OTHERS)


async def poisoned(kind: Kind, written: list[ToolMessage], *script: Any) -> Bench:
    """A thread in which another repair answered both calls, and the model went on."""
    bench = await paused(kind, asynchronous=False)
    held = [human("book it"), both_calls(), *written, human("never mind"), AIMessage("hm", id="x")]
    bench.graph.update_state(thread(), {"messages": Overwrite(held)}, as_node=kind.model_node)
    bench.model.script[:] = script
    return bench


@bare_repair
@each_other
@sync_and_async
async def test_known_placeholders_of_others_are_replaced(kind, written, asynchronous):
    """By text or mark: both give way to the truth, and keep their place."""
    bench = await poisoned(kind, written, AIMessage("fine"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await say(graph, human("hello?"), asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, SENT, WAITED, *after)


@bare_repair
@each_other
@sync_and_async
async def test_known_placeholders_of_others_are_kept(kind, written, asynchronous):
    """Without `replace_foreign` they are results, and nothing is done."""
    bench = await poisoned(kind, written, AIMessage("fine"))
    graph = with_patching(bench.graph)
    await say(graph, human("hello?"), asynchronous=asynchronous)
    kept = [(m.tool_call_id, m.text, "not ours") for m in written]
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, *kept, *after)


@bare_repair
async def test_a_tool_that_talks_like_a_placeholder(kind):
    """A real result that only contains such words stays, also with `replace_foreign`."""
    quoted = placeholder("The log says: " + DEEP_TEXT)
    bench = await poisoned(kind, quoted, AIMessage("fine"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await say(graph, human("hello?"), asynchronous=False)
    kept = [(m.tool_call_id, m.text, "not ours") for m in quoted]
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, *kept, *after)


@each_other
async def test_without_evidence_they_become_unknown_once(written):
    """With nobody to ask, they are replaced by what is certain, and only the first time."""
    history = [human("book it"), both_calls(), *written, HumanMessage("never mind")]
    patch = patch_messages(history, replace_foreign=True)
    assert told(patch.messages) == [*START_OF_TURN, *UNKNOWNS, NEVER_MIND]
    assert patch_messages(patch.messages, replace_foreign=True).messages is patch.messages
