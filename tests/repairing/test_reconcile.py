"""`reconcile=`: a lookup of the application settles calls of which no outcome is recorded."""

import asyncio
import re
from contextlib import closing
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from kit import Agent, calls
from langgraph_patch import DanglingCall
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.repairing.reconcile import reconcile_calls
from langgraph_patch.repairing.repairer import Repairer

KEY = (0, 1)
TURN = calls(("mail", {"to": "bob"}), ("wire", {"amount": 3}), id="a1")


def booked(call: DanglingCall) -> str:
    """The bank knows the payment."""
    return f"the bank has booked {call.args['amount']}"


async def abooked(call: DanglingCall) -> str:
    """The same, asynchronously."""
    await asyncio.sleep(0)
    return booked(call)


def paused(kind: str, *, asynchronous: bool = False, **lookups: Any) -> Agent:
    """An agent that waits for a human beside a mail that was sent."""
    agent = Agent(kind, TURN, asynchronous=asynchronous, reconcile=lookups)
    agent.say("pay")
    return agent


def test_an_asynchronous_lookup_in_a_synchronous_run():
    """It is refused, with the way out."""
    text = "The lookup for 'wire' is asynchronous, and the run is not: use ainvoke or astream, or "
    with pytest.raises(OptionError, match=text + "pass a synchronous function."):
        paused("create_agent", wire=abooked).say("never mind")
    with closing(asyncio.new_event_loop()) as loop, pytest.raises(OptionError, match="is async"):
        settled("unknown", lambda _: loop.create_future())


def test_a_lookup_that_does_not_know(caplog: pytest.LogCaptureFixture):
    """None, and an error, leave the placeholder; the error is a WARNING."""
    for lookup in (lambda _: None, lambda call: call.args["missing"]):
        agent = paused("create_agent", wire=lookup)
        agent.say("never mind")
        assert "asked for human input" in agent.read["c2"]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == ["the lookup for tool call 'c2' raised KeyError('missing')"]


def test_it_is_not_asked_about_calls_that_are_about_to_run():
    """A history that may end with calls: they are the tools' business."""
    asked: list[DanglingCall] = []
    repairer = Repairer(leaves_open=True, reconcile={"wire": asked.append})
    reading = repairer.read([TURN, HumanMessage("hm"), TURN.model_copy(update={"id": "a2"})])
    assert reading is not None
    run_sync(repairer.repair(reading, Run({})))
    assert [call.message.id for call in asked] == ["a1"]


def settled(cause: Any, lookup: Any) -> Any:
    """What a lookup settles of a call with this cause."""
    message = AIMessage("", id="a1")
    call = DanglingCall("c2", "wire", {"amount": 3}, cause, None, message, 0)
    return run_sync(reconcile_calls([(KEY, call)], {"wire": lookup}))


def test_a_tool_message_is_kept():
    """Its id and its artifact are those of the application; it answers the stored call."""
    made = ToolMessage("booked", tool_call_id="?", id="r1", artifact=[1])
    call = DanglingCall("c2", "wire", {}, "unknown", None, AIMessage("", id="a1"), 0)
    search = reconcile_calls([(KEY, call)], {"wire": lambda _: made})
    for found in (settled("unknown", lambda _: made), asyncio.run(run_async(search))):
        message = found[KEY].result
        assert (message.id, message.tool_call_id, message.artifact) == ("r1", "c2", [1])


def test_what_a_lookup_may_return():
    """Anything else is an error."""
    text = "The lookup for 'wire' returned 3: expected a ToolMessage, a str or None."
    with pytest.raises(OptionError, match=re.escape(text)):
        settled("unknown", lambda _: 3)


@pytest.mark.parametrize("cause", ["failed", "not_started", "malformed"])
def test_it_is_not_asked_about_what_is_known(cause: Any):
    """The records say what became of the call."""
    assert settled(cause, lambda _: "booked") == {}
