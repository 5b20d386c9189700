"""`reconcile=`: a lookup of the application settles calls of which no outcome is recorded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage

from langgraph_patch import DanglingCall, is_placeholder, patch_model, with_patching
from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.reconcile import checked_reconcile, reconcile_calls
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import CREATE_AGENT, both_calls, history, human, thread
from support.paused_agents import paused_agent
from support.running import run
from support.savers import sqlite
from support.strict import StrictModel

KEY = ("a1", "c2")


def result(messages: Any, call_id: str = "c2") -> ToolMessage:
    """The result of a call."""
    found = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id == call_id]
    assert len(found) == 1
    return found[0]


def booked(call: DanglingCall) -> str:
    """The bank knows the payment."""
    return f"the bank has booked {call.args['amount']}"


async def abooked(call: DanglingCall) -> str:
    """The same, asynchronously."""
    await asyncio.sleep(0)
    return booked(call)


@pytest.mark.parametrize(
    ("lookup", "asynchronous"), [(booked, False), (booked, True), (abooked, True)]
)
async def test_a_lookup_settles_a_call(lookup: Any, *, asynchronous: bool):
    """The answer is a result with its cause in the marker; the recorded result is not asked for."""
    asked: list[DanglingCall] = []

    def send_email(call: DanglingCall) -> str:
        asked.append(call)
        return "never"

    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"), asynchronous=asynchronous)
    lookups = {"wire_money": lookup, "send_email": send_email}
    graph = with_patching(bench.graph, reconcile=lookups)
    await run(graph, "never mind", asynchronous=asynchronous)
    found = result(history(graph, thread()))
    assert found.content == "the bank has booked 3"
    assert found.additional_kwargs[PLACEHOLDER_KEY] == {"cause": "reconciled"}
    assert not is_placeholder(found)
    assert result(history(graph, thread()), "c1").content == "sent to bob"
    assert asked == []


async def test_a_lookup_settles_a_call_in_sqlite():
    """The same with a database, in a graph with the middleware."""
    with sqlite() as saver:
        bench = await paused_agent(CREATE_AGENT, saver=saver, durability="sync")
        middleware = PatchToolCallsMiddleware(reconcile={"wire_money": booked})
        model = StrictModel(script=[AIMessage("fine")])
        graph = create_agent(
            model, bench.tools.tools(), middleware=[middleware], checkpointer=saver
        )
        await run(graph, "never mind")
        assert result(history(graph, thread())).content == "the bank has booked 3"


async def test_an_asynchronous_lookup_in_a_synchronous_run():
    """It is refused, with the way out."""
    bench = await paused_agent(CREATE_AGENT, AIMessage("fine"))
    graph = with_patching(bench.graph, reconcile={"wire_money": abooked})
    with pytest.raises(OptionError, match="asynchronous, and the run is not"):
        await run(graph, "never mind")


async def test_a_lookup_that_does_not_know(caplog: pytest.LogCaptureFixture):
    """None, and an error, leave the placeholder; the error is a WARNING."""
    for lookup in (lambda _: None, lambda call: call.args["missing"]):
        bench = await paused_agent(CREATE_AGENT, AIMessage("fine"))
        graph = with_patching(bench.graph, reconcile={"wire_money": lookup})
        await run(graph, "never mind")
        assert is_placeholder(result(history(graph, thread())))
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == ["the lookup for tool call 'c2' raised KeyError('missing')"]


def test_it_is_not_asked_about_calls_that_are_about_to_run():
    """A history that may end with calls: they are the tools' business."""
    asked: list[DanglingCall] = []
    repairer = Repairer(leaves_open=True, reconcile={"wire_money": asked.append})
    messages = [both_calls(), human("hm"), both_calls().model_copy(update={"id": "a2"})]
    reading = repairer.read(messages)
    assert reading is not None
    run_sync(repairer.repair(reading, {}))
    assert [call.message.id for call in asked] == ["a1"]


def test_patch_model():
    """A patched model asks too."""
    model = StrictModel(script=[AIMessage("fine")])
    patch_model(model, reconcile={"wire_money": booked}).invoke([both_calls(), human("hm")])
    assert result(model.seen[0]).content == "the bank has booked 3"


# --- the function ------------------------------------------------------------------------


def call_with(cause: Any) -> DanglingCall:
    """A call without a result."""
    message = AIMessage("", id="a1")
    return DanglingCall("c2", "wire_money", {"amount": 3}, cause, None, message, 0)


@pytest.mark.parametrize(
    ("cause", "is_asked"),
    [
        ("unknown", True),
        ("cancelled", True),
        ("awaiting_input", True),
        ("failed", False),
        ("not_started", False),
        ("malformed", False),
    ],
)
def test_the_causes(cause: str, *, is_asked: bool):
    """A call with a certain outcome is not asked about."""
    found = run_sync(reconcile_calls([(KEY, call_with(cause))], {"wire_money": booked}))
    assert list(found) == ([KEY] if is_asked else [])


def test_a_tool_message_is_kept():
    """Its id and its artifact are those of the application; it answers the stored call."""
    made = ToolMessage("booked", tool_call_id="?", id="r1", artifact=[1])
    lookups = {"wire_money": lambda _: made}
    for found in (
        run_sync(reconcile_calls([(KEY, call_with("unknown"))], lookups)),
        asyncio.run(run_async(reconcile_calls([(KEY, call_with("unknown"))], lookups))),
    ):
        message = found[KEY].result
        assert (message.id, message.tool_call_id, message.artifact) == ("r1", "c2", [1])


def test_the_id_of_an_answer_does_not_change():
    """Two attempts give the same message."""
    one, other = (
        run_sync(reconcile_calls([(KEY, call_with("unknown"))], {"wire_money": booked}))
        for _ in range(2)
    )
    assert one == other


def test_what_a_lookup_may_return():
    """Anything else is an error."""
    with pytest.raises(OptionError, match="returned 3"):
        run_sync(reconcile_calls([(KEY, call_with("unknown"))], {"wire_money": lambda _: 3}))


@pytest.mark.parametrize("reconcile", [booked, {"wire_money": "booked"}, {1: booked}, ["x"]])
def test_an_invalid_option(reconcile: Any):
    """It is refused where it is passed."""
    with pytest.raises(OptionError, match="reconcile="):
        checked_reconcile(reconcile)
    with pytest.raises(OptionError, match="reconcile="):
        PatchToolCallsMiddleware(reconcile=reconcile)
