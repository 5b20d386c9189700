"""Every way that a thread can go: all sequences of a few events, on small graphs.

A way is a word, with a letter for each event (`EVENTS`). It is played in a patched graph and in
its reference, the bare graph whose models refuse nothing; a last message shows what the model
reads then. `broken` compares both with each other, and what was read with a ledger outside of
the graph. Ways with the same beginning share it: the thread is copied.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from kit import loop
from langgraph_patch import with_patching
from langgraph_patch.testing import StrictModel
from langgraph_patch.testing.model import RefusedError
from support.gates import PICTURE, REFUSALS, open_ids

EVENTS = {
    "m": "a message, behind which the model looks and pays",
    "y": "a yes to what waits",
    "n": "a no to what waits",
    "f": "a message, behind which a tool fails",
    "c": "a message whose run is cancelled while a tool works",
    "g": "`Command(goto=...)` to the model",
    "i": "`invoke(None)`",
    "e": "an edit: a message that is stored without a run",
    "r": "a message as `m`; from here on an old message that says nothing is refused",
    "p": "a message as `m`; from here on an old picture is refused",
}

OLD = [HumanMessage(PICTURE, id="h0"), AIMessage("", id="a0")]
_REFUSED = {"r": REFUSALS["empty"], "p": REFUSALS["picture"]}
_CONFIG: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 40}


# --- the world ----------------------------------------------------------------------------------


@dataclass
class World:
    """What happened outside of the graph.

    Attributes:
        refuses: The letters of what is refused.
        done: For each call what became of it, in order.
        read: What models read, with the length of `done` at that moment.
        number: How many messages were sent.
        replies: How many the model has answered.
        is_disturbed: Whether something else than an answer came while tasks were not finished.
        thread: The checkpointer.
    """

    refuses: str = ""
    done: list[tuple[str, str]] = field(default_factory=list)
    read: list[tuple[int, list[BaseMessage]]] = field(default_factory=list)
    number: int = 0
    replies: int = 0
    is_disturbed: bool = False
    thread: InMemorySaver = field(default_factory=InMemorySaver)

    def fork(self) -> World:
        """A copy of the world and of its thread."""
        saver = InMemorySaver()
        for thread_id, spaces in self.thread.storage.items():
            for space, rows in spaces.items():
                saver.storage[thread_id][space] = dict(rows)
        saver.writes = defaultdict(dict, {k: dict(rows) for k, rows in self.thread.writes.items()})
        saver.blobs = defaultdict(None, self.thread.blobs)
        return replace(self, done=[*self.done], read=[*self.read], thread=saver)


class Desk:
    """The models and tools of a graph; what they do is written to its `world`."""

    def __init__(self, *, strict: bool, accepts: bool, asks: bool) -> None:
        self.world, self.asks = World(), asks
        self.strict, self.accepts = strict, accepts

    def note(self, call_id: str, what: str) -> None:
        """Write what became of a call."""
        self.world.done.append((call_id, what))

    def model(self, script: Callable[[list[BaseMessage]], Any], *, has_taste: bool) -> StrictModel:
        """A model. `has_taste`: whether it refuses what the world refuses."""

        def refuses(messages: list[BaseMessage]) -> None:
            if self.strict and (ids := open_ids(messages)):
                raise RefusedError(f"calls {ids} have no result", 400)
            for letter in self.world.refuses if has_taste and not self.accepts else "":
                if _REFUSED[letter].has(messages):
                    raise RefusedError(_REFUSED[letter].text, 400)

        def say(messages: list[BaseMessage]) -> Any:
            self.world.read.append((len(self.world.done), list(messages)))
            return script(messages)

        return StrictModel(*[say] * 100_000, refuses=refuses)

    def main(self, *, has_taste: bool = True) -> StrictModel:
        """The model that calls the tools: it does what the newest human message says, once."""

        def reply(messages: list[BaseMessage]) -> AIMessage:
            self.world.replies += 1
            said = AIMessage("Done.", id=f"a{self.world.replies}")
            humans = [n for n, message in enumerate(messages) if message.type == "human"]
            behind = messages[humans[-1] :] if humans else []
            word, _, number = behind[0].text.partition(" ") if behind else ("", "", "")
            if not number or any(isinstance(message, AIMessage) for message in behind):
                return said
            named = [
                {"name": name, "args": {"n": int(number)}, "id": f"{name}{number}"}
                for name in ("look", word)
            ]
            return AIMessage("", id=said.id, tool_calls=named)

        return self.model(reply, has_taste=has_taste)

    def tools(self) -> list[BaseTool]:
        """`look`; `pay`, which may ask a human; `boom`, which fails; `slow`, which is cancelled."""

        def look(n: int) -> str:
            """Look."""
            self.note(f"look{n}", "start")
            self.note(f"look{n}", "looked")
            return f"looked {n}"

        def pay(n: int) -> str:
            """Pay."""
            self.note(f"pay{n}", "start")
            if self.asks:
                answer = interrupt(f"pay {n}?")
                self.note(f"pay{n}", "answered")
                if answer != "yes":
                    self.note(f"pay{n}", "declined")
                    return f"declined {n}"
            self.note(f"pay{n}", "paid")
            return f"paid {n}"

        def boom(n: int) -> str:
            """Fail."""
            self.note(f"boom{n}", "start")
            self.note(f"boom{n}", "raised")
            raise RuntimeError(f"kaput {n}")

        def slow(n: int) -> str:
            """Work for long."""
            self.note(f"slow{n}", "start")
            self.note(f"slow{n}", "slowed")
            return f"slowed {n}"

        async def aslow(n: int) -> str:
            """Work until it is cancelled, when what ran beside it is stored."""
            self.note(f"slow{n}", "start")
            world, tries = self.world, 0
            before = len(world.thread.writes)
            while (f"look{n}", "looked") not in world.done or (
                len(world.thread.writes) == before and tries < 5
            ):
                tries += (f"look{n}", "looked") in world.done
                await asyncio.sleep(0.001)
            self.note(f"slow{n}", "cancelled")
            self.at_work.set()
            await asyncio.sleep(60)
            return ""

        made = [StructuredTool.from_function(each) for each in (look, pay, boom)]
        return [*made, StructuredTool.from_function(slow, coroutine=aslow)]

    at_work: asyncio.Event


# --- the graphs ---------------------------------------------------------------------------------


def _create_agent(desk: Desk) -> Any:
    return create_agent(desk.main(), desk.tools()).builder


def _approval(desk: Desk) -> Any:
    human = HumanInTheLoopMiddleware(interrupt_on={"pay": True})
    return create_agent(desk.main(), desk.tools(), middleware=[human]).builder


def _by_hand(desk: Desk) -> Any:
    return loop(desk.main(), desk.tools())


class Judged(MessagesState):
    """The history, and what the judge says."""

    verdict: str


def _gate(desk: Desk) -> Any:
    model, judge = desk.main(has_taste=False), desk.model(lambda _: "safe", has_taste=True)

    def gate(state: Judged) -> Any:
        question = HumanMessage("Is the call safe?", id="question")
        return {"verdict": judge.invoke([*state["messages"], question]).text}

    calls_of = lambda state: getattr(state["messages"][-1], "tool_calls", None)
    builder = StateGraph(Judged).add_node("gate", gate).add_node("tools", ToolNode(desk.tools()))
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", lambda s: "gate" if calls_of(s) else "__end__")
    builder.add_conditional_edges("gate", lambda s: "tools" if s["verdict"] == "safe" else "agent")
    return builder


def _as_node(desk: Desk) -> Any:
    agent = create_agent(desk.main(), desk.tools())
    return StateGraph(MessagesState).add_node("inner", agent).add_edge(START, "inner")


class Kind(NamedTuple):
    """A kind of graph.

    Attributes:
        build: Makes its builder.
        entry: Its model, or the node with it.
        asks: Whether the tool `pay` asks by itself.
        own_tasks: Whether each call is a task, so that its result is recorded alone.
        options: Options of `with_patching`.
    """

    build: Callable[[Desk], Any]
    entry: str
    asks: bool = True
    own_tasks: bool = False
    options: dict[str, Any] = {}


KINDS = {
    "create_agent": Kind(_create_agent, "model", asks=False, own_tasks=True),
    "approval": Kind(_approval, "model", asks=False, own_tasks=True),
    "by hand": Kind(_by_hand, "agent"),
    "record": Kind(_by_hand, "agent", own_tasks=True, options={"record": True}),
    "gate": Kind(_gate, "agent"),
    "node": Kind(_as_node, "inner", own_tasks=True),
}
MODES = ("strict", "lenient")


class Graph:
    """A graph with a desk; its thread is that of the world that is set."""

    def __init__(self, kind: str, mode: str | None) -> None:
        self.kind = KINDS[kind]
        is_strict, is_bare = mode == "strict", mode is None
        self.desk = Desk(strict=is_strict, accepts=is_bare, asks=self.kind.asks)
        compiled = self.kind.build(self.desk).compile(checkpointer=InMemorySaver())
        self.graph = compiled if is_bare else with_patching(compiled, **self.kind.options)

    def enter(self, world: World) -> None:
        """Let the graph work in this world."""
        self.desk.world = world
        self.graph.checkpointer = world.thread

    def seeded(self) -> World:
        """A world whose thread has the old turn."""
        world = World()
        self.enter(world)
        self.graph.update_state(_CONFIG, {"messages": OLD}, as_node=self.kind.entry)
        return world

    def waits(self) -> Sequence[Any]:
        """The interrupts that wait."""
        return self.graph.get_state(_CONFIG).interrupts

    def history(self) -> list[BaseMessage]:
        """The stored history."""
        return self.graph.get_state(_CONFIG).values.get("messages", [])

    def play(self, letter: str) -> str:
        """Let an event happen; return how its run ends."""
        try:
            self._happen(letter)
        except Exception as error:  # noqa: BLE001 - an error is an outcome
            return f"{type(error).__name__}: {error}"[:100]
        return "ended"

    def _happen(self, letter: str) -> None:
        world = self.desk.world
        if letter not in "yni":
            world.is_disturbed |= bool(self.graph.get_state(_CONFIG).next)
        match letter:
            case "m" | "r" | "p":
                world.refuses += letter.strip("m")
                self._say("pay")
            case "f":
                self._say("boom")
            case "z":
                self.graph.invoke({"messages": [HumanMessage("Hello?", id="calm")]}, _CONFIG)
            case "c":
                asyncio.run(self._cancelled())
            case "y" | "n":
                waiting = self.waits()
                answer = {each.id: _answer(each, letter) for each in waiting}
                self.graph.invoke(Command(resume=answer), _CONFIG)
            case "g":
                self.graph.invoke(Command(goto=self.kind.entry), _CONFIG)
            case "i":
                with suppress(EmptyInputError):
                    self.graph.invoke(None, _CONFIG)
            case "e":
                world.number += 1
                note = {"messages": [HumanMessage("A note.", id=f"h{world.number}")]}
                try:
                    self.graph.update_state(_CONFIG, note)
                except InvalidUpdateError:
                    self.graph.update_state(_CONFIG, note, as_node=self.kind.entry)

    def _message(self, word: str) -> dict[str, Any]:
        self.desk.world.number += 1
        number = self.desk.world.number
        return {"messages": [HumanMessage(f"{word} {number}", id=f"h{number}")]}

    def _say(self, word: str) -> None:
        self.graph.invoke(self._message(word), _CONFIG)

    async def _cancelled(self) -> None:
        self.desk.at_work = asyncio.Event()
        run = asyncio.ensure_future(self.graph.ainvoke(self._message("slow"), _CONFIG))
        works = asyncio.ensure_future(self.desk.at_work.wait())
        await asyncio.wait([run, works], return_when=asyncio.FIRST_COMPLETED)
        works.cancel()
        if run.done():
            run.result()  # it has not come to the tool
            return
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


def _answer(pause: Any, letter: str) -> Any:
    if isinstance(pause.value, dict):
        kind = {"type": "approve" if letter == "y" else "reject"}
        return {"decisions": [kind for _ in pause.value["action_requests"]]}
    return "yes" if letter == "y" else "no"


# --- the laws ------------------------------------------------------------------------------------

EFFECTS = {"looked", "paid", "declined", "slowed"}
_WORDS = ("looked", "paid", "declined", "slowed")


def _false(text: str, did: Sequence[str]) -> bool:
    """Whether a text about a call is false, if that is what became of it so far."""
    worked = {*did} & {"looked", "paid", "slowed"}
    word = text.partition(" ")[0]
    if word in _WORDS:
        return word not in did
    if re.search(r"may or may not", text):
        return False
    if re.search(r"no start and no result|was not run", text):
        return "start" in did
    if re.search(r"rejected the tool call", text):
        return bool(worked)
    if re.search(r"waiting for human input", text):
        return bool(worked) or "start" not in did or did[-1] == "answered"
    if re.search(r"failed in its last recorded attempt: .*kaput", text):
        return "raised" not in did or bool(worked)
    if re.search(r"a cancellation was recorded", text):
        return "cancelled" not in did
    return True


def _false_reads(world: World) -> Iterator[str]:
    for before, messages in world.read:
        for message in messages:
            if isinstance(message, ToolMessage):
                call_id = message.tool_call_id
                did = [what for each, what in world.done[:before] if each == call_id]
                if _false(str(message.text), did):
                    yield f"false: {message.text!r} of {call_id}, which did {did}"


def _results(messages: Sequence[BaseMessage]) -> dict[str, str]:
    return {m.tool_call_id: str(m.text) for m in messages if isinstance(m, ToolMessage)}


def _lines(messages: Sequence[BaseMessage]) -> list[tuple[str, str, str]]:
    """What people and models said, but for the old turn."""
    said = [m for m in messages if m.type in {"human", "ai"} and m.id not in {"h0", "a0"}]
    return [(m.type, str(m.id), str(m.text)) for m in said]


class Side(NamedTuple):
    """One of the two graphs behind an event.

    Attributes:
        world: Its world.
        end: How the run ended.
        waits: How many questions wait.
        history: The stored history.
    """

    world: World
    end: str
    waits: int
    history: list[BaseMessage]

    @property
    def effects(self) -> Counter[tuple[str, str]]:
        """What tools did."""
        return Counter(each for each in self.world.done if each[1] in EFFECTS)


def _side(graph: Graph, world: World, letter: str) -> Side:
    graph.enter(world)
    end = graph.play(letter)
    return Side(world, end, len(graph.waits()), graph.history())


def _broken(kind: Kind, right: Side, side: Side, *, is_last: bool) -> Iterator[str]:
    """The laws that an event breaks."""
    yield from _false_reads(side.world)
    ran, should = side.effects, right.effects
    if kind.options.get("record"):
        should = Counter(dict.fromkeys(should, 1))
    if missing := should.keys() - ran.keys():
        yield f"not run: {sorted(missing)}"
    if more := ran.keys() - should.keys():
        yield f"run, and bare does not: {sorted(more)}"
    if often := [each for each in ran if ran[each] > should.get(each, 1)]:
        yield f"run too often: {sorted(often)}"
    if side.waits != right.waits:
        yield f"{side.waits} questions wait, bare {right.waits}"
    if side.end != right.end:
        yield f"ends {side.end!r}, bare {right.end!r}"
    said, rightly_said = _lines(side.history), _lines(right.history)
    if kind is KINDS["node"]:  # an abandoned run of an agent that is a node is restored
        said = [line for line in said if line in rightly_said or line[0] == "human"]
    if said != rightly_said:
        yield f"history {said}, bare {rightly_said}"
    if not (right.world.is_disturbed or kind.options):
        results, rightly = _results(side.history), _results(right.history)
        if results != rightly:
            yield f"healthy, but results {results}, bare {rightly}"
        if right.world.refuses == "" and _rows(side) != _rows(right):
            yield f"healthy, but {_rows(side)} checkpoints, bare {_rows(right)}"
    if is_last:
        yield from _lost(kind, right, side)


def _rows(side: Side) -> int:
    return sum(len(rows) for each in side.world.thread.storage.values() for rows in each.values())


def _lost(kind: Kind, right: Side, side: Side) -> Iterator[str]:
    """What the model does not read at the end of a way."""
    messages = side.world.read[-1][1]
    if ids := open_ids(messages):
        yield f"open at the end: {ids}"
    results, rightly = _results(messages), _results(right.world.read[-1][1])
    for call_id, text in rightly.items():
        if results.get(call_id) != text:
            yield f"lost: {text!r} of {call_id}; the model reads {results.get(call_id)!r}"
    if kind.own_tasks:
        for call_id, what in side.effects:
            if not results.get(call_id, "").startswith(what):
                yield f"lost: {call_id} {what}; the model reads {results.get(call_id)!r}"


class Way(NamedTuple):
    """A way, the laws that its last event or the message behind it breaks, and whether it lives.

    Attributes:
        word: Its letters.
        laws: What is broken.
        is_damaged: Whether something came while tasks were not finished.
    """

    word: str
    laws: tuple[str, ...]
    is_damaged: bool


def ways(name: str, mode: str, most: int, first: str = "") -> Iterator[Way]:
    """Every way of up to that many events, in one kind of graph; only those that begin so.

    A way in which nobody waits for an answer is left out.
    """
    kind, right, graph = KINDS[name], Graph(name, None), Graph(name, mode)

    def go(word: str, worlds: tuple[World, World]) -> Iterator[Way]:
        if len(word) == most:
            return
        right.enter(worlds[0])
        can_answer = bool(right.waits())
        for letter in EVENTS:
            new = word + letter
            if letter in "yn" and not can_answer:
                continue
            if not (new.startswith(first) or first.startswith(new)):
                continue
            forks = worlds[0].fork(), worlds[1].fork()
            sides = _side(right, forks[0], letter), _side(graph, forks[1], letter)
            laws = [*_broken(kind, *sides, is_last=False)]
            calm = _side(right, forks[0].fork(), "z"), _side(graph, forks[1].fork(), "z")
            laws += [f"then: {each}" for each in _broken(kind, *calm, is_last=True)]
            yield Way(new, tuple(dict.fromkeys(laws)), calm[0].world.is_disturbed)
            if not laws:
                yield from go(new, forks)

    yield from go("", (right.seeded(), graph.seeded()))


def as_test(name: str, mode: str, way: Way) -> str:
    """A test of one way that can be pasted."""
    told = "; ".join(EVENTS[letter] for letter in way.word)
    return (
        f"\ndef test_this_way():\n"
        f'    """{told}."""\n'
        f"    *_, way = ways({name!r}, {mode!r}, {len(way.word)}, {way.word!r})\n"
        f"    assert way.laws == ()\n"
        f"# {way.laws}\n"
    )
