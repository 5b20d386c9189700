"""A scenario: what its seed decides; and while it runs: its saver, its runs, its thread."""

import asyncio
import random
import sqlite3
import tempfile
import threading
import warnings
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError, GraphInterrupt, GraphRecursionError
from langgraph.prebuilt import ToolNode

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from ledger.actors import RUN, EmptyHistoryError, RandomModel, make_tool
from ledger.agents import KINDS
from ledger.world import World
from support.strict import RefusedError

CONFIG = {"configurable": {"thread_id": "1"}}
EXPECTED = {
    "goto": (EmptyHistoryError,),
    "go_on": (EmptyHistoryError, EmptyInputError),
    "fork": (EmptyHistoryError, EmptyInputError),
    "recursion_limit": (GraphRecursionError,),
    # a GraphInterrupt: of a call that asks while another one is over its time
    "step_timeout": (TimeoutError, GraphInterrupt),
}
"""The errors that an event explains."""


def scenario(seed, events, *, kills=True):
    """Everything that a seed decides, but for the draws of the events."""
    draw = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    name = list(KINDS)[seed % len(KINDS)]
    chosen = draw.choices(list(events), list(events.values()), k=draw.randint(2, 8))
    chosen = [event if kills or event != "kill" else "message" for event in chosen]
    asynchronous = draw.random() < 0.5 and "kill" not in chosen
    ids = draw.choices(["unique", "per_message", "function", "twins"], [6, 2, 1, 1])[0]
    return SimpleNamespace(
        seed=seed,
        name=name,
        events=chosen,
        asynchronous=asynchronous,
        coroutines=asynchronous and draw.random() < 0.7,
        sqlite=not asynchronous and (draw.random() < 0.5 or "kill" in chosen),
        durability=draw.choices(["sync", "async", "exit"], [4, 4, 2])[0],
        state=draw.choice(KINDS[name].states),
        retry=draw.random() < 0.2,  # whether the tools node has a RetryPolicy
        handle_errors=draw.random() < 0.3,  # whether a ToolNode turns errors into messages
        ids=ids,  # call_0 anew in each message; as some servers write them; one for a message
        malformed=draw.random() < 0.2,  # whether some calls have incomplete arguments
        same_args=ids == "unique" and draw.random() < 0.25,  # whether calls of a tool are alike
        never=() if draw.random() < 0.7 else ("boom",),  # the tools that are not called
        once=("write_todos",),  # those that are called once in a message
    )


class SaverFaultError(Exception):
    """What a saver raises that is made to fail."""


class _Fault:
    """A saver whose call number `fail_in` fails.

    With a lock: in memory a thread that outlived its run may write while another one reads.
    """

    fail_in, held = 0, threading.RLock()

    def __getattribute__(self, name):
        found = super().__getattribute__(name)

        def call(*args, **options):
            self.fail_in -= 1
            if not self.fail_in:
                raise SaverFaultError("the saver failed once")
            with self.held:
                result = found(*args, **options)
                return iter([*result]) if name == "list" else result

        return call if name in {"get_tuple", "put", "put_writes", "list"} else found


class _Memory(_Fault, InMemorySaver):
    pass


class _Sqlite(_Fault, SqliteSaver):
    pass


class Session:
    """A scenario while it runs."""

    def __init__(self, settings, folder="", *, wrapped=True):
        self.settings, self.kind, self.world = settings, KINDS[settings.name], World()
        self.folder, self.wrapped, self.draw = Path(folder), wrapped, random.Random()  # noqa: S311
        self.loop = asyncio.new_event_loop() if settings.asynchronous else None
        self.names, self.runs, self.hurt, self.dead, self.values = 0, [], [], "", {}
        self.given = {}  # the label of an answer by id -> the question and the number of the run
        self.edits = []  # the log entries at which the user edited the state
        self.forgotten = set()  # the ids of messages that the user deleted
        self.open()

    def open(self):
        """Open the saver and make the graph."""
        self.saver, self.pool = _Memory(), ThreadPoolExecutor(4)
        if self.settings.sqlite:
            self.saver = _Sqlite(sqlite3.connect(self.folder / "db", check_same_thread=False))
        if self.loop is not None:
            self.pool.submit(self.loop.run_forever)
        self.graph = self.kind.build(self)

    def close(self):
        """End the threads that are left, and close the saver."""
        if self.loop is not None:
            with suppress(TimeoutError):
                self.call(None, self.loop.shutdown_default_executor)
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.pool.shutdown()
        if self.settings.sqlite:
            self.saver.conn.close()

    def name(self, prefix):
        self.names += 1
        return f"{prefix}{self.names}"

    # --- the parts of a graph, which is patched if it is to be `wrapped`

    def model(self, agent, tools):
        return RandomModel(agent=agent, world=self.world, settings=self.settings, tools=tools)

    def tools(self, names, **options):
        options["asynchronous"] = self.settings.coroutines
        return [make_tool(self.world, name, **options) for name in names]

    def node(self, tools):
        options = {"handle_tool_errors": True} if self.settings.handle_errors else {}
        return ToolNode(tools, **options)

    def patch(self, graph, **options):
        return with_patching(graph, **options) if self.wrapped else graph

    def middleware(self):
        return [PatchToolCallsMiddleware()] if self.wrapped else []

    # --- runs ------------------------------------------------------------------------------

    def start(self, function, twin, *args, **options):
        """Call a function, or its asynchronous twin, and return a future. Iterators give lists."""

        def call():
            found = function(*args, **options)
            return list(found) if hasattr(found, "__next__") else found

        async def acall():
            found = twin(*args, **options)
            return [each async for each in found] if hasattr(found, "__aiter__") else await found

        if self.loop is None:
            return self.pool.submit(call)
        return asyncio.run_coroutine_threadsafe(acall(), self.loop)

    def call(self, *args, **options):
        return self.start(*args, **options).result(30)

    def begin(self, value, config=CONFIG):
        """Start a run of the graph. Its config has its number, which its model calls log."""
        own = {**CONFIG["configurable"], **config.get("configurable", {}), RUN: self.world.run}
        options = {"durability": self.settings.durability}
        whole = {**config, "configurable": own}
        return self.start(self.graph.invoke, self.graph.ainvoke, value, whole, **options)

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
            explained = "kaput" in text or "SaverFaultError" in text
            explained |= isinstance(error, (CancelledError, *EXPECTED.get(run.event, ())))
            explained |= run.event == "resume" and "multiple pending interrupts" in text
            if isinstance(error, RefusedError) or not explained:
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
            for number, event in enumerate(["message", *settings.events, "message", "message"]):
                session.draw.seed(f"event {settings.seed} {number}")
                session.world.calm = number > len(settings.events)
                if happen(session, event) is False:
                    happen(session, "message")
                if session.world.calm and session.runs[-1].error:
                    session.dead = session.dead or f"calm message: {session.runs[-1].error[:90]}"
                if session.dead:
                    break
            session.values = session.state().values
        finally:
            session.close()
    return session
