"""What models read agrees with what tools did, over random scenarios; and the judge can fail."""

from itertools import count, takewhile

import pytest

from ledger.agents import KINDS
from ledger.check import check, differences
from ledger.faults import EVENTS, FAULTS, play, settings_of
from ledger.session import ONCE, scenario

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBER = list(KINDS).index("deep_agent")

BROKEN = (3, 4, 10, 28)
"""Scenarios in which a message ends a pause or follows a failure: one for each kind of graph."""

FAST = (*range(1, 20), *range(22, 40), *range(41, 45))
"""Scenarios in which no search waits for seconds for a write that is still to come."""

KILLED = [seed for seed in range(40) if "kill" in scenario(seed).events]
SERVER = sorted({*range(NUMBER, 60, len(KINDS)), *KILLED})
"""Scenarios with deepagents, and those in which processes are killed."""


def pytest_generate_tests(metafunc):
    """Play these scenarios, or 5,000 with `--long`."""
    if "seed" in metafunc.fixturenames:
        seeds = range(1, 5_000) if metafunc.config.getoption("--long") else FAST
        played = [n for n in seeds if n % len(KINDS) != NUMBER and "kill" not in scenario(n).events]
        marked = [pytest.param(seed, marks=pytest.mark.server) for seed in SERVER]
        metafunc.parametrize("seed", [*played, *marked])


def test_models_read_nothing_false(seed):
    """No statement is false, no certain result is lost, no call runs twice, no thread dies."""
    _, problems, transcript = check(seed)
    assert not problems, f"{problems}\n{transcript}"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.server] * (number == NUMBER))
        for number, kind in enumerate(KINDS)
    ],
)
def test_healthy_runs_are_those_of_the_bare_graph(kind):
    """State, checkpoints, writes and model calls are the same, but for tasks of deepagents."""
    assert differences(len(KINDS) * 7 + list(KINDS).index(kind)) == []


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_each_call_of_the_checkpointer(event, fault):
    """Nothing false is read behind it, and no thread is dead; `ledger.faults` plays all kinds."""
    settings = settings_of("create_agent", asynchronous=False, durability="sync", runs_once=ONCE)
    plays = (play(settings, event, fault, place) for place in count(1))
    found = [*takewhile(lambda problems: problems is not None, plays)]
    assert len(found) > 9
    assert [*filter(None, found)] == []


@pytest.mark.parametrize("number", BROKEN)
def test_bare_graphs_die(number):
    """Without the library the thread dies: the judge can fail."""
    assert any(problem.startswith("dead") for problem in check(number, wrapped=False)[1])
