"""What supersteps state of a call: its own task decides, and what is not certain is `unknown`."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.serde.types import RESUME, TASKS
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite, interrupt

from kit import Agent, calls
from langgraph_patch import with_patching
from langgraph_patch._langgraph_storage import NO_TASK, RETURN
from langgraph_patch.evidence.judge import ending_of_only_call
from langgraph_patch.evidence.window import Window
from langgraph_patch.history.calls import read_calls
from support.supersteps import (
    ASKS,
    ASKS_BELOW,
    GO,
    MORE,
    Thread,
    findings,
    made,
    ran,
    result,
    sent,
)

BOTH = made("mail:c1", "wire:c2")
WIRE = made("wire:c1")
FLAKY = made("flaky:c1")
KAPUT = RuntimeError("kaput")
FAILED = "failed | RuntimeError('kaput')"
PAUSED = "awaiting_input | paused"
APPROVAL = "not_started | approval"
PERHAPS = "malformed | tools_ran | {"
GATE = "HumanInTheLoopMiddleware.after_model"
ANSWER = (NO_TASK, RESUME, "yes")
EDIT = {"decisions": [{"type": "edit", "edited_action": {"name": "mail", "args": {}}}]}
NEXT = ran("agent", source="input", history=[GO, BOTH, MORE])


def without_calls(message: AIMessage, **fields: Any) -> AIMessage:
    """The same message, with its calls somewhere else."""
    return message.model_copy(update={"tool_calls": [], **fields})


def block(name: str, call_id: str) -> dict[str, Any]:
    """A call that is only in a content block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


# --- the call's own task -----------------------------------

OWN: dict[str, tuple[AIMessage, list[dict[str, Any]], list[str]]] = {
    "a result, and a question": (BOTH, [sent("sent", ASKS)], ["sent", PAUSED]),
    "nobody can answer any more": (BOTH, [sent("sent", ASKS), NEXT], ["sent", "awaiting_input"]),
    "an error": (BOTH, [sent(KAPUT, ASKS), NEXT], [FAILED, "awaiting_input"]),
    "a cancellation": (
        BOTH,
        [sent(("__error__", "CancelledError()"), "x")],
        ["cancelled", "x"],
    ),
    "a timeout": (
        FLAKY,
        [sent(("__error__", "NodeTimeoutError('1 s')"))],
        ["failed | timeout | NodeTimeoutError('1 s')"],
    ),
    "the last of two errors": (FLAKY, [sent([ValueError("first"), KAPUT])], [FAILED]),
    "nothing": (BOTH, [sent(None, "x")], ["unknown", "x"]),
    "a result under another name": (
        made("notify:c1"),
        [sent(result("told", "c1", "slack"))],
        ["told"],
    ),
    "a result that it returned": (WIRE, [sent((RETURN, result("x", "c1")))], ["x"]),
    "a result of another id is no result": (WIRE, [sent(result("x", "c9"))], ["unknown"]),
    "a placeholder is no result": (
        WIRE,
        [
            sent(
                result(
                    "Tool call wire with id c1 was cancelled - another message came in before it "
                    "could be completed.",
                    "c1",
                )
            )
        ],
        ["unknown"],
    ),
    "what a client made up is no result": (
        WIRE,
        [sent(result('{"cancelled":true}', "c1"))],
        ["unknown"],
    ),
    "other arguments are another call": (
        made("wire:c1:Rome"),
        [sent(ASKS, calls=made("wire:c1:Oslo").tool_calls)],
        ["unknown"],
    ),
    "another tool is another call": (
        WIRE,
        [sent(KAPUT, calls=made("mail:c1").tool_calls)],
        ["unknown"],
    ),
    "equal calls in their order": (
        made("wire:c1", "wire:c1"),
        [sent("one", ASKS)],
        ["one", PAUSED],
    ),
    "one `Send` for two equal calls": (
        made("wire:c1", "wire:c1"),
        [sent(ASKS, calls=WIRE.tool_calls)],
        ["unknown", "unknown"],
    ),
    "two tools under one id": (made("mail:c1", "wire:c1"), [sent("sent", ASKS)], ["sent", PAUSED]),
    "a call that only a content block has": (
        without_calls(WIRE, content=[block("wire", "c1")]),
        [sent(ASKS, calls=WIRE.tool_calls)],
        ["unknown"],
    ),
    # An answer without an interrupt id may be that of any task.
    "a plain answer": (BOTH, [sent("x", ASKS, others=[ANSWER])], ["x", "unknown"]),
    "an answer, and another question": (FLAKY, [sent([(RESUME, ["a"]), ASKS])], ["unknown"]),
    "an answer, and an error": (FLAKY, [sent([ASKS, (RESUME, ["a"]), KAPUT])], [FAILED]),
    "an error and a question, in which order?": (FLAKY, [sent([KAPUT, ASKS])], ["unknown"]),
    "a call that a human edited did not fail": (
        FLAKY,
        [ran(GATE, wrote=[(RESUME, [EDIT])]), sent(KAPUT)],
        ["unknown"],
    ),
    "a call that a human approved failed": (
        FLAKY,
        [ran(GATE, wrote=[(RESUME, [{"decisions": [{"type": "approve"}]}])]), sent(KAPUT)],
        [FAILED],
    ),
    # Started again.
    "the newest end": (FLAKY, [sent(KAPUT), sent(ASKS)], [PAUSED]),
    "the last recorded end": (FLAKY, [sent(KAPUT), sent(None)], [FAILED]),
    "a result before an end": (FLAKY, [sent("x"), sent(KAPUT)], ["x"]),
    "a result after an end": (FLAKY, [sent(KAPUT), sent("x")], ["x"]),
    "the newest of two results": (FLAKY, [sent("old"), sent("new")], ["new"]),
    "the message had another call": (
        made("mail:c1:Rome"),
        [sent("x"), sent(None, history=[GO, made("mail:c1:Oslo")]), sent(None)],
        ["unknown"],
    ),
}


@pytest.mark.parametrize("case", OWN)
def test_what_its_own_task_recorded(case: str):
    """A result, or the last recorded end; other tasks and edited calls do not count."""
    message, steps, expected = OWN[case]
    assert findings(message, *steps) == expected


# --- results that another task wrote -----------------------------------

SENT = result("sent", "c1", "mail")
MAIL = made("mail:c1")
OLDER = made("mail:c1", id="m0")
OLDER_WIRE = made("wire:c1", id="m0")
NAMELESS = made(":c1", id="m0")
INVALID = {"name": "mail", "args": "{", "id": "c1", "error": None, "type": "invalid_tool_call"}


def behind(*older: Any, wrote: Any = SENT) -> list[dict[str, Any]]:
    """A node ran over the state, which has open calls of older messages."""
    return [ran("tools", wrote=[wrote], history=[GO, *older, MAIL])]


RESULTS: dict[str, tuple[AIMessage, list[dict[str, Any]], list[str]]] = {
    "one task ran all": (BOTH, [ran("tools", wrote=[SENT])], ["sent", "unknown"]),
    "a node without a name for it": (MAIL, [ran("tools", wrote=[result("x", "c1")])], ["x"]),
    "another tool": (MAIL, [ran("tools", wrote=[result("x", "c1", "wire")])], ["unknown"]),
    "a call without a name": (
        made(":c1"),
        [ran("tools", wrote=[result("x", "c1", "mail")])],
        ["x"],
    ),
    "a name that a provider would refuse": (
        made("send mail:c1"),
        [ran("tools", wrote=[result("x", "c1", "send_mail")])],
        ["x"],
    ),
    "stored, and removed again": (
        MAIL,
        [ran("other", history=[GO, MAIL, SENT]), ran("agent", history=[GO, MAIL, MORE])],
        ["sent"],
    ),
    "behind other results": (
        BOTH,
        [ran("other", history=[GO, BOTH, result("x", "c2"), SENT])],
        ["sent", "x"],
    ),
    "not directly behind it": (MAIL, [ran("other", history=[GO, MAIL, MORE, SENT])], ["unknown"]),
    "written by a client": (
        MAIL,
        [ran("agent", others=[("f" * 32, "messages", [SENT])])],
        ["unknown"],
    ),
    "returned by a `@task`": (MAIL, [ran("agent", others=[("f" * 32, RETURN, SENT)])], ["sent"]),
    "returned in a later turn": (
        MAIL,
        [ran("agent", history=[GO, MAIL, MORE], others=[("f" * 32, RETURN, SENT)])],
        ["unknown"],
    ),
    "two calls of one tool and id": (
        made("mail:c1", "mail:c1"),
        [ran("tools", wrote=[[SENT, result("again", "c1", "mail")]])],
        ["sent", "again"],
    ),
    "one result for two such calls": (
        made("mail:c1", "mail:c1"),
        [ran("tools", wrote=[SENT])],
        ["unknown", "unknown"],
    ),
    "results without names for two such calls": (
        made("mail:c1", "mail:c1"),
        [ran("tools", wrote=[[result("x", "c1"), result("y", "c1")]])],
        ["unknown", "unknown"],
    ),
    "results of other tools for two such calls": (
        made("mail:c1", "mail:c1"),
        [ran("tools", wrote=[[result("x", "c1", "wire"), result("y", "c1", "boom")]])],
        ["unknown", "unknown"],
    ),
    "two tools under one id": (
        made("mail:c1", "wire:c1"),
        [ran("tools", wrote=[SENT])],
        ["sent", "unknown"],
    ),
    "a listed call and a block under one id": (
        MAIL.model_copy(update={"content": [block("wire", "c1")]}),
        [ran("tools", wrote=[result("x", "c1")])],
        ["x"],
    ),
    "a listed call and an invalid one under one id": (
        MAIL.model_copy(update={"invalid_tool_calls": [{**INVALID, "name": "wire"}]}),
        [ran("tools", wrote=[result("x", "c1")])],
        ["x", PERHAPS],
    ),
    "an open call of the same tool": (MAIL, behind(OLDER), ["unknown"]),
    "an open call of the same tool, and a stored result": (
        MAIL,
        [ran("other", history=[GO, OLDER, MAIL, SENT])],
        ["unknown"],
    ),
    "an open call without a name": (MAIL, behind(NAMELESS), ["unknown"]),
    "an open call of another tool": (MAIL, behind(OLDER_WIRE), ["sent"]),
    "an open call of another tool, and no name": (
        MAIL,
        behind(OLDER_WIRE, wrote=result("x", "c1")),
        ["unknown"],
    ),
    "an open call with another id": (MAIL, behind(made("mail:c9", id="m0")), ["sent"]),
    "an older call that has its result": (MAIL, behind(OLDER, result("old", "c1")), ["sent"]),
    "an open call of an older turn": (MAIL, behind(OLDER, MORE), ["sent"]),
    "an open call that nothing runs": (
        MAIL,
        behind(without_calls(OLDER, invalid_tool_calls=[INVALID])),
        ["sent"],
    ),
    "another message in the superstep": (
        MAIL,
        [ran("model", "tools", wrote=[made("mail:c1", id="m2"), SENT])],
        ["unknown"],
    ),
    "another message with another id": (
        MAIL,
        [ran("model", "tools", wrote=[made("mail:c3", id="m2"), SENT])],
        ["sent"],
    ),
    "the message itself, written again": (
        MAIL,
        [ran("model", "tools", wrote=[MAIL, SENT])],
        ["sent"],
    ),
    "a repair": (MAIL, [ran("patch", wrote=[[SENT, (RETURN, SENT)]])], ["unknown"]),
    "an `Overwrite`": (
        MAIL,
        [ran("patch", wrote=[("messages", Overwrite([GO, MAIL, SENT]))])],
        ["unknown"],
    ),
    "a new history": (
        MAIL,
        [ran("patch", wrote=[[RemoveMessage(id=REMOVE_ALL_MESSAGES), SENT]])],
        ["unknown"],
    ),
}


@pytest.mark.parametrize("case", RESULTS)
def test_a_result_that_another_task_wrote(case: str):
    """It counts if no other open call of that id may have made it."""
    message, steps, expected = RESULTS[case]
    assert findings(message, *steps) == expected


def test_equal_open_calls_of_two_messages():
    """Of two equal requests nobody knows which `Send` was whose."""
    thread = Thread(MAIL)
    thread.add(**sent(ASKS, history=[GO, OLDER, MAIL]))
    assert thread.findings(GO, OLDER, MAIL) == ["unknown"]


# --- the end of a node that ran the only call -----------------------------------

TWO = ran("agent", wrote=[[WIRE, result("x", "c9")]], history=[GO])

ONLY: dict[str, tuple[AIMessage, list[dict[str, Any]], str]] = {
    "it asks": (WIRE, [ran("tools", wrote=[ASKS])], PAUSED),
    "it asked": (
        WIRE,
        [ran("tools", wrote=[ASKS]), ran("agent", source="input", history=[GO, WIRE, MORE])],
        "awaiting_input",
    ),
    "it failed": (WIRE, [ran("tools", wrote=[KAPUT])], FAILED),
    "then nothing ran": (WIRE, [ran("tools", wrote=[ASKS]), ran()], "awaiting_input"),
    "it has not ended": (WIRE, [ran("tools")], "unknown"),
    "it was answered": (WIRE, [ran("tools", wrote=[ASKS], others=[ANSWER])], "unknown"),
    "then a model failed in a run without a message": (
        WIRE,
        [
            ran("tools", wrote=[ASKS]),
            ran("agent", wrote=[KAPUT], source="input", history=[GO, WIRE]),
        ],
        "awaiting_input",
    ),
    "a node with another name asked": (WIRE, [ran("work", wrote=[ASKS])], PAUSED),
    "a node with another name failed": (WIRE, [ran("work", wrote=[KAPUT])], "unknown"),
    "a graph below it asks": (WIRE, [ran("tools", wrote=[ASKS_BELOW])], "unknown"),
    "two supersteps": (WIRE, [ran("tools", wrote=[ASKS]), ran("tools", wrote=[ASKS])], "unknown"),
    "a superstep between": (WIRE, [ran("skip"), ran("tools", wrote=[KAPUT])], "unknown"),
    "a superstep that is not stored": (WIRE, [ran("tools", wrote=[ASKS], skip=1)], "unknown"),
    "two nodes": (WIRE, [ran("other", "tools", wrote=[None, ASKS])], "unknown"),
    "a `Send` beside it": (
        WIRE,
        [{**ran("tools", wrote=[ASKS]), "calls": made("mail:c7").tool_calls}],
        "unknown",
    ),
    "an approval that failed": (WIRE, [ran(GATE, wrote=[KAPUT])], "unknown"),
    "a part of it has returned": (
        WIRE,
        [ran("tools", wrote=[ASKS], others=[("f" * 32, RETURN, "x")])],
        "unknown",
    ),
    "a client wrote beside it": (
        WIRE,
        [ran("tools", wrote=[ASKS], others=[("f" * 32, "note", "x")])],
        PAUSED,
    ),
}


@pytest.mark.parametrize("case", ONLY)
def test_the_only_call_of_a_node_over_the_whole_state(case: str):
    """The end of the node is that of the call, if the call is all that it can have run."""
    message, steps, expected = ONLY[case]
    assert findings(message, *steps) == [expected]


@pytest.mark.parametrize(
    ("message", "first"),
    [
        (BOTH, {}),
        (WIRE.model_copy(update={"invalid_tool_calls": [INVALID]}), {}),
        (without_calls(WIRE, content=[block("wire", "c1")]), {}),
        (WIRE, {"source": "input"}),
        (WIRE, {"wrote": [[WIRE, result("x", "c9")]]}),
        (WIRE, {"wrote": []}),
    ],
    ids=["two calls", "an invalid call", "a block", "an input", "ran tools", "no writer"],
)
def test_a_call_that_may_not_be_the_only_one(message: AIMessage, first: dict[str, Any]):
    """Another call, or a writer of the message that runs tools itself: the end is of no call."""
    found = findings(message, ran("tools", wrote=[ASKS]), first=first)
    assert set(found) <= {"unknown", PERHAPS}


def test_a_window_that_was_not_read():
    """Without a superstep that wrote the message, nothing is stated of a node's only call."""
    assert ending_of_only_call(Window(WIRE, read_calls(WIRE))) is None


# --- approvals -----------------------------------

GATES: dict[str, tuple[AIMessage, list[dict[str, Any]], list[str]]] = {
    "it asks": (BOTH, [ran(GATE, wrote=[ASKS])], [APPROVAL, APPROVAL]),
    "it asked": (BOTH, [ran(GATE, wrote=[ASKS]), NEXT], [APPROVAL, APPROVAL]),
    "the hook of `create_react_agent`": (WIRE, [ran("post_model_hook", wrote=[ASKS])], [APPROVAL]),
    "after another hook": (
        WIRE,
        [ran("Log.after_model", wrote=[("note", 1)]), ran(GATE, wrote=[ASKS])],
        [APPROVAL],
    ),
    "after a hook that did not end": (
        WIRE,
        [
            ran("Log.after_model", wrote=[ASKS]),
            ran(GATE, wrote=[ASKS], source="input", history=[GO, WIRE]),
        ],
        [APPROVAL],  # the runs of two turns: the call was not started in the first
    ),
    "it was answered": (WIRE, [ran(GATE, wrote=[ASKS], others=[ANSWER])], ["unknown"]),
    "it was answered and asks again": (
        WIRE,
        [ran(GATE, wrote=[[ASKS, (RESUME, ["a"])]])],
        ["unknown"],
    ),
    "it failed": (WIRE, [ran(GATE, wrote=[KAPUT])], ["unknown"]),
    "it has written nothing": (WIRE, [ran(GATE)], ["unknown"]),
    "a client's goto beside it": (
        WIRE,
        [ran(GATE, wrote=[ASKS], others=[(NO_TASK, "branch:to:tools", None)])],
        ["unknown"],
    ),
    "a `Send` beside it": (
        WIRE,
        [{**ran(GATE, wrote=[ASKS]), "calls": made("mail:c7").tool_calls}],
        ["unknown"],
    ),
    "a node of the application beside it": (WIRE, [ran(GATE, "work", wrote=[ASKS])], ["unknown"]),
    "the tools ran before it": (WIRE, [ran("tools"), ran(GATE, wrote=[ASKS])], ["unknown"]),
    "a superstep that is not stored": (WIRE, [ran(GATE, wrote=[ASKS], skip=1)], ["unknown"]),
    "a call that ran": (
        BOTH,
        [sent("sent", None), ran(GATE, wrote=[ASKS])],
        ["sent", "unknown"],
    ),
}


@pytest.mark.parametrize("case", GATES)
def test_an_approval_that_was_pending(case: str):
    """Nothing has started the calls, if only nodes between the model and the tools ran."""
    message, steps, expected = GATES[case]
    assert findings(message, *steps) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], "malformed | {"),
        ([ran("Log.after_model", wrote=[("note", 1)]), ran()], "malformed | {"),
        ([ran(GATE, wrote=[ASKS])], "malformed | {"),
        ([ran("tools")], PERHAPS),
        ([ran(GATE, wrote=[ASKS], skip=1)], PERHAPS),
        ([ran("tools", wrote=[result("x", "c1", "mail")])], "x"),
        ([ran("agent", others=[(NO_TASK, TASKS, [])])], PERHAPS),
    ],
)
def test_incomplete_arguments(steps: list[dict[str, Any]], expected: str):
    """Such a call was not run, if nothing can have run it; otherwise tools may have."""
    message = without_calls(MAIL, invalid_tool_calls=[INVALID])
    assert findings(message, *steps) == [expected]


# --- in graphs -----------------------------------


def approve(*kinds: Any) -> Command[Any]:
    """The answer to an approval."""
    return Command(resume={"decisions": [{"type": "approve"} if k is None else k for k in kinds]})


def edit(to: str) -> dict[str, Any]:
    """The decision to send a mail instead."""
    return {"type": "edit", "edited_action": {"name": "mail", "args": {"to": to}}}


@tool
def mail(to: str) -> str:
    """Send a mail, unless it is to nobody."""
    if not to:
        raise RuntimeError("nobody")
    return f"sent to {to}"


@tool
def ask() -> str:
    """Ask a human."""
    return str(interrupt("well?"))


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


class Audit(AgentMiddleware):
    """Asks before the tools, too."""

    def after_model(self, state: Any, runtime: Any) -> None:
        """Ask."""
        if getattr(state["messages"][-1], "tool_calls", ()):
            interrupt("audit?")


def gated(*also: AgentMiddleware) -> Agent:
    """An agent in which a human approves payments; its model pays and asks."""
    gate = HumanInTheLoopMiddleware(interrupt_on={"pay": True})

    def build(model: Any, _: Any, saver: Any) -> Any:
        tools = [mail, ask, pay]
        return with_patching(
            create_agent(model, tools, middleware=[*also, gate], checkpointer=saver)
        )

    agent = Agent(build, calls(("pay", {"amount": 5}), ("ask", {})))
    agent.say("go")
    return agent


@pytest.mark.parametrize(
    ("to", "text"),
    [("bob", "sent to bob"), ("", "No result of tool call pay with id c1 is known; it may or may")],
)
def test_a_call_that_a_human_edited_into_another_one(to: str, text: str):
    """The result is that of what ran. Its error is not one of the call that never ran."""
    agent = gated()
    if to:
        agent.run(approve(edit(to)))
    else:
        with pytest.raises(RuntimeError, match="nobody"):
            agent.run(approve(edit(to)))
    agent.say("never mind")
    assert text in agent.read["c1"]


def test_a_second_question_after_an_approval():
    """The human approved; a second hook asks. Nothing states that the call was not approved."""
    agent = gated(Audit())
    agent.run(approve(None))
    agent.say("never mind")
    assert "an approval was pending when another message came in" in agent.read["c1"]
    assert "not approved" not in agent.read["c1"]


def test_an_approval_that_was_answered_on_another_branch():
    """The call ran there; on this branch nothing states that it did not."""
    agent = gated()
    paused = agent.graph.get_state(agent.config).config
    agent.run(approve(None))
    agent.graph.invoke({"messages": [MORE]}, paused)
    assert agent.read["c1"] in (
        "paid 5",
        "No result of tool call pay with id c1 is known; it may or may not have run.",
    )
