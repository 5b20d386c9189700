"""A refused history is repaired, and the model is asked once more; all else fails as it did.

A refusal is known from every other error by its attributes, wherever it is in a chain.
`tests/server/test_refusals.py` has the same claim for the real integrations.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import START

from kit import Desk
from langgraph_patch import patch_model
from langgraph_patch.asking.refusal import is_refusal, refusal_text
from langgraph_patch.errors import EvidenceError
from support.refused import CONFIG, PLACES, SAID, TEXT, THINKING, WAYS, RefusingModel, ai, claude


def empty(messages: Any) -> str | None:
    """Mistral's rule."""
    says = [m for m in messages if m.type == "ai" and not (m.text.strip() or m.tool_calls)]
    return "must have either content or tool_calls" if says else None


SILENT = [HumanMessage("1", id="1"), SAID, ai(" ", id="2")]
FOREIGN = [HumanMessage("1", id="1"), claude(THINKING, TEXT, id="3")]
BOTH = [*SILENT, *FOREIGN[1:]]


def agent(place, rule, history=(), **fields):
    """A graph in this place with a thread, and its model."""
    model = RefusingModel(rule=rule, **fields)
    graph = PLACES[place](model, Desk().tools(), checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": [*history]}, as_node=START)
    return graph, model


def say():
    """An input."""
    return {"messages": [HumanMessage("2")]}


PATCHED = [place for place in PLACES if place != "bare"]


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


@pytest.mark.parametrize(("error", "place"), [*zip(ERRORS, cycle(PATCHED))])
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
    "an account without credit": SdkError("Your credit balance is too low", status_code=400),
    "a wrong call": SdkError("See 'failed_generation' for more details.", status_code=400),
    "a page that is not found": SdkError("Item with id '7' not found", status_code=404),
    "a cancelled group": BaseExceptionGroup("g", [asyncio.CancelledError()]),
    "a rate limit of the fallback": raised(SdkError(status_code=429), context=REFUSED),
    "an error that hides its context": raised(ValueError("no"), context=REFUSED),
}
NO_REFUSAL["an error that hides its context"].__suppress_context__ = True


@pytest.mark.parametrize("name", NO_REFUSAL)
def test_no_refusal(name):
    """The outermost error with a status decides; without one it is none."""
    assert not is_refusal(NO_REFUSAL[name])
    # One of another model run, which was handled meanwhile, is no cause.
    assert not is_refusal(raised(ValueError("no"), context=REFUSED), [REFUSED])


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
    "a template of llama.cpp": SdkError("Error: Jinja Exception: no", status_code=500),
    "a lost item": SdkError(f"Item with id 'rs_{'0' * 50}' not found", status_code=404),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_refusal_in_a_chain_of_errors(name):
    """As a cause, as a context, in a group; an error that is its own cause ends the search."""
    assert is_refusal(WRAPPED[name])
    loop = RuntimeError("loop")
    loop.__cause__ = loop
    assert not is_refusal(loop)


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


def test_the_text_of_a_refusal_is_that_of_all_errors():
    """A provider speaks of thinking in the cause of what the integration raises."""
    cause = raised(RuntimeError("outer"), cause=SdkError("in `thinking` block", status_code=400))
    assert refusal_text(ExceptionGroup("g", [cause])).splitlines()[1:] == [
        "outer",
        "in `thinking` block",
    ]
