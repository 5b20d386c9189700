"""May a request be sent again? A test for each point of the table in `asking/ask.py`.

`test_refused_runs` shows what is sent then, and what is stored of it.
"""

import asyncio
import time
from contextlib import nullcontext, suppress
from contextvars import copy_context
from threading import Event
from typing import Any

import pytest
import tenacity
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from kit import Desk, StrictModel, above, calls, model_node
from langgraph_patch import patch_model, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.refused import (
    CONFIG,
    SAID,
    TEXT,
    THINKING,
    WAYS,
    RefusedError,
    RefusingModel,
    ai,
    claude,
)


def below_a_function(patched: Any, kind: str) -> Any:
    """A patched graph, one of whose functions calls a graph with this model."""
    if kind == "entrypoint":

        @entrypoint()
        def inner(state: Any) -> Any:
            return {"messages": [patched.invoke(state["messages"])]}

        inner_graph: Any = inner
    else:
        inner_graph = above(model_node(patched)).compile()
    return node_of(lambda history: inner_graph.invoke({"messages": history})["messages"][-1])


class MailsFirst(AgentMiddleware):
    """Runs a tool before the model is asked."""

    def __init__(self, did: list[str]) -> None:
        super().__init__()
        self.did = did

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Send a mail."""
        Desk().tools()[0].invoke({"to": "ops"})
        self.did.append("mail")
        return handler(request)


class AsksAJudge(AgentMiddleware):
    """Asks a second model behind the first."""

    def __init__(self, judge: Any) -> None:
        super().__init__()
        self.judge = judge

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Ask it for the same history, also if the first has failed."""
        response = None
        with suppress(RefusedError):
            response = handler(request)
        self.judge.invoke(request.messages)
        return response


SILENT = [HumanMessage("1", id="1"), SAID, ai(" ", id="2"), HumanMessage("2", id="h2")]
TWO_FORMS = [*SILENT[:3], claude(THINKING, TEXT, id="3"), HumanMessage("2", id="h2")]
"""Both forms differ from it, and from each other."""


def empty(messages: Any) -> str | None:
    """Mistral's rule."""
    says = [m for m in messages if m.type == "ai" and not (m.text.strip() or m.tool_calls)]
    return "must have either content or tool_calls" if says else None


def never(_: Any) -> str:
    """A rule that no form passes."""
    return "no"


def node_of(call: Any, **options: Any) -> Any:
    """A patched graph of one node that returns what the call makes of a history."""

    def node(state: Any) -> Any:
        return {"messages": [call(state["messages"])]}

    async def anode(state: Any) -> Any:
        return {"messages": [await call(state["messages"])]}

    made = RunnableLambda(anode if asyncio.iscoroutinefunction(call) else node)
    builder = StateGraph(MessagesState).add_node("agent", made, **options)
    return with_patching(builder.add_edge(START, "agent").compile(checkpointer=InMemorySaver()))


def say(history: Any) -> Any:
    """An input."""
    return {"messages": [*history]}


def notes(error: BaseException) -> list[str]:
    """Those of this package."""
    return [n for n in getattr(error, "__notes__", ()) if n.startswith("langgraph-patch")]


def stored(graph: Any) -> list[str]:
    """The texts of the stored history."""
    return [m.text for m in graph.get_state(CONFIG).values["messages"]]


# --- 1. what failed is the refusal itself -------------------------------------------------------


class OwnError(Exception):
    """What an application raises."""


class Tickets(AgentMiddleware):
    """Opens a ticket for each refusal, and raises an error of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Do so."""
        try:
            return handler(request)
        except RefusedError as refusal:
            self.opened.append("ticket")
            raise OwnError("see the ticket") from refusal

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Do the same, asynchronously."""
        try:
            return await handler(request)
        except RefusedError:
            self.opened.append("ticket")
            raise OwnError("see the ticket") from None


def own_error_in(place: str, model: Any) -> tuple[Any, list[str]]:
    """A graph that raises an error of its own after a refusal, and its tickets."""
    tickets = Tickets()
    if place == "node":
        call = lambda history: tickets.wrap_model_call(history, model.invoke)
        return node_of(call), tickets.opened
    if place == "middleware":
        return create_agent(model, middleware=[PatchToolCallsMiddleware(), tickets]), tickets.opened
    return with_patching(create_agent(model, middleware=[tickets])), tickets.opened


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["node", "middleware", "create_agent"])
def test_an_error_of_the_application_is_raised_at_once(place: str, way: str):
    """Chained or not: one request, one ticket; a note says what to do instead."""
    model = RefusingModel(rule=empty)
    graph, opened = own_error_in(place, model)
    with pytest.raises(OwnError, match="see the ticket") as caught:
        WAYS[way](graph, say(SILENT), CONFIG)
    assert (opened, len(model.seen)) == (["ticket"], 1)
    [note] = notes(caught.value)
    assert note.endswith("Raise the refusal itself, or call the model through patch_model.")
    assert "refused the history of thread 't'" in note


def test_the_last_attempt_of_tenacity():
    """Its `RetryError` carries it; the repaired request is sent once for both attempts."""
    model = RefusingModel(rule=empty)
    graph = node_of(tenacity.retry(stop=tenacity.stop_after_attempt(2))(model.invoke))
    assert graph.invoke(say(SILENT), CONFIG)["messages"][-1].text == "done"
    assert len(model.seen) == 3


# --- 2. who is nearest asks ---------------------------------------------------------------------


UNUSABLE = AIMessage(
    "", invalid_tool_calls=[{"name": "mail", "args": '{"a', "id": "c1", "error": None}]
)
"""A message whose only call is no JSON."""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_patch_model_asks_though_the_node_did_something(*, asynchronous: bool):
    """It repeats one request: a tool runs once, and no human is asked twice; streamed or not."""
    model, desk = RefusingModel(rule=empty), Desk()
    patched, mail = patch_model(model), desk.tools()[0]

    def call(history: Any) -> Any:
        interrupt("may I?")
        mail.invoke({"to": "bob"})
        return patched.invoke(history)

    async def acall(history: Any) -> Any:
        interrupt("may I?")
        await mail.ainvoke({"to": "bob"})
        return await anext(patched.astream(history))

    graph = node_of(acall if asynchronous else call)
    for value in (say(SILENT), Command(resume="yes")):
        WAYS["ainvoke" if asynchronous else "invoke"](graph, value, CONFIG)
    assert (stored(graph)[-1], len(model.seen), desk.did) == ("done", 2, {"mail bob": 1})


@pytest.mark.parametrize("order", ["patch_model", "middleware", "both"])
def test_the_others_pass_on_what_the_nearest_has_looked_at(order: str, caplog: Any):
    """Three requests, and one note."""
    model = RefusingModel(rule=never)
    asked = patch_model(model) if order != "middleware" else model
    middleware = [PatchToolCallsMiddleware()] if order != "patch_model" else []
    graph = with_patching(create_agent(asked, middleware=middleware))
    with pytest.raises(RefusedError) as caught:
        graph.invoke(say(TWO_FORMS), CONFIG)
    assert (len(model.seen), len(notes(caught.value))) == (3, 1)
    assert caplog.text.count("the provider refused the history of thread 't', and again") == 1


def test_a_node_whose_patched_model_never_finishes():
    """The guard of the node counts what `patch_model` could not repair."""
    cut = AIMessage("", response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"})
    model = StrictModel(script=[cut] * 40)
    patched = patch_model(model)

    def call(history: Any) -> Any:
        while not (answer := patched.invoke(history)).text:
            pass
        return answer

    with pytest.raises(Exception, match="did not finish its message 10 times"):
        node_of(call).invoke(say([HumanMessage("hi")]), CONFIG)
    assert len(model.seen) == 20


# --- 3. nothing else was begun ------------------------------------------------------------------


def scripts() -> dict[str, Any]:
    """A model whose request is refused, and one whose message is unusable."""
    return {
        "refused": RefusingModel(rule=empty),
        "unusable": RefusingModel(rule=lambda _: None, script=[UNUSABLE]),
    }


BEGUN = ["a task", "an async task", "a tool", "a graph", "a model", "an answered interrupt"]


@pytest.mark.parametrize("case", ["refused", "unusable"])
@pytest.mark.parametrize("begun", BEGUN)
def test_nothing_that_was_begun_is_done_twice(begun: str, case: str):
    """It runs once, and so does the request."""
    model, desk = scripts()[case], Desk()
    mail = desk.tools()[0]
    inner = above(lambda _: desk.note("it ran")).compile()

    @task
    def run_task() -> None:
        desk.note("it ran")

    @task
    async def run_async_task() -> None:
        desk.note("it ran")

    def call(history: Any) -> Any:
        if begun == "an answered interrupt":
            interrupt("may I?")
            desk.note("it ran")
        if begun == "a task":
            run_task().result()
        if begun == "a tool":
            mail.invoke({"to": "bob"})
        if begun == "a graph":
            inner.invoke({"messages": []})
        if begun == "a model":
            StrictModel().invoke("hi")
            desk.note("it ran")
        return model.invoke(history)

    async def acall(history: Any) -> Any:
        await run_async_task()
        return await model.ainvoke(history)

    graph = node_of(acall if begun == "an async task" else call)
    inputs = [say(SILENT), Command(resume="yes")][: 1 + (begun == "an answered interrupt")]
    for number, each in enumerate(inputs, 1):
        ends = pytest.raises(RefusedError) if case == "refused" and number == len(inputs) else None
        with ends or nullcontext():
            asyncio.run(graph.ainvoke(each, CONFIG))
    assert (sum(desk.did.values()), len(model.seen)) == (1, 1)


def test_an_error_of_a_node_that_looks_like_a_refusal():
    """No model run has it, so the node runs once."""
    desk = Desk()

    def call(_: Any) -> None:
        desk.note("it ran")
        raise RefusedError("its own request")

    with pytest.raises(RefusedError):
        node_of(call).invoke(say(SILENT), CONFIG)
    assert desk.did == {"it ran": 1}


class SlowModel(StrictModel):
    """Answers after a moment."""

    async def _agenerate(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.05)
        return self._generate(*args, **options)


@pytest.mark.parametrize(
    "beside", ["a tool", "a model", "a step that comes later", "a coroutine", "a thread"]
)
async def test_what_still_runs_beside_the_refused_request_runs_once(beside: str):
    """Another branch of the node has begun, and has not ended."""
    model, other, desk, begun = RefusingModel(rule=empty), SlowModel(), Desk(), Event()
    mail = desk.tools()[0]

    async def slow_mail() -> None:
        await asyncio.sleep(0.02)
        await mail.ainvoke({"to": "bob"})

    async def ask_other() -> None:
        await other.ainvoke("hi")
        desk.note("paid")

    def ask_in_thread() -> None:
        StrictModel(lambda _: begun.set() or time.sleep(0.2) or "hi").invoke("hi")
        desk.note("paid")

    async def call(history: Any) -> Any:
        if beside == "a coroutine":
            running = asyncio.create_task(slow_mail())
            answer = await model.ainvoke(history)
            await running
            return answer
        if beside == "a thread":
            asyncio.get_running_loop().run_in_executor(None, copy_context().run, ask_in_thread)
            await asyncio.to_thread(begun.wait)
            return await model.ainvoke(history)
        branch = {"a tool": mail.ainvoke, "a model": ask_other}.get(beside, slow_mail)
        others = [branch({"to": "bob"})] if beside == "a tool" else [branch()]
        return (await asyncio.gather(model.ainvoke(history), *others))[0]

    with pytest.raises(RefusedError):
        await node_of(call).ainvoke(say(SILENT), CONFIG)
    for _ in range(100):  # on a busy machine it may take long
        if desk.did:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.1)  # a second time would be noted by then
    assert (sum(desk.did.values()), len(model.seen)) == (1, 1)


# --- 4. counted as it is said -------------------------------------------------------------------


def test_a_form_without_what_was_sent_is_another_one():
    """A refusal in words, and blocks whose metadata say how they are translated."""
    told = AIMessage("", additional_kwargs={"refusal": "I can't."})
    model = RefusingModel(rule=lambda seen: None if seen[1].text else "no content")
    node_of(model.invoke).invoke(say([HumanMessage("hi"), told, HumanMessage("x")]), CONFIG)
    assert model.seen[-1][1].text == "I can't."


# --- 6. the application's error stays itself ----------------------------------------------------


def raising(*_: Any) -> Any:
    """Raise what nobody expects."""
    raise ZeroDivisionError


class OddError(Exception):
    """An error with these attributes, whatever they are."""

    def __init__(self, **fields: Any) -> None:
        super().__init__("odd")
        vars(self).update(fields)


class NoTextError(OddError):
    """Its text cannot be shown."""

    __str__ = raising
    status_code = 400


class ChainlessError(OddError):
    """Its cause cannot be read."""

    __cause__ = property(raising)


ODD: dict[str, Any] = {
    "a response that is a text": lambda: OddError(response="text"),
    "an error that is a text": lambda: OddError(response={"Error": "text"}),
    "no error": lambda: OddError(response={"Error": None}),
    "no metadata": lambda: OddError(response={"ResponseMetadata": None}),
    "notes that are no texts": lambda: OddError(__notes__=[1], status_code=400),
    "no text": NoTextError,
    "no cause": ChainlessError,
}


def end_of(graph: Any) -> BaseException | None:
    """The error of a run; pytest cannot show some of them."""
    try:
        graph.invoke(say(TWO_FORMS), CONFIG)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    return None


def fail_with(error: BaseException) -> Any:
    """Raise an error."""
    raise error


@pytest.mark.parametrize("place", ["node", "middleware", "patch_model", "a stream"])
@pytest.mark.parametrize("name", ODD)
def test_reading_an_error_never_raises(name: str, place: str):
    """The object that the client raised leaves the run, whatever it is."""
    error = ODD[name]()
    model = RefusingModel(rule=lambda _: fail_with(error))
    called = {
        "node": model.invoke,
        "patch_model": patch_model(model).invoke,
        "a stream": lambda history: next(patch_model(model).stream(history)),
    }
    graph = (
        create_agent(model, middleware=[PatchToolCallsMiddleware()])
        if place == "middleware"
        else node_of(called[place])
    )
    assert end_of(graph) is error
    assert len(model.seen) == (3 if "status_code" in dir(error) else 1)


# --- a call that was left to a frontend ---------------------------------------------------------


@pytest.mark.parametrize("accepts", [True, False])
def test_a_call_of_a_frontend_stays_open_until_it_is_refused(*, accepts: bool):
    """Its result may still come. No tool of the graph has its name."""
    rule = lambda seen: None if accepts or seen[-1].type == "tool" else "a call has no result"
    model = RefusingModel(rule=rule)
    graph = with_patching(create_agent(model, Desk().tools()))
    graph.invoke({"messages": [HumanMessage("1"), calls(("show", {}))]})
    assert [m.type for m in model.seen[-1]] == ["human", "ai", *["tool"] * (not accepts)]
    assert len(model.seen) == 1 + (not accepts)


# --- what asks below a node ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["graph", "entrypoint", "node"])
@pytest.mark.parametrize("way", ["invoke", "events"])
def test_patch_model_asks_for_itself_below_a_patched_graph(kind: str, way: str):
    """After a refusal, and after an unusable message; the node around it runs once."""
    model = RefusingModel(rule=empty, script=[UNUSABLE], disable_streaming=True)
    patched = patch_model(model)
    graph = node_of(patched.invoke) if kind == "node" else below_a_function(patched, kind)
    WAYS[way](graph, say(SILENT), CONFIG)
    assert [m.type for m in model.seen[2]][-3:] == ["human", "ai", "tool"]
    assert (stored(graph)[-1], len(model.seen)) == ("done", 3)


@pytest.mark.parametrize("rule", [lambda _: None, never])
def test_what_ran_below_the_middleware_is_known_to_the_node(rule: Any):
    """A tool that ran there does not run again when another model of the node is refused."""
    did, judge = list[str](), RefusingModel(rule=empty)
    middleware = [AsksAJudge(judge), PatchToolCallsMiddleware(), MailsFirst(did)]
    agent = create_agent(RefusingModel(rule=rule), [], middleware=middleware)
    with pytest.raises(RefusedError):
        with_patching(agent).invoke(say(SILENT))
    assert did == ["mail"]
    assert len(judge.seen) == 1


def test_a_patch_model_that_answered_is_not_asked_again():
    """As a model that answered: another one of the node is refused behind it."""
    first, second = StrictModel(), RefusingModel(rule=empty)
    patched = patch_model(first)

    def node(state: Any) -> Any:  # no runnable: no callback shows the node what ran below
        patched.invoke([HumanMessage("sum up")])
        return {"messages": [second.invoke(state["messages"])]}

    with pytest.raises(RefusedError):
        with_patching(above(node)).compile().invoke(say(SILENT))
    assert (len(first.seen), len(second.seen)) == (1, 1)


def test_a_note_says_why_the_second_of_two_models_is_not_asked_again():
    """The node is not run again: the first has answered."""
    refused = RefusedError("Could not process image", 400)

    def refuses(_: Any) -> None:
        raise refused

    first, second = StrictModel("plan"), StrictModel(refuses=refuses)

    def llm(state: Any) -> dict[str, Any]:
        first.invoke(state["messages"])
        return {"messages": [second.invoke(state["messages"])]}

    with pytest.raises(RefusedError) as raised:
        with_patching(above(llm)).compile().invoke({"messages": [HumanMessage("go")]})
    assert raised.value is refused
    assert "had answered before" in "".join(refused.__notes__)
    assert len(first.seen) == 1
