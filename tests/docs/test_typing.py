"""Types are an interface: a file of a user, which a strict type checker reads, has every name.

`tests/server/test_type_checker.py` runs the type checker.
"""

import ast

import pytest

import langgraph_patch
import langgraph_patch.streaming
import langgraph_patch.threads
from support.paths import TESTS

USER = TESTS / "support" / "typed_user.py"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("lp", langgraph_patch),
        ("streaming", langgraph_patch.streaming),
        ("threads", langgraph_patch.threads),
    ],
)
def test_the_users_file_uses_every_public_name(name, module):
    """No name is public and has no stated type."""
    used = {ast.unparse(n) for n in ast.walk(ast.parse(USER.read_text("utf-8")))}
    assert {each for each in module.__all__ if f"{name}.{each}" not in used} == set()
