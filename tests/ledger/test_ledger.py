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


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("unknown", "No result of CALL was recorded; it may or may not have run."),
        ("unknown", "No result of CALL is known; it may or may not have run."),
        ("unknown", "CALL has incomplete arguments; no result was recorded."),
        ("not run", "CALL was not run."),
        ("not run", "CALL was not run: its arguments are not a complete JSON object."),
        ("not run", "CALL was not run: it names no tool."),
        ("not run", "User rejected the tool call for `wire` with id c1."),
        ("no start recorded", "CALL: no start and no result were recorded."),
        ("no start recorded", "CALL was not approved; no start and no result were recorded."),
        ("waiting", "CALL is waiting for human input; no answer and no result were recorded."),
        ("waiting", "CALL was waiting for human input; no answer and no result were recorded."),
        ("failed", "CALL failed in its last recorded attempt: RuntimeError('kaput')"),
        ("timed out", "CALL timed out; it may have gone on: TimeoutError()"),
        ("cancelled", "CALL was cancelled - another message came in before it could"),
        ("cancellation", "CALL: a cancellation was recorded; it may have taken effect, in whole."),
        ("by client", "Successfully handled tool call."),
        ("result", "done: wire R1 receipt-3"),
        ("result", "Effects were not kept: notes. Its recorded result:\nreceipt-3"),
        ("effect", "Updated file /R1.txt"),
        ("answer", "final answer for R1"),
        ("handoff", "Successfully transferred to bob"),
        ("unclear", "something else"),
    ],
)  # fmt: skip
def test_each_text_is_recognised(kind, text):
    """Each text of the library, and of prebuilt tools, is a statement of one kind."""
    call = "tool call wire with id c1" if text.startswith("No") else "Tool call wire with id c1"
    assert meaning(text.replace("CALL", call))[0] == kind
