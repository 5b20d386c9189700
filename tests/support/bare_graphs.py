"""Small graphs that are not patched, to look at details of LangGraph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

from support.agents import thread

Builder: TypeAlias = "StateGraph[Any, Any, Any, Any]"

Graph: TypeAlias = "CompiledStateGraph[Any, Any, Any, Any]"

QUESTION = {"messages": [HumanMessage("hi", id="h1")]}


class State(MessagesState):
    """A state with a second key."""

    note: str


def build(*nodes: Callable[..., Any] | Graph, schema: Any = State) -> Builder:
    """A graph that runs the nodes `n1`, `n2`, ... one after the other."""
    builder = StateGraph(schema)
    builder.add_sequence([(f"n{number}", node) for number, node in enumerate(nodes, 1)])
    return builder.add_edge(START, "n1")


def run_with(read: Callable[[RunnableConfig], Any], *, durability: Any = "sync", **options: Any):
    """What `read` returns for the config of a node."""
    values = []

    def node(state: State, config: RunnableConfig) -> None:
        values.append(read(config))

    build(node, **options).compile(checkpointer=InMemorySaver()).invoke(
        QUESTION, thread(), durability=durability
    )
    return values[0]


def nothing(state: Any) -> None:
    """A node that writes nothing."""


def pause(state: Any) -> None:
    """A node that waits for an answer."""
    interrupt("?")


def checkpoints(saver: InMemorySaver) -> list[CheckpointTuple]:
    """The checkpoints of the thread in all namespaces, newest first."""
    return list(saver.list({"configurable": {"thread_id": "1"}}))


def namespaces(saver: InMemorySaver) -> set[str]:
    """The namespaces of the thread."""
    return {saved.config["configurable"]["checkpoint_ns"] for saved in checkpoints(saver)}


def pending(saver: InMemorySaver) -> list[Any]:
    """The pending writes of the newest checkpoint of the root graph."""
    saved = saver.get_tuple(thread())
    return list(saved.pending_writes or ()) if saved else []
