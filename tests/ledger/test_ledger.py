"""What models read agrees with what tools did, over random scenarios; and the judge can fail."""

import pytest

from ledger.agents import KINDS
from ledger.check import check, differences
from ledger.session import scenario

pytestmark = pytest.mark.filterwarnings("ignore")
CHUNKS = 5


def _check(seeds, *, kills=False):
    for seed in seeds:
        if ("kill" in scenario(seed).events) == kills:
            _, problems, transcript = check(seed)
            assert not problems, f"{problems}\nseed {seed}: {transcript}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_models_read_nothing_false(chunk, request):
    """No statement is false, no certain result is lost, no call runs twice, no thread dies."""
    seeds = 5_000 if request.config.getoption("--long") else 50
    _check(range(1 + chunk, 1 + seeds, CHUNKS))


@pytest.mark.slow
def test_models_read_nothing_false_after_a_kill():
    """The same, where processes are killed by SIGKILL."""
    _check(range(40), kills=True)


@pytest.mark.parametrize("number", range(len(KINDS)), ids=list(KINDS))
def test_healthy_runs_are_those_of_the_bare_graph(number):
    """State, checkpoints, writes and model calls are the same."""
    assert differences(len(KINDS) * 7 + number) == []


def test_bare_graphs_die():
    """Without the library, threads die in these scenarios: the judge can fail."""
    seeds = [seed for seed in range(20) if "kill" not in scenario(seed).events]
    assert sum("dead" in str(check(seed, wrapped=False)[1]) for seed in seeds) > 4
