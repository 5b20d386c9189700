"""A call in the task of a `Send` keeps its result when `update_state` makes new tasks."""

import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send

from support.recorded_agents import (
    GO,
    THREAD,
    WITH_SEND,
    Named,
    State,
    ask,
    modern_agent,
    recorded,
    results,
)

PAIR = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))
DONE = {"c1": "sent to bob", "c2": "wired to eve: yes"}
ONCE = {"mail bob": 1, "wire eve": 1}


class Noted(State):
    """A key that a tool writes by a `Command`."""

    notes: Annotated[list[str], operator.add]


def sent_loop(world: Any, saver: Any, message: AIMessage) -> Any:
    """START -> agent -> a task of tools for each call -> END."""

    @tool
    def note(to: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Note something."""
        world.did[f"note {to}"] += 1
        done = ToolMessage(f"noted {to}", tool_call_id=tool_call_id)
        return Command(update={"notes": [to], "messages": [done]})

    def send_each(state: Any) -> Any:
        return [
            Send("tools", [{**c, "type": "tool_call"}]) for c in state["messages"][-1].tool_calls
        ]

    builder = StateGraph(Noted)
    builder.add_node("agent", lambda _: {"messages": [message]})
    builder.add_node("tools", recorded([*world.tools(), note]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", send_each, ["tools"])
    return builder.compile(checkpointer=saver)


@pytest.mark.sample(5)
@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("build", [*WITH_SEND.values(), sent_loop])
def test_an_update_between_pause_and_resume_sends_no_second_mail(
    runs, world, build, updates, durability
):
    """The mail was sent before the pause; the new task returns its result."""

    def scenario(saver):
        app = build(world, saver, PAIR)
        yield app, "invoke", GO, THREAD, Named(durability=durability)
        for _ in range(updates):
            node = "model" if build is modern_agent else "agent"
            yield app, "update_state", THREAD, {"messages": []}, node
        return (yield app, "invoke", Command(resume="yes"), THREAD, Named(durability=durability))

    assert results(runs(scenario)) == DONE
    assert world.did == ONCE


def test_a_command_keeps_its_other_writes(runs, world):
    """`notes` is written again with the message, and the tool is not run again."""

    def scenario(saver):
        app = sent_loop(world, saver, ask(("note", "mia", "c1"), ("wire", "eve", "c2")))
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"flag": True}, "agent"
        return (yield app, "invoke", Command(resume="yes"), THREAD)

    state = runs(scenario)
    assert state["notes"] == ["mia"]
    assert results(state) == {"c1": "noted mia", "c2": "wired to eve: yes"}
    assert world.did == {"note mia": 1, "wire eve": 1}


@pytest.mark.parametrize(
    "other",
    [
        ask(("mail", "mia", "c1"), ("wire", "eve", "c2")),
        ask(("mail", "bob", "c1"), ("wire", "eve", "c2"), message_id="ai2"),
    ],
    ids=["other arguments", "another message"],
)
@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_another_call_with_the_same_id_runs(runs, world, other, durability):
    """An edited call, and an id that a server uses again: the old result is not theirs."""

    def scenario(saver):
        app = sent_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD, Named(durability=durability)
        yield app, "update_state", THREAD, {"messages": [other]}, "agent"
        yield app, "invoke", Command(resume="yes"), THREAD, Named(durability=durability)

    runs(scenario)
    assert sum(times for did, times in world.did.items() if "mail" in did) == 2


def test_a_fork_runs_its_calls_again(runs, world):
    """`update_state` on an older checkpoint is a fork."""

    def scenario(saver):
        app = sent_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        paused = (yield app, "get_state", THREAD).config
        yield app, "invoke", Command(resume="yes"), THREAD
        fork = yield app, "update_state", paused, {"flag": True}, "agent"
        yield app, "invoke", Command(resume="yes"), fork

    runs(scenario)
    assert world.did["mail bob"] == 2


def test_calls_of_one_id_keep_their_own_results(runs, world):
    """The start marks tell two calls with one id apart."""
    message = ask(("mail", "bob", "c"), ("mail", "mia", "c"), ("wire", "eve", "c2"))

    def scenario(saver):
        app = sent_loop(world, saver, message)
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"flag": True}, "agent"
        return (yield app, "invoke", Command(resume="yes"), THREAD)

    texts = sorted(m.content for m in runs(scenario)["messages"] if isinstance(m, ToolMessage))
    assert texts == ["sent to bob", "sent to mia", "wired to eve: yes"]
    assert world.did == {"mail bob": 1, "mail mia": 1, "wire eve": 1}
