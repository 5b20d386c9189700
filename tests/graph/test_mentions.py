"""Whether the code of a node may ask a human: what it mentions, in whatever way it reaches it."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from kit import StrictModel
from langgraph_patch import with_patching


def asks(state: Any) -> Any:
    """Ask at once."""
    return interrupt(state)


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


def harmless(state: Any) -> Any:
    """Ask nobody: a name in a text is no name."""
    return {"interrupt": len(state)}


def closing_over(function: Any) -> Any:
    """A function with another one in its closure."""
    return lambda state: [function(state)]


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
