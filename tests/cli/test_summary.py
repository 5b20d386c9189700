"""The tally and the exit code of a repair."""

from argparse import Namespace

import pytest

from langgraph_patch.cli.arguments import CLEAN, DAMAGED, REFUSED
from langgraph_patch.cli.summary import Counts, summarize_repair
from langgraph_patch.threads import ThreadRepair
from langgraph_patch.threads.reports import ThreadReport

APPLY = Namespace(apply=True)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("repaired", CLEAN),
        ("healthy", CLEAN),
        ("planned", DAMAGED),
        *((outcome, REFUSED) for outcome in ("busy", "moved", "refused", "young")),
    ],
)
def test_each_outcome_is_counted(outcome, code, capsys):
    """A thread that was skipped, as by a run in progress on a server, is no success."""
    counts = Counts()
    counts.add(ThreadReport("1", "", "damaged", messages=3), ThreadRepair("1", "", outcome))
    assert summarize_repair(counts, APPLY) == code
    assert capsys.readouterr().err == f"langgraph-patch: 1 {outcome}.\n"
