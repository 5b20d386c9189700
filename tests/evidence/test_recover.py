"""What models read of calls without a result: what the checkpoints recorded, or nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt

from kit import KINDS, OWN_TASKS, Agent, Desk, calls, loop, results_in, send_each
from langgraph_patch import is_placeholder, validate_messages, with_patching
from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.history.calls import read_calls
from support.savers import Counting
from support.supersteps import ASKS, GO, Thread, made, ran, sent, short

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TURN = calls(MAIL, WIRE)
UNKNOWN = "No result of tool call {} with id {} is known; it may or may not have run."
WAITED = (
    "Tool call wire with id {} was waiting for human input when another message came in; "
    "no answer and no result were recorded."
)
FORBIDDEN = ("was cancelled", "no answer came", "was not run", "did not finish")
FOUND = {"c1": "sent to bob", "c2": WAITED.format("c2")}
NOTHING = {"c1": UNKNOWN.format("mail", "c1"), "c2": UNKNOWN.format("wire", "c2")}

both_ways = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


class Tools:
    """Other tools than those of the kit."""

    def __init__(self, *tools: Any) -> None:
        self.own = tools

    def tools(self) -> list[Any]:
        """The tools."""
        return list(self.own)


def each(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    """A loop with a task for each call; an error is an error."""
    node = ToolNode(tools, handle_tool_errors=False)
    graph = loop(model, node, router=send_each).compile(checkpointer=saver)
    return with_patching(graph, **options)


# --- a new message instead of an answer ---------------------------


@pytest.mark.parametrize(
    ("kind", "asynchronous", "durability"),
    list(zip(KINDS, cycle([False, True]), cycle(["sync", "async", "exit"]), strict=False)),
)
def test_a_new_message_instead_of_an_answer(kind: str, durability: str, *, asynchronous: bool):
    """The model reads that the mail was sent and that the wire was waiting; one mail is sent.

    Where one task ran both calls, nothing is known of either.
    """
    agent = Agent(kind, TURN, asynchronous=asynchronous)
    agent.say("pay bob", durability=durability)
    agent.say("never mind", durability=durability)
    assert agent.read == agent.results == (FOUND if kind in OWN_TASKS else NOTHING)
    assert validate_messages(agent.history) == []
    for message in agent.history:
        if isinstance(message, ToolMessage):
            assert message.status == ("error" if is_placeholder(message) else "success")
    assert agent.desk.did == {"mail bob": 1}


async def test_an_asynchronous_database():
    """The same with a checkpointer that has no synchronous form."""
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        agent = Agent("create_agent", TURN, saver=saver)
        for text in ("pay bob", "never mind"):
            await agent.graph.ainvoke({"messages": [HumanMessage(text)]}, agent.config)
    assert agent.read == FOUND


@pytest.mark.parametrize("kind", ["hand_built", "recorded"])
def test_checkpoints_are_only_read(kind: str):
    """Finding evidence changes nothing in the checkpointer."""
    with SqliteSaver.from_conn_string(":memory:") as saver, closing(saver.conn):
        agent = Agent(kind, TURN, saver=saver)
        agent.say("pay bob")

        def stored() -> list[Any]:
            rows = saver.list(agent.config)
            return [(row.checkpoint, row.metadata, row.pending_writes) for row in rows]

        before = stored()
        place: Any = {"configurable": {"thread_id": "1"}}
        history = agent.history[:2]
        found = run_sync(recover_evidence(saver, place, history, read_calls(history[-1], 1)))
        assert stored() == before
    expected = ["sent to bob", "awaiting_input | paused | look again"]
    assert [*map(short, found.evidence.values())] == (
        expected if kind == "recorded" else ["unknown"] * 2
    )


def run(search: Any) -> Recovery:
    """Run a search asynchronously."""
    return asyncio.run(run_async(search))


@pytest.mark.parametrize("kind", ["hand_built", "send", "create_agent", "middleware"])
def test_a_healthy_thread_is_not_read(kind: str):
    """Parallel calls, a pause, its answer and more turns: as many reads as without recovery."""
    used = []
    for recover in (True, False):
        saver = Counting()
        agent = Agent(kind, TURN, saver=saver, recover=recover)
        agent.say("pay bob")
        agent.resume()
        agent.say("thanks")
        used.append(saver.used)
    assert used[0] == used[1]
    assert used[0]["list"] == 0


@both_ways
def test_recovery_switched_off(*, asynchronous: bool):
    """With `recover=False` the checkpointer is not read, and nothing is claimed."""
    saver = Counting()
    agent = Agent("create_agent", TURN, saver=saver, asynchronous=asynchronous, recover=False)
    for text in ("pay bob", "never mind"):
        agent.say(text)
    assert saver.used["list"] == 0
    assert agent.read == NOTHING


@pytest.mark.parametrize("shape", ["message", "command"])
def test_a_recovered_result_is_whole(shape: str):
    """Content blocks, artifact, status and name come back; also out of a tool's `Command`."""
    content = [{"type": "text", "text": "sent to bob"}]
    whole = ToolMessage(
        content, name="mail", tool_call_id="c1", artifact={"size": 3}, status="error", id="r1"
    )

    @tool
    def mail(to: str) -> Command | ToolMessage:
        """Return a message, or a Command that holds it."""
        return Command(update={"messages": [whole]}) if shape == "command" else whole

    desk: Any = Tools(mail, Desk().tools()[1])
    with SqliteSaver.from_conn_string(":memory:") as saver, closing(saver.conn):
        agent = Agent("create_agent", TURN, saver=saver, desk=desk)
        for text in ("pay bob", "never mind"):
            agent.say(text)
        assert agent.history[2] == whole
    assert agent.model.seen[-1][2] == whole


async def test_a_cancelled_run():
    """A recorded cancellation is reported as one, and nothing more."""
    begun = asyncio.Event()

    @tool
    async def slow() -> str:
        """Take too long."""
        begun.set()
        await asyncio.sleep(60)
        return "late"

    @tool
    async def mail(to: str) -> str:
        """Mail."""
        return f"sent to {to}"

    desk: Any = Tools(mail, slow)
    agent = Agent("create_agent", calls(MAIL, ("slow", {})), desk=desk)
    running = asyncio.create_task(agent.graph.ainvoke({"messages": [GO]}, agent.config))
    await begun.wait()
    await asyncio.sleep(0.05)  # until the mail is stored
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await agent.graph.ainvoke({"messages": [HumanMessage("never mind")]}, agent.config)
    assert agent.read == {
        "c1": "sent to bob",
        "c2": "Tool call slow with id c2: a cancellation was recorded; it may have taken effect, "
        "in whole or in part.",
    }


# --- results that a client sends ---------------------------


def frontend(content: str, prefix: str) -> list[Any]:
    """What a frontend sends before the next message: a result for each open call."""
    return [ToolMessage(content, tool_call_id=c, id=f"{prefix}{c}") for c in ("c1", "c2")]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (frontend("Successfully handled tool call.", "do-not-render-"), FOUND),
        (frontend('{"cancelled":true}', "aui-"), FOUND),
        (frontend("by hand", "r"), {"c1": "by hand", "c2": "by hand"}),
    ],
    ids=["agent-chat-ui", "assistant-ui", "genuine"],
)
def test_f39_what_clients_send(results: list[Any], expected: dict[str, str]):
    """What was recorded replaces the inventions of known clients; other results stay."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    agent.run({"messages": [*results, HumanMessage("never mind")]})
    assert agent.read == expected


def test_an_edited_result_is_left_alone():
    """An edit by `update_state` is no input, so the record does not replace it."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    agent.graph.update_state(agent.config, {"messages": frontend("edited", "r")}, as_node="tools")
    agent.say("and now?")
    assert agent.read == {"c1": "edited", "c2": "edited"}


# --- calls that may still run, or run again ---------------------------
# LangGraph does not wait until an answer is stored, and an answer by interrupt id is stored only
# when the task ends. So the record may show a call that waits, while its tool has worked.


@pytest.mark.parametrize("by_id", [False, True], ids=["plain", "by id"])
def test_a_message_while_an_approved_tool_is_at_work(*, by_id: bool):
    """The text is about the record, and the result that comes later replaces it."""
    begun, may_end, done = threading.Event(), threading.Event(), []

    @tool
    def wire(amount: int) -> str:
        """Wire money, if a human agrees."""
        answer = interrupt("wire?")
        done.append(amount)
        begun.set()
        may_end.wait(10)
        return f"wired: {answer}"

    desk: Any = Tools(wire)
    agent = Agent("send", calls(WIRE), desk=desk)
    agent.say("go")
    (asked,) = agent.interrupts
    answer = Command(resume={asked.id: "yes"} if by_id else "yes")
    approved = threading.Thread(target=agent.run, args=(answer,))
    approved.start()
    assert begun.wait(10)
    agent.say("are you there?")
    # A plain answer is recorded before the tool starts.
    assert agent.read["c1"] == (WAITED.format("c1") if by_id else UNKNOWN.format("wire", "c1"))
    may_end.set()
    approved.join(10)
    agent.say("and now?")
    assert agent.read["c1"] == "wired: yes"
    assert done == [5]


def test_two_approvals_of_which_one_raises_with_durability_exit():
    """LangGraph stores neither the answer nor the result of one that finishes after the error."""
    begun, failed, done = threading.Event(), threading.Event(), []

    class Watched(InMemorySaver):
        """Says when the error is stored."""

        def put_writes(self, config: Any, writes: Any, *args: Any) -> None:
            super().put_writes(config, writes, *args)
            if any(channel == "__error__" for channel, _ in writes):
                failed.set()

    @tool
    def wire(to: str) -> str:
        """Wire money, if a human agrees."""
        if interrupt(to) == "fail":
            begun.wait(10)
            raise ValueError("no account")
        done.append(to)
        begun.set()
        assert failed.wait(10)
        return f"wired to {to}"

    # LangGraph waits for all tasks if one raises before it has submitted the last: eve is the last.
    desk: Any = Tools(wire)
    turn = calls(("wire", {"to": "mia"}), ("wire", {"to": "eve"}))
    agent = Agent(each, turn, saver=Watched(), desk=desk)
    agent.say("go", durability="exit")
    answers = {i.id: "fail" if i.value == "eve" else "yes" for i in agent.interrupts}
    with pytest.raises(ValueError, match="no account"):
        agent.run(Command(resume=answers), durability="exit")
    agent.say("what happened?", durability="exit")
    assert done == ["mia"]
    assert agent.read["c1"] == WAITED.format("c1")
    assert not any(words in text for text in agent.read.values() for words in FORBIDDEN)


def retried(error: type[Exception], attempts: int = 2) -> Callable[..., Any]:
    """A loop with a task for each call, which runs again after an error."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        builder = loop(model, ToolNode(tools, handle_tool_errors=False), router=send_each)
        retry = RetryPolicy(
            max_attempts=attempts, initial_interval=0.01, jitter=False, retry_on=error
        )
        builder.nodes["tools"].retry_policy = retry
        return with_patching(builder.compile(checkpointer=saver))

    return build


def test_a_goto_beside_a_failed_call():
    """The model reads the last recorded attempt while the tool runs again, then the result."""
    tries: list[int] = []

    @tool
    def flaky() -> str:
        """Raise once, then work for a while."""
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("kaput")
        time.sleep(0.2)
        return "at last"

    desk: Any = Tools(flaky)
    agent = Agent(each, calls(("flaky", {})), desk=desk)
    with pytest.raises(ValueError, match="kaput"):
        agent.say("go", durability="sync")
    agent.run(Command(goto="agent"), durability="sync")
    text = results_in(agent.model.seen[1])["c1"]
    assert text == (
        "Tool call flaky with id c1 failed in its last recorded attempt: ValueError('kaput')"
    )
    agent.say("and now?", durability="sync")
    assert agent.read["c1"] == "at last"


@pytest.mark.needs(langgraph="1.1.3")
@pytest.mark.parametrize("fails", [1, 9])
def test_attempts_of_a_call(fails: int):
    """An attempt that failed is over when the next one waits; the last error counts."""
    left = iter(range(fails))

    @tool
    def flaky() -> str:
        """Raise, then wait."""
        if (number := next(left, None)) is not None:
            raise RuntimeError(f"no route {number}")
        return str(interrupt("sure?"))

    desk: Any = Tools(flaky)
    agent = Agent(retried(RuntimeError, 3), calls(("flaky", {})), desk=desk)
    with nullcontext() if fails == 1 else pytest.raises(RuntimeError):
        agent.say("go")
    agent.say("never mind")
    if fails == 1:
        assert agent.read["c1"] == WAITED.replace("wire", "flaky").format("c1")
    else:
        assert agent.read["c1"].endswith(": RuntimeError('no route 2')")


def test_a_run_that_goes_on_no_longer_asks_and_dies():
    """`invoke(None)` runs the tool again; the record of its question stays true."""
    asks, done = [True], []

    @tool
    def wire(amount: int) -> str:
        """Ask only once, then die after the work."""
        if asks:
            asks.pop()
            interrupt("sure?")
        done.append("wired")
        raise KeyboardInterrupt

    desk: Any = Tools(wire)
    agent = Agent("send", calls(WIRE), desk=desk)
    agent.say("go")
    with pytest.raises(KeyboardInterrupt):
        agent.run(None)
    agent.say("what happened?")
    assert done == ["wired"]
    assert not any(words in agent.read["c1"] for words in FORBIDDEN)
    assert "recorded" in agent.read["c1"]


def test_a_fork_knows_nothing_of_the_other_branch():
    """The call worked on another branch: on this one it is stated what this one recorded."""
    agent = Agent("send", calls(WIRE))
    agent.say("go")
    paused = agent.graph.get_state(agent.config).config
    agent.run(Command(resume="yes"))
    agent.graph.invoke({"messages": [HumanMessage("no, wait")]}, paused)
    assert agent.desk.did == {"wire 5": 1}
    # What is stored of the superstep before the fork belongs to both branches.
    assert agent.read["c1"] in (
        WAITED.format("c1"), UNKNOWN.format("wire", "c1"), "wired 5: yes"
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["raises", "asks"])
def test_a_wrapper_that_does_something_after_the_tool(ending: str):
    """The tool has run: nothing states that it was not run, or that it failed in its last run."""

    def wrapper(request: Any, execute: Any) -> Any:
        result = execute(request)
        if ending == "raises":
            raise PermissionError("audit")
        interrupt("audited?")
        return result

    def build(model: Any, tools: Any, saver: Any) -> Any:
        node = ToolNode(tools, wrap_tool_call=wrapper)
        return with_patching(loop(model, node, router=send_each).compile(checkpointer=saver))

    agent = Agent(build, calls(MAIL))
    with pytest.raises(PermissionError) if ending == "raises" else nullcontext():
        agent.say("go")
    agent.say("what happened?")
    assert agent.desk.did == {"mail bob": 1}
    error = "failed in its last recorded attempt: PermissionError('audit')"
    assert (error if ending == "raises" else "no answer and no result") in agent.read["c1"]
    assert not any(words in agent.read["c1"] for words in FORBIDDEN)


def test_a_payment_that_ends_after_the_next_message():
    """An answer by id leaves no trace while the tool works: the next turn searches once more."""
    working, ended, saver = threading.Event(), threading.Event(), InMemorySaver()

    @tool
    def wire(amount: int) -> str:
        """Wait for a human, then work."""
        answer = interrupt("1000 EUR?")
        working.set()
        ended.wait(20)
        return f"wired: {answer}"

    desk: Any = Tools(wire)
    agent = Agent("create_agent", calls(WIRE), saver=saver, desk=desk)
    other = with_patching(create_agent(agent.model, [wire], checkpointer=saver))
    agent.say("pay")
    answer = Command(resume={agent.interrupts[0].id: "yes"})
    other.step_timeout = 0.1  # so that it makes no checkpoint after the tool

    def approve() -> None:
        with suppress(TimeoutError):
            other.invoke(answer, agent.config)

    approval = threading.Thread(target=approve)
    approval.start()
    assert working.wait(10)
    agent.say("never mind")
    assert agent.read == {"c1": WAITED.format("c1")}
    time.sleep(0.15)  # until the time limit is over
    ended.set()
    approval.join(10)
    agent.say("and?")
    assert agent.read == {"c1": "wired: yes"}


def test_200_parallel_calls():
    """Each of them has its own finding."""
    message = made(*(f"mail:c{n}" for n in range(199)), "wire:w")
    thread = Thread(message)
    thread.add(**sent(*(f"sent {n}" for n in range(199)), ASKS))
    assert thread.findings() == [*(f"sent {n}" for n in range(199)), "awaiting_input | paused"]


# --- whether the next turn looks again ---------------------------


def ago(**duration: float) -> str:
    """A time in the past, as a checkpoint stores it."""
    return (datetime.now(UTC) - timedelta(**duration)).isoformat()


BOTH = made("mail:c1", "wire:c2")
NEWS = ran("agent", source="input", history=[GO, BOTH, HumanMessage("more", id="h2")])
ENDED = ["sent", "awaiting_input | look again"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (sent("sent", ASKS, ts=ago(minutes=9)), ENDED),
        (sent("sent", ASKS, ts=ago(minutes=11)), ["sent", "awaiting_input"]),
        (sent("sent", None, ts=ago(minutes=9)), ["sent", "unknown | look again"]),
        (sent("sent", None, ts=ago(minutes=11)), ["sent", "unknown"]),
        (ran("tools", ts=ago(minutes=9)), ["unknown | look again"] * 2),
        (ran("tools", wrote=[RuntimeError("x")], ts=ago(minutes=9)), ["unknown"] * 2),
        (ran("tools", wrote=[("__error__", "CancelledError()")], ts=ago(minutes=9)), [
            "unknown | look again"
        ] * 2),
        (ran(ts=ago(minutes=9)), ["unknown"] * 2),
        (ran("agent", history=[GO], ts=ago(minutes=9)), ["unknown"] * 2),
    ],
)  # fmt: skip
def test_whether_the_next_turn_looks_again(step: dict[str, Any], expected: list[str]):
    """A task that began less than ten minutes ago may end, or may run again after an answer."""
    thread = Thread(BOTH)
    thread.add(**step)
    thread.add(**NEWS)
    assert thread.findings() == expected


def test_a_run_that_is_over():
    """Nothing waits any more, and nothing is looked for again."""
    thread = Thread(BOTH)
    thread.add(**sent(None, ASKS, ts=ago(seconds=0)))
    begun = time.monotonic()
    found = thread.search(is_over=True)
    assert time.monotonic() - begun < 0.3
    assert [*map(short, found.evidence.values())] == ["unknown", "awaiting_input"]
    other = Thread(made("wire:c1"))
    other.add(**ran("HumanInTheLoopMiddleware.after_model", wrote=[ASKS]))
    assert [*map(short, other.search(is_over=True).evidence.values())] == ["not_started | approval"]


class Slow(InMemorySaver):
    """Stores what a task wrote a moment after it was searched for."""

    late: Any = None
    searches = 0

    def get_tuple(self, config: Any) -> Any:
        self.searches += not config["configurable"]["checkpoint_ns"]
        if self.late and self.searches == 2:
            self.put_writes(*self.late)
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    def list(self, *args: Any, **options: Any) -> Iterable[Any]:
        return super().list(*args, **options)


@pytest.mark.parametrize(("seconds", "searches"), [(4, 2), (6, 1)])
@both_ways
def test_a_result_that_is_being_stored(seconds: int, searches: int, *, asynchronous: bool):
    """LangGraph does not wait until it is: of a task that has just begun it is searched again."""
    thread = Thread(made("mail:c1"))
    thread.add(**sent(None, ts=ago(seconds=seconds)))
    (task,) = thread.step.tasks
    thread.saver.__class__ = Slow
    thread.saver.late = (thread.config, [("messages", [ToolMessage("sent", tool_call_id="c1")])],
                         task.id)  # fmt: skip
    if asynchronous:
        history = [GO, thread.message]
        wanted = read_calls(thread.message, 1)
        found = run(recover_evidence(thread.saver, thread.config, history, wanted))
        assert [*map(short, found.evidence.values())] == (
            ["sent"] if searches == 2 else ["unknown | look again"]
        )
    else:
        assert thread.findings() == (["sent"] if searches == 2 else ["unknown | look again"])
    assert thread.saver.searches == searches


@pytest.mark.parametrize("ended", [ASKS, RuntimeError("x")])
def test_nothing_waits_for_a_task_that_has_ended(ended: Any):
    """After a pause and after an error one search is enough."""
    thread = Thread(BOTH)
    thread.add(**ran("tools", wrote=[ended], ts=ago(seconds=0)))
    thread.saver.__class__ = Slow
    thread.findings()
    assert thread.saver.searches == 1


# --- what cannot be searched ---------------------------


def test_what_cannot_be_searched():
    """No calls, a call without an id, a thread without checkpoints."""
    nothing: Any = {"configurable": {"thread_id": "2"}}
    saver = Counting()
    unnamed = AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": None}])
    message = made("mail:c1")
    search = recover_evidence(saver, nothing, [message], [])
    assert run(search) == Recovery()
    assert not saver.used
    for each_message, expected in ((unnamed, "unknown"), (message, "unknown | look again")):
        wanted = read_calls(each_message)
        found = run(recover_evidence(saver, nothing, [each_message], wanted)).evidence
        assert [*map(short, found.values())] == [expected]


def test_a_history_under_another_key():
    """Its messages and results are read there."""
    thread = Thread(made("mail:c1"))
    values = {"chat": [GO, thread.message]}
    thread.add(**ran("tools", wrote=[("chat", [ToolMessage("sent", tool_call_id="c1")])],
                     values=values))  # fmt: skip
    thread.add(**ran("agent", values=values))
    found = thread.search(messages_key="chat").evidence
    assert [*map(short, found.values())] == ["sent"]
    assert thread.findings() == ["unknown"]
