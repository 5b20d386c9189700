"""recover_messages: an abandoned run of an `@entrypoint` leaves a true and valid history."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt

from langgraph_patch import (
    EvidenceError,
    OptionError,
    arecover_messages,
    is_placeholder,
    patch_model,
    recorded_tool,
    recover_messages,
    validate_messages,
)
from langgraph_patch.evidence import queries
from support.agents import lines
from support.chunk_model import ChunkModel
from support.recorded_agents import THREAD, Runs, ask
from support.strict import refuse

DONE: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


@pytest.fixture(params=["sync", "async"])
def mode(request):
    """Threads or an event loop."""
    return request.param


@pytest.fixture(params=["memory", "sqlite"])
def runs(mode, request):
    """Runs a scenario over each checkpointer, by threads and in an event loop."""
    return Runs(mode, request.param)


@recorded_tool
@tool
def mail(to: str) -> str:
    """Send a mail."""
    DONE[f"mail {to}"] += 1
    return f"sent to {to}"


@recorded_tool
@tool
def wire(to: str) -> str:
    """Wire money, if a human agrees."""
    return f"wired to {to}: {interrupt(f'wire {to}?')}"


@recorded_tool
@tool
def boom(to: str) -> str:
    """Raise."""
    raise ConnectionError(f"kaput {to}")


@tool
def plain(to: str) -> str:
    """Ask, without a record."""
    return interrupt(to)


@recorded_tool
@tool
def write(to: str, call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Write a file."""
    message = ToolMessage("Updated file", tool_call_id=call_id)
    return Command(update={"files": {to: "x"}, "messages": [message]})


TOOLS = {made.name: made for made in (mail, wire, boom, plain, write)}


def agent_of(saver, mode, script, *, in_task=False, recover=True):
    """A functional agent that answers with `script` in turn; it saves its history at the end.

    Args:
        saver: The checkpointer.
        mode: "sync" or "async".
        script: The answers of the model.
        in_task: Whether the history is recovered in a `@task`.
        recover: Whether it is recovered at all.
    """
    answers = iter(script)

    @task
    def model(history):
        refuse(history)
        return next(answers)

    @task
    def recovered():
        return recover_messages(saver, get_config())

    @task
    async def arecovered():
        return await arecover_messages(saver, get_config())

    def results_in(made):
        return made.update["messages"] if isinstance(made, Command) else [made]

    @entrypoint(checkpointer=saver)
    def agent(messages, *, previous=None, config=None):
        earlier = []
        if recover:
            earlier = recovered().result() if in_task else recover_messages(saver, config)
        history = [*(previous or []), *earlier, *messages]
        while True:
            history.append(model(history).result())
            if not history[-1].tool_calls:
                return entrypoint.final(value=history, save=history)
            for call in history[-1].tool_calls:
                history += results_in(TOOLS[call["name"]].invoke(call))

    @entrypoint(checkpointer=saver)
    async def aagent(messages, *, previous=None, config=None):
        earlier = []
        if recover:
            made = arecovered() if in_task else arecover_messages(saver, config)
            earlier = await made
        history = [*(previous or []), *earlier, *messages]
        while True:
            history.append(await model(history))
            if not history[-1].tool_calls:
                return entrypoint.final(value=history, save=history)
            for call in history[-1].tool_calls:
                history += results_in(await TOOLS[call["name"]].ainvoke(call))

    return agent if mode == "sync" else aagent


def said(*answers):
    """The model's messages, with ids that do not sort by time."""
    ids = ["z", "m", "a", "k", "b", "y"]
    return [
        answer.model_copy(update={"id": ids[i]})
        if isinstance(answer, AIMessage)
        else AIMessage(answer, id=ids[i])
        for i, answer in enumerate(answers)
    ]


def go(text):
    """The input of the agent."""
    return [HumanMessage(text, id=text)]


def texts(history):
    """{call id: content} of the results."""
    return {m.tool_call_id: m.content for m in history if isinstance(m, ToolMessage)}


MIXED = ask(
    ("mail", "bob", "c1"), ("wire", "eve", "c2"), ("mail", "zoe", "c3"), ("plain", "x", "c4")
)


@pytest.mark.parametrize("in_task", [False, True])
def test_the_next_turn_knows_what_the_abandoned_turn_did(runs, in_task):
    """Pause and another message: the result of the mail is real, each placeholder is true.

    The model refuses a history that a provider would refuse, so the history is valid.
    """

    def scenario(saver):
        agent = agent_of(saver, runs.mode, said(MIXED, "fine"), in_task=in_task)
        yield agent, "invoke", go("h1"), THREAD
        history = yield agent, "invoke", go("h2"), THREAD
        state = yield agent, "invoke", go("h3"), THREAD
        return history, state

    history, error = runs(scenario)
    assert [m.type for m in history] == ["human", "ai", *["tool"] * 4, "human", "ai"]
    told = texts(history)
    assert told["c1"] == "sent to bob"
    assert "was waiting for human input when another message came in" in told["c2"]
    assert told["c3"] == "Tool call mail with id c3 was not run."
    assert "may or may not have run" in told["c4"]
    assert [is_placeholder(m) for m in history if m.type == "tool"] == [False, True, True, True]
    assert DONE == {"mail bob": 1}
    assert isinstance(
        error, RuntimeError | StopIteration
    )  # the script is over: nothing else failed


def test_several_turns_of_one_run_come_in_their_order(runs):
    """Three model turns in one run, ids in no order: the marks of their calls give the order."""
    script = said(
        ask(("mail", "one", "c1")),
        ask(("mail", "two", "c2")),
        ask(("mail", "three", "c3"), ("wire", "eve", "c4")),
        "fine",
    )

    def scenario(saver):
        agent = agent_of(saver, runs.mode, script)
        yield agent, "invoke", go("h1"), THREAD
        return (yield agent, "invoke", go("h2"), THREAD)

    history = runs(scenario)
    assert [m.id for m in history if m.type == "ai"] == ["z", "m", "a", "k"]
    assert [m.tool_call_id for m in history if m.type == "tool"] == ["c1", "c2", "c3", "c4"]
    assert sum(DONE.values()) == 3


def test_ids_with_a_time_give_the_order_where_nothing_is_recorded(runs):
    """Tools in plain tasks have no start marks: UUIDs of version 7 give the order."""
    answers = [
        AIMessage("", id=f"lc_run--{made}", tool_calls=ask(("mail", "x", f"c{i}")).tool_calls)
        for i, made in enumerate(uuid7s(5))
    ]

    def scenario(saver):
        @task
        def model(index):
            return answers[index]

        @task
        def run(call):
            return ToolMessage(f"result of {call['id']}", tool_call_id=call["id"])

        @entrypoint(checkpointer=saver)
        def agent(_):
            for index in range(5):
                for call in model(index).result().tool_calls:
                    run(call).result()
            interrupt("?")

        @entrypoint(checkpointer=saver)
        async def aagent(_):
            for index in range(5):
                for call in (await model(index)).tool_calls:
                    await run(call)
            interrupt("?")

        yield (agent if runs.mode == "sync" else aagent), "invoke", go("h1"), THREAD
        return (yield Recovered(saver), "recover", THREAD)

    history = runs(scenario)
    assert [m.content for m in history if m.type == "tool"] == [f"result of c{i}" for i in range(5)]
    assert validate_messages(history) == []


class Recovered:
    """`recover_messages` in the form that `Runs` calls."""

    def __init__(self, saver):
        self.saver = saver

    def recover(self, config):
        """Read synchronously."""
        return recover_messages(self.saver, config)

    async def arecover(self, config):
        """Read in an event loop."""
        return await arecover_messages(self.saver, config)


def uuid7s(count):
    """UUIDs of version 7, 5 ms apart, whose last parts sort the other way."""
    for i in range(count):
        yield uuid.UUID(int=(0x19A2015F000 + 5 * i) << 80 | 7 << 76 | 2 << 62 | (count - i))


@pytest.mark.parametrize("in_task", [False, True])
def test_runs_that_were_abandoned_one_after_the_other_are_all_recovered(runs, in_task):
    """Two turns pause and are abandoned: the third reads both, and saves them once."""
    script = said(
        ask(("mail", "bob", "c1"), ("wire", "eve", "c2")),
        ask(("mail", "zoe", "c3"), ("wire", "max", "c4")),
        "fine",
        "again",
    )

    def scenario(saver):
        agent = agent_of(saver, runs.mode, script, in_task=in_task)
        for text in ("h1", "h2", "h3"):
            yield agent, "invoke", go(text), THREAD
        return (yield agent, "invoke", go("h4"), THREAD)

    history = runs(scenario)
    assert [m.id for m in history if m.type != "tool"] == [
        "h1",
        "z",
        "h2",
        "m",
        "h3",
        "a",
        "h4",
        "k",
    ]
    told = texts(history)
    assert (told["c1"], told["c3"]) == ("sent to bob", "sent to zoe")
    assert list(told) == ["c1", "c2", "c3", "c4"]
    assert sum(DONE.values()) == 2


def test_a_finished_run_leaves_nothing_to_recover(runs):
    """The history of a finished run is in `previous`; nothing comes twice."""

    def scenario(saver):
        agent = agent_of(saver, runs.mode, said(ask(("mail", "bob", "c1")), "fine", "again"))
        yield agent, "invoke", go("h1"), THREAD
        return (yield agent, "invoke", go("h2"), THREAD)

    history = runs(scenario)
    assert [m.id for m in history if m.type != "tool"] == ["h1", "z", "m", "h2", "a"]
    assert texts(history) == {"c1": "sent to bob"}


def test_a_run_that_failed_is_recovered_with_its_error(runs):
    """A tool raises, the run fails, and the next message finds the error as the result's cause."""
    script = said(ask(("mail", "bob", "c1"), ("boom", "x", "c2")), "fine")

    def scenario(saver):
        agent = agent_of(saver, runs.mode, script)
        error = yield agent, "invoke", go("h1"), THREAD
        assert isinstance(error, ConnectionError)
        return (yield agent, "invoke", go("h2"), THREAD)

    told = texts(runs(scenario))
    assert told["c1"] == "sent to bob"
    assert told["c2"].endswith("failed in its last recorded attempt: ConnectionError('kaput x')")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.needs("exit", langgraph="1.2.16")
def test_a_run_that_pauses_and_resumes_recovers_the_same_each_time(mode, durability):
    """The run after the abandoned one pauses itself: its resume starts from the same history."""
    saver = InMemorySaver()
    script = said(
        ask(("mail", "bob", "c1"), ("wire", "eve", "c2")),
        ask(("mail", "zoe", "c3"), ("wire", "max", "c4")),
        "fine",
    )
    agent = agent_of(saver, mode, script)
    invoke(agent, go("h1"), mode, durability)
    invoke(agent, go("h2"), mode, durability)
    history = invoke(agent, Command(resume="yes"), mode, durability)
    assert [m.id for m in history if m.type != "tool"] == ["h1", "z", "h2", "m", "a"]
    told = texts(history)
    assert (told["c1"], told["c3"], told["c4"]) == (
        "sent to bob",
        "sent to zoe",
        "wired to max: yes",
    )
    assert sum(DONE.values()) == 2


def invoke(agent, value, mode, durability="async"):
    """Run the agent by `invoke` or `ainvoke`."""
    if mode == "sync":
        return agent.invoke(value, THREAD, durability=durability)
    return asyncio.run(agent.ainvoke(value, THREAD, durability=durability))


def test_an_id_that_is_used_again_has_the_result_of_its_own_turn(mode):
    """`functions.mail:0` in each turn, equal arguments: two results, and the last call is open."""
    saver = InMemorySaver()
    repeated = ask(("wire", "eve", "functions.wire:0"))
    agent = agent_of(saver, mode, said(repeated, repeated, "fine"))
    invoke(agent, go("h1"), mode)
    invoke(agent, Command(resume="first"), mode)
    history = invoke(agent, go("h2"), mode)
    results = [m for m in history if isinstance(m, ToolMessage)]
    assert len(results) == 2
    # No time tells which of the two equal calls finished: the result is given to none.
    assert [is_placeholder(m) for m in results] == [True, True]
    assert all("may or may not have run" in m.content for m in results)


def test_with_times_in_the_ids_a_used_id_has_the_result_of_its_turn(mode):
    """The same with the ids of LangChain: the result is that of the first turn."""
    saver = InMemorySaver()
    first, second = ask(("wire", "eve", "c1")), ask(("wire", "eve", "c1"))

    @task
    def model(index):
        now = uuid7_now()
        return (first, second)[index].model_copy(update={"id": f"lc_run--{now}"})

    def loop(_):
        for index in range(2):
            for call in model(index).result().tool_calls:
                wire.invoke(call)

    async def aloop(_):
        for index in range(2):
            for call in (await model(index)).tool_calls:
                await asyncio.sleep(0.005)
                await wire.ainvoke(call)

    agent = entrypoint(checkpointer=saver)(loop if mode == "sync" else aloop)
    invoke(agent, go("h1"), mode)
    invoke(agent, Command(resume="first"), mode)
    history = recover(saver, THREAD, mode)
    results = [m for m in history if isinstance(m, ToolMessage)]
    assert results[0].content == "wired to eve: first"
    assert is_placeholder(results[1])


def uuid7_now():
    """A UUID of version 7 of this moment."""
    milliseconds = uuid.uuid1().time // 10_000 - 12_219_292_800_000
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62)


def recover(saver, config, mode, **options):
    """What `recover_messages` returns, or `arecover_messages`."""
    if mode == "sync":
        return recover_messages(saver, config, **options)
    return asyncio.run(arecover_messages(saver, config, **options))


def test_outside_of_a_run_the_last_run_counts_as_it_is(mode):
    """Nothing came after the pause: the call is waiting, and the run can still be resumed."""
    saver = InMemorySaver()
    agent = agent_of(saver, mode, said(ask(("wire", "eve", "c1")), "fine"))
    invoke(agent, go("h1"), mode)
    [_, _, result] = recover(saver, THREAD, mode)
    assert "is waiting for human input" in result.content
    assert lines(invoke(agent, Command(resume="yes"), mode)) is not None
    assert recover(saver, THREAD, mode) == []


def test_the_input_counts_if_it_is_messages_or_is_read(mode):
    """A text as input is left out, or read by `read_input`."""
    saver = InMemorySaver()

    @task
    def model(_):
        return AIMessage("", id="a1", tool_calls=ask(("plain", "x", "c1")).tool_calls)

    def agent(_):
        model(1).result()
        interrupt("?")

    async def aagent(_):
        await model(1)
        interrupt("?")

    graph = entrypoint(checkpointer=saver)(agent if mode == "sync" else aagent)
    invoke(graph, "what?", mode)
    assert [m.type for m in recover(saver, THREAD, mode)] == ["ai", "tool"]
    read = recover(saver, THREAD, mode, read_input=lambda text: [HumanMessage(text)])
    assert [m.type for m in read] == ["human", "ai", "tool"]
    assert read[0].content == "what?"
    own = recover(saver, THREAD, mode, placeholder="no idea", language="zh")
    assert own[-1].content == "no idea"


def test_messages_that_previous_has_are_not_recovered_again(mode):
    """A task that returns the whole history adds its new messages only."""
    saver = InMemorySaver()

    @task
    def step(history):
        return [*history, AIMessage("", id=f"a{len(history)}", tool_calls=MIXED.tool_calls[:1])]

    def agent(messages, *, previous=None):
        history = step([*(previous or []), *messages]).result()
        if messages[0].id == "h2":
            interrupt("?")
        return entrypoint.final(value=1, save=[*history, ToolMessage("ok", tool_call_id="c1")])

    async def aagent(messages, *, previous=None):
        history = await step([*(previous or []), *messages])
        if messages[0].id == "h2":
            interrupt("?")
        return entrypoint.final(value=1, save=[*history, ToolMessage("ok", tool_call_id="c1")])

    graph = entrypoint(checkpointer=saver)(agent if mode == "sync" else aagent)
    invoke(graph, go("h1"), mode)
    invoke(graph, go("h2"), mode)
    assert [m.id for m in recover(saver, THREAD, mode) if m.type != "tool"] == ["h2", "a4"]


def test_a_result_names_the_effects_that_are_lost(mode):
    """The tool's `Command` wrote a key that nothing kept: its text says so."""
    saver = InMemorySaver()
    agent = agent_of(saver, mode, said(ask(("write", "a.txt", "c1"), ("wire", "x", "c2")), "fine"))
    invoke(agent, go("h1"), mode)
    history = invoke(agent, go("h2"), mode)
    told = texts(history)["c1"]
    assert told.endswith("Updated file")
    assert "files" in told


def test_results_without_the_message_of_their_call_are_dropped(mode):
    """A model that was called outside of a task left no message: its results answer nothing."""
    saver = InMemorySaver()

    def agent(_):
        mail.invoke(MIXED.tool_calls[0])
        interrupt("?")

    async def aagent(_):
        await mail.ainvoke(MIXED.tool_calls[0])
        interrupt("?")

    invoke(entrypoint(checkpointer=saver)(agent if mode == "sync" else aagent), go("h1"), mode)
    assert recover(saver, THREAD, mode) == go("h1")


def test_without_it_the_next_turn_knows_nothing(mode):
    """Why it is needed: LangGraph alone keeps nothing of the abandoned turn."""
    saver = InMemorySaver()
    agent = agent_of(saver, mode, said(MIXED, "fine"), recover=False)
    invoke(agent, go("h1"), mode)
    assert [m.type for m in invoke(agent, go("h2"), mode)] == ["human", "ai"]
    assert DONE == {"mail bob": 1}


# --- errors ------------------------------------------------------------------------------------


class Failing(InMemorySaver):
    """A checkpointer that cannot list."""

    def list(self, *_args, **_options):
        """Fail."""
        raise OSError("disk")

    async def alist(self, *_args, **_options):
        """Fail."""
        raise OSError("disk")
        yield


def test_a_checkpointer_that_fails_raises_an_evidence_error(mode):
    """The error names the thread and what to do."""
    with pytest.raises(EvidenceError, match=r"Thread '1'.*OSError\('disk'\)"):
        recover(Failing(), THREAD, mode)


@pytest.mark.parametrize(
    ("saver", "config", "reason"),
    [
        (None, THREAD, "expected the checkpointer"),
        (InMemorySaver(), {}, "thread_id"),
        (InMemorySaver(), None, "thread_id"),
    ],
)
def test_bad_arguments_are_refused(mode, saver, config, reason):
    """A missing checkpointer or thread is an `OptionError`."""
    with pytest.raises(OptionError, match=reason):
        recover(saver, config, mode)


# --- patch_model in a task ---------------------------------------------------------------------


def test_a_patched_model_in_a_task_does_not_wait_for_a_checkpoint(mode, monkeypatch):
    """`patch_model` in a `@task` reads the namespace of the `@entrypoint`: it has checkpoints."""
    monkeypatch.setattr(queries, "_WAIT_SECONDS", 20.0)
    model = patch_model(ChunkModel())
    broken = [HumanMessage("go"), AIMessage("", id="a1", tool_calls=MIXED.tool_calls[:1])]

    @task
    def ask_model(history):
        return model.invoke(history).text

    def agent(_):
        return ask_model([*broken, HumanMessage("hm")]).result()

    async def aagent(_):
        return await ask_model([*broken, HumanMessage("hm")])

    graph = entrypoint(checkpointer=InMemorySaver())(agent if mode == "sync" else aagent)

    async def limited():
        async with asyncio.timeout(10):
            return await graph.ainvoke(1, THREAD)

    result = graph.invoke(1, THREAD) if mode == "sync" else asyncio.run(limited())
    assert result == "whole"
