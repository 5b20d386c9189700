"""One body for the sync and the async version of anything that reads or writes.

A function that needs I/O is a generator: it yields what it asks for and is sent the answer.
`run` answers by calling, `arun` by awaiting, so that no twin is a copied file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ask:
    """One call to the outside, in both of its forms.

    Attributes:
        now: Calls it.
        later: Calls its async twin.
    """

    now: Callable[[], Any]
    later: Callable[[], Awaitable[Any]]


Steps: TypeAlias = Generator[Ask, Any, _T]
"""A function that asks for its I/O."""


def ask(target: Any, method: str, *args: Any, **kwargs: Any) -> Steps[Any]:
    """The result of a method that has a twin with an `a` before its name.

    Savers and graphs name their methods so: `get_tuple` and `aget_tuple`.
    """
    return (
        yield Ask(
            lambda: getattr(target, method)(*args, **kwargs),
            lambda: getattr(target, f"a{method}")(*args, **kwargs),
        )
    )


def run(steps: Steps[_T]) -> _T:
    """Run `steps`, each ask answered by a call.

    Example:
        >>> from langgraph.checkpoint.memory import InMemorySaver
        >>> from langgraph_patch._sansio import ask, run
        >>> run(ask(InMemorySaver(), "get_tuple", {"configurable": {"thread_id": "1"}}))
    """
    try:
        wanted = next(steps)
        while True:
            try:
                answer = wanted.now()
            except Exception as error:  # noqa: BLE001 - it belongs to the body that asked
                wanted = steps.throw(error)
            else:
                wanted = steps.send(answer)
    except StopIteration as done:
        result: _T = done.value
        return result


async def arun(steps: Steps[_T]) -> _T:
    """As `run`, each ask answered by awaiting its async twin."""
    try:
        wanted = next(steps)
        while True:
            try:
                answer = await wanted.later()
            except Exception as error:  # noqa: BLE001 - it belongs to the body that asked
                wanted = steps.throw(error)
            else:
                wanted = steps.send(answer)
    except StopIteration as done:
        result: _T = done.value
        return result
