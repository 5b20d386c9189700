"""The options and the fixtures of all tests."""

import gc
from collections import Counter

import hypothesis
import pytest

from langgraph_patch.cli import main
from support.paths import TESTS
from support.versions import reason_not_to_run

_LEFT_OUT = pytest.StashKey[Counter]()
"""How many tests were left out, by the version that they need."""

for _name, _examples in {"quick": 100, "long": 5_000}.items():
    hypothesis.settings.register_profile(
        _name, max_examples=_examples, deadline=None, derandomize=True, database=None
    )


def pytest_addoption(parser):
    """Add `--long`: the long form of each test that repeats, generates or kills something."""
    parser.addoption("--long", action="store_true")


def pytest_configure(config):
    """Choose the number of generated examples for each property: 100; 5,000 with `--long`."""
    hypothesis.settings.load_profile("long" if config.getoption("--long") else "quick")


def pytest_ignore_collect(collection_path, config):
    """Import no helper module, and nothing of `tests/server` in a run that leaves it out."""
    is_left_out = collection_path == TESTS / "server" and config.option.markexpr == "not server"
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_left_out or is_helper else None


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config, items):
    """Leave out tests that need a newer version of a package."""
    reasons = {item: reason_not_to_run(item) for item in items}
    left_out = Counter(filter(None, reasons.values()))
    config.stash[_LEFT_OUT] = left_out
    if hasattr(config, "workeroutput"):  # a worker of pytest-xdist; each collects all tests
        config.workeroutput["left_out"] = dict(left_out)
    config.hook.pytest_deselected(items=[item for item in items if reasons[item]])
    items[:] = [item for item in items if not reasons[item]]


def pytest_collection_finish():
    """Exclude what was imported from garbage collection: it is large, and it stays."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take the tests that were left out from a worker."""
    node.config.stash[_LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out"))


def pytest_terminal_summary(terminalreporter, config):
    """Print how many tests were left out, and why."""
    for reason, count in sorted(config.stash.get(_LEFT_OUT, Counter()).items()):
        terminalreporter.write_line(f"left out: {count} ({reason})")


@pytest.fixture
def cli(capsys):
    """Run the command line in this process: its exit code, its output and its error output."""

    def run(*arguments):
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        return code, out, err

    return run
