"""A refusal names a picture, the order of roles or the end: the model is asked as it asks for.

`tests/history/forms/test_asked.py` has the form itself, `scripts/asked_table.py` the servers.
"""

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from kit import above
from langgraph_patch import with_patching
from support.asked import BAD, TEXT
from support.refused import CONFIG, PLACES, WAYS, RefusedError, RefusingModel

SHOWN = [HumanMessage([TEXT, BAD], id="h1"), AIMessage("ok", id="a1")]


GREETED = [AIMessage("Hello.", id="a0"), HumanMessage(" ", id="h1"), AIMessage("?", id="a1")]


CALL: Any = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}


PATCHED = [place for place in PLACES if place != "bare"]
IMAGE, NO_IMAGES = "Could not process image", "image_url is only supported by certain models"
AFTER_TOOL = "Unexpected role 'user' after role 'tool'"


def refuses(text, *marks):
    """A rule that refuses the data of these images."""
    return lambda messages: text if any(mark in repr(messages) for mark in marks) else None


def bad(messages):
    """A rule that refuses the bad image."""
    return refuses(IMAGE, "YmFk")(messages)


def greeted(messages):
    """A rule that refuses a first answer, and a blank."""
    if messages[0].type == "ai":
        return "A conversation must start with a user message."
    texts = [message.text for message in messages]
    return "user messages must have non-empty content" if " " in texts else None


def agent_of(place, rule, history, script=(), tools=()):
    """A thread with this history, and its model."""
    model = RefusingModel(rule=rule, script=[*script])
    graph = PLACES[place](model, [*tools], checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": history}, as_node=START)
    return graph, model


def stored(graph):
    """The history in the state."""
    return graph.get_state(CONFIG).values["messages"]


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


# --- nodes that return what they have read ----------------------------------------------------


@pytest.mark.parametrize("place", PATCHED)
@pytest.mark.parametrize("way", WAYS)
def test_a_greeting_and_a_blank_are_stored_as_they_were(place, way):
    """What is before the greeting and in the blank is for the request, whatever way it is run."""
    graph, model = agent_of(place, greeted, GREETED)
    WAYS[way](graph, {"messages": [HumanMessage("Pay.", id="h2")]}, CONFIG)
    assert [m.text for m in stored(graph)] == ["Hello.", " ", "?", "Pay.", "done"]
    assert [m.text for m in model.seen[-1][1:]] == ["Hello.", "[no text]", "?", "Pay."]


def test_a_node_that_summarizes_removes_what_is_stored():
    """With the removal of another message LangGraph could not read the thread any more."""
    model = RefusingModel(rule=greeted)

    def summarize(state):
        gone = [RemoveMessage(id=message.id) for message in state["messages"]]
        return {"messages": [*gone, model.invoke(state["messages"])]}

    graph = with_patching(above(summarize).compile(InMemorySaver()))
    graph.invoke({"messages": [*GREETED, HumanMessage("?")]}, CONFIG)
    assert [message.text for message in stored(graph)] == ["done"]


@pytest.mark.parametrize("place", PATCHED)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_it_is_stored(place, way, caplog):
    """The state has the picture and the answer, whatever way the graph is run; one line says so."""
    caplog.set_level(logging.INFO, "langgraph_patch")
    graph, model = agent_of(place, bad, SHOWN)
    WAYS[way](graph, {"messages": [HumanMessage("?", id="h2")]}, CONFIG)
    assert [*stored(graph)[:2], stored(graph)[2].content] == [*SHOWN, "?"]
    assert [m.content for m in stored(graph)[3:]] == ["done"]
    assert len(model.seen) == 2
    lines = [r.getMessage() for r in caplog.records if "asked the model" in r.getMessage()]
    assert len(lines) == 1
    assert "corrected message 0 (media)" in lines[0]


@pytest.mark.parametrize("rule", [bad, greeted])
@pytest.mark.parametrize("place", ["middleware", "patch_model"])
def test_a_loop_pays_once(place, rule):
    """Of twenty requests of one run the first is refused; the forms are not tried again."""
    tool = StructuredTool.from_function(lambda: "ok", name="look", description="Look.")
    script = [AIMessage("", tool_calls=[{**CALL, "id": f"c{n}"}]) for n in range(19)]
    graph, model = agent_of(place, rule, GREETED[:1] + SHOWN, script, [tool])
    graph.invoke({"messages": [HumanMessage("go")]}, {**CONFIG, "recursion_limit": 100})
    assert [bool(rule(messages)) for messages in model.seen] == [True, *[False] * 20]
