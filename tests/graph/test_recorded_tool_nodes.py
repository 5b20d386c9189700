"""A recorded `ToolNode` is the node that it was, and its finished calls do not run again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

from langgraph_patch import GraphError, arecord_tool_calls, record_tool_calls, with_patching
from langgraph_patch._langgraph_builder import (
    compile_like,
    copy_builder,
    node_runnables,
    replace_runnable,
)
from langgraph_patch.graph.recorded_tool_nodes import recorded_tool_node
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.recording.records import MARK, STARTED, read_record
from support.agent_matrix import AGENTS, BOOKED, Desk, script
from support.agents import both_calls, thread
from support.recorded_agents import Model, World, ask, results
from support.running import run_in_worker, sync_and_async

RETURN = "__return__"


def record(graph: Any) -> Any:
    """The graph with each `ToolNode` recorded, those of its subgraphs included."""
    if isinstance(graph, CompiledStateGraph):
        return compile_like(graph, record(graph.builder))
    copied = copy_builder(graph)
    for name, runnable in node_runnables(graph).items():
        if isinstance(runnable, CompiledStateGraph):
            replace_runnable(copied, name, record(runnable))
        elif isinstance(runnable, ToolNode):
            replace_runnable(copied, name, recorded_tool_node(runnable))
    return copied


def loop(world, saver, message, *, retry=None, **options):
    """START -> agent -> tools -> END, with a recorded `ToolNode`."""
    node = recorded_tool_node(ToolNode(world.tools(), **options))
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("tools", node, retry_policy=retry)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    return builder.compile(checkpointer=saver)


def writes_in(saver, channel):
    """The records in one channel of all checkpoints of all namespaces."""
    return [
        read_record(value)
        for saved in saver.list(None)
        for _, name, value in saved.pending_writes
        if name == channel and read_record(value) is not None
    ]


# --- the node is the node that it was -----------------------------------------------------------


class Named(ToolNode):
    """A subclass with a state of its own."""

    def __init__(self, tools, **options):
        super().__init__(tools, **options)
        self.seen = []

    def _func(self, value, config, runtime):
        self.seen.append("sync")
        return super()._func(value, config, runtime)

    async def _afunc(self, value, config, runtime):
        self.seen.append("async")
        return await super()._afunc(value, config, runtime)


def test_the_copy_has_everything_and_the_node_is_as_it_was():
    """Class, tools, name, tags, key and error handling are the same; the node is not changed."""
    node = Named(
        World().tools(),
        name="bureau",
        tags=["x"],
        messages_key="history",
        handle_tool_errors="sorry",
    )
    before = dict(vars(node))
    made = recorded_tool_node(node)
    assert type(made) is Named
    assert (made.name, made.tags) == ("bureau", ["x"])
    assert made.tools_by_name is node.tools_by_name
    assert vars(node) == before
    changed = {name for name, value in vars(made).items() if before.get(name) != value}
    assert changed == {
        "func",
        "afunc",
        "_wrap_tool_call",
        "_awrap_tool_call",
        "_run_one",
        "_arun_one",
    }


async def test_a_subclass_runs_its_own_methods_on_the_copy():
    """The copy calls the overridden methods of the subclass, with itself as `self`."""
    node = Named(World().tools())
    made = recorded_tool_node(node)
    made.seen = []
    state = {"messages": [ask(("mail", "bob", "c1"))]}
    builder = StateGraph(MessagesState).add_node("tools", made).add_edge(START, "tools")
    await asyncio.to_thread(builder.compile().invoke, state)
    await builder.compile().ainvoke(state)
    assert (made.seen, node.seen) == (["sync", "async"], [])


def test_recording_twice_changes_nothing():
    """A node that records is returned as it is, whoever made it."""
    node = recorded_tool_node(ToolNode(World().tools()))
    assert recorded_tool_node(node) is node
    wrappers = {"wrap_tool_call": record_tool_calls, "awrap_tool_call": arecord_tool_calls}
    by_hand = ToolNode(World().tools(), **wrappers)
    assert recorded_tool_node(by_hand) is by_hand


@pytest.mark.parametrize("value", [None, "tools", lambda state: state, ToolNode])
def test_what_is_no_tool_node_is_refused(value):
    """Anything else raises an error that names it and what is expected."""
    with pytest.raises(GraphError, match="expected a ToolNode"):
        recorded_tool_node(value)


# --- in agents ----------------------------------------------------------------------------------

WITHOUT_APPROVAL = [agent for agent in AGENTS if not agent.asks_first]


@sync_and_async
@pytest.mark.parametrize("agent", WITHOUT_APPROVAL, ids=lambda agent: agent.name)
async def test_a_finished_call_does_not_run_again_in_any_agent(agent, asynchronous):
    """Pause and resume: the mail is sent once, its start is marked once, the money is wired."""
    saver, desk = InMemorySaver(), Desk("asks")
    graph = agent.build(desk, script(both_calls()), record, saver)
    await run_in_worker(graph, {"messages": [BOOKED]}, asynchronous=asynchronous)
    # A plain ToolNode ends its threads with an interrupt, and the mail may just be sent.
    await until(lambda: desk.done == ["mail"])
    await run_in_worker(graph, Command(resume="yes"), asynchronous=asynchronous)
    assert desk.done == ["mail"]
    starts = Counter(start["call_id"] for start in writes_in(saver, STARTED))
    assert (starts["c1"], starts["c2"]) == (1, 2)
    assert any("wired: yes" in repr(saved) for saved in saver.list(None))
    assert not graph.get_state(thread()).next


async def until(condition):
    """Wait until a condition holds."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


@sync_and_async
@pytest.mark.parametrize("agent", WITHOUT_APPROVAL, ids=lambda agent: agent.name)
async def test_a_healthy_run_has_the_messages_of_the_bare_run(agent, asynchronous):
    """Without a pause, the messages of the recorded graph are those of the bare one."""
    states = []
    for wrap in (record, lambda graph: graph):
        graph = agent.build(Desk("asks"), script(), wrap, InMemorySaver())
        state = await run_in_worker(graph, {"messages": [BOOKED]}, asynchronous=asynchronous)
        states.append([(m.type, m.content, m.name) for m in state["messages"]])
    assert states[0] == states[1]


@sync_and_async
async def test_a_retry_of_the_node_does_not_run_a_finished_call_again(asynchronous):
    """The node fails once and is retried: the mail is sent once."""
    world = World()
    world.fails = 1
    retry = RetryPolicy(max_attempts=2, initial_interval=0, retry_on=ConnectionError)
    message = ask(("mail", "bob", "c1"), ("boom", "zoe", "c2"))
    options = {"retry": retry, "handle_tool_errors": False}
    graph = loop(world, InMemorySaver(), message, **options)
    state = await run_in_worker(graph, "go", asynchronous=asynchronous)
    assert results(state) == {"c1": "sent to bob", "c2": "at last zoe"}
    assert world.did == {"mail bob": 1, "boom zoe": 1}


# --- errors ---------------------------------------------------------------------------------------


def only_values(error: ValueError) -> str:
    """Handle one type of error."""
    return f"handled {error}"


@sync_and_async
@pytest.mark.parametrize(
    "handler",
    [False, ValueError, (ValueError, KeyError), only_values],
    ids=["nothing", "type", "types", "function"],
)
async def test_an_error_that_the_node_does_not_handle_is_raised(handler, asynchronous):
    """As by the bare node: a wrapper alone would let LangGraph handle errors of every type."""
    world = World()
    world.fails = 1
    graph = loop(world, InMemorySaver(), ask(("boom", "x", "c1")), handle_tool_errors=handler)
    with pytest.raises(ConnectionError, match="kaput x"):
        await run_in_worker(graph, "go", asynchronous=asynchronous)
    state = await run_in_worker(graph, None, asynchronous=asynchronous)
    assert results(state) == {"c1": "at last x"}


@sync_and_async
@pytest.mark.parametrize("handler", [True, "sorry", ConnectionError], ids=repr)
async def test_an_error_that_the_node_handles_is_its_result(handler, asynchronous):
    """The error message is the one of the bare node, and it is recorded as the result."""
    states = []
    saver = InMemorySaver()
    for wrap in (recorded_tool_node, lambda node: node):
        world = World()
        world.fails = 9
        node = wrap(ToolNode(world.tools(), handle_tool_errors=handler))
        builder = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools")
        graph = builder.compile(checkpointer=saver if wrap is recorded_tool_node else None)
        value = {"messages": [ask(("boom", "x", "c1"))]}
        state = await run_in_worker(graph, value, asynchronous=asynchronous)
        states.append([(m.content, getattr(m, "status", "")) for m in state["messages"]])
    assert states[0] == states[1]
    [stored] = writes_in(saver, RETURN)
    assert stored["result"].status == "error"


# --- with wrappers of the application ----------------------------------------------------------


def approve(request, execute):
    """Ask a human before the tool runs, and sign its result."""
    call = request.tool_call
    answer = interrupt(f"may {call['name']} {call['args']['to']}?")
    if answer == "no":
        return ToolMessage("denied", tool_call_id=call["id"])
    made = execute(request)
    return made.model_copy(update={"content": f"{made.content} ({answer})"})


async def aapprove(request, execute):
    """The same, asynchronously."""
    call = request.tool_call
    answer = interrupt(f"may {call['name']} {call['args']['to']}?")
    if answer == "no":
        return ToolMessage("denied", tool_call_id=call["id"])
    made = await execute(request)
    return made.model_copy(update={"content": f"{made.content} ({answer})"})


WRAPPERS = {
    "sync and async": {"wrap_tool_call": approve, "awrap_tool_call": aapprove},
    "sync only": {"wrap_tool_call": approve},
    "async only": {"awrap_tool_call": aapprove},
}


@sync_and_async
@pytest.mark.parametrize("name", WRAPPERS)
async def test_an_approval_in_a_wrapper_is_inside_of_the_record(name, asynchronous):
    """Three approvals of a plain `ToolNode`, answered by id: each answer reaches its own call.

    The record holds what the `ToolNode` receives: the signed result, and the denial.
    """
    saver, world = InMemorySaver(), World()
    message = ask(("mail", "bob", "c1"), ("mail", "zoe", "c2"), ("mail", "max", "c3"))
    graph = loop(world, saver, message, **WRAPPERS[name])
    await run_in_worker(graph, "go", asynchronous=asynchronous)
    answers = {"may mail bob?": "for bob", "may mail zoe?": "no", "may mail max?": "for max"}
    while pauses := graph.get_state(thread()).interrupts:
        resume = Command(resume={pause.id: answers[pause.value] for pause in pauses})
        await run_in_worker(graph, resume, asynchronous=asynchronous)
    state = graph.get_state(thread()).values
    expected = {"c1": "sent to bob (for bob)", "c2": "denied", "c3": "sent to max (for max)"}
    if name == "async only" and not asynchronous:  # a bare node has no wrapper then
        expected = {"c1": "sent to bob", "c2": "sent to zoe", "c3": "sent to max"}
    assert results(state) == expected
    assert {r["call_id"]: r["result"].content for r in writes_in(saver, RETURN)} == expected
    assert max(world.did.values()) == 1


@sync_and_async
async def test_an_approval_that_is_abandoned_is_reported_as_waiting(asynchronous):
    """The pause of the wrapper is that of the call: one is done, one waits, and both are stated."""
    saver, world = InMemorySaver(), World()
    message = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))

    def only_wire(request, execute):
        made = approve if request.tool_call["name"] == "wire" else lambda r, e: e(r)
        return made(request, execute)

    async def aonly_wire(request, execute):
        if request.tool_call["name"] == "wire":
            return await aapprove(request, execute)
        return await execute(request)

    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda _: {"messages": [next(answers)]})
    builder.add_node(
        "tools", ToolNode(world.tools(), wrap_tool_call=only_wire, awrap_tool_call=aonly_wire)
    )
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    answers = iter([message, AIMessage("fine")])
    graph = with_patching(record(builder.compile(checkpointer=saver)), model_node="model")
    await run_in_worker(graph, "go", asynchronous=asynchronous)
    state = await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    told = results(state)
    assert told["c1"] == "sent to bob"
    assert "was waiting for human input" in told["c2"]
    assert world.did == {"mail bob": 1}


async def test_a_synchronous_wrapper_does_not_block_the_event_loop():
    """The loop goes on while a synchronous wrapper sleeps, and an asynchronous tool runs in it."""
    order = []

    @tool
    async def mail(to: str) -> str:
        """Send a mail."""
        order.append(asyncio.get_running_loop() is main)
        return to

    def slow(request, execute):
        time.sleep(0.2)
        order.append("wrapper")
        return execute(request)

    async def tick():
        await asyncio.sleep(0.02)
        order.append("tick")

    main = asyncio.get_running_loop()
    node = recorded_tool_node(ToolNode([mail], wrap_tool_call=slow))
    graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile()
    await asyncio.gather(graph.ainvoke({"messages": [ask(("mail", "bob", "c1"))]}), tick())
    assert order == ["tick", "wrapper", True]


@sync_and_async
@pytest.mark.parametrize("records", [False, True])
async def test_with_the_middleware_a_call_is_recorded_once(records, asynchronous):
    """`PatchToolCallsMiddleware(record=True)` and `recorded_tool_node`: one mark for each start."""
    seen = []

    @wrap_tool_call
    def watch(request, handler):
        seen.append(request.tool_call["id"])
        return handler(request)

    @wrap_tool_call
    async def awatch(request, handler):
        seen.append(request.tool_call["id"])
        return await handler(request)

    saver, world = InMemorySaver(), World()
    message = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))
    middleware = [awatch if asynchronous else watch, PatchToolCallsMiddleware(record=records)]
    agent = create_agent(
        Model(messages=iter([message, AIMessage("done")]), disable_streaming=True),
        world.tools(),
        middleware=middleware,
        checkpointer=saver,
    )
    graph = record(agent)
    await run_in_worker(graph, "go", asynchronous=asynchronous)
    starts = Counter(start["call_id"] for start in writes_in(saver, STARTED))
    assert starts == {"c1": 1, "c2": 1}
    assert len(writes_in(saver, MARK)) == 1
    state = await run_in_worker(graph, Command(resume="yes"), asynchronous=asynchronous)
    assert results(state) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert Counter(seen) == {"c1": 1, "c2": 2}
    assert world.did == {"mail bob": 1, "wire eve": 1}
