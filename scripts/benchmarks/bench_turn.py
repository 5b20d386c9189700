"""What one turn of a long thread costs, bare and patched: healthy, streamed, and damaged."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from measuring import Row, compared, history, in_turns, spent

from kit import Desk, calls, loop
from langgraph_patch import with_patching

ROUNDS = 10
"""The rounds of tools in a long turn."""


def _script(rounds: int) -> list[AIMessage]:
    made = [calls(("mail", {"to": "bob"}), first=9_000 + n, id=f"x{n}") for n in range(rounds)]
    return [*made, AIMessage("done", id="x")]


class Turns:
    """Turns of an agent, each in a thread of its own with the same history.

    Args:
        messages: The history.
        rounds: The rounds of tools in a turn.
        patched: Whether the agent is patched.
        options: The options of a run.
    """

    def __init__(
        self, messages: list[BaseMessage], rounds: int, *, patched: bool, **options: Any
    ) -> None:
        self.saver = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
        self.messages, self.rounds, self.options = messages, rounds, options
        self.patched, self.threads, self.queries = patched, count(), 0

    def spent(self) -> float:
        """The CPU seconds of one turn."""
        config: Any = {"configurable": {"thread_id": str(next(self.threads))}}
        model = FakeMessagesListChatModel(responses=_script(self.rounds))  # it looks at nothing
        graph = loop(model, Desk().tools()).compile(checkpointer=self.saver)
        graph.update_state(config, {"messages": self.messages}, as_node="agent")
        graph = with_patching(graph) if self.patched else graph
        value = {"messages": [HumanMessage("go", id="go")]}
        return spent(lambda: deque(graph.stream(value, config, **self.options), 0))


def _compared(what: str, rounds: int, most: float, make: Callable[..., Turns]) -> Row:
    ways = {name: make(patched=name == "patched").spent for name in ("bare", "patched")}
    return compared(f"{what}, CPU", in_turns(ways, rounds), "patched", "bare", most=most)


def rows(*, quick: bool) -> Iterator[Row]:
    """A turn of ten rounds of tools, a short turn in long and short threads, a damaged one."""
    sizes, n = ((10, 20), 1) if quick else ((10, 1_000), 21)
    short, long = (history(max(size // 5, 1)) for size in sizes)
    tools = partial(Turns, long, ROUNDS, durability="exit")
    yield _compared(f"a turn of {ROUNDS} rounds, {len(long)} messages, exit", n, 1.10, tools)
    yield _compared(f"a turn, {len(long)} messages", n, 1.06, partial(Turns, long, 1))
    yield _compared(f"a turn, {len(short)} messages", n, 1.12, partial(Turns, short, 1))
