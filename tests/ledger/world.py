"""The log: what models wrote and read, and what tools did. Nothing here looks at LangGraph.

A scenario that kills a process writes the log to a file as well, so that the parent process can
read what the killed one did.
"""

import os
import pickle
import re
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

RECEIPT = re.compile(r"receipt-(\d+)")
REF = re.compile(r"R\d+(?:E\d+)?")


class Key(NamedTuple):
    """The identity of a tool call. `ref` is in the arguments, and represents them."""

    message: str
    call: str
    name: str
    ref: str


class Emitted(NamedTuple):
    """A tool call that a model wrote. `parent` is the ref of the `task` call it works for."""

    key: Key
    agent: str
    malformed: bool
    parent: str


class ToolEvent(NamedTuple):
    """`kind` is start, asked, answered, effect, end or raised; `execution` the number of the start.

    The number of the start is the receipt in the result.
    """

    kind: str
    execution: int
    key: Key
    agent: str
    label: str = ""


class Final(NamedTuple):
    """A final answer of a model."""

    label: str
    agent: str
    parent: str


class Read(NamedTuple):
    """A model call: the messages that the model received."""

    agent: str
    run: int
    messages: tuple
    refusal: str


@dataclass
class World:
    """The log of one scenario.

    Attributes:
        file: Where the log is written too, or None.
        entries: Everything that happened, in order.
        run: The number of the current run of the graph.
        calm: Whether models only answer, without tool calls.
        kill_after: After how many more tool events this process kills itself; 0 for never.
    """

    file: Path | None = None
    entries: list = field(default_factory=list)
    run: int = 0
    calm: bool = False
    kill_after: int = 0
    lock: Any = field(default_factory=threading.RLock)

    def log(self, entry):
        """Append an entry. Kills the process if that was asked for."""
        with self.lock:
            self.entries.append(entry)
            if self.file is not None:
                with self.file.open("ab") as file:
                    pickle.dump(entry, file)
            if self.kill_after and isinstance(entry, ToolEvent):
                self.kill_after -= 1
                if not self.kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)

    def reload(self):
        """Read the log again from the file: another process may have appended to it."""
        self.entries.clear()
        with self.file.open("rb") as file:
            while True:
                try:
                    self.entries.append(pickle.load(file))  # noqa: S301 - our own file
                except (EOFError, pickle.UnpicklingError):
                    return

    def all(self, kind):
        """The entries of one kind, each with its number."""
        return [(n, entry) for n, entry in enumerate(self.entries) if isinstance(entry, kind)]

    def count(self, kind, agent=None):
        """How many entries of one kind there are, of one agent or of all."""
        return sum(agent in {None, entry.agent} for _, entry in self.all(kind))

    def find(self, message, name, ref, call, nth=0):
        """The call that a model wrote: by its message, tool and arguments, then by its id.

        Repairs may rename the id. Of equal calls the complete ones come first, then the `nth`.
        """
        alike = [
            emitted
            for _, emitted in self.all(Emitted)
            if emitted.key.message == message and emitted.key.name == name
            if not ref or emitted.key.ref == ref
        ]
        alike = [emitted for emitted in alike if emitted.key.call == call] or alike
        alike.sort(key=lambda emitted: emitted.malformed)
        return alike[min(nth, len(alike) - 1)].key if alike else None
