"""An incident: many stored threads, broken in several ways, among healthy and paused ones."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from deepagents import create_deep_agent
from langchain_core.messages import HumanMessage

from kit import Agent, calls
from support.databases import copy_thread
from support.stored_threads import BOOM, MAIL, stored, thread, write
from support.thread_laws import ODD_CALLS


def deep(model: Any, tools: Any, saver: Any) -> Any:
    """A deep agent, whose history is in a `DeltaChannel`."""
    return create_deep_agent(model, tools, checkpointer=saver)


def _deep(saver: Any, name: str) -> Agent:
    made = Agent(deep, calls(MAIL, BOOM), saver=saver)
    made.config = thread(name)
    with suppress(RuntimeError):
        made.say("go")
    return made


def _malformed(saver: Any, name: str) -> Agent:
    made = write(stored("new", "agent", saver, name), [HumanMessage("go", id="h1")])
    cut = ODD_CALLS["incomplete"].model_copy(update={"id": "a1"})
    return write(made, [cut, HumanMessage("and?", id="h2")], "model")


BROKEN = {
    "abandoned": lambda saver, name: stored("abandoned", "agent", saver, name),
    "failed": lambda saver, name: stored("failed", "agent", saver, name),
    "unrecorded": lambda saver, name: stored("abandoned", "hand_built", saver, name),
    "delta": lambda saver, name: stored("failed_and_on", "delta", saver, name),
    "malformed": _malformed,
    "deep": _deep,
}
"""Six ways in which a thread breaks."""


def make_incident(
    saver: Any, *, each: int = 10, paused: int = 7, healthy: int = 133
) -> dict[str, Agent]:
    """Store the threads; for the id of each the agent, which speaks in it."""
    agents: dict[str, Agent] = {}
    kinds = {**dict.fromkeys(BROKEN, each), "paused": paused, "healthy": healthy}
    for kind, count in kinds.items():
        first = f"{kind}-000"
        make = BROKEN.get(kind, lambda saver, name, way=kind: stored(way, "agent", saver, name))
        made = make(saver, first)
        for number in range(count):
            name = f"{kind}-{number:03}"
            if number:
                copy_thread(saver, first, name)
            agents[name] = made
    return agents


def say(agents: dict[str, Agent], name: str, text: str) -> Any:
    """Let the user of a thread write; the history after it."""
    made = agents[name]
    made.config = thread(name)
    made.say(text)
    return made.history


# --- what happens to a command ---------------------------------------------------------------


@contextmanager
def ctrl_c_after(seconds: float) -> Iterator[None]:
    """Press Ctrl-C once, after a time."""

    def press(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Proxy:
    """A loopback port before the socket of a PostgreSQL server; it can cut a connection.

    Attributes:
        port: The port.
        cut_at: The connection is cut at this message of the client; 0 for none. An even message is
            passed on before that, so that the server acts, and its answer is lost.
        seen: How many messages there were.
    """

    def __init__(self, path: str) -> None:
        self.path, self.cut_at, self.seen = path, 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, socket.socket(socket.AF_UNIX) as server:
                    server.connect(self.path)
                    self._talk(client, server)

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            for source in select.select([client, server], [], [])[0]:
                data = source.recv(65536)
                self.seen += source is client
                is_cut = 0 < self.cut_at == self.seen
                if data and not (is_cut and self.cut_at % 2):
                    (server if source is client else client).sendall(data)
                if is_cut and data:
                    time.sleep(0.1)  # the server acts
                if is_cut or not data:
                    return
