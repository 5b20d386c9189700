"""What the package offers: its names, their reference, and their types."""

import ast
import importlib
import inspect
import re
import runpy
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import langgraph_patch
from langgraph_patch import errors, middleware, streaming, threads
from support.paths import PAGES, ROOT, TESTS

MODULES = {"lp": langgraph_patch, "streaming": streaming, "threads": threads}
PUBLIC = {name: getattr(module, name) for module in MODULES.values() for name in module.__all__}
PUBLIC["PatchToolCallsMiddleware"] = middleware.PatchToolCallsMiddleware
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


def test_all_is_every_public_name():
    """`__all__` equals the public names of the package; each is found when it is used."""
    listed = langgraph_patch.__all__
    assert set(listed) <= set(dir(langgraph_patch))
    for name in listed:
        assert getattr(langgraph_patch, name) is vars(langgraph_patch)[name]
    with pytest.raises(AttributeError, match="'langgraph_patch' has no attribute 'no_such_name'"):
        langgraph_patch.no_such_name  # noqa: B018 - it raises
    values = vars(langgraph_patch).items()
    named = {name for name, value in values if not isinstance(value, ModuleType)}
    assert set(listed) == {name for name in named if not name.startswith("_")}


def test_a_name_of_another_module_is_hinted_at():
    """A user who looks for a public name at the top level learns where it is."""
    for name in PUBLIC.keys() - {*langgraph_patch.__all__}:
        with pytest.raises(AttributeError, match=f"'{name}': it is in (.+)$") as raised:
            getattr(langgraph_patch, name)
        module = importlib.import_module(str(raised.value).rpartition(" ")[2])
        assert getattr(module, name) is PUBLIC[name]


@pytest.mark.parametrize("name", sorted(REFERENCE["PAGES"]))
def test_a_page_of_the_reference_is_what_the_docstrings_say(name):
    """A docstring that changes changes the page: `python scripts/reference.py` writes it anew."""
    assert PAGES[f"reference/{name}"].read_text("utf-8") == REFERENCE["page"](name)


def test_every_public_name_and_option_is_in_the_reference():
    """Each public name has a heading, and each of its options a type, a default and a meaning."""
    text = "".join(REFERENCE["page"](name) for name in REFERENCE["PAGES"])
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    documented = {*sections, *re.findall(r"[|`]-- (\w+)", text), "PatchError"}
    classes = (each for each in vars(errors).values() if inspect.isclass(each))
    raised = {each.__name__ for each in classes if each.__module__ == errors.__name__}
    assert PUBLIC.keys() | raised <= documented
    for name, value in PUBLIC.items():
        if inspect.isfunction(value) or "```py\n" + name + "(" in sections.get(name, ""):
            for option in inspect.signature(value).parameters:
                row = rf"^\| `{option}` \| `.+` \| (?:required|`.+`) \| [\w`].+ \|$"
                assert re.search(row, sections[name], re.MULTILINE), (name, option)


def test_a_public_name_and_a_long_function_has_a_docstring():
    """Elsewhere a docstring would often say what the name, the types and one line of code say."""
    classes = [each for each in PUBLIC.values() if inspect.isclass(each)]
    members = [vars(each)[name] for each in classes for name in vars(each) if name[0] != "_"]
    found = [each for each in (*PUBLIC.values(), *members) if _is_described(each)]
    assert [each for each in found if not inspect.getdoc(each)] == []
    for file in (ROOT / "langgraph_patch").rglob("*.py"):
        long = _long_functions(ast.parse(file.read_text("utf-8")))
        assert [each.name for each in long if not ast.get_docstring(each)] == [], file


def _is_described(value: object) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value) or isinstance(value, property)


def _long_functions(tree: ast.AST) -> Iterator[Any]:
    """The functions and methods of more than two lines, but for private ones."""
    for each in ast.iter_child_nodes(tree):
        is_public = not getattr(each, "name", "_").startswith("_")
        if isinstance(each, ast.ClassDef) and is_public:
            yield from _long_functions(each)
        is_function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and is_public and each.body[-1].end_lineno - each.body[0].lineno >= 2:
            yield each


def test_the_users_file_uses_every_public_name():
    """No name is public and has no stated type: a strict type checker reads this file."""
    file = TESTS / "support" / "typed_user.py"
    used = {ast.unparse(n) for n in ast.walk(ast.parse(file.read_text("utf-8")))}
    for name, module in MODULES.items():
        assert {each for each in module.__all__ if f"{name}.{each}" not in used} == set()
