"""A refused history is repaired, and the model is asked once more; all else fails as it did.

A refusal is known from every other error by its attributes, wherever it is in a chain.
`tests/server/test_refusals.py` has the same claim for the real integrations.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from kit import Desk
from langgraph_patch import patch_model, with_patching
from langgraph_patch.asking.refusal import is_refusal, refusal_text
from langgraph_patch.errors import EvidenceError
from support.refused import (
    CONFIG,
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


SILENT = [HumanMessage("1", id="1"), SAID, ai(" ", id="2")]
FOREIGN = [HumanMessage("1", id="1"), claude(THINKING, TEXT, id="3")]
BOTH = [*SILENT, *FOREIGN[1:]]


def thread(graph, history):
    """The graph, with this history in its state."""
    graph.update_state(CONFIG, {"messages": history}, as_node=START)
    return graph


def agent(place, rule, history=(), **fields):
    """A graph in this place with a thread, and its model."""
    model = RefusingModel(rule=rule, **fields)
    graph = PLACES[place](model, Desk().tools(), checkpointer=InMemorySaver())
    return thread(graph, [*history]), model


def contents(graph):
    """The contents of the stored history."""
    return [m.content for m in graph.get_state(CONFIG).values["messages"]]


def say(text="2"):
    """An input."""
    return {"messages": [HumanMessage(text)]}


PATCHED = [place for place in PLACES if place != "bare"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PATCHED)
def test_what_can_be_stored_is_stored_with_the_answer(place, way, caplog):
    """The first turn needs two requests, the next ones need one; logged on INFO."""
    caplog.set_level(logging.INFO, "langgraph_patch")
    graph, model = agent(place, empty, SILENT)
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


@pytest.mark.parametrize("samples", [1, 3])
def test_a_group_of_requests_that_are_all_refused_ends_with_an_exception(samples):
    """A retry in a `TaskGroup` is ended by the guard, whose error no server catches."""
    model = RefusingModel(rule=lambda _: "refused for ever")
    retried = model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)

    async def node(state):
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(retried.ainvoke(state["messages"])) for _ in range(samples)]
        return {"messages": [asked[0].result()]}

    builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()))
    thread(graph, SILENT)
    with pytest.raises((ExceptionGroup, RefusedError)):
        asyncio.run(graph.ainvoke(say(), CONFIG))


@pytest.mark.parametrize("said", [("ai", "sorry"), {"role": "ai", "content": "sorry"}, "sorry"])
def test_a_node_whose_model_failed_may_return_what_langgraph_takes_as_a_message(said):
    """A dict, a tuple and a text are messages, too."""

    def busy(messages):
        raise RefusedError("too many requests")

    model = RefusingModel(rule=busy)

    def node(state):
        try:
            return {"messages": [model.invoke(state["messages"])]}
        except RefusedError:
            return {"messages": [said]}

    builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()))
    WAYS["invoke"](graph, say(), CONFIG)
    assert contents(graph) == ["2", "sorry"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PATCHED)
def test_the_plain_form_is_for_one_request(place, way):
    """The stored history keeps what its own provider reads."""
    graph, model = agent(place, blocks, FOREIGN)
    WAYS[way](graph, say(), CONFIG)
    assert [m.content for m in model.seen[-1]] == ["1", "It rains.", "2"]
    assert contents(graph) == ["1", [THINKING, TEXT], "2", "done"]
    assert len(model.seen) == 2


@pytest.mark.parametrize("place", PATCHED)
def test_thinking_goes_if_the_refusal_speaks_of_it(place):
    """That of earlier turns is removed from the state; that of the running turn for a request."""
    graph, model = agent(place, thinking, FOREIGN)
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
    graph, model = agent(place, lambda _: next(reasons), BOTH)
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
    graph, model = agent(place, lambda _: "too hot", [HumanMessage("1"), SAID])
    with pytest.raises(RefusedError) as caught:
        WAYS["invoke"](graph, say(), CONFIG)
    assert str(caught.value) == "too hot"
    assert len(model.seen) == 1
    assert not any("langgraph-patch" in n for n in getattr(caught.value, "__notes__", ()))


class SdkError(Exception):
    """An error of a provider's SDK, with these attributes."""

    def __init__(self, text="no", **fields):
        super().__init__(text)
        vars(self).update(fields)


OTHER_STATUSES = (401, 403, 404, 408, 409, 413, 429, 500, 503, 529)
ERRORS = [
    *(SdkError(f"{status}", status_code=status) for status in OTHER_STATUSES),
    *(TimeoutError(), ConnectionResetError(), ValueError("mine"), KeyError("mine")),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("place", PATCHED)
def test_another_error_is_never_asked_again(place, error):
    """One request, and the same exception, whatever the history is."""

    def fails(_):
        raise error

    graph, model = agent(place, fails, BOTH)
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
    graph, model = agent(place, fails, SILENT)
    asyncio.run(cancel(graph))
    assert len(model.seen) == 1


def node_graph(node, history, **options):
    """A patched graph of one node, and a thread with this history."""
    builder = StateGraph(MessagesState).add_node("model", node, **options)
    graph = builder.add_edge(START, "model").compile(checkpointer=InMemorySaver())
    return thread(with_patching(graph, model_node="model"), history)


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
        with pytest.raises(RefusedError):
            node_graph(node, SILENT).invoke(say(), CONFIG)
    graph = node_graph(with_question, SILENT)
    assert graph.invoke(say(), CONFIG)["__interrupt__"]
    with pytest.raises(RefusedError):
        graph.invoke(Command(resume="yes"), CONFIG)
    assert desk.did["mail bob"] == 1
    assert (len(model.seen), len(runs)) == (3, 1)


def test_fallbacks_and_retries_are_asked_again_as_a_whole():
    """The first model is overloaded, the second refuses what the first wrote."""

    def overloaded(_):
        raise SdkError(status_code=529)

    first, second = RefusingModel(rule=overloaded), RefusingModel(rule=blocks)
    chain = first.with_fallbacks([second])
    graph = node_graph(lambda state: {"messages": [chain.invoke(state["messages"])]}, FOREIGN)
    assert graph.invoke(say(), CONFIG)["messages"][-1].text == "done"
    assert (len(first.seen), len(second.seen)) == (2, 2)
    model = RefusingModel(rule=empty)
    retried = model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    graph = node_graph(
        lambda state: {"messages": [retried.invoke(state["messages"])]},
        SILENT,
        retry_policy=RetryPolicy(max_attempts=2, initial_interval=0, retry_on=RefusedError),
    )
    assert graph.invoke(say(), CONFIG)["messages"][-1].text == "done"
    assert len(model.seen) == 3


def test_the_middleware_below_a_patched_node_asks_for_both():
    """A graph with both does not ask six times."""
    model = RefusingModel(rule=lambda _: "never")
    graph = with_patching(PLACES["middleware"](model, [], checkpointer=InMemorySaver()))
    thread(graph, BOTH)
    with pytest.raises(RefusedError, match="never"):
        graph.invoke(say(), CONFIG)
    assert len(model.seen) == 3


def test_an_agent_without_tools_stores_it_as_well():
    """START repairs its calls, but does not know what a provider refuses."""
    model = RefusingModel(rule=empty)
    graph = with_patching(PLACES["bare"](model, [], checkpointer=InMemorySaver()))
    thread(graph, SILENT)
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
    report = lambda patch, _: patches.append(str(patch))
    graph = with_patching(thread(bare, history), on_patch=report)
    graph.invoke(None, CONFIG)
    assert patches == ["inserted 'look' 'c1' (unknown); dropped message 3 (empty)"]
    assert contents(graph)[3:] == ["It rains.", "2", "done"]


class ContextOverflowError(SdkError):
    """What LangChain's integrations raise if the history is too long."""


def raised(error, cause=None, context=None):
    """The error with a cause, or with one that was handled when it was raised."""
    error.__context__ = context
    if cause is not None:
        error.__cause__ = cause
    return error


def of_aws(code):
    """A `ClientError` of botocore for an event of a stream, which has no status."""
    return SdkError(response={"Error": {"Code": code}})


REFUSED = SdkError(status_code=400)

NO_REFUSAL = {
    "an error of the application": ValueError("400"),
    "a lost connection": ConnectionError("reset"),
    "a timeout": TimeoutError(),
    "a cancellation": asyncio.CancelledError(),
    "a status that is none": SdkError(status_code=-1, code="invalid_request_error"),
    "a flag": SdkError(code=True),
    "a throttled event of AWS": of_aws("throttlingException"),
    "an error of this package": raised(EvidenceError("no"), cause=REFUSED),
    "an interrupt": raised(GraphInterrupt(()), context=REFUSED),
    "a context that is too long": ContextOverflowError(status_code=400),
    "a cancelled group": BaseExceptionGroup("g", [asyncio.CancelledError()]),
    "a rate limit of the fallback": raised(SdkError(status_code=429), context=REFUSED),
    "an error that hides its context": raised(ValueError("no"), context=REFUSED),
}
NO_REFUSAL["an error that hides its context"].__suppress_context__ = True


@pytest.mark.parametrize("name", NO_REFUSAL)
def test_no_refusal(name):
    """The outermost error with a status decides; without one it is none."""
    assert not is_refusal(NO_REFUSAL[name])


WRAPPED = {
    "a cause": raised(RuntimeError("failed"), cause=REFUSED),
    "a context": raised(RuntimeError("failed"), context=REFUSED),
    "a group": ExceptionGroup("g", [ValueError("x"), ExceptionGroup("h", [REFUSED])]),
    "a refusal of the fallback": raised(
        SdkError(status_code=400), context=SdkError(status_code=529)
    ),
    "an event of AWS": of_aws("validationException"),
    "AWS": SdkError(response={"ResponseMetadata": {"HTTPStatusCode": 422}}),
    "Gemini": SdkError(code=400, status="INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_refusal_in_a_chain_of_errors(name):
    """As a cause, as a context, in a group; an error that is its own cause ends the search."""
    assert is_refusal(WRAPPED[name])
    loop = RuntimeError("loop")
    loop.__cause__ = loop
    assert not is_refusal(loop)


def test_the_text_of_a_refusal_is_that_of_all_errors():
    """A provider speaks of thinking in the cause of what the integration raises."""
    cause = raised(RuntimeError("outer"), cause=SdkError("in `thinking` block", status_code=400))
    assert refusal_text(ExceptionGroup("g", [cause])).splitlines()[1:] == [
        "outer",
        "in `thinking` block",
    ]


def test_the_text_of_a_refusal_is_not_that_of_an_error_that_was_handled_when_it_came():
    """A phrase in it would say what to repair, though another request was meant."""
    error = raised(SdkError("too many tools", status_code=400), context=SdkError("process image"))
    assert refusal_text(raised(RuntimeError("outer"), cause=error)) == "outer\ntoo many tools"


WIRE = {"name": "bank.wire", "description": "Pay.", "parameters": {}}
NAMED: dict[str, Callable[[Any], Any]] = {
    "bound": lambda model: patch_model(model.bind(tools=[WIRE])),
    "bound later": lambda model: patch_model(model).bind(tools=[WIRE]),
    "in a chain": lambda model: patch_model(model.bind(tools=[WIRE]) | RunnableLambda(lambda m: m)),
    "of a fallback": lambda model: patch_model(
        model.bind(tools=[WIRE]).with_fallbacks([model.bind(tools=[WIRE])])
    ),
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("way", NAMED)
def test_tools_that_the_model_has_keep_their_names(way: str, *, is_streamed: bool):
    """In the plain form, too: the model reads of its own tools. Names of other tools are valid."""

    def named(messages: Any) -> str | None:
        called = [call["name"] for call in getattr(messages[1], "tool_calls", ())]
        return f"invalid names: {called}" if "a b" in called else None

    model = RefusingModel(rule=named)
    names = [("bank.wire", "c1"), ("a b", "c2")]
    said = AIMessage("", tool_calls=[{"name": n, "args": {}, "id": i} for n, i in names])
    results = [ToolMessage("done", tool_call_id=i, name=n) for n, i in names]
    asked = [HumanMessage("q"), said, *results]
    patched = NAMED[way](model)
    if is_streamed:
        assert [*patched.stream(asked)]
    else:
        assert patched.invoke(asked).text == "done"
    assert [call["name"] for call in model.seen[-1][1].tool_calls] == ["bank.wire", "a_b"]
