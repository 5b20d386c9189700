"""One scenario while it runs: what its seed decides, its runs, and whether its thread is alive."""

import random
import tempfile
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from langgraph.errors import EmptyInputError, GraphInterrupt, GraphRecursionError

from ledger.actors import RUN, EmptyHistoryError, Habits
from ledger.agents import KINDS, Kit
from ledger.driver import Driver
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


@dataclass
class Run:
    """One run of the graph: the event, the log entries around it, and how it ended."""

    event: str
    begin: int
    end: float = float("inf")
    error: str = ""


def scenario(seed, *, kills=True):
    """Everything that a seed decides, but for the draws of the events."""
    from ledger.events import EVENTS  # noqa: PLC0415 - events use sessions

    draw = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    name = list(KINDS)[seed % len(KINDS)]
    events = draw.choices(list(EVENTS), list(EVENTS.values()), k=draw.randint(2, 8))
    events = [event if kills or event != "kill" else "message" for event in events]
    asynchronous = draw.random() < 0.5 and "kill" not in events
    return SimpleNamespace(
        seed=seed,
        name=name,
        asynchronous=asynchronous,
        coroutines=asynchronous and draw.random() < 0.7,
        sqlite=draw.random() < 0.35 or "kill" in events,
        durability=draw.choices(["sync", "async", "exit"], [4, 4, 2])[0],
        state=draw.choice(KINDS[name].states),
        retry=draw.random() < 0.2,
        handle_errors=draw.random() < 0.3,
        habits=Habits(
            seed=seed,
            ids=draw.choices(["unique", "per_message", "function", "twins"], [6, 2, 1, 1])[0],
            malformed=draw.random() < 0.2,
            same_args=draw.random() < 0.15,
            boom=draw.random() < 0.7,
        ),
        events=events,
    )


class Session:
    """A scenario while it runs."""

    def __init__(self, settings, folder=None, *, wrapped=True):
        self.settings, self.kind, self.config = settings, KINDS[settings.name], CONFIG
        self.world = World(file=Path(folder, "log") if "kill" in settings.events else None)
        path = Path(folder, "db.sqlite") if settings.sqlite else None
        self.driver = Driver(path, settings.durability, asynchronous=settings.asynchronous)
        self.kit = Kit(
            self.world,
            settings.habits,
            self.driver.saver,
            wrapped=wrapped,
            asynchronous=settings.coroutines,
            state=settings.state,
            retry=settings.retry,
            handle_errors=settings.handle_errors,
        )
        self.draw, self.numbers = random.Random(), {"h": 0, "answer-": 0}
        self.runs, self.hurt, self.dead = [], [], ""
        self.asked = {}  # the answer -> the question that it was given to, by id
        self.edited = []  # the log entries at which the user edited the state
        self.forgotten = set()  # the ids of messages that the user deleted
        self.build()

    def build(self):
        """Make the graph, with the saver that is open now."""
        self.kit.saver = self.driver.saver
        self.graph = self.kind.build(self.kit)

    def next(self, prefix):
        """A new name for a message or an answer."""
        self.numbers[prefix] += 1
        return f"{prefix}{self.numbers[prefix]}"

    # --- runs ------------------------------------------------------------------------------

    def begin(self, value, config=CONFIG):
        """Start a run of the graph. Its config has its number, which its model calls log."""
        numbered = {**CONFIG["configurable"], **config.get("configurable", {})}
        numbered[RUN] = len(self.runs) - 1
        return self.driver.begin(self.graph, value, {**config, "configurable": numbered})

    def run(self, event, value, config=CONFIG):
        """Run the graph to its end, and note how that ended."""
        with self.noted(event) as run:
            self.settle(self.begin(value, config), run)

    @contextmanager
    def noted(self, event):
        """Note the log entries of a run."""
        run = Run(event, len(self.world.entries))
        self.runs.append(run)
        self.world.run = len(self.runs) - 1
        try:
            yield run
        finally:
            run.end = len(self.world.entries)

    def settle(self, future, run):
        """Wait for a run; the thread is dead if it fails and the event does not explain that."""
        try:
            future.result(30)
        except CancelledError as error:
            run.error = run.error or repr(error)
        except Exception as error:  # noqa: BLE001 - every failure is judged
            self.failed(run, error)
        if not future.done() and not future.cancel():
            self.dead = f"{run.event}: a run did not end"

    def failed(self, run, error):
        """Note how a run failed."""
        run.error = run.error or f"{type(error).__name__}: {error}"
        text = f"{error!r} {error.__cause__!r}"
        expected = "kaput" in text or "SaverFaultError" in text
        expected = expected or isinstance(error, EXPECTED.get(run.event, ()))
        expected = expected or (run.event == "resume" and "multiple pending interrupts" in text)
        if isinstance(error, RefusedError) or not expected:
            self.dead = self.dead or f"{run.event}: {run.error[:90]}"

    # --- the thread --------------------------------------------------------------------------

    def state(self):
        """The state: values, interrupts, next; None if it cannot be read."""
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

    def update(self, values):
        """Edit the state; say whether LangGraph allowed it."""
        for as_node in (None, self.kind.entry):
            try:
                if self.driver.loop:
                    self.driver.wait(self.graph.aupdate_state(CONFIG, values, as_node))
                else:
                    self.graph.update_state(CONFIG, values, as_node)
            except Exception:  # noqa: BLE001, S112 - "Ambiguous update", no such node, no thread
                continue
            self.edited.append(len(self.world.entries))
            return True
        return False


def play(seed, *, kills=True, wrapped=True):
    """Play the scenario of that seed: a message, its events, and two calm messages."""
    from ledger.events import happen  # noqa: PLC0415 - as above

    settings = scenario(seed, kills=kills)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(settings, folder, wrapped=wrapped)
        try:
            for number, event in enumerate(["message", *settings.events]):
                session.draw.seed(f"event {seed} {number}")
                if not happen(session, event):
                    happen(session, "message")
                if session.dead:
                    return session
            session.world.calm = True
            for _ in range(2):
                happen(session, "message")
                if session.runs[-1].error:
                    session.dead = session.dead or f"calm message: {session.runs[-1].error[:90]}"
            session.values = session.state().values if session.state() else {}
        finally:
            session.driver.close()
    return session
