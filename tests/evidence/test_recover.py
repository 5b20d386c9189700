"""The evidence that checkpoints have of unanswered calls: what was recorded, or nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Overwrite, Send, interrupt

from langgraph_patch import is_placeholder, validate_messages, with_patching
from langgraph_patch._langgraph_storage import NO_TASK
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import EvidenceError
from langgraph_patch.evidence.recover import recover_evidence
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.patch import patch_messages
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from support import evidence_agents
from support.agents import (
    BY_NAME,
    CREATE_AGENT,
    DEEP_AGENT,
    REACT_V2,
    Graph,
    Kind,
    Tools,
    both_calls,
    human,
    thread,
)
from support.agents import KINDS as AGENTS
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
    arecovered,
    boom,
    deep,
    human_input,
    recovered,
    run_until_stop,
    scripted_model,
    v1,
    v2,
)
from support.open_calls import UNKNOWN_STATEMENTS
from support.paused_agents import paused_agent
from support.placeholder_texts import CANCELLED as CANCELLED_TEXT
from support.placeholder_texts import UNKNOWN, WAITED
from support.running import run_in_worker, sync_and_async
from support.savers import Counting
from support.strict import StrictModel, ai
from support.transcripts import statements

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


def test_subgraph_s_own_namespace(saver):
    """In a subgraph the history of the subgraph's namespace is read, and no other."""
    inner = v2([BOTH])
    graph = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    run_until_stop(graph.compile(checkpointer=saver), human_input("go"))
    spaces = {t.config["configurable"]["checkpoint_ns"] for t in saver.list(CONFIG)} - {""}
    config = {"configurable": {"thread_id": "1", "checkpoint_ns": spaces.pop()}}
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2"), config=config) == BOTH_RECOVERED
    assert recovered(saver, (BOTH, "c1"), (BOTH, "c2")) == {}


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


# --- graphs ------------------------------------------------------------------------------


PLAIN = [BY_NAME["hand_built"], BY_NAME["react_v1"]]
OWN_TASKS = [REACT_V2, CREATE_AGENT, DEEP_AGENT]


WAYS = [
    ("memory", False, "sync"),
    ("sqlite", True, "async"),
    ("memory", True, "exit"),
    ("sqlite", False, "exit"),
    ("memory", True, "sync"),
    ("sqlite", False, "async"),
]
PAIRS = [
    pytest.param(kind, *WAYS[(place + turn * 3) % 6], id=f"{kind.name}-{turn}")
    for place, kind in enumerate([*OWN_TASKS, *PLAIN])
    for turn in (0, 1)
]
"""Each kind in two ways to run."""


def kinds(*these: Kind) -> Any:
    """Run the test with each of these kinds."""
    return pytest.mark.parametrize("kind", these, ids=lambda kind: kind.name)


@asynccontextmanager
async def saver_of(store: str, *, asynchronous: bool):
    """A checkpointer of that sort."""
    if store == "memory":
        yield InMemorySaver()
    elif asynchronous:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            yield saver
    else:
        with SqliteSaver.from_conn_string(":memory:") as saver:
            yield saver


# --- what is compared ----------------------------------------------------------------------


def assert_marked_as_errors(messages: Sequence[BaseMessage]) -> None:
    """Every placeholder, and no real result, has the status "error"."""
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.status == ("error" if is_placeholder(message) else "success")


async def state_of(graph: Graph) -> Any:
    """What the thread holds."""
    if isinstance(graph.checkpointer, AsyncSqliteSaver):
        return await graph.aget_state(thread())
    return graph.get_state(thread())


async def check(graph: Graph, model: StrictModel, expected: Sequence[tuple[str, ...]]) -> None:
    """The model was shown all but the last message of `expected`; the state holds all."""
    stored = (await state_of(graph)).values["messages"]
    assert_marked_as_errors(stored)
    assert statements(model.seen[-1]) == list(expected[:-1])
    assert statements(stored) == list(expected)
    assert validate_messages(stored) == []
    assert len({message.id for message in stored}) == len(stored)


SENT = ("c1", "sent to bob", "real")
WAITING = ("c2", WAITED.format("wire_money", "c2"), "awaiting_input")
TURN = [("human", "book it"), ("calls", "c1", "c2")]
NEVER_MIND = ("human", "never mind")


# --- in a patched graph: parallel calls, one of them waits --------------------------------


@pytest.mark.parametrize(("kind", "store", "asynchronous", "durability"), PAIRS)
async def test_a_new_message_instead_of_an_answer(kind, store, asynchronous, durability):
    """The model reads that the mail was sent and that the wire was waiting; one mail is sent.

    Where one task ran both calls, nothing is known of either.
    """
    async with saver_of(store, asynchronous=asynchronous) as saver:
        how = {"asynchronous": asynchronous, "durability": durability}
        bench = await paused_agent(kind, AIMessage("fine"), saver=saver, **how)
        graph = with_patching(bench.graph)
        await run_in_worker(graph, "never mind", **how)
        found = UNKNOWN_STATEMENTS if kind in PLAIN else [SENT, WAITING]
        await check(graph, bench.model, [*TURN, *found, NEVER_MIND, ("ai", "fine")])
    assert bench.tools.done == ["mail to bob"]


def chat_on(
    saver: Any, runs: int, *, idle: int = 0, schema: Any = MessagesState
) -> list[tuple[str, ...]]:
    """Continue the thread for many runs with a model that accepts anything; the new messages."""
    builder = StateGraph(schema)
    idlers = [(f"idle_{n}", lambda _: {}) for n in range(idle)]
    builder.add_sequence([*idlers, ("agent", lambda _: {"messages": [AIMessage("hm")]})])
    graph = builder.set_entry_point("idle_0" if idle else "agent").compile(checkpointer=saver)
    for number in range(runs):
        graph.invoke({"messages": [human(str(number))]}, thread(), durability="sync")
    return [line for n in range(runs) for line in (("human", str(n)), ("ai", "hm"))]


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "is_found"), [(60, True), (400, False)])
async def test_damage_many_runs_ago(*, runs: int, is_found: bool):
    """It is found, or `unknown` once and for all: the next turn does not search again."""
    saver = Counting()
    bench = await paused_agent(REACT_V2, *[AIMessage("fine")] * 2, asynchronous=True, saver=saver)
    since = chat_on(saver, runs)
    graph = with_patching(bench.graph)
    await run_in_worker(graph, "hello?", asynchronous=True)
    found = [SENT, WAITING] if is_found else UNKNOWN_STATEMENTS
    turn = [*TURN, *found, *since, ("human", "hello?"), ("ai", "fine")]
    await check(graph, bench.model, turn)
    saver.used.clear()
    await run_in_worker(graph, "and now?", asynchronous=True)
    await check(graph, bench.model, [*turn, ("human", "and now?"), ("ai", "fine")])
    assert is_found or saver.used["list"] == 0
    assert bench.tools.done == ["mail to bob"]


# --- healthy threads ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "asynchronous"),
    [pytest.param(kind, bool(n % 2), id=kind.name) for n, kind in enumerate(AGENTS)],
)
async def test_a_healthy_thread_is_not_read(kind, asynchronous):
    """Parallel calls, a pause, its answer and more turns: as many reads as the bare graph's."""
    reads = []
    for wrap in (lambda graph: graph, with_patching):
        saver = Counting()
        lines = [both_calls(), *(AIMessage(f"{n}", id=f"s{n}") for n in range(3))]
        bench = kind.make(*lines, asynchronous=asynchronous, checkpointer=saver)
        graph = wrap(bench.graph)
        await run_in_worker(graph, "book it", asynchronous=asynchronous)
        await run_in_worker(graph, Command(resume=kind.yes), asynchronous=asynchronous)
        for text in ("more", "and more"):
            await run_in_worker(graph, text, asynchronous=asynchronous)
        assert bench.model.script == []
        reads.append(saver.used)
    assert reads[1] == reads[0]
    assert reads[0]["list"] == 0


# --- a result as it was ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "asynchronous", "shape"),
    [(REACT_V2, True, "message"), (CREATE_AGENT, False, "command"), (DEEP_AGENT, True, "command")],
    ids=["react_v2", "create_agent", "create_deep_agent"],
)
async def test_a_recovered_result_is_whole(kind, asynchronous, shape):
    """Content blocks, artifact, status and name come back; also out of a tool's `Command`."""
    content = [{"type": "text", "text": "sent to bob"}]
    whole = ToolMessage(
        content, name="send_email", tool_call_id="c1", artifact={"size": 3}, status="error", id="r1"
    )

    @tool
    def send_email(to: str) -> Command | ToolMessage:
        """Return a message, or a Command that holds it."""
        return Command(update={"messages": [whole]}) if shape == "command" else whole

    wire_money = Tools(asynchronous=asynchronous).tools()[1]
    model = StrictModel(script=[both_calls(), AIMessage("fine")])
    async with saver_of("sqlite", asynchronous=asynchronous) as saver:
        graph = with_patching(kind.build(model, [send_email, wire_money], checkpointer=saver))
        await run_in_worker(graph, "book it", asynchronous=asynchronous)
        await run_in_worker(graph, "never mind", asynchronous=asynchronous)
        stored = (await state_of(graph)).values["messages"]
    [found] = [message for message in stored if message.id == "r1"]
    assert found == whole
    assert stored[2] is found
    assert [m for m in model.seen[-1] if m.type == "tool"] == stored[2:4]
    assert stored[3].additional_kwargs[PLACEHOLDER_KEY]["cause"] == "awaiting_input"


# --- a superstep that timed out ------------------------------------------------------------


@kinds(CREATE_AGENT, PLAIN[0])
@sync_and_async
@pytest.mark.slow
async def test_a_step_that_timed_out(kind, asynchronous):
    """A task is cut off, a thread is not: it finishes behind the error.

    If its result comes in time, LangGraph records it, and the repair recovers it.
    """
    done = []

    def send_email(to: str) -> str:
        """Finish."""
        done.append("mail")
        return f"sent to {to}"

    def slow() -> str:
        """Take longer than the time limit."""
        time.sleep(2)
        done.append("slow")
        return "slowly"

    async def aslow() -> str:
        """Take for ever."""
        await asyncio.sleep(20)

    late = {"coroutine": aslow} if asynchronous else {"func": slow}
    tools = [
        StructuredTool.from_function(send_email),
        StructuredTool.from_function(name="slow", description="Be slow.", **late),
    ]
    calls = ai(("send_email", {"to": "bob"}, "c1"), ("slow", {}, "c4"), id="a1")
    model = StrictModel(script=[calls, AIMessage("fine")])
    bare = kind.build(model, tools, checkpointer=InMemorySaver())
    bare.step_timeout = 1.0  # the model's step must not time out
    graph = with_patching(bare)
    assert graph.step_timeout == 1.0
    with pytest.raises(TimeoutError):
        await run_in_worker(graph, "book it", asynchronous=asynchronous)
    assert done == (["mail"] if asynchronous else ["mail", "slow"])
    recorded = not asynchronous and "slowly" in repr(
        [saved.pending_writes for saved in graph.checkpointer.list(None)]
    )
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    first = UNKNOWN_STATEMENTS[0] if kind in PLAIN and not recorded else SENT
    cancelled = asynchronous and kind not in PLAIN
    cause, text = ("cancelled", CANCELLED_TEXT) if cancelled else ("unknown", UNKNOWN)
    second = ("c4", "slowly", "real") if recorded else ("c4", text.format("slow", "c4"), cause)
    turn = [("human", "book it"), ("calls", "c1", "c4"), first, second]
    await check(graph, model, [*turn, NEVER_MIND, ("ai", "fine")])


# --- without recovery, and with a checkpointer that fails ---------------------------------


@sync_and_async
async def test_recovery_switched_off(asynchronous):
    """With `recover=False` the checkpointer is not read, and nothing is claimed."""
    saver = Counting()
    bench = await paused_agent(
        CREATE_AGENT, AIMessage("fine"), asynchronous=asynchronous, saver=saver
    )
    graph = with_patching(bench.graph, recover=False)
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    assert saver.used["list"] == 0
    await check(graph, bench.model, [*TURN, *UNKNOWN_STATEMENTS, NEVER_MIND, ("ai", "fine")])


class Broken(InMemorySaver):
    """A checkpointer that has lost its database."""

    def get_tuple(self, _: Any) -> Any:
        """Fail."""
        raise ConnectionError("gone")

    async def aget_tuple(self, _: Any) -> Any:
        """Fail."""
        raise ConnectionError("gone")


async def test_error_of_the_checkpointer():
    """An error of the checkpointer names the thread and what was asked, and keeps its cause."""
    with pytest.raises(EvidenceError, match=r"Thread '1': .*gone.* namespace ''") as sync:
        recovered(Broken(), (BOTH, "c1"), required=True)
    with pytest.raises(EvidenceError) as asynchronous:
        await arecovered(Broken(), (BOTH, "c1"), required=True)
    assert str(sync.value) == str(asynchronous.value)
    assert isinstance(sync.value.__cause__, ConnectionError)
    assert isinstance(asynchronous.value.__cause__, ConnectionError)
