"""One scenario: a random agent, a random sequence of events, and the judge's verdicts."""

from __future__ import annotations

import random
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.errors import EmptyInputError, GraphInterrupt, GraphRecursionError

from ledger.agents import Kind
from ledger.checkpoints import Evidence, evidence_in
from ledger.driver import Driver
from ledger.events import kill, message
from ledger.facts import Run
from ledger.judge import Judge, Verdict
from ledger.kit import Kit
from ledger.model import RUN, EmptyHistoryError
from ledger.scenario import Scenario
from ledger.transcript import write_transcript
from ledger.world import RECEIPT, Read, ToolEvent, World, refs_in_state
from support.strict import RefusedError

RUN_TIMEOUT = 30.0
CONFIG = {"configurable": {"thread_id": "1"}}


@dataclass
class Outcome:
    """What came of a scenario.

    Attributes:
        scenario: The scenario.
        verdicts: The verdicts, without repetitions.
        judged: How many model calls were judged.
        statements: How many statements were judged, with repetitions.
        dead: Why the thread died, or "".
        hurt: The pauses that were hurt.
        twice: The recorded calls that ran twice.
        transcript: All that happened, for a reader.
        repaired: The calls that the library repaired, and what it wrote: see `Kit`.
    """

    scenario: Scenario
    verdicts: list[Verdict]
    judged: int
    statements: int
    dead: str
    hurt: list[str]
    twice: list[str]
    transcript: str = ""
    repaired: dict[str, str] = field(default_factory=dict)


@dataclass
class Session:
    """A scenario while it runs."""

    scenario: Scenario
    world: World
    driver: Driver
    kit: Kit
    graph: Any = None
    config: Any = field(default_factory=lambda: CONFIG)
    draw: random.Random = field(default_factory=random.Random)
    messages: int = 0
    answers: int = 0
    runs: list[Run] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    hurt: list[str] = field(default_factory=list)
    dead: str = ""

    @property
    def kind(self) -> Kind:
        """The kind of agent."""
        return self.scenario.kind

    def build(self) -> Any:
        """Make the graph, with the saver that is open now."""
        self.kit.saver = self.driver.saver
        return self.kind.build(self.kit)

    # --- running -------------------------------------------------------------------------

    def begin(self, value: Any, config: Any = None) -> Future[Any]:
        """Start a run of the graph. Its config has its number, which its model calls log."""
        whole = config or self.config
        numbered = {**whole["configurable"], RUN: len(self.runs) - 1}
        return self.driver.begin(self.graph, value, {**whole, "configurable": numbered})

    def run(
        self,
        event: str,
        value: Any,
        *,
        config: Any = None,
        replay: bool = False,
        answers: list[Any] | None = None,
    ) -> None:
        """Run the graph to its end, and note how that ended."""
        own = {**self.config["configurable"], **(config or {}).get("configurable", {})}
        whole = {**self.config, **(config or {}), "configurable": own}
        with self.recorded_run(event, whole, replay=replay) as run:
            run.has_input = isinstance(value, dict)
            self.settle(self.begin(value, whole), run)
        if answers and not run.error:
            self._check_answers(event, answers, run)

    @contextmanager
    def recorded_run(
        self, event: str, config: Any = None, *, replay: bool = False
    ) -> Iterator[Run]:
        """Note what is recorded before, and what the state is after."""
        before = evidence_in(*self._lineage(config or self.config)) if self.runs else Evidence()
        run = Run(event, before, len(self.world.entries), replay=replay)
        self.runs.append(run)
        outer, self.world.run = self.world.run, len(self.runs) - 1
        try:
            yield run
        finally:
            if self.runs.index(run) == self.world.run:
                self.world.run = outer if event == "overtaking" else self.world.run
            run.end = len(self.world.entries)
            run.state = refs_in_state(self.values())

    def settle(self, future: Future[Any], run: Run) -> None:
        """Wait for a run, and judge how it ended."""
        try:
            future.result(RUN_TIMEOUT)
        except CancelledError as error:
            run.error = run.error or repr(error)
        except FutureTimeoutError as error:
            if not future.done():
                future.cancel()
                self.dead = self.dead or f"{run.event}: a run did not end"
            self.failed(run, error)
        except Exception as error:  # noqa: BLE001 - every failure is judged
            self.failed(run, error)

    def failed(self, run: Run, error: BaseException) -> None:
        """Note how a run failed; the thread is dead unless the event explains it."""
        text = f"{type(error).__name__}: {error}"
        run.error = run.error or text
        if not _expected(run.event, error) and not self.dead:
            refused = [r.agent for _, r in self.world.all(Read) if r.refusal]
            if isinstance(error, RefusedError):
                text = f"RefusedError (read by {refused[-1]})"
            self.dead = f"{run.event}: {text[:80]}"

    def _lineage(self, config: Any) -> tuple[list[Any], str | None]:
        rows = self.rows()
        start = config["configurable"].get("checkpoint_id")
        roots = [r for r in rows if not r.config["configurable"].get("checkpoint_ns")]
        if start is None and roots:
            start = roots[0].config["configurable"]["checkpoint_id"]
        return rows, start

    def _check_answers(self, event: str, interrupts: list[Any], run: Run) -> None:
        """An answer to a live pause must have reached a tool that asked."""
        events = self.world.entries[run.begin :]
        reached = any(isinstance(e, ToolEvent) and e.kind == "answered" for e in events)
        # A pause in a run in which the saver failed may not be stored in full.
        reached = reached or (len(self.runs) > 1 and self.runs[-2].event == "saver_fault")
        by_tools = [i.value for i in interrupts if isinstance(i.value, str)]
        live = [asked for asked in by_tools if not self._has_ended(asked, run.begin)]
        if live and not reached:
            self.hurt.append(f"{event}: no tool got the answer to {live[0]}")

    def _has_ended(self, asked: str, before: int) -> bool:
        """Whether a tool that asked has ended: the run with its answer was cut off after that."""
        keys = {self.world.entries[int(number)].key for number in RECEIPT.findall(asked)}
        events = [event for n, event in self.world.all(ToolEvent) if n < before]
        return any(event.kind == "end" and event.key in keys for event in events)

    # --- looking -------------------------------------------------------------------------

    def rows(self) -> list[Any]:
        """All checkpoints of the thread."""
        return self.driver.rows(self.config)

    def values(self) -> Any:
        """The state."""
        try:
            return self.graph.get_state(self.config).values
        except Exception:  # noqa: BLE001 - a thread that cannot be read has no state
            return {}

    def messages_in_state(self) -> list[BaseMessage]:
        """The history in the state."""
        values = self.values()
        return list(values.get("messages") or []) if isinstance(values, dict) else []

    def interrupts(self) -> list[Any]:
        """What the thread waits for."""
        try:
            return list(self.graph.get_state(self.config).interrupts)
        except Exception:  # noqa: BLE001 - as above
            return []

    def pause(self) -> tuple[Any, ...]:
        """The ids of the interrupts and the next nodes; empty if nothing is waited for."""
        state = self.graph.get_state(self.config)
        ids = tuple(each.id for each in state.interrupts)
        return (ids, tuple(state.next)) if ids else ()

    def update(self, values: Any) -> bool:
        """Edit the state; say whether LangGraph let us."""
        for as_node in (None, self.kind.entry):
            try:
                if self.driver.asynchronous:
                    self.driver.wait(self.graph.aupdate_state(self.config, values, as_node))
                else:
                    self.graph.update_state(self.config, values, as_node)
            except Exception:  # noqa: BLE001, S112 - "Ambiguous update", no such node, no thread
                continue
            return True
        return False


def _expected(event: str, error: BaseException) -> bool:
    """Whether an error is the tool's own, the event's own, or LangGraph's answer to the caller."""
    text = f"{error!r} {error.__cause__!r}"
    if isinstance(error, RefusedError):
        return False
    if "kaput" in text or "SaverFaultError" in text or event == "resume_list":
        return True
    expected_in: dict[str, tuple[type[BaseException], ...]] = {
        "goto": (EmptyHistoryError,),
        "go_on": (EmptyHistoryError, EmptyInputError),
        "fork": (EmptyHistoryError, EmptyInputError),
        "recursion_limit": (GraphRecursionError,),
        # of a recorded call that asks while another one is over its time
        "step_timeout": (TimeoutError, FutureTimeoutError, GraphInterrupt),
    }
    if event == "resume" and "multiple pending interrupts" in text:
        return True
    return isinstance(error, expected_in.get(event, ()))


def run_scenario(
    seed: int, *, kills: bool = True, transcript: bool = False, wrapped: bool = True
) -> Outcome:
    """Run the scenario of that seed and judge it.

    Args:
        seed: Decides everything.
        kills: Whether processes are killed.
        transcript: Whether the outcome has a transcript although nothing is wrong.
        wrapped: Whether the graph is patched; if not, one sees what LangGraph does alone.
    """
    scenario = Scenario.of(seed, kills=kills)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = Path(folder) / "ledger" if kill in scenario.events and scenario.sqlite else None
        driver = Driver(
            asynchronous=scenario.asynchronous,
            path=Path(folder) / "db.sqlite" if scenario.sqlite else None,
            durability=scenario.durability,
        )
        world = World(file=log)
        session = Session(
            scenario, world, driver, make_kit(scenario, world, driver, wrapped=wrapped)
        )
        try:
            _play(session)
        finally:
            driver.close()
    return _judged(session, transcript=transcript)


def make_kit(scenario: Scenario, world: World, driver: Driver, *, wrapped: bool = True) -> Kit:
    """What the agent of that scenario is built of."""
    return Kit(
        world=world,
        habits=scenario.habits,
        saver=driver.saver,
        wrapped=wrapped,
        asynchronous=scenario.coroutines,
        state=scenario.state,
        retry=scenario.retry,
        handle_errors=scenario.handle_errors,
    )


def _play(session: Session) -> None:
    """The first message, the events, and two messages that any living thread answers."""
    session.graph = session.build()
    session.draw.seed(f"first {session.scenario.seed}")
    message(session)
    for number, event in enumerate(session.scenario.events):
        session.draw.seed(f"event {session.scenario.seed} {number}")
        if not event(session):
            message(session)
        if session.dead:
            return
    session.world.calm = True
    for _ in range(2):
        message(session)
        if session.runs[-1].error and not session.dead:
            session.dead = f"last message: {session.runs[-1].error[:160]}"


def _judged(session: Session, *, transcript: bool) -> Outcome:
    scenario = session.scenario
    judge = Judge(
        session.world,
        session.runs,
        approval=scenario.kind.approval,
        recorded=scenario.kind.recorded,
        own_tasks=scenario.kind.own_tasks,
        exit_only=scenario.durability == "exit",
        unordered=scenario.state == "delta" or "deep" in scenario.kind.name,
        forgotten=session.forgotten,
    )
    all_verdicts = list(judge.verdicts())
    distinct = {(v.outcome, v.label, v.key, v.text): v for v in reversed(all_verdicts)}
    outcome = Outcome(
        scenario=scenario,
        verdicts=list(reversed(distinct.values())),
        judged=sum(1 for _, read in session.world.all(Read)),
        statements=len(all_verdicts),
        dead=session.dead,
        hurt=session.hurt,
        twice=[f"{k.name} {k.ref}: receipts {a} and {b}" for k, a, b in judge.twice()]
        if scenario.kind.recorded
        else [],
        repaired=session.kit.repaired,
    )
    if transcript or is_bad(outcome):
        title = f"seed {scenario.seed}: {scenario.title}"
        lines = write_transcript(title, session.world, session.runs, outcome.verdicts)
        ends = [f"HURT {text}" for text in outcome.hurt] + [f"TWICE {t}" for t in outcome.twice]
        ends += [f"DEAD {outcome.dead}"] if outcome.dead else []
        outcome.transcript = "\n".join([lines, *ends])
    return outcome


def is_bad(outcome: Outcome) -> bool:
    """Whether anything is wrong."""
    wrong = any(v.outcome in {"false", "lost", "unclear"} for v in outcome.verdicts)
    return bool(wrong or outcome.dead or outcome.hurt or outcome.twice)


def problems(outcome: Outcome) -> Counter[str]:
    """The classes of what is wrong, as the table counts them."""
    found = Counter(
        f"{v.outcome}: {v.label or v.text[:60]}"
        for v in outcome.verdicts
        if v.outcome in {"false", "lost", "weak", "unclear"}
    )
    if outcome.dead:
        found[f"dead: {outcome.dead.partition(': ')[2][:60]}"] += 1
    found.update("hurt: " + text.partition(":")[0][:40] for text in outcome.hurt)
    found.update("twice" for _ in outcome.twice)
    return found
