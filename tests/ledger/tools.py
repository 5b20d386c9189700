"""Tools that write into the ledger when they start, when their effect happens and when they end.

Each tool is a generator that yields the seconds it wants to sleep, so that it is written once
for synchronous and asynchronous graphs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from ledger.world import Emitted, Key, ToolEvent, World

Steps = Generator[float, None, Any]


@dataclass
class Job:
    """One execution of a tool."""

    world: World
    begun: ToolEvent
    asks: bool

    def log(self, kind: Any, label: str = "") -> None:
        """Log an event of this execution."""
        self.world.log(self.begun._replace(kind=kind, label=label))

    @property
    def text(self) -> str:
        """What identifies this execution in a result, an error or a question."""
        key = self.begun.key
        return f"{key.name} {key.ref} receipt-{self.begun.execution}"

    def ask(self) -> None:
        """Ask the human."""
        self.log("asked")
        self.log("answered", str(interrupt(f"may I? {self.text}")))

    def fail(self) -> None:
        """Raise."""
        self.log("raised")
        raise RuntimeError(f"kaput {self.text}")


def send_email(job: Job) -> Steps:
    """Finish at once."""
    yield 0.0
    job.log("effect")
    return f"done: {job.text}"


def wire_money(job: Job) -> Steps:
    """Ask the human, then work for a moment."""
    if job.asks:
        job.ask()
    yield 0.01
    job.log("effect")
    yield 0.01
    return f"done: {job.text}"


def slow(job: Job) -> Steps:
    """Work for a while, with the effect in the middle."""
    yield 0.025
    job.log("effect")
    yield 0.025
    return f"done: {job.text}"


def boom(job: Job) -> Steps:
    """Raise: always or only at first, before or after the effect."""
    mood = random.Random(job.begun.key.ref)  # noqa: S311 - no secret
    once, after = mood.random() < 0.5, mood.random() < 0.5
    yield mood.choice([0.0, 0.02])
    if once and job.begun.attempt > 1:
        job.log("effect")
        return f"done: {job.text}"
    if after:
        job.log("effect")
    job.fail()
    return None


def asks_twice(job: Job) -> Steps:
    """Ask the human two questions."""
    if job.asks:
        job.ask()
        job.ask()
    yield 0.01
    job.log("effect")
    return f"done: {job.text}"


def note(job: Job) -> Steps:
    """Write into the state key `notes`, by a `Command`."""
    yield 0.0
    job.log("effect")
    key = job.begun.key
    message = ToolMessage(f"done: {job.text}", tool_call_id=key.call, name=key.name)
    return Command(update={"notes": {key.ref: 1}, "messages": [message]})


TOOLS: dict[str, Callable[[Job], Steps]] = {
    tool.__name__: tool for tool in (send_email, wire_money, slow, boom, asks_twice, note)
}


def make_tools(
    world: World, agent: str, *names: str, asynchronous: bool, asks: bool = True
) -> list[BaseTool]:
    """The tools with these names, for the agent with that name.

    Args:
        world: Where they log.
        agent: Who calls them.
        names: Names in `TOOLS`.
        asynchronous: Whether they are coroutines.
        asks: Whether a tool that moves money asks by itself. If not, a middleware does.
    """
    return [_make(world, agent, name, asynchronous=asynchronous, asks=asks) for name in names]


def _make(world: World, agent: str, name: str, *, asynchronous: bool, asks: bool) -> BaseTool:
    def begin(ref: str, runtime: ToolRuntime) -> tuple[Job, Steps]:
        job = Job(world, world.start(_key(world, name, ref, runtime), agent), asks)
        return job, TOOLS[name](job)

    def run(ref: str, runtime: ToolRuntime) -> Any:
        job, steps = begin(ref, runtime)
        while True:
            try:
                time.sleep(next(steps))
            except StopIteration as stop:
                job.log("end")
                return stop.value

    async def arun(ref: str, runtime: ToolRuntime) -> Any:
        job, steps = begin(ref, runtime)
        while True:
            try:
                await asyncio.sleep(next(steps))
            except StopIteration as stop:
                job.log("end")
                return stop.value

    body: dict[str, Any] = {"coroutine": arun} if asynchronous else {"func": run}
    own = {"func": None, "coroutine": None, **body, "name": name, "description": name}
    return _template().model_copy(update=own)


@cache
def _template() -> BaseTool:
    """A tool with the arguments of all tools: to make that schema anew each time is slow."""

    def template(ref: str, runtime: ToolRuntime) -> Any:
        """Do something."""

    return StructuredTool.from_function(template)


def _key(world: World, name: str, ref: str, runtime: ToolRuntime) -> Key:
    """The identity of the running call: its message is the newest in the state that holds it."""
    call = str(runtime.tool_call_id)
    messages = runtime.state["messages"] if isinstance(runtime.state, dict) else []
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            for made in message.tool_calls:
                if made["id"] == call and made["args"].get("ref") == ref:
                    return Key(str(message.id), call, name, ref)
    for _, emitted in reversed(list(world.all(Emitted))):
        if emitted.key[1:] == (call, name, ref):
            return emitted.key
    return Key("?", call, name, ref)
