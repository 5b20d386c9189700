"""Print what late, doubled, stale and wrong answers to a question do, as Markdown.

    python scripts/approval_table.py

Each scene is played with a `Bank`, which counts its payments outside of LangGraph, in three graphs:
a bare agent, a patched one, and one with `once=["pay"]`. A cell says how often the bank paid, the
errors that were raised behind the first answer, and what the model reads of the call in the turn
of the next message: its result, or the cause that a placeholder states.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.types import Command, interrupt

from kit import BARE, calls
from langgraph_patch import is_placeholder, with_patching
from langgraph_patch.evidence.claims import is_record
from support.bank import (
    DECISIONS,
    THREAD,
    YES,
    Bank,
    Talk,
    replay,
    twice,
    twice_by_id,
    watchdog,
    yes_and_no,
)

GRAPHS: dict[str, Callable[[Any], Any]] = {
    "LangGraph alone": lambda agent: agent,
    "`with_patching`": with_patching,
    "`once`": lambda agent: with_patching(agent, once=["pay"]),
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
    Scene("the same, by the id of the interrupt", late_by_id, calls=(PAYS_AGAIN,)),
    Scene("the same yes when the tool asks a second question", next_question, Curious),
    Scene("the same, by the id of the interrupt", next_question_by_id, Curious),
    Scene("`invoke(None)` when the tool asks a second question", polled, Curious),
    Scene("the same, after an answer by the id of the interrupt", polled_by_id, Curious),
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


# --- the table ------------------------------------------------------------------------------


def cell(scene: Scene, wrap: Callable[[Any], Any]) -> str:
    """What happens in a graph."""

    def build(model: Any, tools: Any, saver: Any, **_: Any) -> Any:
        own = [HumanInTheLoopMiddleware({"pay": True})] if scene.middleware else []
        return wrap(BARE["create_agent"](model, tools, saver, middleware=own))

    bank = Bank(asks=False) if scene.middleware else scene.bank()
    talk = Talk(build, bank=bank, script=[calls(("pay", {"amount": 5})), *scene.calls])
    if scene.middleware:
        talk.answers = DECISIONS
    talk.say("Pay.")
    raised = scene.play(talk)[1:]
    dead = talk.say("Well?")
    times = len(talk.bank.paid)
    paid = f"**{times}**" if times > 1 else str(times)
    errors = [f"`{error}`" for error in dict.fromkeys(raised) if error not in (None, dead)]
    return ", ".join([paid, *errors, "dead" if dead else read(talk)])


def read(talk: Talk) -> str:
    """What the model read of the call: its result, or the cause that a placeholder states."""
    [result] = [m for m in talk.model.seen[-1] if getattr(m, "tool_call_id", None) == "c1"]
    mark = result.additional_kwargs.get("langgraph_patch")
    return f"`{mark['cause']}`" if is_placeholder(result) else f'"{result.text}"'


def row(scene: Scene) -> str:
    """The row of a scene."""
    return f"| {scene.text} | {' | '.join(cell(scene, wrap) for wrap in GRAPHS.values())} |"


def table() -> str:
    """The table of the page on late, doubled and wrong answers."""
    head = [f"| what happens | {' | '.join(GRAPHS)} |", "|---" * (len(GRAPHS) + 1) + "|"]
    return "\n".join([*head, *map(row, SCENES)])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(f"{table()}\n")
