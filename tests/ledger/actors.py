"""Who writes the log: tools, and a model that calls them at random and refuses broken histories.

A tool is a generator that yields the seconds it wants to sleep, so that it is written once for
synchronous and asynchronous graphs.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ensure_config
from langchain_core.tools import StructuredTool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from ledger.world import REF, Emitted, Final, Key, Read, ToolEvent
from support.strict import RefusedError, refuse

TOOLS = {"send_email": 4, "wire_money": 4, "slow": 2, "boom": 2, "asks_twice": 1, "note": 2}
"""How often each tool is called, relative to the others."""

QUESTIONS = {"wire_money": 1, "asks_twice": 2}
RUN = "ledger_run"
"""The key of the config with the number of the run: several runs may be at work at once."""

MAX_ROUNDS = 3


# --- tools ---------------------------------------------------------------------------------


def _work(world, event, attempt, asks):
    """One execution of a tool; its text names the execution."""
    key = event.key
    text = f"{key.name} {key.ref} receipt-{event.execution}"

    def log(kind, label=""):
        world.log(event._replace(kind=kind, label=label))

    for _ in range(QUESTIONS.get(key.name, 0) if asks else 0):
        log("asked")
        log("answered", str(interrupt(f"may I? {text}")))
    mood = random.Random(key.ref)  # noqa: S311 - no secret
    once, after = mood.random() < 0.5, mood.random() < 0.5
    yield {"slow": 0.025, "wire_money": 0.01, "boom": mood.choice([0, 0.02])}.get(key.name, 0)
    fails = key.name == "boom" and not (once and attempt > 1)
    if not fails or after:
        log("effect")
    if fails:
        log("raised")
        raise RuntimeError(f"kaput {text}")
    yield {"slow": 0.025, "wire_money": 0.01}.get(key.name, 0)
    log("end")
    if key.name == "note":
        message = ToolMessage(f"done: {text}", tool_call_id=event.label, name=key.name)
        return Command(update={"notes": {key.ref: 1}, "messages": [message]})
    return f"done: {text}"


def make_tools(world, agent, names, *, asynchronous, asks=True):
    """The tools with these names, for the agent with that name. `asks`: whether they ask."""

    def make(name):
        def begin(ref, runtime):
            key = _running_call(world, name, ref, runtime)
            with world.lock:
                number = len(world.entries)
                done = [e for _, e in world.all(ToolEvent) if e.key == key and e.kind == "start"]
                event = ToolEvent("start", number, key, agent, str(runtime.tool_call_id))
                world.log(event)
            return _work(world, event, 1 + len(done), asks)

        def run(ref, runtime):
            steps = begin(ref, runtime)
            while True:
                try:
                    time.sleep(next(steps))
                except StopIteration as stop:
                    return stop.value

        async def arun(ref, runtime):
            steps = begin(ref, runtime)
            while True:
                try:
                    await asyncio.sleep(next(steps))
                except StopIteration as stop:
                    return stop.value

        body = {"func": None, "coroutine": arun} if asynchronous else {"func": run}
        return _template().model_copy(update={"name": name, "description": name, **body})

    return [make(name) for name in names]


@cache
def _template():
    """A tool with the arguments of all tools: to make that schema anew each time is slow."""

    def template(ref: str, runtime: ToolRuntime) -> Any:
        """Do something."""

    return StructuredTool.from_function(template)


def _running_call(world, name, ref, runtime):
    """The identity of the running call: the newest message in the state that holds it."""
    call, state = str(runtime.tool_call_id), runtime.state
    own = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    for message in reversed(own or []):
        for made in getattr(message, "tool_calls", ()):
            if made["id"] == call and made["args"].get("ref") == ref:
                return world.find(message.id, name, ref, call) or Key("?", call, name, ref)
    keys = [e.key for _, e in world.all(Emitted) if (e.key.name, e.key.ref) == (name, ref)]
    keys = [key for key in keys if key.call == call] or keys
    return keys[-1] if keys else Key("?", call, name, ref)


# --- models --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Habits:
    """How the models of a scenario write tool calls.

    Attributes:
        seed: Decides everything.
        ids: `unique`; `per_message`, where each message begins again with `call_0`; `function`,
            as some servers write them; `twins`, where all calls of a message have one id.
        malformed: Whether some calls have incomplete arguments.
        same_args: Whether calls of one tool have the same arguments in every message (not those
            of `note`, which have an effect in the state).
        boom: Whether the tool that raises is called.
        parallel_tasks: Whether a message may call several subagents; threads decide which of them
            is first to call its model.
    """

    seed: int
    ids: str = "unique"
    malformed: bool = False
    same_args: bool = False
    boom: bool = True
    parallel_tasks: bool = True


class EmptyHistoryError(ValueError):
    """The model was called without a message.

    LangGraph does so, patched or not: for `Command(goto=...)` to a subgraph over a pause in it,
    where messages are in a `DeltaChannel`, and for `invoke(None)` on some checkpoints.
    """


class RandomModel(BaseChatModel):
    """Reads, logs, refuses or answers. `tools`: the tools that it calls, with their weights."""

    agent: str
    world: Any
    habits: Any
    tools: dict[str, int]

    @property
    def _llm_type(self):
        return "random"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    async def _agenerate(self, messages, stop=None, run_manager=None, **_):
        return self._generate(messages)

    def _reply(self, messages):
        world = self.world
        run = ensure_config()["configurable"].get(RUN, world.run)
        try:
            refuse(messages)
            if all(message.type == "system" for message in messages):
                raise EmptyHistoryError("there is no message")
        except (RefusedError, EmptyHistoryError) as error:
            world.log(Read(self.agent, run, tuple(messages), str(error)))
            raise
        with world.lock:  # of two runs at once, no two calls may have one ref
            number = world.count(Read, self.agent)
            world.log(Read(self.agent, run, tuple(messages), ""))
            draw = random.Random(f"{self.habits.seed}/{self.agent}/{number}")  # noqa: S311
            refs = [ref for m in messages if m.type == "human" for ref in REF.findall(m.text)]
            parent = refs[0] if refs and self.agent == "sub" else ""
            if not world.calm and self._wants_tools(draw, messages):
                return self._calls(draw, f"ai-{self.agent}-{number}", parent)
            label = f"final-{world.count(Final)}"
            world.log(Final(label, self.agent, parent))
            return AIMessage(f"{self.agent} {label}", id=f"ai-{self.agent}-{number}")

    def _wants_tools(self, draw, messages):
        rounds = 0
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                break
            rounds += isinstance(message, AIMessage)
        return rounds < MAX_ROUNDS and draw.random() < (0.3 if rounds else 0.9)

    def _calls(self, draw, message_id, parent):
        calls, invalid = [], []
        for index, name in enumerate(self._names(draw)):
            number = self.world.count(Emitted)
            same = self.habits.same_args and name in TOOLS and name != "note"
            ref = f"R{900 + sorted(TOOLS).index(name)}" if same else f"R{number}"
            ids = {"per_message": f"call_{index}", "function": f"functions.{name}:{index}"}
            call = {**ids, "twins": "call_0"}.get(self.habits.ids, f"call-{number}")
            cut = self.habits.malformed and draw.random() < 0.2
            self.world.log(Emitted(Key(message_id, call, name, ref), self.agent, cut, parent))
            args = _arguments(name, ref)
            if cut:
                raw = json.dumps(args)[:-2]
                invalid.append({"name": name, "args": raw, "id": call, "error": "cut off"})
            else:
                calls.append({"name": name, "args": args, "id": call})
        return AIMessage("", id=message_id, tool_calls=calls, invalid_tool_calls=invalid)

    def _names(self, draw):
        tools = {n: w for n, w in self.tools.items() if n != "boom" or self.habits.boom}
        names = []
        for name in draw.choices(list(tools), list(tools.values()), k=draw.choice([1, 2, 2, 3])):
            single = name.startswith("transfer") or name == "write_todos"
            single = single or (name == "task" and not self.habits.parallel_tasks)
            if not (single and any(n == name or n.startswith("transfer") for n in names)):
                names.append(name)
        return names


def _arguments(name, ref):
    if name.startswith("transfer"):
        return {}
    return {
        "write_file": {"file_path": f"/{ref}.txt", "content": ref},
        "write_todos": {"todos": [{"content": ref, "status": "pending"}]},
        "task": {"description": ref, "subagent_type": "helper"},
    }.get(name, {"ref": ref})
