"""The prebuilt agents: what is unique to them beside the matrix of agents and breaks."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Send
from langgraph_swarm import create_handoff_tool, create_swarm

from langgraph_patch import is_placeholder, validate_messages, with_patching
from support.agents import (
    KINDS,
    Bench,
    Graph,
    Kind,
    Tools,
    both_calls,
    history,
    human,
    lines,
    react_v2,
    thread,
)
from support.paused_agents import paused_agent
from support.placeholder_texts import NOT_APPROVED, WAITED
from support.running import run, sync_and_async
from support.strict import StrictModel, ai, refuse

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

BOOKED = human("book it")
NEVER_MIND = human("never mind")


async def dead(kind: Kind, *script: Any, asynchronous: bool = False) -> Bench:
    """A thread that the bare agent broke: the model is next, and refuses.

    A deep agent repairs its history before a new message; its thread is broken by an edit instead.
    """
    bench = await paused_agent(kind, asynchronous=asynchronous)
    if kind.heals:
        bench.graph.update_state(thread(), {"messages": [NEVER_MIND]}, as_node=kind.entry)
    with pytest.raises(ValueError, match="c1"):
        await run(
            bench.graph,
            None if kind.heals else {"messages": [NEVER_MIND]},
            asynchronous=asynchronous,
        )
    assert bench.graph.get_state(thread()).next == (kind.model_node,)
    bench.model.script[:] = script
    bench.model.seen.clear()
    return bench


def expected(kind: Kind, *after: str) -> list[str]:
    """The repaired turn as the state must have it, and the messages after it."""
    first, second = kind.results
    start = ["human: book it", "ai c1 c2: ", f"tool c1: {first}", f"tool c2: {second}"]
    return [*start, "human: never mind", *after]


# --- calls that wait ---------------------------------------------------------------------


@each_kind
async def test_one_waiting_call(kind: Kind):
    """A message with one call that waits: the placeholder says what became of it."""
    script = ai(("wire_money", {"amount": 3}, "c2"), id="a1"), AIMessage("fine")
    bench = kind.make(*script, checkpointer=InMemorySaver())
    graph = with_patching(bench.graph)
    graph.invoke({"messages": [BOOKED]}, thread())
    graph.invoke({"messages": [NEVER_MIND]}, thread())
    _, _, result, *rest = history(graph, thread())
    assert is_placeholder(result)
    assert result.tool_call_id == "c2"
    assert lines(rest) == ["human: never mind", "ai: fine"]
    text = WAITED if kind.asks else NOT_APPROVED
    assert result.text == text.format("wire_money", "c2")


@each_kind
async def test_two_model_calls_in_one_step(kind: Kind):
    """A `Send` beside the model that is next anyway: both read a valid history, START writes."""
    bench = await dead(kind, AIMessage("one"), AIMessage("two"), AIMessage("three"))
    graph = with_patching(bench.graph)
    state = graph.get_state(thread()).values
    graph.invoke(Command(goto=Send(kind.model_node, state)), thread())
    graph.invoke({"messages": [human("hello")]}, thread())
    messages = history(graph, thread())
    assert validate_messages(messages) == []
    answers = [line for line in lines(messages) if line in ("ai: one", "ai: two")]
    assert sorted(answers) == ["ai: one", "ai: two"]
    rest = [line for line in lines(messages) if line not in answers]
    assert rest == expected(kind, "human: hello", "ai: three")


@each_kind
async def test_an_edit_in_front_of_the_model(kind: Kind):
    """The same edit made just before the model runs: the node wrapper answers the call."""
    bench = kind.make(AIMessage("hello"), AIMessage("fine"), checkpointer=InMemorySaver())
    graph = with_patching(bench.graph)
    graph.invoke({"messages": [BOOKED]}, thread())
    edit = {"messages": [ai(("send_email", {"to": "bob"}, "c1"), id="a1")]}
    graph.update_state(thread(), edit, as_node=kind.entry)
    graph.invoke(None, thread())
    messages = history(graph, thread())
    assert [line.split(":")[0] for line in lines(messages)] == [
        "human",
        "ai",
        "ai c1",
        "tool c1",
        "ai",
    ]
    assert messages[-1].text == "fine"
    refuse(messages)


# --- resume ------------------------------------------------------------------------------


RESUMED = [
    "human: book it",
    "ai c1 c2: ",
    "tool c1: sent to bob",
    "tool c2: wired: yes",
    "ai: done",
]


@each_kind
@sync_and_async
@pytest.mark.parametrize("paused_by", ["bare", "patched"])
@pytest.mark.parametrize("resumed_by", ["bare", "patched"])
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


@each_kind
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


# --- what the prebuilt agents carry ------------------------------------------------------


@each_kind
def test_the_bare_agent_really_dies(kind: Kind):
    """Without the package each of these agents fails or loses the recorded result."""
    bench = kind.make(both_calls(), AIMessage("fine"), checkpointer=InMemorySaver())
    bench.graph.invoke({"messages": [BOOKED]}, thread())
    if kind.heals:
        bench.graph.invoke({"messages": [NEVER_MIND]}, thread())
        assert "sent to bob" not in "".join(lines(history(bench.graph, thread())))
    else:
        with pytest.raises(ValueError, match="c1"):
            bench.graph.invoke({"messages": [NEVER_MIND]}, thread())


@each_kind
def test_a_healthy_run_is_as_before(kind: Kind):
    """Parallel calls, no break: no repair, no step, no message more than the bare agent's."""
    runs = {}
    reported: list[Any] = []
    for name, wrap in (("bare", lambda graph: graph), ("patched", with_patching)):
        bench = kind.make(
            ai(("send_email", {"to": "a"}, "c1"), ("send_email", {"to": "b"}, "c2"), id="a1"),
            AIMessage("done", id="a2"),
            checkpointer=InMemorySaver(),
        )
        options = {"on_patch": lambda *seen: reported.append(seen)} if name == "patched" else {}
        graph = wrap(bench.graph, **options)
        graph.invoke({"messages": [BOOKED]}, thread())
        steps = [state.metadata["step"] for state in graph.get_state_history(thread())]
        runs[name] = lines(history(graph, thread())), steps
        assert reported == []
    assert runs["patched"] == runs["bare"]


def test_recursion_limit_leaves_calls_open():
    """A run that hits the recursion limit before its tools goes on with the next message."""
    for kind in KINDS[:4]:
        bench = kind.make(both_calls(), AIMessage("fine"), checkpointer=InMemorySaver())
        graph = with_patching(bench.graph)
        with pytest.raises(RecursionError):
            graph.invoke({"messages": [BOOKED]}, {**thread(), "recursion_limit": 1})
        graph.invoke({"messages": [NEVER_MIND]}, thread())
        assert bench.tools.done == []
        refuse(history(graph, thread()))
        assert lines(history(graph, thread()))[-2:] == ["human: never mind", "ai: fine"]


def swarm(*, patched: bool) -> tuple[Graph, StrictModel]:
    """Alice calls a tool and hands over to Bob in one message."""
    tools = Tools().tools()[:1]
    handoff = create_handoff_tool(agent_name="bob")
    both = ai(("send_email", {"to": "eve"}, "c1"), ("transfer_to_bob", {}, "c2"), id="a1")
    alice = react_v2(StrictModel(script=[both]), [*tools, handoff], name="alice")
    bob_model = StrictModel(script=[AIMessage("I am Bob"), AIMessage("still Bob")])
    bob = react_v2(bob_model, tools, name="bob")
    graph = create_swarm([alice, bob], default_active_agent="alice").compile(
        checkpointer=InMemorySaver()
    )
    return (with_patching(graph) if patched else graph), bob_model


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_handoff_with_a_sibling(durability: Any):
    """A swarm: the sibling's real result comes back for Bob, who would be refused without it.

    Several times, since with durability "async" the checkpoints are written in the background
    while Bob already begins.
    """
    bare, _ = swarm(patched=False)
    with pytest.raises(ValueError, match="c1"):
        bare.invoke({"messages": [BOOKED]}, thread())
    results = ["tool c1: sent to eve", "tool c2: Successfully transferred to bob"]
    for _ in range(5):
        graph, bob = swarm(patched=True)
        graph.invoke({"messages": [BOOKED]}, thread(), durability=durability)
        graph.invoke({"messages": [NEVER_MIND]}, thread(), durability=durability)
        messages = history(graph, thread())
        assert validate_messages(messages) == []
        assert lines(messages)[:2] == ["human: book it", "ai c1 c2: "]
        assert sorted(lines(messages)[2:4]) == results
        assert lines(messages)[4:] == ["ai: I am Bob", "human: never mind", "ai: still Bob"]
        assert [len(seen) for seen in bob.seen] == [4, 6]
