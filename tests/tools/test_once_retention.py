"""`once=[...]` beside jobs that delete old checkpoints: paid once, or a `StartedError`."""

from __future__ import annotations

from support.retention import JOBS, MOMENTS

CASES = [(*case, n) for case in [(j, m) for j in JOBS for m in MOMENTS] for n in (False, True)]


def pytest_generate_tests(metafunc):
    """Play a fifth of the cases: each job and each moment; all with `--long`."""
    cases = CASES if metafunc.config.getoption("--long") else CASES[::5]
    metafunc.parametrize(("job", "moment", "neighbour"), cases)
