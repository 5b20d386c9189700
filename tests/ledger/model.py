"""A chat model that calls tools at random, and refuses what a provider would refuse."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ensure_config

from ledger.world import REF, Emitted, FinalAnswer, Key, Read, World
from support.strict import RefusedError, refuse

LEDGER_TOOLS = {"send_email": 4, "wire_money": 4, "slow": 2, "boom": 2, "asks_twice": 1, "note": 2}
"""How often each tool is called, relative to the others."""

ONCE_A_MESSAGE = ("write_todos",)
RUN = "ledger_run"
"""The key of the config with the number of the run: several runs may be at work at once."""

MAX_ROUNDS = 3


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
        parallel_tasks: Whether a message may call several subagents; which of them is first to
            call its model is decided by threads.
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

    def __str__(self) -> str:
        return "there is no message"


class RandomModel(BaseChatModel):
    """Reads, logs, refuses or answers.

    Attributes:
        agent: Its name in the log.
        world: The log.
        habits: How it writes tool calls.
        tools: The tools that it calls, with their weights.
    """

    agent: str
    world: Any
    habits: Any
    tools: dict[str, int]

    @property
    def _llm_type(self) -> str:
        return "random"

    def bind_tools(self, tools: Any, **_: Any) -> RandomModel:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        return self._generate(messages)

    def _reply(self, messages: Sequence[BaseMessage]) -> AIMessage:
        world: World = self.world
        state = world.observed(self.agent, messages)
        run = ensure_config()["configurable"].get(RUN, world.run)
        try:
            _check(messages)
        except (RefusedError, EmptyHistoryError) as error:
            world.log(Read(self.agent, run, tuple(messages), state, str(error)))
            raise
        with world.lock:  # of two runs at once, no two calls may have one ref
            number = world.count(Read, self.agent)
            world.log(Read(self.agent, run, tuple(messages), state, ""))
            return self._answer(messages, number)

    def _answer(self, messages: Sequence[BaseMessage], number: int) -> AIMessage:
        world: World = self.world
        draw = random.Random(f"{self.habits.seed}/{self.agent}/{number}")  # noqa: S311 - no secret
        message_id = f"ai-{self.agent}-{number}"
        parent = self._parent(messages)
        if world.calm or not self._wants_tools(draw, messages):
            label = f"final-{world.count(FinalAnswer)}"
            world.log(FinalAnswer(label, self.agent, parent))
            return AIMessage(f"{self.agent} {label}", id=message_id)
        return self._calls(draw, message_id, parent)

    def _parent(self, messages: Sequence[BaseMessage]) -> str:
        """The ref of the `task` call that a subagent works for."""
        refs = [ref for m in messages if m.type == "human" for ref in REF.findall(m.text)]
        return refs[0] if refs and self.agent == "sub" else ""

    def _wants_tools(self, draw: random.Random, messages: Sequence[BaseMessage]) -> bool:
        rounds = 0
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                break
            rounds += isinstance(message, AIMessage)
        return rounds < MAX_ROUNDS and draw.random() < (0.3 if rounds else 0.9)

    def _calls(self, draw: random.Random, message_id: str, parent: str) -> AIMessage:
        names = self._names(draw)
        calls: list[Any] = []
        invalid: list[Any] = []
        for index, name in enumerate(names):
            number = self.world.count(Emitted)
            same = self.habits.same_args and name in LEDGER_TOOLS and name != "note"
            ref = f"R{900 + sorted(LEDGER_TOOLS).index(name)}" if same else f"R{number}"
            key = Key(message_id, self._id(name, index, number), name, ref)
            cut = self.habits.malformed and draw.random() < 0.2
            self.world.log(Emitted(key, self.agent, cut, parent))
            args = arguments(name, ref)
            if cut:
                raw = json.dumps(args)[:-2]
                invalid.append({"name": name, "args": raw, "id": key.call, "error": "cut off"})
            else:
                calls.append({"name": name, "args": args, "id": key.call})
        return AIMessage("", id=message_id, tool_calls=calls, invalid_tool_calls=invalid)

    def _names(self, draw: random.Random) -> list[str]:
        tools = {n: w for n, w in self.tools.items() if n != "boom" or self.habits.boom}
        names: list[str] = []
        for name in draw.choices(list(tools), list(tools.values()), k=draw.choice([1, 2, 2, 3])):
            single = name.startswith("transfer") or name in ONCE_A_MESSAGE
            single = single or (name == "task" and not self.habits.parallel_tasks)
            if not (single and any(n == name or n.startswith("transfer") for n in names)):
                names.append(name)
        return names

    def _id(self, name: str, index: int, number: int) -> str:
        match self.habits.ids:
            case "per_message":
                return f"call_{index}"
            case "function":
                return f"functions.{name}:{index}"
            case "twins":
                return "call_0"
            case _:
                return f"call-{number}"


def _check(messages: Sequence[BaseMessage]) -> None:
    """Refuse a history that a provider would refuse."""
    refuse(messages)
    if all(message.type == "system" for message in messages):
        raise EmptyHistoryError


def arguments(name: str, ref: str) -> dict[str, Any]:
    """The arguments of a call of that tool."""
    match name:
        case "write_file":
            return {"file_path": f"/{ref}.txt", "content": ref}
        case "write_todos":
            return {"todos": [{"content": ref, "status": "pending"}]}
        case "task":
            return {"description": ref, "subagent_type": "helper"}
        case _ if name.startswith("transfer"):
            return {}
        case _:
            return {"ref": ref}
