"""What the package offers, and that it offers nothing else."""

import importlib
import importlib.metadata
import tomllib
from types import ModuleType

import pytest

import langgraph_patch
from langgraph_patch import middleware, streaming, threads
from support.paths import ROOT


def test_all_is_sorted_and_is_every_public_name():
    """`__all__` equals the public names of the package, in order; each is found when it is used."""
    listed = langgraph_patch.__all__
    assert set(listed) <= set(dir(langgraph_patch))
    for name in listed:
        assert getattr(langgraph_patch, name) is vars(langgraph_patch)[name]
    with pytest.raises(AttributeError, match="'langgraph_patch' has no attribute 'no_such_name'"):
        langgraph_patch.no_such_name  # noqa: B018 - it raises
    public = {
        name
        for name, value in vars(langgraph_patch).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(listed) == public
    assert listed == sorted(listed, key=lambda name: (not name.isupper(), name[0].islower(), name))


def test_a_name_of_another_module_is_hinted_at():
    """A user who looks for a public name at the top level learns where it is."""
    named = {
        **dict.fromkeys(threads.__all__, threads),
        **dict.fromkeys(streaming.__all__, streaming),
    }
    named["PatchToolCallsMiddleware"] = middleware
    for name, module in named.items():
        assert hasattr(module, name)
        with pytest.raises(AttributeError, match=f"'{name}': it is in {module.__name__}$"):
            getattr(langgraph_patch, name)


def test_the_version_is_that_of_the_distribution():
    """pyproject.toml reads the version from the package, so there is one place to change it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["dynamic"] == ["version"]
    assert langgraph_patch.__version__ == importlib.metadata.version("langgraph-patch")
