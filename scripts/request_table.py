"""Print how many requests nodes make, and how often each side effect is done, as Markdown.

    python scripts/request_table.py

A `Cell` is one of `SHAPES` in one of `FORMS`, one of `EVENTS` and one of `WAYS`. It plays three
turns, or one if its node asks ten times: the requests of all models, how often each side effect was
done in each turn, and the errors of the turns. A question (`1`, `2`, `3`) is answered with a mail,
if there are tools, and then with `done`. Where ways of running a graph differ, each has a row. A
cell in which a patched graph has done more often what a callback shows is bold, and the exit code
is 1.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ExtendedModelResponse,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kit import Desk, StrictModel, calls, streamed
from langgraph_patch import patch_model, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.testing import RefusedError, check_request
from support.refused import WAYS as _WAYS

CUT = "cut"
"""What a call that was cut mails to."""


class OwnError(Exception):
    """What an application raises in the place of a refusal."""


# --- what happens ---------------------------------------------------------------------------


class Event(NamedTuple):
    """What happens to the requests.

    Attributes:
        cuts: How often the answer to a question is cut, in a node that asks once.
        cuts_of_ten: The same, in a node that asks ten times.
        refuses: Raises an error for a history; it takes the number of the request, too.
        is_silent: Whether the history has a message that says nothing.
        own_error: Whether the application raises an error of its own in the place of a refusal.
    """

    cuts: Mapping[str, int] = MappingProxyType({})
    cuts_of_ten: Mapping[str, int] = MappingProxyType({})
    refuses: Callable[[list[BaseMessage], int], None] = lambda history, _: check_request(history)
    is_silent: bool = False
    own_error: bool = False


def _always(*_: Any) -> None:
    raise RefusedError("this history is not accepted", 400)


def _busy_once(history: list[BaseMessage], number: int) -> None:
    if number == 1:
        raise RefusedError("too many requests", 429)
    check_request(history)


EVENTS = {
    "nothing": Event(),
    "refused once": Event(is_silent=True),
    "refused for ever": Event(refuses=_always, is_silent=True),
    "cut once": Event({"1": 1}, {"1": 1}),
    "cut three times apart": Event({"1": 1, "2": 1, "3": 1}, {"1": 1, "4": 1, "7": 1}),
    "cut three times in a row": Event({"1": 3}, {"1": 1, "2": 1, "3": 1}),
    "own error": Event(is_silent=True, own_error=True),
    "429": Event(refuses=_busy_once),
}


@dataclass
class Office:
    """A model, its tools, and what they did.

    Attributes:
        event: What happens.
        is_sync: Whether the graph runs synchronously.
        desk: The tools, which count what they do; nodes count what they do by themselves.
        cuts: How often the answer to a question is still to be cut.
        models: All models.
    """

    event: Event
    is_sync: bool
    desk: Desk = field(default_factory=Desk)
    cuts: Counter[str] = field(default_factory=Counter)
    models: list[StrictModel] = field(default_factory=list)

    def model(
        self, *, last: str = "", mails: bool = False, refuses: Callable[..., None] | None = None
    ) -> StrictModel:
        """A model that answers by what it reads.

        Args:
            last: A tool that it calls in the place of its last answer. Default: none.
            mails: Whether it mails before that. Default: False.
            refuses: What it refuses. Default: as the event says.
        """

        def line(history: list[BaseMessage]) -> Any:
            places = [i for i, m in enumerate(history) if m.type == "human" and m.text.isdigit()]
            question = history[places[-1]].text if places else ""
            number = len(made.seen)
            if self.cuts[question]:
                self.cuts[question] -= 1
                return streamed(("mail", f'{{"to": "{CUT}'), reason="length", first=number)
            read = [m.text for m in history[places[-1] :]] if places else []
            if mails and question and f"sent to {question}" not in read:
                return calls(("mail", {"to": question}), first=number)
            if last and question:
                return calls((last, {"text": "done"}), first=number)
            return AIMessage("done")

        def of_event(history: list[BaseMessage]) -> None:
            self.event.refuses(history, len(made.seen))

        made = StrictModel(*[line] * 99, refuses=refuses or of_event)
        self.models.append(made)
        return made

    async def ask(self, runnable: Any, value: Any) -> Any:
        """Call a runnable, in the way of the graph."""
        return runnable.invoke(value) if self.is_sync else await runnable.ainvoke(value)

    async def asked(self, model: Any, history: Any) -> Any:
        """Ask a model; the application may raise an error of its own if that is refused."""
        try:
            return await self.ask(model, history)
        except RefusedError as refusal:
            self.raise_own(refusal)
            raise

    def raise_own(self, refusal: RefusedError) -> None:
        """Open a ticket and raise, if the event is that."""
        if self.event.own_error:
            self.desk.note("ticket")
            raise OwnError from refusal


# --- nodes ----------------------------------------------------------------------------------

Node = Callable[[Office, Any, Any], Awaitable[Any]]
"""Takes what is counted, a model and a history; returns the last message."""


async def one_model(office: Office, model: Any, history: Any) -> Any:
    """A row is written, which no callback shows, and a model is asked."""
    office.desk.note(f"row {history[-1].text}")
    return await office.asked(model, history)


async def loop_of_ten(office: Office, model: Any, history: Any) -> Any:
    """Ten documents, and a row for each."""
    for number in range(1, 11):
        question = HumanMessage(str(number))
        answer = await office.asked(model, [*history[:-1], question])
        office.desk.note(f"row {number}")
    return answer


async def two_models(office: Office, model: Any, history: Any) -> Any:
    """The first one accepts everything."""
    first = office.model(refuses=lambda _: None)
    await office.asked(first, [HumanMessage("what is asked?")])
    return await office.asked(model, history)


async def model_and_task(office: Office, model: Any, history: Any) -> Any:
    """A `@task` mails before the model is asked."""

    @task
    def send(to: str) -> None:
        office.desk.note(f"mail {to}")

    sent = send(history[-1].text)
    sent.result() if office.is_sync else await sent
    return await office.asked(model, history)


async def later_tool(office: Office, model: Any, history: Any) -> Any:
    """A branch beside the model mails a moment later."""
    [mail, *_] = office.desk.tools()

    async def later() -> None:
        await asyncio.sleep(0.005)
        await mail.ainvoke({"to": history[-1].text})

    async def both() -> Any:
        branch = asyncio.create_task(later())
        try:
            return await office.asked(model, history)
        finally:
            await branch

    return asyncio.run(both()) if office.is_sync else await both()


async def agent_in_function(office: Office, model: Any, history: Any) -> Any:
    """An agent is called, whose tool mails."""
    agent = create_agent(model, office.desk.tools()[:1])
    return (await office.asked(agent, {"messages": history}))["messages"][-1]


NODES: dict[str, Node] = {
    "one model": one_model,
    "loop of ten": loop_of_ten,
    "two models": two_models,
    "model and `@task`": model_and_task,
    "gather with a later tool": later_tool,
    "agent in a function": agent_in_function,
}


def graph_of(node: Node, office: Office, wrap: Callable[[Any], Any]) -> Any:
    """A graph of one node. `wrap` takes its model."""
    model = wrap(office.model(mails=node is agent_in_function))

    def call(state: Any) -> Any:
        try:
            node(office, model, state["messages"]).send(None)  # type: ignore[attr-defined]
        except StopIteration as ended:
            return {"messages": [ended.value]}
        raise AssertionError("it waits for something")

    async def acall(state: Any) -> Any:
        return {"messages": [await node(office, model, state["messages"])]}

    builder = StateGraph(MessagesState).add_node("node", RunnableLambda(call, acall, name="node"))
    return builder.add_edge(START, "node").compile(checkpointer=InMemorySaver())


# --- agents ---------------------------------------------------------------------------------


class Tickets(AgentMiddleware):
    """Raises an error of its own in the place of a refusal, if the event is that."""

    def __init__(self, office: Office) -> None:
        super().__init__()
        self.office = office

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model."""
        try:
            return handler(request)
        except RefusedError as refusal:
            self.office.raise_own(refusal)
            raise

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model."""
        try:
            return await handler(request)
        except RefusedError as refusal:
            self.office.raise_own(refusal)
            raise


class Notes(AgentMiddleware):
    """Adds a message to the history beside that of the model, with a `Command`."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model."""
        return self._noted(handler(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model."""
        return self._noted(await handler(request))

    def _noted(self, response: Any) -> Any:
        is_call = bool(response.result[-1].tool_calls)  # nothing may come before the result
        update = {} if is_call else {"messages": [HumanMessage("a note")]}
        return ExtendedModelResponse(response, Command(update=update))


class Report(BaseModel):
    """An answer with a structure."""

    text: str


def _summaries(office: Office) -> SummarizationMiddleware:
    def note(history: list[BaseMessage]) -> None:
        office.desk.note(f"summary {history[-1].text}")

    summarizer = StrictModel(refuses=note)
    return SummarizationMiddleware(summarizer, trigger=("messages", 6), keep=("messages", 3))


AGENTS: dict[str, Callable[[Office], dict[str, Any]]] = {
    "`create_agent`": lambda _: {},
    "`ModelRetryMiddleware`": lambda _: {
        "middleware": [ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)]
    },
    "`ModelFallbackMiddleware`": lambda office: {
        "middleware": [ModelFallbackMiddleware(office.model(mails=True))]
    },
    "`HumanInTheLoopMiddleware`": lambda _: {
        "middleware": [HumanInTheLoopMiddleware({"mail": True})]
    },
    "`SummarizationMiddleware`": lambda office: {"middleware": [_summaries(office)]},
    "`ToolStrategy`": lambda _: {"response_format": ToolStrategy(Report)},
    "a middleware with a `Command`": lambda _: {"middleware": [Notes()]},
}
"""The options of `create_agent`."""


def agent_of(name: str, office: Office, *nearest: Any) -> Any:
    """An agent; `nearest` are middlewares that are nearer to the model than all others."""
    options = AGENTS[name](office)
    model = office.model(mails=True, last="Report" if "response_format" in options else "")
    middleware = [*options.pop("middleware", ()), *nearest, Tickets(office)]
    return create_agent(
        model,
        office.desk.tools()[:1],
        middleware=middleware,
        checkpointer=InMemorySaver(),
        **options,
    )


# --- forms ----------------------------------------------------------------------------------

SHAPES = (*NODES, *AGENTS)
FORMS = ("LangGraph alone", "`with_patching`", "nearest", "both")
"""The nearest to a model is `patch_model` in a node, and `PatchToolCallsMiddleware` in an agent."""


def built(shape: str, form: str, office: Office) -> Any:
    """The graph of a shape in a form."""
    _, with_it, nearest, both = FORMS
    is_near = form in (nearest, both)
    if shape in NODES:
        graph = graph_of(NODES[shape], office, patch_model if is_near else lambda model: model)
    else:
        graph = agent_of(shape, office, *[PatchToolCallsMiddleware()] * is_near)
    return with_patching(graph) if form in (with_it, both) else graph


# --- ways -----------------------------------------------------------------------------------


def _async_v3(graph: Any, *args: Any) -> None:
    async def collect() -> None:
        async for _ in await graph.astream_events(*args, version="v3"):
            pass

    asyncio.run(collect())


WAYS: dict[str, Callable[..., Any]] = {
    **{("events v2" if way == "events" else way): run for way, run in _WAYS.items()},
    "events v3": lambda graph, *args: list(graph.stream_events(*args, version="v3")),
    "async events v3": _async_v3,
}
SYNC = ("invoke", "stream", "events v3")


# --- a cell ---------------------------------------------------------------------------------


class Cell(NamedTuple):
    """What happened in one form, event and way.

    Attributes:
        requests: How many requests the models got.
        did: How often each side effect was done.
        errors: What each turn raised; "" for none.
    """

    requests: int
    did: Counter[str]
    errors: tuple[str, ...]

    def __str__(self) -> str:
        kinds: dict[str, list[int]] = {}
        for effect, times in sorted(self.did.items()):
            kind = effect if effect == f"mail {CUT}" else effect.partition(" ")[0]
            kinds.setdefault(kind, []).append(times)
        effects = [f"{kind} {'+'.join(map(str, times))}" for kind, times in kinds.items()]
        raised = [f"`{error}` {times}x" for error, times in Counter(self.raised).items()]
        return ", ".join([str(self.requests), *effects, *raised])

    @property
    def raised(self) -> list[str]:
        """The errors."""
        return [error for error in self.errors if error]


_HIDDEN = ("row", "ticket")
"""Side effects that no callback shows."""


def play(shape: str, event: str, way: str, form: str) -> Cell:
    """Play the turns of a cell. Each question of a human is answered with a yes."""
    happens, is_loop = EVENTS[event], shape == "loop of ten"
    office = Office(happens, is_sync=way in SYNC)
    office.cuts.update(happens.cuts_of_ten if is_loop else happens.cuts)
    graph = built(shape, form, office)
    config = {"configurable": {"thread_id": "1"}}
    silent = [HumanMessage("hello"), AIMessage(" ")] if happens.is_silent else []
    errors = []
    for turn in range(1, 2 if is_loop else 4):
        value: Any = {"messages": [*silent, HumanMessage(str(turn))]}
        silent, error = [], ""
        while value is not None and not error:
            try:
                WAYS[way](graph, value, config)
            except Exception as raised:  # noqa: BLE001 - each is listed
                error = type(raised).__name__
            asked = graph.get_state(config).interrupts
            yes = {"decisions": [{"type": "approve"}]}
            value = Command(resume={each.id: yes for each in asked}) if asked else None
        errors.append(error)
    requests = sum(len(model.seen) for model in office.models)
    return Cell(requests, office.desk.did, tuple(errors))


def done_too_often(bare: Cell, patched: Cell) -> dict[str, int]:
    """What the patched graph did more often than the bare one.

    What the bare one did not come to may be done once, but for a call that was cut. What no
    callback shows is left out.
    """
    most = {effect: max(bare.did[effect], 1) for effect in patched.did}
    most[f"mail {CUT}"] = 0
    return {
        effect: times
        for effect, times in patched.did.items()
        if effect.partition(" ")[0] not in _HIDDEN and times > most[effect]
    }


# --- the table ------------------------------------------------------------------------------


def cells(shape: str, event: str, way: str) -> tuple[str, ...]:
    """What happened in each form."""
    bare, *patched = [play(shape, event, way, form) for form in FORMS]
    return str(bare), *(f"**{p}**" if done_too_often(bare, p) else str(p) for p in patched)


def main() -> int:
    """Print the table."""
    head, is_right = ["node", "event", "run with", *FORMS], True
    sys.stdout.write(f"| {' | '.join(head)} |\n{'|---' * len(head)}|\n")
    for shape in SHAPES:
        for event in EVENTS:
            rows: dict[tuple[str, ...], list[str]] = {}
            for way in WAYS:
                rows.setdefault(cells(shape, event, way), []).append(way)
            for row, ways in rows.items():
                run_with = "each" if len(rows) == 1 else ", ".join(ways)
                sys.stdout.write(f"| {' | '.join([shape, event, run_with, *row])} |\n")
                is_right &= not any(cell.startswith("**") for cell in row)
    return 0 if is_right else 1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    sys.exit(main())
