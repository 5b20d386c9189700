"""What models read agrees with what tools did, over random scenarios; and the judge can fail."""

import logging
from itertools import islice

import pytest

from ledger.agents import KINDS
from ledger.events import EVENTS
from ledger.healthy import differences
from ledger.judge import meaning
from ledger.report import one
from ledger.session import scenario

pytestmark = pytest.mark.filterwarnings("ignore")
CHUNKS = 5


@pytest.fixture(autouse=True)
def _quiet(caplog):
    for name in ("langgraph_patch", "concurrent.futures", "asyncio", "langgraph"):
        caplog.set_level(logging.CRITICAL + 1, logger=name)


def _check(seeds, **options):
    for seed in seeds:
        _, labels, transcript = one(seed, **options)
        assert not labels, (
            f"{labels}\n{transcript}\npython tests/ledger --scenarios 1 --seed {seed}"
        )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_models_read_nothing_false(chunk, request):
    """No statement is false, no certain result is lost, no call runs twice, no thread dies."""
    seeds = 5_000 if request.config.getoption("--long") else 50
    _check(range(1 + chunk, 1 + seeds, CHUNKS), kills=False)


@pytest.mark.slow
def test_models_read_nothing_false_after_a_kill():
    """The same, where processes are killed by SIGKILL."""
    _check(islice((n for n in range(10_000) if "kill" in scenario(n, EVENTS).events), 10))


@pytest.mark.parametrize("number", range(len(KINDS)), ids=list(KINDS))
def test_healthy_runs_are_those_of_the_bare_graph(number):
    """Streams, state, checkpoints, writes and model calls are the same."""
    assert differences(len(KINDS) * 7 + number) == []


def test_bare_graphs_die():
    """Without the library, threads die in these scenarios: the judge can fail."""
    dead = [one(seed, kills=False, wrapped=False)[0]["dead"] for seed in range(16)]
    assert sum(dead) > 4


CALL = "Tool call wire with id c1"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "No result of tool call wire with id c1 was recorded; it may or may not have run.",
            "unknown",
        ),
        ("No result of tool call wire with id c1 is known; it may or may not have run.", "unknown"),
        (f"{CALL} has incomplete arguments; no result was recorded.", "unknown"),
        (f"{CALL} was not run.", "not run"),
        (f"{CALL} was not run: its arguments are not a complete JSON object.", "not run"),
        (f"{CALL} was not run: it names no tool.", "not run"),
        (f"{CALL}: no start and no result were recorded.", "no start recorded"),
        (f"{CALL} was not approved; no start and no result were recorded.", "no start recorded"),
        (f"{CALL} is waiting for human input; no answer and no result were recorded.", "waiting"),
        (f"{CALL} failed in its last recorded attempt: RuntimeError('kaput')", "failed"),
        (f"{CALL} timed out; it may have gone on: TimeoutError()", "timed out"),
        (
            f"{CALL}: a cancellation was recorded; it may have taken effect, in whole",
            "cancellation",
        ),
        (f"{CALL} was cancelled - another message came in before", "cancelled"),
        ("done: wire R1 receipt-3", "result"),
        ("Updated file /R1.txt", "effect"),
        ("Successfully transferred to bob", "handoff"),
        ("something else", "unclear"),
    ],
)
def test_each_text_is_recognised(text, kind):
    """Each text of the library, and of prebuilt tools, is a statement of one kind."""
    assert meaning(text)[0] == kind
