"""The log; and who writes it: tools, and a model that calls them and refuses broken histories."""

import asyncio
import json
import os
import pickle
import random
import re
import signal
import threading
import time
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import ensure_config
from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from kit import StrictModel
from support.strict import refuse

RECEIPT = re.compile(r"receipt-(\d+)")
REF = re.compile(r"R\d+")


class Call(NamedTuple):
    """A tool call that a model wrote. `ref` is in the arguments, and represents them."""

    message: str
    id: str
    name: str
    ref: str
    malformed: bool = False
    parent: str = ""  # the ref of the `task` call that the model works for


class ToolEvent(NamedTuple):
    """`kind`: start, asked, answered, effect, end, raised. `execution`: the number of the start."""

    kind: str
    execution: int
    call: Call
    label: str = ""


class Read(NamedTuple):
    """A model call: the messages that the model received."""

    agent: str
    run: int
    messages: tuple


class World:
    """The log of one scenario, in order. If it is `calm`, models only answer."""

    def __init__(self):
        self.entries, self.run, self.calm, self.lock = [], 0, False, threading.RLock()
        self.file, self.kill_after = None, 0  # a process is to be killed after these tool events

    def log(self, entry):
        with self.lock:
            self.entries.append(entry)
            if self.file is not None:
                self.file.write_bytes(pickle.dumps(self.entries))
                self.kill_after -= isinstance(entry, ToolEvent)
                if not self.kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)

    def all(self, kind):
        return [(n, entry) for n, entry in enumerate(self.entries) if isinstance(entry, kind)]

    def find(self, message, name, ref, call_id):
        """The call of a message; repairs may rename its id, and handoffs have no ref."""
        alike = [
            call
            for _, call in self.all(Call)
            if (call.message, call.name) == (message, name) and (call.ref == ref or not ref)
        ]
        return min(alike, key=lambda call: (not call.malformed, call.id != call_id), default=None)


TOOLS = {"send_email": 4, "wire_money": 4, "slow": 2, "boom": 2, "asks_twice": 1, "note": 2}
"""How often each tool is called, relative to the others."""
QUESTIONS = {"wire_money": 1, "asks_twice": 2}
RUN = "ledger_run"
"""The key of the config with the number of the run: several runs may be at work at once."""


@tool
def _template(ref: str, runtime: ToolRuntime) -> Any:
    """Do something."""


def make_tool(world, name, *, coroutine, asks=True):
    """The tool with that name. `asks`: whether it asks by itself."""

    def work(ref, runtime):
        """One execution: yields the seconds that it wants to sleep, then its result."""
        call_id = str(runtime.tool_call_id)
        call = next(call for _, call in world.all(Call) if call.ref == ref)
        with world.lock:
            again = any(e.call == call for _, e in world.all(ToolEvent))
            event = ToolEvent("start", len(world.entries), call, call_id)
            world.log(event)
        text = f"{name} {ref} receipt-{event.execution}"
        for _ in range(QUESTIONS.get(name, 0) if asks else 0):
            world.log(event._replace(kind="asked"))
            label = str(interrupt(f"may I? {text}"))
            world.log(event._replace(kind="answered", label=label))
        fails, fails_late = name == "boom" and not again, int(ref[1:]) % 2
        yield 0.025 if name == "slow" else 0.005
        if fails_late or not fails:
            world.log(event._replace(kind="effect"))
        if fails:
            world.log(event._replace(kind="raised"))
            raise RuntimeError(f"kaput {text}")
        yield 0.025 if name == "slow" else 0.005
        world.log(event._replace(kind="end"))
        message = ToolMessage(f"done: {text}", tool_call_id=call_id, name=name)
        note = Command(update={"notes": {ref: 1}, "messages": [message]})
        yield note if name == "note" else f"done: {text}"

    def run(ref, runtime):
        for step in work(ref, runtime):
            time.sleep(step if isinstance(step, float) else 0)
        return step

    async def arun(ref, runtime):
        for step in work(ref, runtime):
            await asyncio.sleep(step if isinstance(step, float) else 0)
        return step

    body = {"func": None, "coroutine": arun} if coroutine else {"func": run}
    return _template.model_copy(update={"name": name, "description": name, **body})


class RandomModel(StrictModel):
    """Logs what it reads, refuses or answers. `tools`: those that it calls, with their weights."""

    agent: str
    world: Any
    settings: Any
    tools: dict[str, int]
    disable_streaming: bool = True  # the model of `kit` streams no malformed calls

    def bind_tools(self, tools, **_):
        return self

    async def _agenerate(self, messages, *_, **__):
        return self._generate(messages)

    def _line(self, messages):
        world = self.world
        run = ensure_config()["configurable"].get(RUN, world.run)
        with world.lock:  # of two runs at once, no two calls may have one ref
            number = sum(read.agent == self.agent for _, read in world.all(Read))
            world.log(Read(self.agent, run, tuple(messages)))
            refuse(messages)
            if all(message.type == "system" for message in messages):
                raise ValueError("there is no message")  # as LangGraph may do after a goto
            return self._reply(messages, number)

    def _reply(self, messages, number):
        message_id = f"ai-{self.agent}-{number}"
        draw = random.Random(f"{self.settings.seed}/{self.agent}/{number}")  # noqa: S311
        humans = [n for n, message in enumerate(messages) if message.type == "human"]
        refs = [ref for n in humans for ref in REF.findall(messages[n].text)]
        parent = refs[0] if refs and self.agent == "sub" else ""
        rounds = sum(message.type == "ai" for message in messages[max(humans, default=0) :])
        if self.world.calm or rounds >= 3 or draw.random() > (0.3 if rounds else 0.9):
            return AIMessage(f"final answer for {parent}", id=message_id)
        calls, invalid = [], []
        tools = {n: w for n, w in self.tools.items() if n not in self.settings.never}
        for index in range(draw.choice([1, 2, 2, 3])):
            [name] = draw.choices(list(tools), list(tools.values()))
            if (once := name.partition("_")[0]) in self.settings.once:
                tools = {n: w for n, w in tools.items() if not n.startswith(once)}
            made = len(self.world.all(Call))
            ref, ids = f"R{made}", {"per_message": f"call_{index}", "twins": "call_0"}
            call_id = ids.get(self.settings.ids, f"call-{made}")
            cut = self.settings.malformed and draw.random() < 0.2
            self.world.log(Call(message_id, call_id, name, ref, cut, parent))
            args = {
                "write_file": {"file_path": f"/{ref}.txt", "content": ref},
                "task": {"description": ref, "subagent_type": "helper"},
            }.get(name, {} if name.startswith("transfer") else {"ref": ref})
            call = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
            if cut:
                cut_off = {
                    "args": json.dumps(args)[:-2],
                    "error": "cut",
                    "type": "invalid_tool_call",
                }
                invalid.append({**call, **cut_off})
            else:
                calls.append(call)
        return AIMessage("", id=message_id, tool_calls=calls, invalid_tool_calls=invalid)
