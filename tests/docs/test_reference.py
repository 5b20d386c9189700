"""The pages of the reference are those that `scripts/reference.py` makes of the code."""

import inspect
import re
import runpy

import pytest

import langgraph_patch
from langgraph_patch import errors, middleware, streaming, threads
from support.paths import PAGES, ROOT

REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


@pytest.mark.parametrize("name", sorted(REFERENCE["PAGES"]))
def test_a_page_of_the_reference_is_what_the_docstrings_say(name):
    """A docstring that changes changes the page: `python scripts/reference.py` writes it anew."""
    assert PAGES[f"reference/{name}"].read_text("utf-8") == REFERENCE["page"](name)


def test_every_public_name_and_option_is_in_the_reference():
    """Each public name has a heading, and each of its options a type, a default and a meaning."""
    modules = (langgraph_patch, threads, streaming)
    public = {n: getattr(module, n) for module in modules for n in module.__all__}
    public["PatchToolCallsMiddleware"] = middleware.PatchToolCallsMiddleware
    text = "".join(REFERENCE["page"](name) for name in REFERENCE["PAGES"])
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    documented = {*sections, *re.findall(r"[|`]-- (\w+)", text), "PatchError"}
    raised = {
        each.__name__ for each in vars(errors).values() if repr(each).startswith("<class 'la")
    }
    assert public.keys() | raised <= documented
    for name, value in public.items():
        if inspect.isfunction(value) or "```py\n" + name + "(" in sections.get(name, ""):
            for option in inspect.signature(value).parameters:
                row = rf"^\| `{option}` \| `.+` \| (?:required|`.+`) \| [\w`].+ \|$"
                assert re.search(row, sections[name], re.MULTILINE), (name, option)
