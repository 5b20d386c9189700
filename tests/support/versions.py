"""What tests need of newer versions of LangGraph and other packages.

A test that needs one has the marker `needs(langgraph="1.2")`; the name of a package is written
with underscores. `needs("exit", langgraph="1.2")` is for the parameters whose id has "exit" in it.
With an older version it is not run and is counted (`tests/conftest.py`), so
that `scripts/versions.py` can print how many tests each version leaves out and why.
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from packaging.version import Version

BY_ID = {
    "bedrock": {"langchain_aws": "1.9"},
    "delta": {"langgraph": "1.2"},
    "snapshots": {"langgraph": "1.2"},
    "two calls, one index": {"langchain_core": "1.7"},
}
"""What each test with a parameter of this id needs."""


def newer(module: str, name: str) -> Any:
    """An attribute that older versions lack; a stand-in there, so that the module can be imported.

    Tests that use it are marked with what they need, so the stand-in is never used in a test.
    """
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return lambda *_, **__: None


def needs_of(item: Any) -> dict[str, str]:
    """The oldest version of each package that a test needs."""
    needed: dict[str, str] = {}
    parameters = getattr(getattr(item, "callspec", None), "id", "")
    for part in parameters.split("-"):
        needed |= BY_ID.get(part, {})
    for marker in item.iter_markers("needs"):
        if all(part in parameters for part in marker.args):
            needed |= marker.kwargs
    return needed


def reason_not_to_run(item: Any) -> str | None:
    """Which version a test needs and does not find; None if it can run."""
    for package, oldest in sorted(needs_of(item).items()):
        name = package.replace("_", "-")
        if Version(version(name)) < Version(oldest):
            return f"needs {name} {oldest}"
    return None
