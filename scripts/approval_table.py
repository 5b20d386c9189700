"""Print what late, doubled, stale and wrong answers to a question do, as Markdown.

    python scripts/approval_table.py
    python scripts/approval_table.py sqlite         in each kind of graph; or memory, postgresql://...

Each scene is played with a `Bank`, which counts its payments outside of LangGraph, in three graphs:
a bare agent, a patched one, and one with `once=["pay"]`. A cell says how often the bank paid, the
errors that were raised behind the first answer, and what the model reads of the call in the turn
of the next message: its result, or the cause that a placeholder states.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    wrap_tool_call,
)
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from langgraph_swarm import create_swarm

from kit import BARE, StrictModel, above, calls, tool_of
from langgraph_patch import is_placeholder, with_patching
from langgraph_patch.evidence.claims import UNWRITTEN, is_record
from support.bank import (
    DECISIONS,
    THREAD,
    YES,
    Bank,
    Memory,
    Sqlite,
    Talk,
    replay,
    twice,
    twice_by_id,
    watchdog,
    yes_and_no,
)
from support.databases import sqlite_saver

GRAPHS: dict[str, Callable[..., Any]] = {
    "LangGraph alone": lambda agent, **_: agent,
    "`with_patching`": with_patching,
    "`once`": partial(with_patching, once=["pay"]),
}
PAYS_AGAIN = calls(("pay", {"amount": 7}), first=2)
UNKNOWN_ID = "0" * 32


# --- banks ----------------------------------------------------------------------------------


class Slow(Bank):
    """Declines when the payment has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.declines, self.ended = threading.Event(), threading.Event()

    def decline(self) -> str:
        """Wait for the payment."""
        self.declines.set()
        self.ended.wait(20)
        return "declined"


class Curious(Bank):
    """Asks two questions."""

    def ask(self) -> Any:
        """Ask for a day, and then whether to pay."""
        return interrupt("which day?"), interrupt("pay?")


# --- scenes ---------------------------------------------------------------------------------


def by_id(talk: Talk) -> Command[Any]:
    """A yes that names the question that waits."""
    (asked,) = talk.graph.get_state(THREAD).interrupts
    return Command(resume={asked.id: talk.answers["yes"]})


def no_ends_last(talk: Talk) -> list[str | None]:
    """A no arrives while the tool works, and its run ends last."""
    talk.bank.gate.clear()
    raised: dict[str, str | None] = {}
    yes = threading.Thread(target=lambda: raised.update(yes=talk.answer("yes")))
    no = threading.Thread(target=lambda: raised.update(no=talk.answer("no")))
    yes.start()
    talk.bank.begun.wait(20)
    no.start()
    while no.is_alive() and not talk.bank.declines.is_set():
        no.join(0.01)
    talk.bank.gate.set()
    yes.join()
    talk.bank.ended.set()
    no.join()
    return [raised["yes"], raised["no"]]


def fails_then_no(talk: Talk) -> list[str | None]:
    """The tool fails once; then a human says no."""
    talk.bank.fails = True
    raised = [talk.answer("yes")]
    talk.bank.fails = False
    return [*raised, talk.answer("no")]


def late(talk: Talk) -> list[str | None]:
    """The answer comes again when the turn is over."""
    return [talk.answer("yes"), talk.answer("yes")]


def late_by_id(talk: Talk) -> list[str | None]:
    """The same, by the id of the interrupt."""
    yes = by_id(talk)
    return [talk.run(yes), talk.run(yes)]


def next_question(talk: Talk) -> list[str | None]:
    """The answer comes again when the tool asks its second question."""
    return [talk.run(YES), talk.run(YES)]


def next_question_by_id(talk: Talk) -> list[str | None]:
    """The same, by the id of the interrupt."""
    yes = by_id(talk)
    return [talk.run(yes), talk.run(yes)]


def polled(talk: Talk) -> list[str | None]:
    """A watchdog continues the run when the tool asks its second question."""
    return [talk.run(YES), talk.run(None)]


def polled_by_id(talk: Talk) -> list[str | None]:
    """The same, after an answer by the id of the interrupt."""
    return [talk.run(by_id(talk)), talk.run(None)]


def expired(talk: Talk) -> list[str | None]:
    """A message comes in place of the answer, and then the answer."""
    return [None, talk.say("Never mind."), talk.answer("yes")]


def expired_by_id(talk: Talk) -> list[str | None]:
    """The same, by the id of the interrupt."""
    yes = by_id(talk)
    return [None, talk.say("Never mind."), talk.run(yes)]


def unknown_id(talk: Talk) -> list[str | None]:
    """The answer names no question of the thread; then a right one."""
    return [None, talk.run(Command(resume={UNKNOWN_ID: "yes"})), talk.answer("yes")]


def wrong_number(talk: Talk) -> list[str | None]:
    """The answer has no decision; then a right one."""
    return [None, talk.run(Command(resume={"decisions": []})), talk.answer("yes")]


def dies_behind_the_tool(talk: Talk) -> list[str | None]:
    """The process dies when the tool has ended, before its result is in the state."""
    talk.saver.breaks = lambda namespace, _: bool(talk.bank.paid) and not is_record(namespace)
    raised = [talk.answer("yes")]
    talk.saver.breaks, talk.saver.is_lost = lambda *_: False, False
    return [*raised, talk.run(None)]


def dies_in_the_tool(talk: Talk) -> list[str | None]:
    """The process dies in the tool, and the answer is sent again."""
    talk.saver.breaks = lambda *_: bool(talk.bank.paid)
    raised = [talk.answer("yes")]
    talk.saver.breaks, talk.saver.is_lost = lambda *_: False, False
    UNWRITTEN.clear()  # what a process knows dies with it
    return [*raised, talk.answer("yes")]


class Scene(NamedTuple):
    """What happens, in words and in a run.

    Attributes:
        text: What the table says.
        play: Takes the conversation, whose question waits; what each run raised, the answer first.
        bank: Makes the bank.
        middleware: Whether a `HumanInTheLoopMiddleware` asks, and not the tool.
        calls: What the model says after its first call.
    """

    text: str
    play: Callable[[Talk], list[str | None]]
    bank: Callable[[], Bank] = Bank
    middleware: bool = False
    calls: tuple[Any, ...] = ()


SCENES = (
    Scene("two tabs say yes at once", twice),
    Scene("the same, by the id of the interrupt", twice_by_id),
    Scene("a no while the tool works, whose run ends last", no_ends_last, Slow),
    Scene("a no while the tool works (`HumanInTheLoopMiddleware`)", yes_and_no, middleware=True),
    Scene("`invoke(None)` while the tool works", watchdog),
    Scene("the tool fails, then a no", fails_then_no),
    Scene("the same yes with the old `checkpoint_id`", replay),
    Scene("the same yes when the turn is over", late),
    Scene("the same, by the id of the interrupt", late_by_id),
    Scene("the same yes when the next call asks", late, calls=(PAYS_AGAIN,)),
    Scene("an old yes by id when the next call asks", late_by_id, calls=(PAYS_AGAIN,)),
    Scene("the same yes when the tool asks a second question", next_question, Curious),
    Scene("the same, by the id of the interrupt", next_question_by_id, Curious),
    Scene("`invoke(None)` when the tool asks a second question", polled, Curious),
    Scene("a yes by id, then `invoke(None)` at the second question", polled_by_id, Curious),
    Scene("a message first, then the yes", expired),
    Scene("the same, by the id of the interrupt", expired_by_id),
    Scene("an id that no question has, then a yes", unknown_id),
    Scene(
        "a wrong number of decisions, then a yes (`HumanInTheLoopMiddleware`)",
        wrong_number,
        middleware=True,
    ),
    Scene("the process dies behind the tool, then `invoke(None)`", dies_behind_the_tool),
    Scene("the process dies in the tool, then the same yes", dies_in_the_tool),
)


# --- kinds of graphs ------------------------------------------------------------------------


def agent(model: Any, tools: Any, saver: Any, own: Any = ()) -> Any:
    """`create_agent`."""
    return create_agent(model, tools, checkpointer=saver, middleware=own, name="agent")


def deep_agent(model: Any, tools: Any, saver: Any, own: Any) -> Any:
    """`create_deep_agent`."""
    create = import_module("deepagents").create_deep_agent
    return create(model, tools, checkpointer=saver, middleware=own)


def subgraph(model: Any, tools: Any, saver: Any, own: Any) -> Any:
    """An agent that is a node."""
    return above(agent(model, tools, None, own)).compile(checkpointer=saver)


def swarm(model: Any, tools: Any, saver: Any, own: Any) -> Any:
    """An agent of a swarm."""
    agents = [agent(model, tools, None, own), create_agent(StrictModel(), [], name="bob")]
    return create_swarm(agents, default_active_agent="agent").compile(checkpointer=saver)


def commanding(model: Any, tools: Any, saver: Any, own: Any) -> Any:
    """An agent whose tool returns a `Command`."""
    [inner] = tools

    def pay(amount: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Pay."""
        result = ToolMessage(inner.func(amount), tool_call_id=tool_call_id)
        return Command(update={"messages": [result]})

    return agent(model, [tool_of(pay)], saver, own)


def handling(model: Any, tools: Any, saver: Any) -> Any:
    """A loop whose tool node makes a message of each error."""
    return BARE["hand_built"](model, ToolNode(tools, handle_tool_errors=True), saver)


@wrap_tool_call
def redacts(request: Any, handler: Any) -> Any:
    """Hides what the human said."""
    result = handler(request)
    return result.model_copy(update={"content": result.content.replace("yes", "***")})


def beside(middleware: Any) -> Callable[..., Any]:
    """An agent with this middleware."""
    return lambda model, tools, saver, own: agent(model, tools, saver, [*own, middleware])


def without_middleware(build: Callable[..., Any]) -> Callable[..., Any]:
    """A graph in which no middleware can ask: its scenes are left out."""

    def made(model: Any, tools: Any, saver: Any, own: Any) -> Any:
        if own:
            raise NotImplementedError
        return build(model, tools, saver)

    return made


KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "`create_agent`": (agent, {}),
    "`create_react_agent`": (without_middleware(BARE["react_v2"]), {}),
    "`ToolNode`": (without_middleware(BARE["hand_built"]), {}),
    "`record=True`": (without_middleware(BARE["hand_built"]), {"record": True}),
    "deep agent": (deep_agent, {}),
    "agent as node": (subgraph, {}),
    "swarm": (swarm, {}),
    "`Command`": (commanding, {}),
    "`handle_tool_errors=True`": (without_middleware(handling), {}),
    "`ToolRetryMiddleware`": (beside(ToolRetryMiddleware(max_retries=1, initial_delay=0)), {}),
    "`ToolCallLimitMiddleware`": (beside(ToolCallLimitMiddleware(run_limit=5)), {}),
    "a wrapper that redacts": (beside(redacts), {}),
}
"""Builds a bare graph; and the further options of `with_patching`."""


# --- the table ------------------------------------------------------------------------------


class Played(NamedTuple):
    """What came of a scene.

    Attributes:
        paid: The amounts that were paid, in order.
        raised: The errors of the runs behind the first answer.
        read: What the model reads of the call in the turn of the next message: its result, or the
            cause that a placeholder states; "nothing" if the history has no such call; "dead" if
            the provider refuses the history.
    """

    paid: list[int]
    raised: list[str]
    read: str

    @property
    def is_true(self) -> bool:
        """Whether what the model reads agrees with what the bank did; a silence does."""
        nothing = ("`awaiting_input`", "`not_started`", '"declined"')
        return not (
            (self.read in nothing and 5 in self.paid)
            or (self.read.startswith('"paid') and 5 not in self.paid)
        )


def play(
    scene: Scene,
    wrap: Callable[..., Any],
    kind: Callable[..., Any] = agent,
    saver: Any = None,
) -> Played:
    """Play a scene in a graph."""

    def build(model: Any, tools: Any, saver: Any, **_: Any) -> Any:
        own = [HumanInTheLoopMiddleware({"pay": True})] if scene.middleware else []
        return wrap(kind(model, tools, saver, own))

    bank = Bank(asks=False) if scene.middleware else scene.bank()
    script = [calls(("pay", {"amount": 5})), *scene.calls]
    talk = Talk(build, bank=bank, script=script, saver=saver)
    if scene.middleware:
        talk.answers = DECISIONS
    talk.say("Pay.")
    raised = scene.play(talk)[1:]
    dead = talk.say("Well?")
    errors = [error for error in dict.fromkeys(raised) if error not in (None, dead)]
    return Played(talk.bank.paid, errors, "dead" if dead else read(talk))


def read(talk: Talk) -> str:
    """What the model read of the call: its result, or the cause that a placeholder states."""
    found = [m for m in talk.model.seen[-1] if getattr(m, "tool_call_id", None) == "c1"]
    if not found:
        return "nothing"
    mark = found[0].additional_kwargs.get("langgraph_patch")
    text = " ".join(found[0].text.split())
    return f"`{mark['cause']}`" if is_placeholder(found[0]) else f'"{text}"'


def text(played: Played) -> str:
    """A cell."""
    times = len(played.paid)
    paid = f"**{times}**" if times > 1 else str(times)
    return ", ".join([paid, *(f"`{error}`" for error in played.raised), played.read])


def row(scene: Scene) -> str:
    """The row of a scene."""
    return f"| {scene.text} | {' | '.join(text(play(scene, wrap)) for wrap in GRAPHS.values())} |"


def table() -> str:
    """The table of the page on late, doubled and wrong answers."""
    head = [f"| what happens | {' | '.join(GRAPHS)} |", "|---" * (len(GRAPHS) + 1) + "|"]
    return "\n".join([*head, *map(row, SCENES)])


def in_each_graph(place: str) -> Iterator[str]:
    """The rows of all kinds of graphs on a checkpointer; kinds with the same cells share a row."""
    yield f"| what happens | graphs | {' | '.join(GRAPHS)} |"
    yield "|---" * (len(GRAPHS) + 2) + "|"
    for scene in SCENES:
        rows: dict[str, list[str]] = {}
        for name, (kind, options) in KINDS.items():
            with suppress(NotImplementedError):
                played = [
                    play(scene, partial(wrap, **options), kind, new_saver(place))
                    for wrap in GRAPHS.values()
                ]
                once = played[-1]
                if once.paid.count(5) > 1 or not once.is_true:
                    raise AssertionError(f"{scene.text}, {name}: {once}")
                rows.setdefault(" | ".join(map(text, played)), []).append(name)
        for cells, names in rows.items():
            yield f"| {scene.text} | {', '.join(names)} | {cells} |"


def new_saver(place: str) -> Any:
    """A checkpointer without threads."""
    if place == "memory":
        return Memory()
    if place == "sqlite":
        return sqlite_saver(kind=Sqlite)
    return import_module("support.servers").breaking_saver(place)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    for line in [table()] if len(sys.argv) == 1 else in_each_graph(sys.argv[1]):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
