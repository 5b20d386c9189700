"""One scenario while it runs: its runs, its thread, and whether that is alive."""

import random
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from langgraph.errors import EmptyInputError, GraphInterrupt, GraphRecursionError

from ledger.actors import RUN, EmptyHistoryError
from ledger.agents import KINDS, Kit
from ledger.driver import Driver
from ledger.world import World
from support.strict import RefusedError

CONFIG = {"configurable": {"thread_id": "1"}}
EXPECTED = {
    "goto": EmptyHistoryError,
    "go_on": (EmptyHistoryError, EmptyInputError),
    "fork": (EmptyHistoryError, EmptyInputError),
    "recursion_limit": GraphRecursionError,
    # a GraphInterrupt: of a call that asks while another one is over its time
    "step_timeout": (TimeoutError, GraphInterrupt),
}
"""The errors that an event explains."""


@dataclass
class Run:
    """One run of the graph: the event, the log entries around it, and how it ended."""

    event: str
    begin: int
    end: float = float("inf")
    error: str = ""


class Session:
    """A scenario while it runs."""

    def __init__(self, settings, folder="", *, wrapped=True):
        self.settings, self.kind, self.world = settings, KINDS[settings.name], World()
        self.folder, self.wrapped, self.draw = Path(folder), wrapped, random.Random()
        path = self.folder / "db" if settings.sqlite else None
        self.driver = Driver(path, settings.durability, asynchronous=settings.asynchronous)
        self.names, self.runs, self.hurt, self.dead, self.values = 0, [], [], "", {}
        self.given = {}  # the label of an answer -> the question and the number of the run
        self.edits = []  # the log entries at which the user edited the state
        self.forgotten = set()  # the ids of messages that the user deleted
        self.build()

    def build(self):
        """Make the graph, with the saver that is open now."""
        self.graph = self.kind.build(
            Kit(self.world, self.settings, self.driver.saver, wrapped=self.wrapped)
        )

    def name(self, prefix):
        """A new name for a message or an answer."""
        self.names += 1
        return f"{prefix}{self.names}"

    # --- runs ------------------------------------------------------------------------------

    def begin(self, value, config=CONFIG):
        """Start a run of the graph. Its config has its number, which its model calls log."""
        own = {**CONFIG["configurable"], **config.get("configurable", {}), RUN: self.world.run}
        whole = {**config, "configurable": own}
        options = {"durability": self.settings.durability}
        return self.driver.begin(self.graph.invoke, self.graph.ainvoke, value, whole, **options)

    @contextmanager
    def noted(self, event):
        """Note the log entries of a run."""
        run = Run(event, len(self.world.entries))
        self.runs.append(run)
        self.world.run = len(self.runs) - 1
        yield run
        run.end = len(self.world.entries)

    def settle(self, future, run):
        """Wait for a run; the thread is dead if it fails and the event does not explain that."""
        try:
            future.result(30)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - every failure is judged
            run.error = run.error or f"{type(error).__name__}: {error}"
            text = f"{error!r} {error.__cause__!r}"
            explained = (
                "kaput" in text
                or "SaverFaultError" in text
                or isinstance(error, (CancelledError, *_tuple(EXPECTED.get(run.event))))
                or (run.event == "resume" and "multiple pending interrupts" in text)
            )
            if isinstance(error, RefusedError) or not explained:
                self.dead = self.dead or f"{run.event}: {run.error[:90]}"
        if not future.done() and not future.cancel():
            self.dead = f"{run.event}: a run did not end"

    def state(self):
        """The state; None if it cannot be read."""
        try:
            return self.graph.get_state(CONFIG)
        except Exception:  # noqa: BLE001 - a thread without a checkpoint
            return None

    def messages(self):
        """The history in the state."""
        state = self.state()
        return list(state.values.get("messages") or []) if state else []

    def pauses(self):
        """What the thread waits for."""
        state = self.state()
        return list(state.interrupts) if state else []


def _tuple(errors):
    return errors if isinstance(errors, tuple) else (errors,) if errors else ()
