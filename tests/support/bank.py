"""A bank that pays once: tools, checkpointers that break, and scenes of a call that runs once.

`Bank` counts what was paid, outside of LangGraph. A scene is what happens to a call of its tool.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph import types
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import add_messages
from langgraph.managed import RemainingSteps
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from kit import BARE, KINDS, NESTED, StrictModel, calls, loop, results_in, tool_of
from langgraph_patch import with_patching
from langgraph_patch.evidence.claims import UNWRITTEN, is_record
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.placeholder_texts import FAILED, STARTED

YES = Command(resume="yes")
DECISIONS = {
    "yes": {"decisions": [{"type": "approve"}]},
    "no": {"decisions": [{"type": "reject"}]},
}
"""The answers to a `HumanInTheLoopMiddleware`."""

PAID = "paid 5: yes"
THREAD: Any = {"configurable": {"thread_id": "1"}}


class LostError(Exception):
    """The database is gone."""


class Breaking:
    """A checkpointer whose database is lost at a moment, and nothing is stored until it is back.

    Attributes:
        breaks: Takes a namespace and the first channel that is written, `""` for a checkpoint, and
            says whether it is.
        after: Whether this write is still stored.
        is_lost: Whether it is lost now.
    """

    keeps_first_write = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.breaks: Callable[[str, str], bool] = lambda *_: False
        self.after = self.is_lost = False

    def put(self, config, *args):
        # A checkpoint may come before the writes that it applies: LangGraph stores both in threads.
        if self.breaks(config["configurable"]["checkpoint_ns"], "") and not self.after:
            self.is_lost = True
        self._check()
        return super().put(config, *args)

    def put_writes(self, config, writes, *args):
        lost = self.breaks(config["configurable"]["checkpoint_ns"], writes[0][0])
        if lost and not self.after:  # assigned once: another thread may write at the same time
            self.is_lost = True
        self._check()
        super().put_writes(config, writes, *args)
        if lost:
            self.is_lost = True

    def _check(self):
        if self.is_lost:
            raise LostError

    async def aput(self, *args):
        return self.put(*args)

    async def aput_writes(self, *args):
        self.put_writes(*args)


class Memory(Breaking, InMemorySaver):
    """In memory."""


class Sqlite(Breaking, SqliteSaver):
    """A SQLite database."""


class Bank:
    """A tool that pays if a human agrees, and what it did."""

    def __init__(self, *, asks=True):
        self.paid: list[Any] = []
        self.asks = asks
        self.fails = False
        self.begun, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def ask(self) -> Any:
        """Ask a human."""
        return interrupt("pay?") if self.asks else "yes"

    def decline(self) -> str:
        """Do nothing."""
        return "declined"

    def work(self, amount: int) -> str:
        """Pay."""
        answer = self.ask()
        if answer == "no":
            return self.decline()
        self.paid.append(amount)
        self.begun.set()
        assert self.gate.wait(20)
        if self.fails:
            raise RuntimeError("bank down")
        return f"paid {amount}: {answer}"

    @property
    def tool(self) -> Any:
        """The tool."""
        return tool_of(self.work, "pay")


def hitl(patch: bool) -> Callable[..., Any]:  # noqa: FBT001 - a kind of agent
    """An agent whose calls are approved before its tools."""

    def build(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
        own = [HumanInTheLoopMiddleware({"pay": True})]
        if patch:
            return with_patching(
                BARE["create_agent"](model, tools, saver, middleware=own), **options
            )
        own.append(PatchToolCallsMiddleware(**options))
        return BARE["create_agent"](model, tools, saver, middleware=own)

    return build


class Checked(BaseModel):
    """A state that loses the calls of its messages when it is stored in a `Send`."""

    messages: Annotated[Sequence[BaseMessage], add_messages]
    remaining_steps: RemainingSteps = 25


def checked(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    """A prebuilt agent with such a state."""
    return with_patching(BARE["react_v2"](model, tools, saver, state_schema=Checked), **options)


def timed(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    """A loop whose tools have a time limit."""
    builder = loop(model, tools)
    builder.nodes["tools"].timeout = types.TimeoutPolicy(run_timeout=60)
    return with_patching(builder.compile(checkpointer=saver), **options)


APPROVED = {"hitl": hitl(patch=True), "hitl_middleware": hitl(patch=False)}
OTHERS = {"checked": checked, "timed": timed}


class Talk:
    """An agent with one thread, whose model calls `pay` once."""

    def __init__(self, kind, *, saver=None, asynchronous=False, script=None, bank=None, **options):
        self.bank = bank or Bank(asks=kind not in APPROVED)
        self.answers = DECISIONS if kind in APPROVED else {"yes": "yes", "no": "no"}
        self.model = StrictModel(script=script or [calls(("pay", {"amount": 5}))])
        self.saver = saver or Memory()
        self.asynchronous = asynchronous
        build = {**KINDS, **NESTED, **APPROVED, **OTHERS}[kind] if isinstance(kind, str) else kind
        options = {"once": ["pay"], **options}
        self.graph = build(self.model, [self.bank.tool], self.saver, **options)

    def run(self, value, config=THREAD):
        """Run the graph; the type of the error that it raises."""
        try:
            if self.asynchronous:
                asyncio.run(self.graph.ainvoke(value, config))
            else:
                self.graph.invoke(value, config)
        except Exception as error:  # noqa: BLE001 - of any kind: it is compared
            self.error = error
            return type(error).__name__
        return None

    def say(self, text="and?"):
        """Send a message."""
        return self.run({"messages": [HumanMessage(text)]})

    def answer(self, text, config=THREAD):
        """Answer the question."""
        return self.run(Command(resume=self.answers[text]), config)

    def while_it_works(self, value):
        """Answer yes, and run with another value while the tool works; what both raise.

        The second run has ended before the first one goes on, or it is in the tool as well.
        """
        self.bank.begun.clear()
        self.bank.gate.clear()
        raised = {}
        runs = {"yes": lambda: self.answer("yes"), "other": lambda: self.run(value)}
        first, second = (
            threading.Thread(target=lambda name=name, run=run: raised.update({name: run()}))
            for name, run in runs.items()
        )
        first.start()
        assert self.bank.begun.wait(20)
        second.start()
        while second.is_alive() and len(self.bank.paid) < len(runs):
            second.join(0.01)
        self.bank.gate.set()
        first.join()
        second.join()
        return [raised[name] for name in runs]

    @property
    def read(self):
        """The result of the call that the model read last."""
        return results_in(self.model.seen[-1]).get("c1")


# --- scenes ---------------------------------------------------------------------------------


def twice(talk):
    """Two tabs answer at once."""
    return talk.while_it_works(Command(resume=talk.answers["yes"]))


def twice_by_id(talk):
    """Two tabs answer at once, by the id of the interrupt."""
    (asked,) = talk.graph.get_state(THREAD).interrupts
    return talk.while_it_works(Command(resume={asked.id: talk.answers["yes"]}))


def yes_and_no(talk):
    """A no arrives while the tool works."""
    return talk.while_it_works(Command(resume=talk.answers["no"]))


def watchdog(talk):
    """A watchdog continues the run while the tool works."""
    return talk.while_it_works(None)


def replay(talk):
    """The same answer comes again, with the checkpoint of the question."""
    asked = talk.graph.get_state(THREAD).config
    return [talk.answer("yes"), talk.answer("yes", asked)]


def polls(talk):
    """A watchdog continues the run while the question waits."""
    return [talk.run(None), talk.run(None), talk.answer("yes")]


def fails_then_no(talk):
    """The tool fails, then a human says no, then a watchdog comes, then a message."""
    talk.bank.fails = True
    raised = [talk.answer("yes")]
    talk.bank.fails = False
    return [*raised, talk.answer("no"), talk.run(None), talk.say()]


def lost(talk, word, *, after, dies=True):
    """The database is lost when the record says this word, and the process dies."""
    talk.saver.breaks = lambda namespace, channel: is_record(namespace) and channel == word
    talk.saver.after = after
    assert talk.answer("yes") == "LostError"
    talk.saver.breaks, talk.saver.is_lost = lambda *_: False, False
    if dies:
        UNWRITTEN.clear()


def ended_then_continued(talk):
    """The process dies when the tool has ended, before its result is stored."""
    lost(talk, "ended", after=True)
    return [talk.run(None)]


def ended_then_message(talk):
    """The same, and a message comes."""
    lost(talk, "ended", after=True)
    return [talk.say()]


def began_then_message(talk):
    """The process dies when the tool has ended, before that is recorded."""
    lost(talk, "ended", after=False)
    return [talk.run(None), talk.answer("yes"), talk.say()]


def outage_then_continued(talk):
    """The database is lost when the tool has ended, and the process lives on."""
    lost(talk, "ended", after=False, dies=False)
    return [talk.run(None)]


def never_began(talk):
    """The process dies before the claim is stored: nothing ran, and the call can run."""
    lost(talk, "began", after=False)
    assert talk.bank.paid == []
    return [talk.run(None)]


STARTED_TEXT = STARTED.format("pay", "c1")
FAILED_TEXT = FAILED.format("pay", "c1", "RuntimeError('bank down')")
REFUSED = "StartedError"
SCENES: dict[Callable[[Talk], Any], Any] = {
    twice: ([None, REFUSED], PAID),
    twice_by_id: ([None, REFUSED], PAID),
    yes_and_no: ([None, REFUSED], PAID),
    watchdog: ([None, REFUSED], PAID),
    replay: ([None, None], PAID),
    polls: ([None, None, None], PAID),
    fails_then_no: (["RuntimeError", REFUSED, REFUSED, None], FAILED_TEXT),
    ended_then_continued: ([None], PAID),
    ended_then_message: ([None], PAID),
    began_then_message: ([REFUSED, REFUSED, None], STARTED_TEXT),
    outage_then_continued: ([None], PAID),
    never_began: ([None], PAID),
}
"""What each run raises, and what the model reads of the call then."""
