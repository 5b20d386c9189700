"""A refusal names a picture, the order of roles or the end: the model is asked as it asks for.

`tests/history/forms/test_asked.py` has the form itself, `scripts/asked_table.py` the servers.
"""

import logging
import re
from itertools import pairwise
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from langgraph_patch import PatchToolCallsMiddleware, patch_model, with_patching
from langgraph_patch.history.forms.asked import NOTHING_NEW
from support.asked import BAD, GOOD, STATES, TEXT
from support.refused import CLAUDE, CONFIG, PLACES, THINKING, WAYS, RefusedError, RefusingModel

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


def user_after_tool(messages):
    """A rule of old servers of Mistral."""
    types = [message.type for message in messages]
    return AFTER_TOOL if ("tool", "human") in pairwise(types) else None


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


@pytest.mark.parametrize("place", ["middleware", "patch_model"])
def test_a_loop_pays_once(place):
    """Of twenty requests of one run the first is refused; the forms are not tried again."""
    tool = StructuredTool.from_function(lambda: "ok", name="look", description="Look.")
    script = [AIMessage("", tool_calls=[{**CALL, "id": f"c{n}"}]) for n in range(19)]
    graph, model = agent_of(place, bad, SHOWN, script, [tool])
    graph.invoke({"messages": [HumanMessage("go")]}, {**CONFIG, "recursion_limit": 100})
    assert [bool(bad(messages)) for messages in model.seen] == [True, *[False] * 20]


@pytest.mark.parametrize("place", ["middleware", "patch_model"])
def test_a_picture_that_comes_later_is_seen(place):
    """The form that was accepted leaves out what was refused, and no newer screenshot."""
    tool = StructuredTool.from_function(lambda: [TEXT, GOOD], name="look", description="Look.")
    script = [AIMessage("", tool_calls=[{**CALL, "id": f"c{n}"}]) for n in range(3)]
    graph, model = agent_of(place, bad, SHOWN, script, [tool])
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert len(model.seen) == 5
    assert [repr(messages).count("Z29vZA") for messages in model.seen] == [0, 0, 1, 2, 3]
    assert [bool(bad(messages)) for messages in model.seen] == [True, *[False] * 4]


@pytest.mark.parametrize("place", PATCHED)
def test_a_picture_of_this_turn_behind_thinking_that_the_provider_demands(place):
    """The plain form has no thinking, and is refused for that: the picture alone is left out."""
    tool = StructuredTool.from_function(lambda: [TEXT, BAD], name="look", description="Look.")
    thinks = AIMessage([THINKING], tool_calls=[CALL], response_metadata=CLAUDE)

    def rule(messages):
        newest = max(i for i, m in enumerate(messages) if m.type == "human")
        thought = [m for m in messages[newest:] if m.type == "ai" and m.tool_calls]
        if thought and THINKING not in [*thought[-1].content]:
            return "messages.1.content.0.type: Expected `thinking`, but found `tool_use`."
        return bad(messages)

    graph, model = agent_of(place, rule, [], [thinks], [tool])
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert stored(graph)[-1].text == "done"
    assert THINKING in [*stored(graph)[1].content]
    assert BAD in stored(graph)[2].content
    assert len(model.seen) <= 4
    graph.invoke({"messages": [HumanMessage("and now?")]}, CONFIG)
    assert stored(graph)[-1].text == "done"


@pytest.mark.parametrize("place", ["middleware", "patch_model"])
def test_a_model_without_eyes_in_a_loop(place):
    """It reads none of the pictures that its tools return, and each is refused once at most."""
    tool = StructuredTool.from_function(lambda: [TEXT, GOOD], name="look", description="Look.")
    script = [AIMessage("", tool_calls=[{**CALL, "id": f"c{n}"}]) for n in range(5)]
    graph, model = agent_of(place, refuses(NO_IMAGES, "Z29vZA"), [], script, [tool])
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    assert [repr(messages).count("Z29vZA") for messages in model.seen] == [0, 1, *[0] * 5]


NINE = "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9."


@pytest.mark.parametrize("place", PATCHED)
@pytest.mark.parametrize("call_id", ["call_0fypS1hVX", "functions.look:0"])
@pytest.mark.parametrize("rule", [lambda _: None, user_after_tool, refuses(NO_IMAGES, "Z29vZA")])
def test_ids_that_another_provider_gave(place, call_id, rule):
    """Mistral's rule, behind a server with OpenAI's API: alone, and behind another refusal."""
    call = AIMessage("", tool_calls=[{**CALL, "id": call_id}], id="a1")
    look = ToolMessage([TEXT, GOOD], tool_call_id=call_id, id="t1")

    def nine(messages):
        found = [c["id"] for m in messages for c in getattr(m, "tool_calls", ())]
        odd = [each for each in found if not re.fullmatch("[a-zA-Z0-9]{9}", each)]
        return rule(messages) or (NINE.format(odd[0]) if odd else None)

    graph, model = agent_of(place, nine, [HumanMessage("a", id="h1"), call, look])
    for text in ("b", "c"):
        graph.invoke({"messages": [HumanMessage(text)]}, CONFIG)
        assert stored(graph)[-1].text == "done"
    assert stored(graph)[1:3] == [call, look]
    assert nine(model.seen[-1]) is None


@pytest.mark.parametrize("place", PATCHED)
def test_an_account_without_credit_is_no_refused_history(place):
    """Anthropic answers with status 400: the error is raised after one request, without a note."""
    text = "Your credit balance is too low to access the Anthropic API."
    graph, model = agent_of(place, lambda _: text, [HumanMessage("a", id="h1"), AIMessage(" ")])
    with pytest.raises(RefusedError, match="credit") as caught:
        graph.invoke({"messages": [HumanMessage("b")]}, CONFIG)
    assert len(model.seen) == 1
    assert "langgraph-patch" not in "".join(getattr(caught.value, "__notes__", []))


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


@pytest.mark.parametrize("place", PATCHED)
def test_a_healthy_run_with_pictures_is_one_request(place):
    """The very messages of the state."""
    history = [*SHOWN, HumanMessage([TEXT, GOOD], id="h2"), AIMessage("ok", id="a2")]
    graph, model = agent_of(place, lambda _: None, history)
    graph.invoke({"messages": [HumanMessage([TEXT, GOOD], id="h3")]}, CONFIG)
    [sent] = model.seen
    assert sent == stored(graph)[:-1]


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


@pytest.mark.parametrize("place", PATCHED)
def test_a_message_of_a_model_at_the_end(place):
    """The model reads that there is nothing new; the state has its answer behind the old one."""
    history = [HumanMessage("a", id="1"), AIMessage("b", id="2")]
    graph, model = agent_of(place, ends_with_a_model, history)
    graph.invoke({"messages": []}, CONFIG)
    assert [m.content for m in stored(graph)] == ["a", "b", "done"]
    assert [m.content for m in model.seen[-1]] == ["a", "b", NOTHING_NEW]


# --- nodes that return what they have read ----------------------------------------------------


class Plain(TypedDict):
    """A history without a reducer."""

    messages: list[Any]


class Added(TypedDict):
    """A history with LangGraph's reducer."""

    messages: Annotated[list[Any], add_messages]


RETURNED = {
    "all": lambda read, answer: [*read, answer],
    "the last two": lambda read, answer: [*read[-2:], answer],
    "the answer": lambda _, answer: [answer],
}


@pytest.mark.parametrize("returned", RETURNED)
@pytest.mark.parametrize("state", [Plain, Added])
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "astream"])
def test_a_node_that_returns_what_it_has_read(returned, state, way):
    """What was sent in another form is stored as it was."""

    def rule(messages):
        return f"{IMAGE}; {AFTER_TOOL}" if bad(messages) or user_after_tool(messages) else None

    model, make = RefusingModel(rule=rule), RETURNED[returned]

    def node(values):
        return {"messages": make(values["messages"], model.invoke(values["messages"]))}

    builder: Any = StateGraph(state)
    builder.add_node("model", node)
    builder.add_edge(START, "model")
    builder.add_edge("model", END)
    graph = with_patching(builder).compile(checkpointer=InMemorySaver())
    _, called, result = STATES["a human message behind a result"][0]
    called = called.model_copy(update={"id": "a9"})
    history = [*SHOWN, called, result, HumanMessage("?", id="h9")]
    WAYS[way](graph, {"messages": history}, CONFIG)
    assert [bool(rule(messages)) for messages in model.seen] == [True, False]
    kept = {"all": history, "the last two": history[-1:], "the answer": []}[returned]
    kept = history if state is Added else kept
    assert stored(graph)[:-1] == kept
    assert stored(graph)[-1].content == "done"
