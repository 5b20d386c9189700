"""The rules for the test modules themselves."""

import ast
from collections import Counter

from support.paths import TESTS

MODULES = sorted(TESTS.rglob("test_*.py"))


def imported_modules(path):
    """The name of each module that the file at `path` imports, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_test_module_imports_another():
    """What two test modules share is in `kit.py`, in `support` or in a `conftest.py`."""
    tests = {module.stem for module in MODULES}
    found = {
        path.name: [name for name in imported_modules(path) if tests & set(name.split("."))]
        for path in MODULES
    }
    assert {name: imported for name, imported in found.items() if imported} == {}


def test_the_names_of_test_modules_are_unique():
    """Pytest imports each test module by its file name alone."""
    assert [name for name, count in Counter(p.name for p in MODULES).items() if count > 1] == []
