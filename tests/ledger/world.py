"""The log: what models wrote and read, and what tools did. Nothing here looks at LangGraph."""

import os
import pickle
import re
import signal
import threading
from typing import NamedTuple

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

    def count(self, kind):
        return len(self.all(kind))

    def find(self, message, name, ref, call_id):
        """The call of a message; repairs may rename its id, and handoffs have no ref."""
        alike = [
            call
            for _, call in self.all(Call)
            if (call.message, call.name) == (message, name) and (call.ref == ref or not ref)
        ]
        return min(alike, key=lambda call: (not call.malformed, call.id != call_id), default=None)
