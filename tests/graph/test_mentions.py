"""Whether the code of a node may ask a human: what it mentions, in whatever way it reaches it."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import RunnableLambda
from langgraph import types
from langgraph.types import interrupt
from langgraph.types import interrupt as ask_human

from kit import StrictModel
from langgraph_patch.graph.mentions import may_ask


def asks(state: Any) -> Any:
    """Ask at once."""
    return interrupt(state)


def by_another_name(state: Any) -> Any:
    """Ask under an alias."""
    return ask_human(state)


def of_its_module(state: Any) -> Any:
    """Ask through the module."""
    return types.interrupt(state)


async def asks_later(state: Any) -> Any:
    """Ask in a function that is made here."""

    def later() -> Any:
        return asks(state)

    return later()


class Gate:
    """A node that is an object."""

    def __init__(self, human: Any = None) -> None:
        self.human = human

    def __call__(self, state: Any) -> Any:
        """Do nothing, or what a method does."""
        return self.decide(state)

    def decide(self, state: Any) -> Any:
        """Call what the object has."""
        return self.human and self.human(state)


class Approvals:
    """An object, or a class, that asks."""

    def ask(self, state: Any) -> Any:
        """Ask."""
        return asks(state)

    @classmethod
    def decide(cls, state: Any) -> Any:
        """Ask."""
        return asks(state)


approver = Approvals()
module = ModuleType("approvals")
module.ask = asks  # type: ignore[attr-defined]


class Approval(AgentMiddleware[Any, Any, Any]):
    """A hook that asks in a method of its own."""

    def after_model(self, state: Any, runtime: Any) -> Any:
        """Ask."""
        return self._ask(state, runtime)

    def _ask(self, state: Any, _: Any) -> Any:
        return asks(state)


def harmless(state: Any) -> Any:
    """Ask nobody: a name in a text is no name."""
    return {"interrupt": len(state)}


def closing_over(function: Any) -> Any:
    """A function with another one in its closure."""
    return lambda state: [function(state)]


ASKING = [
    asks,
    by_another_name,
    of_its_module,
    asks_later,
    Gate(asks),
    Gate(asks).decide,
    Approval().after_model,
    closing_over(by_another_name),
    partial(closing_over(asks)),
    partial(harmless, asks),
    lambda state: [approver.ask(state)],
    lambda state: [Approvals.decide(state)],
    lambda state: [module.ask(state)],
    lambda state, ask=asks: ask(state),
    RunnableLambda(harmless) | asks_later,
    RunnableLambda(asks).with_config(tags=["a"]),
]
OTHERS = [
    harmless,
    Gate(),
    Gate(harmless),
    closing_over(harmless),
    partial(harmless, 1),
    RunnableLambda(harmless) | harmless,
    StrictModel("interrupt"),
    len,
    None,
]


@pytest.mark.parametrize(
    ("value", "asked"), [(v, True) for v in ASKING] + [(v, False) for v in OTHERS]
)
def test_what_mentions_a_question(value: Any, *, asked: bool):
    """It is found in functions, closures, methods, objects, partials and runnables."""
    assert may_ask(value) is asked


class Odd:
    """An object of the application that raises, and has no truth value."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    def __eq__(self, other: object) -> bool:
        raise ValueError("nor is it equal to something")

    __hash__ = None  # type: ignore[assignment]

    def route(self, state: Any) -> Any:
        """Look at what the object does not have."""
        return self.rules or self.data == state


def test_looking_calls_nothing_of_the_application():
    """Attributes that raise, objects without a truth value, and long lists are left alone."""
    assert not may_ask(Odd().route)
    data = [Odd()] * 300_000
    assert not may_ask(lambda state: data or state)
    assert not may_ask(partial(harmless, data))
