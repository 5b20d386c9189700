"""Whether the code of a node mentions `interrupt`: a careful guess, made after a refusal alone.

A node whose own model refuses an open call runs once more with a placeholder there. What it then
says behind the call ends the call. But a node that asks a human about each open call finds none in
that run. So a node that mentions `interrupt` is not run again: it ends with the refusal, as the
bare node does. More than that a wrong guess does not cost.

The code is read as LangGraph reads it to find subgraphs: the names in a function, and what they
stand for in its module, its closure and its object. Nothing is called, and no data is searched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from inspect import getattr_static
from itertools import chain
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.types import interrupt

_LIBRARIES: Final = {
    *("langchain", "langchain_core", "langgraph", "langsmith", "pydantic", "pytest"),
    *sys.stdlib_module_names,
}
"""Packages whose functions are not read: none of them asks for a node that does not say so."""

_MOST: Final = 2_000
"""How many values are looked at."""


def may_ask(runnable: object) -> bool:
    """Whether a function that a runnable calls mentions `interrupt`, also through others.

    Args:
        runnable: The runnable of a node, or a function.

    Examples:
        >>> from langgraph.types import interrupt
        >>> from langgraph_patch.graph.mentions import may_ask
        >>> def approved(call):
        ...     return interrupt(f"Run {call}?")
        >>> may_ask(lambda state: approved(state)), may_ask(lambda state: len(state))
        (True, False)
    """
    seen = dict[tuple[int, frozenset[str]], object]()
    left: list[tuple[object, frozenset[str]]] = [(runnable, frozenset())]
    while left and len(seen) < _MOST:
        value, names = left.pop()
        if value is interrupt or "interrupt" in names:
            return True
        if (id(value), names) not in seen:
            seen[id(value), names] = value
            left += _reached(value, names)
    return False


def _reached(value: Any, names: frozenset[str]) -> Iterator[tuple[object, frozenset[str]]]:
    """What a value may call, each with the names that are looked up in it.

    Args:
        value: A function, or what a name in one stands for.
        names: The names in that function: `approvals.ask` has both.
    """
    found: list[object] = []
    if isinstance(value, BaseChatModel | BaseTool) or _is_of_library(value):
        return
    if isinstance(value, FunctionType):
        names = _names_in(value)
        found += map(value.__globals__.get, names)
        found += chain(value.__defaults__ or (), (value.__kwdefaults__ or {}).values())
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # the name has no value yet
                found.append(cell.cell_contents)
    elif isinstance(value, MethodType | staticmethod | classmethod):
        yield value.__func__, frozenset()
        if isinstance(value, MethodType):
            yield value.__self__, _names_in(value.__func__)
    elif isinstance(value, partial):
        found += (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Runnable) and _is_of_library(type(value)):
        own = [part if isinstance(part, list) else [part] for part in vars(value).values()]
        found += (part for part in chain(*own) if callable(part) or isinstance(part, Runnable))
    else:  # a module, a class or an object
        found += (getattr_static(value, name, None) for name in (*_CALLS, *names))
        for each in found:
            yield value, _names_in(each)
    yield from ((each, names) for each in found)


_CALLS: Final = ("__call__", "invoke", "ainvoke")
"""The methods that are called without their name."""


def _names_in(value: object) -> frozenset[str]:
    """The names in a function and in those that it defines; none in anything else."""
    code = value if isinstance(value, CodeType) else None
    if isinstance(value, FunctionType) and not _is_of_library(value):
        code = value.__code__
    if code is None:
        return frozenset()
    return frozenset(code.co_names).union(*map(_names_in, code.co_consts))


def _is_of_library(value: object) -> bool:
    module = value.__module__ if isinstance(value, FunctionType | type) else ""
    return str(module).partition(".")[0] in _LIBRARIES
