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
    ("module", "public"),
    [
        ("langgraph_patch", langgraph_patch.__all__),
        ("langgraph_patch.streaming", langgraph_patch.streaming.__all__),
        ("langgraph_patch.threads", langgraph_patch.threads.__all__),
        ("langgraph_patch.middleware", ["PatchToolCallsMiddleware"]),
    ],
)
def test_the_users_file_uses_every_public_name(module, public):
    """No name is public and has no stated type."""
    tree = ast.parse(USER.read_text("utf-8"))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == module]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {alias.name for node in imports for alias in node.names} & used == set(public)
