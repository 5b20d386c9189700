"""What models read is compared with a ledger of what tools did, over random scenarios.

See the package `ledger`. Each false statement, each recorded result that is lost, each recorded
call that runs twice, a dead thread and a difference in a healthy run fail a test.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice

import pytest

from ledger.agents import KINDS
from ledger.healthy import differences
from ledger.report import replay_command
from ledger.run import problems, run_scenario
from ledger.scenario import Scenario
from ledger.texts import meaning

CHUNKS = 20
SHORT, LONG = 300, 5_000
KILLS = 20


@pytest.fixture(autouse=True)
def _quiet(caplog):
    for name in ("langgraph_patch", "concurrent.futures", "asyncio", "langgraph"):
        caplog.set_level(logging.CRITICAL + 1, logger=name)


def _problems_of(seed: int, *, kills: bool) -> str:
    """The transcript of a scenario with a problem, or nothing."""
    outcome = run_scenario(seed, kills=kills)
    new = [problem for problem in problems(outcome) if not problem.startswith("weak")]
    return f"{new}\n{outcome.transcript}\n{replay_command(seed)}" if new else ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_models_read_nothing_false(chunk, request):
    """Every statement about a tool call is true, and no recorded result is lost."""
    scenarios = LONG if request.config.getoption("--long") else SHORT
    for seed in islice(_seeds(), chunk, scenarios, CHUNKS):
        assert not (found := _problems_of(seed, kills=False)), found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_models_read_nothing_false_after_a_kill():
    """The same, where processes are killed by SIGKILL."""
    seeds = (n for n in range(1, 10_000) if "kill" in _events(n) and Scenario.of(n).sqlite)
    for seed, _ in zip(seeds, range(KILLS), strict=False):
        assert not (found := _problems_of(seed, kills=True)), found


def _seeds() -> Iterator[int]:
    """All seeds, but every second one of the deep agents, which are slow to build."""
    for seed in count(1):
        if "deep" not in Scenario.of(seed).kind.name or seed // len(KINDS) % 2:
            yield seed


def _events(seed: int) -> list[str]:
    return [event.__name__ for event in Scenario.of(seed).events]


@pytest.mark.sample(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(KINDS)), ids=list(KINDS))
def test_healthy_runs_are_those_of_the_bare_graph(number):
    """Streams, state, checkpoints, writes and model calls are the same."""
    assert differences(len(KINDS) * 7 + number) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_the_judge_finds_what_is_wrong_with_bare_graphs():
    """Without the library, threads die in these scenarios."""
    deaths = Counter(
        bool(run_scenario(seed, kills=False, wrapped=False).dead) for seed in range(36)
    )
    assert deaths[True] > 10


CALL = "Tool call wire with id c1"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            f"{CALL} was cancelled - another message came in before it could be completed.",
            "cancelled",
        ),
        (f"{CALL} was waiting for human input; no answer came and it did not finish.", "no_answer"),
        (f"{CALL} failed: RuntimeError('kaput')", "failed"),
        (f"{CALL} was not run.", "not_run"),
        (f"{CALL} was not run: its arguments are not a complete JSON object.", "not_run"),
        (f"{CALL} was not run: it names no tool.", "not_run"),
        (f"{CALL} could not be executed - arguments were malformed or truncated.", "not_run"),
        (
            (
                f"{CALL} did not complete - no result was recorded. It may have been cancelled or "
                "interrupted."
            ),
            "not_complete",
        ),
        (f"{CALL} failed in its last recorded attempt: RuntimeError('kaput')", "failed_recorded"),
        (f"{CALL} timed out; it may have gone on: TimeoutError()", "timed_out_recorded"),
        (
            (
                f"{CALL} was waiting for human input when another message came in; no answer and "
                "no result were recorded."
            ),
            "waiting_recorded",
        ),
        (
            f"{CALL} is waiting for human input; no answer and no result were recorded.",
            "waiting_recorded",
        ),
        (
            (
                f"{CALL} was not approved before another message came in; no start and no result "
                "were recorded."
            ),
            "not_approved_recorded",
        ),
        (f"{CALL}: no start and no result were recorded.", "not_started_recorded"),
        (
            "No start and no result of tool call wire with id c1 were recorded.",
            "not_started_recorded",
        ),
        (
            f"{CALL}: a cancellation was recorded; it may have taken effect, in whole or in part.",
            "cancel_recorded",
        ),
        (f"{CALL} has incomplete arguments; no result was recorded.", "no_result"),
        (
            "No result of tool call wire with id c1 was recorded; it may or may not have run.",
            "unknown",
        ),
        ("done: wire R1 receipt-3", "result"),
        ("Updated file /R1.txt", "effect"),
        ("Successfully transferred to bob", "handoff"),
        ("something else", "unclear"),
    ],
)
def test_meaning_knows_the_texts(text, kind):
    """Each text of today, and of the table in the design, is a statement of one kind."""
    assert meaning(text).kind == kind
