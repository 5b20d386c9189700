"""A scenario: what its seed decides, its thread while it runs, and what happens to it."""

import asyncio
import os
import pickle
import random
import re
import sqlite3
import tempfile
import threading
import time
import warnings
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from langgraph_patch import with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import repair_thread, scan_threads
from ledger.agents import KINDS, ROUTERS, RUN, SETTINGS, RandomModel, World, make_tool
from support.retention import JOBS

CONFIG = {"configurable": {"thread_id": "1"}}
EXPLAINED = re.compile(
    "StartedError|it has run before|kaput|saver failed|there is no message|EmptyInputError|"
    "CancelledError"
)
"""What runs may raise. A thread is dead after any other error, and after a refused history."""

EVENTS = {
    "message": 5, "resume": 5, "resume_partly": 2, "go_on": 2, "goto": 1.5, "fork": 1.5,
    "saver_fault": 1, "disturbed": 4.5, "kill": 1, "edit": 3, "repair": 2.5,
}  # fmt: skip
"""The events and how often they happen. A job that deletes old checkpoints comes beside them."""

ONCE = ("send_email", "wire_money")
"""The tools that run once in a thread whose checkpoints a job deletes."""

MAY_LOSE = {"tool_node", "send", "react_v1", "react_v2", "create_agent", "gate"}
"""The kinds whose checkpoints a job may delete."""


def scenario(seed):
    """Everything that a seed decides, but for the draws of the events."""
    draw = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    name, kind = list(KINDS.items())[seed % len(KINDS)]
    chosen = draw.choices(list(EVENTS), list(EVENTS.values()), k=draw.randint(2, 8))
    asynchronous = draw.random() < 0.5 and "kill" not in chosen
    options = {each: draw.random() < 0.4 and each in kind.may for each in SETTINGS}
    settings = SimpleNamespace(
        **options,
        seed=seed,
        name=name,
        events=["message", *chosen, "message", "message"],
        asynchronous=asynchronous,
        coroutines=asynchronous and draw.random() < 0.7,
        sqlite=not asynchronous and (draw.random() < 0.5 or "kill" in chosen),
        durability=draw.choices(["sync", "async", "exit"], [4, 4, 2])[0],
        ids=draw.choices(["unique", "per_message", "twins"], [6, 2, 1])[0],
        malformed=draw.random() < 0.2,  # whether some calls have incomplete arguments
        never=() if draw.random() < 0.7 else ("boom",),  # the tools that are not called
        once=("transfer",),  # the tools that are called once in a message
        router=draw.choice(list(ROUTERS)) if "router" in kind.may else "name",
    )
    settings.own_tasks = kind.own_tasks or settings.record or settings.router == "sends"
    jobs = random.Random(f"jobs {seed}")  # noqa: S311 - its own draws: the others stay as they are
    may_lose = settings.sqlite and name in MAY_LOSE and not settings.middleware
    # A second answer to a hook begins before the record that a job has deleted: docs/pages/once.md.
    may_lose &= not (settings.approval and "fork" in chosen)
    # What a DeltaChannel has is in older checkpoints: without them LangGraph reads no history.
    is_stored = settings.durability != "exit" and "kill" not in chosen and not settings.delta
    settings.runs_once = ONCE if may_lose and is_stored else ()
    for _ in range(jobs.randint(1, 2) if settings.runs_once else 0):
        settings.events.insert(jobs.randint(1, len(chosen) + 1), "retention")
    return settings


class Session:
    """A scenario while it runs."""

    def __init__(self, settings, folder="", *, wrapped=True):
        self.settings, self.kind, self.world = settings, KINDS[settings.name], World()
        self.folder, self.wrapped, self.draw = Path(folder), wrapped, random.Random()  # noqa: S311
        self.loop = asyncio.new_event_loop() if settings.asynchronous else None
        self.numbers, self.runs, self.hurt, self.dead = count(), [], [], ""
        self.given = {}  # the label of an answer by id -> the question and the number of the run
        self.answered = set()  # the ids of the interrupts that were answered
        self.edits = []  # the log entries at which the user edited the state
        self.deleted = 0  # the log entry at which the user deleted a message last
        # In which call the saver fails, how, and how often it did.
        self.fail_in, self.fault, self.faults = 0, "before", 0
        self.held = threading.RLock()
        self.open()

    def open(self):
        """Open the saver and make the graph."""
        self.saver, self.pool = InMemorySaver(), ThreadPoolExecutor(16)
        if self.settings.sqlite:
            self.saver = SqliteSaver(sqlite3.connect(self.folder / "db", check_same_thread=False))
        for name in ("get_tuple", "put", "put_writes", "list"):
            setattr(self.saver, name, self._may_fail(getattr(self.saver, name)))
        self.graph = self.kind.build(self)
        if self.loop is not None:
            self.loop.set_default_executor(self.pool)
            self.pool.submit(self.loop.run_forever)

    def _may_fail(self, method):
        """With a lock: in memory a thread that outlived its run may write while another reads."""

        def call(*args, **options):
            self.fail_in -= 1
            fails = self.fail_in == 0 or (self.fault == "outage" and self.fail_in < 0)
            self.faults += fails
            if fails and self.fault != "after":
                raise OSError("the saver failed")
            with self.held:
                found = method(*args, **options)
                found = iter([*found]) if method.__name__ == "list" else found
            if fails:
                raise OSError("the saver failed")
            return found

        return call

    def close(self):
        """End the threads that are left, and close the saver."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.pool.shutdown()
        if self.loop is not None:
            self.loop.close()
        if self.settings.sqlite:
            self.saver.conn.close()

    def model(self, agent, tools, *, kind=RandomModel):
        return kind(agent=agent, world=self.world, settings=self.settings, tools=tools)

    def tools(self, names, **options):
        coroutine = self.settings.coroutines
        return [make_tool(self.world, name, coroutine=coroutine, **options) for name in names]

    def patch(self, graph):
        is_bare = self.settings.middleware or not self.wrapped
        options = {"once": self.settings.runs_once} if self.settings.runs_once else {}
        return graph if is_bare else with_patching(graph, record=self.settings.record, **options)

    def middleware(self, *, always=False):
        wanted = self.wrapped and (always or self.settings.middleware)
        return [PatchToolCallsMiddleware()] if wanted else []

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
        run = SimpleNamespace(event=event, begin=begin, end=float("inf"), error="", waits=True)
        self.runs.append(run)
        self.world.run = len(self.runs) - 1
        yield run
        run.end = len(self.world.entries)

    def settle(self, future, run):
        """Wait for a run; the thread is dead if it fails and the event does not explain that."""
        try:
            future.result(30)
            run.waits = bool(self.state().next)
        except (Exception, CancelledError) as error:  # noqa: BLE001 - every failure is judged
            run.error = run.error or f"{type(error).__name__}: {error}"
            if self.world.calm or not EXPLAINED.search(f"{error!r} {error.__cause__!r}"):
                self.dead = self.dead or f"{run.event}: {run.error[:90]}"
        if not future.done() and not future.cancel():
            self.dead = f"{run.event}: a run did not end"

    def state(self):
        """The state; one without values if LangGraph cannot read it."""
        with suppress(Exception):
            return self.graph.get_state(CONFIG)
        return SimpleNamespace(values={}, interrupts=(), next=())


def happen(session, event):
    """Let an event happen; False if it does not apply."""
    draw, config, value = session.draw, CONFIG, None
    match event:
        case "turn":
            happen(session, "message")
            return [
                _ for _ in range(12) if session.state().interrupts and happen(session, "resume")
            ]
        case "disturbed" | "kill" | "edit" | "repair" | "retention":
            return _OTHERS[event](session)
        case "message":
            value = _human(session)
        case "resume" | "resume_partly":
            if not (pauses := session.state().interrupts):
                return False
            value = _answers(session, pauses if event == "resume" else [draw.choice(pauses)])
        case "goto":
            value = Command(goto=session.kind.entry)
        case "fork":
            if not (rows := [*session.graph.get_state_history(CONFIG)][1:8]):
                return False
            config = draw.choice(rows).config
            value = _human(session) if draw.random() < 0.7 else None
        case "saver_fault":
            value = _human_or_answers(session)
    session.fail_in = draw.randint(1, 14) if event == "saver_fault" else 0
    with session.noted(event) as run:
        session.settle(session.begin(value, config), run)
    session.fail_in = 0
    return None


def _human(session):
    number = f"h{next(session.numbers)}"
    return {"messages": [HumanMessage(f"please {number}", id=number)]}


def _answers(session, pauses):
    """An answer to each of these pauses, by its id."""
    answers = {}
    for pause in pauses:
        if isinstance(pause.value, dict):
            kinds = ["approve", "approve", "approve", "reject"]
            asked = pause.value["action_requests"]
            answer = {"decisions": [{"type": session.draw.choice(kinds)} for _ in asked]}
        else:
            answer = f"answer-{len(session.given)}"
            session.given[answer] = pause.value, len(session.runs)
        answers[pause.id] = answer
    session.answered |= answers.keys()
    return Command(resume=answers)


def _human_or_answers(session):
    if (pauses := session.state().interrupts) and session.draw.random() < 0.5:
        return _answers(session, pauses)
    return _human(session)


def _disturbed(session):
    """A run that is cancelled, or overtaken by a message, while its tools are at work."""
    cancels = session.loop and session.draw.random() < 0.6
    with session.noted("cancel" if cancels else "overtaken") as run:
        first = session.begin(_human_or_answers(session))
        time.sleep(session.draw.choice([0, 0.01, 0.02, 0.04, 0.06]))
        if cancels:
            first.cancel()
        else:
            with session.noted("overtaking") as second:
                session.settle(session.begin(_human(session)), second)
        session.settle(first, run)
        time.sleep(0.02)  # a cancelled run may still write


def _kill(session):
    """A process that is killed by SIGKILL in the middle of a tool's work."""
    world, file = session.world, session.folder / "log"
    with session.noted("kill"):
        value, count = _human_or_answers(session), session.draw.randint(1, 6)
        session.close()
        file.write_bytes(pickle.dumps(world.entries))
        if (child := os.fork()) == 0:
            try:
                session.open()
                world.file, world.kill_after = file, count
                session.graph.invoke(value, CONFIG, durability=session.settings.durability)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.open()
        world.entries = pickle.loads(file.read_bytes())  # noqa: S301 - our own file


def _edit(session):
    """The user stores the state as it is, or deletes a message."""
    draw, messages, values = session.draw, session.state().values.get("messages"), {"messages": []}
    if draw.random() < 0.5 and messages:
        session.deleted = len(session.world.entries)
        values = {"messages": [RemoveMessage(id=draw.choice(messages[-5:]).id)]}
    for as_node in (None, session.kind.entry):
        with suppress(Exception):  # "Ambiguous update", no such node, no thread
            session.graph.update_state(CONFIG, values, as_node=as_node)
            session.edits.append(len(session.world.entries))
            return None
    return False


def _repair(session):
    """A scan and a repair of the stored thread. A pause survives it unless it is abandoned.

    An interrupt behind whose answer a tool failed is none, though LangGraph still shows it.
    """
    before, on_pause = session.state(), session.draw.choice(["keep", "keep", "abandon"])
    if not before.values:
        return False
    list(scan_threads(session.saver))
    options = {"on_pause": on_pause, "min_age": 0.0}
    with session.noted("repair") as run:
        session.settle(session.pool.submit(repair_thread, session.saver, CONFIG, **options), run)
    after = session.state()
    same = (before.interrupts, before.next) == (after.interrupts, after.next)
    failed = session.answered if "kaput" in session.runs[-2].error else ()
    waits = any(pause.id not in failed for pause in before.interrupts)
    if on_pause == "keep" and waits and not same:
        session.hurt.append(("hurt", "a repair changed the pause"))
    return None


def _retention(session):
    """A job of the application deletes old checkpoints: what they recorded is not certain."""
    texts = JOBS[session.draw.choice(list(JOBS))]
    with session.noted("retention"), session.held, session.saver.conn as database:
        for text in texts:
            database.execute(text.format(writes="writes"))
    session.deleted = len(session.world.entries)


_OTHERS = {
    "disturbed": _disturbed,
    "kill": _kill,
    "edit": _edit,
    "repair": _repair,
    "retention": _retention,
}


def play(settings, *, wrapped=True):
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
