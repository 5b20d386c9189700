"""The application of the server's stream tests: each run makes its graph anew."""

from __future__ import annotations

from typing import Any

from support.answer_agents import KINDS, RETRIES, broken
from support.answer_agents import by_hand as graph_of
from support.chunk_model import ChunkModel


def by_hand() -> Any:
    """Model, tools, model."""
    return KINDS["a graph by hand"][0]()


def agent() -> Any:
    """LangChain's agent."""
    return KINDS["create_agent"][0]()


def direct() -> Any:
    """A tool's result is the answer."""
    return KINDS["return_direct"][0]()


def structured() -> Any:
    """A structured answer."""
    return KINDS["ToolStrategy"][0]()


def model_in_tool() -> Any:
    """A tool asks a model."""
    return KINDS["a model in a tool"][0]()


def subgraph() -> Any:
    """An agent as the node of a graph."""
    return KINDS["an agent as a subgraph"][0]()


def retry() -> Any:
    """The first attempt of a node fails."""
    return RETRIES["RetryPolicy"]()


def fallback() -> Any:
    """The first model fails."""
    return RETRIES["ModelFallbackMiddleware"]()


def failing() -> Any:
    """The model fails in the middle of its answer."""
    return graph_of(ChunkModel(turns=[broken()]))
