"""`once=[...]` with processes: two answer at the same moment, and one is killed at a random moment.

With `--long`, each happens more often.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command, interrupt

from kit import KINDS, StrictModel, calls, results_in
from langgraph_patch import validate_messages
from langgraph_patch.errors import StartedError
from support.databases import open_saver
from support.placeholder_texts import STARTED, WAITED
from support.retention import JOBS, MOMENTS, check, play
from support.servers import forked

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]


@pytest.fixture(params=DATABASES)
def database(request: Any, tmp_path: Path) -> str:
    """A database that several processes open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").make())
    path = str(tmp_path / "db")
    with open_saver(path) as saver:
        saver.setup()
    return path


def agent_on(saver: Any, ledger: Path, kind: str = "create_agent") -> Any:
    """An agent whose tool asks a human, and then writes a line to a file."""

    def pay(amount: int) -> str:
        """Pay."""
        answer = interrupt("pay?")
        if answer == "no":
            return "declined"
        time.sleep(0.02)
        with ledger.open("a") as file:
            file.write("paid\n")
        time.sleep(0.02)
        return f"paid {amount}"

    def answer(read: Any) -> AIMessage:
        return calls(("pay", {"amount": 5})) if read[-1].text == "go" else AIMessage("done")

    model = StrictModel(script=[answer] * 9)
    tools = [StructuredTool.from_function(pay)]
    return KINDS[kind](model, tools, saver, once=["pay"])


def paid_in(ledger: Path) -> int:
    """How often the tool paid."""
    return len(ledger.read_text().split()) if ledger.exists() else 0


def say(text: str) -> Any:
    """The input of a run."""
    return {"messages": [HumanMessage(text)]}


# --- two answers ----------------------------------------------------------------------------


def answering(database: str, ledger: Path, config: Any, answer: str, at: float) -> int:
    """A process that answers at a moment."""

    def act() -> None:
        with open_saver(database) as saver:
            agent = agent_on(saver, ledger)
            while time.time() < at:
                pass
            try:
                agent.invoke(Command(resume=answer), config)
            except StartedError:
                os._exit(3)
            except BaseException:  # noqa: BLE001 - told by the exit code
                os._exit(4)

    return forked(act)


def check_next_turn(database: Any, ledger: Path, config: Any, kind: str = "create_agent") -> int:
    """Ask once more: it was paid once at most, and what the model reads of it is true."""
    with open_saver(database) as saver:
        agent = agent_on(saver, ledger, kind)
        agent.invoke(say("and?"), config)
        history = agent.get_state(config).values["messages"]
    read, paid = results_in(history)["c1"], paid_in(ledger)
    assert paid <= 1
    true = {
        "paid 5": paid == 1,
        "declined": paid == 0,
        STARTED.format("pay", "c1"): True,
        WAITED.format("pay", "c1"): paid == 0,
    }
    assert true.get(read), (read, paid)
    assert validate_messages(history) == []
    return paid


@pytest.mark.parametrize("answers", [("yes", "yes"), ("yes", "no")])
def test_two_processes_answer_at_the_same_moment(database, answers, tmp_path, pytestconfig):
    """Whatever comes first: it is paid once at most, and what the model reads is true."""
    codes = []
    for number in range(200 if pytestconfig.getoption("--long") else 3):
        ledger, config = tmp_path / f"{number}", {"configurable": {"thread_id": str(number)}}
        with open_saver(database) as saver:
            agent_on(saver, ledger).invoke(say("go"), config)
        at = time.time() + 0.2
        processes = [answering(database, ledger, config, each, at) for each in answers]
        ended = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in processes]
        codes += ended
        paid = check_next_turn(database, ledger, config)
        assert paid == 1 or "no" in answers
    assert set(codes) <= {0, 3}


# --- kill -9 --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "durability"), [("create_agent", "sync"), ("recorded", "async")])
def test_a_process_that_is_killed(database, kind, durability, tmp_path, pytestconfig):
    """At a random moment around the tool; then it is continued, and a message comes."""
    for number in range(50 if pytestconfig.getoption("--long") else 2):
        ledger, config = tmp_path / f"{number}", {"configurable": {"thread_id": str(number)}}

        def act(value: Any, ledger: Path = ledger, config: Any = config) -> None:
            with open_saver(database) as saver:
                agent = agent_on(saver, ledger, kind)
                try:
                    agent.invoke(value, config, durability=durability)
                except StartedError:
                    os._exit(3)

        with open_saver(database) as saver:
            agent_on(saver, ledger, kind).invoke(say("go"), config)
        child = forked(lambda act=act: act(Command(resume="yes")))
        time.sleep(random.uniform(0, 0.15))  # noqa: S311 - no secret; each run kills at other moments
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(os.waitpid(forked(lambda act=act: act(None)), 0)[1]) in (
            0,
            3,
        )
        check_next_turn(database, ledger, config, kind)


# --- jobs that delete checkpoints --------------------------------------------------------------


@pytest.mark.xdist_group("postgres")
def test_jobs_that_delete_checkpoints(postgres, pytestconfig):
    """On PostgreSQL: paid once, or a `StartedError`."""
    cases = [(job, moment, n) for job in JOBS for moment in MOMENTS for n in (False, True)]
    for job, moment, neighbour in cases if pytestconfig.getoption("--long") else cases[::5]:
        check(*play(postgres.make(), job, moment, neighbour=neighbour))
