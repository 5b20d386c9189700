"""The rules for the test modules themselves."""

import re
from collections import Counter

from support.paths import TESTS

MODULES = sorted(TESTS.rglob("test_*.py"))


def test_no_test_module_imports_another():
    """What two test modules share is in `kit.py`, in `support` or in a `conftest.py`."""
    tests = {module.stem for module in MODULES}
    assert "test_test_layout" in tests
    found = []
    for path in MODULES:
        lines = re.findall(r"^ *(?:from|import) .*", path.read_text("utf-8"), re.MULTILINE)
        found += [(path.name, line) for line in lines if tests & set(re.findall(r"\w+", line))]
    assert found == []


def test_the_names_of_test_modules_are_unique():
    """Pytest imports each test module by its file name alone."""
    assert [name for name, count in Counter(p.name for p in MODULES).items() if count > 1] == []
