"""The breaks and the strict model that users get: what each leaves, and what is no break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langgraph.graph import MessagesState, StateGraph

from kit import BARE, KINDS, Agent, Desk, model_node
from langgraph_patch.errors import GraphError, OptionError
from langgraph_patch.testing import (
    RefusedError,
    StrictModel,
    calls,
    check_request,
    cut,
    fail,
    kill,
    pause,
    refuse,
)
from support.placeholder_texts import FAILED, STOPPED, UNKNOWN, WAITED

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
TWO = calls(("mail", {"to": "bob"}), ("mail", {"to": "eve"}))
MAIL = calls(("mail", {"to": "bob"}))
CUT = calls(("mail", {"to": "bob"}), first=7)

BREAKS: dict[str, tuple[Any, Callable[[Agent], Any]]] = {
    "pause": (BOTH, lambda _: pause()),
    "fail": (BOTH, lambda _: fail("wire", OSError("kaput"))),
    "kill": (TWO, lambda it: kill(it.graph)),
    "cut": (CUT, lambda _: cut()),
    "refuse": ("It will rain.", lambda _: refuse()),
}
"""What the model says in the turn that breaks, and how that breaks."""
SENT = "sent to bob"


def broken(name: str, kind: Any, *, asynchronous: bool = False) -> Agent:
    """An agent whose thread was broken."""
    message, happens = BREAKS[name]
    it = Agent(kind, message, AIMessage("well"), asynchronous=asynchronous)
    with happens(it):
        it.say("go")
    return it


@pytest.mark.parametrize(
    ("name", "kind", "asynchronous"),
    [
        (name, kind, bool((a + b) % 2))
        for a, name in enumerate(BREAKS)
        for b, kind in enumerate(["create_agent", "recorded", "middleware"])
    ],
)
def test_a_patched_graph_goes_on(name: str, kind: str, *, asynchronous: bool):
    """Its model reads what was recorded, and nothing is done twice."""
    it = broken(name, KINDS[kind], asynchronous=asynchronous)
    assert it.say("never mind")["messages"][-1].text in ("well", "done")
    read = it.results
    if name == "kill":  # either of the two was not stored
        [lost] = [call_id for call_id, text in read.items() if not text.startswith("sent to ")]
        assert read.pop(lost) == UNKNOWN.format("mail", lost)
        assert it.desk.did == {"mail bob": 1, "mail eve": 1}
        return
    assert (
        read
        == {
            "pause": {"c1": SENT, "c2": WAITED.format("wire", "c2")},
            "fail": {"c1": SENT, "c2": FAILED.format("wire", "c2", "OSError('kaput')")},
            "cut": {"c7": STOPPED.format("mail", "c7")},
            "refuse": {},
        }[name]
    )
    assert it.desk.did == ({"mail bob": 1} if name in ("pause", "fail") else {})


@pytest.mark.parametrize("name", BREAKS)
def test_what_does_not_happen_is_an_error(name: str):
    """A test that breaks nothing shows nothing."""
    it = Agent(BARE["hand_built"])
    act = {"refuse": lambda: None}.get(name, lambda: it.say("go"))
    broke = BREAKS[name][1](it)
    with (
        pytest.raises(
            AssertionError, match=r"^The thread was not broken: (no |a tool has not ).*\.$"
        ),
        broke,
    ):
        act()


def test_a_break_inside_of_another_one():
    """Behind the inner one the outer one happens."""
    it = Agent(BARE["hand_built"], CUT)
    with refuse():
        with cut():
            it.say("go")
        it.say("and now?")


def test_what_else_goes_wrong_is_raised():
    """Another error of the run, and a graph that stores nothing."""
    with pytest.raises(ZeroDivisionError), pause():
        raise ZeroDivisionError
    builder = StateGraph(MessagesState).add_node("model", model_node(StrictModel()))
    graph = builder.set_entry_point("model").compile()
    with pytest.raises(GraphError, match="compiled with a checkpointer"), kill(graph):
        pass


# --- the model -------------------------------------------------------------------------------


REFUSED = {
    "calls ['c1'] have no result": [calls(("t", {}))],
    "no result right after them": [calls(("t", {})), HumanMessage("?")],
    "malformed arguments": [AIMessage("", invalid_tool_calls=[invalid_tool_call(id="c1")])],
    "result 'c9' answers no call": [ToolMessage("r", tool_call_id="c9")],
    "must have either content or tool_calls": [AIMessage(" "), HumanMessage("?")],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_a_provider_refuses(reason: str):
    """The error says why; nothing shares a line with the repair."""
    with pytest.raises(RefusedError) as raised:
        check_request(REFUSED[reason])
    assert reason in str(raised.value)
    assert raised.value.status_code == 400  # as of a provider, for each


def test_an_id_is_given_once():
    """In a second message, a second turn and an inner agent; a number that was chosen stays."""
    inner = create_agent(StrictModel(MAIL), [Desk().mail])
    read = []

    def research(topic: str) -> str:
        """Ask another agent."""
        read.extend(inner.invoke({"messages": [("human", topic)]})["messages"])
        return "found"

    ask = calls(("research", {"topic": "x"}))
    agent = create_agent(StrictModel(ask, "ok", BOTH, CUT, MAIL), [research, Desk().mail])
    state = agent.invoke({"messages": [("human", "go")]})
    state = agent.invoke({"messages": [*state["messages"], ("human", "on")]})
    found = [each.tool_call_id for each in [*state["messages"], *read] if each.type == "tool"]
    assert found == ["c1", "c2", "c3", "c7", "c8", "c101"]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda: StrictModel([AIMessage("a"), AIMessage("b")]).invoke("x"),
            r"cannot say \[AIM.*\(\*lines\)",
        ),
        (lambda: StrictModel(3).invoke("x"), "cannot say 3"),
        (lambda: StrictModel(responses=["a"]), "no field 'responses'"),
        (lambda: calls("mail", {"to": "bob"}), r"calls\('mail', \{'to': 'bob'\}\): expected"),
    ],
)
def test_a_script_that_says_nothing(make: Any, expected: str):
    """The error says what is meant."""
    with pytest.raises(OptionError, match=expected):
        make()
