"""Types are an interface: a file of a user, which a strict type checker reads, has every name.

`tests/server/test_type_checker.py` runs the type checker.
"""

import ast

import langgraph_patch as lp
from langgraph_patch import streaming, threads
from support.paths import TESTS

USER = TESTS / "support" / "typed_user.py"


def test_the_users_file_uses_every_public_name():
    """No name is public and has no stated type."""
    used = {ast.unparse(n) for n in ast.walk(ast.parse(USER.read_text("utf-8")))}
    for name, module in {"lp": lp, "streaming": streaming, "threads": threads}.items():
        assert {each for each in module.__all__ if f"{name}.{each}" not in used} == set()
