"""The private details of LangGraph that this package needs, and what is said if one is missing.

`details.toml` is the table: who has a detail, what is lost without it, and what becomes of that. A
name in this package is `owner.name` there. What a run reads, `read` reads; what is read of a graph,
`check` looks for when it is patched.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from inspect import signature
from itertools import count
from pathlib import Path
from typing import Any

from langgraph.graph import StateGraph
from langgraph.version import __version__

from langgraph_patch._text import read_table
from langgraph_patch.errors import GraphError, logger

TOLD: dict[str, count[int]] = {}
"""What was told of missing details, and how often each came."""


@cache
def table() -> Mapping[str, Any]:
    """The details by their owners and names, and `known`: the versions that have them."""
    details: Mapping[str, Any] = read_table(__package__, "details.toml")
    return details


def read(owner: Any, name: str, kind: Any = object, default: Any = None) -> Any:
    """The value of a detail; `default` if it is missing or something else, which is told.

    Args:
        owner: What has it: an object, or a dict with the key. Without an owner nothing is told.
        name: Its name.
        kind: What it is known to be. Default: anything.
        default: What is returned without it. Default: None.
    """
    own = name.partition(".")[2]
    try:  # `suppress` would be three times as slow
        value = owner[own] if isinstance(owner, dict) else getattr(owner, own)
    except Exception:  # noqa: BLE001 - a property may raise anything
        value = missing
    if value is not missing and isinstance(value, kind):
        return value
    if owner is not None:
        missing(name)
    return default


def check(owners: str, *having: Any) -> None:
    """Look for all details of some objects, and once for the names in LangGraph's code.

    Args:
        owners: What they are, in the table.
        *having: The objects.

    Raises:
        GraphError: If one is missing without which a graph cannot be patched.
    """
    for name in unknown_names():
        missing(name)
    for name, detail in _rows(owners).items():
        for owner in () if "before" in detail else having:
            value = read(owner, f"{owners}.{name}", default=missing)
            kinds = [kind.__name__ for kind in type(value).__mro__]
            takes = getattr(getattr(value, "__code__", None), "co_argcount", None)
            is_known = detail.get("kind", "object") in kinds and detail.get("takes", takes) == takes
            if value is missing or not is_known:
                missing(f"{owners}.{name}", raises=True)


def missing(name: str, *, raises: bool = False) -> None:
    """Tell once that a detail is missing, or raise an error if nothing can be done without it."""
    owner, _, own = name.partition(".")
    detail = table()["details"][owner][own]
    text = (
        f"LangGraph {__version__} {'seems not to' if 'before' in detail else 'does not'} have the "
        f"private detail {name!r} as langgraph-patch knows it from {table()['known']}: "
        f"{detail['lost']}. Install one of these versions, or a newer langgraph-patch."
    )
    if detail["without"] == "error" and raises:
        raise GraphError(text)
    # In one step: graphs run in several threads.
    if detail["without"] != "nothing" and next(TOLD.setdefault(text, count())) == 0:
        logger.warning("%s", text)


def explain(name: str, error: Exception) -> None:
    """Raise an error that says why a public name cannot be imported, if LangGraph is the cause."""
    if (getattr(error, "name", None) or "langgraph").startswith("langgraph"):  # else an extra
        known = f"langgraph-patch knows {table()['known']}"
        text = f"{name} cannot be used with LangGraph {__version__}: {error}. {known}."
        raise ImportError(text) from error


@cache
def unknown_names() -> list[str]:
    """The details that are names which LangGraph has not in its code, for all we know."""
    code = ""
    for name, module in [*sys.modules.items()]:
        if name.startswith("langgraph."):
            with suppress(OSError, TypeError, UnicodeDecodeError):  # no source
                code += Path(getattr(module, "__file__", None) or "").read_text("utf-8")
    return [
        f"{owner}.{name}"
        for owner in table()["details"]
        for name, detail in _rows(owner).items()
        if "before" in detail and code and f'"{name}{detail["before"]}' not in code
    ]


@cache
def _rows(owner: str) -> Mapping[str, Mapping[str, Any]]:
    """The details of an owner that this version of LangGraph has, by its public methods."""

    def has(method: str, parameter: str) -> bool:
        return parameter in signature(getattr(StateGraph, method, dict.get)).parameters

    details = table()["details"][owner].items()
    return {name: each for name, each in details if has(*each.get("with", ("add_node", "node")))}
