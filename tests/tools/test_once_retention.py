"""`once=[...]` beside jobs that delete old checkpoints: paid once, or a `StartedError`."""

from __future__ import annotations

import pytest

from support.retention import JOBS, MOMENTS, check, play

CASES = [(*case, n) for case in [(j, m) for j in JOBS for m in MOMENTS] for n in (False, True)]


def pytest_generate_tests(metafunc):
    """Play a fifth of the cases: each job and each moment; all with `--long`."""
    cases = CASES if metafunc.config.getoption("--long") else CASES[::5]
    metafunc.parametrize(("job", "moment", "neighbour"), cases)


@pytest.mark.needs(langgraph="1.2")
def test_a_job_that_deletes_checkpoints(job, moment, neighbour, tmp_path):
    """Before, while or after the tool works; answers come again, also to old checkpoints."""
    check(*play(str(tmp_path / "db"), job, moment, neighbour=neighbour))
