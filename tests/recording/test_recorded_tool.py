"""recorded_tool: a finished call of a loop written by hand is neither lost nor made twice."""

from __future__ import annotations

import asyncio
import inspect
import operator
import pickle
import threading
from collections import Counter
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from langgraph_patch import (
    OptionError,
    RecordingError,
    arecord_tool_calls,
    is_placeholder,
    record_tool_calls,
    recorded_tool,
    with_patching,
)
from langgraph_patch._langgraph_tasks import task_info
from langgraph_patch.recording.records import MARK, STARTED, read_record, start_marks_in
from support.chunk_model import ChunkModel
from support.recorded_agents import THREAD, ask

DID: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nothing_done():
    DID.clear()


@recorded_tool
@tool
def mail(to: str) -> str:
    """Send a mail."""
    DID[f"mail {to}"] += 1
    return f"sent to {to}"


@recorded_tool
@tool
def wire(to: str) -> str:
    """Wire money, if a human agrees."""
    answer = interrupt(f"wire {to}?")
    DID[f"wire {to}"] += 1
    return f"wired to {to}: {answer}"


@recorded_tool
@tool
def flaky(to: str) -> str:
    """Raise at first."""
    DID[f"try {to}"] += 1
    if DID[f"try {to}"] == 1:
        raise ConnectionError("down")
    DID[f"flaky {to}"] += 1
    return f"at last {to}"


TOOLS: dict[str, BaseTool] = {made.name: made for made in (mail, wire, flaky)}
CALLS = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"), ("mail", "zoe", "c3"))


def loop_of(saver, mode, message=CALLS, **tools):
    """An `@entrypoint` that runs the calls of a message one after the other."""
    named = {**TOOLS, **tools}

    @entrypoint(checkpointer=saver)
    def loop(_):
        return [named[call["name"]].invoke(call).content for call in message.tool_calls]

    @entrypoint(checkpointer=saver)
    async def aloop(_):
        return [(await named[call["name"]].ainvoke(call)).content for call in message.tool_calls]

    return loop if mode == "sync" else aloop


def graph_of(saver, mode, tools=None, message=CALLS, **options):
    """A graph with a node `tools` that is written by hand, and a model that asks for calls once."""
    named = tools or TOOLS

    def model(state):
        done = any(m.type == "ai" for m in state["messages"])
        return {"messages": [AIMessage("done", id="ai2") if done else message]}

    def run(state):
        calls = state["messages"][-1].tool_calls
        return {"messages": [named[call["name"]].invoke(call) for call in calls]}

    async def arun(state):
        calls = state["messages"][-1].tool_calls
        return {"messages": [await named[call["name"]].ainvoke(call) for call in calls]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", run if mode == "sync" else arun, **options)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model",
        lambda state: "tools" if state["messages"][-1].tool_calls else "__end__",
        ["tools", "__end__"],
    )
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def results(state):
    """{call id: content} of all results in a state."""
    return {m.tool_call_id: m.content for m in state["messages"] if m.type == "tool"}


def writes_in(saver, channel):
    """The records in one channel of all checkpoints."""
    return [
        read_record(value)
        for saved in saver.list(None)
        for _, name, value in saved.pending_writes
        if name == channel and read_record(value) is not None
    ]


# --- the tool is the tool that it was ----------------------------------------------------------


def test_a_recorded_tool_has_the_class_the_schema_and_the_texts_of_the_tool():
    """Name, description, schema and class are the same, and the tool itself is not changed."""

    @tool
    def bare(to: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Do it."""
        return to + call_id

    made = recorded_tool(bare)
    assert isinstance(made, StructuredTool)
    assert type(made).__name__ == "StructuredTool"
    assert (made.name, made.description) == (bare.name, bare.description)
    assert made.tool_call_schema.model_json_schema() == bare.tool_call_schema.model_json_schema()
    assert type(bare) is StructuredTool
    assert recorded_tool(made) is made


class Doubler(BaseTool):
    """A tool written as a class."""

    name: str = "double"
    description: str = "Double a number."

    def _run(self, number: int) -> str:
        DID["double"] += 1
        return str(2 * number)


def test_a_tool_of_a_class_of_its_own_is_recorded_and_pickled():
    """A subclass of `BaseTool` stays one, also after pickling."""
    made = pickle.loads(pickle.dumps(recorded_tool(Doubler())))  # noqa: S301 - our own bytes
    assert isinstance(made, Doubler)
    assert made.args == Doubler().args
    assert recorded_tool(made) is made
    call = {"name": "double", "args": {"number": 4}, "id": "c1", "type": "tool_call"}

    @entrypoint(checkpointer=InMemorySaver())
    def run(_):
        return made.invoke(call).content, interrupt("ok?")

    run.invoke(1, THREAD)
    assert run.invoke(Command(resume="yes"), THREAD) == ("8", "yes")
    assert DID["double"] == 1


@pytest.mark.parametrize("value", [lambda x: x, {"name": "a tool"}, Doubler, None])
def test_what_is_no_tool_is_refused(value):
    """A function, a schema, a class and None are no tools; the error names the decorator."""
    with pytest.raises(OptionError, match="@tool"):
        recorded_tool(value)


async def test_outside_of_a_graph_it_is_the_bare_tool():
    """Without a graph, a call and plain arguments are run as they are."""
    call = CALLS.tool_calls[0]
    assert mail.invoke(call) == ToolMessage("sent to bob", name="mail", tool_call_id="c1")
    assert (await mail.ainvoke(call)).content == "sent to bob"
    assert mail.invoke({"to": "bob"}) == await mail.ainvoke({"to": "bob"}) == "sent to bob"
    assert mail.batch([call])[0].content == "sent to bob"


def test_with_plain_arguments_nothing_is_recorded(runs_mode):
    """A loop that passes the arguments only gets the bare tool, and no task is made."""
    saver = InMemorySaver()

    def run(_):
        return mail.invoke({"to": "bob"})

    async def arun(_):
        return await mail.ainvoke({"to": "bob"})

    graph = entrypoint(checkpointer=saver)(run if runs_mode == "sync" else arun)
    result = (
        graph.invoke(1, THREAD) if runs_mode == "sync" else asyncio.run(graph.ainvoke(1, THREAD))
    )
    assert result == "sent to bob"
    assert writes_in(saver, STARTED) == writes_in(saver, "__return__") == []


# --- in loops -----------------------------------------------------------------------------------


def test_a_healthy_loop_returns_what_the_bare_loop_returns(runs):
    """Without a pause, the state, ids included, is that of the bare tools."""
    message = ask(("mail", "bob", "c1"), ("mail", "zoe", "c2"))
    bare = {"mail": tool("mail")(mail.func)}

    def scenario(saver):
        state = yield graph_of(saver, runs.mode, message=message), "invoke", start(), THREAD
        other = {"configurable": {"thread_id": "2"}}
        plain = yield graph_of(saver, runs.mode, bare, message), "invoke", start(), other
        return state, plain

    state, plain = runs(scenario)
    dumped = [[m.model_dump(exclude={"id"}) for m in s["messages"]] for s in (state, plain)]
    assert dumped[0] == dumped[1]


def start():
    """The input of `graph_of`."""
    return {"messages": [HumanMessage("go", id="h1")]}


def test_a_finished_call_of_an_entrypoint_does_not_run_again_after_a_pause(runs):
    """`@entrypoint`: the mail before the pause is sent once, that after it once too."""

    def scenario(saver):
        loop = loop_of(saver, runs.mode)
        yield loop, "invoke", 1, THREAD
        assert DID == {"mail bob": 1}
        return (yield loop, "invoke", Command(resume="yes"), THREAD)

    assert runs(scenario) == ["sent to bob", "wired to eve: yes", "sent to zoe"]
    assert DID == {"mail bob": 1, "wire eve": 1, "mail zoe": 1}


def test_a_finished_call_of_a_node_does_not_run_again_after_a_pause(runs):
    """A node written by hand: the same, and the state is complete."""

    def scenario(saver):
        graph = graph_of(saver, runs.mode)
        yield graph, "invoke", start(), THREAD
        return (yield graph, "invoke", Command(resume="yes"), THREAD)

    state = runs(scenario)
    assert results(state) == {
        "c1": "sent to bob",
        "c2": "wired to eve: yes",
        "c3": "sent to zoe",
    }
    assert state["messages"][-1].text == "done"
    assert DID == {"mail bob": 1, "wire eve": 1, "mail zoe": 1}


def test_calls_inside_tasks_are_recorded(runs):
    """A `@task` that runs several calls keeps the finished ones, and their starts are marked."""

    def scenario(saver):
        @task
        def tools(message):
            return [TOOLS[call["name"]].invoke(call).content for call in message.tool_calls]

        @task
        async def atools(message):
            return [
                (await TOOLS[call["name"]].ainvoke(call)).content for call in message.tool_calls
            ]

        @entrypoint(checkpointer=saver)
        def loop(_):
            return tools(CALLS).result()

        @entrypoint(checkpointer=saver)
        async def aloop(_):
            return await atools(CALLS)

        graph = loop if runs.mode == "sync" else aloop
        yield graph, "invoke", 1, THREAD
        [saved] = yield saver, "list", THREAD
        starts = [mark.ended for c in ("c1", "c2", "c3") for mark in start_marks_in(saved, None, c)]
        assert starts == ["result", "interrupt"]
        return (yield graph, "invoke", Command(resume="yes"), THREAD)

    assert runs(scenario) == ["sent to bob", "wired to eve: yes", "sent to zoe"]
    assert DID == {"mail bob": 1, "wire eve": 1, "mail zoe": 1}


def test_the_results_of_an_abandoned_node_are_recovered(runs_mode):
    """A new message abandons the pause. The finished result comes back, and the rest is true."""
    saver = InMemorySaver()
    graph = with_patching(graph_of(saver, runs_mode), model_node="model")
    invoke(graph, start(), runs_mode)
    state = invoke(graph, {"messages": [HumanMessage("never mind")]}, runs_mode)
    told = results(state)
    assert told["c1"] == "sent to bob"
    assert "was waiting for human input" in told["c2"]
    # The loop might run other tools that are not recorded: a missing mark is no evidence.
    assert "may or may not have run" in told["c3"]
    assert [is_placeholder(m) for m in state["messages"] if m.type == "tool"] == [False, True, True]
    assert DID == {"mail bob": 1}


def invoke(graph, value, mode, config=THREAD):
    """Run a graph by `invoke`, or by `ainvoke` in an event loop."""
    if mode == "sync":
        return graph.invoke(value, config)
    return asyncio.run(graph.ainvoke(value, config))


def test_a_crash_after_a_call_keeps_its_result(runs):
    """An error in the loop itself, and `invoke(None)`: the mail is sent once."""
    crashes = iter([True])

    def scenario(saver):
        @entrypoint(checkpointer=saver)
        def loop(_):
            result = mail.invoke(CALLS.tool_calls[0]).content
            if next(crashes, False):
                raise RuntimeError("crash")
            return result

        @entrypoint(checkpointer=saver)
        async def aloop(_):
            result = (await mail.ainvoke(CALLS.tool_calls[0])).content
            if next(crashes, False):
                raise RuntimeError("crash")
            return result

        graph = loop if runs.mode == "sync" else aloop
        error = yield graph, "invoke", 1, THREAD
        assert repr(error) == "RuntimeError('crash')"
        return (yield graph, "invoke", None, THREAD)

    assert runs(scenario) == "sent to bob"
    assert DID == {"mail bob": 1}


@pytest.mark.needs(langgraph="1.1.3")
def test_a_retry_policy_does_not_run_a_finished_call_again(runs):
    """The node fails after the mail and is retried: the mail is sent once."""
    message = ask(("mail", "bob", "c1"), ("flaky", "zoe", "c2"))
    retry = RetryPolicy(max_attempts=2, initial_interval=0, retry_on=ConnectionError)

    def scenario(saver):
        graph = graph_of(saver, runs.mode, message=message, retry_policy=retry)
        return (yield graph, "invoke", start(), THREAD)

    assert results(runs(scenario)) == {"c1": "sent to bob", "c2": "at last zoe"}
    assert DID == {"mail bob": 1, "try zoe": 2, "flaky zoe": 1}


def test_where_nothing_counts_the_attempts_a_retry_policy_is_refused(runs, monkeypatch):
    """Before langgraph 1.1.3: the tool of a loop does not run either."""
    of_config = lambda config, _: task_info(config, None)
    monkeypatch.setattr("langgraph_patch.recording.recorded_tool.task_info", of_config)
    retry = RetryPolicy(max_attempts=2, initial_interval=0, retry_on=ConnectionError)

    def scenario(saver):
        graph = graph_of(saver, runs.mode, retry_policy=retry)
        return (yield graph, "invoke", start(), THREAD)

    error = runs(scenario)
    assert isinstance(error, RecordingError)
    assert "RetryPolicy needs langgraph 1.1.3" in str(error)
    assert not DID


def test_a_loop_that_tries_a_call_again_keeps_the_try_that_finished(runs):
    """The loop catches an error and tries once more; after a pause neither try runs again."""
    message = ask(("flaky", "bob", "c1"), ("wire", "eve", "c2"))
    first, second = message.tool_calls

    def scenario(saver):
        @entrypoint(checkpointer=saver)
        def loop(_):
            try:
                found = flaky.invoke(first)
            except ConnectionError:
                found = flaky.invoke({**first})
            return found.content, wire.invoke(second).content

        @entrypoint(checkpointer=saver)
        async def aloop(_):
            try:
                found = await flaky.ainvoke(first)
            except ConnectionError:
                found = await flaky.ainvoke({**first})
            return found.content, (await wire.ainvoke(second)).content

        graph = loop if runs.mode == "sync" else aloop
        yield graph, "invoke", 1, THREAD
        return (yield graph, "invoke", Command(resume="yes"), THREAD)

    assert runs(scenario) == ("at last bob", "wired to eve: yes")
    assert DID == {"try bob": 2, "flaky bob": 1, "wire eve": 1}


def test_turns_that_use_an_id_again_keep_their_own_results(runs):
    """Two messages make an equal call with one id: each runs once and has its own result."""
    asked = [ask(("mail", "bob", "call_0"), message_id=f"ai{i}") for i in (1, 2)]
    numbers = iter("12")

    @recorded_tool
    @tool("mail")
    def count(to: str) -> str:
        """Count."""
        DID[to] += 1
        return next(numbers)

    def scenario(saver):
        @entrypoint(checkpointer=saver)
        def loop(_):
            return [count.invoke(m.tool_calls[0]).content for m in asked] + [interrupt("ok?")]

        @entrypoint(checkpointer=saver)
        async def aloop(_):
            found = [(await count.ainvoke(m.tool_calls[0])).content for m in asked]
            return [*found, interrupt("ok?")]

        graph = loop if runs.mode == "sync" else aloop
        yield graph, "invoke", 1, THREAD
        return (yield graph, "invoke", Command(resume="yes"), THREAD)

    assert runs(scenario) == ["1", "2", "yes"]
    assert DID == {"bob": 2}


# --- at the same time ----------------------------------------------------------------------------


async def test_answers_by_id_reach_the_calls_that_asked_under_gather():
    """Two calls wait at once, one more finishes. Each answer reaches its own call."""
    message = ask(("wire", "bob", "c1"), ("mail", "max", "c2"), ("wire", "zoe", "c3"))

    @entrypoint(checkpointer=InMemorySaver())
    async def loop(_):
        found = await asyncio.gather(
            *(TOOLS[call["name"]].ainvoke(call) for call in message.tool_calls),
            return_exceptions=True,
        )
        for result in found:
            if isinstance(result, BaseException):
                raise result
        return [result.content for result in found]

    await loop.ainvoke(1, THREAD)
    asked = (await loop.aget_state(THREAD)).interrupts
    while asked:
        answers = {pause.id: f"yes to {pause.value}" for pause in asked}
        found = await loop.ainvoke(Command(resume=answers), THREAD)
        asked = (await loop.aget_state(THREAD)).interrupts
    assert found == [
        "wired to bob: yes to wire bob?",
        "sent to max",
        "wired to zoe: yes to wire zoe?",
    ]
    assert DID == {"wire bob": 1, "mail max": 1, "wire zoe": 1}


@pytest.mark.parametrize("trial", range(5))
def test_calls_in_threads_never_get_the_answer_of_another_call(trial):
    """Threads start in any order: a call may ask again, but no answer reaches another call."""
    receivers = [f"r{i}" for i in range(4)]
    message = ask(*(("wire", to, f"c{to}") for to in receivers), ("mail", "max", "c"))

    @recorded_tool
    @tool("wire")
    def choose(to: str) -> str:
        """Wire money, if a human agrees to this very transfer."""
        answer = interrupt(to)
        DID[f"{to} {answer}"] += 1
        return to

    @entrypoint(checkpointer=InMemorySaver())
    def loop(_):
        config, found = get_config(), {}

        def run(call):
            made = mail if call["name"] == "mail" else choose
            try:
                found[call["id"]] = made.invoke(call, config)
            except BaseException as error:  # noqa: BLE001 - raised by the loop below
                found[call["id"]] = error

        calls = message.tool_calls if trial % 2 else message.tool_calls[::-1]
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in found.values():
            if isinstance(result, BaseException):
                raise result
        return sorted(result.content for result in found.values())

    found = loop.invoke(1, THREAD)
    for _ in range(40):
        asked = loop.get_state(THREAD).interrupts
        if not asked:
            break
        found = loop.invoke(Command(resume={p.id: f"for {p.value}" for p in asked}), THREAD)
    assert found == [*receivers, "sent to max"]
    expected = {f"{to} for {to}": 1 for to in receivers} | {"mail max": 1}
    assert expected == DID


async def test_invoke_in_an_event_loop_says_what_to_call():
    """`invoke` in an asynchronous function would block the loop; nothing runs."""

    @entrypoint(checkpointer=InMemorySaver())
    async def loop(_):
        return mail.invoke(CALLS.tool_calls[0])

    with pytest.raises(RecordingError, match="await the ainvoke"):
        await loop.ainvoke(1, THREAD)
    assert DID == {}


# --- once -----------------------------------------------------------------------------------------


def test_in_a_recorded_tool_node_a_call_is_recorded_once(runs_mode):
    """A recorded tool in a `ToolNode` that records: one mark for each start, as without."""
    saver = InMemorySaver()
    node = ToolNode(
        [mail, wire], wrap_tool_call=record_tool_calls, awrap_tool_call=arecord_tool_calls
    )
    builder = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools")
    graph = builder.compile(checkpointer=saver)
    message = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))
    invoke(graph, {"messages": [message]}, runs_mode)
    assert len(writes_in(saver, STARTED)) == 2
    assert len(writes_in(saver, MARK)) == len(writes_in(saver, "__return__")) == 1
    state = invoke(graph, Command(resume="yes"), runs_mode)
    assert results(state) == {"c1": "sent to bob", "c2": "wired to eve: yes"}
    assert DID == {"mail bob": 1, "wire eve": 1}


def test_a_call_inside_of_a_recorded_call_is_recorded_too(runs_mode):
    """A tool runs a graph that uses the same call id: the inner mail is sent once."""
    inner = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))

    @recorded_tool
    @tool
    def agent(to: str) -> list[str]:
        """Run an agent."""
        return entrypoint()(work).invoke(to)

    @recorded_tool
    @tool("agent")
    async def aagent(to: str) -> list[str]:
        """Run an agent."""
        return await entrypoint()(awork).ainvoke(to)

    def work(_):
        return [TOOLS[call["name"]].invoke(call).content for call in inner.tool_calls]

    async def awork(_):
        return [(await TOOLS[call["name"]].ainvoke(call)).content for call in inner.tool_calls]

    message = ask(("agent", "max", "c1"))
    made = agent if runs_mode == "sync" else aagent
    graph = loop_of(InMemorySaver(), runs_mode, message, agent=made)
    invoke(graph, 1, runs_mode)
    invoke(graph, Command(resume="yes"), runs_mode)
    assert DID == {"mail bob": 1, "wire eve": 1}


# --- details -------------------------------------------------------------------------------------


def test_injected_arguments_do_not_change_the_owner(runs_mode):
    """A loop that injects the state: the record belongs to the call as the model wrote it."""

    @recorded_tool
    @tool("mail")
    def stateful(to: str, state: Annotated[dict, InjectedState]) -> str:
        """Send a mail."""
        return f"{to} {len(state)}"

    saver = InMemorySaver()
    message = ask(("mail", "bob", "c1"))

    def run(state):
        [call] = message.tool_calls
        return {"messages": [stateful.invoke({**call, "args": {**call["args"], "state": state}})]}

    async def arun(state):
        [call] = message.tool_calls
        made = {**call, "args": {**call["args"], "state": state}}
        return {"messages": [await stateful.ainvoke(made)]}

    builder = StateGraph(MessagesState)
    builder.add_node("tools", run if runs_mode == "sync" else arun).add_edge(START, "tools")
    invoke(builder.compile(checkpointer=saver), {"messages": [message]}, runs_mode)
    [mark] = writes_in(saver, STARTED)
    bare = InMemorySaver()
    invoke(graph_of(bare, runs_mode, message=message), start(), runs_mode)
    [expected] = writes_in(bare, STARTED)
    assert mark["request_hash"] == expected["request_hash"]
    assert (mark["message_id"], mark["is_in_loop"]) == ("ai1", True)


def test_two_calls_with_one_id_keep_their_own_results(runs):
    """A message makes two calls with the id `c`: after a pause each has the result of its own."""
    message = ask(("mail", "bob", "c"), ("wire", "eve", "c"), ("mail", "zoe", "c"))

    def scenario(saver):
        graph = graph_of(saver, runs.mode, message=message)
        yield graph, "invoke", start(), THREAD
        return (yield graph, "invoke", Command(resume="yes"), THREAD)

    texts = [m.content for m in runs(scenario)["messages"] if m.type == "tool"]
    assert texts == ["sent to bob", "wired to eve: yes", "sent to zoe"]
    assert DID == {"mail bob": 1, "wire eve": 1, "mail zoe": 1}


class Jobs(MessagesState):
    """Results of workers."""

    found: Annotated[list[str], operator.add]


def test_the_worker_of_a_send_keeps_its_finished_calls(runs):
    """A `Send` that carries no single call: its loop is recorded as that of any node."""

    def scenario(saver):
        def work(job: Any):
            return {"found": [TOOLS[c["name"]].invoke(c).content for c in job["calls"]]}

        async def awork(job: Any):
            return {"found": [(await TOOLS[c["name"]].ainvoke(c)).content for c in job["calls"]]}

        builder = StateGraph(Jobs)
        builder.add_node("work", work if runs.mode == "sync" else awork)
        builder.add_conditional_edges(
            START, lambda _: [Send("work", {"calls": CALLS.tool_calls})], ["work"]
        )
        graph = builder.compile(checkpointer=saver)
        yield graph, "invoke", start(), THREAD
        return (yield graph, "invoke", Command(resume="yes"), THREAD)

    assert runs(scenario)["found"] == ["sent to bob", "wired to eve: yes", "sent to zoe"]
    assert DID == {"mail bob": 1, "wire eve": 1, "mail zoe": 1}


def test_the_task_of_a_send_with_one_call_gets_marks_only(runs):
    """LangGraph stores the result of such a task itself: there is a mark, and no further task."""

    def scenario(saver):
        def run(calls: Any):
            return {"messages": [TOOLS[calls[0]["name"]].invoke(calls[0])]}

        async def arun(calls: Any):
            return {"messages": [await TOOLS[calls[0]["name"]].ainvoke(calls[0])]}

        builder = StateGraph(MessagesState)
        builder.add_node("tools", run if runs.mode == "sync" else arun)
        builder.add_conditional_edges(
            START, lambda _: [Send("tools", [call]) for call in CALLS.tool_calls], ["tools"]
        )
        graph = builder.compile(checkpointer=saver)
        yield graph, "invoke", start(), THREAD
        saved = yield saver, "list", THREAD
        state = yield graph, "invoke", Command(resume="yes"), THREAD
        return saved, state

    saved, state = runs(scenario)
    channels = Counter(channel for s in saved for _, channel, _ in s.pending_writes)
    assert (channels[STARTED], channels["__return__"]) == (3, 0)
    assert results(state)["c2"] == "wired to eve: yes"
    assert DID == {"mail bob": 1, "wire eve": 1, "mail zoe": 1}


def test_a_command_is_recorded_as_it_is(runs_mode):
    """A tool that returns a `Command` gives the loop the same after a pause."""

    @recorded_tool
    @tool("mail")
    def command(to: str, call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Send a mail."""
        DID[to] += 1
        return Command(update={"messages": [ToolMessage(to, tool_call_id=call_id)]})

    def run(_):
        made = command.invoke(CALLS.tool_calls[0])
        interrupt("ok?")
        return made

    async def arun(_):
        made = await command.ainvoke(CALLS.tool_calls[0])
        interrupt("ok?")
        return made

    builder = StateGraph(MessagesState)
    builder.add_node("tools", run if runs_mode == "sync" else arun).add_edge(START, "tools")
    graph = builder.compile(checkpointer=InMemorySaver())
    invoke(graph, {"messages": [CALLS]}, runs_mode)
    assert results(invoke(graph, Command(resume="yes"), runs_mode)) == {"c1": "bob"}
    assert DID == {"bob": 1}


def test_the_messages_stream_shows_a_recorded_tool_as_the_bare_one(runs_mode):
    """Results, and the chunks of a model inside the tool, come under the node `tools`."""

    @tool("mail")
    async def awrite(to: str) -> str:
        """Let a model write a mail."""
        return (await ChunkModel(streaming=True).ainvoke(to)).text

    @tool("mail")
    def write(to: str) -> str:
        """Let a model write a mail."""
        return ChunkModel(streaming=True).invoke(to).text

    bare = write if runs_mode == "sync" else awrite
    message = ask(("mail", "bob", "c1"))

    def shown(made):
        graph = graph_of(InMemorySaver(), runs_mode, {"mail": made}, message)

        async def collect():
            return [part async for part in graph.astream(start(), THREAD, stream_mode="messages")]

        if runs_mode == "sync":
            parts = list(graph.stream(start(), THREAD, stream_mode="messages"))
        else:
            parts = asyncio.run(collect())
        return [(m.type, m.content, info["langgraph_node"]) for m, info in parts]

    found = shown(recorded_tool(bare))
    assert found == shown(bare)
    assert ("AIMessageChunk", "done", "tools") in found
    assert ("tool", "done", "tools") in found


@pytest.mark.parametrize("given", [False, True])
def test_the_config_that_the_loop_passes_reaches_the_tool(runs_mode, given):
    """Tags, metadata and keys of a config of the loop; and the answer to an interrupt too."""
    seen = []

    @recorded_tool
    @tool("wire")
    def look(to: str, config: RunnableConfig) -> str:
        """Look at the config."""
        answer = interrupt("?")
        seen.append((config["tags"], config["configurable"].get("user")))
        return answer

    own = {"tags": ["mine"], "configurable": {"user": "eve"}} if given else None
    call = ask(("wire", "eve", "c1")).tool_calls[0]

    def loop(_):
        return look.invoke(call, own).content

    async def aloop(_):
        return (await look.ainvoke(call, own)).content

    graph = entrypoint(checkpointer=InMemorySaver())(loop if runs_mode == "sync" else aloop)
    invoke(graph, 1, runs_mode)
    assert invoke(graph, Command(resume="yes"), runs_mode) == "yes"
    assert seen == ([(["mine"], "eve")] if given else [([], None)])


def test_the_signature_is_that_of_a_runnable():
    """`invoke` and `ainvoke` have LangChain's parameters."""
    for name in ("invoke", "ainvoke"):
        bare = inspect.signature(getattr(StructuredTool, name)).parameters
        made = inspect.signature(getattr(type(mail), name)).parameters
        assert list(made) == list(bare)
