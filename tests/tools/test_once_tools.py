"""`once=[...]`: what a tool may do, what has to be there, and the option."""

from __future__ import annotations

import itertools
import threading
from functools import partialmethod

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
    wrap_tool_call,
)
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from kit import BARE, KINDS, Counting, StrictModel, above, calls, loop, model_node
from langgraph_patch import with_patching
from langgraph_patch._langgraph.run import Run
from langgraph_patch.errors import GraphError, OptionError, StartedError
from langgraph_patch.evidence.claims import is_record
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.bank import PAID, REFUSED, THREAD, Bank, LostError, Talk, twice

pytestmark = pytest.mark.needs("delta_as_node", langgraph="1.2")

# --- what a tool may do -------------------------------------------------------------------------


@pytest.mark.parametrize("by_middleware", [False, True])
def test_a_call_that_a_human_sends_to_another_tool(by_middleware):
    """The tool that runs is the one that counts, also if the message calls another one."""
    paid: list[int] = []

    @tool
    def quote(amount: int) -> str:
        """Quote."""
        return f"quoted {amount}"

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    own = [HumanInTheLoopMiddleware({"quote": {"allowed_decisions": ["approve", "edit"]}})]
    own += [PatchToolCallsMiddleware(once=["pay"])] * by_middleware
    model = StrictModel(script=[calls(("quote", {"amount": 5})), *["done"] * 2])
    agent = create_agent(model, [quote, pay], middleware=own, checkpointer=InMemorySaver())
    agent = agent if by_middleware else with_patching(agent, once=["pay"])
    agent.invoke({"messages": [HumanMessage("go")]}, THREAD)
    asked = agent.get_state(THREAD).config
    action = {"name": "pay", "args": {"amount": 5}}
    answer = Command(resume={"decisions": [{"type": "edit", "edited_action": action}]})
    for config in (THREAD, asked):
        texts = [m.text for m in agent.invoke(answer, config)["messages"] if m.type == "tool"]
        assert texts[0].endswith("paid 5")
    assert paid == [5]


def test_a_handover_that_is_raised():
    """A tool runs a graph whose node leaves for the graph above: a replay leaves again."""
    bank = Bank()

    @tool
    def leaves() -> str:
        """Run a graph that hands over."""
        bank.paid.append(1)
        graph = above(lambda _: Command(graph=Command.PARENT, goto="agent", update=UPDATE))
        return str(graph.compile().invoke({"messages": []}))

    message = ToolMessage("handed over", tool_call_id="c1")
    UPDATE = {"messages": [message]}  # noqa: N806 - the closure above reads it
    build = lambda model, _, saver, **options: with_patching(
        loop(model, [leaves]).compile(checkpointer=saver), **options
    )
    talk = Talk(build, bank=bank, script=[calls(("leaves", {}))], once=["leaves"])
    assert talk.say("go") is None
    assert (bank.paid, talk.read) == ([1], "handed over")
    (old,) = [s.config for s in talk.graph.get_state_history(THREAD) if s.next == ("tools",)]
    seen = len(talk.model.seen)
    assert talk.run(None, old) is None
    assert (bank.paid, talk.read, len(talk.model.seen)) == ([1], "handed over", seen + 1)


@pytest.mark.parametrize("kind", ["create_agent", "recorded"])
def test_a_result_that_cannot_be_stored(kind, caplog):
    """It is recorded without its artifact, and the run has LangGraph's own error, if any."""
    bank = Bank()

    @tool(response_format="content_and_artifact")
    def looks(amount: int) -> tuple:
        """Return an artifact."""
        bank.paid.append(amount)
        return f"saw {amount}", threading.Lock()

    build = lambda model, _, saver, **options: KINDS[kind](model, [looks], saver, **options)
    script = [calls(("looks", {"amount": 5}))]
    talk = Talk(build, bank=bank, script=script, once=["looks"])
    assert talk.say("go") == "TypeError"
    (warning,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert (
        "cannot be stored as it is, so the record of its call has no artifact"
        in warning.getMessage()
    )
    assert talk.say() is None
    assert (bank.paid, talk.read) == ([5], "saw 5")


# --- where it cannot be known -------------------------------------------------------------------


class OwnSaver(InMemorySaver):
    """A checkpointer of the application."""

    def put_writes(self, *args):
        super().put_writes(*args)


@pytest.mark.parametrize("kind", ["hand_built", "create_agent", "middleware"])
def test_what_is_missing_is_an_error_before_the_tool(kind):
    """A checkpointer, a thread id, a checkpointer that is known; an application knows its own."""
    talk = Talk(kind, bank=Bank(asks=False), saver=OwnSaver())
    assert talk.say("pay") == "GraphError"
    assert "a OwnSaver is not known to keep the first" in str(talk.error)
    build = KINDS[kind]
    talk.graph = build(
        StrictModel(script=[calls(("pay", {"amount": 5}))]), [talk.bank.tool], None, once=["pay"]
    )
    assert talk.say("pay") == "GraphError"
    assert "has no checkpointer or no thread_id" in str(talk.error)
    assert talk.bank.paid == []
    OwnSaver.keeps_first_write = True
    try:
        talk = Talk(kind, saver=OwnSaver())
        talk.say("pay")
        assert (twice(talk), talk.bank.paid) == ([None, REFUSED], [5])
    finally:
        del OwnSaver.keeps_first_write


class Faulty(InMemorySaver):
    """Raises at one of its calls, before or after it has done it, or at each one from there on."""

    keeps_first_write = True
    form, left = "", 0

    def _raise(self, method, *args, **options):
        self.left -= 1
        if self.left == 0 and self.form == "after":
            getattr(InMemorySaver, method)(self, *args, **options)
        if (self.left == 0 and self.form) or (self.left < 0 and self.form == "outage"):
            raise LostError
        return getattr(InMemorySaver, method)(self, *args, **options)

    put, put_writes = partialmethod(_raise, "put"), partialmethod(_raise, "put_writes")
    get_tuple, list = partialmethod(_raise, "get_tuple"), partialmethod(_raise, "list")


@pytest.mark.parametrize("phase", ["pause", "answer", "second"])
@pytest.mark.parametrize("form", ["before", "after", "outage"])
@pytest.mark.parametrize("kind", ["hand_built", "recorded", "middleware"])
def test_a_checkpointer_that_raises(kind, form, phase, pytestconfig):
    """At each call: the next answer runs what was approved, once, as in the graph without once."""

    def played(once, place, *, asynchronous):
        talk = Talk(kind, saver=Faulty(), once=once, asynchronous=asynchronous)
        steps = {"pause": talk.say, "answer": lambda: talk.answer("yes")}
        for name, step in {**steps, "second": steps["answer"], "last": steps["answer"]}.items():
            if name == phase:
                talk.saver.form, talk.saver.left = form, place
            step()
            was_reached = talk.saver.left <= 0
            talk.saver.form = ""
            if name == "pause" and not talk.graph.get_state(THREAD).interrupts:
                talk.run(None)
            if name == phase and not was_reached:
                return None
        return talk.bank.paid[:1] if once == [] else talk.bank.paid

    for asynchronous in (False, True)[: 1 + pytestconfig.getoption("--long")]:
        for place in itertools.count(1):
            paid = played(["pay"], place, asynchronous=asynchronous)
            if paid is None:
                break
            assert paid == played([], place, asynchronous=asynchronous) or paid == [5], place
        assert place > 2


@pytest.mark.parametrize(
    "kind", ["hand_built", "create_agent", "middleware", "node", "delta_as_node"]
)
def test_durability_exit(kind):
    """The message of the call is not stored, so it is refused."""
    talk = Talk(kind, bank=Bank(asks=False))
    with pytest.raises(GraphError, match="durability='exit'"):
        talk.graph.invoke({"messages": [HumanMessage("pay")]}, THREAD, durability="exit")
    assert talk.bank.paid == []


def test_a_langgraph_that_does_not_tell_whether_the_message_is_stored(monkeypatch):
    """The checkpointer is asked. If it has no such checkpoint, the call is refused."""
    monkeypatch.setattr(Run, "_loop", None)
    talk = Talk("create_agent", bank=Bank(asks=False))
    talk.graph.invoke({"messages": [HumanMessage("pay")]}, THREAD)
    assert talk.bank.paid == [5]
    monkeypatch.setattr("langgraph_patch._langgraph.storage.WAITS", ())
    talk = Talk("create_agent", bank=Bank(asks=False))
    with pytest.raises(GraphError, match="does not show whether it is stored"):
        talk.graph.invoke({"messages": [HumanMessage("pay")]}, THREAD)
    assert talk.bank.paid == []


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("once", "text"),
    [
        ("pay", "expected a list of the names"),
        (["pay", "pay"], "names of tools, each once"),
        ([""], "expected a list of the names"),
        ([1], "expected a list of the names"),
        (None, "expected a list of the names"),
    ],
)
def test_a_wrong_option(once, text):
    """An error when the graph is wrapped."""
    graph = loop(StrictModel(), [Bank().tool])
    for make in (
        lambda: with_patching(graph, once=once),
        lambda: PatchToolCallsMiddleware(once=once),
    ):
        with pytest.raises(OptionError, match=text):
            make()


def test_an_unknown_tool(caplog):
    """An error if all tools are known; else a warning, with the name that may be meant."""
    graph = loop(StrictModel(), [Bank().tool])
    with pytest.raises(
        OptionError, match=r"no ToolNode of the graph has a tool called 'pai'.*mean 'pay'"
    ):
        with_patching(graph, once=["pai"])
    with pytest.raises(OptionError, match=r"expected one of 'pay'\.$"):
        with_patching(graph, once=["something"])
    with pytest.raises(OptionError, match="it has no ToolNode"):
        with_patching(above(model_node(StrictModel())), once=["pay"])
    agent = BARE["create_agent"](
        StrictModel(), [Bank().tool], None, middleware=[ToolRetryMiddleware()]
    )
    with_patching(agent, once=["pai", "something"])
    warning = "once: no ToolNode has a tool called"
    assert f"{warning} 'something' yet." in caplog.text
    assert f"{warning} 'pai' yet. Did you mean 'pay'?" in caplog.text
    caplog.clear()
    talk = Talk("middleware", bank=Bank(asks=False), once=["pai"])
    talk.say("pay")
    assert (len(talk.bank.paid), caplog.text.count(f"{warning} 'pai'")) == (1, 1)


@pytest.mark.parametrize("called", ["pay", "quote"])
def test_a_tool_that_a_wrapper_brings(called):
    """Its call runs once, too; also if the model called another one, which a human has edited.

    With `with_patching` no middleware makes a message of the `StartedError`.
    """
    bank = Bank()

    @wrap_tool_call
    def catches(request, handler):
        try:
            return handler(request)
        except StartedError:
            return ToolMessage("failed", tool_call_id="c1")

    class Brings(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            sent = {**request.tool_call, "name": "pay"}
            return handler(request.override(tool=bank.tool, tool_call=sent))

    for patch in (True, False):
        bank.paid.clear()

        def build(model, _, saver, *, patch=patch, **options):
            own = [catches, Brings()] if patch else [Brings(), PatchToolCallsMiddleware(**options)]
            agent = BARE["create_agent"](model, [], saver, middleware=own)
            return with_patching(agent, **options) if patch else agent

        talk = Talk(build, bank=bank, script=[calls((called, {"amount": 5}))])
        talk.say("pay")
        assert (twice(talk), bank.paid, talk.read) == ([None, REFUSED], [5], PAID)


def test_nothing_is_different_without_the_option():
    """No wrapper, no record, and no query."""
    assert type(PatchToolCallsMiddleware()) is PatchToolCallsMiddleware
    assert type(PatchToolCallsMiddleware()).wrap_tool_call is AgentMiddleware.wrap_tool_call
    assert PatchToolCallsMiddleware(once=["pay"]).name == "PatchToolCallsMiddleware"
    for kind in KINDS:
        counts = []
        for once in ([], ["pay"]):
            saver = Counting()
            talk = Talk(kind, bank=Bank(asks=False), saver=saver, once=once)
            talk.say("pay")
            counts.append(saver.used)
        assert (counts[1] - counts[0]) == {"put": 1, "list": 1}
        assert not any(is_record(key[1]) for key in saver.writes if once == [])


def test_a_subclass_with_a_wrapper_of_its_own():
    """Its wrapper would be lost: an error."""

    class Own(PatchToolCallsMiddleware):
        def wrap_tool_call(self, request, handler):
            return handler(request)

    Own()
    with pytest.raises(OptionError, match="Own has a wrap_tool_call of its own"):
        Own(once=["pay"])
