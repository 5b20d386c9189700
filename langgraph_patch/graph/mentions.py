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
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from langchain_core.runnables import Runnable, RunnableLambda

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
