"""A call that was answered, started again or left at work: the model reads about the record only.

LangGraph does not wait until an answer is stored, and an answer by interrupt id is stored only
when the task ends. So the record may show a call that waits, while its tool has worked.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from langgraph_patch import with_patching
from support.agents import human, thread
from support.strict import StrictModel, ai

WAITED = "was waiting for human input when another message came in"
FORBIDDEN = ("was cancelled", "no answer came", "was not run", "did not finish")


class Desk:
    """An agent with a task for each call, and what its tools did."""

    def __init__(self, first: AIMessage, *, saver: Any = None, **tools: Any):
        self.done: list[str] = []
        self.model = StrictModel(script=[first, *[AIMessage("fine") for _ in range(4)]])
        builder = StateGraph(MessagesState)
        builder.add_node("agent", lambda s: {"messages": [self.model.invoke(s["messages"])]})
        retry = RetryPolicy(max_attempts=2, initial_interval=0.01, retry_on=ConnectionError)
        builder.add_node("tools", ToolNode(self.tools(**tools)), retry_policy=retry)
        builder.add_edge(START, "agent").add_edge("tools", "agent")
        builder.add_conditional_edges("agent", _send_each, ["tools", "__end__"])
        self.saver = saver or InMemorySaver()
        self.graph = with_patching(builder.compile(checkpointer=self.saver))

    def tools(self, work: Any = lambda: None, fails: Any = lambda: None) -> list[Any]:
        """The tools. `work` is called when money is wired, `fails` before an error."""

        @tool
        def wire_money(to: str) -> str:
            """Wire money, if a human agrees."""
            answer = interrupt(f"wire to {to}?")
            if answer == "fail":
                fails()
                raise ValueError(f"no account {to}")
            self.done.append(to)
            work()
            return f"wired to {to}"

        @tool
        def flaky() -> str:
            """Raise once, then work for a while."""
            self.done.append("try")
            if len(self.done) == 1:
                raise ConnectionError("kaput")
            time.sleep(0.4)
            self.done.append("flaky")
            return "at last"

        return [wire_money, flaky]

    def run(self, value: Any, **options: Any) -> None:
        """One run."""
        value = {"messages": [human(value)]} if isinstance(value, str) else value
        self.graph.invoke(value, thread(), **options)

    def read(self) -> dict[str, str]:
        """What the model read last about each call."""
        return {m.tool_call_id: m.text for m in self.model.seen[-1] if isinstance(m, ToolMessage)}


def _send_each(state: Any) -> Any:
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return [Send("tools", [{**call, "type": "tool_call"}]) for call in calls] or "__end__"


def wires(*receivers: str) -> AIMessage:
    """The model's message with a wire to each."""
    made = [("wire_money", {"to": to}, f"c{n}") for n, to in enumerate(receivers, 1)]
    return ai(*made, id="a1")


@pytest.mark.parametrize("by_id", [False, True], ids=["plain", "by id"])
def test_a_message_while_an_approved_tool_is_at_work(*, by_id: bool):
    """The text is about the record, and the result that comes later replaces it."""
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(10)

    desk = Desk(wires("eve"), work=work)
    desk.run("go", durability="sync")
    (asked,) = desk.graph.get_state(thread()).interrupts
    answer = Command(resume={asked.id: "yes"} if by_id else "yes")
    approved = threading.Thread(target=desk.run, args=(answer,), kwargs={"durability": "sync"})
    approved.start()
    assert begun.wait(10)
    desk.run("are you there?", durability="sync")
    text = desk.read()["c1"]
    assert not any(words in text for words in FORBIDDEN)
    assert (WAITED in text) is by_id  # a plain answer is recorded before the tool starts
    may_end.set()
    approved.join(10)
    desk.run("and now?", durability="sync")
    assert desk.read()["c1"] == "wired to eve"
    assert desk.done == ["eve"]


@pytest.mark.parametrize("slow", [False, True], ids=["stored", "lost"])
def test_a_plain_answer_and_a_kill_after_the_work(tmp_path: Any, *, slow: bool):
    """SIGKILL when the money is wired: the text agrees with what the database has."""
    path = tmp_path / "db.sqlite"

    class Slow(SqliteSaver):
        """A database that is slow to store answers."""

        def put_writes(self, config: Any, writes: Any, *args: Any) -> None:
            """Store the writes of a task."""
            if slow and any(channel == "__resume__" for channel, _ in writes):
                time.sleep(5)
            super().put_writes(config, writes, *args)

    def opened(kind: Any = SqliteSaver, **tools: Any) -> Desk:
        connection = sqlite3.connect(path, check_same_thread=False)
        return Desk(wires("eve"), saver=kind(connection), **tools)

    def die() -> None:
        time.sleep(0.3)  # LangGraph stores the answer in another thread
        os.kill(os.getpid(), signal.SIGKILL)

    first = opened()
    first.run("go", durability="sync")
    first.saver.conn.close()
    if (child := os.fork()) == 0:
        try:
            desk = opened(Slow, work=die)
            desk.run(Command(resume="yes"), durability="sync")
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    after = opened()
    after.model.script.pop(0)
    with closing(after.saver.conn):
        rows = list(after.saver.list(thread()))
        stored = any(c == "__resume__" for row in rows for _, c, _ in row.pending_writes)
        assert stored is not slow
        after.run("what happened?", durability="sync")
    text = after.read()["c1"]
    assert not any(words in text for words in FORBIDDEN)
    assert (WAITED in text) is not stored


def test_two_approvals_of_which_one_raises_with_durability_exit():
    """LangGraph stores neither the answer nor the result of one that finishes after the error."""
    begun, failed = threading.Event(), threading.Event()

    class Watched(InMemorySaver):
        """Says when the error is stored."""

        def put_writes(self, config: Any, writes: Any, *args: Any) -> None:
            """Store the writes of a task."""
            super().put_writes(config, writes, *args)
            if any(channel == "__error__" for channel, _ in writes):
                failed.set()

    def work() -> None:
        begun.set()
        assert failed.wait(10)

    # LangGraph waits for all tasks if one raises before it has submitted the last: eve is the last.
    calls = wires("mia", "eve")
    desk = Desk(calls, saver=Watched(), work=work, fails=lambda: begun.wait(10))
    desk.run("go", durability="exit")
    asked = desk.graph.get_state(thread()).interrupts
    answers = {i.id: "fail" if "eve" in i.value else "yes" for i in asked}
    with pytest.raises(ValueError, match="no account eve"):
        desk.run(Command(resume=answers), durability="exit")
    desk.run("what happened?", durability="exit")
    assert desk.done == ["mia"]
    assert desk.read()["c1"].endswith(f"{WAITED}; no answer and no result were recorded.")
    assert not any(words in text for text in desk.read().values() for words in FORBIDDEN)


def test_a_goto_beside_a_retry():
    """The model runs beside the tool's next attempt: the last recorded attempt is no last word."""
    desk = Desk(ai(("flaky", {}, "c1"), ("wire_money", {"to": "eve"}, "c2"), id="a1"))
    desk.run("go", durability="sync")
    assert desk.done == ["try", "try", "flaky"]
    desk.run(Command(goto="agent"), durability="sync")
    assert desk.read()["c1"] == "at last"
    assert "failed" not in desk.read()["c2"]


def test_a_run_that_goes_on_no_longer_asks_and_dies():
    """`invoke(None)` runs the tool again; the record of its question stays true."""
    asks = [True]

    @tool
    def wire_money() -> str:
        """Ask only once, then die after the work."""
        if asks.pop() if asks else False:
            interrupt("sure?")
        desk.done.append("wired")
        raise KeyboardInterrupt

    desk = Desk(ai(("wire_money", {}, "c1"), id="a1"))
    desk.graph.nodes["tools"].bound.tools_by_name["wire_money"] = wire_money
    desk.run("go", durability="sync")
    with pytest.raises(KeyboardInterrupt):
        desk.run(None, durability="sync")
    desk.run("what happened?", durability="sync")
    assert desk.done == ["wired"]
    assert not any(words in desk.read()["c1"] for words in FORBIDDEN)
    assert "recorded" in desk.read()["c1"]


def test_a_fork_knows_nothing_of_the_other_branch():
    """The call worked on another branch: on this one it is stated what this one recorded."""
    desk = Desk(wires("eve"))
    desk.run("go", durability="sync")
    paused = desk.graph.get_state(thread()).config
    desk.run(Command(resume="yes"), durability="sync")
    desk.graph.invoke({"messages": [human("no, wait")]}, paused, durability="sync")
    assert desk.done == ["eve"]
    assert WAITED in desk.read()["c1"] or desk.read()["c1"] == "wired to eve"
    assert not any(words in desk.read()["c1"] for words in FORBIDDEN)


@pytest.mark.parametrize("ending", ["raises", "asks"])
def test_a_wrapper_that_does_something_after_the_tool(ending: str):
    """The tool has run: nothing states that it was not run, or that it failed."""
    done: list[str] = []

    @tool
    def wire_money() -> str:
        """Wire."""
        done.append("wired")
        return "wired"

    def wrapper(request: Any, execute: Any) -> Any:
        result = execute(request)
        if ending == "raises":
            raise PermissionError("audit")
        interrupt("audited?")
        return result

    model = StrictModel(script=[ai(("wire_money", {}, "c1"), id="a1"), AIMessage("fine")])
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
    builder.add_node("tools", ToolNode([wire_money], wrap_tool_call=wrapper))
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", _send_each, ["tools", "__end__"])
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()))
    try:
        graph.invoke({"messages": [human("go")]}, thread())
    except PermissionError:
        assert ending == "raises"
    graph.invoke({"messages": [human("what happened?")]}, thread())
    (text,) = [m.text for m in model.seen[-1] if isinstance(m, ToolMessage)]
    assert done == ["wired"]
    if ending == "raises":
        assert "failed in its last recorded attempt: PermissionError('audit')" in text
    else:
        assert "no answer and no result were recorded" in text
    assert not any(words in text for words in FORBIDDEN)
