"""A refusal names a picture, the order of roles or the end: the model is asked as it asks for.

`tests/history/forms/test_asked.py` has the form itself, `scripts/asked_table.py` the servers.
"""

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from support.asked import BAD, TEXT
from support.refused import CONFIG, PLACES, RefusedError, RefusingModel

PATCHED = [place for place in PLACES if place != "bare"]
IMAGE, NO_IMAGES = "Could not process image", "image_url is only supported by certain models"
AFTER_TOOL = "Unexpected role 'user' after role 'tool'"


def refuses(text, *marks):
    """A rule that refuses the data of these images."""
    return lambda messages: text if any(mark in repr(messages) for mark in marks) else None


def bad(messages):
    """A rule that refuses the bad image."""
    return refuses(IMAGE, "YmFk")(messages)


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
