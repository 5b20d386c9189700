"""The evidence that checkpoints have of unanswered calls: what was recorded, or nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, Overwrite, Send, interrupt
from langgraph_swarm import create_handoff_tool, create_swarm

from langgraph_patch._langgraph_storage import NO_TASK
from langgraph_patch._sansio import run_sync
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.patch import patch_messages
from support import evidence_agents
from support.evidence_agents import (
    APPROVAL,
    AWAITING_INPUT,
    BOTH,
    BOTH_RECOVERED,
    CANCELLED,
    CONFIG,
    FAILED_KAPUT,
    KINDS,
    TOOLS,
    agent,
    ai_with_calls,
    boom,
    deep,
    human_input,
    recovered,
    run_until_stop,
    scripted_model,
    send_email,
    v1,
    v2,
)
from support.paths import ENVIRONMENT

# create_react_agent is deprecated and still what most threads in databases were made with.
pytestmark = pytest.mark.filterwarnings(
    "ignore:create_react_agent has been moved", "ignore:.*AgentStatePydantic"
)


def memory():
    """A checkpointer that stores values per channel version."""
    return InMemorySaver()


@pytest.fixture
def saver():
    """A checkpointer with a database; most other tests have one in memory."""
    with SqliteSaver.from_conn_string(":memory:") as made:
        yield made


# --- one task for each call --------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "durability"), [("v2", "sync"), ("agent", "async"), ("deep", "exit")]
)
def test_finished_and_waiting(kind, durability, saver):
    """The finished call is recovered and the other awaits input, before and after a message."""
    graph = KINDS[kind]([BOTH, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"), durability=durability)
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == BOTH_RECOVERED
    run_until_stop(graph, human_input(), durability=durability)
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == BOTH_RECOVERED


KILLED = """
import os, sqlite3, sys, time
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from support import evidence_agents as t

@tool
def die() -> str:
    "Take the process down when the siblings are through."
    until = time.monotonic() + 20
    while time.monotonic() < until:
        written = {{channel for _, channel, _ in saver.get_tuple(t.CONFIG).pending_writes}}
        if written >= {{"__interrupt__", "__error__"}}:
            break
        time.sleep(0.05)
    time.sleep(0.3)
    os._exit(9)

t.TOOLS.append(die)
saver = SqliteSaver(sqlite3.connect({path!r}, check_same_thread=False))
message = t.ai_with_calls("m1", "send_email:c1", "wire_money:c2", "boom:c3", "die:c4")
t.run_until_stop(t.KINDS[{kind!r}]([message], saver), t.human_input("go"))
time.sleep(1)
"""


@pytest.mark.slow
def test_four_siblings_with_four_outcomes(tmp_path):
    """Finished, waiting, raised and killed siblings have four different outcomes."""
    path = str(tmp_path / "threads.db")
    script = KILLED.format(path=path, kind="agent")
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)],
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 9
    message = ai_with_calls("m1", "send_email:c1", "wire_money:c2", "boom:c3", "die:c4")
    with SqliteSaver.from_conn_string(path) as saver:
        assert recovered(saver, *((message, call["id"]) for call in message.tool_calls)) == {
            ("m1", "c1"): "sent to bob",
            ("m1", "c2"): AWAITING_INPUT,
            ("m1", "c3"): FAILED_KAPUT,
        }


async def test_cancelled(monkeypatch):
    """A recorded cancellation is reported as one, and nothing more."""
    begun, sent = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(evidence_agents, "slow_has_begun", begun)

    class Watched(InMemorySaver):
        """Says when the sibling's result is stored."""

        def put_writes(self, config, writes, *args):
            """Store the writes of a task."""
            super().put_writes(config, writes, *args)
            if "sent to bob" in str(writes):
                sent.set()

    message = ai_with_calls("m1", "send_email:c1", "slow:c2")
    saver = Watched()
    graph = agent([message], saver)
    running = asyncio.create_task(graph.ainvoke(human_input("go"), CONFIG))
    async with asyncio.timeout(60):
        await asyncio.gather(begun.wait(), sent.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    found = recovered(saver, (message, "c1"), (message, "c2"))
    assert found == {("m1", "c1"): "sent to bob", ("m1", "c2"): CANCELLED}


def test_answered_wait_is_over(saver, monkeypatch):
    """A call that got its answer and then left no result is no longer awaiting input."""
    message = ai_with_calls("m1", "send_email:c1", "wire_money:c2")
    graph = agent([message], saver)
    run_until_stop(graph, human_input("go"))
    monkeypatch.setattr(saver, "put_writes", only_resumes(saver.put_writes))
    monkeypatch.setattr(saver, "put", lambda config, *_: config)
    run_until_stop(graph, Command(resume="yes"))
    assert recovered(saver, (message, "c1"), (message, "c2")) == {("m1", "c1"): "sent to bob"}


def only_resumes(put_writes):
    """A process that is killed in its tool writes the answer and nothing more."""

    def put(config, writes, *args, **kwargs):
        if all(channel == "__resume__" for channel, _ in writes):
            put_writes(config, writes, *args, **kwargs)

    return put


def test_failure_after_the_answer(saver):
    """A call that waited, was answered and then raised has failed."""

    @tool
    def risky() -> str:
        """Wait, then raise."""
        interrupt("sure?")
        raise RuntimeError("kaput")

    TOOLS.append(risky)
    try:
        message = ai_with_calls("m1", "risky:c1", "send_email:c2")
        graph = v2([message], saver)
        run_until_stop(graph, human_input("go"))
        assert repr(run_until_stop(graph, Command(resume="yes"))) == "RuntimeError('kaput')"
    finally:
        TOOLS.remove(risky)
    found = recovered(saver, (message, "c1"), (message, "c2"))
    assert found == {("m1", "c1"): FAILED_KAPUT, ("m1", "c2"): "sent to bob"}


# --- one task for all calls --------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "finding"),
    [("wire_money:c1", AWAITING_INPUT), ("boom:c1", FAILED_KAPUT)],
    ids=["waits", "raises"],
)
def test_the_only_call_of_a_task(call, finding, saver):
    """What the task of a plain ToolNode recorded belongs to its only call, also in later runs."""
    message = ai_with_calls("m1", call)
    graph = v1([message, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    assert recovered(saver, (message, "c1")) == {("m1", "c1"): finding}
    run_until_stop(graph, human_input())
    assert recovered(saver, (message, "c1")) == {("m1", "c1"): finding}


@pytest.mark.parametrize("sibling", ["wire_money", "boom"])
def test_one_task_of_two_calls_says_nothing(sibling, saver):
    """A plain ToolNode that waits or raises says nothing of any single one of its calls."""
    message = ai_with_calls("m1", "send_email:c1", f"{sibling}:c2")
    run_until_stop(v1([message], saver), human_input("go"))
    assert recovered(saver, (message, "c1"), (message, "c2")) == {}


@pytest.mark.parametrize("calls", [["wire_money:c1"], ["wire_money:c1", "send_email:c2"]])
def test_human_in_the_loop_middleware(calls, saver):
    """A middleware that pauses before the tools has started none of the calls, until it goes on."""
    message = ai_with_calls("m1", *calls)
    asks = HumanInTheLoopMiddleware(interrupt_on={"wire_money": True})
    script = scripted_model(message, AIMessage("done"))
    graph = create_agent(script, TOOLS, checkpointer=saver, middleware=[asks])
    run_until_stop(graph, human_input("go"))
    every = [(message, call["id"]) for call in message.tool_calls]
    expected = {("m1", call_id): APPROVAL for _, call_id in every}
    assert recovered(saver, *every) == expected
    pause = graph.get_state(CONFIG).config
    run_until_stop(graph, human_input())
    assert recovered(saver, *every) == expected
    saver.put_writes(pause, [("__resume__", "yes")], NO_TASK)
    assert recovered(saver, *every) == {}


def test_error_of_the_next_model_is_not_the_call_s(saver):
    """A model that refuses the broken history has not failed the call."""
    message = ai_with_calls("m1", "send_email:c1")
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [message]})
    graph.add_node("skip", lambda _: {})
    graph.add_node("other", lambda _: boom.invoke({}))
    graph.add_edge(START, "model").add_edge("model", "skip").add_edge("skip", "other")
    assert run_until_stop(graph.compile(checkpointer=saver), human_input()) is not None
    assert recovered(saver, (message, "c1")) == {}


# --- other namespaces --------------------------------------------------------------------


def swarm(saver, *calls, version="v2"):
    """Alice hands off to Bob and calls something else in the same message."""
    message = ai_with_calls("m1", "transfer_to_bob:c9", *calls)
    tools = [*TOOLS, create_handoff_tool(agent_name="bob")]
    alice = create_react_agent(scripted_model(message), tools, name="alice", version=version)
    bob = create_react_agent(
        scripted_model(AIMessage("hm"), AIMessage("hm")), [send_email], name="bob"
    )
    graph = create_swarm([alice, bob], default_active_agent="alice").compile(checkpointer=saver)
    return message, graph


def test_handoff_in_a_nested_swarm(saver):
    """The way into the agent that left is found from a namespace, too."""
    message, inner = swarm(None, "send_email:c1", "wire_money:c2")
    graph = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    run_until_stop(graph.compile(checkpointer=saver), human_input("go"))
    spaces = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)}
    (space,) = [space for space in spaces if space and "|" not in space]
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": space}}
    assert recovered(saver, (message, "c1"), (message, "c2"), config=config) == BOTH_RECOVERED


def test_subgraph_s_own_namespace(saver):
    """In a subgraph the history of the subgraph's namespace is read, and no other."""
    inner = v2([BOTH])
    graph = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    run_until_stop(graph.compile(checkpointer=saver), human_input("go"))
    spaces = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)} - {""}
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": spaces.pop()}}
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2"), config=config) == BOTH_RECOVERED
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == {}


def test_another_thread_is_never_read(saver):
    """The same calls in another thread have other results."""
    run_until_stop(v2([BOTH], saver), human_input("go"))
    other = {"configurable": {"thread_id": "2"}}
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2"), config=other) == {}


# --- far back ----------------------------------------------------------------------------


def chat(first, saver, runs, durability="sync", make=agent):
    """A thread that breaks in its first run and goes on for many."""
    graph = make([first, *(AIMessage(f"{i}", id=f"r{i}") for i in range(runs))], saver)
    run_until_stop(graph, human_input("go"), durability=durability)
    for _ in range(runs):
        run_until_stop(graph, human_input(), durability=durability)


def test_gaps_in_the_steps(saver):
    """Durability "exit" keeps one checkpoint of each run."""
    chat(BOTH, saver, 100, "exit")
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == BOTH_RECOVERED


# --- older states ------------------------------------------------------------------------


def state_graph(saver, schema=MessagesState):
    """A graph that only stores its input."""
    graph = StateGraph(schema).add_node("node", lambda _: None).add_edge(START, "node")
    return graph.compile(checkpointer=saver)


def test_result_that_was_dropped(saver):
    """A result in an older state is found after it was removed."""
    graph = state_graph(saver)
    result = ToolMessage("sent to bob", tool_call_id="c1", id="t1", artifact={"a": 1})
    run_until_stop(graph, {"messages": [HumanMessage("go"), BOTH, result]})
    run_until_stop(graph, {"messages": [RemoveMessage("t1"), HumanMessage("and?")]})
    found = run_sync(recover_evidence(saver, CONFIG, [BOTH], read_calls(BOTH))).evidence
    assert found[0, 0].result == result
    assert found[0, 1].cause == "unknown"


def test_placeholders_are_no_evidence(saver):
    """A placeholder, by this package or deepagents, is not a result; the real result is found."""
    graph = v2([BOTH, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    config = graph.get_state(CONFIG).config
    texts = "Tool call send_email with id c1 did not complete - no result was recorded. "
    foreign = ToolMessage(texts + "It may have been cancelled or interrupted.", tool_call_id="c1")
    history = [*graph.get_state(config).values["messages"], HumanMessage("b")]
    ours = patch_messages(history).messages
    graph.update_state(CONFIG, {"messages": [foreign, ours[-2]]}, as_node="tools")
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == BOTH_RECOVERED


class Plain(TypedDict):
    """A state without a reducer."""

    messages: list[AnyMessage]


def reused(call_id="t:0"):
    """A history in which an id is used again: answered first, dangling then."""
    first, second = (
        ai_with_calls("m1", f"send_email:{call_id}"),
        ai_with_calls("m2", f"send_email:{call_id}"),
    )
    result = ToolMessage("the first", tool_call_id=call_id, id="t1")
    return first, second, [HumanMessage("1"), first, result, HumanMessage("2"), second]


@pytest.mark.parametrize("schema", [MessagesState, Plain])
def test_reused_id(schema, saver):
    """A result belongs to the call that was the last one with its id when it was written."""
    first, second, history = reused()
    graph = state_graph(saver, schema)
    for length in range(1, len(history) + 1):
        whole = history[:length] + [HumanMessage("x", id="x")] * (length == len(history))
        run_until_stop(graph, {"messages": whole})
    assert recovered(saver, (second, "t:0")) == {}
    assert recovered(saver, (first, "t:0")) == {("m1", "t:0"): "the first"}


@pytest.mark.parametrize("make", [agent, deep])
def test_reused_id_of_an_interrupted_call(make, saver):
    """Two turns that use the same ids each get their own results."""
    again = ai_with_calls("m2", "wire_money:c1", "send_email:c2")
    graph = make([BOTH, again, AIMessage("done")], saver)
    for _ in range(3):
        run_until_stop(graph, human_input())
    assert recovered(saver, *((m, c["id"]) for m in (BOTH, again) for c in m.tool_calls)) == {
        ("m1", "c1"): "sent to bob",
        ("m1", "c2"): AWAITING_INPUT,
        ("m2", "c1"): AWAITING_INPUT,
        ("m2", "c2"): "sent to bob",
    }


TWINS = ai_with_calls("m1", "send_email:c1", "wire_money:c1", "send_email:c2")


@pytest.mark.parametrize("kind", ["agent", "deep"])
def test_an_id_twice_in_one_message(kind, saver):
    """If each call has a task, two calls with one id get their own evidence, by position."""
    run_until_stop(KINDS[kind]([TWINS], saver), human_input("go"))
    assert recovered(saver, (TWINS, "c1", 0), (TWINS, "c1", 1), (TWINS, "c2")) == {
        ("m1", "c1", 0): "sent to bob",
        ("m1", "c1", 1): AWAITING_INPUT,
        ("m1", "c2"): "sent to bob",
    }


@pytest.mark.parametrize("kind", ["agent", "deep"])
def test_calls_to_which_a_repair_gave_new_ids(kind, saver):
    """A later search finds what is recorded under the ids that the model gave the calls."""
    graph = KINDS[kind]([TWINS, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    repaired = patch_messages([HumanMessage("go", id="h1"), TWINS]).messages[1]
    again = ai_with_calls("m0", "wire_money:c1", "send_email:c2")
    renamed = patch_messages([again, TWINS]).messages[3]
    for message in (repaired, renamed):
        ids = [call["id"] for call in message.tool_calls]
        assert len(set(ids)) == 3
        assert recovered(saver, *((message, call_id) for call_id in ids)) == {
            ("m1", ids[0]): "sent to bob",
            ("m1", ids[1]): AWAITING_INPUT,
            ("m1", ids[2]): "sent to bob",
        }


@pytest.mark.parametrize("make", [agent, deep])
def test_a_new_id_and_an_id_that_is_used_again(make, saver):
    """What a newer message's call of the old id did is not the renamed call's."""
    newer = ai_with_calls("m2", "send_email:c2", "send_email:c1")
    graph = make([TWINS, newer, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    renamed = patch_messages([HumanMessage("go", id="h1"), TWINS]).messages[1]
    wire = renamed.tool_calls[1]["id"]
    graph.update_state(CONFIG, {"messages": [renamed]}, as_node="model")
    run_until_stop(graph, human_input("on"))
    assert recovered(saver, (renamed, wire)).get(("m1", wire), AWAITING_INPUT) == AWAITING_INPUT


@pytest.mark.parametrize("wrap", [Overwrite, lambda messages: messages])
def test_rewritten_history(wrap, saver):
    """A node that writes the whole history again has not made its messages."""
    graph = StateGraph(MessagesState)
    graph.add_node("again", lambda state: {"messages": wrap(state["messages"])})
    agent_ = v2([BOTH, AIMessage("done")], saver)
    run_until_stop(agent_, human_input("go"))
    graph = graph.add_edge(START, "again").compile(checkpointer=saver)
    run_until_stop(graph, human_input())
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == BOTH_RECOVERED


@pytest.mark.parametrize("shape", ["dict", "pairs", "list"])
def test_result_in_a_returned_command(shape, saver):
    """A result that a task returned in a Command is read, whatever the shape of its update."""
    result = ToolMessage("sent to bob", tool_call_id="c1")
    update = {"dict": {"messages": [result]}, "pairs": [("messages", [result])], "list": [result]}
    message = ai_with_calls("m1", "handoff:c1", "wire_money:c2")
    run_until_stop(v1([message], saver), human_input("go"))
    newest = next(saver.list(CONFIG))
    value = Command(update=update[shape], goto="x")
    saver.put_writes(newest.config, [("__return__", value)], "task")
    assert recovered(saver, (message, "c1"), (message, "c2")) == {("m1", "c1"): "sent to bob"}


# --- forks and the current checkpoint ----------------------------------------------------


def test_abandoned_branch_is_not_read(saver):
    """What happened on a branch that was left says nothing of this one."""
    graph = v2([BOTH, AIMessage("done")], saver)
    run_until_stop(graph, human_input("go"))
    before = graph.get_state(CONFIG).config
    run_until_stop(graph, human_input("on the branch"))
    late = ToolMessage("late", tool_call_id="c2")
    graph.update_state(CONFIG, {"messages": [late]}, as_node="tools")
    fork = graph.update_state(before, {"messages": [HumanMessage("fork")]}, as_node="agent")
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == BOTH_RECOVERED
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2"), config=fork) == BOTH_RECOVERED


@pytest.mark.slow
def test_checkpoint_that_is_not_written_yet(saver):
    """With durability async the current checkpoint may be on its way: its parent is read."""
    run_until_stop(v2([BOTH], saver), human_input("go"))
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "2"}}
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2"), config=config) == BOTH_RECOVERED


# --- the checkpointer --------------------------------------------------------------------


def test_checkpoints_are_only_read(saver):
    """Finding evidence changes nothing in the checkpointer."""
    run_until_stop(v2([BOTH], saver), human_input("go"))

    def stored():
        return [(t.checkpoint, t.metadata, t.pending_writes) for t in saver.list(CONFIG)]

    before = stored()
    recovered(saver, (BOTH, "c1"), (BOTH, "c2"))
    assert stored() == before


def test_sends_that_carry_no_call(saver):
    """A Send of anything else belongs to no call."""
    message = ai_with_calls("m1", "a:c1")
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [message]})
    graph.add_node("tools", lambda _: interrupt("?"))
    graph.add_conditional_edges("model", lambda state: [Send("tools", state)])
    run_until_stop(graph.add_edge(START, "model").compile(checkpointer=saver), human_input())
    assert recovered(saver, (message, "c1")) == {}
