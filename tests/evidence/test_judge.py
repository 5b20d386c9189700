"""What supersteps state of a call: its own task decides, and what is not certain is `unknown`."""

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode
from langgraph.types import Interrupt, Overwrite

from langgraph_patch._langgraph.nodes import Nodes
from langgraph_patch._langgraph.storage import NO_TASK, RETURN, own_interrupt_id
from support.histories import work
from support.supersteps import (
    ASKS,
    CLIENT,
    GO,
    MORE,
    Thread,
    made,
    news,
    ran,
    result,
    sent,
    wrong_in,
)

BOTH, MAIL, WIRE = made("mail:c1", "wire:c2"), made("mail:c1"), made("wire:c1")
TWINS = made("mail:c1", "mail:c1")
KAPUT = RuntimeError("kaput")
FAILED = "failed | RuntimeError('kaput')"
PAUSED = "awaiting_input | paused"
PERHAPS = "malformed | tools_ran | {"
INVALID = {"name": "mail", "args": "{", "id": "c1", "error": None, "type": "invalid_tool_call"}
GATE = "HumanInTheLoopMiddleware.after_model"
ANSWER = (NO_TASK, RESUME, "yes")


def edited(message: AIMessage, **fields: Any) -> AIMessage:
    """A message with other fields."""
    return message.model_copy(update=fields)


def block(name: str) -> list[Any]:
    """A content with a call."""
    return [{"type": "tool_use", "id": "c1", "name": name, "input": {}}]


def decided(decision: str) -> dict[str, Any]:
    """An approval that was answered."""
    return ran(GATE, (RESUME, [{"decisions": [{"type": decision, "edited_action": {}}]}]))


SENT = result("sent", name="mail")
OSLO = made("a:c1:Oslo", id="m0")
ADDED: Any = made("a:c1:Rome").tool_calls[0]
ADDED = {**ADDED, "args": {**ADDED["args"], "user": "u1"}}

OWN: dict[str, tuple[Any, ...]] = {
    "a result, and a question": (BOTH, f"sent, {PAUSED}", sent("sent", ASKS)),
    "nobody can answer any more": (BOTH, "x, awaiting_input", sent("x", ASKS), news(BOTH)),
    "the last of two errors": (WIRE, FAILED, sent([ValueError("first"), KAPUT])),
    "a cancellation": (WIRE, "cancelled", sent((ERROR, "CancelledError()"))),
    "an error that is called so": (
        WIRE, "failed | CancelledError('LH1')", sent((ERROR, "CancelledError('LH1')"))
    ),
    "a timeout": (
        WIRE, "failed | timeout | NodeTimeoutError('1 s')", sent((ERROR, "NodeTimeoutError('1 s')"))
    ),
    "a result under another name": (WIRE, "told", sent(result("told", name="slack"))),
    "other arguments": (made("a:c1:Rome"), "unknown", sent(ASKS, by=made("a:c1:Oslo"))),
    "the result of other arguments": (
        made("a:c1:Rome"), "unknown", sent("x", by=made("a:c1:Oslo"))
    ),
    "the result of another tool, with a name of its own": (
        made("a:c1:Rome"), "unknown", sent(result("x"), by=made("b:c1:Rome"))
    ),
    "an older call with more arguments": (
        made("a:c1"), "unknown", sent("x", by=OSLO, history=[GO, OSLO, SENT, made("a:c1")])
    ),
    "a router that adds arguments": (
        made("a:c1:Rome"), "x", sent("x", by=edited(MAIL, tool_calls=[ADDED]))
    ),
    "equal calls": (TWINS, "unknown, unknown", sent("one", ASKS)),
    "one `Send` for two equal calls": (TWINS, "unknown, unknown", sent(ASKS, by=MAIL)),
    "two tools under one id": (made("a:c1", "b:c1"), f"x, {PAUSED}", sent("x", ASKS)),
    "a call that only a content block has": (
        edited(WIRE, tool_calls=[], content=block("wire")), "unknown", sent(ASKS, by=WIRE)
    ),
    "an equal open call": (MAIL, "unknown", sent(ASKS, history=[GO, edited(MAIL, id="m0"), MAIL])),
    # An answer without an interrupt id may be that of any task.
    "a plain answer": (BOTH, "x, unknown", sent("x", ASKS, others=[ANSWER])),
    "an answer, and another question": (WIRE, "unknown", sent([(RESUME, ["a"]), ASKS])),
    "an answer, and an error": (WIRE, FAILED, sent([ASKS, (RESUME, ["a"]), KAPUT])),
    "the same, with one answer that is no list": (WIRE, FAILED, sent([ASKS, (RESUME, "a"), KAPUT])),
    "an error and a question, in which order?": (WIRE, "unknown", sent([KAPUT, ASKS])),
    "the error of what a human made of it": (WIRE, "unknown", decided("edit"), sent(KAPUT)),
    "the error of what a human approved": (WIRE, FAILED, decided("approve"), sent(KAPUT)),
    # Started again.
    "the newest end": (WIRE, PAUSED, sent(KAPUT), sent(ASKS)),
    "the last recorded end": (WIRE, FAILED, sent(KAPUT), sent(None)),
    "a result before an end": (WIRE, "x", sent("x"), sent(KAPUT)),
    "the newest of two results": (WIRE, "new", sent("old"), sent("new")),
    "the message had another call": (
        made("mail:c1:Rome"), "unknown", sent("x"), ran(history=[GO, made("mail:c1:Oslo")]), ran()
    ),
    "the message had another call before": (
        made("mail:c1:Rome"), "x", ran(history=[GO, made("mail:c1:Oslo")]), sent("x")
    ),
}  # fmt: skip


UNNAMED = result("sent")
OLDER = edited(MAIL, id="m0")
OLD_WIRE = edited(WIRE, id="m0")


def beside(*older: Any, wrote: Any = SENT) -> dict[str, Any]:
    """A node ran over the state, which has open calls of older messages."""
    return ran("tools", wrote, history=[GO, *older, MAIL])


def also(message: AIMessage) -> dict[str, Any]:
    """A node wrote a message beside the result."""
    return ran(["model", "tools"], [message], [SENT])


RESULTS: dict[str, tuple[Any, ...]] = {
    "a result of another tool": (MAIL, "unknown", ran("tools", result("x", name="wire"))),
    "a call without a name": (made(":c1"), "sent", ran("tools", SENT)),
    "stored, and removed again": (MAIL, "unknown", ran("x", history=[GO, MAIL, SENT]), news(MAIL)),
    "written by a client": (MAIL, "unknown", ran("x", others=[(CLIENT, "messages", [SENT])])),
    "returned by a `@task`": (MAIL, "sent", ran("x", others=[(CLIENT, RETURN, SENT)])),
    "returned in a later turn": (
        MAIL, "unknown", ran("x", history=[GO, MAIL, MORE], others=[(CLIENT, RETURN, SENT)])
    ),
    "twins": (TWINS, "unknown, unknown", ran("t", SENT, result("x", name="mail"))),
    "one result for twins": (TWINS, "unknown, unknown", ran("t", SENT)),
    "results without names for twins": (TWINS, "unknown, unknown", ran("t", UNNAMED, UNNAMED)),
    "two tools under one id": (made("mail:c1", "wire:c1"), "sent, unknown", ran("t", SENT)),
    "a block of the call": (edited(MAIL, content=block("wire")), "sent", ran("t", UNNAMED)),
    "an invalid call under its id": (
        edited(MAIL, invalid_tool_calls=[{**INVALID, "name": "wire"}]),
        f"sent, {PERHAPS}",
        ran("tools", UNNAMED),
    ),
    "an open call of the same tool": (MAIL, "unknown", beside(OLDER)),
    "an open call without a name": (MAIL, "unknown", beside(made(":c1", id="m0"))),
    "an open call of another tool": (MAIL, "sent", beside(OLD_WIRE)),
    "the same, and a result without a name": (MAIL, "unknown", beside(OLD_WIRE, wrote=UNNAMED)),
    "an open call before one with another id": (
        MAIL, "unknown", beside(OLDER, made("wire:c9", id="m00"))
    ),
    "an open call with another id": (MAIL, "sent", beside(made("mail:c9", id="m0"))),
    "an older call that has its result": (
        MAIL, "sent", beside(OLDER, SystemMessage("x"), result("old"))
    ),
    "an id twice, answered once": (
        MAIL, "unknown", beside(OLDER, edited(MAIL, id="m00"), result("old"))
    ),
    "an open call of an older turn": (MAIL, "sent", beside(OLDER, MORE)),
    "an open call that nothing runs": (
        MAIL, "sent", beside(edited(OLDER, tool_calls=[], invalid_tool_calls=[INVALID]))
    ),
    "another message in the superstep": (MAIL, "unknown", also(made("mail:c1", id="m2"))),
    "another message with another id": (MAIL, "sent", also(made("mail:c3", id="m2"))),
    "the message itself, written again": (MAIL, "sent", also(MAIL)),
    "the whole history, without a reducer": (
        MAIL, "unknown", ran("x", OLDER, SENT, MAIL, history=[OLDER, SENT, MAIL])
    ),
    "an `Overwrite`": (MAIL, "unknown", ran("x", ("messages", Overwrite([GO, MAIL, SENT])))),
    "a new history": (MAIL, "unknown", ran("x", RemoveMessage(id=REMOVE_ALL_MESSAGES), SENT)),
    "the end of a history": (MAIL, "unknown", ran("x", RemoveMessage(id=str(MAIL.id)), MAIL, SENT)),
}  # fmt: skip


AWAITING = "awaiting_input"

ONLY: dict[str, tuple[Any, ...]] = {
    "it asks": (WIRE, PAUSED, ran("tools", ASKS)),
    "it asked": (WIRE, AWAITING, ran("tools", ASKS), news(WIRE)),
    "it failed": (WIRE, "unknown", ran("tools", KAPUT)),
    "then nothing ran": (WIRE, AWAITING, ran("tools", ASKS), ran()),
    "then a model failed in a run without a message": (
        WIRE, AWAITING, ran("tools", ASKS), ran("agent", KAPUT, source="input")
    ),
    "it was answered": (WIRE, "unknown", ran("tools", ASKS, others=[ANSWER])),
    "two supersteps": (WIRE, "unknown", ran("tools", ASKS), ran("tools", ASKS)),
    "a superstep that is not stored": (WIRE, "unknown", ran("tools", ASKS, skip=1)),
    "two nodes": (WIRE, "unknown", ran(["other", "tools"], None, ASKS)),
    "a `Send` beside it": (WIRE, "unknown", ran("tools", ASKS, sent_by=made("mail:c7"))),
    "an approval that failed": (WIRE, "unknown", ran(GATE, KAPUT)),
    "a part has returned": (WIRE, "unknown", ran("tools", ASKS, others=[(CLIENT, RETURN, 1)])),
    "a client wrote beside it": (WIRE, PAUSED, ran("tools", ASKS, others=[(CLIENT, "x", 1)])),
    "an invalid call": (
        edited(WIRE, invalid_tool_calls=[{**INVALID, "id": "c2"}]), f"unknown, {PERHAPS}",
        ran("tools", ASKS)
    ),
    "a block": (edited(WIRE, tool_calls=[], content=block("wire")), "unknown", ran("tools", ASKS)),
    "two calls": (BOTH, "unknown, unknown", ran("tools", ASKS)),
}  # fmt: skip


def test_what_its_own_task_recorded():
    """A result, or the last recorded end; other tasks and edited calls do not count."""
    assert wrong_in(OWN) == {}


@pytest.mark.needs(langgraph="1.2.20")
@pytest.mark.parametrize(("number", "expected"), [(0, FAILED), (1, FAILED), (2, "unknown")])
def test_the_number_of_a_question_tells_what_came_last(number: int, expected: str):
    """A task that asks its next question behind an error was run again: it did not fail last."""
    thread = Thread(WIRE, sent([(RESUME, ["a", "b"]), KAPUT]))
    [task] = thread.step.tasks
    own = own_interrupt_id(task.below.namespace, number)
    thread.saver.put_writes(thread.config, [(INTERRUPT, [Interrupt("well?", id=own)])], task.id)
    assert thread.found() == expected
    assert thread.step.tasks[0].answered == {own} - ({own} if number == 2 else set())


def test_a_result_that_another_task_wrote():
    """It counts if no other open call of that id may have made it."""
    assert wrong_in(RESULTS) == {}


def test_the_only_call_of_a_node_over_the_whole_state():
    """The end of the node is that of the call, if the call is all that it can have run."""
    assert wrong_in(ONLY) == {}


class Audited(ToolNode):
    """A `ToolNode` that does more than to run calls."""


RUNNING: dict[str, Any] = {
    "a ToolNode": (ToolNode([]), FAILED),
    "with a config": (ToolNode([]).with_config(tags=["a"]), FAILED),
    "a subclass": (Audited([]), "unknown"),
    "a function": (RunnableLambda(lambda state: state), "unknown"),
}


@pytest.mark.parametrize("name", ["tools", "work"])
@pytest.mark.parametrize("kind", RUNNING)
def test_what_a_node_runs_is_known_of_the_running_graph(kind: str, name: str):
    """An error of a `ToolNode` is that of its call; another node may have failed behind it."""
    runnable, expected = RUNNING[kind]
    nodes = Nodes({name: SimpleNamespace(bound=runnable)})
    thread = Thread(WIRE, ran(name, KAPUT))
    assert (thread.found(nodes=nodes), thread.found()) == (expected, "unknown")
    assert thread.found(nodes=Nodes(nodes.nodes, "team:1")) == "unknown"


# --- how much is looked at ----------------------------------------------------------------------


def many(count: int) -> AIMessage:
    """A message with many calls."""
    return made(*(f"mail:c{number}:{number}" for number in range(count)))


def results_of(count: int) -> list[Any]:
    """A result of each of them."""
    return [result("x", f"c{number}", "mail") for number in range(count)]


CROWDS: dict[str, Any] = {
    "they have ended, and one asks": lambda n: sent(*["x"] * (n - 1), ASKS),
    "they asked": lambda n: sent(*[ASKS] * n),
    "they failed": lambda n: sent(*[KAPUT] * n),
    "they were killed": lambda n: sent(*[None] * n),
    "they have effects": lambda n: sent(*[["x", ("note", 1)]] * n),
    "a node over the whole state": lambda n: ran("tools", ("messages", results_of(n - 1))),
    "it asked": lambda _: ran("tools", ASKS),
    "a hook asked": lambda _: ran(GATE, ASKS),
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_linear_in_the_calls_of_a_message(crowd: str):
    """Twice the calls, twice the work: what is recorded of a call is looked up, not looked for."""
    threads = [Thread(many(count), CROWDS[crowd](count)) for count in (100, 200)]
    small, large = (work(lambda _, each=each: each.search(), []) for each in threads)
    assert large <= 2.2 * small
