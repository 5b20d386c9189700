"""Whether the code of a node may ask a human: what it mentions, in whatever way it reaches it."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import RunnableLambda
from langgraph import types
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from langgraph.types import interrupt as ask_human

from kit import StrictModel
from langgraph_patch import with_patching
from langgraph_patch._langgraph.graphs import Graph
from langgraph_patch.graph.mentions import may_ask
from langgraph_patch.graph.wrapping import cover


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
    functools.partial(closing_over(asks)),
    functools.partial(harmless, asks),
    RunnableLambda(harmless) | asks_later,
    RunnableLambda(asks).with_config(tags=["a"]),
]
OTHERS = [
    harmless,
    Gate(),
    Gate(harmless),
    closing_over(harmless),
    functools.partial(harmless, 1),
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


@pytest.mark.parametrize("node", [asks, harmless])
def test_a_named_node_that_may_ask_is_no_model(node: Any, caplog: Any):
    """A WARNING says so, and the calls at the end of its history stay open."""
    builder = StateGraph(MessagesState).add_node("gate", node).add_edge(START, "gate")
    with caplog.at_level(logging.WARNING, "langgraph_patch"):
        with_patching(builder, model_node="gate")
    assert ["mentions interrupt" in each.getMessage() for each in caplog.records] == (
        [True] if node is asks else []
    )
    covered = cover(Graph(builder), frozenset({"messages"}), frozenset({"gate"}))
    assert covered["gate"].is_model is (node is harmless)


class Agent:
    """An agent that is an object: its router asks nobody, its other methods do."""

    def __init__(self) -> None:
        self.model = StrictModel("done")

    def routes(self, state: Any) -> str:
        """Look at the history."""
        return END if state["messages"] else "gate"

    def judges(self, state: Any) -> str:
        """Ask the model."""
        return END if self.model.invoke(state["messages"]).text else "gate"


@pytest.mark.parametrize(("router", "warns"), [("routes", False), ("judges", True)])
def test_a_router_that_mentions_a_model(router: str, caplog: Any, *, warns: bool):
    """A WARNING says that routers are not covered."""
    builder = StateGraph(MessagesState).add_node("gate", harmless).add_edge(START, "gate")
    builder.add_conditional_edges("gate", getattr(Agent(), router), ["gate", END])
    with caplog.at_level(logging.WARNING, "langgraph_patch"):
        with_patching(builder)
    assert ["routers are not covered" in each.getMessage() for each in caplog.records] == (
        [True] if warns else []
    )
