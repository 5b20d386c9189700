"""Each claim of `tests/CLAIMS.md` has the tests that it names."""

import re
from fnmatch import filter as matching

from support.paths import TESTS

ROW = re.compile(r"^\| (?!-)(.+?) \| (`.+`) \|$", re.MULTILINE)
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def test_each_claim_has_its_tests():
    """A test that is renamed or deleted is missed here."""
    rows = ROW.findall((TESTS / "CLAIMS.md").read_text("utf-8"))
    files = (module.read_text("utf-8") for module in TESTS.rglob("test_*.py"))
    defined = {name for text in files for name in TEST.findall(text)}
    named = [(claim, name) for claim, tests in rows for name in re.findall(r"`([^`]+)`", tests)]
    assert [(claim, name) for claim, name in named if not matching(defined, name)] == []
