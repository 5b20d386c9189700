"""What a model reads where a client invents results, and where a lookup settles a killed call."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from langgraph_patch import with_patching
from support.agents import CREATE_AGENT, thread
from support.evidence_agents import BOTH, CONFIG, agent, run_until_stop
from support.paths import ENVIRONMENT
from support.paused_agents import paused_agent
from support.running import run
from support.strict import StrictModel

WAITED = (
    "Tool call wire_money with id c2 was waiting for human input when another message came in; "
    "no answer and no result were recorded."
)


def read_by(model: StrictModel) -> dict[str, str]:
    """The results that the model read last."""
    return {m.tool_call_id: m.text for m in model.seen[-1] if isinstance(m, ToolMessage)}


def read_after(sent: list[Any]) -> dict[str, str]:
    """The results that the model reads after a client sent these messages to a pause."""
    saver = InMemorySaver()
    run_until_stop(agent([BOTH], saver), {"messages": [HumanMessage("go", id="h1")]})
    model = StrictModel(script=[AIMessage("fine")])
    graph = with_patching(create_agent(model, TOOLS, checkpointer=saver))
    graph.invoke({"messages": sent}, CONFIG)
    return read_by(model)


def frontend(content: str, prefix: str) -> list[Any]:
    """What a frontend sends with the next message: a result for each open call."""
    made = [ToolMessage(content, tool_call_id=c, id=f"{prefix}{c}") for c in ("c1", "c2")]
    return [*made, HumanMessage("never mind", id="h2")]


@pytest.mark.parametrize(
    "sent",
    [
        frontend("Successfully handled tool call.", "do-not-render-"),
        frontend('{"cancelled":true}', "aui-"),
    ],
    ids=["agent-chat-ui", "assistant-ui"],
)
def test_what_clients_invent(sent):
    """A recorded result or cause replaces the inventions of known clients."""
    assert read_after(sent) == {"c1": "sent to bob", "c2": WAITED}


def test_a_genuine_result_of_a_frontend():
    """No task of the graph ran the call, so the frontend's result is the only one, and stays."""
    ask = AIMessage("", id="m1", tool_calls=[{"name": "ask_user", "args": {}, "id": "c1"}])
    saver = InMemorySaver()
    model = StrictModel(script=[AIMessage("fine")])
    graph = with_patching(create_agent(model, TOOLS, checkpointer=saver))
    graph.update_state(CONFIG, {"messages": [HumanMessage("go"), ask]}, as_node="__start__")
    answer = ToolMessage("blue", tool_call_id="c1", id="r1")
    graph.invoke({"messages": [answer, HumanMessage("so?")]}, CONFIG)
    assert read_by(model) == {"c1": "blue"}


# --- a payment that was killed ------------------------------------------------------------------


@tool
def send_email() -> str:
    """Send."""
    return "sent to bob"


@tool
def wire_money() -> str:
    """Wait for a human."""
    return f"wired: {interrupt('1000 EUR?')}"


TOOLS = [send_email, wire_money]

KILLED = """
import os, signal, sqlite3
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from support.evidence_agents import CONFIG, human_input
from support.strict import StrictModel

@tool
def wire_money() -> str:
    "Pay, and be killed before the result is recorded."
    os.kill(os.getpid(), signal.SIGKILL)

call = {{"name": "wire_money", "args": {{}}, "id": "c1"}}
model = StrictModel(script=[AIMessage("", id="m1", tool_calls=[call])])
saver = SqliteSaver(sqlite3.connect({path!r}, check_same_thread=False))
graph = create_agent(model, [wire_money], checkpointer=saver)
graph.invoke(human_input("pay"), CONFIG, durability="sync")
"""


@pytest.fixture
def killed(tmp_path):
    """The saver of a thread whose process was killed in `wire_money`."""
    path = str(tmp_path / "threads.db")
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(KILLED.format(path=path))],
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == -9
    with SqliteSaver.from_conn_string(path) as saver:
        yield saver


def bank(call: Any) -> str:
    """What the bank knows."""
    return f"booked: payment of call {call.tool_call_id}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reconcile", "text"),
    [
        ({}, "No result of tool call wire_money with id c1 is known; it may or may not"),
        ({"wire_money": bank}, "booked: payment of call c1"),
    ],
)
def test_a_killed_payment_in_a_run(killed, reconcile, text):
    """The lookup settles what the record cannot."""
    model = StrictModel(script=[AIMessage("fine")])
    graph = create_agent(model, TOOLS, checkpointer=killed)
    graph = with_patching(graph, reconcile=reconcile)
    graph.invoke({"messages": [HumanMessage("and?")]}, CONFIG)
    assert read_by(model)["c1"].startswith(text)


# --- a payment that was approved, and ended later ------------------------------------------------


def test_a_payment_that_ends_after_the_next_message():
    """An answer by id leaves no trace while the tool works: the next turn searches once more."""
    working, ended, saver = threading.Event(), threading.Event(), InMemorySaver()

    @tool
    def wire_money() -> str:
        """Wait for a human, then work."""
        answer = interrupt("1000 EUR?")
        working.set()
        ended.wait(20)
        return f"wired: {answer}"

    call = {"name": "wire_money", "args": {}, "id": "c2"}
    first = AIMessage("", id="m1", tool_calls=[call])
    model = StrictModel(script=[first, *(AIMessage(f"fine {n}") for n in range(3))])
    graph, other = (
        with_patching(create_agent(model, [wire_money], checkpointer=saver)) for _ in range(2)
    )
    asked = graph.invoke({"messages": [HumanMessage("pay")]}, CONFIG)["__interrupt__"]
    other.step_timeout = 0.2  # so that it makes no checkpoint after the tool

    def approve() -> None:
        with suppress(TimeoutError):
            other.invoke(Command(resume={asked[0].id: "yes"}), CONFIG)

    approval = threading.Thread(target=approve)
    approval.start()
    assert working.wait(10)
    graph.invoke({"messages": [HumanMessage("never mind")]}, CONFIG)
    assert read_by(model) == {"c2": WAITED}
    time.sleep(0.4)  # until the time limit is over
    ended.set()
    approval.join(10)
    graph.invoke({"messages": [HumanMessage("and?")]}, CONFIG)
    assert read_by(model) == {"c2": "wired: yes"}


def results(messages: Any) -> dict[str, str]:
    """The text of each result."""
    return {m.tool_call_id: str(m.content) for m in messages if isinstance(m, ToolMessage)}


async def test_an_edited_result_is_left_alone():
    """An edit by `update_state` is no input, so the record does not replace it."""
    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"))
    edited = [ToolMessage("edited", tool_call_id=call) for call in ("c1", "c2")]
    bench.graph.update_state(thread(), {"messages": edited}, as_node="tools")
    graph = with_patching(bench.graph)
    await run(graph, "and now?")
    assert results(bench.model.seen[-1]) == {"c1": "edited", "c2": "edited"}
