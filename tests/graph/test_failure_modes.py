"""Each failure mode on a real graph: the bare graph fails or misleads, the patched does not.

The number in a test's name is that of the failure mode; `tests/CLAIMS.md` lists all of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START
from langgraph.types import Command

from kit import BARE, Agent, above, calls, lines, model_node, patched
from langgraph_patch import is_placeholder, validate_messages
from support.placeholder_texts import NOT_APPROVED, UNKNOWN, WAITED
from support.strict import RefusedError

MAIL = ("mail", {"to": "bob"})
WIRE = ("wire", {"amount": 5})
BOTH = calls(MAIL, WIRE, id="a1")
FINE = AIMessage("fine", id="fine")
YES = AIMessage("yes?", id="yes")
SENT = "tool c1: sent to bob"
NOT_WIRED = f"tool c2: {WAITED.format('wire', 'c2')}"
NOTHING_KNOWN = [f"tool c{n}: {UNKNOWN.format(t, f'c{n}')}" for n, t in ((1, "mail"), (2, "wire"))]


def agent(*script: Any, kind: str = "create_agent", **options: Any) -> Agent:
    """A bare agent, with options of its maker."""
    return Agent(lambda *parts: BARE[kind](*parts, **options), *script)


def valid_lines(it: Agent) -> list[str]:
    """The history of the thread on lines; it must be valid."""
    assert validate_messages(it.history) == []
    return lines(it.history)


def damaged(it: Agent, *messages: Any) -> None:
    """Put messages into the state; then nothing is to run."""
    it.graph.update_state(it.config, {"messages": [*messages]}, as_node=START)
    it.graph.update_state(it.config, None, as_node=END)


TALK = [
    HumanMessage("q", id="h1"),
    calls(MAIL, id="a1"),
    ToolMessage("sent to bob", name="mail", tool_call_id="c1", id="t1"),
    AIMessage("sent", id="a2"),
]


def trims_by_node(model: Any, tools: Any, saver: Any) -> Any:
    """A graph with a node that trims the state before the model."""
    trim = lambda state: {"messages": [RemoveMessage(m.id) for m in state["messages"][:-3]]}
    return above(trim, model_node(model)).compile(checkpointer=saver)


def test_f07_trimming_cuts_through_a_pair():
    """Bare, the model reads a result without its call; patched it is dropped and reported."""
    bare = Agent(trims_by_node)
    damaged(bare, *TALK)
    with pytest.raises(RefusedError, match="answers no call"):
        bare.say("and?")
    reported: list[Any] = []
    it = patched(
        Agent(trims_by_node), model_node="node2", on_patch=lambda patch, _: reported.append(patch)
    )
    damaged(it, *TALK)
    it.say("and?")
    assert valid_lines(it) == ["ai: sent", "human: and?", "ai: done"]
    [change] = [change for patch in reported for change in patch.changes]
    assert (change.kind, change.before) == ("dropped", TALK[2])


def test_f11_a_reused_id_that_langgraph_takes_for_answered():
    """With a `post_model_hook` LangGraph skips the second call; the next turn repairs it.

    The mail to Eve is not sent, patched or not: that is decided between the model and the tools.
    """
    script = [calls(MAIL), AIMessage("ok"), calls(("mail", {"to": "eve"})), FINE]
    bare, again = (agent(*script, kind="react_v2", post_model_hook=lambda _: {}) for _ in "12")
    for text in ("mail bob", "mail eve"):
        bare.say(text)
    with pytest.raises(RefusedError, match="used twice"):
        bare.say("thanks")
    it = patched(again, recover=False)
    for text in ("mail bob", "mail eve", "thanks"):
        it.say(text)
    new = it.history[5].tool_calls[0]["id"]
    assert new.startswith("c1_")
    unknown = f"tool {new}: {UNKNOWN.format('mail', new)}"
    end = ["human: mail eve", f"ai {new}: ", unknown, "human: thanks", "ai: fine"]
    assert valid_lines(it) == ["human: mail bob", "ai c1: ", SENT, "ai: ok", *end]
    assert it.desk.did == {"mail bob": 1}


def test_f19_every_other_message_stays():
    """An answer that a person wrote after a dead call, and all that followed, are kept."""
    kept = [
        HumanMessage("q", id="h1"),
        calls(WIRE, id="a1"),
        AIMessage("by hand", id="m1"),
        HumanMessage("thanks", id="h2"),
        AIMessage("welcome", id="m2"),
    ]
    it = patched(agent(FINE), recover=False)
    damaged(it, *kept)
    it.say("and?")
    assert [m for m in it.history if not is_placeholder(m)][:-2] == kept
    assert [is_placeholder(m) for m in it.history].index(True) == 2
    assert valid_lines(it)[-2:] == ["human: and?", "ai: fine"]


def test_f22_the_recursion_limit():
    """Cut short before its tools, a thread goes on with the next message."""
    bare = agent(BOTH)
    bare.config["recursion_limit"] = 1
    with pytest.raises(GraphRecursionError):
        bare.say("go")
    bare.config.pop("recursion_limit")
    with pytest.raises(RefusedError, match="c1"):
        bare.say("hello?")
    it = patched(bare, recover=False)
    it.say("hello!")
    assert valid_lines(it)[2:4] == NOTHING_KNOWN
    assert valid_lines(it)[-2:] == ["human: hello!", "ai: done"]
    assert not it.desk.did


TWO_MAILS = calls(MAIL, ("mail", {"to": "eve"}))
MIXED = {"decisions": [{"type": "approve"}, {"type": "reject", "message": "not her"}]}
ASKS = {"mail": True}


@pytest.mark.parametrize("failure_mode", ["f23_a_limit", "f24_mixed_decisions"])
def test_f23_f24_calls_that_others_have_answered(failure_mode: str):
    """A limit answers the calls that it blocks, a human decides in another order: left alone."""
    found, reported = [], []
    for wrap in (lambda it: it, lambda it: patched(it, on_patch=lambda *p: reported.append(p))):
        middleware: Any = ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")
        values: list[Any] = ["go", "hello?"]
        if failure_mode == "f24_mixed_decisions":
            middleware = HumanInTheLoopMiddleware(interrupt_on=ASKS)
            values.insert(1, Command(resume=MIXED))
        it = wrap(agent(TWO_MAILS, FINE, YES, middleware=[middleware]))
        for value in values:
            it.say(value) if isinstance(value, str) else it.run(value)
        found.append(valid_lines(it))
    assert found[1] == found[0]
    assert [line.split(":")[0] for line in found[0]][2:4] == ["tool c2", "tool c1"]
    assert reported == []


def test_f43_nothing_ran_before_an_approval():
    """The model reads that an approval was pending, not that the tool may have run."""
    asks = HumanInTheLoopMiddleware(interrupt_on=ASKS)
    it = patched(agent(TWO_MAILS, middleware=[asks]))
    it.say("go")
    it.say("never mind")
    assert it.results == {call: NOT_APPROVED.format("mail", call) for call in ("c1", "c2")}
    assert not it.desk.did


def test_f33_a_stale_approval_runs_nothing():
    """After the human moved on, an answer by the old id runs no node, so nothing can repair."""
    it = patched(agent(BOTH, FINE))
    it.say("go")
    stale = Command(resume={each.id: "yes" for each in it.interrupts})
    it.say("never mind")
    before = it.history
    it.run(stale)
    assert it.history == before
    assert valid_lines(it)[3] == NOT_WIRED
    assert it.desk.did == {"mail bob": 1}
