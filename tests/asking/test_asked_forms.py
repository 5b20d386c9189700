"""A refusal names a picture, the order of roles or the end: the model is asked as it asks for.

`tests/history/forms/test_asked.py` has the form itself, `scripts/asked_table.py` the servers.
"""

from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from langgraph_patch import PatchToolCallsMiddleware, patch_model
from support.asked import BAD, TEXT
from support.refused import CONFIG, PLACES, RefusedError, RefusingModel

PATCHED = [place for place in PLACES if place != "bare"]
IMAGE, NO_IMAGES = "Could not process image", "image_url is only supported by certain models"
AFTER_TOOL = "Unexpected role 'user' after role 'tool'"
NO_PREFILL = "This model does not support assistant message prefill."
CALL: Any = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}


def refuses(text, *marks):
    """A rule that refuses the data of these images."""
    return lambda messages: text if any(mark in repr(messages) for mark in marks) else None


def bad(messages):
    """A rule that refuses the bad image."""
    return refuses(IMAGE, "YmFk")(messages)


def ends_with_a_model(messages):
    """A rule of Claude 4.6."""
    return NO_PREFILL if messages[-1].type == "ai" else None


def agent_of(place, rule, history, script=(), tools=()):
    """A thread with this history, and its model."""
    model = RefusingModel(rule=rule, script=[*script])
    graph = PLACES[place](model, [*tools], checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": history}, as_node=START)
    return graph, model


def stored(graph):
    """The history in the state."""
    return graph.get_state(CONFIG).values["messages"]


SHOWN = [HumanMessage([TEXT, BAD], id="h1"), AIMessage("ok", id="a1")]


@pytest.mark.parametrize("place", PATCHED)
def test_the_newest_picture_is_an_error_with_a_note(place):
    """It is raised as it came, after one request; the next message heals the thread."""
    graph, model = agent_of(place, bad, [])
    with pytest.raises(RefusedError) as caught:
        graph.invoke({"messages": [HumanMessage([TEXT, BAD])]}, CONFIG)
    assert str(caught.value) == IMAGE
    notes = "\n".join(caught.value.__notes__)
    assert "the newest message has one: it is never left out" in notes
    assert len(model.seen) == 1
    graph.invoke({"messages": [HumanMessage("?")]}, CONFIG)
    assert stored(graph)[-1].content == "done"


@pytest.mark.parametrize("place", PATCHED)
@pytest.mark.parametrize("text", [IMAGE, NO_IMAGES, AFTER_TOOL, "tools.0.image: invalid", ""])
def test_a_refusal_without_the_matter_stays_as_it_was(place, text):
    """A text that names what the history has not, or words alone: one request, the same error."""
    graph, model = agent_of(place, lambda _: text or "?", [HumanMessage("a", id="1")])
    with pytest.raises(RefusedError) as caught:
        graph.invoke({"messages": [HumanMessage("b")]}, CONFIG)
    assert (
        not getattr(caught.value, "__notes__", [])
        or "during task" in str(caught.value.__notes__).lower()
    )
    assert len(model.seen) == 1


def test_the_own_prefill_of_an_application_stays():
    """It has no id: the error is raised, and nothing is put behind it."""

    class Prefills(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(messages=[*request.messages, AIMessage("{")]))

    def rule(messages):
        return ends_with_a_model(messages)

    for inner in (True, False):
        model = RefusingModel(rule=rule)
        own = [PatchToolCallsMiddleware(), Prefills()]
        agent = create_agent(model, middleware=own if inner else own[::-1])
        with pytest.raises(RefusedError):
            agent.invoke({"messages": [HumanMessage("a")]})
        assert len(model.seen) == 1
    model = RefusingModel(rule=rule)
    with pytest.raises(RefusedError):
        patch_model(model).invoke([HumanMessage("a"), AIMessage("{")])
    assert len(model.seen) == 1


# --- nodes that return what they have read ----------------------------------------------------


class Plain(TypedDict):
    """A history without a reducer."""

    messages: list[Any]


RETURNED = {
    "all": lambda read, answer: [*read, answer],
    "the last two": lambda read, answer: [*read[-2:], answer],
    "the answer": lambda _, answer: [answer],
}
