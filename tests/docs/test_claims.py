"""Each claim of `tests/CLAIMS.md` has its tests, and each break of `tests/breaks.toml` its line."""

import re
import tomllib
from fnmatch import filter as matching

from support.paths import ROOT, TESTS

ROW = re.compile(r"^\| (?!-)(.+?) \| (`.+`) \|$", re.MULTILINE)
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def test_each_claim_has_its_tests():
    """A test that is renamed or deleted is missed here."""
    rows = ROW.findall((TESTS / "CLAIMS.md").read_text("utf-8"))
    files = (module.read_text("utf-8") for module in TESTS.rglob("test_*.py"))
    defined = {name for text in files for name in TEST.findall(text)}
    named = [(claim, name) for claim, tests in rows for name in re.findall(r"`([^`]+)`", tests)]
    assert [(claim, name) for claim, name in named if not matching(defined, name)] == []


def test_each_break_has_its_line_and_its_test():
    """A line that is gone can break nothing; `scripts/breaks.py` plays those that are there."""
    breaks = tomllib.loads((TESTS / "breaks.toml").read_text("utf-8"))["break"]
    assert len({each["promise"] for each in breaks}) == len(breaks)
    for each in breaks:
        text = (ROOT / "langgraph_patch" / each["file"]).read_text("utf-8")
        assert text.count(each["old"]) == 1, each
        if each["file"].endswith(".py"):
            compile(text.replace(each["old"], each["new"]), each["file"], "exec")
        module, _, name = each["test"].partition("::")
        assert name.partition("[")[0] in TEST.findall((TESTS / module).read_text("utf-8")), each
