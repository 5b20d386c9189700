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
from collections.abc import Collection, Iterator
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

_MOST: Final = 500
"""How many values are looked at, those that are called at once first."""


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
    left = [runnable]
    for _ in range(_MOST):
        if not left:
            break
        value = left.pop(0)
        if value is interrupt or "interrupt" in _names_in(value):
            return True
        left += _called_by(value)
    return False


def _called_by(value: Any) -> Iterator[object]:
    """What a function, a method, a partial, a runnable or a callable object may call."""
    if isinstance(value, FunctionType | MethodType):
        function: Any = getattr(value, "__func__", value)
        found = [function.__globals__.get(name) for name in _names_in(value)]
        found += chain(function.__defaults__ or (), (function.__kwdefaults__ or {}).values())
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # the name has no value yet
                found.append(cell.cell_contents)
        yield from found
        for owner in (getattr(value, "__self__", None), *found):  # `approvals.ask` of a module
            for name in _names_in(value):
                yield _bound(getattr_static(owner, name, None), owner)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, Runnable) and _is_of_library(type(value)):
        if not isinstance(value, BaseChatModel | BaseTool):
            own = [part if isinstance(part, list) else [part] for part in vars(value).values()]
            yield from (p for p in chain(*own) if callable(p) or isinstance(p, Runnable))
    elif not isinstance(value, type):
        yield _bound(getattr_static(type(value), "__call__", None), value)


def _bound(found: object, owner: object) -> object:
    function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    return MethodType(function, owner) if isinstance(function, FunctionType) else found


def _names_in(value: object) -> Collection[str]:
    """The names in a function and in those that it defines; none in anything else."""
    function = value.__func__ if isinstance(value, MethodType) else value
    code = function.__code__ if isinstance(function, FunctionType) else function
    if not isinstance(code, CodeType) or _is_of_library(function):
        return ()
    return {*code.co_names}.union(*map(_names_in, code.co_consts))


def _is_of_library(value: object) -> bool:
    return str(getattr_static(value, "__module__", "")).partition(".")[0] in _LIBRARIES
