"""A refused history is repaired, and the model is asked once more; all else fails as it did."""

import asyncio
import logging
import threading
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from kit import Desk
from langgraph_patch import patch_model, with_patching
from support.refused import (
    PLACES,
    SAID,
    TEXT,
    THINKING,
    WAYS,
    RefusedError,
    RefusingModel,
    ai,
    claude,
)

CONFIG: Any = {"configurable": {"thread_id": "t"}}
REASON = "Invalid `signature` in `thinking` block"


def empty(messages: Any) -> str | None:
    """Mistral's rule."""
    says = [m for m in messages if m.type == "ai" and not (m.text.strip() or m.tool_calls)]
    return "must have either content or tool_calls" if says else None


def blocks(messages: Any) -> str | None:
    """A rule of a provider that knows texts alone."""
    return "unknown block" if any(isinstance(m.content, list) for m in messages) else None


def thinking(messages: Any) -> str | None:
    """A rule of a provider whose thinking is bound to something else."""
    return REASON if "c2ln" in repr(messages) else None


RULES = {"empty": empty, "blocks": blocks, "thinking": thinking}
SILENT = [HumanMessage("1", id="1"), SAID, ai(" ", id="2")]
FOREIGN = [HumanMessage("1", id="1"), claude(THINKING, TEXT, id="3")]
BOTH = [*SILENT, *FOREIGN[1:]]


def agent(place, rule, *, history=None, saver=None, **fields):
    """A graph in this place with a thread, and its model."""
    model = RefusingModel(rule=rule, **fields)
    graph = PLACES[place](model, Desk().tools(), checkpointer=saver or InMemorySaver())
    if history:
        graph.update_state(CONFIG, {"messages": history}, as_node=START)
    return graph, model


def contents(graph):
    """The contents of the stored history."""
    return [m.content for m in graph.get_state(CONFIG).values["messages"]]


def say(text="2"):
    """An input."""
    return {"messages": [HumanMessage(text)]}


MODES = ["updates", "messages"]

PATCHED = [place for place in PLACES if place != "bare"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PATCHED)
def test_what_can_be_stored_is_stored_with_the_answer(place, way, caplog):
    """The first turn needs two requests, the next ones need one; logged on INFO."""
    caplog.set_level(logging.INFO, "langgraph_patch")
    graph, model = agent(place, empty, history=SILENT)
    WAYS[way](graph, say(), CONFIG)
    asked = [r.message for r in caplog.records if "refused" in r.message]
    text = "asked the model of thread 't' again, because its provider refused the history: {}"
    assert asked == [text.format("dropped message 2 (empty)")]
    assert [m.content for m in model.seen[-1]] == ["1", "It rains.", "2"]
    is_stored = place != "patch_model"
    assert contents(graph) == ["1", "It rains.", *([] if is_stored else [" "]), "2", "done"]
    WAYS[way](graph, say("3"), CONFIG)
    assert len(model.seen) == (3 if is_stored else 4)
    assert contents(graph)[-2:] == ["3", "done"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PATCHED)
def test_the_plain_form_is_for_one_request(place, way):
    """The stored history keeps what its own provider reads."""
    graph, model = agent(place, blocks, history=FOREIGN)
    WAYS[way](graph, say(), CONFIG)
    assert [m.content for m in model.seen[-1]] == ["1", "It rains.", "2"]
    assert contents(graph) == ["1", [THINKING, TEXT], "2", "done"]
    assert len(model.seen) == 2


@pytest.mark.parametrize("place", PATCHED)
def test_thinking_goes_if_the_refusal_speaks_of_it(place):
    """That of earlier turns is removed from the state; that of the running turn for a request."""
    graph, model = agent(place, thinking, history=FOREIGN)
    WAYS["invoke"](graph, say(), CONFIG)
    is_stored = place != "patch_model"
    assert contents(graph)[1] == ([TEXT] if is_stored else [THINKING, TEXT])
    call = {"name": "mail", "args": {"to": "bob"}, "id": "c1"}
    model.script += [AIMessage([THINKING], tool_calls=[call]), AIMessage("sent")]
    WAYS["invoke"](graph, say("3"), CONFIG)
    assert contents(graph)[-3:] == [[THINKING], "sent to bob", "sent"]
    WAYS["invoke"](graph, say("4"), CONFIG)
    assert (contents(graph)[-5] == "") is is_stored


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_the_first_error_is_raised_with_a_note_if_no_request_is_answered(place, way):
    """Two further requests at most; the note names the thread, the message and the state."""
    reasons = iter("abc")
    graph, model = agent(place, lambda _: next(reasons), history=BOTH)
    with pytest.raises(RefusedError) as caught:
        WAYS[way](graph, say(), CONFIG)
    assert str(caught.value) == "a"
    notes = [n for n in getattr(caught.value, "__notes__", ()) if "langgraph-patch" in n]
    if place == "bare":
        assert (len(model.seen), notes) == (1, [])
        return
    assert len(model.seen) == 3
    text = (
        "langgraph-patch: the provider refused the history of thread 't', and again after this "
        "repair: dropped message 2 (empty); corrected message 3 (foreign). Each next turn will be "
        "refused, unless the history or the request is changed."
    )
    assert notes == [text]
    assert caught.value.__context__ is None
    assert contents(graph)[:3] == ["1", "It rains.", " "]


@pytest.mark.parametrize("place", PLACES)
def test_a_history_without_a_state_is_refused_once(place):
    """The error is raised as it came."""
    graph, model = agent(place, lambda _: "too hot", history=[HumanMessage("1"), SAID])
    with pytest.raises(RefusedError) as caught:
        WAYS["invoke"](graph, say(), CONFIG)
    assert str(caught.value) == "too hot"
    assert len(model.seen) == 1
    assert not any("langgraph-patch" in n for n in getattr(caught.value, "__notes__", ()))


class StatusError(Exception):
    """An error of an SDK."""

    def __init__(self, status):
        super().__init__(str(status))
        self.status_code = status


ERRORS = [
    *map(StatusError, (401, 403, 404, 408, 409, 429, 500, 503, 529)),
    *(TimeoutError(), ConnectionResetError(), ValueError("mine"), KeyError("mine")),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("place", PATCHED)
def test_another_error_is_never_asked_again(place, error):
    """One request, and the same exception, whatever the history is."""

    def fails(_):
        raise error

    graph, model = agent(place, fails, history=BOTH)
    for number, way in enumerate(WAYS.values(), 1):
        with pytest.raises(type(error)) as caught:
            way(graph, say(), CONFIG)
        assert str(caught.value) == str(error)
        assert len(model.seen) == number


@pytest.mark.parametrize("place", PATCHED)
def test_a_cancelled_run_is_not_asked_again(place):
    """Also while the provider is about to refuse."""

    def fails(_):
        started.set()
        time.sleep(0.1)
        return "must have content"

    async def cancel(graph):
        run = asyncio.create_task(graph.ainvoke(say(), CONFIG))
        await asyncio.to_thread(started.wait)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await asyncio.sleep(0.2)

    started = threading.Event()
    graph, model = agent(place, fails, history=SILENT)
    asyncio.run(cancel(graph))
    assert len(model.seen) == 1


# --- what else a node does ----------------------------------------------------------------------


def node_graph(node, **options):
    """A patched graph of one node."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", node, **options)
    builder.add_edge(START, "model")
    return with_patching(builder.compile(checkpointer=InMemorySaver()), model_node="model")


def test_nothing_is_done_twice():
    """A node that ran a tool or got an answer, that asked a human or failed itself, runs once."""
    model = RefusingModel(rule=empty)
    desk = Desk()
    mail = desk.tools()[0]
    runs = []

    def with_tool(state, config):
        mail.invoke({"to": "bob"}, config)
        return {"messages": [model.invoke(state["messages"], config)]}

    def with_answer(state):
        RefusingModel(rule=lambda _: None).invoke("hi")
        return {"messages": [model.invoke(state["messages"])]}

    def with_question(state):
        interrupt("sure?")
        return {"messages": [model.invoke(state["messages"])]}

    def of_its_own(state):
        runs.append(state)
        raise RefusedError("its own request")

    for node in (with_tool, with_answer, of_its_own):
        graph = node_graph(node)
        graph.update_state(CONFIG, {"messages": SILENT}, as_node=START)
        with pytest.raises(RefusedError):
            graph.invoke(say(), CONFIG)
    graph = node_graph(with_question)
    graph.update_state(CONFIG, {"messages": SILENT}, as_node=START)
    assert graph.invoke(say(), CONFIG)["__interrupt__"]
    with pytest.raises(RefusedError):
        graph.invoke(Command(resume="yes"), CONFIG)
    assert desk.did["mail bob"] == 1
    assert (len(model.seen), len(runs)) == (3, 1)


def test_fallbacks_and_retries_are_asked_again_as_a_whole():
    """The first model is overloaded, the second refuses what the first wrote."""

    def overloaded(_):
        raise StatusError(529)

    first, second = RefusingModel(rule=overloaded), RefusingModel(rule=blocks)
    chain = first.with_fallbacks([second])
    graph = node_graph(lambda state: {"messages": [chain.invoke(state["messages"])]})
    graph.update_state(CONFIG, {"messages": FOREIGN}, as_node=START)
    assert graph.invoke(say(), CONFIG)["messages"][-1].text == "done"
    assert (len(first.seen), len(second.seen)) == (2, 2)
    model = RefusingModel(rule=empty)
    retried = model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    graph = node_graph(
        lambda state: {"messages": [retried.invoke(state["messages"])]},
        retry_policy=RetryPolicy(max_attempts=2, initial_interval=0, retry_on=RefusedError),
    )
    graph.update_state(CONFIG, {"messages": SILENT}, as_node=START)
    assert graph.invoke(say(), CONFIG)["messages"][-1].text == "done"
    assert len(model.seen) == 3


def test_a_history_that_is_not_the_stored_one_is_repaired_for_the_request():
    """A window in the node: the state keeps its message, and the next turn is asked again."""
    model = RefusingModel(rule=empty)
    patched = patch_model(model)
    window = lambda state: {"messages": [patched.invoke(state["messages"][-2:])]}
    graph = node_graph(RunnableLambda(window))
    graph.update_state(CONFIG, {"messages": SILENT}, as_node=START)
    graph.invoke(say(), CONFIG)
    assert contents(graph) == ["1", "It rains.", "2", "done"]
    builder = StateGraph(MessagesState)
    builder.add_node("model", window)
    builder.add_edge(START, "model")
    bare = builder.compile(checkpointer=InMemorySaver())
    bare.update_state(CONFIG, {"messages": SILENT}, as_node=START)
    bare.invoke(say(), CONFIG)
    assert contents(bare) == ["1", "It rains.", " ", "2", "done"]


def test_the_middleware_below_a_patched_node_asks_for_both():
    """A graph with both does not ask six times."""
    model = RefusingModel(rule=lambda _: "never")
    graph = with_patching(PLACES["middleware"](model, [], checkpointer=InMemorySaver()))
    graph.update_state(CONFIG, {"messages": BOTH}, as_node=START)
    with pytest.raises(RefusedError, match="never"):
        graph.invoke(say(), CONFIG)
    assert len(model.seen) == 3


def test_an_agent_without_tools_stores_it_as_well():
    """START repairs its calls, but does not know what a provider refuses."""
    model = RefusingModel(rule=empty)
    graph = with_patching(PLACES["bare"](model, [], checkpointer=InMemorySaver()))
    graph.update_state(CONFIG, {"messages": SILENT}, as_node=START)
    for number in range(2):
        graph.invoke(say(), CONFIG)
        assert len(model.seen) == number + 2
    assert contents(graph) == ["1", "It rains.", "2", "done", "2", "done"]


def test_a_repair_of_calls_and_of_a_refusal_are_one():
    """One `on_patch`, whose indexes are those of the stored history."""
    patches = []
    model = RefusingModel(rule=empty)
    bare = PLACES["bare"](model, Desk().tools(), checkpointer=InMemorySaver())
    history = [SILENT[0], ai("", "c1", id="4"), *SILENT[1:], HumanMessage("2")]
    bare.update_state(CONFIG, {"messages": history}, as_node=START)
    graph = with_patching(bare, on_patch=lambda patch, _: patches.append(str(patch)))
    graph.invoke(None, CONFIG)
    assert patches == ["inserted 'look' 'c1' (unknown); dropped message 3 (empty)"]
    assert contents(graph)[3:] == ["It rains.", "2", "done"]


def test_a_living_thread_is_never_touched():
    """Ten turns in states that the provider accepts: all is as in the bare graph."""
    found = []
    for place in PLACES:
        odd = [ai("", id=f"x{n}") if n % 2 else ai(" ", f"c{n}", id=f"x{n}") for n in range(10)]
        graph, model = agent(place, lambda _: None, script=odd)
        parts = [
            [(mode, part) for mode, part in graph.stream(say(), CONFIG, stream_mode=MODES)]
            for _ in range(10)
        ]
        checkpoints = len(list(graph.get_state_history(CONFIG)))
        found.append((contents(graph), checkpoints, len(model.seen), [*map(len, parts)]))
    assert found[0] == found[1] == found[2]
    assert [each[0] for each in found] == [found[0][0]] * len(found)
