"""What models read of calls without a result: what the checkpoints recorded, or nothing."""

import asyncio
import operator
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from kit import Agent, Counting, Desk, calls, loop, model_node
from langgraph_patch import with_patching
from langgraph_patch._sansio import run_async
from langgraph_patch.evidence.recover import Recovery, recover_evidence
from langgraph_patch.history.calls import read_calls
from support.placeholder_texts import BREAKPOINT, UNKNOWN, WAITED
from support.supersteps import ASKS, GO, Thread, made, news, ran, sent, shortly

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 5})
TURN = calls(MAIL, WIRE)
FOUND = {"c1": "sent to bob", "c2": WAITED.format("wire", "c2")}
NOTHING = {"c1": UNKNOWN.format("mail", "c1"), "c2": UNKNOWN.format("wire", "c2")}


def agent_with(*tools: Any) -> Any:
    """The builder of an agent with tools of its own."""
    return lambda model, _, saver: with_patching(create_agent(model, tools, checkpointer=saver))


async def test_an_asynchronous_database():
    """The same with a checkpointer that has no synchronous form."""
    async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
        agent = Agent("create_agent", TURN, saver=saver)
        for text in ("pay bob", "never mind"):
            await agent.graph.ainvoke({"messages": [HumanMessage(text)]}, agent.config)
    assert agent.read == FOUND


def test_recovery_switched_off():
    """With `recover=False` nothing is claimed, and nothing is read."""
    saver = Counting()
    agent = Agent("create_agent", TURN, saver=saver, recover=False)
    agent.say("pay bob")
    agent.say("never mind")
    assert agent.read == NOTHING
    assert saver.used["list"] == 0


def test_a_recovered_result_is_whole():
    """Content blocks, artifact, status and name come back; also out of a tool's `Command`."""
    content: Any = [{"type": "text", "text": "sent to bob"}]
    fields: Any = {"name": "mail", "artifact": {"size": 3}, "status": "error"}
    whole = [ToolMessage(content, tool_call_id=f"c{n}", id=f"r{n}", **fields) for n in (1, 2)]

    @tool
    def mail(to: str) -> Command | ToolMessage:
        """Return a message, or a Command that holds it."""
        return Command(update={"messages": whole[1:]}) if to == "mia" else whole[0]

    with SqliteSaver.from_conn_string(":memory:") as saver, closing(saver.conn):
        turn = calls(MAIL, ("mail", {"to": "mia"}), WIRE)
        agent = Agent(agent_with(mail, Desk().tools()[1]), turn, saver=saver)
        agent.say("pay bob")
        agent.say("never mind")
        assert agent.history[2:4] == agent.model.seen[-1][2:4] == whole


def from_client(content: str, prefix: str) -> list[Any]:
    """What a frontend sends before the next message: a result for each open call."""
    return [ToolMessage(content, tool_call_id=c, id=f"{prefix}{c}") for c in ("c1", "c2")]


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (from_client("Successfully handled tool call.", "do-not-render-"), FOUND),
        (from_client('{"cancelled":true}', "aui-"), FOUND),
        (from_client("by hand", "r"), {"c1": "by hand", "c2": "by hand"}),
    ],
)
def test_what_clients_send(results: list[Any], expected: dict[str, str]):
    """What was recorded replaces the inventions of known clients; other results stay."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    agent.run({"messages": [*results, HumanMessage("never mind")]})
    assert agent.read == expected


def test_an_edited_result_is_left_alone():
    """An edit by `update_state` is no input, so the record does not replace it."""
    agent = Agent("create_agent", TURN)
    agent.say("go")
    edit = {"messages": from_client("edited", "r")}
    agent.graph.update_state(agent.config, edit, as_node="tools")
    agent.say("and now?")
    assert agent.read == {"c1": "edited", "c2": "edited"}


@pytest.mark.parametrize("by_id", [False, True], ids=["plain", "by id"])
def test_a_message_while_an_approved_tool_is_at_work(*, by_id: bool):
    """The text is about the record, and the result that comes later replaces it.

    An answer by interrupt id is stored when the task ends, another one before the tool starts.
    """
    begun, may_end, done = threading.Event(), threading.Event(), []

    @tool
    def wire(amount: int) -> str:
        """Wire money, if a human agrees."""
        answer = interrupt("wire?")
        done.append(amount)
        begun.set()
        may_end.wait(10)
        return f"wired: {answer}"

    agent = Agent(agent_with(wire), calls(WIRE))
    agent.say("go")
    (asked,) = agent.interrupts
    answer = Command(resume={asked.id: "yes"} if by_id else "yes")
    approved = threading.Thread(target=agent.run, args=(answer,))
    approved.start()
    assert begun.wait(10)
    agent.say("are you there?")
    assert agent.read["c1"] == (WAITED if by_id else UNKNOWN).format("wire", "c1")
    may_end.set()
    approved.join(10)
    agent.say("and now?")
    assert agent.read["c1"] == "wired: yes"
    assert done == [5]


def ago(**duration: float) -> str:
    """A time in the past, as a checkpoint stores it."""
    return (datetime.now(UTC) - timedelta(**duration)).isoformat()


BOTH = made("mail:c1", "wire:c2")


def test_the_next_turn_looks_again_once():
    """However old the superstep is; not for a result, and not for what was searched for before."""
    for written, ending in ((None, "unknown"), (ASKS, "awaiting_input"), ("sent", "sent")):
        for age in ({"days": 400}, {"seconds": 7}):
            thread = Thread(BOTH, sent("sent", written, ts=ago(**age)), news(BOTH))
            assert thread.found() == f"sent, {ending}"
            searched = thread.found(searched_at={(1, 0): "", (1, 1): ""})
            assert searched == f"sent, {ending}{' | final' * (written != 'sent')}"


def test_the_second_search_begins_where_the_first_one_did():
    """What came after it is about other calls and is not read, however long the last turn was."""
    steps = [calls(MAIL, first=number) for number in range(10, 20)]
    saver = Counting()
    agent = Agent("create_agent", TURN, *steps, saver=saver)
    agent.say("pay bob")
    agent.say("never mind")
    used = []
    for text in ("and now?", "and then?"):
        saver.used.clear()
        agent.say(text)
        used.append(saver.used["get_tuple"])
        assert agent.read["c2"] == FOUND["c2"]
    assert used == [7, 1]  # LangGraph itself reads one


def test_a_search_that_failed_is_made_again(caplog: pytest.LogCaptureFixture):
    """In each turn until the checkpointer can be read."""
    thread = Thread(BOTH, sent("sent", None))
    thread.saver.get_tuple = fail
    assert thread.found(searched_at={(1, 0): "", (1, 1): ""}) == "unknown, unknown"
    assert "The calls are unknown until the next turn searches again." in caplog.text


def fail(_: Any) -> Any:
    """Raise what a checkpointer may raise."""
    raise OSError("the disk is gone")


def test_a_run_that_is_over():
    """Nothing waits any more, and nothing is looked for again."""
    thread = Thread(BOTH, sent(None, ASKS, ts=ago(seconds=0)))
    begun = time.monotonic()
    assert thread.found(is_over=True) == "unknown | final, awaiting_input | final"
    assert time.monotonic() - begun < 0.3
    other = Thread(made("wire:c1"), ran("HumanInTheLoopMiddleware.after_model", ASKS))
    assert other.found(is_over=True) == "not_started | approval | final"


class Slow(InMemorySaver):
    """Stores what a task wrote a moment after it was searched for."""

    current: Any = None
    late: Any = None
    searches = 0

    def get_tuple(self, config: Any) -> Any:
        self.searches += config == self.current
        if self.late and self.searches == 2:
            self.put_writes(*self.late)
        return super().get_tuple(config)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)


@pytest.mark.parametrize(
    ("seconds", "reads", "expected", "asynchronous"),
    [(4, 3, "sent", True), (4, 3, "sent", False), (6, 1, "unknown", False)],
)
def test_a_result_that_is_being_stored(
    seconds: int, reads: int, expected: str, *, asynchronous: bool
):
    """LangGraph does not wait until it is: of a task that has just begun it is looked again.

    It is searched again only if the look at the superstep shows more.
    """
    thread = Thread(made("mail:c1"), sent(None, ts=ago(seconds=seconds)))
    (task,) = thread.step.tasks
    written = [("messages", [ToolMessage("sent", tool_call_id="c1")])]
    thread.saver.__class__ = Slow
    thread.saver.current = thread.config
    thread.saver.late = (thread.config, written, task.id)
    if asynchronous:
        history, wanted = [GO, thread.message], read_calls(thread.message, 1)
        search = recover_evidence(thread.saver, thread.config, history, wanted)
        assert shortly(asyncio.run(run_async(search))) == expected
    else:
        assert thread.found() == expected
    assert thread.saver.searches == reads


def test_the_wait_for_what_is_never_stored(monkeypatch: pytest.MonkeyPatch):
    """A message right after a stop: a few looks at one checkpoint, and a twentieth of a second.

    The current checkpoint is sure to come: for it the search waits longer.
    """
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    thread = Thread(made("mail:c1"), sent(None, ts=ago(seconds=0)))
    thread.saver.__class__ = Slow
    thread.saver.current = thread.config
    assert thread.found() == "unknown"
    assert (thread.saver.searches, sum(waits)) == (1 + len(waits), pytest.approx(0.048))
    waits.clear()
    thread.config = {"configurable": {**thread.config["configurable"], "checkpoint_id": "none"}}
    assert thread.found() == "unknown"
    assert sum(waits) == pytest.approx(0.768)


def test_nothing_waits_for_a_task_that_has_ended():
    """After a pause and after an error one search is enough."""
    for ended in (ASKS, RuntimeError("x")):
        thread = Thread(BOTH, ran("tools", ended, ts=ago(seconds=0)))
        thread.saver.__class__ = Slow
        thread.saver.current = thread.config
        thread.found()
        assert thread.saver.searches == 1


def test_what_cannot_be_searched():
    """No calls, a thread without checkpoints."""
    nothing: Any = {"configurable": {"thread_id": "2"}}
    saver, message = Counting(), made("mail:c1")
    assert asyncio.run(run_async(recover_evidence(saver, nothing, [message], []))) == Recovery()
    assert not saver.used
    search = recover_evidence(saver, nothing, [message], read_calls(message))
    assert shortly(asyncio.run(run_async(search))) == "unknown"


@pytest.mark.needs(langgraph="1.2.22")
def test_what_an_error_handler_recorded():
    """A node failed and its error handler answered the call, while a sibling waits."""

    def run(call: Any) -> Any:
        if call["name"] == "wire":
            interrupt("wire?")
        raise RuntimeError("card refused")

    def refund(error: Any) -> Any:
        call = error["call"] if isinstance(error, dict) and "call" in error else error
        return {"messages": [ToolMessage("refunded", tool_call_id=call["id"])]}

    def build(model: Any, _: Any, saver: Any) -> Any:
        builder = StateGraph(MessagesState).add_node("agent", model_node(model))
        builder.add_node("tools", run, error_handler=refund).add_edge(START, "agent")
        sends = lambda s: [Send("tools", c) for c in s["messages"][-1].tool_calls] or END
        builder.add_conditional_edges("agent", sends, ["tools", END]).add_edge("tools", "agent")
        return with_patching(builder.compile(checkpointer=saver))

    agent = Agent(build, calls(("mail", {"to": "bob"}), WIRE))
    agent.say("go")
    agent.say("never mind")
    assert agent.read == {"c1": "refunded", "c2": WAITED.format("wire", "c2")}


@pytest.mark.parametrize("ending", ["waits", "ends"])
def test_two_equal_messages_without_ids(ending: str):
    """The second payment, with the id and the arguments of the first, has a result of its own."""

    class Plain(TypedDict):
        messages: Annotated[list[Any], operator.add]

    paid: list[int] = []

    def pay(state: Any) -> Any:
        if len(paid) == 1 and ending == "waits":
            interrupt("pay again?")
        paid.append(1)
        return {"messages": [ToolMessage(f"paid {len(paid)}", tool_call_id="c1", name="wire")]}

    def build(model: Any, _: Any, saver: Any) -> Any:
        builder = StateGraph(Plain).add_node("agent", model_node(model)).add_node("tools", pay)
        builder.add_edge(START, "agent").add_edge("tools", "agent")
        builder.add_conditional_edges("agent", tools_condition)
        return with_patching(builder.compile(checkpointer=saver), model_node="agent")

    agent = Agent(build, calls(WIRE), AIMessage("ok"), calls(WIRE))
    for text in ("pay", "pay again", "never mind"):
        agent.say(text)
    texts = [m.text for m in agent.model.seen[-1] if m.type == "tool"]
    assert texts[0] == "paid 1"
    assert (texts[1] == "paid 2") is (ending == "ends")
    assert "paid 1" not in texts[1:]


@pytest.mark.parametrize("given", ["compiled", "at the call", "every node", "nowhere"])
def test_a_breakpoint(given: str):
    """The model reads that the graph pauses before the tool; `reconcile` is asked all the same."""
    asked: list[Any] = []

    def build(model: Any, tools: Any, saver: Any) -> Any:
        at = {"compiled": ["tools"], "every node": "*"}.get(given)
        graph = loop(model, tools).compile(checkpointer=saver, interrupt_before=at)
        return with_patching(graph, reconcile={"mail": asked.append})

    agent = Agent(build, calls(("mail", {"to": "bob"})))
    options: Any = {"interrupt_before": ["tools"]} if given in ("at the call", "nowhere") else {}
    agent.say("book it", **options)
    if given == "every node":
        agent.run(None)
    agent.say("never mind", **({} if given == "nowhere" else options))
    if given == "every node":
        agent.run(None)
        agent.run(None)
    text = UNKNOWN if given == "nowhere" else BREAKPOINT
    assert agent.results == {"c1": text.format("mail", "c1")}
    assert [(call.cause, call.detail) for call in asked[:1]] == [
        ("unknown", None if given == "nowhere" else "breakpoint")
    ]
    assert agent.desk.did == {}


def test_a_run_that_went_on_from_the_breakpoint():
    """What its task recorded counts."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        graph = loop(model, tools).compile(checkpointer=saver, interrupt_before=["tools"])
        return with_patching(graph)

    agent = Agent(build, calls(WIRE))
    agent.say("book it")
    agent.run(None)
    agent.say("never mind")
    assert agent.results == {"c1": WAITED.format("wire", "c1")}


@pytest.mark.parametrize("node", ["check", "post_model_hook"])
def test_a_node_before_the_breakpoint(node: str):
    """A hook of a prebuilt agent runs no tools. A node of your own may have run the call itself."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        builder = StateGraph(MessagesState).add_node("agent", model_node(model))
        builder.add_node(node, lambda _: {}).add_node("tools", ToolNode(tools))
        builder.add_edge(START, "agent").add_edge("agent", node).add_edge("tools", "agent")
        builder.add_conditional_edges(node, tools_condition)
        return with_patching(builder.compile(checkpointer=saver, interrupt_before=["tools"]))

    agent = Agent(build, calls(WIRE))
    agent.say("book it")
    agent.say("never mind")
    text = BREAKPOINT if node == "post_model_hook" else UNKNOWN
    assert agent.results == {"c1": text.format("wire", "c1")}
