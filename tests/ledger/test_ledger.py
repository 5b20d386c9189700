"""What models read agrees with what tools did, over random scenarios; and the judge can fail."""

import logging
from itertools import count, islice

import pytest

from ledger.agents import KINDS
from ledger.check import check, differences
from ledger.session import scenario

pytestmark = pytest.mark.filterwarnings("ignore")
CHUNKS = 5


@pytest.fixture(autouse=True)
def _quiet(caplog):
    for name in ("langgraph_patch", "concurrent.futures", "asyncio", "langgraph"):
        caplog.set_level(logging.CRITICAL + 1, logger=name)


def _check(seeds, **options):
    for seed in seeds:
        _, problems, transcript = check(seed, **options)
        assert not problems, f"{problems}\nseed {seed}: {transcript}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_models_read_nothing_false(chunk, request):
    """No statement is false, no certain result is lost, no call runs twice, no thread dies."""
    seeds = 5_000 if request.config.getoption("--long") else 50
    _check(range(1 + chunk, 1 + seeds, CHUNKS), kills=False)


@pytest.mark.slow
def test_models_read_nothing_false_after_a_kill():
    """The same, where processes are killed by SIGKILL."""
    _check(islice((n for n in count() if "kill" in scenario(n).events), 10))


@pytest.mark.parametrize("number", range(len(KINDS)), ids=list(KINDS))
def test_healthy_runs_are_those_of_the_bare_graph(number):
    """Streams, state, checkpoints, writes and model calls are the same."""
    assert differences(len(KINDS) * 7 + number) == []


def test_bare_graphs_die():
    """Without the library, threads die in these scenarios: the judge can fail."""
    found = [check(seed, kills=False, wrapped=False)[1] for seed in range(16)]
    assert sum("dead" in str(problems) for problems in found) > 4
