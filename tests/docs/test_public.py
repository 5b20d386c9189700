"""What the package offers: its names, their reference, and their types."""

import ast
import inspect
import re
import runpy
from collections.abc import Iterator
from typing import Any

import pytest

import langgraph_patch
from langgraph_patch import errors, middleware, streaming, testing, threads
from support.paths import PAGES, ROOT, TESTS

NAMES = [*langgraph_patch.__all__, *middleware.__all__]  # `import *` must not need an extra
PUBLIC = {name: getattr(langgraph_patch, name) for name in NAMES}
TESTING = {name: getattr(testing, name) for name in testing.__all__}  # imported from there
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


def test_every_public_name_is_at_the_top_level():
    """`__all__` and `dir()` list each, it is loaded when it is used, and is that of its module."""
    source = ast.parse(inspect.getsource(langgraph_patch))
    imported = [each for each in ast.walk(source) if isinstance(each, ast.ImportFrom)]
    typed = {name.name: each.module for each in imported for name in each.names}
    places = vars(langgraph_patch)["_MODULES"].items()
    assert {name: f"langgraph_patch.{place}" for name, place in places} == typed
    assert sorted(typed) == sorted(NAMES)
    assert set(NAMES) <= set(dir(langgraph_patch))
    for module in (errors, middleware, streaming, threads):
        assert set(module.__all__) <= {*NAMES}
        assert all(getattr(module, name) is PUBLIC[name] for name in module.__all__)
    assert all(vars(langgraph_patch)[name] is value for name, value in PUBLIC.items())
    with pytest.raises(AttributeError, match="'langgraph_patch' has no attribute 'no_such_name'"):
        langgraph_patch.no_such_name  # noqa: B018 - it raises


def test_what_is_public_and_no_more_is_in_all():
    """A module's own public names are listed: what it imports is not offered."""
    for module in (errors, middleware):
        classes = (each for each in vars(module).values() if inspect.isclass(each))
        own = {each.__name__ for each in classes if each.__module__ == module.__name__}
        assert {name for name in own if name[0] != "_"} == set(module.__all__)


def test_a_docstring_cites_a_page_by_its_url():
    """Pages are not installed; each is where the Documentation of the project is."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    base = re.search(r'^Documentation = "(.*/)index\.md"$', project, re.MULTILINE)[1]
    sources = [file.read_text("utf-8") for file in (ROOT / "langgraph_patch").rglob("*.py")]
    cited = [found for text in sources for found in re.findall(r"\S*docs/pages/\S*?\.md", text)]
    assert cited
    assert {each.removeprefix(base).removesuffix(".md") for each in cited} <= PAGES.keys()


@pytest.mark.parametrize("name", sorted(REFERENCE["PAGES"]))
def test_a_page_of_the_reference_is_what_the_docstrings_say(name):
    """A docstring that changes changes the page: `python scripts/reference.py` writes it anew."""
    assert PAGES[f"reference/{name}"].read_text("utf-8") == REFERENCE["page"](name)


def test_a_page_that_stands_for_an_example_shows_the_name():
    """The reference leads to the code of a page that uses the name."""
    for name, (_, page) in REFERENCE["SHOWN"].items():
        text = PAGES[page].read_text("utf-8")
        blocks = re.findall(r"^```python.*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert re.search(rf"\b{name}\b", "".join(blocks)), (name, page)


def test_every_public_name_and_option_is_in_the_reference():
    """Each public name has a heading, and each of its options a type, a default and a meaning."""
    text = "".join(REFERENCE["page"](name) for name in REFERENCE["PAGES"])
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    documented = {*sections, *re.findall(r"[|`]-- (\w+)", text), "PatchError"}
    assert {*PUBLIC, *TESTING} <= documented
    for name, value in (PUBLIC | TESTING).items():
        if "\nSame as `" in sections.get(name, ""):  # an asynchronous twin
            continue
        if inspect.isfunction(value) or "```py\n" + name + "(" in sections.get(name, ""):
            for option in map(REFERENCE["name_of"], REFERENCE["parameters_of"](value)):
                own = rf"^- `{re.escape(option)}(?:=.+)?` \(`.+`\): [\w`].+$"
                line = rf"{own}|^- .*`{re.escape(option)}=[^`]+`.*: \[shared options\]"
                assert re.search(line, sections[name], re.MULTILINE), (name, option)


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
    assert [name for name in PUBLIC if f"lp.{name}" not in used] == []
    assert [name for name in TESTING if f"testing.{name}" not in used] == []
