"""`PatchToolCallsMiddleware` in `create_agent`; `create_deep_agent` is in `tests/server`."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    wrap_model_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from kit import Agent, DeltaChannel, _messages_delta_reducer, calls, streamed
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.testing import RefusedError
from langgraph_patch.threads import repair_thread
from support.placeholder_texts import MALFORMED, WAITED

BOTH_CALLS = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
MAIL = calls(("mail", {"to": "bob"}), id="a1")
WAITED_FOR = WAITED.format("wire", "c2")
HEALED = ["go", "", "sent to bob", WAITED_FOR, "never mind"]


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


def test_a_resume_reaches_the_tool():
    """An approval goes to the call that waits: no hook of the middleware runs before it."""
    agent = Agent("middleware", BOTH_CALLS)
    agent.say("go")
    agent.run(Command(resume="yes"))
    assert texts(agent.history)[2:] == ["sent to bob", "wired 5: yes", "done"]
    assert agent.desk.did == {"mail bob": 1, "wire 5": 1}


@pytest.mark.parametrize(
    ("value", "asynchronous"), [(None, True), (Command(goto="model"), False)], ids=["none", "goto"]
)
def test_damage_in_front_of_the_model(value, asynchronous):
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


@pytest.mark.parametrize("asynchronous", [False, True])
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


def test_clients_see_the_new_results_only():
    """In `messages` mode a repair is its two results and then the answer."""
    agent = Agent("middleware", BOTH_CALLS)
    agent.say("go")
    seen = agent.stream({"messages": [HumanMessage("never mind")]}, ["messages", "updates"])
    messages = [chunk[0] for mode, chunk in seen if mode == "messages"]
    assert texts(messages[:2]) == HEALED[2:4]
    assert {message.type for message in messages[2:]} == {"AIMessageChunk"}
    [update] = [chunk["model"] for mode, chunk in seen if mode == "updates"]
    assert texts(update["messages"]) == [*HEALED[2:4], "done"]


@wrap_model_call
async def cutting(request, handler):
    """Leave out each message with calls, and keep their results."""
    kept = [m for m in request.messages if not getattr(m, "tool_calls", None)]
    return await handler(request.override(messages=kept))


def test_last_in_the_list_sees_what_the_others_did():
    """After a middleware that cuts the history, the orphan is gone; before it, it is not.

    The request is repaired as it is, and a damaged state in full.
    """
    patch = PatchToolCallsMiddleware()
    agent = Agent(with_middleware(cutting, patch), MAIL, asynchronous=True)
    agent.say("go")
    assert texts(agent.model.seen[-1]) == ["go"]
    assert texts(agent.history) == ["go", "", "sent to bob", "done"]
    agent = Agent(with_middleware(patch, cutting), MAIL, asynchronous=True)
    with pytest.raises(RefusedError, match="answers no call"):
        agent.say("go")
    agent = dead_thread(with_middleware(cutting, patch), asynchronous=True)
    agent.run(None)
    assert texts(agent.model.seen[-1]) == ["go", "never mind"]
    assert texts(agent.history) == [*HEALED, "done"]


class Note(AgentMiddleware):
    """Adds a note to the history, beside the response."""

    def __init__(self, calls: int = 1) -> None:
        super().__init__()
        self.calls = calls

    def _noted(self, response: Any) -> Any:
        note = HumanMessage("a note")
        return ExtendedModelResponse(response, Command(update={"messages": [note]}))

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model, once or more often, and add the note."""
        responses = [handler(request) for _ in range(self.calls)]
        return self._noted(responses[-1])

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Do the same, asynchronously."""
        return self._noted([await handler(request) for _ in range(self.calls)][-1])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("order", ["outside", "inside", "patched", "patched twice"])
def test_what_another_middleware_adds_stays_beside_a_repair(order: str, *, asynchronous: bool):
    """In every order: its message follows the answer, and the next turn repairs nothing."""
    ours, note = PatchToolCallsMiddleware(), Note()
    middleware = {
        "outside": [note, ours],
        "inside": [ours, note],
        "patched": [note],
        "patched twice": [note, ours],
    }[order]
    make = with_middleware(*middleware)
    kind = make if "patched" not in order else lambda *parts: with_patching(make(*parts))
    agent = dead_thread(kind, asynchronous=asynchronous)
    chunks = agent.stream(None, ["updates", "messages"])
    assert texts(agent.history) == [*HEALED, "done", "a note"]
    [update] = [chunk["model"] for mode, chunk in chunks if mode == "updates"]
    parts = update if isinstance(update, list) else [update]
    shown = [message for part in parts for message in part["messages"]]
    assert texts(shown)[:3] == [*HEALED[2:4], "done"]


def test_a_middleware_that_calls_the_model_twice():
    """The repair is written once, and the answer that counts is shown."""
    agent = dead_thread(with_middleware(Note(calls=2), PatchToolCallsMiddleware()))
    agent.model.script = [AIMessage("first"), AIMessage("second")]
    chunks = agent.stream(None, "updates")
    assert texts(agent.history) == [*HEALED, "second", "a note"]
    assert texts(chunks[0]["model"]["messages"]) == [*HEALED[2:4], "second"]


class DeltaAgentState(AgentState):
    """A history that is spread over checkpoints."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


@pytest.mark.needs(langgraph="1.2")
def test_a_repair_of_messages_without_an_id():
    """LangGraph gives none to a message that a client sends as a pair."""
    agent = Agent(with_middleware(PatchToolCallsMiddleware(), state_schema=DeltaAgentState), MAIL)
    agent.run({"messages": [("human", "go")]})
    agent.graph.update_state(agent.config, {"messages": [calls(("mail", {}), first=7)]}, "tools")
    agent.run({"messages": [("human", "never mind")]})
    types = ["human", "ai", "tool", "ai", "ai", "tool", "human", "ai"]
    assert [m.type for m in agent.history] == types


@pytest.mark.needs(langgraph="1.2")
def test_a_repair_of_a_history_in_a_delta_channel():
    """The stored thread can be read and repaired as before: nothing of it is ambiguous."""
    middleware = [Note(), PatchToolCallsMiddleware()]
    agent = Agent(with_middleware(*middleware, state_schema=DeltaAgentState), BOTH_CALLS)
    agent.say("go")
    agent.say("never mind")
    assert texts(agent.history) == [*HEALED[:4], "a note", HEALED[4], "done", "a note"]
    agent.graph.update_state(agent.config, {"messages": [calls(("mail", {}), first=7)]}, "tools")
    options: Any = {"on_pause": "abandon", "min_age": 0, "dry_run": True}
    repair = repair_thread(agent.graph.checkpointer, agent.config, **options)
    assert (repair.outcome, repair.reason) == ("planned", None)


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


def is_malformed(text, call_id):
    """Whether a call was answered by LangChain, or where that is older by this package."""
    by_langchain = "Tool call wire with id {} could not be executed - arguments were malformed or"
    ours = MALFORMED.format("wire", call_id)
    return text == ours or text.startswith(by_langchain.format(call_id))


def test_an_incomplete_call_beside_a_complete_one():
    """The complete call runs, and the other is answered before the next model call.

    Nothing stands behind the message before that: an approval reads the last one.
    """
    message = MAIL.model_copy(deep=True)
    incomplete = {"name": "wire", "args": '{"amount": 1', "id": "c2", "error": None}
    message.invalid_tool_calls = [{**incomplete, "type": "invalid_tool_call"}]
    agent = Agent("middleware", message)
    agent.say("go")
    results = [m for m in agent.model.seen[1] if isinstance(m, ToolMessage)]
    assert is_malformed(results[0].text, "c2")
    assert texts(results[1:]) == ["sent to bob"]
    agent.say("thanks")
    assert texts(agent.history) == ["go", "", *texts(results), "done", "thanks", "done"]


def test_the_second_answer_may_have_a_cut_call():
    """The complete call beside it runs; the cut one is answered."""
    first = streamed(("mail", '{"to": "bo'))
    second = streamed(("mail", '{"to": "al"}'), ("wire", '{"amou'), first=5)
    agent = Agent("middleware", first, second)
    agent.model.streaming = True
    agent.say("go")
    for results in (agent.results, agent.read):
        assert results["c5"] == "sent to al"
        assert is_malformed(results["c6"], "c6")
