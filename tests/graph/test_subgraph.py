"""A graph that is a node, for those who look at a patched graph: what it is in the bare graph."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError
from langgraph.func import entrypoint
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel.remote import RemoteGraph

from kit import Desk, StrictModel, above, calls, lines
from langgraph_patch import with_patching

GO = {"messages": [HumanMessage("go", id="h1")]}


class Own(CompiledStateGraph[Any, Any, Any, Any]):
    """A class of an application, which notes who runs."""

    ran: ClassVar[list[str]] = []
    who = "a copy"

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        self.ran.append(self.who)
        return super().invoke(*args, **kwargs)


def agent() -> Any:
    """An agent of this class, which sends a mail."""
    model = StrictModel(*[calls(("mail", {"to": "bob"})), "sent"] * 2)
    made = object.__new__(Own)
    vars(made).update(vars(create_agent(model, Desk().tools())), who="mine")
    return made


async def looks(graph: Any) -> list[Any]:
    """What clients find of the graphs below a graph; how it is drawn and a run is followed."""
    bound, below = graph.nodes["node1"].bound, graph.get_subgraphs(recurse=True)
    found: list[Any] = [(name, type(each).__name__) for name, each in below]
    if not isinstance(bound, RemoteGraph):
        drawn = graph.get_graph(xray=True).nodes
        found += [key for key in drawn if "start" not in key and "patch" not in key]
        found += [(e["event"], e["name"]) async for e in graph.astream_events(GO, version="v2")]
    return [*found, isinstance(bound, CompiledStateGraph)]


NODES: dict[str, Any] = {
    "one": lambda: [agent()],
    "three levels, twice": lambda: [above(above(agent()).compile()).compile()] * 2,
    "entrypoint": lambda: [entrypoint()(lambda _: {"messages": ["sent"]})],
    "remote": lambda: [RemoteGraph("far", url="http://127.0.0.1:1")],
}


@pytest.mark.parametrize("kind", NODES)
async def test_a_graph_that_is_a_node_is_one_for_clients(kind: str):
    """Its class, the graphs below it, their drawing, and each event of a healthy run."""
    bare, other = (above(*NODES[kind]()).compile() for _ in range(2))
    assert await looks(with_patching(other)) == await looks(bare)


@pytest.mark.parametrize("is_root", [True, False])
def test_a_class_of_the_application_and_what_it_sets(*, is_root: bool):
    """It runs as the root and as a node; what is set on a graph later holds, also for a copy."""
    graph = with_patching(agent() if is_root else above(agent()).compile())
    it = graph if is_root else graph.nodes["node1"].bound
    assert graph.invoke(GO)["messages"][-1].text == "sent"
    assert Own.ran[-1:] == [it.who] == ["mine"]
    it.config = {"recursion_limit": 1}
    with pytest.raises(GraphRecursionError):
        graph.invoke(GO)
    assert it.with_config(recursion_limit=9).invoke(GO)["messages"][-1].text == "sent"


def test_wherever_else_it_is_called_it_is_the_graph():
    """Alone it streams as it does; in a function of another graph, nothing is written there."""
    inner = with_patching(above(agent()).compile(), recover=False).nodes["node1"].bound
    assert len([*inner.stream(GO, stream_mode="updates")]) == 3

    def calling(state: Any, config: RunnableConfig) -> Any:
        return {"messages": inner.invoke(state, config)["messages"][-1:]}

    damaged = {"messages": [calls(("mail", {"to": "ann"}), id="a0"), *GO["messages"]]}
    assert lines(above(calling).compile().invoke(damaged)["messages"][1:])[1] == "ai: sent"
