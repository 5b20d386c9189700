"""A play in one thread, what must be true of it, and the rows of the table."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import Command

from gates.places import CLASHES, EIGHT, PLACES
from gates.world import LOOKS, MANNERS, MODELS, REFUSALS, RETURNS, TABLE, World, answer_to
from langgraph_patch import with_patching

# --- a play ------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """What happened in a turn.

    Attributes:
        end: The text of the last message, "waits", or the name of the error.
        asked: How often a human was asked.
        did: What tools did.
        read: The results that the model of the agent read last.
        judged: How often a judge has answered.
    """

    end: str
    asked: int
    did: tuple[tuple[str, str], ...]
    read: tuple[str, ...]
    judged: int


class Outcome(NamedTuple):
    """What happened in three turns, and the history that is stored then."""

    turns: tuple[Turn, ...]
    stored: tuple[str, ...]
    world: World


class Form(NamedTuple):
    """A row of the table and a column of it."""

    place: str
    refusal: str
    models: str = "lenient"
    approval: str = ""
    returns: str = "verdict"
    manner: str = "plain"
    way: str = "invoke"


_CONFIG: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 30}


def _run(graph: Any, value: Any, way: str) -> None:
    match way:
        case "invoke":
            graph.invoke(value, _CONFIG)
        case "ainvoke":
            asyncio.run(graph.ainvoke(value, _CONFIG))
        case "stream":
            deque(graph.stream(value, _CONFIG, stream_mode=["messages", "values"]))


def _turn(graph: Any, world: World, value: Any, answer: str, way: str) -> Turn:
    begin, asked, end = len(world.done), 0, ""
    judged = -sum(name == "judge" for name, *_ in world.read)
    for _ in range(6):
        try:
            _run(graph, value, way)
        except Exception as error:  # noqa: BLE001 - an error is an outcome
            end = f"{type(error).__name__}: {error}"[:90]
            break
        if not (pauses := graph.get_state(_CONFIG).interrupts):
            break
        asked += len(pauses)
        value = Command(resume={pause.id: answer_to(pause, answer) for pause in pauses})
    messages = graph.get_state(_CONFIG).values.get("messages") or [HumanMessage("nothing")]
    read = [m for name, _, m in world.read if name == "main"]
    return Turn(
        end or str(messages[-1].text),
        asked,
        tuple(sorted(world.done[begin:])),
        tuple(str(m.text) for m in (read[-1] if read else []) if isinstance(m, ToolMessage)),
        judged + sum(name == "judge" for name, *_ in world.read),
    )


def play(form: Form, wrap: Callable[[Any], Any] = lambda graph: graph, **changes: Any) -> Outcome:
    """Three turns in one thread, in a graph that is wrapped or not."""
    refusal = REFUSALS[form.refusal]
    refusal = refusal._replace(**changes) if changes else refusal
    models = "lenient" if changes else form.models
    world = World(refusal, models, form.approval, form.manner, form.returns)
    graph = PLACES[form.place](world)
    builder = graph if isinstance(graph, StateGraph) else graph.builder
    graph = wrap(builder.compile(checkpointer=InMemorySaver()))
    first = {"messages": [*refusal.old, HumanMessage("pay 10", id="h1")]}
    turns = [_turn(graph, world, first, "yes", form.way)]
    for text, answer in (("thanks", "yes"), ("pay 20", "no")):
        value = {"messages": [HumanMessage(text, id=text)]}
        turns.append(_turn(graph, world, value, answer, form.way))
    stored = graph.get_state(_CONFIG).values.get("messages", [])
    texts = tuple(str(m.text) for m in stored if isinstance(m, ToolMessage))
    return Outcome(tuple(turns), texts, world)


@cache
def bare(form: Form) -> Outcome:
    """The graph without the package."""
    return play(form)


@cache
def _accepted(form: Form) -> Outcome:
    return play(form, has=lambda _: False)


def accepted(form: Form) -> Outcome:
    """The graph without the package, whose providers refuse nothing."""
    return _accepted(form._replace(models="lenient"))


def patched(form: Form, options: Mapping[str, Any]) -> Outcome:
    """The graph with the package."""
    return play(form, lambda graph: with_patching(graph, **options))


# --- the laws ----------------------------------------------------------------------------------

_NOT_RUN = re.compile(
    r"no start and no result|was not run|rejected the tool call|^Tool call .* failed"
)
_WAITS = re.compile(r"asked for human input")
_OPEN = re.compile(r"may or may not")


def falsehoods(outcome: Outcome) -> Iterator[str]:
    """What a model read of a call that the ledger contradicts."""
    world = outcome.world
    for name, before, messages in world.read:
        for message in messages:
            if not isinstance(message, ToolMessage):
                continue
            text, call_id = str(message.text), _id_of(message, messages)
            did = [what for each, what in world.done[:before] if each == call_id]
            works = [what for what in did if what in {"paid", "looked"}]
            word = text.split(maxsplit=1)[0] if text else ""
            if word in {"paid", "looked"}:
                is_true = word in works
            elif word == "declined" or _NOT_RUN.search(text) or _WAITS.search(text):
                is_true = not works
            else:
                is_true = bool(_OPEN.search(text))
            if not is_true:
                yield f"{name} reads {text!r} of {call_id}, which did {did}"


def _id_of(result: ToolMessage, messages: list[Any]) -> str:
    """The id that the call of a result had when it ran: the plain form has ids of its own."""
    made = [call for message in messages for call in getattr(message, "tool_calls", ())]
    call = next(each for each in made if each["id"] == result.tool_call_id)
    return f"c{call['args']['amount'] + (call['name'] == 'look')}"


def _is_error(turn: Turn) -> bool:
    return turn.end.partition(":")[0].endswith("Error")


class _Row(NamedTuple):
    """A turn in the bare graph, in the one that refuses nothing, and in the patched one."""

    bare: Turn
    right: Turn
    turn: Turn

    def expected(self, form: Form) -> Turn:
        """What is right: a gate that handles the refusal itself has its way."""
        is_handled = form.manner.endswith("by default") and not _is_error(self.bare)
        return self.bare if is_handled else self.right


def _may_end_calls(form: Form) -> bool:
    """Whether the gate itself says something behind the calls, or handles a refusal."""
    return form.returns in {"ai", "append ai"} or form.manner.endswith("by default")


def _ends_well(number: int, form: Form, row: _Row) -> Iterator[str]:
    """The laws of a turn that ends without an error."""
    right, turn = row.expected(form), row.turn
    for what in ("did", "asked", "read", "end"):
        if what == "read" and _may_end_calls(form):
            continue
        if getattr(turn, what) != getattr(right, what):
            yield f"turn {number} {what} {getattr(turn, what)!r}, right {getattr(right, what)!r}"
    if turn.judged < right.judged:
        yield f"turn {number} judged {turn.judged} times, right {right.judged}"


def _ends_badly(number: int, row: _Row) -> Iterator[str]:
    """The law of a turn that ends with an error: it is the one of the bare graph."""
    names = {"RefusedError", row.bare.end.partition(":")[0]}
    if not _is_error(row.bare) or row.turn.end.partition(":")[0] not in names:
        yield f"turn {number} end {row.turn.end!r}, bare {row.bare.end!r}"


_IN_TASK = "tool", "hook around the tools"
"""The places at which a gate asks in the task of the tools, before they work."""
_BESIDE = "beside", *_IN_TASK
"""The places at which a gate asks while a tool works."""


def _of_turns(form: Form, *outcomes: Outcome) -> Iterator[str]:
    done = {each for turn in outcomes[2].turns for each in turn.did}
    may = Counter(each for turn in outcomes[1].turns for each in turn.did)
    ran = Counter[tuple[str, str]]()
    for number, turns in enumerate(zip(*(each.turns for each in outcomes), strict=True), 1):
        row = _Row(*turns)
        assert not _is_error(row.right), (form, row.right)
        # An error ends what runs beside it: what that has begun by then is by chance.
        is_certain = form.place not in _BESIDE or not _is_error(row.bare)
        if (missing := {*row.bare.did} - done) and is_certain:
            yield f"not run in turn {number}, bare runs it: {sorted(missing)}"
        ran.update(row.turn.did)
        if more := ran - may:
            yield f"run in turn {number}, bare does not run it (again): {sorted(more)}"
        if _is_error(row.turn):
            yield from _ends_badly(number, row)
            return  # what comes behind is another story
        if form.manner.endswith("by default") and _is_error(row.bare):
            continue  # the bare graph does not show how its own handling goes on
        yield from _ends_well(number, form, row)
    if outcomes[2].stored != outcomes[1].stored and not _may_end_calls(form):
        yield f"stored {outcomes[2].stored}, right {outcomes[1].stored}"


def broken(form: Form, options: Mapping[str, Any]) -> tuple[list[str], tuple[Outcome, ...]]:
    """The laws that a patched graph breaks, with what happened bare, accepted and patched."""
    outcomes = bare(form), accepted(form), patched(form, options)
    # Where all calls of a message are one task, LangGraph runs what stood beside a pause again.
    asks = form.approval == "tool" or (form.place in _IN_TASK and form.approval in LOOKS)
    is_replayed = asks, asks, asks and not (options.get("record") and form.place != "hub")
    outcomes = tuple(map(_without_questions, outcomes, is_replayed))
    found = [f"false: {each}" for each in falsehoods(outcomes[2])]
    return [*found, *_of_turns(form, *outcomes)], outcomes


def _without_questions(outcome: Outcome, is_replayed: bool) -> Outcome:  # noqa: FBT001 - by `map`
    """The outcome without how often tools asked, and without what was run again, if it may be."""
    turns = []
    for turn in outcome.turns:
        did = [each for each in turn.did if each[1] != "asked"]
        turns.append(turn._replace(did=tuple(dict.fromkeys(did) if is_replayed else did)))
    return outcome._replace(turns=tuple(turns))


# --- the rows ----------------------------------------------------------------------------------

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"record": True},
    {"once": ["pay"]},
    {"record": True, "once": ["pay"]},
)
APPROVALS = ("", "tool", "node", *LOOKS)
Row = tuple[Form, dict[str, Any]]


def table() -> Iterator[Row]:
    """The whole table: places, refusals, and who else refuses, asks and records."""
    for row in product(EIGHT, TABLE, MODELS, APPROVALS):
        form = Form(*row)
        for options in OPTIONS[: 1 if form.place == "executor" else None]:  # it has no ToolNode
            yield form, options


def covering() -> Iterator[Row]:
    """Each place with each refusal; what else there is changes from row to row.

    The place in a tool is the one at which a call has run beside one that is refused. The last row
    is a call that is sent on behind what another model said of it.
    """
    yield from _turned((place, refusal, {}) for place, refusal in product([*EIGHT, "tool"], TABLE))
    yield Form("sends", TABLE[0], returns="ai"), {"once": ["pay"]}


def variants() -> Iterator[Row]:
    """Each place with each refusal and each return, each manner and each way of running."""
    changes = [
        *({"returns": each} for each in [*RETURNS, "append", "append ai"]),
        *({"manner": each} for each in MANNERS),
        *({"way": each} for each in ("ainvoke", "stream")),
    ]
    yield from _turned(
        each for each in product(PLACES, REFUSALS, changes)
        if CLASHES.isdisjoint((each[0], change) for change in each[2].values())
    )  # fmt: skip


def _turned(rows: Iterable[tuple[str, str, dict[str, str]]]) -> Iterator[Row]:
    """Rows, with the values of models, approval and options in turn."""
    for number, (place, refusal, changes) in enumerate(rows):
        form = Form(place, refusal, MODELS[number % 4], APPROVALS[number * 3 % 7], **changes)
        yield form, OPTIONS[number // 4 % 4 if place != "executor" else 0]
