"""Who writes the log: tools, and a model that calls them at random and refuses broken histories."""

import asyncio
import json
import random
import time
from functools import cache
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ensure_config
from langchain_core.tools import StructuredTool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

from ledger.world import REF, Call, Read, ToolEvent
from support.strict import RefusedError, refuse

TOOLS = {"send_email": 4, "wire_money": 4, "slow": 2, "boom": 2, "asks_twice": 1, "note": 2}
"""How often each tool is called, relative to the others."""
QUESTIONS = {"wire_money": 1, "asks_twice": 2}
SECONDS = {"wire_money": 0.01, "slow": 0.025, "boom": 0.01}
RUN = "ledger_run"
"""The key of the config with the number of the run: several runs may be at work at once."""


def _work(world, event, attempt, asks):
    """One execution of a tool: yields the seconds that it wants to sleep, then its result."""
    call = event.call
    text = f"{call.name} {call.ref} receipt-{event.execution}"
    for _ in range(QUESTIONS.get(call.name, 0) if asks else 0):
        world.log(event._replace(kind="asked"))
        label = str(interrupt(f"may I? {text}"))
        world.log(event._replace(kind="answered", label=label))
    mood = random.Random(call.ref)  # noqa: S311 - no secret
    fails_once, fails_late = mood.random() < 0.5, mood.random() < 0.5
    fails = call.name == "boom" and not (fails_once and attempt > 1)
    yield SECONDS.get(call.name, 0.0)
    if fails_late or not fails:
        world.log(event._replace(kind="effect"))
    if fails:
        world.log(event._replace(kind="raised"))
        raise RuntimeError(f"kaput {text}")
    yield SECONDS.get(call.name, 0.0)
    world.log(event._replace(kind="end"))
    message = ToolMessage(f"done: {text}", tool_call_id=event.label, name=call.name)
    note = Command(update={"notes": {call.ref: 1}, "messages": [message]})
    yield note if call.name == "note" else f"done: {text}"


def make_tool(world, name, *, asynchronous, asks=True):
    """The tool with that name. `asks`: whether it asks by itself."""

    def begin(ref, runtime):
        call_id = str(runtime.tool_call_id)
        alike = [call for _, call in world.all(Call) if (call.name, call.ref) == (name, ref)]
        [*_, call] = [call for call in alike if call.id == call_id] or alike
        with world.lock:
            attempt = 1 + sum(e.call == call and e.kind == "start" for _, e in world.all(ToolEvent))
            event = ToolEvent("start", len(world.entries), call, call_id)
            world.log(event)
        return _work(world, event, attempt, asks)

    def run(ref, runtime):
        for step in begin(ref, runtime):
            if not isinstance(step, float):
                return step
            time.sleep(step)
        return None

    async def arun(ref, runtime):
        for step in begin(ref, runtime):
            if not isinstance(step, float):
                return step
            await asyncio.sleep(step)
        return None

    body = {"func": None, "coroutine": arun} if asynchronous else {"func": run}
    return _template().model_copy(update={"name": name, "description": name, **body})


@cache
def _template():
    def template(ref: str, runtime: ToolRuntime) -> Any:
        """Do something."""

    return StructuredTool.from_function(template)  # once: to make the schema is slow


class EmptyHistoryError(ValueError):
    """The model was called without a message: LangGraph may do so for a goto or `invoke(None)`."""


class RandomModel(BaseChatModel):
    """Reads, logs, refuses or answers. `tools`: the tools that it calls, with their weights."""

    agent: str
    world: Any
    settings: Any
    tools: dict[str, int]

    @property
    def _llm_type(self):
        return "random"

    def bind_tools(self, tools, **_):
        return self

    async def _agenerate(self, messages, stop=None, run_manager=None, **_):
        return self._generate(messages)

    def _generate(self, messages, stop=None, run_manager=None, **_):
        world = self.world
        run = ensure_config()["configurable"].get(RUN, world.run)
        try:
            refuse(messages)
            if all(message.type == "system" for message in messages):
                raise EmptyHistoryError("there is no message")  # noqa: TRY301 - as a provider
        except (RefusedError, EmptyHistoryError) as error:
            world.log(Read(self.agent, run, tuple(messages), str(error)))
            raise
        with world.lock:  # of two runs at once, no two calls may have one ref
            number = sum(read.agent == self.agent for _, read in world.all(Read))
            world.log(Read(self.agent, run, tuple(messages), ""))
            return ChatResult(generations=[ChatGeneration(message=self._reply(messages, number))])

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
            handoff = name.startswith("transfer")
            if handoff or name in self.settings.once:
                gone = "transfer" if handoff else name
                tools = {n: w for n, w in tools.items() if not n.startswith(gone)}
            made = self.world.count(Call)
            same = self.settings.same_args and name in TOOLS and name != "note"
            ref = f"R{900 + sorted(TOOLS).index(name)}" if same else f"R{made}"
            ids = {"per_message": f"call_{index}", "function": f"functions.{name}:{index}"}
            call_id = {**ids, "twins": "call_0"}.get(self.settings.ids, f"call-{made}")
            cut = self.settings.malformed and draw.random() < 0.2
            self.world.log(Call(message_id, call_id, name, ref, cut, parent))
            args = {
                "write_file": {"file_path": f"/{ref}.txt", "content": ref},
                "write_todos": {"todos": [{"content": ref, "status": "pending"}]},
                "task": {"description": ref, "subagent_type": "helper"},
            }.get(name, {} if handoff else {"ref": ref})
            if cut:
                raw = json.dumps(args)[:-2]
                invalid.append({"name": name, "args": raw, "id": call_id, "error": "cut off"})
            else:
                calls.append({"name": name, "args": args, "id": call_id})
        return AIMessage("", id=message_id, tool_calls=calls, invalid_tool_calls=invalid)
