"""What a patched graph tells the model of calls that did not end as they should.

Whole graphs, through `with_patching` and `patch_node`: what the model is shown, what the
state holds, and what the tools really did.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt
from langgraph_swarm import create_handoff_tool, create_swarm

from langgraph_patch import is_placeholder, validate_messages, with_patching
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from support.agents import (
    BY_NAME,
    CREATE_AGENT,
    DEEP_AGENT,
    KINDS,
    REACT_V2,
    Bench,
    Graph,
    Kind,
    Tools,
    both_calls,
    human,
    one_send_each,
    react,
    thread,
)
from support.open_calls import UNKNOWN_STATEMENTS
from support.paused_agents import paused_agent
from support.placeholder_texts import CANCELLED, FAILED, UNKNOWN, WAITED
from support.running import run_in_worker, sync_and_async
from support.strict import StrictModel, ai
from support.transcripts import statements

# --- graphs ------------------------------------------------------------------------------


def loop(
    model: StrictModel, node: ToolNode, *, router: Any = None, retry: Any = None, **options: Any
) -> Graph:
    """A hand-built agent round a tools node."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", node, retry_policy=retry)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", router or tools_condition, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder.compile(**options)


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


# --- 1: parallel calls, one of them waits ------------------------------------------------


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


def chat(
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


class Counting(InMemorySaver):
    """Counts how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def get_tuple(self, config):
        """Count, and read."""
        self.reads["get_tuple"] += 1
        return super().get_tuple(config)

    def list(self, config, **options):
        """Count, and read."""
        self.reads["list"] += 1
        yield from super().list(config, **options)

    async def aget_tuple(self, config):
        """Count, and read."""
        self.reads["get_tuple"] += 1
        return InMemorySaver.get_tuple(self, config)

    async def alist(self, config, **options):
        """Count, and read."""
        self.reads["list"] += 1
        for saved in InMemorySaver.list(self, config, **options):
            yield saved


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "is_found"), [(60, True), (400, False)])
async def test_damage_many_runs_ago(*, runs: int, is_found: bool):
    """It is found, or `unknown` once and for all: the next turn does not search again."""
    saver = Counting()
    bench = await paused_agent(REACT_V2, *[AIMessage("fine")] * 2, asynchronous=True, saver=saver)
    since = chat(saver, runs)
    graph = with_patching(bench.graph)
    await run_in_worker(graph, "hello?", asynchronous=True)
    found = [SENT, WAITING] if is_found else UNKNOWN_STATEMENTS
    turn = [*TURN, *found, *since, ("human", "hello?"), ("ai", "fine")]
    await check(graph, bench.model, turn)
    saver.reads.clear()
    await run_in_worker(graph, "and now?", asynchronous=True)
    await check(graph, bench.model, [*turn, ("human", "and now?"), ("ai", "fine")])
    assert is_found or saver.reads["list"] == 0
    assert bench.tools.done == ["mail to bob"]


# --- 7: healthy threads, and what cannot be found ----------------------------------------


@pytest.mark.parametrize(
    ("kind", "asynchronous"),
    [pytest.param(kind, bool(n % 2), id=kind.name) for n, kind in enumerate(KINDS)],
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
        reads.append(saver.reads)
    assert reads[1] == reads[0]
    assert reads[0]["list"] == 0


# --- a result as it was ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "asynchronous", "shape"),
    [
        (REACT_V2, True, "message"),
        (CREATE_AGENT, False, "command"),
        (DEEP_AGENT, True, "command"),
    ],
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


# --- 4: four outcomes --------------------------------------------------------------------


@dataclass(slots=True)
class World:
    """Tools that end in four ways, and what they did.

    Attributes:
        done: What was finished, in order.
        tried: What was begun.
        pace: How long the slow tool of a thread takes.
        slow_began: Set when the slow tool of an event loop is at work.
    """

    done: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    pace: float = 0.6
    slow_began: asyncio.Event = field(default_factory=asyncio.Event)

    def tools(self, *, asynchronous: bool) -> list[BaseTool]:
        """All of them."""
        made = [
            StructuredTool.from_function(getattr(self, name), name=name)
            for name in ("send_email", "wire_money", "flaky")
        ]
        if asynchronous:
            late = {"coroutine": self.aslow}, {"coroutine": self.aboom}
        else:
            late = {"func": self.slow}, {"func": self.boom}
        for name, how in zip(("slow", "boom"), late, strict=True):
            made.append(StructuredTool.from_function(name=name, **how))
        return list(made)

    def send_email(self, to: str) -> str:
        """Finish."""
        self.done.append(f"mail to {to}")
        return f"sent to {to}"

    def wire_money(self, amount: int) -> str:
        """Wait for a human."""
        return f"wired: {interrupt(f'wire {amount}?')}"

    def flaky(self) -> str:
        """Raise each time, with a delay so that others finish first."""
        self.tried.append("flaky")
        time.sleep(0.1)
        raise ConnectionError("no route")

    def boom(self) -> str:
        """Raise when the others have finished."""
        time.sleep(0.2)
        raise RuntimeError("kaput")

    async def aboom(self) -> str:
        """Raise when the others have finished."""
        await self.slow_began.wait()
        await asyncio.sleep(0.2)
        raise RuntimeError("kaput")

    def slow(self) -> str:
        """Take a while."""
        self.tried.append("slow")
        time.sleep(self.pace)
        self.done.append("slow")
        return "slowly"

    async def aslow(self) -> str:
        """Take for ever."""
        self.tried.append("slow")
        self.slow_began.set()
        await asyncio.sleep(20)
        return "never"


MAIL = ("send_email", {"to": "bob"}, "c1")
WIRE = ("wire_money", {"amount": 3}, "c2")
BOOM = ("boom", {}, "c3")
SLOW = ("slow", {}, "c4")
FOUR = [("human", "book it"), ("calls", "c1", "c2", "c3", "c4")]


def wild(kind: Kind, *calls: Any, asynchronous: bool, **options: Any) -> Bench:
    """An agent with the tools of a `World` and a model that makes these calls."""
    world = World()
    model = StrictModel(script=[ai(*calls, id="a1"), AIMessage("fine")])
    options = {"checkpointer": InMemorySaver(), **options}
    graph = kind.build(model, world.tools(asynchronous=asynchronous), **options)
    return Bench(kind, graph, model, world)


@kinds(*PLAIN)
async def test_four_siblings_of_one_task(kind):
    """Where one task ran all four calls, all four are unknown."""
    bench = wild(kind, MAIL, WIRE, BOOM, SLOW, asynchronous=True)
    graph = with_patching(bench.graph)
    # The node ends with the interrupt, which comes before the error.
    await run_in_worker(graph, "book it", asynchronous=True)
    await run_in_worker(graph, "never mind", asynchronous=True)
    names = {"c1": "send_email", "c2": "wire_money", "c3": "boom", "c4": "slow"}
    expected_results = [(i, UNKNOWN.format(name, i), "unknown") for i, name in names.items()]
    await check(graph, bench.model, [*FOUR, *expected_results, NEVER_MIND, ("ai", "fine")])


# --- 6: cancelled, timed out, out of steps, retried, handed off --------------------------

CUT = ("c4", UNKNOWN.format("slow", "c4"), "unknown")
HUNG_UP = ("c4", CANCELLED.format("slow", "c4"), "cancelled")
MAIL_AND_SLOW = [("human", "book it"), ("calls", "c1", "c4")]


@kinds(CREATE_AGENT, PLAIN[0])
@sync_and_async
@pytest.mark.slow
async def test_a_step_that_timed_out(kind, asynchronous):
    """A task is cut off, a thread is not: it finishes behind the error.

    If its result comes in time, LangGraph records it, and the repair recovers it.
    """
    bench = wild(kind, MAIL, SLOW, asynchronous=asynchronous)
    bench.graph.step_timeout, bench.tools.pace = 1.0, 2.0  # the model's step must not time out
    graph = with_patching(bench.graph)
    assert graph.step_timeout == 1.0
    with pytest.raises(TimeoutError):
        await run_in_worker(graph, "book it", asynchronous=asynchronous)
    assert bench.tools.done == (["mail to bob"] if asynchronous else ["mail to bob", "slow"])
    recorded = not asynchronous and "slowly" in repr(
        [saved.pending_writes for saved in graph.checkpointer.list(None)]
    )
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    first = UNKNOWN_STATEMENTS[0] if kind in PLAIN and not recorded else SENT
    second = HUNG_UP if asynchronous and kind not in PLAIN else CUT
    expected_results = [first, ("c4", "slowly", "real") if recorded else second]
    await check(graph, bench.model, [*MAIL_AND_SLOW, *expected_results, NEVER_MIND, ("ai", "fine")])


QUICK = RetryPolicy(initial_interval=0.01, max_attempts=3, jitter=False)


@sync_and_async
@pytest.mark.parametrize("each", [True, False], ids=["each", "plain"])
async def test_a_tools_node_that_gave_up_retrying(asynchronous, each):
    """After three attempts: the mail was sent once and is recovered, and the error is named."""

    def build(model, tools, **options):
        router = one_send_each if each else None
        return loop(model, ToolNode(tools), router=router, retry=QUICK, **options)

    calls = MAIL, ("flaky", {}, "c5")
    bench = wild(Kind("retried", build, "agent"), *calls, asynchronous=asynchronous)
    graph = with_patching(bench.graph)
    with pytest.raises(ConnectionError, match="no route"):
        await run_in_worker(graph, "book it", asynchronous=asynchronous)
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    turn = [("human", "book it"), ("calls", "c1", "c5")]
    if each:
        error = FAILED.format("flaky", "c5", "ConnectionError('no route')")
        expected_results = [SENT, ("c5", error, "failed")]
    else:
        expected_results = [UNKNOWN_STATEMENTS[0], ("c5", UNKNOWN.format("flaky", "c5"), "unknown")]
    await check(graph, bench.model, [*turn, *expected_results, NEVER_MIND, ("ai", "fine")])
    assert bench.tools.tried == ["flaky"] * 3
    assert bench.tools.done == ["mail to bob"] * (1 if each else 3)


@pytest.mark.filterwarnings("ignore:.*AgentStatePydantic")  # of langgraph-swarm's own import
@pytest.mark.parametrize(
    ("store", "asynchronous", "durability"),
    [("sqlite", False, "sync"), ("memory", True, "async"), ("sqlite", True, "exit")],
)
async def test_a_handoff_with_a_sibling(store, asynchronous, durability):
    """Bob's model sees what Alice's other call really did, if it is recorded by then."""
    world = World()
    tools = [
        *world.tools(asynchronous=asynchronous),
        create_handoff_tool(agent_name="bob"),
    ]
    alices = StrictModel(script=[ai(MAIL, ("transfer_to_bob", {}, "c9"), id="a1")])
    bobs = StrictModel(script=[AIMessage("bob here"), AIMessage("fine")])
    alice = react(alices, tools, name="alice")
    bob = react(bobs, tools, name="bob")
    how = {"asynchronous": asynchronous, "durability": durability}
    async with saver_of(store, asynchronous=asynchronous) as saver:
        swarm = create_swarm([alice, bob], default_active_agent="alice")
        graph = with_patching(swarm.compile(checkpointer=saver))
        await run_in_worker(graph, "book it", **how)
        handed = ("c9", "Successfully transferred to bob", "real")
        # With "exit", the step that handed over is written when the run is over: too late.
        result_now = UNKNOWN_STATEMENTS[0] if durability == "exit" else SENT
        turn = [("human", "book it"), ("calls", "c1", "c9"), handed, result_now]
        await check(graph, bobs, [*turn, ("ai", "bob here")])
        await run_in_worker(graph, "never mind", **how)
        await check(graph, bobs, [*turn, ("ai", "bob here"), NEVER_MIND, ("ai", "fine")])
    assert world.done == ["mail to bob"]


# --- without a checkpointer, without recovery, with another checkpointer -----------------


@sync_and_async
async def test_recovery_switched_off(asynchronous):
    """With `recover=False` the checkpointer is not read, and nothing is claimed."""
    saver = Counting()
    bench = await paused_agent(
        CREATE_AGENT, AIMessage("fine"), asynchronous=asynchronous, saver=saver
    )
    graph = with_patching(bench.graph, recover=False)
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    assert saver.reads["list"] == 0
    await check(graph, bench.model, [*TURN, *UNKNOWN_STATEMENTS, NEVER_MIND, ("ai", "fine")])
