"""Small graphs, the events of their threads, and a ledger outside of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import EmptyInputError, InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from gates.world import PICTURE, REFUSALS, answer_to, open_ids
from kit import StrictModel, loop
from langgraph_patch import patch_model, with_patching
from langgraph_patch.testing.model import RefusedError

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
        is_edited: Whether an edit came so: LangGraph plans tasks anew, and they run again.
        is_past: Whether a run that does not pass START came behind one: it adds no turn.
        state: The stored state behind the newest event.
        beside: The number of the reply of a model that runs beside tools, else 0: a tool that fails
            waits for it, since LangGraph drops what is still running then.
        thread: The checkpointer.
    """

    refuses: str = ""
    done: list[tuple[str, str]] = field(default_factory=list)
    read: list[tuple[int, list[BaseMessage]]] = field(default_factory=list)
    number: int = 0
    replies: int = 0
    is_disturbed: bool = False
    is_edited: bool = False
    is_past: bool = False
    state: Any = None
    beside: int = 0
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

    def __init__(self, kind: Kind, *, strict: bool, accepts: bool) -> None:
        self.world, self.kind = World(), kind
        self.strict, self.accepts = strict, accepts

    def note(self, call_id: str, what: str) -> None:
        """Write what became of a call."""
        self.world.done.append((call_id, what))

    def is_settled(self, n: int) -> bool:
        """Whether `look` has looked, and its result is stored if its call is a task."""
        if (f"look{n}", "looked") not in self.world.done:
            return False
        return not self.kind.own_tasks or self.is_stored(f"looked {n}")

    def is_stored(self, text: str) -> bool:
        """Whether a task has written this text."""
        rows = [row for rows in [*self.world.thread.writes.values()] for row in [*rows.values()]]
        return any(text.encode() in row[2][1] for row in rows)

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
            said = AIMessage("Done.", id=f"reply-{self.world.replies}")
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
            if self.kind.asks:
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
            beside = self.world.beside and f"reply-{self.world.beside}"
            until = time.monotonic() + 1
            while not (self.is_settled(n) and (not beside or self.is_stored(beside))):
                time.sleep(0.001)
                if time.monotonic() > until:
                    break
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
            while not self.is_settled(n):  # noqa: ASYNC110 - what threads store
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
    # A judge that accepts no open call judges none: so its request alone is repaired.
    judge = patch_model(desk.model(lambda _: "safe", has_taste=True))
    model = desk.main(has_taste=False)

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
    options: Mapping[str, Any] = MappingProxyType({})


KINDS = {
    "create_agent": Kind(_create_agent, "model", asks=False, own_tasks=True),
    "approval": Kind(_approval, "model", asks=False, own_tasks=True),
    "by hand": Kind(_by_hand, "agent"),
    "record": Kind(_by_hand, "agent", own_tasks=True, options={"record": True}),
    "gate": Kind(_gate, "agent"),
    "gate, recorded": Kind(_gate, "agent", own_tasks=True, options={"record": True}),
    "node": Kind(_as_node, "inner", own_tasks=True),
}
MODES = ("strict", "lenient")


EFFECTS = ("looked", "paid", "declined", "slowed")
"""What a call does; each result begins with the word."""


class Side(NamedTuple):
    """One of the two graphs behind an event.

    Attributes:
        world: Its world.
        end: How the run ended.
    """

    world: World
    end: str

    @property
    def waits(self) -> int:
        """How many questions wait."""
        return len(self.world.state.interrupts)

    @property
    def history(self) -> list[BaseMessage]:
        """The stored history."""
        return self.world.state.values["messages"]

    @property
    def effects(self) -> Counter[tuple[str, str]]:
        """What tools did."""
        return Counter(each for each in self.world.done if each[1] in EFFECTS)


class Graph:
    """A graph with a desk; its thread is that of the world that is set."""

    def __init__(self, kind: str, mode: str | None) -> None:
        is_strict, is_bare = mode == "strict", mode is None
        self.kind = KINDS[kind]
        if is_bare and self.kind.options:  # one task for all calls
            self.kind = self.kind._replace(own_tasks=False)
        self.desk = Desk(self.kind, strict=is_strict, accepts=is_bare)
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
        world.state = self.graph.get_state(_CONFIG)
        return world

    def play(self, world: World, letter: str) -> Side:
        """Let an event happen in this world."""
        self.enter(world)
        end = "ended"
        try:
            self._happen(letter)
        except Exception as error:  # noqa: BLE001 - an error is an outcome
            end = f"{type(error).__name__}: {error}"[:100]
        world.state = self.graph.get_state(_CONFIG)
        return Side(world, end)

    def _happen(self, letter: str) -> None:
        world = self.desk.world
        world.beside = 0
        world.is_past |= letter in "gi" and world.is_edited
        if letter not in "yni":
            world.is_disturbed |= bool(world.state.next)
            world.is_edited |= letter == "e" and bool(world.state.next)
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
                text = {"y": "yes", "n": "no"}[letter]
                answer = {each.id: answer_to(each, text) for each in world.state.interrupts}
                self.graph.invoke(Command(resume=answer), _CONFIG)
            case "g":
                world.beside = world.replies + 1 if world.state.next else 0
                self.graph.invoke(Command(goto=self.kind.entry), _CONFIG)
            case "i":
                with suppress(EmptyInputError):
                    self.graph.invoke(None, _CONFIG)
            case "e":
                world.number += 1
                note = {"messages": [HumanMessage("Note.", id=f"h{world.number}")]}
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
