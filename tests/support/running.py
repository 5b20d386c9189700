"""Run graphs on one thread, synchronously and asynchronously."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from langchain_core.messages import BaseMessage

from support.agents import Graph, human, thread

sync_and_async = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
"""Runs a test twice: with `invoke` and with `ainvoke`."""


def pairs(first: Iterable[Any], second: Iterable[Any], *others: Iterable[Any]) -> list[Any]:
    """Each value of the first axis with each of the second; those of the others in turn."""
    axes = [list(each) for each in others]
    return [
        _row(a, b, *(each[(i + j * (k + 1)) % len(each)] for k, each in enumerate(axes)))
        for (i, a), (j, b) in product(enumerate(first), enumerate(second))
    ]


def in_turn(first: Iterable[Any], *others: Iterable[Any]) -> list[Any]:
    """Each value of the first axis once; those of the others in turn."""
    axes = [list(each) for each in others]
    return [_row(a, *(each[i % len(each)] for each in axes)) for i, a in enumerate(first)]


def _row(*values: Any) -> Any:
    return pytest.param(*values, id="-".join(map(_name, values)))


def _name(value: Any) -> str:
    named = getattr(value, "name", None) or getattr(value, "__name__", None)
    if isinstance(named, str):
        return named
    return str(value) if isinstance(value, str | int | None) else type(value).__name__


def input_of(value: Any) -> Any:
    """The input of a graph: a text is a human message, and messages become a state update."""
    if isinstance(value, str):
        value = human(value)
    if isinstance(value, BaseMessage):
        value = [value]
    return {"messages": value} if isinstance(value, list) else value


async def run(
    graph: Graph, value: Any, *, asynchronous: bool = False, config: Any = None, **options: Any
) -> Any:
    """Run the graph by `ainvoke`, or by `invoke` inside the running event loop."""
    config = config or thread()
    if asynchronous:
        return await graph.ainvoke(input_of(value), config, **options)
    return graph.invoke(input_of(value), config, **options)


async def run_in_worker(
    graph: Graph, value: Any, *, asynchronous: bool, config: Any = None, **options: Any
) -> Any:
    """Run the graph by `ainvoke`, or by `invoke` in a worker thread, where no event loop runs."""
    config = config or thread()
    if asynchronous:
        return await graph.ainvoke(input_of(value), config, **options)
    return await asyncio.to_thread(graph.invoke, input_of(value), config, **options)
