"""A scenario: what its seed decides; and while it runs: its saver, its runs, its thread."""

import asyncio
import random
import sqlite3
import tempfile
import threading
import warnings
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from ledger.actors import RUN, EmptyHistoryError, RandomModel, make_tool
from ledger.agents import KINDS, SETTINGS
from ledger.world import World
from support.strict import RefusedError

CONFIG = {"configurable": {"thread_id": "1"}}
EXPLAINED = (EmptyHistoryError, EmptyInputError, CancelledError)
"""What runs may raise, but for the errors of tools and of a saver that is made to fail."""


def scenario(seed, events, *, kills=True):
    """Everything that a seed decides, but for the draws of the events."""
    draw = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    name = list(KINDS)[seed % len(KINDS)]
    kind = KINDS[name]
    chosen = draw.choices(list(events), list(events.values()), k=draw.randint(2, 8))
    chosen = [event if kills or event != "kill" else "message" for event in chosen]
    asynchronous = draw.random() < 0.5 and "kill" not in chosen
    options = {each: draw.random() < 0.4 and each in kind.may for each in SETTINGS}
    return SimpleNamespace(
        **options,
        seed=seed,
        name=name,
        own_tasks=kind.own_tasks or options["record"],
        events=["message", *chosen, "message", "message"],
        asynchronous=asynchronous,
        coroutines=asynchronous and draw.random() < 0.7,
        sqlite=not asynchronous and (draw.random() < 0.5 or "kill" in chosen),
        durability=draw.choices(["sync", "async", "exit"], [4, 4, 2])[0],
        ids=draw.choices(["unique", "per_message", "twins"], [6, 2, 1])[0],
        malformed=draw.random() < 0.2,  # whether some calls have incomplete arguments
        never=() if draw.random() < 0.7 else ("boom",),  # the tools that are not called
        once=("transfer",),  # the tools that are called once in a message
    )


class SaverFaultError(Exception):
    """What a saver raises that is made to fail."""


class Session:
    """A scenario while it runs."""

    def __init__(self, settings, folder="", *, wrapped=True):
        self.settings, self.kind, self.world = settings, KINDS[settings.name], World()
        self.folder, self.wrapped, self.draw = Path(folder), wrapped, random.Random()  # noqa: S311
        self.loop = asyncio.new_event_loop() if settings.asynchronous else None
        self.numbers, self.runs, self.hurt, self.dead = count(), [], [], ""
        self.given = {}  # the label of an answer by id -> the question and the number of the run
        self.edits = []  # the log entries at which the user edited the state
        self.forgotten = set()  # the ids of messages that the user deleted
        self.fail_in, self.held = 0, threading.RLock()  # in which call the saver fails
        self.open()

    def open(self):
        """Open the saver and make the graph."""
        self.saver, self.pool = InMemorySaver(), ThreadPoolExecutor(16)
        if self.settings.sqlite:
            self.saver = SqliteSaver(sqlite3.connect(self.folder / "db", check_same_thread=False))
        for name in ("get_tuple", "put", "put_writes", "list"):
            setattr(self.saver, name, self._may_fail(getattr(self.saver, name)))
        if self.loop is not None:
            self.loop.set_default_executor(self.pool)
            self.pool.submit(self.loop.run_forever)
        self.graph = self.kind.build(self)

    def _may_fail(self, method):
        """With a lock: in memory a thread that outlived its run may write while another reads."""

        def call(*args, **options):
            self.fail_in -= 1
            if not self.fail_in:
                raise SaverFaultError("the saver failed once")
            with self.held:
                found = method(*args, **options)
                return iter([*found]) if method.__name__ == "list" else found

        return call

    def close(self):
        """End the threads that are left, and close the saver."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.pool.shutdown()
        if self.settings.sqlite:
            self.saver.conn.close()

    # --- the parts of a graph, which is patched if it is to be `wrapped`

    def model(self, agent, tools):
        return RandomModel(agent=agent, world=self.world, settings=self.settings, tools=tools)

    def tools(self, names, **options):
        coroutine = self.settings.coroutines
        return [make_tool(self.world, name, coroutine=coroutine, **options) for name in names]

    def patch(self, graph):
        is_bare = self.settings.middleware or not self.wrapped
        return graph if is_bare else with_patching(graph, record=self.settings.record)

    def middleware(self, *, always=False):
        wanted = self.wrapped and (always or self.settings.middleware)
        return [PatchToolCallsMiddleware()] if wanted else []

    # --- runs ------------------------------------------------------------------------------

    def begin(self, value, config=CONFIG):
        """Start a run of the graph. Its config has its number, which its model calls log."""
        own = {"configurable": {**config["configurable"], RUN: self.world.run}}
        durability = self.settings.durability
        if self.loop is None:
            return self.pool.submit(self.graph.invoke, value, own, durability=durability)
        run = self.graph.ainvoke(value, own, durability=durability)
        return asyncio.run_coroutine_threadsafe(run, self.loop)

    @contextmanager
    def noted(self, event):
        begin = len(self.world.entries)
        run = SimpleNamespace(event=event, begin=begin, end=float("inf"), error="")
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
            explained = "kaput" in text or "SaverFaultError" in text or isinstance(error, EXPLAINED)
            if self.world.calm or isinstance(error, RefusedError) or not explained:
                self.dead = self.dead or f"{run.event}: {run.error[:90]}"
        if not future.done() and not future.cancel():
            self.dead = f"{run.event}: a run did not end"

    def state(self):
        """The state; one without values if LangGraph cannot read it."""
        with suppress(Exception):
            return self.graph.get_state(CONFIG)
        return SimpleNamespace(values={}, interrupts=(), next=())


def play(settings, happen, *, wrapped=True):
    """Play a scenario: a message, its events, and two calm messages."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(settings, folder, wrapped=wrapped)
        try:
            for number, event in enumerate(settings.events):
                session.draw.seed(f"event {settings.seed} {number}")
                session.world.calm = number >= len(settings.events) - 2 and event == "message"
                if happen(session, event) is False:
                    happen(session, "message")
                if session.dead:
                    break
            session.last = session.state()
        finally:
            session.close()
    return session
