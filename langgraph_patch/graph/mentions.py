"""What the code of a node or a router mentions: a question to a human, or a model.

Before a request is sent again, the calls at the end of a history get placeholders, so that a strict
provider accepts it. But a gate asks its human about a call only if it finds that call open. Nothing
may run because a gate has found a placeholder there, so a node that mentions `interrupt` is not run
with one: it ends with the refusal, as the bare node does.

The code is read as LangGraph reads it to find subgraphs: the names in a function, and what they
stand for in its closure, its module and its object. What is looked up at run time is not found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
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
    return _mentions(runnable, lambda v: v is interrupt or "interrupt" in _names_in(v))


def may_call_model(runnable: object) -> bool:
    """Whether a function that a runnable calls mentions a chat model, also through others."""
    return _mentions(runnable, lambda value: isinstance(value, BaseChatModel))


def _mentions(value: Any, is_wanted: Callable[[object], bool]) -> bool:
    """Whether a value, or one that it may call, is a wanted one."""
    seen, left = dict[object, object](), [value]
    while left:
        value = left.pop()
        is_method = isinstance(value, MethodType)  # made anew each time
        key = (id(value.__func__), id(value.__self__)) if is_method else id(value)
        if key in seen:
            continue
        if is_wanted(value):
            return True
        seen[key] = value
        left += _called_by(value)
    return False


def _names_in(value: object) -> Collection[str]:
    """The names in a function and in those that it defines; none in anything else."""
    code = getattr(value, "__code__", value)
    if not isinstance(code, CodeType):
        return ()
    return {*code.co_names}.union(*map(_names_in, code.co_consts))


def _called_by(value: Any) -> Iterator[object]:
    """What a function, a method, a partial, a runnable or a callable may call."""
    if isinstance(value, BaseChatModel | BaseTool | type):
        return
    if isinstance(value, FunctionType):
        yield from _values_of(value)
    elif isinstance(value, MethodType):
        yield value.__func__
        for name in _names_in(value.__func__):
            own = getattr(value.__self__, "__dict__", {})
            found = own.get(name) or getattr(type(value.__self__), name, None)
            yield MethodType(found, value.__self__) if isinstance(found, FunctionType) else found
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, Runnable) and _is_of_library(type(value)):
        own = getattr(value, "__dict__", {}).values()
        yield from (each for each in own if callable(each) or isinstance(each, Runnable))
        yield from getattr(value, "steps", ())
    elif callable(value):
        call = type(value).__call__
        yield MethodType(call, value) if isinstance(call, FunctionType) else None


def _values_of(function: FunctionType) -> Iterator[object]:
    """What the names in a function stand for, and what it has in its closure."""
    if _is_of_library(function):
        return
    for name in _names_in(function):
        yield function.__globals__.get(name)
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the name has no value yet
            continue


def _is_of_library(value: object) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _LIBRARIES
