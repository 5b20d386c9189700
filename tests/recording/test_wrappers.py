"""record_tool_calls: finished tool work is neither lost nor done twice.

Every claim is tested on a real graph with a scripted model. `run` runs it by threads and by an
event loop.
"""

import asyncio
import gc
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime, tools_condition
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import Runtime
from langgraph.types import Command, RetryPolicy, interrupt
from pydantic import BaseModel

from langgraph_patch.errors import RecordingError
from langgraph_patch.recording import recorded_call
from langgraph_patch.recording import wrappers as recording
from langgraph_patch.recording.records import MARK, STARTED, Start, task_name
from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls
from support.paths import TESTS

THREAD = {"configurable": {"thread_id": "1"}}
GO = {"messages": [HumanMessage("go", id="h1")]}
KILL = TESTS / "support" / "kill_recording.py"


class Model(GenericFakeChatModel):
    """A scripted model that accepts tools."""

    def bind_tools(self, tools, **_kwargs):
        """Ignore the tools: the script decides."""
        return self


def ask_for(*calls):
    """Build the model's message with (name, args, id) calls."""
    return AIMessage(
        "", id="ai1", tool_calls=[{"name": n, "args": a, "id": i} for n, a, i in calls]
    )


@dataclass
class World:
    """What the tools did, outside of any graph."""

    ran: Counter = field(default_factory=Counter)
    tried: Counter = field(default_factory=Counter)
    delay: float = 0.0
    greeting: str = "sent"
    slow_began: asyncio.Event = field(default_factory=asyncio.Event)

    def tools(self):
        """Return tools that leave a trace here."""

        @tool
        def send_email(to: str) -> str:
            """Send."""
            self.ran[to] += 1
            return f"{self.greeting} to {to}"

        @tool
        def wire(to: str) -> str:
            """Wire money, if a human agrees."""
            answer = interrupt(f"wire {to}?")
            self.ran[to] += 1
            return f"wired to {to}: {answer}"

        @tool
        def wire_twice(to: str) -> str:
            """Ask two humans."""
            answers = [interrupt(f"{to} first?"), interrupt(f"{to} second?")]
            self.ran[to] += 1
            return f"{to}: {answers}"

        @tool
        def boom(to: str) -> str:
            """Raise."""
            self.tried[to] += 1
            msg = f"kaput {to}"
            raise RuntimeError(msg)

        @tool
        def flaky(to: str) -> str:
            """Raise once."""
            self.tried[to] += 1
            if self.tried[to] == 1:
                msg = "try again"
                raise ConnectionError(msg)
            self.ran[to] += 1
            return f"at last {to}"

        @tool
        async def slow(to: str) -> str:
            """Take a while."""
            self.tried[to] += 1
            self.slow_began.set()
            await asyncio.sleep(self.delay)
            self.ran[to] += 1
            return f"slowly {to}"

        return [send_email, wire, wire_twice, boom, flaky, slow]


def recorded(tools, **options):
    """Make a ToolNode that records its calls."""
    return ToolNode(
        tools, wrap_tool_call=record_tool_calls, awrap_tool_call=arecord_tool_calls, **options
    )


def graph(message, node, *, saver=None, schema=MessagesState, **tools_options):
    """Build START -> agent -> tools -> agent -> END round a scripted model."""
    script = [message, *(AIMessage("done", id=f"d{i}") for i in range(50))]
    model = Model(messages=iter(script), disable_streaming=True)  # streaming drops tool calls
    builder = StateGraph(schema)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(messages_of(state))]})
    builder.add_node("tools", node, **tools_options)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: tools_condition(messages_of(state)))
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=saver)


def messages_of(state):
    """Return the messages of any kind of state."""
    return state["messages"] if isinstance(state, dict) else state.messages


def results(state):
    """Return {call id: content} of a state, failing on a call answered twice."""
    answers = [m for m in messages_of(state) if isinstance(m, ToolMessage)]
    assert len({m.tool_call_id for m in answers}) == len(answers)
    return {m.tool_call_id: m.content for m in answers}


def asked(state):
    """Return {question: interrupt id} of a paused state."""
    return {i.value: i.id for i in state["__interrupt__"]}


def writes(saver, channel=None):
    """Return the newest checkpoint's pending writes."""
    found = saver.get_tuple(THREAD).pending_writes
    return [w for w in found if channel in (None, w[1])]


@pytest.fixture(params=["sync", "async"])
def mode(request):
    """Threads or an event loop."""
    return request.param


@pytest.fixture
def run(mode):
    """Run a graph by threads or in an event loop."""

    def run_it(app, value, config=THREAD, **options):
        if mode == "sync":
            return app.invoke(value, config, **options)
        return asyncio.run(app.ainvoke(value, config, **options))

    return run_it


@pytest.fixture
def stream(mode):
    """Stream a graph by threads or in an event loop, into a list."""

    async def collect(chunks):
        return [chunk async for chunk in chunks]

    def stream_it(app, value, config=THREAD, **options):
        if mode == "sync":
            return list(app.stream(value, config, **options))
        return asyncio.run(collect(app.astream(value, config, **options)))

    return stream_it


@pytest.fixture
def world():
    """Where tools leave their traces."""
    return World()


MAIL_AND_WIRE = ask_for(("send_email", {"to": "bob"}, "c1"), ("wire", {"to": "eve"}, "c2"))


# -- the promise --


def test_a_plain_tool_node_sends_the_mail_again_on_resume(run, world):
    """A fact about LangGraph: without recording, a finished sibling of a pause runs twice."""
    app = graph(MAIL_AND_WIRE, ToolNode(world.tools()), saver=InMemorySaver())
    run(app, GO)
    run(app, Command(resume="yes"))
    assert world.ran == {"bob": 2, "eve": 1}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_recorded_mail_goes_out_once_and_is_read_back(run, world, durability):
    """A finished sibling of a pause runs once, and its result is in the resumed state."""
    app = graph(MAIL_AND_WIRE, recorded(world.tools()), saver=InMemorySaver())
    paused = run(app, GO, durability=durability)
    assert asked(paused).keys() == {"wire eve?"}
    done = run(app, Command(resume="yes"), durability=durability)
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert done["messages"][-1].content == "done"
    assert world.ran == {"bob": 1, "eve": 1}


def test_state_is_that_of_the_plain_node(run, world):
    """Without a pause, the messages are equal to those of the unrecorded node, in call order."""
    message = ask_for(*(("send_email", {"to": str(i)}, f"c{i}") for i in range(8)))
    plain = run(graph(message, ToolNode(world.tools())), GO)
    now = run(graph(message, recorded(world.tools())), GO)
    drop = lambda state: [m.model_dump(exclude={"id"}) for m in state["messages"]]
    assert drop(now) == drop(plain)


@pytest.mark.slow
def test_eight_calls_and_a_pause_two_hundred_times(mode, monkeypatch):
    """Random delays: each id gets its own result and each tool runs once, every time."""
    # On a machine that pauses for a second, a call would be asked again: that is not tested.
    monkeypatch.setattr(recording, "ORDER_SECONDS", 60)
    rng = random.Random(5)  # noqa: S311 no secret
    names = [f"w{i}" for i in range(8)]
    delays = {}

    def late_record(request, execute):
        time.sleep(delays[request.tool_call["id"]])
        return record_tool_calls(request, execute)

    async def late_arecord(request, execute):
        await asyncio.sleep(delays[request.tool_call["id"]])
        return await arecord_tool_calls(request, execute)

    def once():
        world, pause = World(), rng.randrange(9)
        delays.update({name: rng.random() * 0.002 for name in [*names, "p"]})
        calls = [("send_email", {"to": name}, name) for name in names]
        calls.insert(pause, ("wire", {"to": "p"}, "p"))
        node = ToolNode(world.tools(), wrap_tool_call=late_record, awrap_tool_call=late_arecord)
        return world, graph(ask_for(*calls), node, saver=InMemorySaver())

    def check(world, done):
        expected = {name: f"sent to {name}" for name in names}
        assert results(done) == {**expected, "p": "wired to p: yes"}
        assert world.ran == Counter(dict.fromkeys([*names, "p"], 1))

    def answer(paused):
        return Command(resume={asked(paused)["wire p?"]: "yes"})

    async def all_async():
        for _ in range(200):
            world, app = once()
            paused = await app.ainvoke(GO, THREAD)
            check(world, await app.ainvoke(answer(paused), THREAD))

    if mode == "async":
        asyncio.run(all_async())
        return
    for _ in range(200):
        world, app = once()
        check(world, app.invoke(answer(app.invoke(GO, THREAD)), THREAD))


@pytest.mark.parametrize("first", ["anna", "eve"])
def test_two_waiting_calls_each_get_their_own_answer(run, world, first):
    """By interrupt id, answered together or one after the other in either order."""
    second = {"anna": "eve", "eve": "anna"}[first]
    message = ask_for(("wire", {"to": "anna"}, "c1"), ("wire", {"to": "eve"}, "c2"))
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())
    run(app, GO)
    ids = {
        i.value: i.id for _, _, found in writes(app.checkpointer, "__interrupt__") for i in found
    }
    run(app, Command(resume={ids[f"wire {first}?"]: f"for {first}"}))
    done = run(app, Command(resume={ids[f"wire {second}?"]: f"for {second}"}))
    assert results(done) == {"c1": "wired to anna: for anna", "c2": "wired to eve: for eve"}
    assert world.ran == {"anna": 1, "eve": 1}


def test_two_waiting_calls_cannot_be_resumed_without_an_id(run, world):
    """LangGraph refuses an answer that could be for either; nothing has run."""
    message = ask_for(("wire", {"to": "anna"}, "c1"), ("wire", {"to": "eve"}, "c2"))
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())
    run(app, GO)
    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        run(app, Command(resume="yes"))
    assert world.ran == {}


def test_a_call_that_asks_twice_gets_both_answers_beside_a_sibling(run, world):
    """Interrupts are counted per call: neither a finished nor an asking sibling shifts them."""
    message = ask_for(
        ("wire", {"to": "anna"}, "c0"),
        ("send_email", {"to": "bob"}, "c1"),
        ("wire_twice", {"to": "eve"}, "c2"),
    )
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())
    run(app, GO)
    for question in ("eve first?", "wire anna?", "eve second?"):
        waiting = {
            i.value: i.id for _, _, w in writes(app.checkpointer, "__interrupt__") for i in w
        }
        done = run(app, Command(resume={waiting[question]: f"to {question}"}))
    assert results(done) == {
        "c0": "wired to anna: to wire anna?",
        "c1": "sent to bob",
        "c2": "eve: ['to eve first?', 'to eve second?']",
    }
    assert world.ran == {"anna": 1, "bob": 1, "eve": 1}


# -- what tools may do --


@pytest.mark.needs(langgraph_prebuilt="1.1")
def test_a_handled_error_is_recorded_like_any_result(run, world):
    """The tool that failed is not run again on resume; its error message is in the state."""
    message = ask_for(("boom", {"to": "x"}, "c1"), ("wire", {"to": "eve"}, "c2"))
    node = recorded(world.tools(), handle_tool_errors=lambda e: f"handled {e}")
    app = graph(message, node, saver=InMemorySaver())
    run(app, GO)
    done = run(app, Command(resume="yes"))
    assert results(done) == {"c1": "handled kaput x", "c2": "wired to eve: yes"}
    assert world.tried == {"x": 1}


def test_a_raising_call_runs_again_and_its_finished_sibling_does_not(run, world):
    """After an error that ended the run, `invoke(None)` repeats only the call that raised."""
    message = ask_for(("send_email", {"to": "bob"}, "c1"), ("flaky", {"to": "x"}, "c2"))
    node = recorded(world.tools(), handle_tool_errors=False)
    app = graph(message, node, saver=InMemorySaver())
    with pytest.raises(ConnectionError, match="try again"):
        run(app, GO)
    assert results(run(app, None)) == {"c1": "sent to bob", "c2": "at last x"}
    assert world.ran == {"bob": 1, "x": 1}


def test_commands_injected_values_and_writers_work(stream, run):
    """Command results, InjectedState, InjectedToolCallId, ToolRuntime and the stream writer."""

    @tool
    def hand_over(call: Annotated[str, InjectedToolCallId]) -> Command:
        """Return a Command."""
        return Command(update={"messages": [ToolMessage("handed over", tool_call_id=call)]})

    @tool
    def count(state: Annotated[dict, InjectedState]) -> str:
        """Read the state."""
        return f"{len(state['messages'])} messages"

    @tool
    def look(runtime: ToolRuntime) -> str:
        """Read the runtime."""
        get_stream_writer()("written")
        runtime.stream_writer("written too")
        return f"{runtime.tool_call_id} in {runtime.config['metadata']['langgraph_node']}"

    @tool
    def wait() -> str:
        """Pause, so that all the others are read back."""
        return interrupt("?")

    calls = [(n, {}, f"c{i}") for i, n in enumerate(["hand_over", "count", "look", "wait"])]
    app = graph(ask_for(*calls), recorded([hand_over, count, look, wait]), saver=InMemorySaver())
    assert sorted(stream(app, GO, stream_mode="custom")) == ["written", "written too"]
    assert results(run(app, Command(resume="yes"))) == {
        "c0": "handed over",
        "c1": "2 messages",
        "c2": "c2 in tools",
        "c3": "yes",
    }


def test_a_tool_that_runs_a_graph_which_asks(run, world):
    """The inner graph pauses in its call's own namespace and goes on there; siblings run once."""
    inner_steps = Counter()

    def before(_state):
        inner_steps["before"] += 1
        return {}

    inner = (
        StateGraph(MessagesState)
        .add_node("before", before)
        .add_node("ask", lambda _: {"messages": [AIMessage(interrupt("inner?"))]})
        .add_sequence([("a", lambda _: {}), ("b", lambda _: {})])
        .add_edge(START, "before")
        .add_edge("before", "ask")
        .compile()
    )

    @tool
    def delegate(to: str) -> str:
        """Run a graph."""
        return f"{to}: " + inner.invoke({"messages": []})["messages"][-1].content

    message = ask_for(("send_email", {"to": "bob"}, "c1"), ("delegate", {"to": "x"}, "c2"))
    app = graph(message, recorded([*world.tools(), delegate]), saver=InMemorySaver())
    run(app, GO)
    done = run(app, Command(resume="deep"))
    assert results(done) == {"c1": "sent to bob", "c2": "x: deep"}
    assert world.ran == {"bob": 1}
    assert inner_steps == {"before": 1}


@pytest.mark.parametrize("persistence", [None, True])
def test_a_recorded_node_in_a_subgraph(run, world, persistence):
    """As a nested graph, with the parent's checkpointer or one of its own namespace."""
    inner = graph(MAIL_AND_WIRE, recorded(world.tools()), saver=persistence)
    app = (
        StateGraph(MessagesState)
        .add_node("inner", inner)
        .add_edge(START, "inner")
        .compile(checkpointer=InMemorySaver())
    )
    run(app, GO)
    done = run(app, Command(resume="yes"))
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert world.ran == {"bob": 1, "eve": 1}


@dataclass
class DataState:
    """A state that is a dataclass."""

    messages: Annotated[list[AnyMessage], add_messages]


class ModelState(BaseModel):
    """A state that is a pydantic model."""

    messages: Annotated[list[AnyMessage], add_messages]


@pytest.mark.parametrize("schema", [MessagesState, DataState, ModelState])
def test_any_shape_of_state(run, world, schema):
    """The order of the calls is found in a dict, a dataclass and a pydantic model."""
    app = graph(MAIL_AND_WIRE, recorded(world.tools()), saver=InMemorySaver(), schema=schema)
    run(app, GO)
    done = run(app, Command(resume="yes"))
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert world.ran == {"bob": 1, "eve": 1}


def test_a_functional_entrypoint_and_a_task_in_it(run, world):
    """ToolNode called by an @entrypoint, directly or in a @task, with a list of messages."""
    node = recorded(world.tools())

    @task
    def tools_in_a_task(messages):
        return node.invoke(messages)

    @task
    async def tools_in_an_async_task(messages):
        return await node.ainvoke(messages)

    @entrypoint(checkpointer=InMemorySaver())
    def direct(messages):
        return {"messages": node.invoke(messages)}

    @entrypoint(checkpointer=InMemorySaver())
    def nested(messages):
        return {"messages": tools_in_a_task(messages).result()}

    @entrypoint(checkpointer=InMemorySaver())
    async def anested(messages):
        return {"messages": await tools_in_an_async_task(messages)}

    for number, app in enumerate([direct, nested]):
        app.invoke([MAIL_AND_WIRE], THREAD)
        assert {ns for _, ns, _ in app.checkpointer.writes} == {""}, "nothing is put astray"
        done = app.invoke(Command(resume="yes"), THREAD)
        assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
        assert world.ran == {"bob": number + 1, "eve": number + 1}
    asyncio.run(anested.ainvoke([MAIL_AND_WIRE], THREAD))
    done = asyncio.run(anested.ainvoke(Command(resume="yes"), THREAD))
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert world.ran == {"bob": 3, "eve": 3}


def test_one_id_used_twice_in_a_message(run, world):
    """Two calls with one id are two tasks: each keeps its own result, in order, and runs once."""
    message = ask_for(
        ("send_email", {"to": "anna"}, "same"),
        ("send_email", {"to": "bob"}, "same"),
        ("wire", {"to": "eve"}, "c3"),
    )
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())
    run(app, GO)
    done = run(app, Command(resume="yes"))
    contents = [m.content for m in done["messages"] if isinstance(m, ToolMessage)]
    assert contents == ["sent to anna", "sent to bob", "wired to eve: yes"]
    assert world.ran == {"anna": 1, "bob": 1, "eve": 1}


@pytest.mark.needs(langgraph="1.1.3")
def test_one_id_used_twice_is_never_confused_by_a_retry(run, world):
    """Within a retry each place keeps its own result."""
    message = ask_for(
        ("send_email", {"to": "anna"}, "same"),
        ("flaky", {"to": "x"}, "same"),
        ("send_email", {"to": "bob"}, "same"),
    )
    node = recorded(world.tools(), handle_tool_errors=False)
    app = graph(message, node, saver=InMemorySaver(), retry_policy=NOW)
    done = run(app, GO)
    contents = [m.content for m in done["messages"] if isinstance(m, ToolMessage)]
    assert contents == ["sent to anna", "at last x", "sent to bob"]
    assert world.ran == {"anna": 1, "x": 1, "bob": 1}


# -- retries, restarts, replays --

NOW = RetryPolicy(initial_interval=0.0, jitter=False, max_attempts=3)
FLAKY = ask_for(
    ("send_email", {"to": "bob"}, "c1"),
    ("flaky", {"to": "x"}, "c2"),
    ("wire", {"to": "eve"}, "c3"),
)


def test_a_plain_retry_policy_repeats_finished_siblings(run, world):
    """A fact about LangGraph: without recording, a retry runs all calls of the message again."""
    message = ask_for(("send_email", {"to": "bob"}, "c1"), ("flaky", {"to": "x"}, "c2"))
    run(graph(message, ToolNode(world.tools(), handle_tool_errors=False), retry_policy=NOW), GO)
    assert world.ran == {"bob": 2, "x": 1}


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.needs(langgraph="1.1.3")
def test_finished_siblings_run_once_under_a_retry_policy(run, world, saved):
    """With and without a checkpointer."""
    message = ask_for(("send_email", {"to": "bob"}, "c1"), ("flaky", {"to": "x"}, "c2"))
    node = recorded(world.tools(), handle_tool_errors=False)
    app = graph(message, node, saver=InMemorySaver() if saved else None, retry_policy=NOW)
    assert results(run(app, GO)) == {"c1": "sent to bob", "c2": "at last x"}
    assert world.ran == {"bob": 1, "x": 1}
    assert world.tried == {"x": 2}


@pytest.mark.needs(langgraph="1.1.3")
def test_a_sibling_still_running_at_the_retry_is_joined(world):
    """In an event loop the retry begins while siblings run: they are awaited, not repeated."""
    world.delay = 0.05
    message = ask_for(("slow", {"to": "bob"}, "c1"), ("flaky", {"to": "x"}, "c2"))
    app = graph(message, recorded(world.tools(), handle_tool_errors=False), retry_policy=NOW)
    done = asyncio.run(app.ainvoke(GO))
    assert results(done) == {"c1": "slowly bob", "c2": "at last x"}
    assert world.ran == {"bob": 1, "x": 1}
    assert world.tried == {"bob": 1, "x": 2}


@pytest.mark.needs(langgraph="1.1.3")
def test_a_pause_after_a_retry_is_resumed_without_an_id(run, world):
    """The retry asks no second time, and what it finished is found by id when resumed."""
    saver = CountingSaver()
    node = recorded(world.tools(), handle_tool_errors=False)
    app = graph(FLAKY, node, saver=saver, retry_policy=NOW)
    assert asked(run(app, GO)).keys() == {"wire eve?"}
    before = saver.reads
    done = run(app, Command(resume="yes"))
    assert results(done) == {"c1": "sent to bob", "c2": "at last x", "c3": "wired to eve: yes"}
    assert world.ran == {"bob": 1, "x": 1, "eve": 1}
    assert saver.reads - before == 2, "one by LangGraph, one for the whole ToolNode"


def two_tool_nodes(first, second, **options):
    """Build a graph with two tool nodes that run in parallel over the same message."""
    builder = StateGraph(MessagesState)
    for name, world in (("a", first), ("b", second)):
        node = recorded(world.tools(), handle_tool_errors=False)
        builder.add_node(name, node, retry_policy=options.get("retry_policy"))
        builder.add_edge(START, name)
    return builder.compile(checkpointer=options.get("saver"))


@pytest.mark.needs(langgraph="1.1.3")
def test_two_nodes_over_one_message_keep_their_own_results(run):
    """A result is read back by the node that made it only, though the call ids are the same."""
    first, second = World(greeting="first"), World(greeting="second")
    app = two_tool_nodes(first, second, saver=InMemorySaver(), retry_policy=NOW)
    paused = run(app, {"messages": [FLAKY]})
    assert [i.value for i in paused["__interrupt__"]] == ["wire eve?"] * 2
    done = run(app, Command(resume={i.id: "yes" for i in paused["__interrupt__"]}))
    contents = [m.content for m in done["messages"] if isinstance(m, ToolMessage)]
    ends = ["at last x", "wired to eve: yes"]
    assert contents == ["first to bob", *ends, "second to bob", *ends]
    assert first.ran == second.ran == {"bob": 1, "x": 1, "eve": 1}


@pytest.mark.parametrize("persistence", [None, True])
@pytest.mark.needs(langgraph="1.1.3")
def test_a_nested_node_reads_back_after_a_retry_and_a_restart(run, world, persistence):
    """The lookup reads the namespace of the graph that the node is in."""
    node = recorded(world.tools(), handle_tool_errors=False)
    inner = graph(FLAKY, node, saver=persistence, retry_policy=NOW)
    builder = StateGraph(MessagesState).add_node("inner", inner).add_edge(START, "inner")
    app = builder.compile(checkpointer=InMemorySaver())
    run(app, GO)
    done = run(app, Command(resume="yes"))
    assert results(done) == {"c1": "sent to bob", "c2": "at last x", "c3": "wired to eve: yes"}
    assert world.ran == {"bob": 1, "x": 1, "eve": 1}


@pytest.mark.needs(langgraph="1.1.3")
def test_a_sibling_that_comes_late_to_the_retry_is_still_known(world):
    """The run is remembered until the last call of the attempt has come, not only of all."""

    def late(request, execute):
        time.sleep(0.05 if request.tool_call["id"] == "c3" else 0)
        return record_tool_calls(request, execute)

    message = ask_for(
        ("send_email", {"to": "bob"}, "c1"),
        ("flaky", {"to": "x"}, "c2"),
        ("send_email", {"to": "eve"}, "c3"),
    )
    node = ToolNode(world.tools(), wrap_tool_call=late, handle_tool_errors=False)
    graph(message, node, retry_policy=NOW).invoke(GO)
    assert world.ran == {"bob": 1, "x": 1, "eve": 1}


def test_an_answer_is_not_lost_behind_a_call_that_still_waits(run, world):
    """Two workers, twelve calls, the first of them unanswered: the last one gets its answer."""
    calls = [("send_email", {"to": str(i)}, f"c{i}") for i in range(10)]
    message = ask_for(("wire", {"to": "anna"}, "a"), *calls, ("wire", {"to": "eve"}, "e"))
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())
    config = {**THREAD, "max_concurrency": 2}
    run(app, GO, config)
    waiting = {i.value: i.id for _, _, w in writes(app.checkpointer, "__interrupt__") for i in w}
    run(app, Command(resume={waiting["wire eve?"]: "yes"}), config)
    assert world.ran == {**{str(i): 1 for i in range(10)}, "eve": 1}
    done = run(app, Command(resume={waiting["wire anna?"]: "no"}), config)
    assert (results(done)["a"], results(done)["e"]) == ("wired to anna: no", "wired to eve: yes")


class CountingSaver(InMemorySaver):
    """Counts how often a checkpoint is read."""

    reads = 0

    def get_tuple(self, config):
        """Count."""
        self.reads += 1
        return super().get_tuple(config)

    async def aget_tuple(self, config):
        """Count once: the base class comes through get_tuple."""
        return self.get_tuple(config)


def test_a_first_run_reads_nothing(run, world):
    """Recording costs a healthy run no read: as many as with the plain node."""
    message = ask_for(*(("send_email", {"to": str(i)}, f"c{i}") for i in range(3)))
    plain, now = CountingSaver(), CountingSaver()
    run(graph(message, ToolNode(world.tools()), saver=plain), GO)
    run(graph(message, recorded(world.tools()), saver=now), GO)
    assert now.reads == plain.reads


def test_a_replay_runs_the_tools_again(run, world):
    """Time travel to a checkpoint before the tools means to run them: nothing is read back."""
    message = ask_for(("send_email", {"to": "bob"}, "c1"), ("send_email", {"to": "eve"}, "c2"))
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())
    run(app, GO)
    before_tools = next(s for s in app.get_state_history(THREAD) if s.next == ("tools",))
    fork = app.update_state(before_tools.config, None, as_node="agent")
    for times in (2, 3):
        run(app, None, fork)
        assert world.ran == {"bob": times, "eve": times}


def test_a_call_that_a_wrapper_repeats_runs_again(run, world):
    """A retrying wrapper round the recorded one means it, and finds the request as it was."""

    def twice(request, execute):
        before = request.runtime.config["configurable"]
        record_tool_calls(request, execute)
        assert request.runtime.config["configurable"] is before
        return record_tool_calls(request, execute)

    async def atwice(request, execute):
        before = request.runtime.config["configurable"]
        await arecord_tool_calls(request, execute)
        assert request.runtime.config["configurable"] is before
        return await arecord_tool_calls(request, execute)

    node = ToolNode(world.tools(), wrap_tool_call=twice, awrap_tool_call=atwice)
    done = run(graph(MAIL_ONLY, node), GO)
    assert results(done) == {"c1": "sent to bob", "c2": "sent to eve"}
    assert world.ran == {"bob": 2, "eve": 2}


@pytest.mark.parametrize("recorded_first", [True, False])
def test_a_rollout_in_the_middle_of_a_pause(run, world, recorded_first):
    """Paused by the old code and resumed by the new, or the reverse: the run finishes."""
    saver = InMemorySaver()
    nodes = [recorded(world.tools()), ToolNode(world.tools())]
    first, second = nodes if recorded_first else reversed(nodes)
    paused = run(graph(MAIL_AND_WIRE, first, saver=saver), GO)
    again = graph(AIMessage("done"), second, saver=saver)
    done = run(again, Command(resume={asked(paused)["wire eve?"]: "yes"}))
    if "__interrupt__" in done:  # asked under another id: the call is a task now, or no more
        done = run(again, Command(resume={asked(done)["wire eve?"]: "yes"}))
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}


def test_a_cancelled_run_keeps_what_was_finished(world):
    """After asyncio's cancel, the finished sibling is not run again and the cut one is."""
    world.delay = 30
    message = ask_for(("send_email", {"to": "bob"}, "c1"), ("slow", {"to": "eve"}, "c2"))
    app = graph(message, recorded(world.tools()), saver=InMemorySaver())

    async def scenario():
        running = asyncio.create_task(app.ainvoke(GO, THREAD))
        await world.slow_began.wait()
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        world.delay = 0
        return await app.ainvoke(None, THREAD)

    assert results(asyncio.run(scenario())) == {"c1": "sent to bob", "c2": "slowly eve"}
    assert world.ran == {"bob": 1, "eve": 1}
    assert world.tried == {"eve": 2}


# -- streams --


def test_messages_mode_is_that_of_the_plain_node(stream, world):
    """Every message comes once, and every result under `langgraph_node == "tools"`."""

    def seen(node):
        chunks = stream(graph(MAIL_ONLY, node), GO, stream_mode="messages")
        return sorted(
            (type(m).__name__, str(m.content), meta["langgraph_node"]) for m, meta in chunks
        )

    now = seen(recorded(world.tools()))
    assert now == seen(ToolNode(world.tools()))
    assert ("ToolMessage", "sent to bob", "tools") in now


MAIL_ONLY = ask_for(("send_email", {"to": "bob"}, "c1"), ("send_email", {"to": "eve"}, "c2"))


def test_tokens_of_a_model_inside_a_tool_come_from_the_tools_node(stream):
    """A model in a tool streams under the node's name, not under the task's."""

    @tool
    def think(about: str) -> str:
        """Call a model."""
        return str(Model(messages=iter([AIMessage("deep thought")])).invoke(about).content)

    app = graph(ask_for(("think", {"about": "x"}, "c1")), recorded([think]))
    chunks = stream(app, GO, stream_mode="messages")
    nodes = {meta["langgraph_node"] for m, meta in chunks if str(m.content) in ("deep", "thought")}
    assert nodes == {"tools"}


def test_updates_show_one_chunk_for_each_call_and_no_mark(stream, world):
    """The only addition to `updates` is the call's own task, also beside a pause."""
    app = graph(MAIL_AND_WIRE, recorded(world.tools()), saver=InMemorySaver())
    chunks = stream(app, GO, stream_mode="updates")
    names = [name for chunk in chunks for name in chunk]
    # The mail may be recorded just before or just after the pause.
    assert re.fullmatch("__interrupt__ agent recorded_[0-9a-f]{12}", " ".join(sorted(names)))


# -- where recording is impossible or needless --


def test_outside_a_graph_the_tool_just_runs(mode, world):
    """A ToolNode alone has nowhere to record, nor has a request without a runtime."""
    node = recorded(world.tools())
    state = {"messages": [MAIL_ONLY]}
    bare = ToolCallRequest(MAIL_ONLY.tool_calls[0], None, state, None)

    async def answer(_request):
        return "ran"

    if mode == "sync":
        done = node.invoke(state, runtime=Runtime())
        assert record_tool_calls(bare, lambda _: "ran") == "ran"
    else:
        done = asyncio.run(node.ainvoke(state, runtime=Runtime()))
        assert asyncio.run(arecord_tool_calls(bare, answer)) == "ran"
    assert results(done) == {"c1": "sent to bob", "c2": "sent to eve"}


@pytest.mark.parametrize("workers", [None, 2])
def test_tasks_made_by_send_are_left_alone(mode, world, workers):
    """create_agent runs a task per call: with 40 calls and 2 workers nothing waits for itself."""
    message = ask_for(*(("send_email", {"to": str(i)}, f"c{i}") for i in range(40)))
    model = Model(messages=iter([message, AIMessage("done")]))
    wrapper = wrap_tool_call(record_tool_calls if mode == "sync" else arecord_tool_calls)
    app = create_agent(model, world.tools(), middleware=[wrapper])
    config = {"max_concurrency": workers} if workers else {}

    async def collect():
        return [chunk async for chunk in app.astream(GO, config, stream_mode="updates")]

    chunks = (
        list(app.stream(GO, config, stream_mode="updates"))
        if mode == "sync"
        else asyncio.run(asyncio.wait_for(collect(), 20))
    )
    assert {name for chunk in chunks for name in chunk} == {"model", "tools"}
    assert world.ran == {str(i): 1 for i in range(40)}


@pytest.mark.filterwarnings(  # LangGraph's, for a queued task that is cancelled
    "ignore:coroutine 'arun_with_retry' was never awaited",
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning",
)
def test_without_a_free_worker_an_error_comes_instead_of_a_hang(run, world, monkeypatch):
    """Nodes that occupy every worker while they wait for one: an error; the call is not run."""
    monkeypatch.setattr(recorded_call, "START_SECONDS", 0.2)
    monkeypatch.setattr("langgraph_patch.recording.wrappers.POLL_SECONDS", 0.05)
    state = {"messages": [ask_for(("send_email", {"to": "bob"}, "c1"))]}
    with pytest.raises(RecordingError, match=r"'c1' was not run.*max_concurrency \(now 2\)"):
        run(two_tool_nodes(world, world), state, {"max_concurrency": 2})
    assert world.ran["bob"] <= 1, "one node gave up, which may have set the other free"


def test_a_call_is_given_up_or_run_and_never_both(run, world, monkeypatch):
    """However close giving up and starting are: an error means that the tool has not run."""
    monkeypatch.setattr(recorded_call, "START_SECONDS", 0)
    message = ask_for(*(("send_email", {"to": str(i)}, f"c{i}") for i in range(8)))
    for _ in range(20):
        world.ran.clear()
        node = recorded(world.tools(), handle_tool_errors="given up")
        done = results(run(graph(message, node), GO))
        sent = {i: f"sent to {i}" for i in map(str, range(8)) if world.ran[i]}
        assert done == {f"c{i}": sent.get(str(i), "given up") for i in range(8)}


def test_a_busy_worker_is_waited_for(run, world, monkeypatch):
    """While a sibling works, a call waits for its worker for as long as it takes."""
    monkeypatch.setattr(recorded_call, "START_SECONDS", 0.05)
    monkeypatch.setattr("langgraph_patch.recording.wrappers.POLL_SECONDS", 0.01)

    @tool
    async def nap(to: str) -> str:
        """Sleep."""
        await asyncio.sleep(0.15)
        return to

    @tool
    def nod(to: str) -> str:
        """Sleep."""
        time.sleep(0.15)
        return to

    message = ask_for(*(("nod", {"to": str(i)}, f"c{i}") for i in range(3)))
    app = graph(message, recorded([nap, nod]))
    done = run(app, GO, {"max_concurrency": 1})
    assert results(done) == {"c0": "0", "c1": "1", "c2": "2"}


def test_the_sync_function_refuses_to_block_an_event_loop(world):
    """A ToolNode without `awrap_tool_call` in an async run: an error says what to pass."""
    node = ToolNode(world.tools(), wrap_tool_call=record_tool_calls)
    with pytest.raises(RecordingError, match="awrap_tool_call=arecord_tool_calls"):
        asyncio.run(graph(MAIL_ONLY, node).ainvoke(GO))
    assert world.ran == {}


def test_names_follow_the_call_and_hold_no_separator():
    """Any id of a model gives a name of its own that no namespace misreads; so does a start."""
    ids = ["c1", "c2", "", None, "None", "a|b", "a:b", "工具", "x" * 500]
    starts = [Start("s", 1, 1), Start("t", 1, 1), Start("s", 2, 1), Start("s", 1, 2)]
    names = [task_name(i, start) for i in ids for start in starts]
    assert len(set(names)) == len(ids) * len(starts)
    assert all(name.isidentifier() for name in names)


# -- what a checkpoint says --


def recorded_outcomes(saver):
    """Read {call: what happened} off the raw pending writes, as evidence does."""
    reported = {}
    by_task = {}
    for task_id, channel, value in writes(saver):
        by_task.setdefault(task_id, {})[channel] = value
    for _, channel, value in writes(saver):
        if channel == "__return__":
            reported[value["recorded"]["call_id"]] = value["recorded"]["result"].content
        elif channel == MARK:
            own = by_task.get(value["recorded"]["task_id"], {})
            if "__interrupt__" in own:
                reported[value["recorded"]["call_id"]] = own["__interrupt__"][0].value
            if "__error__" in own:
                reported[value["recorded"]["call_id"]] = own["__error__"]
    return reported


def test_finished_waiting_raised_and_killed_siblings_have_four_outcomes(world):
    """Each pending write leads to its call; a cut call leaves nothing at all."""
    world.delay = 30
    saver = InMemorySaver()
    message = ask_for(
        ("send_email", {"to": "bob"}, "finished"),
        ("wire", {"to": "eve"}, "waiting"),
        ("wire_twice", {"to": "mia"}, "waiting2"),
        ("boom", {"to": "x"}, "raised"),
        ("slow", {"to": "y"}, "killed"),
    )

    async def wait_for_the_others(request, execute):
        if request.tool_call["id"] == "raised":
            await asyncio.sleep(0.05)
        return await execute(request)

    async def wrapper(request, execute):
        return await arecord_tool_calls(request, lambda r: wait_for_the_others(r, execute))

    node = ToolNode(world.tools(), awrap_tool_call=wrapper, handle_tool_errors=False)
    app = graph(message, node, saver=saver)

    async def scenario():
        running = asyncio.create_task(app.ainvoke(GO, THREAD))
        await world.slow_began.wait()
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())
    assert recorded_outcomes(saver) == {
        "finished": "sent to bob",
        "waiting": "wire eve?",
        "waiting2": "mia first?",
        "raised": repr(RuntimeError("kaput x")),
    }


def test_the_second_interrupt_of_a_call_is_recovered_too(run, world):
    """A call that was answered once and asks again is still identified by its mark."""
    saver = InMemorySaver()
    message = ask_for(("wire_twice", {"to": "mia"}, "c1"), ("send_email", {"to": "bob"}, "c2"))
    app = graph(message, recorded(world.tools()), saver=saver)
    run(app, GO)
    run(app, Command(resume="yes"))
    assert recorded_outcomes(saver) == {"c1": "mia second?", "c2": "sent to bob"}


def test_a_finished_run_leaves_no_end_mark(run, world):
    """A result is the end of its start."""
    saver = InMemorySaver()
    run(graph(MAIL_ONLY, recorded(world.tools()), saver=saver), GO)
    history = list(saver.list(THREAD))
    assert {w[1] for t in history for w in t.pending_writes if MARK in w[1]} == set()
    assert sum(w[1] == "__return__" for t in history for w in t.pending_writes) == 2


def test_a_saver_that_refuses_the_mark_does_not_hide_the_tools_error(run, world):
    """The tool's own exception reaches the caller, with a note."""

    class Refusing(InMemorySaver):
        def put_writes(self, config, writes, task_id, task_path=""):
            if writes[0][0] == MARK:
                msg = "disk full"
                raise OSError(msg)
            super().put_writes(config, writes, task_id, task_path)

    node = recorded(world.tools(), handle_tool_errors=False)
    app = graph(ask_for(("boom", {"to": "x"}, "c1")), node, saver=Refusing())
    with pytest.raises(RuntimeError, match="kaput x") as raised:
        run(app, GO)
    assert any("disk full" in note for note in raised.value.__notes__)


def test_a_resume_that_cannot_read_runs_no_tool(run, world):
    """Nobody knows what an earlier run recorded: nothing is done twice, and one may try again."""

    class Failing(CountingSaver):
        fails_at = 0

        def get_tuple(self, config):
            found = super().get_tuple(config)
            if self.reads == self.fails_at:
                msg = "connection lost"
                raise OSError(msg)
            return found

    saver = Failing()
    app = graph(MAIL_AND_WIRE, recorded(world.tools(), handle_tool_errors=False), saver=saver)
    run(app, GO)
    saver.fails_at = saver.reads + 2  # the first read is the graph's own
    with pytest.raises(RecordingError, match="connection lost"):
        run(app, Command(resume="yes"))
    assert world.ran == {"bob": 1}
    done = run(app, Command(resume="yes"))
    assert results(done) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert world.ran == {"bob": 1, "eve": 1}


@pytest.mark.needs(langgraph="1.1.3")
def test_runs_are_forgotten(run, world):
    """Neither a finished, a paused nor a failed run is kept in memory when LangGraph is done."""
    lives = lambda: sum(type(thing).__name__ == "NodeRun" for thing in gc.get_objects())
    node = recorded(world.tools(), handle_tool_errors=False)
    app = graph(FLAKY, node, saver=InMemorySaver(), retry_policy=NOW)
    run(app, GO)
    run(app, Command(resume="yes"))
    with pytest.raises(RuntimeError, match="kaput"):
        run(graph(ask_for(("boom", {"to": "x"}, "c1")), node), GO)
    gc.collect()
    assert lives() == 0


# -- kill -9 --


def kill_in_a_batch(path, mode, durability, rng, *, late):
    """Run a batch of tools in a child process and kill it; `late`: after the first tool ran."""
    child = subprocess.Popen(  # noqa: S603 our own script
        [sys.executable, str(KILL), str(path), mode, durability], stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"begins\n"
        log = Path(f"{path}.log")
        while late and not log.exists():
            time.sleep(0.01)
        time.sleep(rng.uniform(0.05 if late else 0, 0.25))
        child.kill()
    log.touch()


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.slow
def test_after_kill_9_no_recorded_call_runs_again(durability, mode, tmp_path, request):
    """SIGKILL at random moments: every recorded result is there and its tool is not run again."""
    rng = random.Random(f"{durability}{mode}")  # noqa: S311 no secret
    few = 2 if (durability, mode) == ("async", "sync") else 1
    seen = 0
    for number in range(13 if request.config.getoption("--long") else few):
        path = tmp_path / f"{number}"
        kill_in_a_batch(path, mode, durability, rng, late=number == 0)
        with sqlite3.connect(f"{path}.db", check_same_thread=False) as connection:
            saver = SqliteSaver(connection)
            kept = {w[2]["recorded"]["call_id"] for w in writes(saver, "__return__")}
            marked = {w[2]["recorded"]["call_id"] for w in writes(saver, STARTED)}
            before = Counter(Path(f"{path}.log").read_text().split())
            assert {*before, *kept} <= marked, "a tool ran without a start mark"
            subprocess.run(  # noqa: S603 our own script
                [sys.executable, str(KILL), str(path), mode, durability, "resume"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            messages = saver.get_tuple(THREAD).checkpoint["channel_values"]["messages"]
        connection.close()
        after = Counter(Path(f"{path}.log").read_text().split())
        assert results({"messages": messages}) == {f"c{i}": f"did {i}" for i in range(8)}
        assert set(before.values()) <= {1}
        assert {c: after[c] for c in kept} == dict.fromkeys(kept, 1)
        seen += len(kept)
    assert seen, "nothing was recorded before any kill: nothing was proved"
