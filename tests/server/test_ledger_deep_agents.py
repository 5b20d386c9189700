"""The random scenarios of the ledger with deepagents, and those in which processes are killed."""

import pytest

from ledger.agents import KINDS
from ledger.check import check, differences
from ledger.session import scenario

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBER = list(KINDS).index("deep_agent")
KILLED = [seed for seed in range(40) if "kill" in scenario(seed).events]


@pytest.mark.parametrize("seed", sorted({*range(NUMBER, 60, len(KINDS)), *KILLED}))
def test_models_read_nothing_false(seed):
    """No statement is false, no certain result is lost, no call runs twice, no thread dies."""
    _, problems, transcript = check(seed)
    assert not problems, f"{problems}\n{transcript}"


def test_healthy_runs_are_those_of_the_bare_graph():
    """The state and what models read are the same; its own middleware has other tasks."""
    assert differences(len(KINDS) * 7 + NUMBER) == []
