"""`once=[...]`: a call of a named tool runs once, and what the model reads of it is true."""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    wrap_tool_call,
)
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt
from typing_extensions import TypedDict

from kit import BARE, KINDS, NESTED, StrictModel, calls, loop, results_in
from langgraph_patch import with_patching
from langgraph_patch.errors import GraphError, PatchError, StartedError
from langgraph_patch.evidence.claims import is_record
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.bank import (
    APPROVED,
    FAILED_TEXT,
    PAID,
    REFUSED,
    SCENES,
    STARTED_TEXT,
    THREAD,
    YES,
    Bank,
    Memory,
    Sqlite,
    Talk,
    ended_then_continued,
    ended_then_message,
    lost,
    replay,
    twice,
)
from support.databases import sqlite_saver
from support.placeholder_texts import UNKNOWN


def sending_alone(call):
    """A graph that sends a call that no message of its state makes."""

    def build(model, tools, saver, **options):
        builder = loop(model, tools, router=lambda _: Send("tools", [call]))
        builder.edges.discard(("tools", "agent"))
        return with_patching(builder.compile(checkpointer=saver), **options)

    return build


pytestmark = [
    pytest.mark.needs("delta_as_node, timed", langgraph="1.2"),
    # A retry takes an interrupt for an error.
    pytest.mark.needs("retry middleware, middleware", langchain="1.4"),
]

PLAYED = [
    *((kind, {}) for kind in (*KINDS, *NESTED, *APPROVED)),
    *((kind, {"asynchronous": True}) for kind in ("hand_built", "create_agent", "node", "hitl")),
    *((kind, {"sqlite": True}) for kind in ("create_agent", "recorded", "middleware", "checked")),
    ("timed", {"asynchronous": True}),
]
CASES = [(*played, scene) for played in PLAYED for scene in SCENES]


def pytest_generate_tests(metafunc):
    """Play a quarter of the scenes, each with some kinds of graphs; all with `--long`."""
    if "scene" in metafunc.fixturenames:
        cases = CASES if metafunc.config.getoption("--long") else CASES[::4]
        names = [f"{kind} {options} {scene.__name__}" for kind, options, scene in cases]
        metafunc.parametrize(("kind", "options", "scene"), cases, ids=names)


def saver_of(options):
    """The checkpointer of a scene."""
    is_sqlite = options.pop("sqlite", False)
    return sqlite_saver(kind=Sqlite) if is_sqlite else Memory()


@pytest.mark.needs("delta_as_node", langgraph="1.2")
@pytest.mark.needs("timed", langgraph="1.2")
def test_a_call_runs_once(kind, options, scene):
    """Whatever happens: the tool paid once, and the model reads what was recorded of it."""
    options = dict(options)
    talk = Talk(kind, saver=saver_of(options), **options)
    assert talk.say("pay 5") is None
    raised, read = SCENES[scene]
    assert scene(talk) == raised
    assert talk.bank.paid == [5]
    assert talk.read == read
    assert not talk.graph.get_state(THREAD).next


# --- what a handler of errors makes of a refusal ------------------------------------------------


class SaysError(AgentMiddleware):
    """Makes a message of each error, as LangChain's documentation has it."""

    def wrap_tool_call(self, request, handler):
        try:
            return handler(request)
        except Exception as error:  # noqa: BLE001 - as it is there
            return self._text(request, error)

    async def awrap_tool_call(self, request, handler):
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - as it is there
            return self._text(request, error)

    def _text(self, request, error):
        text = f"Tool error: try again ({error})"
        return ToolMessage(text, tool_call_id=request.tool_call["id"])


@wrap_tool_call
def redacts(request, handler):
    """Hides how much was paid."""
    result = handler(request)
    return result.model_copy(update={"content": result.content.replace("5", "*")})


def agent_with(*middleware, patch=True):
    """A kind of agent with middleware of the application."""

    def build(model, tools, saver, **options):
        own = list(middleware) if patch else [*middleware, PatchToolCallsMiddleware(**options)]
        agent = BARE["create_agent"](model, tools, saver, middleware=own)
        return with_patching(agent, **options) if patch else agent

    return build


def loop_with(**options):
    """A kind of agent: a loop whose ToolNode has these options."""

    def build(model, tools, saver, **once):
        graph = loop(model, ToolNode(tools, **options)).compile(checkpointer=saver)
        return with_patching(graph, **once)

    return build


def retried(model, tools, saver, **options):
    """A loop whose tool node retries."""
    builder = loop(model, tools)
    builder.nodes["tools"].retry_policy = RetryPolicy(initial_interval=0, retry_on=Exception)
    return with_patching(builder.compile(checkpointer=saver), **options)


RETRY = ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)
HANDLERS = {
    "handle_tool_errors": loop_with(handle_tool_errors=True),
    "handle one type": loop_with(handle_tool_errors=(ValueError, PatchError)),
    "retry middleware": agent_with(RETRY),
    "retry middleware, middleware": agent_with(RETRY, patch=False),
    "a wrapper": agent_with(SaysError()),
    "retry policy": retried,
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", HANDLERS)
def test_no_handler_makes_a_message_of_a_refusal(name, asynchronous):
    """The model would read that a payment failed that was made."""
    talk = Talk(HANDLERS[name], bank=Bank(asks=False), asynchronous=asynchronous)
    talk.bank.gate.clear()
    first = threading.Thread(target=talk.say)
    first.start()
    assert talk.bank.begun.wait(20)
    assert talk.run(None) == REFUSED
    assert isinstance(talk.error, StartedError)
    assert (talk.error.tool_name, talk.error.tool_call_id, talk.error.thread_id) == (
        "pay",
        "c1",
        "1",
    )
    talk.bank.gate.set()
    first.join()
    assert (talk.bank.paid, talk.read) == ([5], PAID)


@pytest.mark.parametrize(
    ("name", "raised", "read"),
    [
        (
            "handle_tool_errors",
            None,
            "Error: RuntimeError('bank down')\n Please fix your mistakes.",
        ),
        ("retry middleware", REFUSED, FAILED_TEXT),
        ("retry middleware, middleware", REFUSED, FAILED_TEXT),
        ("a wrapper", None, "Tool error: try again (bank down)"),
        ("retry policy", REFUSED, FAILED_TEXT),
    ],
)
def test_a_tool_that_fails(name, raised, read):
    """It is not started again by a retry; a message that a handler makes of its error is kept.

    The first error is the cause of a refused attempt.
    """
    talk = Talk(HANDLERS[name], bank=Bank(asks=False))
    talk.bank.fails = True
    talk.saver.breaks = lambda namespace, _: not is_record(namespace) and bool(talk.bank.paid)
    talk.saver.after = False
    talk.say()
    talk.saver.is_lost, talk.saver.breaks = False, lambda *_: False
    assert talk.say() is None
    assert (talk.bank.paid, talk.read) == ([5], read)
    talk = Talk(HANDLERS[name], bank=Bank(asks=False))
    talk.bank.fails = True
    assert talk.say() == raised
    if raised and "middleware" not in name.split(", ")[-1:]:
        assert talk.bank.paid == [5]
    if name == "retry middleware":  # the second attempt is refused
        assert repr(talk.error.__cause__) == "RuntimeError('bank down')"
        assert "was started by this run before" in str(talk.error)


def test_a_tool_node_with_fallbacks_is_refused():
    """They would take a refusal for an error, and answer the call."""
    node = ToolNode([Bank().tool]).with_fallbacks([RunnableLambda(lambda _: {"messages": []})])
    builder = loop(StrictModel(), [])
    builder.nodes["tools"].runnable = node
    with pytest.raises(GraphError, match="'tools' is a ToolNode with_fallbacks"):
        with_patching(builder, once=["pay"])
    with_patching(builder)


# --- wrappers of the application ----------------------------------------------------------------


@pytest.mark.parametrize("patch", [True, False])
def test_who_comes_second_reads_what_a_wrapper_made_of_the_result(patch):
    """Also if the loser ends last, and in a repair (there, of a graph that is wrapped)."""
    talk = Talk(agent_with(redacts, patch=patch))
    talk.say("pay")
    assert replay(talk) == [None, None]
    assert (talk.bank.paid, talk.read) == ([5], "paid *: yes")
    talk = Talk(agent_with(redacts, patch=patch))
    talk.say("pay")
    assert ended_then_continued(talk) == [None]
    assert (talk.bank.paid, talk.read) == ([5], "paid *: yes")
    if patch:
        talk = Talk(agent_with(redacts))
        talk.say("pay")
        assert ended_then_message(talk) == [None]
        assert talk.read == "paid *: yes"


def test_what_a_task_recorded_counts_more_than_the_record_of_the_call():
    """A wrapper around the middleware is not in the record: what it hides stays hidden."""
    one, two = calls(("pay", {"amount": 5}), ("ask", {})).tool_calls

    @tool
    def ask() -> str:
        """Wait for a human."""
        return interrupt("well?")

    def build(model, tools, saver, **options):
        own = [redacts, PatchToolCallsMiddleware(**options)]
        return BARE["create_agent"](model, [*tools, ask], saver, middleware=own)

    talk = Talk(build, bank=Bank(asks=False), script=[AIMessage("", tool_calls=[one, two])])
    assert (talk.say("go"), talk.say()) == (None, None)
    assert (talk.bank.paid, talk.read) == ([5], "paid *: yes")


def test_a_call_that_a_wrapper_does_not_run_has_no_record():
    """A limit of calls, a cache, a mock."""

    @wrap_tool_call
    def answers(request, handler):
        return ToolMessage("from a cache", tool_call_id=request.tool_call["id"])

    talk = Talk(agent_with(answers, ToolCallLimitMiddleware(run_limit=5)))
    assert talk.say("pay") is None
    assert (talk.bank.paid, talk.read) == ([], "from a cache")
    assert not [s for s in talk.saver.list(THREAD) if s.config["configurable"]["checkpoint_ns"]]


def reviewing(kind):
    """A wrapper behind whose tool something happens: a human reviews its result, or it raises."""
    done = []

    @wrap_tool_call
    def review(request, handler):
        result = handler(request)
        if kind == "asks":
            return result.model_copy(update={"content": f"{interrupt('right?')}: {result.content}"})
        if not done:
            done.append(1)
            raise RuntimeError("audit down")
        return result

    return review


@pytest.mark.parametrize("kind", ["asks", "raises"])
def test_a_wrapper_that_fails_or_asks_behind_the_tool(kind):
    """The tool is not run again, and nothing false is said of it: it did not fail."""
    talk = Talk(agent_with(reviewing(kind)), bank=Bank(asks=False))
    assert talk.say("pay") == {"asks": None, "raises": "RuntimeError"}[kind]
    assert talk.run(YES) == REFUSED
    assert talk.say() is None
    assert (talk.bank.paid, talk.read) == ([5], STARTED_TEXT)


def test_a_wrapper_that_runs_the_tool_twice():
    """It gets the same result again for the same arguments, and is refused for others."""

    def twice_with(other):
        @wrap_tool_call
        def wrapper(request, handler):
            handler(request)
            call = {**request.tool_call, "args": {"amount": other}}
            return handler(request.override(tool_call=call))

        return wrapper

    for other, raised in ((5, None), (6, REFUSED)):
        talk = Talk(agent_with(twice_with(other)), bank=Bank(asks=False))
        assert (talk.say("pay"), talk.bank.paid) == (raised, [5])


def test_a_wrapper_that_tries_again_when_the_tool_asks():
    """It takes a question for an error, as LangChain's documentation has it: it is still asked."""

    @wrap_tool_call
    def tries_again(request, handler):
        try:
            return handler(request)
        except Exception:  # noqa: BLE001 - as it is there
            return handler(request)

    talk = Talk(agent_with(tries_again))
    assert (talk.say("pay"), len(talk.graph.get_state(THREAD).interrupts)) == (None, 1)
    assert twice(talk) == [None, REFUSED]
    assert (talk.bank.paid, talk.read) == ([5], PAID)


def test_a_retry_behind_the_middleware():
    """The middleware is not the last: what is inside of it does not run the tool twice either."""
    own = [PatchToolCallsMiddleware(once=["pay"]), RETRY]
    build = lambda model, tools, saver, **_: create_agent(
        model, tools, checkpointer=saver, middleware=own
    )
    for asynchronous in (False, True):
        talk = Talk(build, bank=Bank(asks=False), asynchronous=asynchronous)
        talk.bank.fails = True
        assert (talk.say("pay"), talk.bank.paid) == (REFUSED, [5])


def test_the_middleware_in_a_patched_graph():
    """Both name the tool: it is claimed once."""

    def build(model, tools, saver, **options):
        own = [PatchToolCallsMiddleware(once=["pay"])]
        return with_patching(BARE["create_agent"](model, tools, saver, middleware=own), **options)

    for scene in (twice, replay, ended_then_message):
        talk = Talk(build)
        talk.say("pay")
        assert scene(talk) == SCENES[scene][0]
        assert (talk.bank.paid, talk.read) == ([5], PAID)


# --- which call it is ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["create_agent", "middleware", "hitl", "recorded"])
def test_an_edited_call_is_not_given_the_result_of_other_arguments(kind):
    """Somebody edits the call under its message, after it ran with the old arguments."""
    talk = Talk(kind, bank=Bank(asks=False))
    talk.say("pay")
    if kind == "hitl":
        talk.answer("yes")
    assert talk.read == PAID
    (old,) = [s for s in talk.graph.get_state_history(THREAD) if s.next[:1] == ("tools",)]
    message = old.values["messages"][-1]
    edited = message.model_copy(
        update={"tool_calls": [{**message.tool_calls[0], "args": {"amount": 9}}]}
    )
    node = "agent" if kind == "recorded" else "model"
    fork = talk.graph.update_state(old.config, {"messages": [edited]}, as_node=node)
    raised = talk.run(None, fork)
    if kind == "hitl":
        raised = talk.answer("yes")
    assert raised == REFUSED
    assert "was started with other arguments" in str(talk.error)
    assert talk.say() is None
    assert (talk.bank.paid, talk.read) == ([5], UNKNOWN.format("pay", "c1"))


def ids_of(*ids, amounts=(5, 5)):
    """A message with two calls of `pay`, with these ids."""
    pairs = zip(ids, amounts, strict=True)
    made = [{"name": "pay", "args": {"amount": n}, "id": i, "type": "tool_call"} for i, n in pairs]
    return AIMessage("", tool_calls=made)


def test_an_agent_in_a_tool_has_ids_of_its_own():
    """Its call is none of another tool with the same ids, which names the agent."""
    script = [calls(("pay", {"amount": 5}), id="m1"), "paid"]
    bank = Bank()
    inner = KINDS["middleware"](StrictModel(script=script), [bank.tool], None, once=["pay"])

    def delegate(task: str) -> str:
        """Delegate."""
        return inner.invoke({"messages": [("human", task)]})["messages"][-1].text

    def build(model, _, saver, **options):
        return KINDS["create_agent"](model, [delegate], saver, **options)

    outer = [calls(("delegate", {"task": "pay"}), id="m1")]
    talk = Talk(build, script=outer, bank=bank, once=["delegate"])
    assert [talk.say("pay"), talk.answer("yes")] == [None, None]
    assert (bank.paid, talk.read) == ([5], "paid")


SENDING = ["create_agent", "react_v2", "recorded", "send", "middleware"]


@pytest.mark.parametrize(("own", "amounts"), [("c1", (5, 5)), ("c1", (5, 6)), ("", (5, 5))])
@pytest.mark.parametrize("kind", ["hand_built", *SENDING])
def test_two_calls_with_one_id_are_two(kind, own, amounts):
    """Each runs once, and a second run gives each its own result."""
    script = [ids_of(own, own, amounts=amounts)]
    talk = Talk(kind, bank=Bank(asks=False), script=script)

    talk.say("pay")
    assert sorted(talk.bank.paid) == [*amounts]
    before = [s.config for s in talk.graph.get_state_history(THREAD) if "tools" in s.next]
    talk.run(None, before[0])
    assert sorted(talk.bank.paid) == [*amounts]
    results = [m.text for m in talk.model.seen[-1] if isinstance(m, ToolMessage)]
    assert results == [f"paid {n}: yes" for n in amounts]


@pytest.mark.parametrize("kind", SENDING)
def test_two_calls_that_ask(kind):
    """Each gets its own answer, and runs once, whatever comes at the same time."""
    talk = Talk(kind, script=[ids_of("c1", "c2", amounts=(5, 6))])
    talk.say("pay")
    one, other = talk.graph.get_state(THREAD).interrupts
    talk.run(Command(resume={one.id: "yes"}))
    assert sum(talk.bank.paid) in (5, 6)
    talk.run(Command(resume={one.id: "yes", other.id: "no"}))
    assert len(talk.bank.paid) == 1
    assert min(results_in(talk.model.seen[-1]).values()) == "declined"


@pytest.mark.parametrize("by_id", [False, True])
def test_an_answer_does_not_go_to_another_call_of_the_task(by_id):
    """In a plain ToolNode LangGraph counts the questions of all calls together: it is refused."""

    def answer(text):
        (asked,) = talk.graph.get_state(THREAD).interrupts
        return talk.run(Command(resume={asked.id: text} if by_id else text))

    talk = Talk("hand_built", script=[ids_of("c1", "c2", amounts=(5, 6))])
    talk.say("pay")
    assert answer("yes") is None
    assert len(talk.bank.paid) == 1
    assert answer("no") == REFUSED
    assert "record=True" in str(talk.error)
    assert talk.say() is None
    assert len(talk.bank.paid) == 1
    assert PAID.replace("5", str(talk.bank.paid[0])) in results_in(talk.model.seen[-1]).values()


def test_an_answer_that_was_used_does_not_go_to_another_call():
    """The process dies when the first call has ended: LangGraph has the answer still."""
    talk = Talk("hand_built", script=[ids_of("c1", "c2", amounts=(5, 6))])
    talk.say("pay")
    lost(talk, "ended", after=True)
    assert talk.run(None) == REFUSED
    assert talk.say() is None
    assert len(talk.bank.paid) == 1


@pytest.mark.parametrize("called", ["pay", "quote"])
def test_one_answer_twice_at_once_does_not_go_to_another_call(called):
    """Both runs have begun the task before either has begun a call, which a wrapper may rename."""
    paid = []

    @tool
    def pay(amount: int) -> str:
        """Pay, if a human agrees."""
        if interrupt(f"pay {amount}?") == "yes":
            paid.append(amount)
        return "done"

    def slow(request, handler):
        time.sleep(request.tool_call["args"]["amount"] / 20)
        sent = {**request.tool_call, "name": "pay"}
        return handler(request.override(tool=pay, tool_call=sent))

    model = StrictModel(script=[calls((called, {"amount": 5}), (called, {"amount": 10}))])
    builder = loop(model, ToolNode([pay], wrap_tool_call=slow))
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()), once=["pay"])
    graph.invoke({"messages": [("user", "pay")]}, THREAD)

    def answer(after):
        time.sleep(after)
        try:
            return graph.invoke(Command(resume="yes"), THREAD)
        except StartedError as error:
            return error

    with ThreadPoolExecutor() as pool:
        first, second = pool.map(answer, (0, 0.05))
    assert paid == [5]
    assert [each.value for each in first["__interrupt__"]] == ["pay 10?"]
    assert isinstance(second, StartedError)


def test_a_call_beside_one_that_asks_in_a_plain_tool_node():
    """It is not run again by the answer."""
    bank, sent = Bank(), []

    @tool
    def mail() -> str:
        """Send a mail."""
        sent.append(1)
        return "sent"

    build = lambda model, tools, saver, **options: with_patching(
        loop(model, [*tools, mail]).compile(checkpointer=saver), **options
    )
    script = [calls(("mail", {}), ("pay", {"amount": 5}))]
    talk = Talk(build, bank=bank, script=script, once=["pay", "mail"])
    talk.say("pay")
    assert talk.run(YES) is None
    assert (sent, bank.paid) == ([1], [5])
    assert results_in(talk.model.seen[-1]) == {"c1": "sent", "c2": PAID}


class Unnamed(TypedDict):
    """A state whose reducer gives no ids."""

    messages: Annotated[list, operator.add]


def test_a_message_without_an_id():
    """The same."""

    def build(model, tools, saver, **options):
        builder = loop(model, tools, state=Unnamed)
        builder.nodes["agent"].runnable = RunnableLambda(
            lambda state: {
                "messages": [
                    m.model_copy(update={"id": None}) for m in [model.invoke(state["messages"])]
                ]
            }
        )
        return with_patching(builder.compile(checkpointer=saver), **options)

    talk = Talk(build, bank=Bank(asks=False))
    assert (talk.say("pay"), talk.bank.paid) == ("GraphError", [])


@pytest.mark.parametrize("work", [0, 0.2])
def test_the_answer_to_a_call_that_failed_or_still_runs_does_not_go_to_another_call(work):
    """A yes to the first one is no yes to the second one, to which a human says no."""
    paid = []

    @tool
    async def pay(amount: int) -> str:
        """Pay, if a human agrees."""
        if interrupt(f"pay {amount}?") != "yes":
            return "declined"
        paid.append(amount)
        if amount == 5:
            await asyncio.sleep(work)
            raise ValueError("bank down")
        return "paid"

    async def main():
        model = StrictModel(script=[calls(("pay", {"amount": 5}), ("pay", {"amount": 6}))])
        builder = loop(model, ToolNode([pay], handle_tool_errors=False))
        graph = with_patching(builder.compile(checkpointer=InMemorySaver()), once=["pay"])
        await graph.ainvoke({"messages": [("user", "pay")]}, THREAD)
        errors = []
        for answer in ("yes", "no"):
            try:
                await graph.ainvoke(Command(resume=answer), THREAD)
            except (StartedError, ValueError) as error:
                errors.append(error)
        return errors

    assert isinstance(asyncio.run(main())[-1], StartedError)
    assert paid == [5]


def test_a_call_whose_message_is_not_the_last_one():
    """A note of a model stands behind it, and a client sends the call on: it runs."""
    call = {"name": "pay", "args": {"amount": 5}, "id": "c1", "type": "tool_call"}
    script = [calls(("pay", {"amount": 5})), AIMessage("I ask a human.")]
    talk = Talk("recorded", script=script)
    talk.graph.update_state(THREAD, {"messages": script}, as_node="tools")
    assert talk.run(Command(goto=Send("tools", [call]))) is None
    assert [talk.answer("yes"), talk.bank.paid] == [None, [5]]


@pytest.mark.parametrize("call_id", ["c1", None])
def test_a_call_whose_message_is_gone(call_id):
    """Nothing says which call it is: an error before the tool."""
    call = {"name": "pay", "args": {"amount": 5}, "id": call_id, "type": "tool_call"}
    talk = Talk(sending_alone(call), script=[AIMessage("hi")], bank=Bank(asks=False))
    assert (talk.say("pay"), talk.bank.paid) == ("GraphError", [])
    assert "no message of a model that has an id makes it" in str(talk.error)
