"""The ledger: an append-only log of what tools did, what models read and what they answered.

Nothing in here looks at LangGraph. A scenario that kills a process writes the log to a file as
well, entry by entry, so that the parent process can read what the killed one did.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage

RECEIPT = re.compile(r"receipt-(\d+)")
REF = re.compile(r"R\d+(?:E\d+)?")
ANSWER = re.compile(r"answer-\d+")
FINAL = re.compile(r"final-\d+")


class Key(NamedTuple):
    """The identity of a tool call. `ref` is in the arguments, and represents them."""

    message: str
    call: str
    name: str
    ref: str


class ToolEvent(NamedTuple):
    """Something that a tool did. `execution` is the number of the log entry of its start."""

    kind: Literal["start", "asked", "answered", "effect", "end", "raised"]
    execution: int
    key: Key
    agent: str
    attempt: int
    label: str = ""


class Emitted(NamedTuple):
    """A tool call that a model wrote. `parent` is the ref of the `task` call it works for."""

    key: Key
    agent: str
    malformed: bool
    parent: str


class FinalAnswer(NamedTuple):
    """A final answer of a model."""

    label: str
    agent: str
    parent: str


class Read(NamedTuple):
    """A model call: the messages that the model received, and the state of its node."""

    agent: str
    run: int
    messages: tuple[BaseMessage, ...]
    state: frozenset[str]
    refusal: str


Entry = ToolEvent | Emitted | FinalAnswer | Read
EntryT = TypeVar("EntryT", ToolEvent, Emitted, FinalAnswer, Read)


@dataclass
class World:
    """The log of one scenario.

    Attributes:
        entries: Everything that happened, in order.
        file: Where the log is written too, or None.
        run: The number of the current run of the graph.
        calm: Whether models only answer, without tool calls.
        states: For each agent and history, the refs found in the state that its model node
            received.
        kill_after: After how many more tool events this process kills itself; 0 for never.
    """

    file: Path | None = None
    entries: list[Entry] = field(default_factory=list)
    run: int = 0
    calm: bool = False
    states: dict[tuple[str, tuple[str | None, ...]], frozenset[str]] = field(default_factory=dict)
    kill_after: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def log(self, entry: Entry) -> int:
        """Append an entry and return its number. Kills the process if that was asked for."""
        with self.lock:
            self.entries.append(entry)
            if self.file is not None:
                with self.file.open("ab") as file:
                    pickle.dump(entry, file)
            if self.kill_after and isinstance(entry, ToolEvent):
                self.kill_after -= 1
                if not self.kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)
            return len(self.entries) - 1

    def reload(self) -> None:
        """Read the log again from the file: another process may have appended to it."""
        assert self.file is not None
        self.entries.clear()
        with self.file.open("rb") as file:
            while True:
                try:
                    self.entries.append(pickle.load(file))  # noqa: S301 - our own file
                except (EOFError, pickle.UnpicklingError):
                    return

    def start(self, key: Key, agent: str) -> ToolEvent:
        """Log that a tool starts; its number is the receipt of this execution."""
        with self.lock:
            number = len(self.entries)
            attempt = 1 + sum(e.key == key for _, e in self.all(ToolEvent) if e.kind == "start")
            event = ToolEvent("start", number, key, agent, attempt)
            self.log(event)
            return event

    def all(self, kind: type[EntryT]) -> Iterator[tuple[int, EntryT]]:
        """The entries of one kind, each with its number."""
        return ((n, e) for n, e in enumerate(list(self.entries)) if isinstance(e, kind))

    def count(self, kind: type[EntryT], agent: str | None = None) -> int:
        """How many entries of one kind there are, of one agent or of all."""
        return sum(agent in {None, e.agent} for _, e in self.all(kind))

    def tool_events(self) -> int:
        """How many tool events there are."""
        return sum(1 for _ in self.all(ToolEvent))

    def observe(self, agent: str, state: Any, messages: Sequence[BaseMessage]) -> None:
        """Keep the refs in `files`, `todos` and `notes` of the state that a model node gets."""
        self.states[agent, _turns(messages)] = refs_in_state(state)

    def observed(self, agent: str, messages: Sequence[BaseMessage]) -> frozenset[str]:
        """The refs in the state of the model node that calls its model with these messages.

        Two runs of one thread may call their models at once: their histories tell them apart.
        """
        return self.states.get((agent, _turns(messages)), frozenset())


def _turns(messages: Sequence[BaseMessage]) -> tuple[str | None, ...]:
    """The ids of the messages of the user and of the model, which no repair changes."""
    return tuple(message.id for message in messages if message.type in {"human", "ai"})


def refs_in_state(state: Any) -> frozenset[str]:
    """The refs of the files, todos and notes in a state."""
    if not isinstance(state, Mapping):
        return frozenset()
    return frozenset(
        f"{key}:{ref}"
        for key in ("files", "todos", "notes")
        for ref in REF.findall(repr(state.get(key)))
    )
