"""`once=[...]` in a life: other answers, other turns, polls, records that are gone or old."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from contextlib import nullcontext
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from kit import BARE, StrictModel, above, calling, calls, loop, model_node
from langgraph_patch import with_patching
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import run_sync
from langgraph_patch.errors import GraphError, StartedError
from langgraph_patch.evidence.claiming import Record
from langgraph_patch.evidence.claims import OLD_ROW, UNWRITTEN, Claim, is_record
from langgraph_patch.evidence.window import Reader
from langgraph_patch.threads import scan_threads
from support.bank import FAILED_TEXT, PAID, REFUSED, THREAD, Bank, Memory, Talk
from support.databases import execute, open_saver, sqlite_saver
from support.placeholder_texts import CANCELLED, UNKNOWN
from support.retention import JOBS

pytestmark = pytest.mark.needs(langgraph="1.2")


@pytest.mark.parametrize("first", ["yes", "no"])
@pytest.mark.parametrize("kind", ["hand_built", "create_agent", "recorded", "middleware"])
def test_a_fork_with_another_answer(kind, first):
    """The result of the first answer is none of the second one: it is refused."""
    talk = Talk(kind)
    talk.say("pay")
    asked = talk.graph.get_state(THREAD).config
    assert talk.answer(first) is None
    node = "model" if kind in ("create_agent", "middleware") else "agent"
    fork = talk.graph.update_state(asked, {"messages": []}, as_node=node)
    assert talk.run(None, fork) == REFUSED
    assert "was run with other answers of a human" in str(talk.error)
    assert talk.bank.paid == ([5] if first == "yes" else [])


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("ids", [["m1", "m1"], ["m1", "m2"]])
def test_a_message_that_is_made_again_in_a_later_turn(ids, *, is_kept):
    """A cache of model answers gives last week's message: its call is another one.

    Without the old checkpoints nobody can tell: it is given no result, and does not run.
    """
    bank = Bank(asks=False)
    script = [calls(("pay", {"amount": 5}), id=each) for each in ids]
    model = StrictModel(script=[script[0], AIMessage("Done."), script[1], AIMessage("Done.")])
    worker = BARE["create_agent"](model, [bank.tool], None)
    builder = StateGraph(MessagesState).add_node("worker", worker)
    builder.add_node("boss", lambda _: {}).add_edge(START, "boss")
    task = Send("worker", {"messages": [HumanMessage("pay", id="task")]})
    builder.add_conditional_edges("boss", lambda _: [task], ["worker"])
    saver = sqlite_saver()
    graph = with_patching(builder.compile(checkpointer=saver), once=["pay"])
    can_tell = is_kept or ids[0] != ids[1]
    graph.invoke({"messages": [HumanMessage("week")]}, THREAD)
    if not is_kept:
        saver.conn.execute("DELETE FROM checkpoints WHERE checkpoint_ns = ''")
    with nullcontext() if can_tell else pytest.raises(StartedError, match="was used before"):
        graph.invoke({"messages": [HumanMessage("week")]}, THREAD)
    assert bank.paid == [5, 5][: 1 + can_tell]


@pytest.mark.parametrize("kind", ["hand_built", "create_agent", "recorded", "node"])
def test_polls_leave_nothing(kind):
    """A thread that waits is polled: no row is added, and the question and its answer stay."""
    talk = Talk(kind, saver=InMemorySaver())
    talk.say("pay")
    talk.run(None)
    count = lambda: sum(map(len, talk.saver.writes.values()))
    before = count(), talk.graph.get_state(THREAD).interrupts
    for _ in range(20):
        assert talk.run(None) is None
    assert (count(), talk.graph.get_state(THREAD).interrupts) == before
    assert talk.run(Command(resume={before[1][0].id: "yes"})) is None
    assert (talk.bank.paid, talk.read) == ([5], PAID)


def test_texts_that_are_answers():
    """After one error the failed call is told to the model, and the chat goes on."""

    def build(model, tools, saver, **options):
        builder = loop(model, ToolNode(tools, handle_tool_errors=False))
        return with_patching(builder.compile(checkpointer=saver), **options)

    talk = Talk(build, bank=Bank(asks=False))
    talk.bank.fails = True
    assert talk.say("pay") == "RuntimeError"
    texts = [Command(resume=text) for text in ("hello?", "are you there?")]
    assert [talk.run(each) for each in (None, *texts)] == [REFUSED, None, None]
    assert (talk.bank.paid, talk.read) == ([5], FAILED_TEXT)


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("wrapper", ["none", "synchronous", "asynchronous", "both"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_no_wait_in_the_event_loop(kind, wrapper, durability, tmp_path):
    """A synchronous wrapper under `ainvoke` is refused before the tool, if it would wait."""
    bank = Bank(asks=False)

    def wrap(request, handler):
        return handler(request)

    async def awrap(request, handler):
        return await handler(request)

    own: Any = {"wrap_tool_call": wrap, "awrap_tool_call": awrap}
    names = {"synchronous": ["wrap_tool_call"], "asynchronous": ["awrap_tool_call"], "both": own}
    node = ToolNode([bank.tool], **{name: own[name] for name in names.get(wrapper, ())})
    builder = loop(StrictModel(script=[calls(("pay", {"amount": 5}))]), node)

    async def run(saver: Any) -> None:
        graph = with_patching(builder.compile(checkpointer=saver), once=["pay"])
        question = {"messages": [HumanMessage("pay")]}
        await asyncio.wait_for(graph.ainvoke(question, THREAD, durability=durability), 20)

    async def main() -> None:
        if kind == "memory":
            return await run(InMemorySaver())
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "db")) as saver:
            return await run(saver)

    if (kind, wrapper) == ("sqlite", "synchronous"):
        with pytest.raises(GraphError, match=r"awrap_tool_call\), or run the graph with invoke"):
            asyncio.run(main())
        assert bank.paid == []
    else:
        asyncio.run(main())
        assert bank.paid == [5]


@pytest.mark.parametrize("jumps", [*itertools.product([-86_400, 0, 3], repeat=2)])
@pytest.mark.parametrize("kind", ["create_agent", "node"])
def test_a_clock_that_jumps(kind, jumps, monkeypatch):
    """Between the question, its answer and the next one; each run is a process of its own."""
    now, now_ns = time.time, time.time_ns
    talk, raised = Talk(kind), []
    for jump in (0, *jumps):
        monkeypatch.setattr(time, "time", lambda jump=jump: now() + jump)
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: now_ns() + jump * 10**9)
        monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", None)
        raised.append(talk.answer("yes") if raised else talk.say("pay"))
    for state in [*talk.graph.get_state_history(THREAD)]:
        if state.next:
            raised += [talk.answer("yes", state.config), talk.run(None, state.config)]
    assert (talk.bank.paid, {*raised} - {None, REFUSED, "EmptyInputError"}) == ([5], set())


class Forgets(Memory):
    """Loses the n-th write that gives a claim back, in silence."""

    lost = 1
    count = 0

    def put_writes(self, config, writes, *args):
        self.count += writes[0][0] == "paused"
        if (writes[0][0], self.count) != ("paused", self.lost):
            super().put_writes(config, writes, *args)


class Curious(Bank):
    """Asks two questions."""

    def ask(self):
        return interrupt("which day?"), interrupt("pay?")


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("kind", ["create_agent", "recorded", "hand_built", "node"])
def test_a_question_that_is_stored_gives_the_claim_back(kind, lost):
    """What LangGraph stored of the task shows that its tool asks: the answer runs it."""
    Forgets.lost = lost
    talk = Talk(kind, saver=Forgets(), bank=Curious())
    raised = [talk.say("pay"), talk.run(None), talk.answer("yes"), talk.answer("yes")]
    assert (raised, talk.bank.paid) == ([None] * 4, [5])
    assert talk.saver.count > lost


def test_a_question_of_another_does_not_give_the_claim_back():
    """A wrapper asks while the tool works: that shows nothing of the tool."""
    asks: list[int] = []

    @wrap_tool_call
    def limits(request, handler):
        return handler(request) if not asks else interrupt(f"limit {asks.pop()}?")

    def build(model, tools, saver, **options):
        agent = BARE["create_agent"](model, tools, saver, middleware=[limits])
        return with_patching(agent, **options)

    talk = Talk(build, bank=Bank(asks=False))
    talk.saver.breaks = lambda *_: bool(talk.bank.paid)
    assert talk.say("pay") == "LostError"
    talk.saver.breaks, talk.saver.is_lost = lambda *_: False, False
    UNWRITTEN.clear()  # the process has died in the tool
    asks.append(7)
    assert [talk.run(None), talk.answer("yes")] == [None, REFUSED]
    assert talk.bank.paid == [5]


# --- records that are gone, cut off, old or copied ----------------------------------------------


def record_in(saver: Any) -> Any:
    """The row of the only record of a thread."""
    (found,) = [
        s for s in saver.list(THREAD) if is_record(s.config["configurable"]["checkpoint_ns"])
    ]
    return found


@pytest.mark.parametrize("table", ["checkpoints", "writes"])
def test_a_witness_without_a_record(table):
    """The call was begun: it is not run again, and nothing says that it only waits."""
    talk = Talk("create_agent", saver=sqlite_saver())
    talk.say("pay")
    [waits] = scan_threads(talk.saver)
    namespace = record_in(talk.saver).config["configurable"]["checkpoint_ns"]
    talk.saver.conn.execute(f"DELETE FROM {table} WHERE checkpoint_ns = ?", (namespace,))  # noqa: S608
    assert talk.answer("yes") == REFUSED
    assert "its record is gone" in str(talk.error)
    [report] = scan_threads(talk.saver)
    assert (waits.reason, "runs once and was started" in report.reason) == (None, True)
    assert (talk.bank.paid, talk.say()) == ([], None)
    assert talk.read == UNKNOWN.format("pay", "c1")


class Stopped(Bank):
    """Is stopped when it has paid."""

    def work(self, amount):
        self.paid.append((amount, self.ask()))
        raise KeyboardInterrupt


def test_the_record_of_a_worker_that_a_function_calls():
    """The graph above does not know what runs once in it, and reads the record."""
    bank, boss = Stopped(), StrictModel()
    model = StrictModel(script=[calls(("pay", {"amount": 5}))])
    worker = with_patching(create_agent(model, [bank.tool]), once=["pay"])
    graph = above(calling(worker), model_node(boss)).compile(checkpointer=InMemorySaver())
    graph = with_patching(graph)
    graph.invoke({"messages": [HumanMessage("pay")]}, THREAD)
    [asked] = graph.get_state(THREAD).interrupts
    with pytest.raises(KeyboardInterrupt):
        graph.invoke(Command(resume={asked.id: "yes"}), THREAD)
    graph.invoke({"messages": [HumanMessage("and?")]}, THREAD)
    assert bank.paid == [(5, "yes")]
    assert CANCELLED.format("pay", "c1") in "".join(m.text for m in boss.seen[0])


def test_a_record_without_a_witness():
    """It is read as one with a witness."""
    talk = Talk("create_agent", saver=sqlite_saver())
    talk.say("pay")
    gone = "DELETE FROM writes WHERE channel = '__langgraph_patch_once__'"
    talk.saver.conn.execute(gone)
    assert talk.answer("yes") is None
    talk.saver.conn.execute(gone)
    old = [s.config for s in talk.graph.get_state_history(THREAD) if s.next]
    for config in old:
        talk.answer("yes", config)
    assert talk.bank.paid == [5]


@pytest.mark.parametrize("word", ["paused", "ended", None])
def test_a_record_of_the_version_before(word):
    """It has the oldest id and fewer fields. It is read, and blocks no other call."""
    message = calls(("pay", {"amount": 5}), id="m1")
    talk = Talk("create_agent", bank=Bank(asks=False), script=[message])
    result = ToolMessage("paid before", tool_call_id="c1")
    record = Record(Reader(talk.saver, "messages"), Address("1"), message, "c1", 0)
    row = record.row
    talk.saver.put(row.newest.config, {**empty_checkpoint(), "id": OLD_ROW}, {}, {})
    what = Claim.digest("pay", {"amount": 5})
    began = {"run": "r1", "what": what}
    talk.saver.put_writes(row.config, [("began", began)], f"{uuid.uuid5(uuid.NAMESPACE_OID, '1')}")
    if word:
        run_sync(record.end(Claim("r1", what, word=word, value={"result": result})))
    assert talk.say("pay") == (None if word else REFUSED)
    assert talk.bank.paid == ([5] if word == "paused" else [])
    if word:
        assert talk.read == ("paid 5: yes" if word == "paused" else "paid before")
    talk.model.script = [calls(("pay", {"amount": 6}))]
    assert (talk.say("pay more"), talk.bank.paid[-1]) == (None, 6)


@pytest.mark.parametrize("job", ["other namespaces", "newest 1 of each namespace"])
def test_a_fork_of_a_call_whose_record_is_gone(job, tmp_path):
    """The fork was refused before, so it knows the record of the other branch."""
    database = str(tmp_path / "db")
    with open_saver(database) as saver:
        saver.setup()
        talk = Talk("create_agent", saver=saver, bank=Bank(asks=False))
        talk.say("pay")
        old = [s.config for s in talk.graph.get_state_history(THREAD) if s.next == ("tools",)]
        fork = talk.graph.update_state(old[0], {"messages": []}, as_node="model")
        execute(database, *(text.format(writes="writes") for text in JOBS["other namespaces"]))
        assert [talk.run(None, fork), talk.run(None)] == [REFUSED, REFUSED]
        execute(database, *(text.format(writes="writes") for text in JOBS[job]))
        assert (talk.run(None), talk.bank.paid) == (REFUSED, [5])
