"""`PatchToolCallsMiddleware` in `create_agent`; `create_deep_agent` is in `tests/server`."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from kit import Agent, calls
from langgraph_patch import is_placeholder, with_patching
from langgraph_patch.errors import OptionError
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.strict import RefusedError

BOTH_CALLS = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
MAIL = calls(("mail", {"to": "bob"}), id="a1")
WAITED = (
    "Tool call wire with id c2 was waiting for human input when another message came in; "
    "no answer and no result were recorded."
)
HEALED = ["go", "", "sent to bob", WAITED, "never mind"]
BOTH_WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def texts(messages: Any) -> list[str]:
    """The text of each message."""
    return [message.text for message in messages]


def with_middleware(*middleware: Any, **settings: Any) -> Any:
    """A kind of agent with these middlewares."""
    return lambda model, tools, saver: create_agent(
        model, tools, middleware=middleware, checkpointer=saver, **settings
    )


def dead_thread(kind: Any = "middleware", **options: Any) -> Agent:
    """An agent on a thread that the bare agent broke: the model is next, and refuses."""
    saver = InMemorySaver()
    bare = Agent(with_middleware(), BOTH_CALLS, saver=saver)
    bare.say("go")
    with pytest.raises(RefusedError, match="c1"):
        bare.say("never mind")
    assert bare.graph.get_state(bare.config).next == ("model",)
    return Agent(kind, saver=saver, **options)


@BOTH_WAYS
def test_f01_f02_a_new_message_after_an_interrupt(asynchronous):
    """The state is repaired before the agent runs, with the recorded result."""
    agent = Agent("middleware", BOTH_CALLS, asynchronous=asynchronous)
    agent.say("go")
    agent.say("never mind")
    assert texts(agent.history) == [*HEALED, "done"]
    agent.say("hello")
    assert texts(agent.model.seen[-1]) == [*HEALED, "done", "hello"]


@BOTH_WAYS
def test_f04_a_resume_reaches_the_tool(asynchronous):
    """An approval goes to the call that waits: no hook of the middleware runs before it."""
    agent = Agent("middleware", BOTH_CALLS, asynchronous=asynchronous)
    agent.say("go")
    agent.run(Command(resume="yes"))
    assert texts(agent.history)[2:] == ["sent to bob", "wired 5: yes", "done"]
    assert agent.desk.did == {"mail bob": 1, "wire 5": 1}


@BOTH_WAYS
@pytest.mark.parametrize("value", [None, Command(goto="model")], ids=["none", "goto"])
def test_f20_damage_in_front_of_the_model(asynchronous, value):
    """The model reads a valid history; the repair is stored and reported once, with the answer."""
    reported: list[Any] = []
    report = lambda *seen: reported.append(seen)
    agent = dead_thread(asynchronous=asynchronous, on_patch=report)
    agent.run(value)
    assert texts(agent.model.seen[-1]) == HEALED
    assert texts(agent.history) == [*HEALED, "done"]
    agent.say("hello")
    assert texts(agent.history) == [*HEALED, "done", "hello", "done"]
    assert len(reported) == 1


@BOTH_WAYS
def test_a_healthy_agent_is_left_alone(asynchronous):
    """Nothing is reported; the checkpoints, the chunks and what the model reads are the same."""
    reported: list[Any] = []
    found = []
    for middleware in ([], [PatchToolCallsMiddleware(on_patch=lambda *e: reported.append(e))]):
        agent = Agent(with_middleware(*middleware), MAIL, asynchronous=asynchronous)
        modes = ["updates", "messages", "values"]
        chunks = agent.stream({"messages": [HumanMessage("go", id="h1")]}, modes)
        steps = len(list(agent.graph.get_state_history(agent.config)))
        found.append(([mode for mode, _ in chunks], steps, texts(agent.model.seen[-1])))
    assert found[0] == found[1]
    assert found[0][2] == ["go", "", "sent to bob"]
    assert reported == []


def test_with_patching_and_the_middleware_together():
    """Both in one agent: the entry check repairs first, and there is one repair."""
    reported: list[Any] = []
    middleware = PatchToolCallsMiddleware(on_patch=lambda *seen: reported.append(seen))
    build = with_middleware(middleware)
    agent = dead_thread(lambda *parts: with_patching(build(*parts)))
    agent.run(None)
    assert texts(agent.history) == [*HEALED, "done"]
    assert reported == []


def test_f18_clients_see_the_new_results_only():
    """In `messages` mode a repair is its two results and then the answer."""
    agent = Agent("middleware", BOTH_CALLS)
    agent.say("go")
    seen = agent.stream({"messages": [HumanMessage("never mind")]}, ["messages", "updates"])
    messages = [chunk[0] for mode, chunk in seen if mode == "messages"]
    assert texts(messages[:2]) == HEALED[2:4]
    assert {message.type for message in messages[2:]} == {"AIMessageChunk"}
    [update] = [chunk["model"] for mode, chunk in seen if mode == "updates"]
    assert texts(update["messages"]) == [*HEALED[2:4], "done"]


# --- beside other middlewares -----------------------------------------------------------------


class Cutting(AgentMiddleware):
    """Removes the calls from the model's input, and keeps their results."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Leave out each message with calls."""
        kept = [m for m in request.messages if not getattr(m, "tool_calls", None)]
        return handler(request.override(messages=kept))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """As `wrap_model_call`."""
        return await self.wrap_model_call(request, handler)


@BOTH_WAYS
def test_last_in_the_list_sees_what_the_others_did(asynchronous):
    """After a middleware that cuts the history, the orphan is gone; before it, it is not."""
    patch = PatchToolCallsMiddleware()
    agent = Agent(with_middleware(Cutting(), patch), MAIL, asynchronous=asynchronous)
    agent.say("go")
    assert texts(agent.model.seen[-1]) == ["go"]
    assert texts(agent.history) == ["go", "", "sent to bob", "done"]
    agent = Agent(with_middleware(patch, Cutting()), MAIL, asynchronous=asynchronous)
    with pytest.raises(RefusedError, match="answers no call"):
        agent.say("go")


def test_a_request_that_was_cut_and_a_damaged_state():
    """The request is repaired as it is, and the state in full."""
    build = with_middleware(Cutting(), PatchToolCallsMiddleware())
    agent = dead_thread(build)
    agent.run(None)
    assert texts(agent.model.seen[-1]) == ["go", "never mind"]
    assert texts(agent.history) == [*HEALED, "done"]


def test_a_structured_response_beside_a_repair():
    """It is kept, and its own messages are written once."""

    class Answer(BaseModel):
        """The answer."""

        to: str

    settings = {"response_format": ToolStrategy(Answer)}
    agent = dead_thread(with_middleware(PatchToolCallsMiddleware(), **settings))
    agent.model.script = [calls(("Answer", {"to": "al"}), first=3)]
    assert agent.run(None)["structured_response"] == Answer(to="al")
    assert texts(agent.history)[:5] == HEALED
    assert [m.type for m in agent.history[5:]] == ["ai", "tool"]


def test_an_incomplete_call_beside_a_complete_one():
    """The complete call runs, and the other is answered by a placeholder of this package."""
    message = MAIL.model_copy(deep=True)
    incomplete = {"name": "wire", "args": '{"amount": 1', "id": "c2", "error": None}
    message.invalid_tool_calls = [{**incomplete, "type": "invalid_tool_call"}]
    agent = Agent("middleware", message)
    agent.say("go")
    results = [m for m in agent.model.seen[1] if isinstance(m, ToolMessage)]
    malformed = (
        "Tool call wire with id c2 was not run: its arguments are not a complete JSON object."
    )
    assert texts(results) == [malformed, "sent to bob"]
    assert is_placeholder(results[0])
    agent.say("thanks")
    assert texts(agent.history) == ["go", "", *texts(results), "done", "thanks", "done"]


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "mail", "wire"),
    [
        ({}, "sent to bob", WAITED),
        ({"placeholder": {"awaiting_input": "no answer"}}, "sent to bob", "no answer"),
        ({"recover": False}, "may not have run.", "may not have run."),
        (
            {"reconcile": {"wire": lambda call: f"{call.cause} by hand"}},
            "sent to bob",
            "awaiting_input by hand",
        ),
    ],
    ids=["none", "placeholder", "recover", "reconcile"],
)
def test_options_are_those_of_the_repair(options, mail, wire):
    """They decide what the state has."""
    agent = dead_thread(**options)
    agent.say("hello?")
    assert agent.results["c1"].endswith(mail)
    assert agent.results["c2"].endswith(wire)


@pytest.mark.parametrize("replaces", [False, True])
def test_replace_foreign(replaces):
    """What deepagents wrote, which may be false, is replaced only if that is asked for."""
    foreign = "Tool call wire with id c2 was cancelled - another message came in before it could "
    foreign += "be completed."
    agent = Agent("middleware", replace_foreign=replaces)
    result = ToolMessage(foreign, tool_call_id="c2")
    history = [HumanMessage("go"), calls(("wire", {}), first=2), result, HumanMessage("hello?")]
    agent.run({"messages": history})
    assert (agent.results["c2"] == foreign) is not replaces


def test_what_on_patch_raises_reaches_the_caller():
    """An application that refuses a repair gets its own error, and nothing is written."""

    def refuse(*_: Any) -> None:
        raise LookupError("not now")

    agent = dead_thread(on_patch=refuse)
    with pytest.raises(LookupError, match="not now"):
        agent.say("hello?")
    assert texts(agent.history) == ["go", "", "never mind", "hello?"]


def test_an_option_with_a_wrong_value():
    """It is an error where it is passed."""
    with pytest.raises(OptionError, match="recover='always'"):
        PatchToolCallsMiddleware(recover="always")
