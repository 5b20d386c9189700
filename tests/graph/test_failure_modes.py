"""Each failure mode on a real graph: the bare graph fails or misleads, the patched does not.

The number in a test's name is that of the failure mode. Those that are a matter of a list of
messages alone have their tests in `test_patch.py`, under the same numbers; the last test
here checks that every number has one. What cannot be repaired is tested as it is.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    before_model,
)
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    RemoveMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from langgraph_swarm import create_handoff_tool, create_swarm

from langgraph_patch import is_placeholder, patch_messages, validate_messages, with_patching
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.streaming import message_from_stream
from langgraph_patch.threads import arepair_thread, repair_thread, scan_threads
from support.agents import (
    REDUCERS,
    Graph,
    both_calls,
    history,
    human,
    lines,
    new_turn,
    react_v2,
    reducer_graph,
    thread,
)
from support.broken_threads import application, killed
from support.open_calls import UNKNOWN_RESULTS
from support.placeholder_texts import (
    CANCELLED,
    FAILED,
    INCOMPLETE,
    MALFORMED,
    UNKNOWN,
    WAITED,
    WAITED_UNTIL_ENDED,
)
from support.running import run, sync_and_async
from support.savers import Watched
from support.strict import RefusedError, StrictModel, ai

MAIL = ("send_email", {"to": "bob"}, "c1")
WIRE = ("wire_money", {"amount": 3}, "c2")
BOOM = ("boom", {}, "c3")
SLOW = ("slow", {}, "c4")
SENT = "tool c1: sent to bob"
NOT_WIRED = f"tool c2: {WAITED.format('wire_money', 'c2')}"
FAILED_BOOM = f"tool c3: {FAILED.format('boom', 'c3', repr(RuntimeError('kaput')))}"
AT_WORK = f"tool c4: {UNKNOWN.format('slow', 'c4')}"
CUT_OFF = f"tool c4: {CANCELLED.format('slow', 'c4')}"
FINE = AIMessage("fine", id="fine")


class Office:
    """Tools that end in four ways, and what they did.

    Attributes:
        saver: Where the runs are recorded.
        after: What must be on record before `boom` raises.
        done: What was really done, in order.
        began: Set when the slow tool is at work.
        go_on: Lets the slow tool finish.
    """

    def __init__(self, *after: str) -> None:
        self.saver = Watched()
        self.after = after
        self.done: list[str] = []
        self.began = asyncio.Event()
        self.go_on = asyncio.Event()

    def tools(self) -> list[Any]:
        """As the agents take them, for sync and async runs."""

        @tool
        def send_email(to: str) -> str:
            """Finish."""
            self.done.append(f"mail to {to}")
            return f"sent to {to}"

        @tool
        def wire_money(amount: int) -> str:
            """Wait for a human."""
            answer = interrupt(f"wire {amount}?")
            self.done.append(f"wire {amount}")
            return f"wired: {answer}"

        @tool
        def boom() -> str:
            """Raise, when the others are on record."""
            self.saver.wait_for(*self.after)
            raise RuntimeError("kaput")

        @tool
        async def slow() -> str:
            """Run until the test lets it finish."""
            self.began.set()
            await self.go_on.wait()
            self.done.append("slow")
            return "slowly"

        return [send_email, wire_money, boom, slow]


def agent(*script: Any, office: Office | None = None, **options: Any) -> tuple[Graph, StrictModel]:
    """A bare `create_agent` agent with a checkpointer, and its model."""
    office = office or Office()
    model = StrictModel(script=list(script))
    return create_agent(model, office.tools(), checkpointer=office.saver, **options), model


def valid_lines(graph: Graph) -> list[str]:
    """The history of the thread on lines; it must be valid."""
    messages = history(graph, thread())
    assert validate_messages(messages) == []
    return lines(messages)


# --- F1 to F3: what came of the calls ----------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("build", [create_agent, react_v2])
async def test_f01_a_new_message_instead_of_an_answer(build: Any, *, asynchronous: bool):
    """Bare, every later turn fails; patched, the thread works again by itself."""
    calls = ai(WIRE, id="a1")
    office = Office()
    bare = build(StrictModel(script=[calls]), office.tools(), checkpointer=office.saver)
    await run(bare, "book it", asynchronous=asynchronous)
    for text in ("never mind", "hello?", "anybody?"):
        with pytest.raises(ValueError, match="c2"):
            await run(bare, text, asynchronous=asynchronous)

    model = StrictModel(script=[calls, FINE, AIMessage("yes?")])
    graph = with_patching(build(model, Office().tools(), checkpointer=InMemorySaver()))
    for text in ("book it", "never mind", "hello?"):
        await run(graph, text, asynchronous=asynchronous)
    assert valid_lines(graph) == [
        "human: book it",
        "ai c2: ",
        NOT_WIRED,
        "human: never mind",
        "ai: fine",
        "human: hello?",
        "ai: yes?",
    ]


async def interrupted(graph: Graph, office: Office, *, asynchronous: bool) -> None:
    """The mail is sent, the money waits."""
    await run(graph, "book it", asynchronous=asynchronous)


async def raised(graph: Graph, office: Office, *, asynchronous: bool) -> None:
    """The mail is sent, the other tool fails."""
    with pytest.raises(RuntimeError, match="kaput"):
        await run(graph, "book it", asynchronous=asynchronous)


async def cancelled(graph: Graph, office: Office, *, asynchronous: bool) -> None:
    """The mail is sent, the other tool is at work when the client hangs up."""
    running = asyncio.create_task(run(graph, "book it", asynchronous=True))
    await asyncio.to_thread(office.saver.wait_for, "sent to bob")
    await office.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@sync_and_async
@pytest.mark.parametrize(
    ("break_off", "sibling", "expected"),
    [(interrupted, WIRE, NOT_WIRED), (raised, BOOM, FAILED_BOOM), (cancelled, SLOW, CUT_OFF)],
    ids=["interrupted", "raised", "cancelled"],
)
async def test_f02_a_finished_call_beside_one_that_did_not(
    break_off: Any, sibling: Any, expected: str, *, asynchronous: bool
):
    """Bare, the mail's result is lost; patched it is recovered, at once or years later."""
    office = Office("sent to bob")
    calls = ai(MAIL, sibling, id="a1")
    bare, model = agent(calls, FINE, AIMessage("yes?"), office=office)
    await break_off(bare, office, asynchronous=asynchronous)
    with pytest.raises(RefusedError, match="c1"):
        await run(bare, "never mind", asynchronous=asynchronous)
    assert SENT not in lines(history(bare, thread()))

    after_the_fact = with_patching(bare)
    await run(after_the_fact, "hello?", asynchronous=asynchronous)
    results = [SENT, expected]
    dead = ["human: book it", f"ai c1 {sibling[2]}: ", *results, "human: never mind"]
    assert valid_lines(after_the_fact) == [*dead, "human: hello?", "ai: fine"]

    office = Office("sent to bob")
    bare, model = agent(calls, FINE, office=office)
    graph = with_patching(bare)
    await break_off(graph, office, asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert lines(model.seen[-1]) == dead
    assert valid_lines(graph) == [*dead, "ai: fine"]
    assert office.done == ["mail to bob"]


async def test_f03_each_sibling_has_its_own_outcome():
    """Finished, waiting, failed, cut off: four texts, and four causes for a machine."""
    office = Office("sent to bob", "wire 3?")
    bare, model = agent(ai(MAIL, WIRE, BOOM, SLOW, id="a1"), FINE, office=office)
    graph = with_patching(bare)
    await raised(graph, office, asynchronous=True)
    await run(graph, "never mind", asynchronous=True)
    assert valid_lines(graph)[2:6] == [SENT, NOT_WIRED, FAILED_BOOM, CUT_OFF]
    assert [
        (m.status, m.additional_kwargs.get(PLACEHOLDER_KEY, {}).get("cause"))
        for m in model.seen[-1]
        if isinstance(m, ToolMessage)
    ] == [
        ("success", None),
        ("error", "awaiting_input"),
        ("error", "failed"),
        ("error", "cancelled"),
    ]


# --- F4, F5: not now ---------------------------------------------------------------------


@sync_and_async
async def test_f04_a_live_pause_is_left_alone(*, asynchronous: bool):
    """A manual repair loses the human's answer; `repair_thread` leaves the pause alone."""
    office = Office()
    bare, _ = agent(ai(WIRE, id="a1"), FINE, office=office)
    await run(bare, "book it", asynchronous=asynchronous)
    by_hand = patch_messages(history(bare, thread())).messages[-1]
    bare.update_state(thread(), {"messages": [by_hand]}, as_node="tools")
    await run(bare, Command(resume="yes"), asynchronous=asynchronous)
    assert office.done == []

    office = Office()
    bare, _ = agent(ai(WIRE, id="a1"), FINE, office=office)
    graph = with_patching(bare)
    await run(graph, "book it", asynchronous=asynchronous)
    repaired = await repair(graph, asynchronous=asynchronous, min_age=0)
    assert (repaired.outcome, repaired.after) == ("paused", None)
    await run(graph, Command(resume="yes"), asynchronous=asynchronous)
    assert valid_lines(graph)[2:] == ["tool c2: wired: yes", "ai: fine"]
    assert office.done == ["wire 3"]

    graph, _ = agent(ai(WIRE, id="a1"), FINE)
    await run(graph, "book it", asynchronous=asynchronous)
    repaired = await repair(graph, asynchronous=asynchronous, min_age=0, on_pause="abandon")
    assert repaired.outcome == "repaired"
    assert valid_lines(graph)[2:] == [f"tool c2: {WAITED_UNTIL_ENDED.format('wire_money', 'c2')}"]


async def repair(graph: Graph, *, asynchronous: bool, **options: Any) -> Any:
    """Repair the stored thread the way that the test asks for."""
    if asynchronous:
        return await arepair_thread(graph, thread(), **options)
    return await asyncio.to_thread(repair_thread, graph, thread(), **options)


@sync_and_async
async def test_f05_a_tool_that_is_still_at_work(*, asynchronous: bool):
    """A thread so young is skipped, and the tool's result arrives; `force` is for who knows."""
    office = Office()
    graph, _ = agent(ai(SLOW, id="a1"), FINE, office=office)
    running = asyncio.create_task(run(graph, "book it", asynchronous=True))
    await office.began.wait()
    before = list(office.saver.list(thread()))
    repaired = await repair(graph, asynchronous=asynchronous)
    assert (repaired.outcome, repaired.skipped) == ("young", True)
    assert list(office.saver.list(thread())) == before
    office.go_on.set()
    await running
    assert valid_lines(graph)[2:] == ["tool c4: slowly", "ai: fine"]

    office = Office()
    graph, _ = agent(ai(SLOW, id="a1"), FINE, office=office)
    running = asyncio.create_task(run(graph, "book it", asynchronous=True))
    await office.began.wait()
    repaired = await repair(graph, asynchronous=asynchronous, force=True)
    assert repaired.outcome == "repaired"
    assert valid_lines(graph)[2:] == [AT_WORK]
    office.go_on.set()
    await running
    assert valid_lines(graph)[2:] == ["tool c4: slowly", "ai: fine"]


# --- F7: a window that cuts through pairs ------------------------------------------------


TALK = [
    human("q"),
    ai(MAIL, id="a1"),
    ToolMessage("sent to bob", name="send_email", tool_call_id="c1", id="t1"),
    AIMessage("sent", id="a2"),
]


@before_model
def keep_a_few(state: Any, runtime: Any) -> dict[str, Any] | None:
    """The first message and the last three: as LangChain's guide trims."""
    messages = state["messages"]
    if len(messages) <= 4:
        return None
    kept = [messages[0], *messages[-3:]]
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]}


def by_middleware(model: StrictModel, saver: InMemorySaver) -> Graph:
    """An agent with a middleware that trims the state."""
    return create_agent(model, [], middleware=[keep_a_few], checkpointer=saver)


def by_node(model: StrictModel, saver: InMemorySaver) -> Graph:
    """A hand-built graph with a node that trims the state before the model."""

    def trim(state: MessagesState) -> dict[str, Any]:
        messages = state["messages"]
        kept = trim_messages(messages, strategy="last", token_counter=len, max_tokens=3)
        gone = [m for m in messages if m not in kept]
        return {"messages": [RemoveMessage(id=str(m.id)) for m in gone]}

    builder = StateGraph(MessagesState)
    builder.add_node("trim", trim)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "trim")
    builder.add_edge("trim", "agent")
    return builder.compile(checkpointer=saver)


@sync_and_async
@pytest.mark.parametrize(
    ("build", "left"),
    [
        (by_middleware, ["human: q", "ai: sent", "human: and?", "ai: fine"]),
        (by_node, ["ai: sent", "human: and?", "ai: fine"]),
    ],
)
async def test_f07_trimming_cuts_through_a_pair(build: Any, left: list[str], *, asynchronous: bool):
    """Bare, the model reads a result without its call; patched it is dropped and reported."""
    bare = build(StrictModel(script=[]), InMemorySaver())
    bare.update_state(thread(), {"messages": TALK}, as_node=START)
    bare.update_state(thread(), None, as_node=END)
    with pytest.raises(RefusedError, match="answers no call"):
        await run(bare, "and?", asynchronous=asynchronous)

    reported: list[Any] = []
    bare = build(StrictModel(script=[FINE]), InMemorySaver())
    model_node = "model" if build is by_middleware else "agent"
    graph = with_patching(
        bare, model_node=model_node, on_patch=lambda patch, _: reported.append(patch)
    )
    bare.update_state(thread(), {"messages": TALK}, as_node=START)
    bare.update_state(thread(), None, as_node=END)
    await run(graph, "and?", asynchronous=asynchronous)
    assert valid_lines(graph) == left
    [change] = [change for patch in reported for change in patch.changes]
    assert (change.kind, change.before) == ("dropped", TALK[2])


# --- F8: handoffs ------------------------------------------------------------------------


def swarm(first: StrictModel, second: StrictModel, wrap: Callable[[Any], Any]) -> Graph:
    """Alice hands over to Bob."""
    office = Office()
    alice = create_agent(
        first, [*office.tools(), create_handoff_tool(agent_name="bob")], name="alice"
    )
    bob = create_agent(second, [create_handoff_tool(agent_name="alice")], name="bob")
    builder = create_swarm([alice, bob], default_active_agent="alice")
    return wrap(builder).compile(checkpointer=office.saver)


HANDOVER = ai(MAIL, ("transfer_to_bob", {}, "c2"), id="a1")


@sync_and_async
async def test_f08_a_call_beside_a_handoff(*, asynchronous: bool):
    """Bare, Bob's model refuses Alice's open call; patched it reads the mail's real result."""
    bare = swarm(StrictModel(script=[HANDOVER]), StrictModel(script=[]), lambda b: b)
    with pytest.raises(RefusedError, match="c1"):
        await run(bare, "book it", asynchronous=asynchronous)

    bob = StrictModel(script=[FINE])
    graph = swarm(StrictModel(script=[HANDOVER]), bob, with_patching)
    await run(graph, "book it", asynchronous=asynchronous)
    results = {m.tool_call_id: m.text for m in bob.seen[0] if isinstance(m, ToolMessage)}
    assert results == {"c1": "sent to bob", "c2": "Successfully transferred to bob"}
    assert valid_lines(graph)[-1] == "ai: fine"


# --- F11: an id used again, beside LangGraph's own matching by id ------------------------


@sync_and_async
async def test_f11_a_reused_id_that_langgraph_takes_for_answered(*, asynchronous: bool):
    """With a `post_model_hook` LangGraph skips the second call; the next turn repairs it.

    The mail to Eve is not sent, patched or not: that is decided between the model and the
    tools. Bare, the thread is dead as well.
    """
    first = ai(("send_email", {"to": "bob"}, "t:0"), id="a1")
    again = ai(("send_email", {"to": "eve"}, "t:0"), id="a2")
    script = [first, AIMessage("ok"), again, FINE]

    def build(office: Office) -> Graph:
        model = StrictModel(script=list(script))
        return react_v2(
            model, office.tools(), post_model_hook=lambda _: {}, checkpointer=office.saver
        )

    bare = build(Office())
    for text in ("mail bob", "mail eve"):
        await run(bare, text, asynchronous=asynchronous)
    with pytest.raises(RefusedError, match="used twice"):
        await run(bare, "thanks", asynchronous=asynchronous)

    office = Office()
    graph = with_patching(build(office))
    for text in ("mail bob", "mail eve", "thanks"):
        await run(graph, text, asynchronous=asynchronous)
    renamed = history(graph, thread())[5].tool_calls[0]["id"]
    assert renamed.startswith("t:0_")
    assert valid_lines(graph) == [
        "human: mail bob",
        "ai t:0: ",
        "tool t:0: sent to bob",
        "ai: ok",
        "human: mail eve",
        f"ai {renamed}: ",
        f"tool {renamed}: {UNKNOWN.format('send_email', renamed)}",
        "human: thanks",
        "ai: fine",
    ]
    assert office.done == ["mail to bob"]


# --- F14 to F16: how a stored thread is written ------------------------------------------


def guarded(office: Office, *script: Any) -> Graph:
    """Model, guard, tools, and a breakpoint before the tools."""
    model = StrictModel(script=list(script))
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("guard", lambda _: None)
    builder.add_node("tools", ToolNode(office.tools()))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition, {"tools": "guard", END: END})
    builder.add_edge("guard", "tools")
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=office.saver, interrupt_before=["tools"])


@sync_and_async
async def test_f14_a_repair_does_not_start_the_tools(*, asynchronous: bool):
    """A manual repair leaves `next` on the tools, which run again; `repair_thread` does not."""
    office = Office()
    graph = guarded(office, ai(MAIL, id="a1"), FINE)
    await run(graph, "book it", asynchronous=asynchronous)
    by_hand = patch_messages(history(graph, thread())).messages[-1]
    graph.update_state(thread(), {"messages": [by_hand]})
    assert graph.get_state(thread()).next == ("tools",)
    with pytest.raises(RefusedError, match="answers no call"):
        await run(graph, None, asynchronous=asynchronous)
    assert office.done == ["mail to bob"]

    office = Office()
    graph = guarded(office, ai(MAIL, id="a1"), FINE)
    await run(graph, "book it", asynchronous=asynchronous)
    repaired = await repair(graph, asynchronous=asynchronous, min_age=0, on_pause="abandon")
    assert repaired.outcome == "repaired"
    assert graph.get_state(thread()).next == ()
    await run(graph, None, asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    assert valid_lines(graph)[-2:] == ["human: never mind", "ai: fine"]
    assert office.done == []


@sync_and_async
async def test_f15_a_repair_keeps_what_a_sibling_has_just_finished(*, asynchronous: bool):
    """A manual repair as the tools node destroys the mail's result; `repair_thread` keeps it."""
    graph, _ = agent(both_calls())
    await run(graph, "book it", asynchronous=asynchronous)
    assert lines(history(graph, thread()))[2:] == [SENT]
    by_hand = patch_messages(history(graph, thread())).messages[-1]
    graph.update_state(thread(), {"messages": [by_hand]}, as_node="tools")
    assert SENT not in lines(history(graph, thread()))

    graph, _ = agent(both_calls(), FINE)
    await run(graph, "book it", asynchronous=asynchronous)
    await repair(graph, asynchronous=asynchronous, min_age=0, on_pause="abandon")
    assert valid_lines(graph)[2:] == [
        SENT,
        f"tool c2: {WAITED_UNTIL_ENDED.format('wire_money', 'c2')}",
    ]
    await run(graph, "and?", asynchronous=asynchronous)
    assert valid_lines(graph)[-1] == "ai: fine"


@sync_and_async
async def test_f16_a_repair_erases_nothing(*, asynchronous: bool):
    """Delta state, and a graph compiled without its checkpointer: all messages are still there."""
    office = Office()
    model = StrictModel(script=[both_calls()])
    ran = create_deep_agent(model, office.tools(), checkpointer=office.saver)
    await run(ran, "book it", asynchronous=asynchronous)
    graph = create_deep_agent(StrictModel(script=[]), office.tools())
    graph, config = graph.copy({"checkpointer": office.saver}), thread()
    if asynchronous:
        repaired = await arepair_thread(graph, config, min_age=0, on_pause="abandon")
    else:
        repaired = repair_thread(graph, config, min_age=0, on_pause="abandon")
    assert repaired.outcome == "repaired"
    reported = [SENT, f"tool c2: {WAITED_UNTIL_ENDED.format('wire_money', 'c2')}"]
    assert valid_lines(ran) == ["human: book it", "ai c1 c2: ", *reported]


# --- F17, F32: kinds of state ------------------------------------------------------------


def damaged_under(name: str, **options: Any) -> Graph:
    """A graph with this reducer, and a thread with two open calls."""
    graph, _ = reducer_graph(REDUCERS[name], FINE, **options)
    damage = [human("book it"), both_calls(), human("wait")]
    graph.update_state(thread(), {"messages": damage}, as_node="model")
    return graph


REPAIRED = [
    "human: book it",
    "ai c1 c2: ",
    *UNKNOWN_RESULTS,
    "human: wait",
    "human: and?",
    "ai: fine",
]


@pytest.mark.parametrize("name", ["delta", "deepagents"])
def test_f17_delta_state(name: str, tmp_path: Path):
    """What a client and a later process read is the same, and no client sees an `Overwrite`."""
    path = str(tmp_path / "db")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = with_patching(damaged_under(name, checkpointer=saver))
        [report] = scan_threads(saver)
        assert report.status == "damaged"
        chunks = list(graph.stream({"messages": [human("and?")]}, thread(), stream_mode="updates"))
    assert lines(chunks[0]["patch_tool_calls"]["messages"]) == UNKNOWN_RESULTS
    assert "overwrite" not in repr(chunks).lower()
    with SqliteSaver.from_conn_string(path) as saver:
        graph, _ = reducer_graph(REDUCERS[name], checkpointer=saver)
        assert valid_lines(graph) == REPAIRED
        assert [report.status for report in scan_threads(saver)] == ["healthy"]


@pytest.mark.parametrize("name", ["operator_add", "new_only", "none"])
def test_f32_a_reducer_that_knows_no_removal(name: str):
    """There a `RemoveMessage` would be stored as a message: none is, and nothing is doubled."""
    bare = damaged_under(name, checkpointer=InMemorySaver())
    kept = history(bare, thread()) if name == "none" else []
    removal = RemoveMessage(id="somebody's")
    bare.update_state(thread(), {"messages": [*kept, removal]}, as_node="model")
    assert history(bare, thread())[-1] == removal

    graph = with_patching(damaged_under(name, checkpointer=InMemorySaver()))
    new_turn(graph, REDUCERS[name], thread(), human("and?"))
    assert valid_lines(graph) == REPAIRED


# --- F18 to F20: what clients see, what is left alone, and when --------------------------


@pytest.mark.parametrize("mode", ["messages", "values"])
@sync_and_async
async def test_f18_clients_see_the_new_results_only(mode: Any, *, asynchronous: bool):
    """No `RemoveMessage` and no old message is streamed; a valid turn shows nothing new.

    In the mode `updates` the write itself is shown, under the name of our own node.
    """
    bare, _ = agent(both_calls(), FINE, AIMessage("yes?", id="yes"))
    graph = with_patching(bare)
    await run(graph, "book it", asynchronous=asynchronous)

    async def shown(text: str) -> list[Any]:
        value = {"messages": [human(text)]}
        if asynchronous:
            return [c async for c in graph.astream(value, thread(), stream_mode=mode)]
        return list(graph.stream(value, thread(), stream_mode=mode))

    repaired, valid = await shown("never mind"), await shown("hello?")
    if mode == "messages":
        assert [message.type for message, _ in repaired] == ["tool", "tool", "AIMessageChunk"]
        assert [message.type for message, _ in valid] == ["AIMessageChunk"]
        return
    steps = [chunk["messages"] for chunk in repaired + valid]
    assert not any(isinstance(m, RemoveMessage) for step in steps for m in step)
    # The next turn searches once more for the call that waited, and changes no message.
    assert sorted({len(step) for step in steps}) == [3, 5, 6, 7, 8]


@sync_and_async
async def test_f19_every_other_message_stays(*, asynchronous: bool):
    """An answer that a person wrote after a dead call, and all that followed, are kept."""
    kept = [
        human("q"),
        ai(WIRE, id="a1"),
        AIMessage("by hand", id="m1"),
        human("thanks"),
        AIMessage("welcome", id="m2"),
    ]
    bare, _ = agent(FINE)
    bare.update_state(thread(), {"messages": kept}, as_node="model")
    graph = with_patching(bare)
    await run(graph, "and?", asynchronous=asynchronous)
    messages = history(graph, thread())
    assert [m for m in messages if not is_placeholder(m)] == [*kept, human("and?"), messages[-1]]
    assert [messages.index(m) for m in messages if is_placeholder(m)] == [2]
    assert valid_lines(graph)[-1] == "ai: fine"


@sync_and_async
@pytest.mark.parametrize("value", [None, Command(goto="model")], ids=["none", "goto"])
async def test_f20_a_run_that_start_does_not_see(value: Any, *, asynchronous: bool):
    """A dead thread that is continued without a message: the node wrapper repairs it."""
    bare, model = agent(both_calls())
    await run(bare, "book it", asynchronous=asynchronous)
    for step in ("never mind", value):
        with pytest.raises(RefusedError, match="c1"):
            await run(bare, step, asynchronous=asynchronous)
    model.script.append(FINE)
    graph = with_patching(bare)
    await run(graph, value, asynchronous=asynchronous)
    assert valid_lines(graph)[2:] == [SENT, NOT_WIRED, "human: never mind", "ai: fine"]


@sync_and_async
async def test_f20_between_two_model_calls_of_one_run(*, asynchronous: bool):
    """A tools node that answers one call of two: the model is asked again, in the same run."""

    def build(*script: Any) -> Graph:
        model = StrictModel(script=list(script))

        def answer_one(state: MessagesState) -> dict[str, Any]:
            call = state["messages"][-1].tool_calls[0]
            texts = ToolMessage("sent to bob", name=call["name"], tool_call_id=call["id"])
            return {"messages": [texts]}

        builder = StateGraph(MessagesState)
        builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_node("tools", answer_one)
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", tools_condition)
        builder.add_edge("tools", "agent")
        return builder.compile(checkpointer=InMemorySaver())

    with pytest.raises(RefusedError, match="c2"):
        await run(build(both_calls()), "book it", asynchronous=asynchronous)
    graph = with_patching(build(both_calls(), FINE))
    await run(graph, "book it", asynchronous=asynchronous)
    assert valid_lines(graph)[2:] == [SENT, UNKNOWN_RESULTS[1], "ai: fine"]


# --- F21, F22: inside, and cut short -----------------------------------------------------


@sync_and_async
async def test_f21_damage_in_the_namespace_of_a_subgraph(*, asynchronous: bool):
    """The parent is valid, its child with its own history is not: found and repaired there."""

    def build(*script: Any) -> tuple[Graph, Watched]:
        office = Office()
        model = StrictModel(script=list(script))
        builder = StateGraph(MessagesState)
        child = create_agent(model, office.tools(), checkpointer=True)
        builder.add_node("clerk", child)
        builder.add_edge(START, "clerk")
        return builder.compile(checkpointer=office.saver), office.saver

    bare, saver = build(both_calls())
    await run(bare, "book it", asynchronous=asynchronous)
    with pytest.raises(RefusedError, match="c1"):
        await run(bare, "never mind", asynchronous=asynchronous)
    assert [(r.namespace, r.status) for r in scan_threads(saver)] == [
        ("", "healthy"),
        ("clerk", "damaged"),
    ]

    bare, saver = build(both_calls(), FINE)
    graph = with_patching(bare)
    for text in ("book it", "never mind"):
        await run(graph, text, asynchronous=asynchronous)
    place = {"configurable": {"thread_id": "1", "checkpoint_ns": "clerk"}}
    inside = saver.get_tuple(place).checkpoint["channel_values"]["messages"]
    assert SENT in lines(inside)
    assert NOT_WIRED in lines(inside)
    assert validate_messages(inside) == []
    assert [str(r) for r in scan_threads(saver) if r.status != "healthy"] == []


@sync_and_async
async def test_f22_the_recursion_limit_and_a_cancelled_run(*, asynchronous: bool):
    """Cut short before its tools or in them, a thread goes on with the next message."""
    bare, model = agent(both_calls())
    with pytest.raises(RecursionError):
        await run(
            bare, "book it", asynchronous=asynchronous, config={**thread(), "recursion_limit": 1}
        )
    with pytest.raises(RefusedError, match="c1"):
        await run(bare, "hello?", asynchronous=asynchronous)
    model.script.append(FINE)
    graph = with_patching(bare)
    await run(graph, "hello!", asynchronous=asynchronous)
    assert valid_lines(graph)[2:] == [
        *UNKNOWN_RESULTS,
        "human: hello?",
        "human: hello!",
        "ai: fine",
    ]

    office = Office()
    bare, _ = agent(ai(MAIL, SLOW, id="a1"), FINE, office=office)
    graph = with_patching(bare)
    await cancelled(graph, office, asynchronous=True)
    await run(graph, "hello?", asynchronous=asynchronous)
    assert valid_lines(graph)[2:] == [SENT, CUT_OFF, "human: hello?", "ai: fine"]


# --- F23, F24: others who answer calls ---------------------------------------------------


async def unpatched_and_patched(
    middleware: Any, calls: AIMessage, *values: Any, asynchronous: bool
) -> tuple[list[str], list[str], list[Any]]:
    """The two histories, and the repairs that the patched agent tells of."""
    reported: list[Any] = []
    kept = []
    for patched in (False, True):
        bare, _ = agent(calls, FINE, AIMessage("yes?"), middleware=[middleware])
        graph = with_patching(bare, on_patch=lambda *p: reported.append(p)) if patched else bare
        for value in values:
            await run(graph, value, asynchronous=asynchronous)
        kept.append(valid_lines(graph))
    return *kept, reported


@sync_and_async
async def test_f23_calls_that_a_limit_has_answered(*, asynchronous: bool):
    """A middleware that ends the run answers the blocked calls itself: nothing is done to them."""
    limit = ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")
    calls = ai(MAIL, ("send_email", {"to": "eve"}, "c2"), id="a1")
    bare, patched, reported = await unpatched_and_patched(
        limit, calls, "book it", "hello?", asynchronous=asynchronous
    )
    assert (patched, reported) == (bare, [])
    assert [line.split(":")[0] for line in bare][2:] == ["tool c2", "tool c1", "ai", "human", "ai"]


@sync_and_async
async def test_f24_one_call_approved_and_one_rejected(*, asynchronous: bool):
    """Their results come in the order in which they were decided: it is left as it is."""
    asks = HumanInTheLoopMiddleware(interrupt_on={"send_email": True})
    calls = ai(MAIL, ("send_email", {"to": "eve"}, "c2"), id="a1")
    decisions = [{"type": "approve"}, {"type": "reject", "message": "not her"}]
    mixed = Command(resume={"decisions": decisions})
    bare, patched, reported = await unpatched_and_patched(
        asks, calls, "book it", mixed, "hello?", asynchronous=asynchronous
    )
    assert (patched, reported) == (bare, [])
    assert [line.split(":")[0] for line in bare][2:4] == ["tool c2", "tool c1"]
    assert bare[3] == SENT


# --- F25: a stream that was cut inside arguments -----------------------------------------

NOT_RUN = MALFORMED.format("send_email", "c1")
CUT = [
    AIMessageChunk(
        "",
        id="a1",
        tool_call_chunks=[{"name": "send_email", "args": '{"to": "bo', "id": "c1", "index": 0}],
    ),
    AIMessageChunk("", id="a1"),
]


@pytest.mark.parametrize("made_by", ["sum", "message_from_stream"])
@sync_and_async
async def test_f25_a_call_that_only_looks_finished(made_by: str, *, asynchronous: bool):
    """Summed up, the truncated call is valid and runs: nothing is between the model and the tools.

    `message_from_stream` knows better: nothing is sent, and the next turn says why.
    """
    office = Office()
    cut = CUT[0] + CUT[1] if made_by == "sum" else message_from_stream(CUT)
    bare, _ = agent(cut, FINE, AIMessage("yes?"), office=office)
    graph = with_patching(bare)
    for text in ("book it", "hello?"):
        await run(graph, text, asynchronous=asynchronous)
    if made_by == "sum":
        assert office.done == ["mail to bo"]
        assert valid_lines(graph)[2] == "tool c1: sent to bo"
    else:
        assert office.done == []
        assert f"tool c1: {NOT_RUN}" in valid_lines(graph)


@pytest.mark.parametrize("name", REDUCERS)
def test_f25_a_stored_chunk_that_was_cut(name: str):
    """Where the state keeps the raw text, the call is answered as malformed, and tells it.

    `add_messages` makes a message of the chunk: the raw text is gone before anyone can
    look, and the placeholder states only that no result was recorded.
    """
    graph, _ = reducer_graph(REDUCERS[name], FINE, checkpointer=InMemorySaver())
    damage = [human("book it"), CUT[0] + CUT[1], human("and?")]
    graph.update_state(thread(), {"messages": damage}, as_node="model")
    graph = with_patching(graph)
    new_turn(graph, REDUCERS[name], thread(), human("hello?"))
    [answer] = [m for m in history(graph, thread()) if isinstance(m, ToolMessage)]
    if name.startswith("add_messages"):
        assert answer.text == UNKNOWN.format("send_email", "c1")
    else:
        raw = {"cause": "malformed", "arguments": '{"to": "bo'}
        assert answer.additional_kwargs[PLACEHOLDER_KEY].items() >= raw.items()
        assert answer.text == INCOMPLETE.format("send_email", "c1")
    assert valid_lines(graph)[-1] == "ai: fine"


# --- F33, F34, F36 -----------------------------------------------------------------------


@sync_and_async
async def test_f33_a_stale_approval_runs_nothing(*, asynchronous: bool):
    """After the human moved on, an answer by the old id runs no node, so nothing can repair.

    That it does no harm is all that there is: no money moves, the history stays as it is.
    """
    office = Office()
    bare, model = agent(both_calls(), FINE, office=office)
    graph = with_patching(bare)
    asked = await run(graph, "book it", asynchronous=asynchronous)
    await run(graph, "never mind", asynchronous=asynchronous)
    before = history(graph, thread())
    stale = Command(resume={asked["__interrupt__"][0].id: "yes"})
    await run(graph, stale, asynchronous=asynchronous)
    assert history(graph, thread()) == before
    assert (len(model.seen), office.done) == (2, ["mail to bob"])
    assert valid_lines(graph)[3] == NOT_WIRED


@sync_and_async
async def test_f34_killed_between_the_tools_and_their_checkpoint(*, asynchronous: bool):
    """Every tool had written its result, and no checkpoint took it: all are recovered.

    `test_kills.py` does the same with a real `kill -9`.
    """
    saver = InMemorySaver()
    killed("create_agent", saver, thread())
    bare = application("create_agent", saver, FINE)
    with pytest.raises(RefusedError, match="c1"):
        await run(bare, "and?", asynchronous=asynchronous)
    graph = with_patching(bare)
    await run(graph, None, asynchronous=asynchronous)
    assert valid_lines(graph)[2:] == [SENT, "tool c2: sent to eve", "human: and?", "ai: fine"]


@sync_and_async
async def test_f36_a_repair_is_made_once_and_always_alike(
    caplog: pytest.LogCaptureFixture, *, asynchronous: bool
):
    """Two threads broken alike get the same bytes and ids; each says so once, in one line."""
    texts = []
    with caplog.at_level(logging.DEBUG, logger="langgraph_patch"):
        for _ in range(2):
            bare, _ = agent(FINE, AIMessage("yes?", id="yes"))
            damage = [human("book it"), both_calls(), human("wait")]
            bare.update_state(thread(), {"messages": damage}, as_node="model")
            graph = with_patching(bare)
            for text in ("and?", "hello?"):
                await run(graph, text, asynchronous=asynchronous)
            assert valid_lines(graph)[:6] == REPAIRED[:6]
            messages = history(graph, thread())
            dumped = [m.model_dump_json() for m in messages if m.id not in {"fine", "yes"}]
            texts.append(dumped)
    assert texts[0] == texts[1]
    reports = [r for r in caplog.records if not r.getMessage().startswith("with_patching")]
    assert [record.name for record in reports] == ["langgraph_patch"] * 2


NUMBERS = {*range(1, 28), 29, 32, 33, 34, 36}
"""The numbers of the failure modes; the numbers between were dropped."""


def test_every_failure_mode_has_a_test():
    """Here or in `test_patch.py` (there also under the number of its example, `r`)."""
    folder = Path(__file__).parent
    found = {
        int(number)
        for name in (__file__, folder.parent / "history" / "test_patch.py")
        for number in re.findall(
            r"^(?:async )?def test_[fr](\d+)_", Path(name).read_text(), re.MULTILINE
        )
    }
    assert found == NUMBERS
