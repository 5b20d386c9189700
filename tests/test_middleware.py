"""`PatchToolCallsMiddleware` in `create_agent`; `create_deep_agent` is in `tests/server`."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, wrap_model_call
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from kit import Agent, calls
from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.testing import RefusedError
from support.placeholder_texts import WAITED

BOTH_CALLS = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
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


@wrap_model_call
def newest(request, handler):
    """Send the newest messages only."""
    return handler(request.override(messages=request.messages[1:]))


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


EMPTY = AIMessage("", id="a1")


@pytest.mark.parametrize("said", [BOTH_CALLS, EMPTY], ids=["open calls", "no text"])
def test_what_another_node_adds_in_the_superstep_of_a_repair_stays(said):
    """The middleware reads a valid history, and leaves the writing to the next turn."""

    def with_a_note(model: Any, tools: Any, saver: Any) -> Any:
        builder = with_middleware(PatchToolCallsMiddleware())(model, tools, None).builder
        note = lambda _: {"messages": [HumanMessage("a note")]}
        return builder.add_node("note", note).add_edge("__start__", "note").compile(saver)

    agent = Agent(with_a_note)
    damaged = {"messages": [HumanMessage("go", id="h1"), said]}
    agent.graph.update_state(agent.config, damaged, as_node="note")
    agent.say("never mind")
    assert texts(agent.history) == ["go", "", "never mind", "done", "a note"]


def test_the_repair_of_what_another_middleware_sends_is_not_stored():
    """Of a part of the history: the rest would be lost."""
    agent = Agent(with_middleware(newest, PatchToolCallsMiddleware()))
    agent.graph.update_state(agent.config, {"messages": [HumanMessage("go"), EMPTY]})
    agent.say("and?")
    assert texts(agent.history) == ["go", "", "and?", "done"]
